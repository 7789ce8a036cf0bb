"""``leakscope snapshot``: have a recorded process take a census now, and show what it found.

Whether a process takes a census on a signal is looked up from outside, in ``/proc``: a signal that
a process has no handler for ends it, so nothing is sent unless its own recording and the kernel
both say that it has one.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click
import psutil

from leakscope.cli.output import exit_codes, notify, seconds_option, to_process_number
from leakscope.model import gauge
from leakscope.model.errors import LeakscopeError
from leakscope.model.record import EndRecord, HeaderRecord, SnapshotRecord, SnapshotSignalRecord
from leakscope.model.text import human_bytes, human_share, one_line, plural
from leakscope.probes.process import catches, status_of
from leakscope.recording.following import Following, open_journals

NO_CENSUS = 3
ENDED = 4

_EPILOG = """\b
Examples:
  leakscope run --snapshot-signal USR1 train.py       (allows it)
  leakscope snapshot 4711                             its process id, or that of `leakscope run`
  leakscope snapshot 4711 --format json --wait 120

\b
The census is taken at the next boundary (the end of a step, a batch, a phase), or at once
if none comes within a second. It counts for no rate and no verdict. Nothing is sent to a process
that isn't recorded or has no handler for the signal. Each rank has its own process id.
""" + exit_codes(
    "a census was taken",
    "nothing was sent: no such process, not recorded, no signal allowed, another user's, no Linux",
    "an invalid command line",
    "no census was taken in time, or there was no room for one; a sentence says why",
    "the process ended meanwhile",
)
_POLL_S = 0.1
_AGAIN_S = 1.2
"""A second request finds that no boundary has come since the first."""
_STOPPED = {"T", "t"}


class _EndedError(Exception):
    """The process, or its recording, ended before there was a census."""


@dataclass(frozen=True)
class CensusTaken:
    """A census and where it came from."""

    recorded: RecordedProcess
    snapshot: SnapshotRecord

    @property
    def run(self) -> Path:
        """The run directory."""
        return self.recorded.journal.parent


@click.command(epilog=_EPILOG)
@click.argument("pid", type=to_process_number)
@seconds_option("--wait", 60.0, "Seconds to wait for the census.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def snapshot(pid: int, *, wait: float, form: str) -> None:
    """Take a census in the recorded process PID now.

    It shows what holds most memory.
    """
    if not sys.platform.startswith("linux"):
        raise LeakscopeError(
            "Elsewhere than on Linux nobody tells which signals a process handles, so none is "
            "sent; `kill -USR1 PID` asks a process of which you know it."
        )
    recorded = find_recorded(pid)
    journal = Following(recorded.journal, (SnapshotRecord, SnapshotSignalRecord, EndRecord))
    try:
        taken = _request_census(recorded, journal, signal_of(recorded, journal), wait)
    except _EndedError:
        _give_up(f"{recorded.name} ended before there was a census.", ENDED)
    if taken is None:
        _give_up(
            f"no census of {recorded.name} in {wait:g} s: {_why_none(recorded.pid)}", NO_CENSUS
        )
    answer = CensusTaken(recorded, taken)
    if form == "json":
        from leakscope.report.json import render_json

        click.echo(render_json(as_plain(answer)), nl=False)
    else:
        click.echo(as_text(answer))
    if taken.census is None:
        _give_up(f"no census: {taken.no_census}; what was measured stands above.", NO_CENSUS)


def _give_up(sentence: str, code: int) -> NoReturn:
    notify(sentence)
    sys.exit(code)


def _request_census(
    recorded: RecordedProcess, journal: Following, number: int, wait: float
) -> SnapshotRecord | None:
    """Request a census from a process and return it; None if there is none in time.

    Raises:
        LeakscopeError: requests are not allowed.
        _EndedError: the process has ended, or its recording.

    """
    try:
        process = psutil.Process(recorded.pid)
    except psutil.NoSuchProcess as fault:
        raise _EndedError from fault
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


def _send(recorded: RecordedProcess, number: int) -> None:
    """Send the signal if the process has a handler for it at this very moment."""
    if not catches(recorded.pid, number):
        raise _EndedError
    try:
        os.kill(recorded.pid, number)
    except ProcessLookupError as fault:
        raise _EndedError from fault
    except PermissionError as fault:
        raise LeakscopeError(
            f"{recorded.name.capitalize()} is another user's: ask as that user."
        ) from fault


def _is_alive(process: psutil.Process) -> bool:
    """Return whether it is still the process that it was, and no zombie."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _why_none(pid: int) -> str:
    state = status_of(pid).get("State", "?")[0]
    if state in _STOPPED:
        return "it is stopped; let it go on (kill -CONT) and it takes the census then."
    does = "computes" if state == "R" else "waits"
    return (
        f"its main thread {does} and has reached no boundary. Signals are dealt with between two "
        "instructions of Python: a long call into C, or a backward pass, has to return first. The "
        "request stands; the census comes with the next boundary."
    )


def as_plain(answer: CensusTaken) -> dict[str, Any]:
    """Return what ``--format json`` shows."""
    import msgspec

    from leakscope.analysis.columns.series import HOST
    from leakscope.analysis.findings.out_of_memory import biggest, devices_of

    taken = answer.snapshot
    census = taken.census
    names = {device: biggest(taken, device) for device in (HOST, *devices_of(taken))}
    moment = ("time_s", "phase", "epoch", "step", "batch")
    return {
        "pid": answer.recorded.pid,
        "rank": answer.recorded.header.rank,
        "run": str(answer.run),
        **{name: getattr(taken.boundary, name) for name in moment},
        "at_once": taken.at_once,
        "seconds": taken.seconds,
        "objects": None if census is None else census.objects,
        "gauges": taken.gauges,
        "names": {device: msgspec.to_builtins(rows) for device, rows in names.items()},
    }


def as_text(answer: CensusTaken) -> str:
    """Return what is shown in the terminal."""
    from leakscope.analysis.columns.series import HOST
    from leakscope.analysis.findings.out_of_memory import biggest, describe_moment, devices_of

    taken, moment = answer.snapshot, answer.snapshot.boundary
    between = "between two boundaries, for none had come" if taken.at_once else "at a boundary"
    walked = f", {taken.census.objects:,} objects" if taken.census else ""
    name, since = answer.recorded.name.capitalize(), f"{moment.time_s:.1f} s after the start"
    lines = [
        f"{name}, {since}, {describe_moment(moment)}, {between}.",
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
    return "\n".join([*lines, "", f"Recorded in {answer.run}; next: leakscope show {answer.run}"])


def _in_children(taken: SnapshotRecord) -> str:
    """Return what child processes hold as well, such as a DataLoader's workers."""
    count = taken.gauges.get(gauge.CHILDREN, 0)
    if not count:
        return ""
    content = human_bytes(taken.gauges.get(gauge.CHILDREN_PSS, 0))
    return f", and {content} in {plural(count, 'child process')} (shared pages divided)"


_RECORDS = ("main", "rank")
"""What processes of a training are called that take censuses on request."""
_HOW = "leakscope run --snapshot-signal USR1 … (or profile(snapshot_signal='USR1'))"


@dataclass(frozen=True)
class RecordedProcess:
    """A process that records itself."""

    pid: int
    journal: Path
    header: HeaderRecord

    @property
    def name(self) -> str:
        """What it is called among those that train together."""
        is_rank = self.header.world_size > 1
        return f"process {self.pid}" + (f" (rank {self.header.rank})" if is_rank else "")


def find_recorded(pid: int) -> RecordedProcess:
    """Return the recorded process that a number means: itself, or the one that it has started.

    Raises:
        LeakscopeError: there is none, there are several, or it is unknown; the message says
        what to do.

    """
    try:
        status = psutil.Process(pid).status()
    except psutil.NoSuchProcess as fault:
        raise LeakscopeError(f"There is no process {pid}.") from fault
    except psutil.AccessDenied:
        status = ""
    if status == psutil.STATUS_ZOMBIE:
        raise LeakscopeError(f"Process {pid} has ended already.")
    own = _own_recording(pid)
    if own is not None:
        return own
    found = [item for child in _descendants(pid) if (item := _own_recording(child, quietly=True))]
    if len(found) == 1:
        return found[0]
    if found:
        choices = ", ".join(f"{item.pid} (rank {item.header.rank})" for item in found)
        raise LeakscopeError(
            f"Process {pid} has started several that are recorded; choose one: {choices}."
        )
    raise LeakscopeError(
        f"Process {pid} is not recorded by leakscope, nor is one that it has started. Only what "
        f"runs under {_HOW} takes a census on request; `leakscope monitor --pid {pid}` watches "
        "any process."
    )


def signal_of(recorded: RecordedProcess, journal: Following) -> int:
    """Return the number of the signal on which a process takes a census.

    Raises:
        LeakscopeError: there is none; says why and what to add.

    """
    latest = SnapshotSignalRecord()
    for record in journal.new():
        if isinstance(record, SnapshotSignalRecord):
            latest = record
    if not latest.signal:
        why = f": {latest.why_not}" if latest.why_not else ""
        raise LeakscopeError(
            f"{recorded.name.capitalize()} takes no census on request{why}. "
            + ("Choose another signal" if latest.why_not else "Start it")
            + f": {_HOW}."
        )
    if catches(recorded.pid, latest.signal) is False:
        raise LeakscopeError(
            f"{recorded.name.capitalize()} has no handler for its signal any more; nothing was "
            "sent, for it would end the process."
        )
    return latest.signal


def _own_recording(pid: int, *, quietly: bool = False) -> RecordedProcess | None:
    """Return the recording that a process writes of itself; None where it writes none."""
    try:
        journals = open_journals(pid)
    except OSError as fault:
        if quietly:
            return None
        if isinstance(fault, PermissionError):
            raise LeakscopeError(f"Process {pid} is another user's: ask as that user.") from fault
        raise LeakscopeError(f"There is no process {pid}.") from None
    inside = status_of(pid).get("NSpid", str(pid)).split()[-1]
    mine = [(path, header) for path, header in journals if str(header.pid) == inside]
    for path, header in mine:
        if header.role in _RECORDS:
            return RecordedProcess(pid, path, header)
    if journals and not quietly:
        raise LeakscopeError(_process_words(pid, journals[0][1], is_worker=bool(mine)))
    return None


def _process_words(pid: int, header: HeaderRecord, *, is_worker: bool) -> str:
    if header.role == "monitor":
        return (
            f"Process {pid} watches process {header.pid} from outside, and that one is not "
            f"recorded: it takes no census. Run it under {_HOW}."
        )
    what = "a worker of a DataLoader" if is_worker else "a child"
    parent = header.parent if is_worker and header.parent else header.pid
    return f"Process {pid} is {what} of process {parent}; ask that one: leakscope snapshot {parent}"


def _descendants(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []
