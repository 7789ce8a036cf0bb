"""What moments and boxes of the icicle are called."""

from __future__ import annotations

from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import CensusScope
from leakscope.model.retained import NodeKind, Retained, RetainedCensus, RetainedNode
from leakscope.model.sizes import plural
from leakscope.report.sizes import clock, humane_bytes

NOT_NAMED = "not named"
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


def event_words(boundary: Boundary) -> str:
    """Return ``end of validation, epoch 4``."""
    pattern = _EVENTS.get(boundary.kind, "")
    phase = boundary.phase or "the program"
    told = pattern.format(phase=phase, step=boundary.step, batch=boundary.batch)
    if not pattern:
        told = boundary.label or "mark"
    return f"{told}, epoch {boundary.epoch}" if boundary.phase else told


def moment_words(census: RetainedCensus, side: str = "") -> str:
    """Return ``1:20 end of validation, epoch 4``; of two runs, which of them."""
    begin = f"{side}: " if side else f"{clock(census.boundary.time_s)} "
    seen = ", whole heap" if census.scope is CensusScope.FULL else ""
    return f"{begin}{event_words(census.boundary)}{seen}"


def node_label(node: RetainedNode) -> str:
    """Return what a box says; the whole is named by the census."""
    if node.kind is NodeKind.SMALLER:
        return plural(node.count, "smaller one")
    return node.label


def short_type(node: RetainedNode) -> str:
    """Return the last part of a type's name: ``ndarray``."""
    return node.type.rpartition(".")[2]


def notes(retained: Retained) -> list[str]:
    """Return what a reader must know of the censuses that can be looked at."""
    count, taken = len(retained.censuses), f"{retained.taken:,}"
    kept = (
        f"{count} of {taken} censuses are kept, spread over the run. "
        if count < retained.taken
        else ""
    )
    cutoff = humane_bytes(max(census.cutoff_bytes for census in retained.censuses))
    return [f"{kept}What holds less than {cutoff} has no box of its own.", *doubts(retained)]


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
