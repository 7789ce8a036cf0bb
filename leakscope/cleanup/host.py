"""The host's memory as this room needs it: the level now, the peak set back, memory given back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from leakscope.model import gauge
from leakscope.probes.malloc import MallocProbe
from leakscope.probes.process import ProcessProbe

NOISE_BYTES = 256 << 10
"""The kernel counts resident pages in batches: smaller changes mean nothing."""

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


def reset_peak_resident() -> bool:
    """Set the kernel's high-water mark to the level now; return whether that was possible.

    5 written to ``/proc/self/clear_refs`` does it (proc(5), since Linux 4.0).
    """
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
