"""Watches a process tree from outside, reading after reading, into a run directory."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.record import BoundaryRecord, EndRecord, HeaderRecord
from leakscope.probes.nvidia import Gpu, read_gpus
from leakscope.probes.process import OutsideProcess
from leakscope.recording import RecordingWriter, RunDirectory

READING = "reading"
POLL_SECONDS = 0.2
"""How soon after its end a process is known to be gone."""
GPUS_EVERY_SECONDS = 30.0
"""The driver is queried no more often: that may start a process."""


@dataclass(frozen=True)
class ProcessReading:
    """What was read at one moment."""

    seconds: float
    """Since watching began."""
    gauges: dict[str, int]


class Monitor:
    """Records one process tree until it ends or nobody wants to know any more."""

    def __init__(
        self, pid: int, path: Path, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Attach to a process, or raise NoSuchProcess; ``path`` is a run directory made for it."""
        self._process = OutsideProcess(pid, since=time.time())
        self._clock = clock
        self._begun = clock()
        self._index = 0
        self._gpus: dict[str, int] = {}
        self._gpus_due = 0.0
        self._path = path
        header = HeaderRecord(
            role="monitor", pid=pid, host=socket.gethostname(), started=time.time()
        )
        self._writer = RecordingWriter(path, header)
        self._events = self._process.events()

    @property
    def limit(self) -> int | None:
        """The memory limit that would kill the process, in bytes."""
        return self._process.limit()

    @property
    def is_alive(self) -> bool:
        """Whether what is watched still runs."""
        return self._process.is_alive

    @property
    def trouble(self) -> str | None:
        """Why nothing is written down any more, as a sentence; None while all is well."""
        return self._writer.failed

    def readings(self, interval: float) -> Iterator[ProcessReading]:
        """Yield a reading at once, then one each ``interval`` seconds, until the process ends."""
        kind = BoundaryKind.RUN_BEGIN
        due = self._clock()
        while self._process.is_alive:
            if self._clock() >= due:
                due = max(due + interval, self._clock())
                reading = self._read(kind)
                kind = BoundaryKind.MARK
                if reading is not None:
                    yield reading
            time.sleep(min(POLL_SECONDS, max(due - self._clock(), 0.0)))

    def close(self, status: str, exit_code: int | None = None, signal: int | None = None) -> None:
        """Record how watching ended; ``exit_code`` and ``signal`` where the parent watches."""
        if signal is None:
            seconds = self._clock() - self._begun
            end = EndRecord(status=status, exit_code=exit_code or 0, time_s=seconds)
            self._writer.write(end, sync=True)
        self._writer.close()
        RunDirectory(self._path).write_outcome(self._outcome(exit_code, signal))

    def kills(self) -> int | None:
        """Return how many processes of its group the kernel killed for memory; None if unknown."""
        before, after = self._events.oom_kills, self._process.events().oom_kills
        return None if before is None or after is None else max(after - before, 0)

    def _outcome(self, exit_code: int | None, signal: int | None) -> dict[str, str | int]:
        kills = self.kills()
        known = {"exit_code": exit_code, "signal": signal, "oom_kills": kills or None}
        known["oom_killed"] = 1 if kills and signal in {None, 9} else None
        return {name: value for name, value in known.items() if value is not None}

    def _read(self, kind: BoundaryKind) -> ProcessReading | None:
        seconds = self._clock() - self._begun
        gauges = self._process.gauges()
        if not gauges:
            return None
        gauges |= self._of_devices(seconds)
        label = "" if kind is BoundaryKind.RUN_BEGIN else READING
        boundary = Boundary(index=self._index, kind=kind, time_s=seconds, label=label)
        self._index += 1
        self._writer.write(BoundaryRecord(boundary=boundary, gauges=gauges))
        return ProcessReading(seconds, gauges)

    def _of_devices(self, seconds: float) -> dict[str, int]:
        if seconds >= self._gpus_due and os.path.exists("/dev/nvidiactl"):  # noqa: PTH110
            self._gpus_due = seconds + GPUS_EVERY_SECONDS
            with suppress(Exception):
                self._gpus = used_on_devices(read_gpus().gpus, self._process.pids())
        return self._gpus


def used_on_devices(gpus: tuple[Gpu, ...], pids: set[int]) -> dict[str, int]:
    """Return what these processes, and all processes, use of each GPU, as gauges."""
    found: dict[str, int] = {}
    for gpu in gpus:
        theirs = [size for pid, size in gpu.processes.items() if pid in pids and size is not None]
        if theirs:
            found[f"cuda:{gpu.index}.{gauge.DEVICE_BY_TREE}"] = sum(theirs)
            if gpu.used is not None:
                found[f"cuda:{gpu.index}.{gauge.DEVICE_USED}"] = gpu.used
    return found
