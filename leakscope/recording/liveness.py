"""Whether the process that writes a recording still does: what has no closing record yet was not
killed.
"""

from __future__ import annotations

import socket
import time

from leakscope.model.run import Recording

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


def _last_moment(recording: Recording) -> float:
    measured = recording.measurements
    return recording.header.started + (measured[-1].boundary.time_s if measured else 0.0)
