"""Whether the process that writes a recording still does: what has no closing record yet was not
killed.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

from leakscope.model.errors import NewerSchemaError
from leakscope.model.record import BoundaryRecord, EndRecord, HeaderRecord
from leakscope.model.run import Measurement, Recording
from leakscope.recording.directory import OUTCOME, journals
from leakscope.recording.following import Following

_CLOCK_SLACK_S = 2.0
"""The kernel's word on when a process began is rounded, and the clock may have been set since."""
_SILENT_FOR_S = 6 * 3600.0
"""A process of another machine that has recorded nothing for so long is taken for gone."""


def goes_on(recording: Recording) -> bool | None:
    """Return whether a recording without a closing record goes on; None where that can't be told.

    Of a process on another machine nothing can be told while its last record is recent.
    """
    header = recording.header
    if recording.end is not None or not header.started:
        return False
    if header.host != socket.gethostname():
        return None if time.time() - _last_moment(recording) < _SILENT_FOR_S else False
    import psutil

    try:
        process = psutil.Process(header.pid)
        is_same = process.create_time() <= header.started + _CLOCK_SLACK_S
        return bool(is_same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def folder_goes_on(folder: Path) -> bool | None:
    """Return whether a process still records into a run directory; None where that can't be told.

    Censuses are passed over, so that a long recording is read in a moment.
    """
    if (folder / OUTCOME).exists():
        return False
    told = [goes_on(recording) for path in journals(folder) if (recording := _sketch(path))]
    return True if True in told else None if None in told else False


def _sketch(journal: Path) -> Recording | None:
    """Return a recording without what was measured; None where nothing can be read."""
    recording = Recording(HeaderRecord())
    try:
        for record in Following(journal, (HeaderRecord, BoundaryRecord, EndRecord)).new():
            if isinstance(record, HeaderRecord):
                recording.header = record
            elif isinstance(record, BoundaryRecord):
                recording.measurements = [Measurement(record.boundary, {})]
            elif isinstance(record, EndRecord):
                recording.end = record
    except (OSError, NewerSchemaError):
        return None
    return recording


def _last_moment(recording: Recording) -> float:
    measured = recording.measurements
    return recording.header.started + (measured[-1].boundary.time_s if measured else 0.0)
