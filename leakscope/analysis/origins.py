"""Origins of a culprit: where it was defined, fed and filled, from source and allocations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from leakscope.analysis.growers import Grower
from leakscope.analysis.remedies import propose
from leakscope.analysis.remedies.stored_exceptions import errors_in
from leakscope.analysis.series import FloatArray, RowTable
from leakscope.analysis.source import FeedingLine, SourceIndex
from leakscope.model.census import CensusRow
from leakscope.model.known import KnownCulprit
from leakscope.model.report import Excerpt, Remedy

MOST_LINES = 5
MOST_EXCERPTS = 3
FEWEST_READINGS = 3
"""Of a container's length: fewer don't tell that it stays the same."""


@dataclass(frozen=True)
class Origins:
    """What the user's source says about a culprit."""

    defined_at: str | None
    fed_at: list[str]
    allocated_at: list[str]
    excerpts: list[Excerpt]
    remedy: Remedy


def find_origins(
    sources: SourceIndex,
    table: RowTable,
    grower: Grower,
    row: CensusRow,
    known: KnownCulprit | None = None,
    likeliest_first: Callable[[list[FeedingLine]], list[FeedingLine]] | None = None,
) -> Origins:
    """Return where a culprit was defined, fed and filled, and what to change there.

    ``likeliest_first`` orders the feeding lines, where the caller knows more of what ran.
    """
    feeding: list[FeedingLine] = []
    defined = None
    sites = sorted(table.sites.get(grower.path, []), key=lambda s: -s.bytes)
    if row.owner is not None:
        witnessed = msgspec.structs.replace(row, allocated_at=sites)
        inside = _grows_inside(table, grower)
        feeding = sources.feeding(row.owner, witnessed, grower.phase, grows_inside=inside)
        defined = sources.defined_at(row.owner, row)
        errors = errors_in([table.latest[path] for path in table.descendants(grower.path)], row)
        if errors is not None and errors.owner is not None:
            assigned = sources.assigning(errors.owner, errors, grower.phase)
            kept = assigned or sources.feeding(errors.owner, errors, grower.phase)
            told = [line for line in kept if line.form != "call"]
            feeding = list(dict.fromkeys([*told, *feeding]))
    if likeliest_first is not None:
        feeding = likeliest_first(feeding)
    shown = feeding[:MOST_LINES]
    return Origins(
        defined_at=defined,
        fed_at=list(dict.fromkeys(sources.location(f.file, f.line) for f in shown)),
        allocated_at=[sources.location(s.file, s.line) for s in sites[:MOST_LINES]],
        excerpts=_excerpts(sources, shown),
        remedy=propose(
            row,
            growth=grower.growth,
            falls_back=grower.falls_back,
            unit=grower.unit,
            phase=grower.phase,
            items_per_unit=grower.items_per_unit,
            feeding=feeding,
            sources=sources,
            known=known,
            above=[table.latest[path] for path in table.ancestors(grower.path)],
            inside=[table.latest[path] for path in table.descendants(grower.path)],
            shrank=_shrank(table.length[grower.path]),
        ),
    )


def _shrank(lengths: FloatArray) -> bool:
    """Whether a container was seen shorter than before, and not only as the program ended."""
    seen = lengths[np.isfinite(lengths)]
    fell = np.flatnonzero(np.diff(seen) < 0)
    return len(fell) > 0 and bool((seen[fell[0] + 2 :] > seen[fell[0] + 1]).any())


def _grows_inside(table: RowTable, grower: Grower) -> bool:
    """Whether it went on growing when it got no more items: what it held became larger."""
    late = slice(len(grower.columns) // 2, None)
    lengths, sizes = table.length[grower.path, grower.columns[late]], grower.y[late]
    is_same = len(lengths) >= FEWEST_READINGS and bool(np.all(lengths == lengths[0]))
    return is_same and bool(sizes[-1] > sizes[0])


def _excerpts(sources: SourceIndex, feeding: list[FeedingLine]) -> list[Excerpt]:
    lines: dict[str, tuple[str, list[int]]] = {}
    for line in feeding:
        shown = sources.location(line.file, line.line).rpartition(":")[0]
        lines.setdefault(shown, (line.file, []))[1].append(line.line)
    found = [sources.excerpt(file, marked) for file, marked in lines.values()]
    return [excerpt for excerpt in found if excerpt is not None][:MOST_EXCERPTS]
