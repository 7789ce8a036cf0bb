"""The host's memory as this room needs it: the level now, the peak, and giving back to the system.

The peak is the kernel's high-water mark of the resident set (``VmHWM`` in ``/proc/self/status``),
elsewhere ``getrusage``. Unlike ``ru_maxrss`` it starts anew when a program is executed, and Linux
can set it back: 5 written to ``/proc/self/clear_refs`` (proc(5), since 4.0).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from leakscope.model import gauge
from leakscope.probes.malloc import MallocProbe
from leakscope.probes.process import ProcessProbe

NOISE_BYTES = 256 << 10
"""The kernel counts resident pages in batches: smaller changes mean nothing."""

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = b"5"

_process = ProcessProbe()
_malloc = MallocProbe()


@dataclass(frozen=True)
class HostLevel:
    """Bytes at one moment; the C heap's live and free parts are None where nobody tells them."""

    resident: int
    in_use: int | None
    free: int | None


def resident() -> int:
    """Return the resident memory of the process, in bytes: some microseconds."""
    return _process.read().get(gauge.RSS, 0)


def host_level() -> HostLevel:
    """Return resident memory and the C heap's parts; the latter walks glibc's free lists."""
    heap = _malloc.read()
    return HostLevel(resident(), heap.get(gauge.MALLOC_IN_USE), heap.get(gauge.MALLOC_FREE))


def peak_resident() -> int | None:
    """Return the highest resident memory so far, in bytes; None where the system doesn't tell."""
    try:
        for line in _STATUS.read_bytes().splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return _peak_by_getrusage()


def reset_peak_resident() -> bool:
    """Set the kernel's high-water mark to the level now; return whether that was possible."""
    try:
        _CLEAR_REFS.write_bytes(_RESET_PEAK)
    except OSError:
        return False
    return True


def trim_function() -> Callable[[], object] | None:
    """Return glibc's ``malloc_trim(0)`` as a function; None with another C library."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    trim.argtypes = [ctypes.c_size_t]
    trim.restype = ctypes.c_int
    return lambda: trim(0)


def _peak_by_getrusage() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
