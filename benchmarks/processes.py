"""A command on cores of its own: how long it and its loop took, and what it held in memory."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

SAMPLE_SECONDS = 1.0
"""Between two looks at the memory of all processes; the kernel takes milliseconds for one."""
_TIMING = re.compile(r"loop_seconds=(\S+) loop_cpu_seconds=(\S+) last_loss=(\S+)")


_running: set[int] = set()


class FailedError(Exception):
    """A command gave no timing; the message says why in a few words."""


@dataclass(frozen=True)
class Timing:
    """What one run of a loop came to."""

    loop_s: float
    """What the loop itself took, printed by the program."""
    loop_cpu_s: float
    """Processor time meanwhile: all threads, and workers that ended. Printed by the program."""
    process_s: float
    """From start to exit, imports and reports included."""
    resident_bytes: float
    """The most that the largest of its processes held, by the kernel's own count."""
    tree_bytes: float
    """The most that all of its processes held together, shared pages divided, by samples."""
    last_loss: str


class Run:
    """A command that has been started on some cores."""

    def __init__(self, command: Sequence[str], cores: Sequence[int], patience_s: float) -> None:
        self._begin = time.perf_counter()
        self._told = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed when the process has ended
        self._process = subprocess.Popen(
            [*_pinned(cores), *command],
            stdout=self._told,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        _running.add(self._process.pid)
        self._ended = threading.Event()
        self._most = 0
        self._gave_up = False
        self._watch = threading.Thread(target=self._look, args=(patience_s,), daemon=True)
        self._watch.start()

    def timing(self) -> Timing:
        """Wait for the end.

        Raises:
            FailedError: it ended otherwise than it should, or not within its time.

        """
        _, status, usage = os.wait4(self._process.pid, 0)
        elapsed = time.perf_counter() - self._begin
        self._process.returncode = os.waitstatus_to_exitcode(status)
        _running.discard(self._process.pid)
        self._ended.set()
        self._watch.join()
        self._told.seek(0)
        output = self._told.read()
        self._told.close()
        if self._gave_up:
            raise FailedError(f"not done after {elapsed:.0f} s")
        found = _TIMING.search(output)
        if self._process.returncode or found is None:
            last = output.strip().splitlines()[-1:] or ["nothing printed"]
            raise FailedError(f"exit code {self._process.returncode}: {last[0][:120]}")
        return Timing(
            loop_s=float(found[1]),
            loop_cpu_s=float(found[2]),
            process_s=elapsed,
            resident_bytes=usage.ru_maxrss * 1024,
            tree_bytes=self._most,
            last_loss=found[3],
        )

    def _look(self, patience_s: float) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self._most = max(self._most, sum(map(_proportional, _tree(self._process.pid))))
            if time.perf_counter() - self._begin > patience_s:
                self._gave_up = True
                os.killpg(self._process.pid, signal.SIGKILL)
                return


def end_with_us() -> None:
    """Have what is running end when this process is terminated: it is in other groups."""

    def stop(number: int, _frame: FrameType | None) -> None:
        for pid in tuple(_running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        sys.exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def halves() -> list[list[int]]:
    """Return the cores in two parts, a run on each; a single empty one where they can't be shared.

    An odd core is left out, so that both parts are equal.
    """
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    if not half or shutil.which("taskset") is None:
        return [[]]
    return [cores[:half], cores[half : 2 * half]]


def _pinned(cores: Sequence[int]) -> list[str]:
    return ["taskset", "--cpu-list", ",".join(map(str, cores))] if cores else []


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return
    for child in children:
        yield from _tree(child)


def _proportional(pid: int) -> int:
    """Return the proportional memory of a process in bytes, 0 once it has ended."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


if sys.platform != "linux":
    sys.exit("The memory of a process and its children is read from /proc: Linux only.")
