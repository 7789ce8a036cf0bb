"""Which process is meant by a process id, and whether it takes a census on a signal.

Everything is looked up from outside, in ``/proc``: a signal that a process has no handler for ends
it, so nothing is sent unless its own recording and the kernel both say that it has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

from leakscope.model.errors import LeakscopeError
from leakscope.model.record import HeaderRecord, SnapshotSignalRecord
from leakscope.probes.signals import catches, status_of
from leakscope.recording.following import Following, open_journals

_RECORDS = ("main", "rank")
"""What processes of a training are called that take censuses on request."""
_HOW = "leakscope run --snapshot-signal USR1 … (or profile(snapshot_signal='USR1'))"


@dataclass(frozen=True)
class Recorded:
    """A process that records itself."""

    pid: int
    journal: Path
    header: HeaderRecord

    @property
    def name(self) -> str:
        """What it is called among those that train together."""
        is_rank = self.header.world_size > 1
        return f"process {self.pid}" + (f" (rank {self.header.rank})" if is_rank else "")


def find_recorded(pid: int) -> Recorded:
    """Return the recorded process that a number means: itself, or the one that it has started.

    Raises:
        LeakscopeError: there is none, there are several, or it can't be told; says what to do.

    """
    _require_process(pid)
    own = _own_recording(pid)
    if own is not None:
        return own
    found = [one for child in _descendants(pid) if (one := _own_recording(child, quietly=True))]
    if len(found) == 1:
        return found[0]
    if found:
        choices = ", ".join(f"{one.pid} (rank {one.header.rank})" for one in found)
        raise _fault(f"Process {pid} has started several that are recorded; choose one: {choices}.")
    raise _fault(
        f"Process {pid} is not recorded by leakscope, nor is one that it has started. Only what "
        f"runs under {_HOW} takes a census on request; `leakscope monitor --pid {pid}` watches "
        "any process."
    )


def signal_of(recorded: Recorded, journal: Following) -> int:
    """Return the number of the signal on which a process takes a census.

    Raises:
        LeakscopeError: there is none; says why and what to add.

    """
    told = SnapshotSignalRecord()
    for record in journal.new():
        if isinstance(record, SnapshotSignalRecord):
            told = record
    if not told.signal:
        why = f": {told.why_not}" if told.why_not else ""
        raise _fault(
            f"{recorded.name.capitalize()} takes no census on request{why}. "
            + ("Choose another signal" if told.why_not else "Start it")
            + f": {_HOW}."
        )
    if catches(recorded.pid, told.signal) is False:
        raise _fault(
            f"{recorded.name.capitalize()} has no handler for its signal any more; nothing was "
            "sent, for it would end the process."
        )
    return told.signal


def _own_recording(pid: int, *, quietly: bool = False) -> Recorded | None:
    """Return the recording that a process writes of itself; None where it writes none."""
    try:
        journals = open_journals(pid)
    except PermissionError as fault:
        if quietly:
            return None
        raise _fault(f"Process {pid} is another user's: ask as that user.") from fault
    except OSError:
        if quietly:
            return None
        raise no_process(pid) from None
    inside = status_of(pid).get("NSpid", str(pid)).split()[-1]
    mine = [(path, header) for path, header in journals if str(header.pid) == inside]
    for path, header in mine:
        if header.role in _RECORDS:
            return Recorded(pid, path, header)
    if journals and not quietly:
        raise _fault(_of_whom(pid, journals[0][1], is_worker=bool(mine)))
    return None


def _of_whom(pid: int, header: HeaderRecord, *, is_worker: bool) -> str:
    if header.role == "monitor":
        return (
            f"Process {pid} watches process {header.pid} from outside, and that one is not "
            f"recorded: it takes no census. Run it under {_HOW}."
        )
    what = "a worker of a DataLoader" if is_worker else "a child"
    parent = header.parent if is_worker and header.parent else header.pid
    return f"Process {pid} is {what} of process {parent}; ask that one: leakscope snapshot {parent}"


def _require_process(pid: int) -> None:
    try:
        status = psutil.Process(pid).status()
    except psutil.NoSuchProcess as fault:
        raise no_process(pid) from fault
    except psutil.AccessDenied:
        return
    if status == psutil.STATUS_ZOMBIE:
        raise _fault(f"Process {pid} has ended already.")


def no_process(pid: int) -> LeakscopeError:
    """Return the fault that there is no such process."""
    return LeakscopeError(f"There is no process {pid}.", slug="no-process")


def _descendants(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


def _fault(sentence: str) -> LeakscopeError:
    return LeakscopeError(sentence, slug="no-snapshot")
