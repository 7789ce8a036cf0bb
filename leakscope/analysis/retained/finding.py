"""One process's memory as a tree of names, at a choice of its censuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leakscope.analysis.case import Case
from leakscope.analysis.retained.choosing import (
    MOST_CENSUSES,
    choose,
    last_at_work,
    like_pair,
    looks_of,
)
from leakscope.analysis.retained.folding import MOST_CELLS, fold
from leakscope.analysis.retained.tree import grow
from leakscope.model.report import Culprit
from leakscope.model.retained import Retained, RetainedCensus, RetainedProcess


@dataclass(frozen=True)
class Room:
    """How much is kept of a tree."""

    censuses: int = MOST_CENSUSES
    cells: int = MOST_CELLS


_ALL = Room()


def find_retained(case: Case, culprits: Sequence[Culprit], room: Room = _ALL) -> Retained | None:
    """Return what memory of a process held at each of a few censuses, None where there was none.

    The paths of the culprits are among the nodes.
    """
    looks = looks_of(case)
    if not looks:
        return None
    first, last = like_pair(case, looks)
    chosen = choose(case, looks, culprits, room.censuses)
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


def process_of(case: Case) -> RetainedProcess:
    """Return whose memory a case tells of."""
    header = case.recording.header
    return RetainedProcess(
        rank=header.rank if header.world_size > 1 else None,
        loader=header.loader,
        worker=header.worker,
        generation=header.generation,
        pid=header.pid,
    )
