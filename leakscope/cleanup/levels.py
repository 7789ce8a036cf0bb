"""Memory of the host and of the accelerator now, and the peaks between two moments.

Nothing here imports torch or wakes a device. As long as the program has not used an accelerator
there is none, and in a forked child of a program that has, there is none either.

Peaks are read from counters that only rise, the kernel's and torch's own. A stretch that raised a
counter has that peak exactly. Where an earlier peak hides it, bounds are known. A reset of the
counters through this module is seen by all stretches under way.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leakscope.model import gauge
from leakscope.model.text import human_bytes
from leakscope.probes.cuda import AcceleratorProbe, CudaProbe, awake_cuda
from leakscope.probes.malloc import MallocProbe
from leakscope.probes.process import ProcessProbe, peak_resident

NO_TORCH = "No GPU figures: this process has not imported torch."
NOT_USED = "No GPU figures: torch has not used a GPU in this process."


@dataclass(frozen=True)
class DeviceLevel:
    """What torch's caching allocator holds on one device, in bytes."""

    allocated: int
    reserved: int
    peak_allocated: int


@dataclass(frozen=True)
class Accelerator:
    """Devices of one kind that are in use: ``cuda`` (ROCm too), ``xpu``, …"""

    kind: str
    torch: Any
    module: Any

    def free_and_total(self, device: str) -> tuple[int, int]:
        """Return a device's bytes free for all processes, and all that it has."""
        index = int(device.rpartition(":")[2])
        if self._generic("get_memory_info") is not None:
            free, total = self.torch.accelerator.get_memory_info(index)
        else:
            free, total = self.module.mem_get_info(index)
        return int(free), int(total)

    def empty_cache(self) -> None:
        """Give wholly free segments of all devices back to the driver."""
        self._function("empty_cache")()

    def empty_host_cache(self) -> Callable[[], object] | None:
        """Return the function that unpins unused page-locked memory; None where torch has none."""
        generic = self._generic("empty_host_cache")
        older: Callable[[], object] | None = getattr(self.torch._C, "_host_emptyCache", None)
        return generic or (older if self.kind == "cuda" else None)

    def reset_peaks(self, device: str) -> None:
        """Set torch's own peak counters of a device to the level now."""
        self._function("reset_peak_memory_stats")(int(device.rpartition(":")[2]))

    def may_empty_caches(self) -> bool:
        """Return whether no graph is being captured, as far as torch says so."""
        with suppress(Exception):
            asks = getattr(self.module, "is_current_stream_capturing", None)
            return not (asks and asks())
        return False

    def _function(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = self._generic(name) or getattr(self.module, name)
        return function

    def _generic(self, name: str) -> Callable[..., Any] | None:
        """The function of ``torch.accelerator``, where that is there and means these devices."""
        accelerator = getattr(self.torch, "accelerator", None)
        function: Callable[..., Any] | None = getattr(accelerator, name, None)
        if accelerator is None or function is None:
            return None
        current = accelerator.current_accelerator()
        return function if current is not None and current.type == self.kind else None


def awake_accelerator() -> Accelerator | None:
    """Return the accelerator that this process has used; None where it has used none."""
    with suppress(Exception):
        torch, cuda = sys.modules.get("torch"), awake_cuda()
        if cuda is not None:
            return Accelerator("cuda", torch, cuda)
        for device in _by_device(AcceleratorProbe().read()):
            kind = device.partition(":")[0]
            return Accelerator(kind, torch, getattr(torch, kind))
    return None


def device_levels() -> dict[str, DeviceLevel]:
    """Return the figures of all devices that hold or held memory; never raises."""
    devices = _by_device(CudaProbe().read() or AcceleratorProbe().read())
    return {
        device: DeviceLevel(
            allocated=figures.get(gauge.DEVICE_ALLOCATED, 0),
            reserved=figures.get(gauge.DEVICE_RESERVED, 0),
            peak_allocated=figures.get(gauge.DEVICE_PEAK, 0),
        )
        for device, figures in devices.items()
    }


def why_no_device() -> str:
    """Return the sentence that says why there are no figures of a device."""
    return NOT_USED if sys.modules.get("torch") is not None else NO_TORCH


def _by_device(gauges: dict[str, int]) -> dict[str, dict[str, int]]:
    devices: dict[str, dict[str, int]] = {}
    for name, value in gauges.items():
        device, _, figure = name.partition(".")
        devices.setdefault(device, {})[figure] = value
    return devices


NOISE_BYTES = 256 << 10
"""The kernel counts resident pages in batches: smaller changes mean nothing."""

_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = b"5"

_process = ProcessProbe()
_malloc = MallocProbe()


@dataclass(frozen=True)
class HostLevel:
    """Bytes at one moment; the C heap's live and free parts are None where they are unknown."""

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


HOST = "host"


@dataclass(frozen=True)
class Peak:
    """A peak between two bounds, in bytes; exact where both are the same."""

    at_least: int
    at_most: int | None
    """None where not even that is known: the program reset the counter meanwhile."""

    @property
    def is_exact(self) -> bool:
        """Whether the peak is known."""
        return self.at_least == self.at_most

    def __str__(self) -> str:
        if self.is_exact:
            return human_bytes(self.at_least)
        if self.at_most is None:
            return f"at least {human_bytes(self.at_least)}"
        return f"between {human_bytes(self.at_least)} and {human_bytes(self.at_most)}"


@dataclass(frozen=True)
class CounterMark:
    """The level and the counter of the highest level, in bytes, at one moment."""

    level: int
    highest: int


_UNUSED = CounterMark(0, 0)
_under_way: weakref.WeakSet[PeakWatch] = weakref.WeakSet()
_lock = threading.RLock()


class PeakWatch:
    """Watches the peaks from its creation on: the host's and those of all devices in use."""

    def __init__(self, *, reset: bool = False) -> None:
        if reset:
            reset_peak_memory_stats()
        self._peaks: dict[str, Peak] = {}
        with _lock:
            self._begin = _counter_marks()
            _under_way.add(self)

    def end(self) -> dict[str, Peak]:
        """Return the peak of each place, and watch no longer."""
        with _lock:
            self.fold()
            _under_way.discard(self)
        return self._peaks

    def fold(self) -> None:
        """Take the counters into account before they are reset."""
        marks = _counter_marks()
        for place, mark in marks.items():
            peak = peak_between(self._begin.get(place, _UNUSED), mark)
            self._peaks[place] = _higher(self._peaks.get(place), peak)
        self._begin = marks

    def restart(self) -> None:
        """Go on from counters that were reset."""
        self._begin = _counter_marks()


def peak_between(begin: CounterMark, end: CounterMark) -> Peak:
    """Return what two readings of a counter say about the peak between them."""
    seen = max(begin.level, end.level)
    if end.highest > begin.highest:
        return Peak(end.highest, end.highest)
    if end.highest < begin.highest:
        return Peak(max(seen, end.highest), None)
    return Peak(min(seen, end.highest), end.highest)


def reset_peak_memory_stats() -> tuple[str, ...]:
    """Let the peaks of the host and of the devices in use start again from zero; return which
    could.

    These are the kernel's mark and torch's own counters: whoever else reads them sees it.
    """
    with _lock:
        for watch in _under_way:
            watch.fold()
        done = [HOST] if reset_peak_resident() else []
        accelerator = awake_accelerator()
        if accelerator is not None:
            with suppress(Exception):
                for device in device_levels():
                    accelerator.reset_peaks(device)
                    done.append(device)
        for watch in _under_way:
            watch.restart()
    return tuple(done)


def _counter_marks() -> dict[str, CounterMark]:
    marks = {
        device: CounterMark(level.allocated, level.peak_allocated)
        for device, level in device_levels().items()
    }
    highest = peak_resident()
    return marks if highest is None else {HOST: CounterMark(resident(), highest), **marks}


def _higher(peak: Peak | None, other: Peak) -> Peak:
    if peak is None:
        return other
    open_ended = peak.at_most is None or other.at_most is None
    at_most = None if open_ended else max(peak.at_most or 0, other.at_most or 0)
    return Peak(max(peak.at_least, other.at_least), at_most)
