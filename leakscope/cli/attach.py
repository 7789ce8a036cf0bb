"""``leakscope attach``: record from now on in a process that nobody prepared."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from leakscope.cli.monitor import forward_termination, monitor
from leakscope.cli.output import (
    exit_codes,
    notify,
    run_directory_options,
    seconds_option,
    setting_options,
    to_process_number,
)
from leakscope.cli.report import finish
from leakscope.model.errors import EXIT_ERROR, LeakscopeError

if TYPE_CHECKING:
    from leakscope.capture.attach import Attachment
    from leakscope.capture.options import SessionOptions

NO_SAFE_POINT = 3

_EPILOG = """\b
Examples:
  leakscope attach 4711                 until Ctrl-C, or the process ends
  leakscope attach 4711 --for 10m --out runs/now
  leakscope attach 4711 --once          a census now: what holds most, and who holds it
  leakscope attach 4711 --children      its Python child processes, too
  leakscope attach 4711 --detach        ends a recording that another terminal began

\b
The process goes on as before, and nothing of leakscope is left in it afterwards. Python 3.14 and
newer can be entered directly; older versions need gdb, which stops the process for a moment.
Without the right to trace the process, its memory is watched from outside, as `leakscope monitor`
does.
""" + exit_codes(
    "recorded, or watched; or there was something to detach",
    "nothing was recorded, or there was nothing to detach; one sentence says why",
    "an invalid command line",
    "the process reached no safe point in time; nothing is left behind",
)
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_POLL_S = 0.1


def to_seconds(text: str) -> float:
    """Return seconds, written ``90``, ``90s``, ``10m`` or ``1.5h``: above 0."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not seconds:
        raise click.BadParameter(f"{text!r} is no time; write 90s, 10m or 1h.")
    return seconds


@click.command(epilog=_EPILOG)
@click.argument("pid", type=to_process_number)
@click.option(
    "--for", "seconds", type=to_seconds, metavar="TIME", help="How long, such as 90s or 10m."
)
@click.option("--once", is_flag=True, help="Take one census and print what holds most.")
@click.option("--detach", is_flag=True, help="End a recording that another `attach` began.")
@click.option("--children", is_flag=True, help="Record its Python child processes, too.")
@seconds_option("--wait", 30.0, "Seconds to wait for a safe point.")
@run_directory_options()
@setting_options("budget", "max-pause", "max-recording", "label", "report", "quiet")
@click.pass_context
def attach(
    context: click.Context,
    /,
    pid: int,
    *,
    seconds: float | None,
    once: bool,
    detach: bool,
    children: bool,
    wait: float,
    **chosen: Any,
) -> None:
    """Record a running process from now on.

    PID is its number. Nothing of leakscope stays in it afterwards.
    """
    if detach:
        _detach(pid)
        return
    if once and (seconds is not None or children):
        raise click.UsageError("--once takes one census of one process: leave --for or --children.")
    from leakscope.capture.attach import AttachError
    from leakscope.capture.options import configured_options

    # --children comes to each by itself, and what comes leaves nothing behind.
    chosen["children"] = "off"
    options = configured_options(notify, **chosen)
    try:
        with forward_termination(None):
            if once:
                _take_census(pid, options, wait)
            else:
                _record(pid, options, seconds=seconds, children=children, wait=wait)
    except AttachError as fault:
        if fault.slug == "no-access" and not once:
            notify(str(fault))
            _watch(context, pid, options, seconds)
            return
        more = f" `leakscope monitor --pid {pid}` watches its memory from outside."
        notify(f"{fault}{more if fault.may_watch else ''}")
        sys.exit(NO_SAFE_POINT if fault.slug == "no-safe-point" else EXIT_ERROR)


@dataclass
class _Visit:
    """A process that is being recorded, and where."""

    attachment: Attachment
    run: Path
    """As the process knows it."""
    destination: Path

    @property
    def pid(self) -> int:
        return self.attachment.target.pid


def _record(
    pid: int, options: SessionOptions, *, seconds: float | None, children: bool, wait: float
) -> None:
    with ExitStack() as stack:
        visits = [_begin(stack, pid, options, seconds=seconds, wait=wait)]
        for child in _descendants(pid) if children else ():
            out = options.out and options.out.with_name(f"{options.out.name}-{child}")
            own = replace(options, out=out)
            try:
                visits.append(_begin(stack, child, own, seconds=seconds, wait=wait))
            except LeakscopeError as fault:
                notify(f"{fault} The others are recorded.")
        with suppress(KeyboardInterrupt):
            while not all(visit.attachment.is_over for visit in visits):
                time.sleep(_POLL_S)
        for visit in visits:
            visit.attachment.request_stop()
        paths = [_end(visit, quiet=options.quiet) for visit in visits]
    for path in paths:
        finish(path, report=options.report, quiet=options.quiet)


def _take_census(pid: int, options: SessionOptions, wait: float) -> None:
    from leakscope.cli.snapshot import CensusTaken, RecordedProcess, as_text
    from leakscope.model.record import HeaderRecord, SnapshotRecord
    from leakscope.recording.directory import journals
    from leakscope.recording.following import Following

    with ExitStack() as stack:
        visit = _begin(stack, pid, replace(options, quiet=True), seconds=None, wait=wait, once=True)
        path = _end(visit, quiet=True)
    for journal in journals(path):
        records = list(Following(journal, (HeaderRecord, SnapshotRecord)).new())
        header, taken = records[0], records[-1]
        if isinstance(taken, SnapshotRecord) and isinstance(header, HeaderRecord):
            click.echo(as_text(CensusTaken(RecordedProcess(pid, journal, header), taken)))
            return
    raise LeakscopeError(f"No census of process {pid} was written into {path}.")


def _begin(
    stack: ExitStack,
    pid: int,
    options: SessionOptions,
    *,
    seconds: float | None,
    wait: float,
    once: bool = False,
) -> _Visit:
    from leakscope.capture.attach import Attachment, look_at
    from leakscope.capture.run_directory import RUNS, make_run_directory

    target = look_at(pid)
    for remark in target.remarks():
        notify(remark)
    runs = (options.runs or RUNS).absolute()
    inside = replace(
        options,
        out=None if options.out is None else options.out.absolute(),
        runs=runs,
        quiet=True,
        report=False,
        trackers="off",
        snapshot_signal="off",
    )
    if options.out is not None and not target.shares_user:
        # Refuse before anything is recorded what could not be brought there.
        (make_run_directory(options) / "run.json").unlink()
    attachment = Attachment(target)
    stack.callback(attachment.close)
    state = attachment.begin(inside, seconds=seconds, once=once, patience=wait)
    run = Path(state["run"])
    if state["engine"] == "reference":
        notify(
            "the reference walker looks at its heap, which is slower; the C part isn't built there."
        )
    if not options.quiet:
        until = "" if seconds is None else f" for {seconds:g} s"
        notify(f"recording process {pid}{until}; Ctrl-C ends it and leaves the process as it was.")
    return _Visit(attachment, run, options.out or runs / run.name)


def _end(visit: _Visit, *, quiet: bool) -> Path:
    """Wait until the process is as it was; return where the run lies here."""
    from leakscope.capture.attach import AttachError

    if not visit.attachment.await_leaving():
        notify(f"process {visit.pid} has not ended its recording yet; it does when it comes to it.")
    state = visit.attachment.state()
    if state.get("trouble"):
        notify(state["trouble"])
    if state.get("state") != "left" and not quiet:
        notify(f"process {visit.pid} ended; its exit status is its parent's to know.")
    try:
        return visit.attachment.fetch(visit.run, visit.destination)
    except OSError as fault:
        raise AttachError(f"The recording of process {visit.pid} is lost: {fault}.") from fault


def _detach(pid: int) -> None:
    from leakscope.capture.attach import request_detach

    if not request_detach(pid):
        notify(f"nothing that `leakscope attach` began is recorded in process {pid}.")
        sys.exit(EXIT_ERROR)
    notify(f"process {pid} is recorded no longer, and as it was before.")


def _descendants(pid: int) -> list[int]:
    """Return the Python processes below one, as far as they can be recognised."""
    import psutil

    from leakscope.capture.attach import AttachError, look_at

    found = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            look_at(child.pid)
        except AttachError as fault:
            if "no Python process" not in str(fault) and fault.slug != "no-process":
                notify(str(fault))
            continue
        found.append(child.pid)
    return found


def _watch(
    context: click.Context, pid: int, options: SessionOptions, seconds: float | None
) -> None:
    """Watch from outside what may not be entered."""
    notify(
        "its memory is watched from outside instead: how much, when, and in which process; not "
        "what holds it, and no line. Ctrl-C ends it."
    )
    with _alarm(seconds):
        context.invoke(
            monitor,
            pid=pid,
            name=None,
            interval=10.0 if seconds is None else min(10.0, seconds / 10),
            out=options.out,
            force=options.force,
            report=options.report,
            quiet=options.quiet,
            command=(),
        )


@contextmanager
def _alarm(seconds: float | None) -> Iterator[None]:
    """End the watching as Ctrl-C would, after so many seconds."""

    def ring(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    if seconds is None:
        yield
        return
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
