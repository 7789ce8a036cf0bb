"""What measuring needs of others: who takes censuses, reads devices, and writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from leakscope.model.blocks import DeviceStorages
from leakscope.model.census import Census, CensusScope
from leakscope.model.record import (
    BlockListRecord,
    DeviceSnapshotRecord,
    HeaderRecord,
    ProcessEndRecord,
    Record,
)


class Taker(Protocol):
    """What :class:`leakscope.heap.CensusTaker` offers."""

    def take(self, scope: CensusScope, unwound: Sequence[FrameType] = ()) -> Census:
        """Return the heap's rows at this moment, with the names of frames that were left too."""

    def take_checked(self) -> Census:
        """Return a whole census, with its difference to one that goes on from the seal."""

    def take_aside(self, scope: CensusScope) -> Census:
        """Return the same without comparing later censuses with it."""

    def source_files(self) -> set[str]:
        """Return the user's files seen as owners."""

    def device_storages(self) -> list[DeviceStorages]:
        """Return the storages that the latest census met on each device."""

    @property
    def own_bytes(self) -> int:
        """What the taker itself keeps."""


class Devices(Protocol):
    """What :func:`leakscope.probes.device_memory` offers."""

    def __call__(self, *, with_blocks: bool) -> Iterable[DeviceSnapshotRecord | BlockListRecord]:
        """Return sums of each device's blocks, and the blocks themselves where they are wanted."""


class Writer(Protocol):
    """What :class:`leakscope.recording.RecordingWriter` offers."""

    bytes_written: int
    failed: str | None

    def write(self, record: Record, *, sync: bool = False) -> bool:
        """Append a record; return whether it was written."""

    def move(self, directory: Path, header: HeaderRecord) -> bool:
        """Go on in another directory; return whether that could be done."""

    def close(self) -> None:
        """Write no more."""


class WorkerFollower(Protocol):
    """What :class:`leakscope.instrument.auto.workers.WorkerHooks` offers."""

    def install(self) -> None:
        """Begin to follow the program's other processes."""

    def uninstall(self) -> None:
        """Follow them no more."""

    def follow(self, session: Any) -> None:
        """Have the workers from now on record beside this session, where it records now."""

    def ended(self) -> list[ProcessEndRecord]:
        """Return the processes that have ended by themselves since the last time."""

    def unrecorded(self) -> str:
        """Return that other processes did the program's work, if they did, in a sentence."""
