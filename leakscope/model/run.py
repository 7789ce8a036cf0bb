"""A run as it was read back: manifest, recordings, damage, and the tree of names over several
censuses.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import msgspec

from leakscope.model.boundary import Boundary, Whole
from leakscope.model.census import Census, CensusScope
from leakscope.model.record import (
    AllocationRecord,
    BlockListRecord,
    CleaningCallsRecord,
    CleanupRecord,
    CompilationRecord,
    CompiledCodeRecord,
    DeviceSnapshotRecord,
    EndRecord,
    ErrorRecord,
    HeaderRecord,
    NativeAllocationsRecord,
    NoteRecord,
    OutOfMemoryRecord,
    OverheadRecord,
    ProcessEndRecord,
    RegistryEntriesRecord,
    RunManifest,
    SnapshotRecord,
)

REQUESTS_TO_END = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Signals by which users and launchers have a program end; by others it is killed."""


@dataclass(frozen=True)
class Damage:
    """A piece of a file that could not be read."""

    file: str
    offset: int
    reason: str
    is_gap: bool = False
    """Whether records of a journal are lost: more than the end that a kill cuts off."""


@dataclass(frozen=True)
class Measurement:
    """A recorded boundary with what was measured there."""

    boundary: Boundary
    gauges: dict[str, int]
    census: Census | None = None
    devices: tuple[DeviceSnapshotRecord, ...] = ()
    events: dict[str, int] = field(default_factory=dict)
    """How often each event had happened by then; measurements may share it."""


@dataclass
class Recording:
    """Everything one process wrote, in order."""

    header: HeaderRecord
    measurements: list[Measurement] = field(default_factory=list)
    allocations: list[AllocationRecord] = field(default_factory=list)
    native_allocations: list[NativeAllocationsRecord] = field(default_factory=list)
    """Live native memory with each census and at new heights, in order."""
    block_lists: list[BlockListRecord] = field(default_factory=list)
    """Of each device the one with most live bytes, and the last."""
    sources: dict[str, str] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    """What sources are called that no file holds."""
    overhead: OverheadRecord | None = None
    errors: list[ErrorRecord] = field(default_factory=list)
    notes: list[NoteRecord] = field(default_factory=list)
    shortages: list[OutOfMemoryRecord] = field(default_factory=list)
    cleanups: list[CleanupRecord] = field(default_factory=list)
    cleaning_calls: list[CleaningCallsRecord] = field(default_factory=list)
    """What the program's own calls of ``gc.collect()`` and the like have brought, in order."""
    registry_entries: list[RegistryEntriesRecord] = field(default_factory=list)
    """What registries that have grown were given of late, in order."""
    snapshots: list[SnapshotRecord] = field(default_factory=list)
    """Censuses that the user requested; no measurement is among them."""
    process_ends: list[ProcessEndRecord] = field(default_factory=list)
    compilations: list[CompilationRecord] = field(default_factory=list)
    compiled_code: CompiledCodeRecord | None = None
    end: EndRecord | None = None
    goes_on: bool | None = False
    """Whether its process still records; None where that can't be seen from here."""
    damage: list[Damage] = field(default_factory=list)

    def began_after(self, other: Recording) -> float | None:
        """Return how many seconds later it began than another, by their machine's clock.

        None where they are of different machines, whose clocks can't be held against each other.
        """
        mine, theirs = self.header, other.header
        known = mine.started > 0 and theirs.started > 0 and mine.host == theirs.host
        return mine.started - theirs.started if known else None


@dataclass
class Run:
    """A run directory: one recording per process."""

    path: Path
    manifest: RunManifest
    recordings: list[Recording] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    outcome: dict[str, str | int] = field(default_factory=dict)
    """What the supervisor saw: ``exit_code``, ``signal``, ``oom_killed`` (1 if the kernel killed
    the program for memory), ``oom_kills`` and ``limit_hits`` of the control group meanwhile; empty
    without a supervisor. ``attempt`` where it wasn't the first one."""
    outcomes: dict[tuple[int, int], dict[str, str | int]] = field(default_factory=dict)
    """The same of other ranks that were killed, by attempt and rank."""
    unread: int = 0
    """Recordings of it that are not in here: of many ranks each is read by itself."""

    @property
    def main(self) -> Recording:
        """The recording of the process that was started (rank 0 among several)."""
        return min(self.recordings, key=lambda r: (not r.header.is_primary, r.header.rank))


class NodeKind(str, Enum):
    """What a node of the tree stands for."""

    WHOLE = "whole"
    """All that a census saw: the first node, and the only one without a parent."""
    GROUP = "group"
    """What is not the user's own: libraries, native code, garbage. Only full censuses see it."""
    OWNER = "owner"
    """The function, class or module in which names begin."""
    ROW = "row"
    """Objects that share a path."""
    CONTENT = "content"
    """What such an object holds, of one type."""
    SMALLER = "smaller"
    """Nodes that were too small and too many to be kept, added up."""


class RetainedNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One name under which memory is held."""

    kind: NodeKind
    parent: int = -1
    """Place of its parent among the nodes, which is before its own; -1 for the whole."""
    label: str = ""
    """The step from its parent: ``Trainer.validate()``, ``records``, ``[*]``, ``numpy.ndarray``."""
    name: str = ""
    """As a person would say it; of a row only."""
    path: str = ""
    """The full pattern from the root; of a row only."""
    type: str = ""
    """Qualified type of the objects; of a row only."""
    keeps_graph: bool = False
    """Whether it is a tensor that keeps an autograd graph; of a row only."""
    count: Whole = 0
    """How many nodes were added up; of ``smaller`` only."""


class RetainedCensus(msgspec.Struct, frozen=True, kw_only=True):
    """One census of those that were kept."""

    boundary: Boundary
    scope: CensusScope
    cutoff_bytes: Whole
    """What retained less has no row of its own."""
    truncated: bool = False
    """Whether more autograd nodes were alive than were counted: what keeps graphs holds more."""
    bytes: dict[str, list[Whole | None]]
    """By device (``host`` first) the bytes of each node; None where this census doesn't have it: in
    a focused one what isn't the user's, and what is in items of which only a part was named. What
    several names keep alive counts for the first of them, so children never hold more than their
    parent, and what they leave of it has no name of its own."""


class RetainedProcess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whose memory it is, where a run has several processes."""

    rank: Whole | None = None
    """None where the run has no ranks."""
    loader: Whole = 0
    """Of a worker: the number of its DataLoader, from 1."""
    worker: Whole | None = None
    """None in a process that trains."""
    generation: Whole = 0
    """How often its loader had started workers before."""
    pid: Whole = 0
    child: str = ""
    """Of a child process what the report calls it."""


class Retained(msgspec.Struct, frozen=True, kw_only=True):
    """What the memory of a process held over a run. Only two censuses of one scope see the same."""

    process: RetainedProcess = RetainedProcess()
    nodes: list[RetainedNode]
    censuses: list[RetainedCensus]
    """In the order of time; of many a choice spread over the run, first and last among them."""
    taken: Whole
    """How many there were to choose from."""
    first: int
    """Place of the census from which growth is counted unless another is chosen."""
    last: int
    """Place of the census up to which it is counted; of ``first``'s kind, where there is one."""
    shown: int
    """Place of the census to look at first: the last one before functions returned because the
    program was ending."""
