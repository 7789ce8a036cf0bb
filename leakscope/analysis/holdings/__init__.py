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
    moved = [
        msgspec.structs.replace(b, time_s=max(0.0, b.time_s + later))
        for b in (census.boundary for census in retained.censuses)
    ]
    censuses = [
        msgspec.structs.replace(census, boundary=boundary)
        for census, boundary in zip(retained.censuses, moved, strict=True)
    ]
    return msgspec.structs.replace(retained, censuses=censuses)


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
    for alike in (_same_work, _comparable, _same_scope):
        found = [
            (later, earlier)
            for later, second in enumerate(after.censuses)
            for earlier, first in enumerate(before.censuses)
            if alike(first, second)
        ]
        if found:
            later, earlier = max(found)
            return earlier, later
    return len(before.censuses) - 1, len(after.censuses) - 1


def _same_scope(first: RetainedCensus, second: RetainedCensus) -> bool:
    return first.scope is second.scope


def _comparable(first: RetainedCensus, second: RetainedCensus) -> bool:
    alike = comparable_key(first.boundary) == comparable_key(second.boundary)
    return alike and _same_scope(first, second)


def _same_work(first: RetainedCensus, second: RetainedCensus) -> bool:
    done = [(b.epoch, b.step, b.batch) for b in (first.boundary, second.boundary)]
    return done[0] == done[1] and _comparable(first, second)


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
        self._add((0, 0), -1)
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
            missing = [
                _SMALLER in side.below.get(a, {})
                for side, a, place in zip(self._sides, above, places, strict=True)
                if place is None
            ]
            if key == _SMALLER or any(missing):
                folded.append(places)
            else:
                self._add(places, here)
        if folded:
            self._add_smaller(folded, here)

    def _add(self, places: _Places, parent: int) -> None:
        known = [s.nodes[p] for s, p in zip(self._sides, places, strict=True) if p is not None]
        self.nodes.append(msgspec.structs.replace(known[-1], parent=parent))
        self._origins.append(places)
        self._write([places])

    def _add_smaller(self, folded: list[_Places], parent: int) -> None:
        count = max(
            sum(side.nodes[p].count or 1 for pair in folded if (p := pair[number]) is not None)
            for number, side in enumerate(self._sides)
        )
        self.nodes.append(RetainedNode(kind=NodeKind.SMALLER, parent=parent, count=count))
        self._origins.append((None, None))
        self._write(folded)

    def _write(self, places: Iterable[_Places]) -> None:
        for number, (side, columns) in enumerate(zip(self._sides, self.bytes, strict=True)):
            for device, column in columns.items():
                sizes = [side.size(device, pair[number]) for pair in places]
                known = [size for size in sizes if size is not None]
                column.append(sum(known) if known else None)
