"""``leakscope snapshot``: have a recorded process take a census now, and show what it found."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from leakscope.cli.faults import say
from leakscope.cli.process_number import to_process_number
from leakscope.model.errors import LeakscopeError

if TYPE_CHECKING:
    import psutil

    from leakscope.cli.recorded import Recorded
    from leakscope.model.record import SnapshotRecord
    from leakscope.recording.following import Following

NO_CENSUS = 3
ENDED = 4

_EPILOG = """\b
Examples:
  leakscope run --snapshot-signal USR1 train.py       (allows it)
  leakscope snapshot 4711                             its process id, or that of `leakscope run`
  leakscope snapshot 4711 --format json --wait 120

\b
The census is taken at the next boundary (the end of a step, a batch, a phase), or at once
where none has come for a second. No rate and no verdict rests on it. A process that isn't
recorded, or has no handler for the signal, is sent nothing. Each rank is asked by itself.

\b
Exit codes:
  0  a census was taken
  1  nothing was sent: no such process, not recorded, no signal allowed, another user's, no Linux
  2  a command line that makes no sense
  3  asked, but no census came in time, or there was no room for one; one sentence says why
  4  the process ended meanwhile
"""
_POLL_S = 0.1
_AGAIN_S = 1.2
"""A second request finds that no boundary has come since the first."""
_STOPPED = {"T", "t"}


class _EndedError(Exception):
    """The process, or its recording, ended before there was a census."""


@dataclass(frozen=True)
class _Told:
    """A census and where it came from."""

    recorded: Recorded
    snapshot: SnapshotRecord

    @property
    def run(self) -> Path:
        """The run directory."""
        return self.recorded.journal.parent


@click.command(epilog=_EPILOG)
@click.argument("pid", callback=to_process_number)
@click.option(
    "--wait",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    help="Seconds to wait for the census.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
)
def snapshot(pid: int, *, wait: float, form: str) -> None:
    """Have the recorded process PID take a census now, and show what holds most."""
    if not sys.platform.startswith("linux"):
        raise LeakscopeError(
            "Elsewhere than on Linux nobody tells which signals a process handles, so none is "
            "sent; `kill -USR1 PID` asks a process of which you know it.",
            slug="no-snapshot",
        )
    from leakscope.cli.recorded import find_recorded, signal_of
    from leakscope.model.record import EndRecord, SnapshotRecord, SnapshotSignalRecord
    from leakscope.recording.following import Following

    recorded = find_recorded(pid)
    journal = Following(recorded.journal, (SnapshotRecord, SnapshotSignalRecord, EndRecord))
    try:
        taken = _ask(recorded, journal, signal_of(recorded, journal), wait)
    except _EndedError:
        _give_up(f"{recorded.name} ended before there was a census.", ENDED)
    if taken is None:
        _give_up(
            f"no census of {recorded.name} in {wait:g} s: {_why_none(recorded.pid)}", NO_CENSUS
        )
    told = _Told(recorded, taken)
    if form == "json":
        from leakscope.report.encoding import render_plain_json

        click.echo(render_plain_json(as_plain(told)), nl=False)
    else:
        click.echo(as_text(told))
    if taken.census is None:
        _give_up(f"no census: {taken.no_census}; what was measured stands above.", NO_CENSUS)


def _give_up(sentence: str, code: int) -> NoReturn:
    say(sentence)
    sys.exit(code)


def _ask(recorded: Recorded, journal: Following, number: int, wait: float) -> SnapshotRecord | None:
    """Return the census that a process takes when it is asked; None if there is none in time.

    Raises:
        LeakscopeError: it may not be asked.
        _EndedError: the process has ended, or its recording.

    """
    from leakscope.model.record import EndRecord, SnapshotRecord

    process = _process(recorded.pid)
    deadline = time.monotonic() + wait
    again = 0.0
    while True:
        for record in journal.new():
            if isinstance(record, SnapshotRecord):
                return record
            if isinstance(record, EndRecord):
                raise _EndedError
        if not _is_alive(process):
            raise _EndedError
        if time.monotonic() >= deadline:
            return None
        if time.monotonic() >= again:
            _send(recorded, number)
            again = time.monotonic() + _AGAIN_S
        time.sleep(_POLL_S)


def _send(recorded: Recorded, number: int) -> None:
    """Send the signal if the process has a handler for it at this very moment."""
    from leakscope.probes.signals import catches

    if not catches(recorded.pid, number):
        raise _EndedError
    try:
        os.kill(recorded.pid, number)
    except ProcessLookupError as fault:
        raise _EndedError from fault
    except PermissionError as fault:
        raise LeakscopeError(
            f"{recorded.name.capitalize()} is another user's: ask as that user.", slug="no-access"
        ) from fault


def _process(pid: int) -> psutil.Process:
    import psutil

    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess as fault:
        raise _EndedError from fault


def _is_alive(process: psutil.Process) -> bool:
    """Return whether it is still the process that it was, and no zombie."""
    import psutil

    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _why_none(pid: int) -> str:
    from leakscope.probes.signals import status_of

    state = status_of(pid).get("State", "?")[0]
    if state in _STOPPED:
        return "it is stopped; let it go on (kill -CONT) and it takes the census then."
    does = "computes" if state == "R" else "waits"
    return (
        f"its main thread {does} and has reached no boundary. Signals are dealt with between two "
        "instructions of Python: a long call into C, or a backward pass, has to return first. The "
        "request stands; the census comes with the next boundary."
    )


def as_plain(told: _Told) -> dict[str, Any]:
    """Return what ``--format json`` shows."""
    import msgspec

    from leakscope.analysis.series import HOST
    from leakscope.analysis.snapshots import biggest, devices_of

    taken = told.snapshot
    census = taken.census
    names = {device: biggest(taken, device) for device in (HOST, *devices_of(taken))}
    return {
        "pid": told.recorded.pid,
        "rank": told.recorded.header.rank,
        "run": str(told.run),
        "time_s": taken.boundary.time_s,
        "phase": taken.boundary.phase,
        "epoch": taken.boundary.epoch,
        "step": taken.boundary.step,
        "batch": taken.boundary.batch,
        "at_once": taken.at_once,
        "seconds": taken.seconds,
        "objects": None if census is None else census.objects,
        "gauges": taken.gauges,
        "names": {device: msgspec.to_builtins(rows) for device, rows in names.items()},
    }


def as_text(told: _Told) -> str:
    """Return what is shown in the terminal."""
    from leakscope.analysis.series import HOST
    from leakscope.analysis.shortage import place_of
    from leakscope.analysis.snapshots import biggest, devices_of
    from leakscope.model import gauge
    from leakscope.model.printable import one_line
    from leakscope.model.sizes import human_bytes, human_share

    taken, moment = told.snapshot, told.snapshot.boundary
    between = "between two boundaries, for none had come" if taken.at_once else "at a boundary"
    walked = f", {taken.census.objects:,} objects" if taken.census else ""
    name, since = told.recorded.name.capitalize(), f"{moment.time_s:.1f} s after the start"
    lines = [
        f"{name}, {since}, {place_of(moment)}, {between}.",
        f"It took {taken.seconds:.2f} s{walked}.",
    ]
    for device in (HOST, *devices_of(taken)):
        metric = gauge.RSS if device == HOST else f"{device}.{gauge.DEVICE_ALLOCATED}"
        used = human_bytes(taken.gauges.get(metric, 0))
        rows = biggest(taken, device)
        what = f" resident{_in_children(taken)}" if device == HOST else f" live on {device}"
        lines += ["", used + what]
        lines += [] if rows else ["  no name holds 1 % of it"]
        lines += [
            f"{human_bytes(row.bytes):>10}  {human_share(row.share):>5}  {one_line(row.name)}"
            f"  ({one_line(row.detail)})"
            for row in rows
        ]
    return "\n".join([*lines, "", f"Recorded in {told.run}; next: leakscope show {told.run}"])


def _in_children(taken: SnapshotRecord) -> str:
    """Return what child processes have besides, such as a DataLoader's workers."""
    from leakscope.model import gauge
    from leakscope.model.sizes import human_bytes, plural

    count = taken.gauges.get(gauge.CHILDREN, 0)
    if not count:
        return ""
    held = human_bytes(taken.gauges.get(gauge.CHILDREN_PSS, 0))
    return f", and {held} in {plural(count, 'child process')} (shared pages divided)"
