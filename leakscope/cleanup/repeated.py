"""A cleanup every so many steps that measures whether it is worth its time.

What a call *freed* is garbage; it counts as the collector's own where that ran fully by itself
since the call before. What a call *returned* to the system or the driver counts only as far as
it was not taken again by the next call: a cache that the next steps fill anew has gained nothing.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from leakscope.cleanup.accelerator import device_levels
from leakscope.cleanup.clearing import ClearedMemory, clear_memory
from leakscope.cleanup.host import resident
from leakscope.cleanup.peaks import HOST
from leakscope.cleanup.speaking import say
from leakscope.model.sizes import human_bytes, plural

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
    """Runs :func:`clear_memory` after every ``n`` steps and tells when that is useless.

    Either wrap what a loop goes through, ``for batch in cleanup_every(10)(loader)``, or call
    :meth:`step` once per step. After five cleanups that gained nothing it says so once, at level
    WARNING (on stderr where nobody listens), and goes on; :meth:`report` tells the figures.

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
            say(str(report), self.logger, logging.WARNING)
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
