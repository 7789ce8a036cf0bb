"""From the rounds of a scenario to findings: what grows, who holds it, which line feeds it."""

from __future__ import annotations

from pathlib import Path

from leakscope.analysis.growers import Grower
from leakscope.analysis.origins import find_origins
from leakscope.analysis.series import RowTable
from leakscope.analysis.source import SourceIndex
from leakscope.model.census import CensusRow, RootKind
from leakscope.model.growth import Growth
from leakscope.model.interrupts import ours
from leakscope.model.sizes import plural
from leakscope.testing import exit_handlers, live_threads, made_classes, module_names
from leakscope.testing.judging import Courses
from leakscope.testing.live_threads import with_threads_once
from leakscope.testing.made_classes import with_classes_once
from leakscope.testing.reach import Reach
from leakscope.testing.rounds import Rounds

_MOST_NAMED = 3


def find(rounds: Rounds) -> list[Growth]:
    """Return what grew beyond what is allowed, with the lines that feed it, the fastest first."""
    courses = Courses(rounds.censuses, rounds.plan.ignore)
    class_paths = rounds.looker.class_paths
    told_once = with_threads_once(courses.table, courses.growers())
    growers = [
        grower
        for grower in with_classes_once(courses.table, told_once, class_paths)
        if grower.trend.bytes_per_unit > rounds.plan.allow_bytes
    ]
    if not growers:
        return []
    growers = _without_twins(courses.table, growers)
    sources = SourceIndex(_texts(rounds.looker.source_files), rounds.looker.project_root)
    reach = rounds.looker.reach
    found = [_growth(courses.table, sources, grower, reach) for grower in growers]
    return [made_classes.of_classes(g) if g.path in class_paths else g for g in found]


def _without_twins(table: RowTable, growers: list[Grower]) -> list[Grower]:
    """Leave out ``atexit`` where what only native code holds is named: it may hold that."""
    rows = {grower.path: table.latest[grower.path] for grower in growers}
    if not any(row.root is RootKind.NATIVE for row in rows.values()):
        return growers
    return [grower for grower in growers if rows[grower.path].path != exit_handlers.PATH]


def _growth(table: RowTable, sources: SourceIndex, grower: Grower, reach: Reach) -> Growth:
    row = table.latest[grower.path]
    origins = find_origins(sources, table, grower, row, likeliest_first=reach.likeliest_first)
    count = table.count[grower.path, grower.columns]
    objects = grower.items_per_unit or max(0.0, float(count[-1] - count[0])) / grower.units
    return Growth(
        path=row.path,
        holder=_holder(row),
        type=row.type,
        kind=row.kind,
        bytes_per_call=grower.trend.bytes_per_unit,
        objects_per_call=objects,
        device=grower.device,
        fed_by=_likeliest(origins.fed_at, origins.allocated_at),
        feeding=origins.fed_at or origins.allocated_at,
        defined_at=origins.defined_at or "",
        holds=[" ".join(filter(None, (held.type, held.detail))) for held in row.holds],
        advice=_advice(row, origins.remedy.title),
        diff=origins.remedy.diff or "",
        excerpts=origins.excerpts,
    )


def _likeliest(feeding: list[str], making: list[str]) -> str:
    """Return the line that feeds: by the source, and of several by where items were made.

    Where that doesn't tell, all are named: others than the scenario may feed the same container.
    """
    seen = [line for line in making if line in feeding]
    if not seen and len(feeding) > _MOST_NAMED:
        left = plural(len(feeding) - _MOST_NAMED, "more line")
        return f"{', '.join(feeding[:_MOST_NAMED])} or {left}"
    return " or ".join(seen[:1] or feeding or making[:1])


def _holder(row: CensusRow) -> str:
    if row.root is RootKind.NATIVE:
        return f"What native code holds ({row.type})"
    if row.path == live_threads.PATH:
        return live_threads.HOLDER
    return row.name


def _advice(row: CensusRow, title: str) -> str:
    if module_names.is_namespace(row):
        return module_names.ADVICE
    if row.path == exit_handlers.PATH:
        return exit_handlers.ADVICE
    if row.path == live_threads.PATH:
        return live_threads.ADVICE
    return title if row.root is not RootKind.NATIVE else ""


def _texts(files: set[str]) -> dict[str, str]:
    texts = {file: _text(file) for file in sorted(files)}
    return {file: text for file, text in texts.items() if text}


def _text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except ours(OSError):
        return ""
