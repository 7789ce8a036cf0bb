"""What memory held, by name, at a choice of censuses, in this process and in others of its run; and
the trees of two runs as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from leakscope.analysis.holdings.tree import (
    MOST_CELLS,
    MOST_CENSUSES,
    Column,
    added,
    choose_censuses,
    fold,
    grow,
    last_at_work,
    like_pair,
    looks_of,
)
from leakscope.analysis.processes.children import label_of
from leakscope.analysis.processes.ranks import MANY, Ranks, ranks_here
from leakscope.analysis.processes.workers import Workers
from leakscope.analysis.run_context import RunContext
from leakscope.model.boundary import comparable_key
from leakscope.model.report import Culprit
from leakscope.model.run import (
    NodeKind,
    Recording,
    Retained,
    RetainedCensus,
    RetainedNode,
    RetainedProcess,
)

__all__ = [
    "find_retained",
    "find_retained_of_others",
    "join_retained",
]
MOST_PROCESSES = 5
"""In addition to the one that a report is about."""


class TreeLimits(NamedTuple):
    """How much is kept of a tree."""

    censuses: int
    cells: int


_ALL = TreeLimits(MOST_CENSUSES, MOST_CELLS)


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
        child=label_of(case.run, case.recording) if header.child is not None else "",
    )


ROOM = TreeLimits(censuses=40, cells=24_000)
"""Of each: all of them together take no more room than the first."""


def find_retained_of_others(
    case: RunContext, others: Iterable[RunContext], culprits: Sequence[Culprit]
) -> list[Retained]:
    """Return what the memory of other processes held, each once, the most important first; no more
    are taken than are reported. Times are by the clock of the process that the report is about.
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
    replace = msgspec.structs.replace
    moved = [
        replace(c, boundary=replace(c.boundary, time_s=max(0.0, c.boundary.time_s + later)))
        for c in retained.censuses
    ]
    return replace(retained, censuses=moved)


def secondary_recordings(
    case: RunContext,
    culprits: Sequence[Culprit],
    ranks: Ranks,
    workers: Workers,
    read: Callable[[int], Recording | None],
) -> Iterator[RunContext]:
    """Yield the recordings that culprits are of, the worst first, then other ranks and workers.

    It is lazy: a recording is read and tabulated only when it is taken. ``read`` returns the
    recording of a rank, None where it can't be read.
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
    for recording in ranks_here(case.run):  # of many ranks the first alone
        is_shown = len(ranks.rows) <= MANY or recording is case.run.main
        if is_shown and recording.header.rank not in known:
            yield RunContext(case.run, recording, case.catalogue)
    yield from workers.heaviest


# Two runs as one

_SMALLER = (NodeKind.SMALLER.value, "")
_Places = tuple[int | None, int | None]


def join_retained(before: Retained | None, after: Retained | None) -> Retained | None:
    """Return one tree with two censuses, of the run before and of the run after; None where either
    has none.
    """
    if before is None or after is None:
        return None
    earlier, later = like_censuses(before, after)
    sides = (_Side(before, earlier), _Side(after, later))
    union = _Union(sides)
    return Retained(
        nodes=union.nodes,
        censuses=[
            msgspec.structs.replace(side.census, bytes=columns)
            for side, columns in zip(sides, union.bytes, strict=True)
        ],
        taken=2,
        first=0,
        last=1,
        shown=1,
    )


def like_censuses(before: Retained, after: Retained) -> tuple[int, int]:
    """Return the last census of each run that is like one of the other's.

    They are of one scope, at comparable boundaries, after as much work; else after any work, else
    of one scope; where nothing is alike, the last of each.
    """
    firsts, seconds = ([*map(_course, run.censuses)] for run in (before, after))
    for alike in (3, 2, 1):
        found = [
            (later, earlier)
            for later, second in enumerate(seconds)
            for earlier, first in enumerate(firsts)
            if first[:alike] == second[:alike]
        ]
        if found:
            later, earlier = max(found)
            return earlier, later
    return len(firsts) - 1, len(seconds) - 1


def _course(census: RetainedCensus) -> tuple[object, ...]:
    at = census.boundary
    return census.scope, comparable_key(at), (at.epoch, at.step, at.batch)


class _Side:
    """One run's tree at one census."""

    def __init__(self, retained: Retained, census: int) -> None:
        self.nodes = retained.nodes
        self.census = retained.censuses[census]
        self.below: dict[int | None, dict[tuple[str, str], int]] = {}
        for place, node in enumerate(retained.nodes[1:], 1):
            self.below.setdefault(node.parent, {})[node.kind.value, node.label] = place

    def size(self, device: str, place: int | None) -> int | None:
        """Return the bytes of a node: 0 where there is none."""
        column = self.census.bytes.get(device)
        return 0 if place is None or column is None else column[place]


class _Union:
    """Both trees laid over each other, node by node under the same steps."""

    def __init__(self, sides: tuple[_Side, _Side]) -> None:
        self._sides = sides
        self.nodes: list[RetainedNode] = []
        devices = dict.fromkeys(device for side in sides for device in side.census.bytes)
        self.bytes: list[dict[str, Column]] = [{d: [] for d in devices} for _ in sides]
        self._origins: list[_Places] = []
        self._add(msgspec.structs.replace(sides[1].nodes[0], parent=-1), (0, 0), [(0, 0)])
        here = 0
        while here < len(self._origins):
            self._add_children(here)
            here += 1

    def _add_children(self, here: int) -> None:
        """Add what is below a node. What one run names and the other may have added up can't be
        compared: it is added up for both.
        """
        above = self._origins[here]
        below = [s.below.get(a, {}) for s, a in zip(self._sides, above, strict=True)]
        folded: list[_Places] = []
        for key in dict.fromkeys(key for side in below for key in side):
            places = (below[0].get(key), below[1].get(key))
            if key == _SMALLER or any(key not in side and _SMALLER in side for side in below):
                folded.append(places)
                continue
            known = [s.nodes[p] for s, p in zip(self._sides, places, strict=True) if p is not None]
            self._add(msgspec.structs.replace(known[-1], parent=here), places, [places])
        if folded:
            count = max(
                sum(side.nodes[p].count or 1 for pair in folded if (p := pair[number]) is not None)
                for number, side in enumerate(self._sides)
            )
            node = RetainedNode(kind=NodeKind.SMALLER, parent=here, count=count)
            self._add(node, (None, None), folded)

    def _add(self, node: RetainedNode, origin: _Places, places: Iterable[_Places]) -> None:
        self.nodes.append(node)
        self._origins.append(origin)
        for number, (side, columns) in enumerate(zip(self._sides, self.bytes, strict=True)):
            for device, column in columns.items():
                column.append(added(side.size(device, pair[number]) for pair in places))
