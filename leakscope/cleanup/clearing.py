"""Free what nobody uses, once or every so many steps: the collector's garbage, torch's caches,
malloc's free memory.

Each step is measured on its own, for they do different things. Garbage that is *freed* can be used
again by this process; memory that is *returned* goes back to the system or to the driver. A
repeated cleanup also measures whether it is worth its time: what the collector would have freed by
itself and what is taken again by the next call does not count.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from leakscope.cleanup.levels import (
    HOST,
    NOISE_BYTES,
    DeviceLevel,
    HostLevel,
    awake_accelerator,
    device_levels,
    host_level,
    resident,
    trim_function,
    why_no_device,
)
from leakscope.cleanup.statistics import log_text, pinned_memory
from leakscope.model.text import human_bytes, plural

COLLECT = "gc.collect()"
EMPTY_CACHE = "empty_cache()"
EMPTY_HOST_CACHE = "empty_host_cache()"
TRIM = "malloc_trim(0)"
RELEASE_EXCEPTION = "Letting go of the exception"
_FREEING = (COLLECT, RELEASE_EXCEPTION)


@dataclass(frozen=True)
class Level:
    """What the process and its devices held at one moment."""

    host: HostLevel
    devices: dict[str, DeviceLevel]
    pinned: int | None

    @staticmethod
    def now() -> Level:
        """Return the level just now."""
        devices = device_levels()
        return Level(host_level(), devices, pinned_memory() if devices else None)


@dataclass(frozen=True)
class ClearedStep:
    """What one step changed, in bytes; negative where other threads took more meanwhile."""

    name: str
    seconds: float
    objects: int | None
    """Unreachable objects that the collector found; None for other steps."""
    host_freed: int | None
    """By how much the live part of the C heap fell; None where it is unknown."""
    host_returned: int
    """By how much resident memory fell."""
    host_trimmed: int = 0
    """By how much the free part of the C heap fell: nobody held that before the step either."""
    device_freed: dict[str, int] = field(default_factory=dict)
    """By how much live tensors fell, per device."""
    device_returned: dict[str, int] = field(default_factory=dict)
    """By how much torch's reserved memory fell, per device."""
    pinned_returned: int = 0

    @property
    def host_bytes(self) -> int:
        """What it did for the host, whichever way it shows; 0 where that is lost in noise."""
        freed = max(0, self.host_freed or 0)
        if self.name in _FREEING:
            # What left the process besides the C heap is freed too: arenas of Python's allocator.
            further = self.host_returned - max(0, self.host_trimmed) - freed
            best = freed + (further if further >= NOISE_BYTES else 0)
        else:
            best = max(freed, self.host_returned)
        return best if best >= NOISE_BYTES else 0

    def __str__(self) -> str:
        frees = self.name in _FREEING
        parts = [f"{human_bytes(self.host_bytes)} of the host's memory"] if self.host_bytes else []
        changes = self.device_freed if frees else self.device_returned
        parts += [f"{human_bytes(size)} on {name}" for name, size in changes.items() if size > 0]
        if self.pinned_returned > 0:
            parts.append(f"{human_bytes(self.pinned_returned)} of page-locked memory")
        texts = " and ".join(parts) or "nothing that can be measured"
        found = [plural(self.objects, "object")] if self.objects else []
        took = [] if self.name == RELEASE_EXCEPTION else [f"{1000 * self.seconds:.1f} ms"]
        aside = f" ({', '.join(found + took)})" if found or took else ""
        return f"{self.name} {'freed' if frees else 'returned'} {texts}{aside}"


@dataclass(frozen=True)
class ClearedMemory:
    """What :func:`clear_memory` did, step by step; ``remarks`` say what it left out and why."""

    steps: tuple[ClearedStep, ...]
    seconds: float
    """All of it, the measuring included."""
    remarks: tuple[str, ...] = ()

    @property
    def host_freed(self) -> int:
        """Bytes of the host freed for this process by the collector; 0 if lost in noise."""
        return sum(step.host_bytes for step in self.steps if step.name == COLLECT)

    @property
    def host_returned(self) -> int:
        """Bytes by which resident memory fell in all, 0 if lost in noise."""
        returned = sum(step.host_returned for step in self.steps)
        return returned if returned >= NOISE_BYTES else 0

    @property
    def device_freed(self) -> dict[str, int]:
        """Bytes of live tensors freed per device."""
        return _summed([step.device_freed for step in self.steps])

    @property
    def device_returned(self) -> dict[str, int]:
        """Bytes that went from torch's cache back to the driver, per device."""
        return _summed([step.device_returned for step in self.steps])

    @property
    def objects(self) -> int:
        """Unreachable objects that the collector found."""
        return sum(step.objects or 0 for step in self.steps)

    @property
    def summary(self) -> str:
        """What was done, in one sentence."""
        return "; ".join(map(str, self.steps)) + "."

    def __str__(self) -> str:
        return " ".join([self.summary, *self.remarks])


def clear_memory(force: bool = False) -> ClearedMemory:
    """Collect garbage and empty torch's caches; return what each step freed and what it took.

    ``force`` also asks glibc to return free memory of the C heap, which can take long in a process
    of many gigabytes. A device that this process has not used is not woken. Never raises.
    """
    begun = time.perf_counter()
    remarks: list[str] = []
    steps: list[ClearedStep] = []
    level = Level.now()
    for name, action in _actions(force, remarks):
        started = time.perf_counter()
        try:
            found = action()
        except Exception as error:
            remarks.append(f"{name} failed: {type(error).__name__}: {error}.")
            continue
        seconds = time.perf_counter() - started
        after = Level.now()
        objects = found if name == COLLECT and isinstance(found, int) else None
        steps.append(difference(name, level, after, seconds, objects))
        level = after
    return ClearedMemory(tuple(steps), time.perf_counter() - begun, tuple(remarks))


def difference(
    name: str, before: Level, after: Level, seconds: float = 0.0, objects: int | None = None
) -> ClearedStep:
    """Return what changed between two levels."""
    in_use = (before.host.in_use, after.host.in_use)
    both = [device for device in before.devices if device in after.devices]
    was, now = before.devices, after.devices
    return ClearedStep(
        name=name,
        seconds=seconds,
        objects=objects,
        host_freed=None if in_use[0] is None or in_use[1] is None else in_use[0] - in_use[1],
        host_returned=before.host.resident - after.host.resident,
        host_trimmed=(before.host.free or 0) - (after.host.free or 0),
        device_freed={device: was[device].allocated - now[device].allocated for device in both},
        device_returned={device: was[device].reserved - now[device].reserved for device in both},
        pinned_returned=(before.pinned or 0) - (after.pinned or 0),
    )


def _actions(force: bool, remarks: list[str]) -> list[tuple[str, Callable[[], object]]]:
    actions: list[tuple[str, Callable[[], object]]] = [(COLLECT, gc.collect)]
    accelerator = awake_accelerator()
    if accelerator is None:
        remarks.append(why_no_device())
    elif accelerator.may_empty_caches():
        actions.append((EMPTY_CACHE, accelerator.empty_cache))
        empty_host_cache = accelerator.empty_host_cache()
        if empty_host_cache:
            actions.append((EMPTY_HOST_CACHE, empty_host_cache))
    else:
        remarks.append("The caches were left alone: a graph is being captured.")
    if force:
        trim = trim_function()
        if trim:
            actions.append((TRIM, trim))
        else:
            remarks.append("There is no malloc_trim: the C library is not glibc.")
    return actions


def _summed(changes: list[dict[str, int]]) -> dict[str, int]:
    devices = dict.fromkeys(device for change in changes for device in change)
    return {device: sum(change.get(device, 0) for change in changes) for device in devices}


T = TypeVar("T")

USEFUL = "useful"
USELESS = "useless"
UNDECIDED = "undecided"

_CALLS_TO_JUDGE = 5
_WORTH_BYTES = 1 << 20
_WORTH_OBJECTS = 10_000
"""Less than this in a cleanup is not worth it. Small objects may lie among others, so that their
memory is free for Python alone and shows nowhere in bytes.
"""


@dataclass
class _Sums:
    """What some cleanups did, in bytes."""

    calls: int = 0
    objects: int = 0
    freed: int = 0
    freed_anyway: int = 0
    returned: int = 0
    taken_again: int = 0

    @property
    def is_worth_it(self) -> bool:
        gained = self.freed + self.returned - self.taken_again
        return gained >= _WORTH_BYTES * self.calls or self.objects >= _WORTH_OBJECTS * self.calls


@dataclass(frozen=True)
class CleanupReport:
    """What all calls so far did, in bytes and seconds."""

    every: int
    steps: int
    calls: int
    seconds: float
    """Spent in the calls, their own measuring included."""
    share_of_time: float
    """Of the time since the first step."""
    objects: int
    """Unreachable objects that were found."""
    freed: int
    """Garbage freed on the host and on all devices."""
    freed_anyway: int
    """The same, but in calls before which the collector had run fully by itself."""
    returned: int
    """Given back to the system and to the drivers."""
    taken_again: int
    """The part of ``returned`` that the next call found taken again."""
    verdict: str
    """``useful``, ``useless``, or ``undecided`` after too few calls."""

    def __str__(self) -> str:
        name = f"cleanup_every({self.every})"
        if not self.calls:
            return f"{name} has not cleaned up yet, after {plural(self.steps, 'step')}."
        found = f" in {plural(self.objects, 'object')}" if self.objects else ""
        parts = [f"freed {human_bytes(self.freed)} of garbage{found}"]
        if self.freed_anyway:
            parts.append(f"{human_bytes(self.freed_anyway)} that the collector was freeing anyway")
        again = f" ({human_bytes(self.taken_again)} were taken again)" if self.taken_again else ""
        parts.append(f"returned {human_bytes(self.returned)}{again}")
        cost = f"{1000 * self.seconds / self.calls:.1f} ms each"
        share = f"{100 * self.share_of_time:.1f} % of the time"
        conclusion = {
            USELESS: " That gains nothing: leave it out.",
            UNDECIDED: f" Too few to judge: {_CALLS_TO_JUDGE} cleanups will do.",
        }.get(self.verdict, "")
        count = plural(self.calls, "cleanup")
        return f"{name} {', '.join(parts)} in {count} of {cost}, {share}.{conclusion}"


class cleanup_every:  # noqa: N801 - used as a verb, and named like one
    """Runs :func:`clear_memory` after every ``n`` steps and says when that is useless.

    Either wrap what a loop goes through, ``for batch in cleanup_every(10)(loader)``, or call
    :meth:`step` once per step. After five cleanups that gained nothing it says so once, at level
    WARNING (on stderr where nobody listens), and goes on; :meth:`report` returns the figures.

    Raises:
        ValueError: ``n`` is less than 1.

    """

    def __init__(
        self, n: int, *, force: bool = False, logger: logging.Logger | None = None
    ) -> None:
        if n < 1:
            raise ValueError("cleanup_every needs a number of steps from 1 on.")
        self.n = n
        self.force = force
        self.logger = logger
        self._steps = 0
        self._begun: float | None = None
        self._seconds = 0.0
        self._objects = 0
        self._first, self._later = _Sums(), _Sums()
        self._has_spoken = False
        self._collections = 0
        self._gained: dict[str, tuple[int, int]] = {}
        """Per place: what the last cleanup returned there, and the level it left behind."""

    def __call__(self, iterable: Iterable[T]) -> CleanedLoop[T]:
        """Return the same items, with a step after each; nothing of them is kept."""
        return CleanedLoop(self, iterable)

    def step(self) -> ClearedMemory | None:
        """Count a step; return what was cleared where it was the step's turn. Never raises."""
        if self._begun is None:
            self._begun = time.perf_counter()
            self._collections = _full_collections()
        self._steps += 1
        if self._steps % self.n:
            return None
        begun = time.perf_counter()
        cleared = self._clean()
        self._seconds += time.perf_counter() - begun
        report = self.report()
        if report.verdict == USELESS and not self._has_spoken:
            self._has_spoken = True
            log_text(str(report), self.logger, logging.WARNING)
        return cleared

    def report(self) -> CleanupReport:
        """Return the figures of all cleanups so far."""
        first, later = self._first, self._later
        elapsed = 0.0 if self._begun is None else time.perf_counter() - self._begun
        return CleanupReport(
            every=self.n,
            steps=self._steps,
            calls=first.calls + later.calls,
            seconds=self._seconds,
            share_of_time=self._seconds / elapsed if elapsed else 0.0,
            objects=self._objects,
            freed=first.freed + later.freed,
            freed_anyway=first.freed_anyway + later.freed_anyway,
            returned=first.returned + later.returned + sum(s for s, _ in self._gained.values()),
            taken_again=first.taken_again + later.taken_again,
            verdict=self._verdict(),
        )

    def _verdict(self) -> str:
        """The first cleanup finds what the program's start left behind, and doesn't count."""
        later = self._later
        if later.calls + 1 < _CALLS_TO_JUDGE:
            return UNDECIDED
        return USEFUL if later.is_worth_it else USELESS

    def _clean(self) -> ClearedMemory:
        self._settle()
        has_run_by_itself = _full_collections() > self._collections
        cleared = clear_memory(self.force)
        self._collections = _full_collections()
        sums = self._later if self._first.calls else self._first
        sums.calls += 1
        freed = cleared.host_freed + sum(max(0, size) for size in cleared.device_freed.values())
        if has_run_by_itself:
            sums.freed_anyway += freed
        else:
            sums.freed += freed
            sums.objects += cleared.objects
        returned = {HOST: cleared.host_returned, **cleared.device_returned}
        levels = _levels()
        self._gained = {
            place: (size, levels.get(place, 0)) for place, size in returned.items() if size > 0
        }
        self._objects += cleared.objects
        return cleared

    def _settle(self) -> None:
        """Find out what became of what the last cleanup returned."""
        sums, levels = self._later if self._later.calls else self._first, _levels()
        for place, (size, left) in self._gained.items():
            sums.returned += size
            sums.taken_again += min(size, max(0, levels.get(place, 0) - left))


class CleanedLoop(Generic[T]):
    """What a loop goes through, with a step of a :class:`cleanup_every` after each item."""

    def __init__(self, cleanup: cleanup_every, iterable: Iterable[T]) -> None:
        self._cleanup = cleanup
        self._iterable = iterable

    def __iter__(self) -> Iterator[T]:
        return _Pass(self._cleanup, iter(self._iterable))

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]


class _Pass(Iterator[T]):
    """One pass. No generator: its frame would keep the last item alive during the cleanup."""

    def __init__(self, cleanup: cleanup_every, iterator: Iterator[T]) -> None:
        self._cleanup = cleanup
        self._iterator = iterator
        self._has_begun = False

    def __next__(self) -> T:
        if self._has_begun:
            self._cleanup.step()
        self._has_begun = True
        return next(self._iterator)


def _full_collections() -> int:
    return int(gc.get_stats()[-1]["collections"])


def _levels() -> dict[str, int]:
    devices = {device: level.reserved for device, level in device_levels().items()}
    return {HOST: resident(), **devices}
