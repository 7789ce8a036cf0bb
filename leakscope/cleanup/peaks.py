"""Peaks between two moments, read from counters that only rise: the kernel's and torch's own.

A stretch that raised a counter has that peak exactly. Where an earlier peak hides it, bounds are
known. A reset of the counters through this module is seen by all stretches under way; one by the
program itself is noticed by the counter's fall.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass

from leakscope.cleanup.accelerator import awake_accelerator, device_levels
from leakscope.cleanup.host import reset_peak_resident, resident
from leakscope.model.sizes import human_bytes
from leakscope.probes.process import peak_resident

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
class Mark:
    """The level and the counter of the highest level, in bytes, at one moment."""

    level: int
    highest: int


_UNUSED = Mark(0, 0)
_under_way: weakref.WeakSet[PeakWatch] = weakref.WeakSet()
_lock = threading.RLock()


class PeakWatch:
    """Watches the peaks from its creation on: the host's and those of all devices in use."""

    def __init__(self, *, reset: bool = False) -> None:
        if reset:
            reset_peaks()
        self._peaks: dict[str, Peak] = {}
        with _lock:
            self._begin = _marks()
            _under_way.add(self)

    def end(self) -> dict[str, Peak]:
        """Return the peak of each place, and watch no longer."""
        with _lock:
            self.fold()
            _under_way.discard(self)
        return self._peaks

    def fold(self) -> None:
        """Take the counters into account before they are reset."""
        marks = _marks()
        for place, mark in marks.items():
            peak = peak_between(self._begin.get(place, _UNUSED), mark)
            self._peaks[place] = _higher(self._peaks.get(place), peak)
        self._begin = marks

    def begin_anew(self) -> None:
        """Go on from counters that were reset."""
        self._begin = _marks()


def peak_between(begin: Mark, end: Mark) -> Peak:
    """Return what two readings of a counter tell of the peak between them."""
    seen = max(begin.level, end.level)
    if end.highest > begin.highest:
        return Peak(end.highest, end.highest)
    if end.highest < begin.highest:
        return Peak(max(seen, end.highest), None)
    return Peak(min(seen, end.highest), end.highest)


def reset_peaks() -> tuple[str, ...]:
    """Set all counters to the level now; return the places where that was possible."""
    with _lock:
        for watch in _under_way:
            watch.fold()
        done = [HOST] if reset_peak_resident() else []
        done += _reset_devices()
        for watch in _under_way:
            watch.begin_anew()
    return tuple(done)


def _reset_devices() -> list[str]:
    accelerator = awake_accelerator()
    done: list[str] = []
    if accelerator is None:
        return done
    try:
        for device in device_levels():
            accelerator.reset_peaks(device)
            done.append(device)
    except Exception:
        pass
    return done


def _marks() -> dict[str, Mark]:
    marks = {
        device: Mark(level.allocated, level.peak_allocated)
        for device, level in device_levels().items()
    }
    highest = peak_resident()
    return marks if highest is None else {HOST: Mark(resident(), highest), **marks}


def _higher(one: Peak | None, other: Peak) -> Peak:
    if one is None:
        return other
    open_ended = one.at_most is None or other.at_most is None
    at_most = None if open_ended else max(one.at_most or 0, other.at_most or 0)
    return Peak(max(one.at_least, other.at_least), at_most)
