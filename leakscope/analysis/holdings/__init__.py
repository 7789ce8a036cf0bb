"""What memory held, by name, at a choice of censuses, in this process and in others of its run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from leakscope.analysis.holdings.joining import join_retained
from leakscope.analysis.holdings.tree import (
    MOST_CELLS,
    MOST_CENSUSES,
    choose_censuses,
    fold,
    grow,
    last_at_work,
    like_pair,
    looks_of,
)
from leakscope.analysis.processes.ranks import MANY, Ranks, ranks_here
from leakscope.analysis.processes.workers import Workers
from leakscope.analysis.run_context import RunContext
from leakscope.model.report import Culprit
from leakscope.model.run import Recording, Retained, RetainedCensus, RetainedProcess, Run

__all__ = [
    "find_retained",
    "find_retained_of_others",
    "join_retained",
]
MOST_PROCESSES = 5
"""In addition to the one that a report is about."""


@dataclass(frozen=True)
class TreeLimits:
    """How much is kept of a tree."""

    censuses: int = MOST_CENSUSES
    cells: int = MOST_CELLS


_ALL = TreeLimits()


def find_retained(
    case: RunContext, culprits: Sequence[Culprit], room: TreeLimits = _ALL
) -> Retained | None:
    """Return what memory of a process held at each of a few censuses, None where there was none.

    The paths of the culprits are among the nodes.
    """
    looks = looks_of(case)
    if not looks:
        return None
    first, last = like_pair(case, looks)
    chosen = choose_censuses(case, looks, culprits, room.censuses)
    kept = [looks[place] for place in chosen]
    cutoff = max(look.census.cutoff_bytes for look in kept)
    tree = fold(grow(kept), {culprit.path for culprit in culprits}, cutoff, room.cells)
    return Retained(
        process=process_of(case),
        nodes=tree.nodes,
        censuses=[
            RetainedCensus(
                boundary=look.boundary,
                scope=look.census.scope,
                cutoff_bytes=look.census.cutoff_bytes,
                truncated=look.census.graph_truncated,
                bytes=columns,
            )
            for look, columns in zip(kept, tree.bytes, strict=True)
        ],
        taken=len(looks),
        first=chosen.index(first),
        last=chosen.index(last),
        shown=chosen.index(last_at_work(case, looks)),
    )


def process_of(case: RunContext) -> RetainedProcess:
    """Return which process a run context is of."""
    header = case.recording.header
    return RetainedProcess(
        rank=header.rank if header.world_size > 1 else None,
        loader=header.loader,
        worker=header.worker,
        generation=header.generation,
        pid=header.pid,
    )


ROOM = TreeLimits(censuses=40, cells=24_000)
"""Of each: all of them together take no more room than the first."""


def find_retained_of_others(
    case: RunContext, others: Iterable[RunContext], culprits: Sequence[Culprit]
) -> list[Retained]:
    """Return what the memory of other processes held, in their order; each process once.

    Args:
        case: of the process that the report is about, whose clock is used.
        others: of the others, the most important first; no more are taken than are reported.
        culprits: all of the report.

    """
    found: list[Retained] = []
    seen = {id(case.recording)}
    for other in others:
        if len(found) == MOST_PROCESSES:
            break
        if id(other.recording) in seen:
            continue
        seen.add(id(other.recording))
        with np.errstate(all="ignore"):
            retained = find_retained(other, culprits, ROOM)
        if retained is not None:
            # Clocks of other machines can't tell: those begin with this one.
            later = other.recording.began_after(case.recording) or 0.0
            found.append(_on_clock(retained, later))
    return found


def _on_clock(retained: Retained, later: float) -> Retained:
    return msgspec.structs.replace(
        retained,
        censuses=[
            msgspec.structs.replace(
                census,
                boundary=msgspec.structs.replace(
                    census.boundary, time_s=max(0.0, census.boundary.time_s + later)
                ),
            )
            for census in retained.censuses
        ],
    )


def secondary_recordings(
    case: RunContext,
    culprits: Sequence[Culprit],
    ranks: Ranks,
    workers: Workers,
    read: Callable[[int], Recording | None],
) -> Iterator[RunContext]:
    """Yield the recordings that culprits are of, the worst first, then other ranks and workers.

    It is lazy: a recording is read and tabulated only when it is taken.

    Args:
        case: of the process that the report is about.
        culprits: all of the report.
        ranks: what was concluded of the ranks.
        workers: what was concluded of the workers.
        read: returns the recording of a rank, None where it can't be read.

    """
    known = {case.recording.header.rank}
    for culprit in culprits:
        if culprit.workers:
            if culprit.signature in workers.tellers:
                yield workers.tellers[culprit.signature]
        elif ranks.merged is not None and (rank := ranks.merged.rank_of(culprit)) not in known:
            known.add(rank)
            recording = read(rank)
            if recording is not None:
                yield RunContext(case.run, recording, case.catalogue)
    for recording in _to_compare_with(case.run, len(ranks.rows)):
        if recording.header.rank not in known:
            yield RunContext(case.run, recording, case.catalogue)
    yield from workers.heaviest


def _to_compare_with(run: Run, ranks: int) -> list[Recording]:
    """Return further ranks: all of few, of many the first alone."""
    here = ranks_here(run)
    return here if ranks <= MANY else [each for each in here if each is run.main]
