"""Boundaries: the moments between two pieces of training at which memory is measured, events that
are counted between them, and numbers as files may hold them.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import msgspec

_MOST = (1 << 63) - 1
_MOST_SECONDS = 1e12

Whole = Annotated[int, msgspec.Meta(ge=-_MOST, le=_MOST)]
"""A count or a size in bytes: what a kernel can report, and a column of the analysis can hold."""
Seconds = Annotated[float, msgspec.Meta(ge=-_MOST_SECONDS, le=_MOST_SECONDS)]
"""A time or a duration; thirty thousand years fit."""


class BoundaryKind(str, Enum):
    """What has just happened at a boundary."""

    RUN_BEGIN = "run_begin"
    PHASE_BEGIN = "phase_begin"
    STEP = "step"
    """An iteration of training in which at least one optimizer stepped has ended."""
    BATCH = "batch"
    """A batch that stepped no optimizer has ended: validation, inference, gradient accumulation."""
    PHASE_END = "phase_end"
    EPOCH_END = "epoch_end"
    """Only where the program says so (``scope.epochs``, a framework's callback)."""
    MARK = "mark"
    """The user's own ``scope.mark("name")``; comparable with marks of the same label."""
    TIME = "time"
    """A while has passed in which the program reached no other boundary."""
    RUN_END = "run_end"
    REQUEST = "request"
    """The user requested a census just now. Comparable with nothing, and part of no series."""


class Event(str, Enum):
    """What a program does now and then, counted since the recording began.

    Recordings hold names, not members: a later version may count more.
    """

    SAVE = "save"
    """A moment at which files were saved: those written with no boundary between are one."""
    SAVED_FILE = "saved_file"
    ASYNC_SAVE = "async_save"
    """Handed over to a thread or a process that saves; a thread's is a save too."""
    LOAD = "load"
    COMPILATION = "compilation"
    """A frame was compiled for the first time."""
    RECOMPILATION = "recompilation"
    LOG = "log"
    """A record of ``logging`` that passed the level of its logger."""
    LOGGED_ERROR = "logged_error"
    """Of these, one of level ERROR or above, or with an exception."""
    CAUGHT = "caught"
    """An exception that a function of the program's own has caught; from CPython 3.12 on."""
    TRACKER_CALL = "tracker_call"
    """Something was logged to TensorBoard, Weights & Biases or MLflow."""
    FIGURE = "figure"
    """A matplotlib figure was written."""
    IMAGE = "image"
    """An image of PIL's was written, those of figures apart."""
    OPTIMIZER = "optimizer"
    """An optimizer was made."""
    SCHEDULER = "scheduler"
    LOADER_ITERATOR = "loader_iterator"
    THREAD = "thread"
    """A thread of ``threading`` was started."""
    PROCESS = "process"
    REQUEST = "request"
    """A request that a server of HTTP or gRPC hands to the program."""
    FAILED_REQUEST = "failed_request"
    """Of these, one that is answered with an error: status 400 or above."""
    TASK = "task"
    """What a worker of a task queue has done for one message, job or remote call."""
    DECODE_STEP = "decode_step"
    """A round of an engine that generates text."""
    TRIAL = "trial"
    """A trial of a search."""
    GRAPH_CAPTURE = "graph_capture"
    """The capture of a CUDA graph began."""
    COLLECTION_0 = "collection_0"
    """A run of the collector, by generation."""
    COLLECTION_1 = "collection_1"
    COLLECTION_2 = "collection_2"
    EVALUATION = "evaluation"
    """A phase that isn't training has ended. Recordings hold none: their boundaries show it."""
    EXPLICIT_COLLECTION = "explicit_collection"
    """A call of ``gc.collect()`` by the program. From a gauge, likewise."""
    NEW_SHAPE = "new_shape"
    """A batch of a loader had a shape for the first time. Where tensors come from elsewhere, a
    gauge of the shapes that variables were seen to have stands for it."""
    ITERATION = "iteration"
    """A pass through the outermost loop of a program without steps. From a gauge."""


SERVED = frozenset(
    {
        Event.REQUEST.value,
        Event.TASK.value,
        Event.DECODE_STEP.value,
        Event.TRIAL.value,
        Event.ITERATION.value,
    }
)
"""What a server, an engine or a search does all the time: where it explains growth as well as the
work does, growth is given in it."""


class Boundary(msgspec.Struct, frozen=True, kw_only=True):
    """One boundary and where training stood when it was reached.

    Boundaries are *comparable* when kind, phase and label agree: memory there should be the same
    each time unless something grows.
    """

    index: Whole
    """Counts every boundary of the process from 0, also those that were not recorded."""
    kind: BoundaryKind
    time_s: Seconds
    """Seconds since the recording began (monotonic clock)."""
    phase: str = ""
    """``train``, ``validation``, ``validation:2`` (a second loader), or the user's own name."""
    occurrence: Whole = 0
    """How many times this phase had begun before this time."""
    epoch: Whole = 0
    """Training phases begun so far, less one; 0 before the first."""
    step: Whole = 0
    """Training iterations with an optimizer step that have ended so far."""
    batch: Whole = 0
    """Batches that have ended in this occurrence of the phase."""
    label: str = ""
    expected_batches: Whole | None = None
    """How many batches this occurrence of the phase will have, where the loader says it."""


def comparable_key(boundary: Boundary) -> tuple[str, str, str]:
    """Return the key under which boundaries may be compared with each other."""
    return (boundary.kind.value, boundary.phase, boundary.label)
