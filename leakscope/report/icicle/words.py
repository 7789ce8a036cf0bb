"""What moments and boxes of the icicle are called."""

from __future__ import annotations

from collections.abc import Sequence

from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import CensusScope
from leakscope.model.retained import NodeKind, Retained, RetainedNode, RetainedProcess
from leakscope.model.sizes import plural
from leakscope.report.sizes import clock, humane_bytes

NOT_NAMED = "not named"
ABSENT = "nothing, or too little for a row of its own"
WHOLE = {
    CensusScope.FOCUSED: "all that your names reach",
    CensusScope.FULL: "the whole Python heap",
}
BOTH = "what both saw"
_EVENTS = {
    BoundaryKind.RUN_BEGIN: "start of the run",
    BoundaryKind.PHASE_BEGIN: "start of {phase}",
    BoundaryKind.STEP: "{phase}, step {step}",
    BoundaryKind.BATCH: "{phase}, batch {batch}",
    BoundaryKind.PHASE_END: "end of {phase}",
    BoundaryKind.EPOCH_END: "end of the epoch",
    BoundaryKind.RUN_END: "end of the run",
    BoundaryKind.REQUEST: "when asked for",
}
_OF_WORKER = {
    BoundaryKind.PHASE_BEGIN: "start of pass {way}",
    BoundaryKind.BATCH: "pass {way}, batch {batch}",
    BoundaryKind.PHASE_END: "end of pass {way}",
}
"""A worker has no epochs: it is asked for one way through its loader after the other."""
MAIN, THE_MAIN = "main process", "the main one"


def process_words(process: RetainedProcess, processes: int = 2) -> str:
    """Return ``rank 1, loader 1, worker 0``; empty where there is a single process."""
    rank = f"rank {process.rank}" if process.rank is not None else ""
    if process.worker is None:
        return rank or (MAIN if processes > 1 else "")
    again = f", from pass {process.generation + 1} on" if process.generation else ""
    worker = f"loader {process.loader}, worker {process.worker}{again}"
    return f"{rank}, {worker}" if rank else worker


def event_words(boundary: Boundary, *, by_epoch: bool = True) -> str:
    """Return ``end of validation, epoch 4``; where there are no epochs, ``…, step 250``."""
    pattern = _EVENTS.get(boundary.kind, "")
    phase = boundary.phase or "the program"
    told = pattern.format(phase=phase, step=boundary.step, batch=boundary.batch)
    if not pattern:
        told = boundary.label or "mark"
    if not by_epoch and boundary.kind is not BoundaryKind.STEP:
        return f"{told}, step {boundary.step:,}"
    return f"{told}, epoch {boundary.epoch + 1}" if by_epoch and boundary.phase else told


def moments(retained: Retained, sides: Sequence[str] = ()) -> list[str]:
    """Return ``1:20 end of validation, epoch 4`` for each census; of two runs, which of them."""
    by_epoch = any(census.boundary.epoch for census in retained.censuses)
    names = sides or [clock(census.boundary.time_s) for census in retained.censuses]
    process = retained.process
    return [
        f"{name}{':' if sides else ''} {_event(census.boundary, by_epoch, process)}"
        f"{', whole heap' if census.scope is CensusScope.FULL else ''}"
        for name, census in zip(names, retained.censuses, strict=True)
    ]


def _event(boundary: Boundary, by_epoch: bool, process: RetainedProcess) -> str:
    pattern = _OF_WORKER.get(boundary.kind) if process.worker is not None else None
    if pattern is None:
        return event_words(boundary, by_epoch=by_epoch)
    way = process.generation + boundary.occurrence + 1
    return pattern.format(way=way, batch=boundary.batch)


def node_label(node: RetainedNode) -> str:
    """Return what a box says; the whole is named by the census."""
    if node.kind is NodeKind.SMALLER:
        return plural(node.count, "smaller one")
    return node.label


def type_words(node: RetainedNode) -> str:
    """Return the type of a row, and whether it keeps a graph."""
    return f"{node.type}, keeps an autograd graph" if node.keeps_graph else node.type


def short_type(node: RetainedNode) -> str:
    """Return the last part of a type's name: ``ndarray``."""
    return type_words(node).rpartition(".")[2]


def notes(retained: Retained, processes: int = 1, choosable: int = 1) -> list[str]:
    """Return what a reader must know of the censuses that can be looked at.

    Args:
        retained: what is drawn.
        processes: how many the run had.
        choosable: how many of them can be looked at.

    """
    count, taken = len(retained.censuses), f"{retained.taken:,}"
    kept = (
        f"{count} of {taken} censuses are kept, spread over the run. "
        if count < retained.taken
        else ""
    )
    cutoff = humane_bytes(max(census.cutoff_bytes for census in retained.censuses))
    name = process_words(retained.process, processes)
    others = f", beside {plural(choosable - 1, 'other')} to choose" if choosable > 1 else ""
    alone = f"Of {processes:,} processes this is {THE_MAIN if name == MAIN else name}{others}. "
    alone = alone if processes > 1 else ""
    return [f"{alone}{kept}What holds less than {cutoff} has no box of its own.", *doubts(retained)]


def doubts(retained: Retained) -> list[str]:
    """Return why some figures can't be compared or are too small; empty where none is."""
    told = []
    if len({census.scope for census in retained.censuses}) > 1:
        told.append(
            "Some censuses walk the whole heap, others only what your names reach; between two "
            "unlike ones, what both saw is compared."
        )
    if any(census.truncated for census in retained.censuses):
        told.append(
            "In some censuses more autograd nodes were alive than are counted: what keeps graphs "
            "held more than its box says."
        )
    return told
