"""A run as it was read back: manifest, recordings and whatever was damaged."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from pathlib import Path

from leakscope.model.boundary import Boundary
from leakscope.model.census import Census
from leakscope.model.record import (
    AllocationRecord,
    BlockListRecord,
    CleanupRecord,
    DeviceSnapshotRecord,
    EndRecord,
    ErrorRecord,
    HeaderRecord,
    NativeAllocationsRecord,
    NoteRecord,
    OutOfMemoryRecord,
    OverheadRecord,
    ProcessEndRecord,
    RunManifest,
    SnapshotRecord,
)

ASKED_TO_END = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Signals by which users and launchers have a program end; by others it is killed."""


@dataclass(frozen=True)
class Damage:
    """A piece of a file that could not be read."""

    file: str
    offset: int
    reason: str


@dataclass(frozen=True)
class Measurement:
    """A recorded boundary with what was measured there."""

    boundary: Boundary
    gauges: dict[str, int]
    census: Census | None = None
    devices: tuple[DeviceSnapshotRecord, ...] = ()


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
    snapshots: list[SnapshotRecord] = field(default_factory=list)
    """Censuses that the user asked for; no measurement is among them."""
    process_ends: list[ProcessEndRecord] = field(default_factory=list)
    end: EndRecord | None = None
    goes_on: bool | None = False
    """Whether its process still records; None where that can't be told from here."""
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
        return min(self.recordings, key=lambda r: (r.header.worker is not None, r.header.rank))
