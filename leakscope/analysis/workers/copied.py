"""Workers that were forked and copy what they inherited by looking at it.

A forked worker shares its parent's memory until somebody writes to a page, and Python writes a
reference count into every object that it hands out. A list of many small objects is so copied piece
by piece into every worker (https://github.com/pytorch/pytorch/issues/13246). That ends when all of
it is copied: it is no leak, but may be what memory runs out by.

Told by what the kernel says of the pages in which sampled objects lie
(:mod:`leakscope.heap.pages`), and only where the structure itself doesn't grow. The collector looks
at all objects too: when it runs in either process after the fork, all is copied before the first
look. May be confused with: a cache of the worker's own, whose pages were never shared and which
grows; with what a worker made for itself, which its parent doesn't hold.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.severity import MIB
from leakscope.analysis.workers.judged import Group, Worker
from leakscope.model.census import CensusRow
from leakscope.model.report import Finding, Remedy, Severity
from leakscope.model.sizes import human_bytes, human_count, human_share, plural

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
    """Parts of it that lay in the worker's own memory."""
    at_once: bool = False
    """Whether that was done before the first look."""

    @property
    def bytes(self) -> float:
        """How much was copied while the worker was recorded."""
        return (self.last - self.first) * self.row.host_bytes

    @property
    def in_all(self) -> float:
        """How much was copied, as far as it is known."""
        return self.last * self.row.host_bytes if self.at_once else self.bytes

    @property
    def left(self) -> float:
        """How much is still shared."""
        return (1.0 - self.last) * self.row.host_bytes


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
    looked_at = [
        Copied(worker, row, first, last, at_once=first > INHERITED)
        for row, first, last in _looked_at(worker)
    ]
    found = [
        one
        for one in looked_at
        if one.in_all >= WORTH_BYTES and (not one.at_once or _is_as_in(held, one.row))
    ]
    paths = {one.row.path for one in found}
    return [one for one in found if not any(_is_inside(p, one.row.path) for p in paths)]


def _is_as_in(held: dict[str, int], row: CensusRow) -> bool:
    """Return whether the parent holds the same, under the same name."""
    bytes_there = held.get(row.name, 0)
    return row.host_bytes <= STEADY * bytes_there and bytes_there <= STEADY * row.host_bytes


def _is_inside(path: str, owner: str) -> bool:
    return path != owner and path.startswith(owner)


def _looked_at(worker: Worker) -> list[tuple[CensusRow, float, float]]:
    """Return steady containers whose pages were looked at, with their first and last share."""
    shares: dict[str, list[CensusRow]] = defaultdict(list)
    for census in worker.case.table.censuses:
        for row in census.rows:
            if row.copied_share is not None:
                shares[row.path].append(row)
    return [
        (rows[-1], rows[0].copied_share or 0.0, rows[-1].copied_share or 0.0)
        for rows in shares.values()
        if rows[-1].host_bytes <= STEADY * rows[0].host_bytes
    ]


def _finding(case: Case, found: list[Copied]) -> Finding:
    most = max(found, key=lambda one: one.in_all)
    row, count = most.row, len({one.worker.recording.header.worker for one in found})
    to_come = count * most.left
    limit = case.limit_bytes
    threatens = bool(limit) and case.used_at_end() + to_come >= THREATENS * (limit or 1)
    items = f" of {human_count(row.length or 0)} items" if row.length else ""
    text = (
        f"{row.name} ({row.type}{items}) holds {human_bytes(row.host_bytes)} in the parent. "
        f"{plural(count, 'forked worker')} copied up to {human_bytes(most.in_all)} of it "
        f"({human_share(most.last)}) by looking at it"
    )
    if most.at_once:
        text += ", or the garbage collector did, which looks at all objects"
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
        total_bytes=sum(one.in_all for one in found),
        confidence=0.9,
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
        f"{row.name} ({row.type} of {human_count(row.length or 0)} items) takes "
        f"{human_bytes(row.host_bytes)} in each of {plural(count, 'worker')}, "
        f"{human_bytes(together)} together: they were not forked, so each got a copy of its own "
        "when it started. It doesn't grow.",
        OWN_COPY,
        severity=Severity.NOTE,
        total_bytes=float(together),
        confidence=0.9,
        falsifier=("With fewer workers as much less is held.", None),
        subject=row.path,
        growth="constant",
    )
