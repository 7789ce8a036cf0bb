"""Workers that were forked and copy what they inherited by looking at it.

A forked worker shares its parent's memory until somebody writes to a page, and Python writes a
reference count into every object that it hands out. A list of many small objects is so copied piece
by piece into every worker (https://github.com/pytorch/pytorch/issues/13246). That ends when all of
it is copied: it is no leak, but may be what memory runs out by.

Which structure it is is told by what the kernel says of the pages in which sampled objects lie
(:mod:`leakscope.heap.pages`), and only where the structure itself doesn't grow. How much it comes
to is what the worker's own memory gained meanwhile: objects lie beside others, and what they hold
is looked at or not. The collector looks at all objects too: when it runs in either process after
the fork, all is copied before the first look. May be confused with: a cache of the worker's own,
whose pages were never shared and which grows; with what a worker made for itself, which its parent
doesn't hold.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.severity import MIB
from leakscope.analysis.workers.judged import Group, Worker, at_one_time, gained_by_culprits
from leakscope.model import gauge
from leakscope.model.census import CensusRow
from leakscope.model.report import Finding, Remedy, Severity
from leakscope.model.sizes import human_bytes, human_share, plural

FORK = "fork"
INHERITED = 0.5
"""At the first look at most this part of what was inherited may be copied already."""
STEADY = 1.1
"""What is inherited doesn't grow by more than this."""
WORTH_BYTES = 8 * MIB
"""Copied in one worker."""
OWN_COPY_BYTES = 64 * MIB
"""Held by all spawned workers together."""
MANY = 1000
COPIED_KINDS = ("list", "dict", "tuple", "set", "deque", "array")
THREATENS = 0.9
"""Part of the limit that memory must reach when all is copied."""
ALIKE = 0.9
"""Contents have a name where so many of them are of one type."""

REMEDY = Remedy(
    title="Hold it as arrays",
    text=(
        "Looking at a Python object writes its reference count, and so copies its page into every "
        "worker. Hold the table as numpy arrays, tensors or a pyarrow table (strings as one array "
        "of bytes and one of offsets): workers then share it. Fewer workers, or shared memory, "
        "help as well."
    ),
)
OWN_COPY = Remedy(
    title="Send less to each worker",
    text=(
        "A process that isn't forked gets its own copy of the dataset, lists and arrays alike. "
        "Tensors go through shared memory and are held once, and so is a file that each worker "
        "maps (numpy.memmap, a pyarrow table). Fewer workers hold fewer copies."
    ),
)


@dataclass(frozen=True)
class Copied:
    """A structure that one worker inherited and copies."""

    worker: Worker
    row: CensusRow
    first: float
    last: float
    """Parts of its sampled objects that lay in the worker's own memory."""
    began: int
    """The measurement at which it was looked at first."""
    measured: float | None = None
    """Its part of what the worker's own memory came to by it; None where that was not read."""

    @property
    def at_once(self) -> bool:
        """Whether that was done before the first look."""
        return self.first > INHERITED

    @property
    def sampled(self) -> float:
        """How much was copied if all of the structure went as the sampled objects did."""
        return (self.last - self.first * (not self.at_once)) * self.row.host_bytes

    @property
    def in_all(self) -> float:
        """How much was copied, as far as it is known."""
        return self.sampled if self.measured is None else min(self.measured, self.row.host_bytes)

    @property
    def bytes(self) -> float:
        """How much was copied while the worker was recorded."""
        seen = (self.last - self.first) * self.row.host_bytes
        return min(seen, self.in_all) if self.at_once else self.in_all

    @property
    def left(self) -> float:
        """How much may still be shared."""
        unseen = (1.0 - self.last) * self.row.host_bytes
        return unseen if self.measured is None else max(unseen, self.row.host_bytes - self.in_all)


def find_copied(case: Case, workers: list[Worker]) -> list[Copied]:
    """Return what forked workers copied, of each worker the structures and not their owners.

    ``case`` is that of their parent.
    """
    held = {row.name: row.host_bytes for row in case.table.latest}
    return [
        copied
        for worker in workers
        if worker.recording.header.start_method == FORK
        for copied in _of_worker(worker, held)
    ]


def copied_findings(case: Case, copied: list[Copied]) -> list[Finding]:
    """Return a finding for each structure that workers copy."""
    same: dict[str, list[Copied]] = defaultdict(list)
    for one in copied:
        same[one.row.path].append(one)
    return [_finding(case, found) for found in same.values()]


def own_copies(workers: list[Worker]) -> list[Finding]:
    """Return a note for each large structure that spawned workers hold a copy of, each its own."""
    held: dict[str, dict[Group, list[CensusRow]]] = defaultdict(lambda: defaultdict(list))
    for worker in workers:
        if worker.recording.header.start_method not in {FORK, ""}:
            for row in _sent_along(worker):
                held[row.path][worker.group].append(row)
    at_once = [max(groups.values(), key=_together) for groups in held.values()]
    return [
        _copies_note(rows)
        for rows in at_once
        if len(rows) > 1 and _together(rows) >= OWN_COPY_BYTES
    ]


def _together(rows: list[CensusRow]) -> int:
    return sum(row.host_bytes for row in rows)


def _sent_along(worker: Worker) -> list[CensusRow]:
    """Return what a worker held from its first census on without growth: the outermost of it.

    Tensors are left out: torch sends them through shared memory.
    """
    grown = {culprit.path for culprit in worker.culprits}
    censuses = worker.case.table.censuses
    first = {row.path: row for row in censuses[0].rows} if censuses else {}
    found = [
        row
        for row in worker.case.table.latest
        if row.path in first
        and row.path not in grown
        and (row.length or 0) >= MANY
        and row.kind in COPIED_KINDS
        and row.host_bytes <= STEADY * first[row.path].host_bytes
    ]
    paths = {row.path for row in found}
    return [row for row in found if not any(_is_inside(row.path, path) for path in paths)]


def _of_worker(worker: Worker, held: dict[str, int]) -> list[Copied]:
    """Return what a worker copied of what it inherited; ``held`` are its parent's rows by name."""
    found = [
        one
        for one in _looked_at(worker)
        if one.sampled >= WORTH_BYTES and (not one.at_once or _is_as_in(held, one.row))
    ]
    paths = {one.row.path for one in found}
    outermost = [one for one in found if not any(_is_inside(p, one.row.path) for p in paths)]
    return [one for one in _measured(worker, outermost) if one.in_all >= WORTH_BYTES]


def _measured(worker: Worker, found: list[Copied]) -> list[Copied]:
    """Return structures with their part of the memory that the worker came to have of its own.

    What grows in it is left out, and pages of files that it alone maps: a copy is a page that was
    written to. Several structures have their parts by their sampled objects.
    """
    private = worker.case.track.gauge(gauge.PRIVATE_DIRTY)
    read = np.flatnonzero(np.isfinite(private))
    together, grown = sum(one.sampled for one in found), gained_by_culprits([worker])

    def of(one: Copied) -> Copied:
        before = read[read <= one.began]
        if not len(before) or (read[-1] <= one.began and not one.at_once):
            return one
        first = 0.0 if one.at_once else float(private[before[-1]])
        gained = max(float(private[read[-1]]) - first - grown, 0.0)
        return replace(one, measured=gained * one.sampled / together)

    return [of(one) for one in found]


def _is_as_in(held: dict[str, int], row: CensusRow) -> bool:
    """Return whether the parent holds the same, under the same name."""
    bytes_there = held.get(row.name, 0)
    return row.host_bytes <= STEADY * bytes_there and bytes_there <= STEADY * row.host_bytes


def _is_inside(path: str, owner: str) -> bool:
    return path != owner and path.startswith(owner)


def _looked_at(worker: Worker) -> list[Copied]:
    """Return steady containers whose pages were looked at, as the first and last look had them."""
    looks: dict[str, list[tuple[int, CensusRow]]] = defaultdict(list)
    table = worker.case.table
    for position, census in zip(map(int, table.at), table.censuses, strict=True):
        for row in census.rows:
            if row.copied_share is not None:
                looks[row.path].append((position, row))
    return [
        Copied(worker, last, first.copied_share or 0.0, _last_share(worker, at, last), began)
        for (began, first), (at, last) in ((found[0], found[-1]) for found in looks.values())
        if last.host_bytes <= STEADY * first.host_bytes
    ]


def _last_share(worker: Worker, at: int, row: CensusRow) -> float:
    """Return what the last look at a structure's pages saw, also one without a census after it."""
    track, name = worker.case.track, gauge.copied(row.path)
    later = [place for place in map(int, track.known(name)) if place > at]
    return float(track.gauge(name)[later[-1]]) / 1000 if later else row.copied_share or 0.0


def _finding(case: Case, found: list[Copied]) -> Finding:
    most = max(found, key=lambda one: one.in_all)
    row, count = most.row, int(at_one_time((one.worker.group, 1) for one in found))
    together = at_one_time((one.worker.group, one.in_all) for one in found)
    to_come = count * most.left
    limit = case.limit_bytes
    threatens = bool(limit) and case.used_at_end() + to_come >= THREATENS * (limit or 1)
    text = (
        f"{row.name} ({_with_items(row)}) holds {human_bytes(row.host_bytes)} in the parent. "
        f"{plural(count, 'forked worker')} copied up to {human_bytes(most.in_all)} of it "
        f"({human_share(most.in_all / row.host_bytes)}) by looking at it"
    )
    if most.at_once:
        text += ", or the garbage collector did, which looks at all objects"
    if count > 1:
        text += f", {human_bytes(together)} in all of them"
    text += f"; {human_bytes(to_come)} more may follow." if to_come >= MIB else ", all there is."
    seen = (
        f"Of sampled items {human_share(most.first)} lay in the worker's own pages at the first "
        f"look, {human_share(most.last)} at the last."
    )
    return finding(
        "copy_on_write",
        f"Workers copy {row.name} by looking at it",
        text,
        REMEDY,
        severity=Severity.WARNING if threatens else Severity.NOTE,
        total_bytes=together,
        falsifier=("If it were a leak, it would go on when all is copied.", seen),
        subject=row.path,
        growth="constant",
    )


def _copies_note(rows: list[CensusRow]) -> Finding:
    row, count = max(rows, key=lambda one: one.host_bytes), len(rows)
    together = _together(rows)
    return finding(
        "worker_copies",
        f"Each worker has a copy of {row.name}",
        f"{row.name} ({_with_items(row)}) takes "
        f"{human_bytes(row.host_bytes)} in each of {plural(count, 'worker')}, "
        f"{human_bytes(together)} together: they were not forked, so each got a copy of its own "
        "when it started. It doesn't grow.",
        OWN_COPY,
        severity=Severity.NOTE,
        total_bytes=float(together),
        falsifier=("With fewer workers as much less is held.", None),
        subject=row.path,
        growth="constant",
    )


def _with_items(row: CensusRow) -> str:
    """Return ``list of 600,000 dicts``; ``items`` where they are of several types or unknown."""
    if not row.length:
        return row.type
    most = max(row.holds, key=lambda held: held.count, default=None)
    if most is None or most.count < ALIKE * row.length:
        return f"{row.type} of {plural(row.length, 'item')}"
    noun = most.type.rpartition(".")[2]
    return f"{row.type} of {plural(row.length, 'string' if noun == 'str' else noun)}"
