"""``leakscope monitor``: watch a process tree from outside, without touching it.

A status line says where memory stands and how it grows.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leakscope.cli.output import (
    notify,
    run_directory_options,
    seconds_option,
    setting_options,
    to_process_number,
)
from leakscope.cli.program import ProgramEnding, SignalWitness, end_as
from leakscope.cli.report import finish
from leakscope.model import gauge
from leakscope.model.errors import EXIT_ERROR, LeakscopeError
from leakscope.model.text import clipped, human_bytes, plural

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from leakscope.capture.monitor import Monitor
    from leakscope.capture.options import SessionOptions


_EPILOG = """\b
Examples:
  leakscope monitor --pid 4711                   until the process ends, or Ctrl-C
  leakscope monitor --name train.py
  leakscope monitor --interval 2 -- torchrun --nproc-per-node 4 train.py

\b
The process is neither stopped nor changed. Ctrl-C and SIGTERM end the watching, not the process;
a COMMAND gets SIGTERM too. From outside nothing has a name: `leakscope run` names what grows.

\b
Exit codes:
  with a COMMAND: its own, or the signal that ended it
  0  the process ended, or watching was ended by Ctrl-C or SIGTERM
  1  there is no such process, or nothing can be recorded
  2  an invalid command line
"""
_SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.command(epilog=_EPILOG, context_settings=_SETTINGS)
@click.option(
    "--pid", metavar="PID", type=to_process_number, help="The process to watch, with its children."
)
@click.option("--name", metavar="PATTERN", help="The process whose command line contains this.")
@seconds_option("--interval", 10.0, "Seconds between readings.")
@run_directory_options()
@setting_options("report", "quiet")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def monitor(
    *,
    pid: int | None,
    name: str | None,
    interval: float,
    command: tuple[str, ...],
    **chosen: Any,
) -> None:
    """Watch the memory of a process and its children from outside."""
    if sum((pid is not None, name is not None, bool(command))) != 1:
        raise click.UsageError("Name what to watch: --pid, --name or -- COMMAND, one of them.")
    from leakscope.capture.options import configured_options

    options = configured_options(notify, **chosen)
    child = _start(command) if command else None
    with forward_termination(child):
        number = child.pid if child else pid or _find(name or "")
        try:
            watcher, path = _attach(number, options, words=command)
        except LeakscopeError:
            if child is not None:  # it runs on; only nobody watches
                notify("nothing is recorded; the command goes on.")
                end_as(ProgramEnding.of(child.wait()))
            raise
        line = LiveLine(
            watcher.limit, refreshed=child is None and sys.stderr.isatty(), quiet=options.quiet
        )
        ending = _watch(watcher, child, line, interval)
    if child is None and not watcher.is_alive and not options.quiet:
        notify(_how_it_ended(number, watcher.kills()))
    try:
        finish(path, report=options.report, quiet=options.quiet)
    except LeakscopeError as fault:
        notify(f"no report: {fault}")
        raise SystemExit(EXIT_ERROR) from fault
    finally:
        if ending is not None:
            end_as(ending)


def _start(command: tuple[str, ...]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command)
    except OSError as fault:
        raise LeakscopeError(
            f"{command[0]} can't be started: {fault.strerror or fault}."
        ) from fault


@contextlib.contextmanager
def forward_termination(child: subprocess.Popen[bytes] | None) -> Iterator[None]:
    """Hand what asks us to end on to a command of ours; else let it end the watching, as Ctrl-C."""
    signals = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    with contextlib.ExitStack() as stack:
        witness = None if child is None else stack.enter_context(SignalWitness())

        def forward_signal(number: int, _: FrameType | None) -> None:
            if child is None or witness is None:
                raise KeyboardInterrupt
            if not witness.was_hit():
                child.send_signal(number)

        for number in signals:
            signal.signal(number, forward_signal)
        try:
            yield
        finally:
            for number in signals:
                signal.signal(number, signal.SIG_DFL)


def _how_it_ended(pid: int, kills: int | None) -> str:
    """Return what is visible from outside of how a process ended."""
    text = f"process {pid} ended; its exit status is its parent's to know."
    if kills is None:
        return f"{text} Kills for memory are not counted here."
    if not kills:
        return f"{text} The kernel killed no process of its control group for memory meanwhile."
    return f"{text} The kernel killed {plural(kills, 'process')} of its control group for memory."


def _find(pattern: str) -> int:
    """Return the one process, not started by another that matches, whose command line matches.

    Raises:
        LeakscopeError: there is none, or more than one.

    """
    import psutil

    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = {
        process.pid: process.info["ppid"]
        for process in psutil.process_iter(["cmdline", "ppid"])
        if process.pid not in ours and pattern in " ".join(process.info["cmdline"] or [])
    }
    roots = [pid for pid, parent in found.items() if parent not in found]
    if len(roots) == 1:
        return int(roots[0])
    if not roots:
        raise LeakscopeError(f"No process has {pattern!r} in its command line.")
    numbers = ", ".join(map(str, sorted(roots)))
    raise LeakscopeError(
        f"{len(roots)} processes have {pattern!r} in their command lines: choose one of "
        f"{numbers} with --pid."
    )


def _attach(pid: int, options: SessionOptions, *, words: tuple[str, ...]) -> tuple[Monitor, Path]:
    import psutil

    from leakscope.capture.monitor import Monitor
    from leakscope.capture.run_directory import make_run_directory
    from leakscope.probes.process import OutsideProcess

    try:
        argv = words or tuple(psutil.Process(pid).cmdline())
        limit = OutsideProcess(pid, since=time.time()).limit()
        # The word that names a script, else the command itself.
        script = next((w for w in argv[1:] if w.endswith(".py")), "".join(argv[:1]))
        options = replace(options, script=script or f"process-{pid}", command=argv)
        path = make_run_directory(options, limit=limit)
        return Monitor(pid, path), path
    except psutil.NoSuchProcess as fault:
        raise LeakscopeError(f"There is no process {pid}.") from fault
    except psutil.AccessDenied as fault:
        raise LeakscopeError(f"Process {pid} is another user's: watch it as that user.") from fault


def _watch(
    watcher: Monitor, child: subprocess.Popen[bytes] | None, line: LiveLine, interval: float
) -> ProgramEnding | None:
    """Watch to the end; return how a command of ours ended, None for a process of others."""
    status = "ended"
    try:
        for reading in watcher.readings(interval):
            if child is not None and child.poll() is not None:
                break
            line.show(reading.seconds, reading.gauges)
    except KeyboardInterrupt:
        status = "watched no longer" if child is None else "interrupted"
    finally:
        line.end()
    if child is None:
        watcher.close(status)
        return None
    with contextlib.suppress(KeyboardInterrupt):  # the terminal signals the command too
        child.wait()
    ending = ProgramEnding.of(child.wait())
    watcher.close("exit", exit_code=ending.exit_code, signal=ending.signal)
    return ending


REMEMBERED = 120
"""Readings over which the rate is taken."""
FEWEST = 8
FORECAST_AFTER_MINUTES = 1.0
"""Importing libraries and reading data look like growth without an end."""
LOGGED = 160
"""Characters of a line that no terminal's width limits."""
MIN_REPORTED_BYTES = 1 << 20
"""A rate below this per minute counts as none."""


class LiveLine:
    """Prints a line for each reading; refreshed in place where that is a terminal's."""

    def __init__(
        self, limit: int | None, *, refreshed: bool, quiet: bool = False, width: int | None = None
    ) -> None:
        self._limit = limit
        self._refreshed = refreshed
        columns = shutil.get_terminal_size().columns - 1 if refreshed else LOGGED
        self._width = width or min(LOGGED, columns)
        self._known: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)
        self._quiet = quiet
        self._is_open = False

    def show(self, seconds: float, gauges: dict[str, int]) -> None:
        """Print where memory stands ``seconds`` after the beginning."""
        if self._quiet:
            return
        text = clipped(self.line(seconds, gauges), self._width)
        sys.stderr.write(f"\r\x1b[K{text}" if self._refreshed else f"{text}\n")
        sys.stderr.flush()
        self._is_open = self._refreshed

    def end(self) -> None:
        """Leave what was shown last and go to the next line."""
        if self._is_open:
            sys.stderr.write("\n")
            sys.stderr.flush()

    def line(self, seconds: float, gauges: dict[str, int]) -> str:
        """Return what is shown."""
        own = gauges.get(gauge.PSS, gauges.get(gauge.RSS, 0))
        children = gauges.get(gauge.CHILDREN_PSS, 0)
        # Pages of files are released when there is need: they bring no limit nearer.
        files = gauges.get(gauge.TREE_FILES, 0)
        self._known.append((seconds / 60, float(own + children - files)))
        parts = [_clock(seconds), f"{human_bytes(own + children)}"]
        if gauges.get(gauge.CHILDREN):
            count = plural(gauges[gauge.CHILDREN], "child process")
            parts.append(f"({human_bytes(children)} in {count})")
        line = " ".join([*parts, *self._course()])
        # What else was read follows as far as there is room.
        for detail in _details(gauges):
            if len(line) + len(detail) + 3 > self._width:
                break
            line += f" · {detail}"
        return line

    def _course(self) -> list[str]:
        if len(self._known) < FEWEST:
            return []
        # Deferred: what analyses takes longer to import than some commands take to run.
        import numpy as np

        from leakscope.analysis.growth import judge, policy, theil_sen
        from leakscope.analysis.verdict.severity import forecast

        minutes, sizes = np.array(self._known, dtype=np.float64).T
        later = len(sizes) // 2  # what came before may have been a beginning
        rate = theil_sen(minutes[later:], sizes[later:]).rate
        if abs(rate) < MIN_REPORTED_BYTES:
            return ["· steady"]
        parts = [f"· {human_bytes(rate)} per minute"]
        if (
            minutes[-1] < FORECAST_AFTER_MINUTES
            or not judge(minutes, sizes, unit="minute", noise=policy.GAUGE_NOISE_BYTES).is_growing
        ):
            return parts
        ahead = forecast(
            limit_bytes=self._limit,
            used_bytes=float(sizes[-1]),
            rate=rate,
            unit="minute",
            done=float(minutes[-1]),
        )
        return parts + ([f"· {ahead.text}"] if ahead is not None else [])


def _details(gauges: dict[str, int]) -> list[str]:
    """Return what makes memory up, and what is left of it, the most telling first."""
    used, limit = gauges.get(gauge.CGROUP_USED), gauges.get(gauge.CGROUP_LIMIT)
    parts = [] if used is None or limit is None else [f"{human_bytes(limit - used)} to the limit"]
    parts += [
        f"{key.partition('.')[0]} {human_bytes(size)}"
        for key, size in sorted(gauges.items())
        if key.endswith(f".{gauge.DEVICE_BY_TREE}")
    ]
    if gauge.PSS in gauges and gauge.RSS in gauges:  # else it is the line's first figure
        parts.append(f"RSS {human_bytes(gauges[gauge.RSS])}")
    for name, key in (("private", gauge.PRIVATE), ("shm", gauge.SHM)):
        parts += [f"{name} {human_bytes(gauges[key])}"] if gauges.get(key) else []
    return parts


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
