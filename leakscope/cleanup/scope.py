"""What a block of code kept, and how high memory rose in it, on the host and on each device.

:func:`decorated` runs a function inside a context manager at every call; ``oom_guard`` uses it too.
"""

from __future__ import annotations

import functools
import gc
import inspect
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, cast

from leakscope.cleanup.levels import (
    HOST,
    NOISE_BYTES,
    DeviceLevel,
    Peak,
    PeakWatch,
    device_levels,
    host_level,
)
from leakscope.cleanup.statistics import log_text
from leakscope.model.text import human_bytes

P = ParamSpec("P")
T = TypeVar("T")


def decorated(
    function: Callable[P, T], contexts: Callable[[], Iterable[AbstractContextManager[Any]]]
) -> Callable[P, T]:
    """Return the function run inside the first context that doesn't swallow its exception.

    Coroutine functions are awaited inside it.

    Raises:
        TypeError: it is a generator function, whose body runs long after the call, or no function.

    """
    if not callable(function):
        raise TypeError(f"Only a function can be decorated, not {type(function).__name__}.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{function.__qualname__} is a generator function: its body runs after the call. "
            "Decorate the function that uses it up."
        )
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaiting(*args: P.args, **kwargs: P.kwargs) -> Any:
            for context in contexts():
                with context:
                    return await function(*args, **kwargs)
            return None

        return cast("Callable[P, T]", awaiting)

    @functools.wraps(function)
    def calling(*args: P.args, **kwargs: P.kwargs) -> T:
        for context in contexts():
            with context:
                return function(*args, **kwargs)
        raise AssertionError("the last context let its exception pass")

    return calling


_UNUSED = DeviceLevel(0, 0, 0)


@dataclass(frozen=True)
class ScopeReport:
    """What one run of a block did to memory, in bytes, all threads of the process together."""

    name: str
    seconds: float
    host_kept: int
    """By how much resident memory rose; negative where it fell."""
    host_in_use_kept: int | None
    """By how much the live part of the C heap rose; None where it is unknown."""
    host_free_kept: int | None
    """By how much memory rose that is free again, but kept by the C library; None likewise."""
    host_peak: Peak | None
    device_kept: dict[str, int]
    """By how much live tensors rose, per device."""
    device_reserved: dict[str, int]
    """By how much torch's reserved memory rose, per device."""
    device_peak: dict[str, Peak]
    """Of live tensors, per device."""
    left_by: str | None = None
    """The type of the exception that left the block, whose frames still hold what they held."""

    def __str__(self) -> str:
        kept = 0 if abs(self.host_kept) < NOISE_BYTES else self.host_kept
        parts = [_describe_change(HOST, kept, self.host_peak, min(kept, self.host_free_kept or 0))]
        for device, size in self.device_kept.items():
            parts.append(_describe_change(device, size, self.device_peak.get(device)))
        left = f" (left by {self.left_by})" if self.left_by else ""
        return f"{self.name}{left}: {'; '.join(parts)}; {self.seconds:.3g} s"


class MemoryScope:
    """Tells what a block kept and its peak: ``with MemoryScope("load"):``, or as a decorator.

    The report is logged at level INFO (on stderr where nobody listens) unless ``quiet``, and is in
    ``report`` afterwards. ``collect`` runs the collector before both readings, so that garbage
    doesn't count as kept. Exceptions pass unchanged and aren't kept.

    Nothing that belongs to the program is reset: where an earlier peak hides the block's own, the
    report has bounds. ``exact_peak`` resets the kernel's and torch's counters at the beginning;
    whoever reads those later sees the peak since then. Scopes within each other allow for it.
    """

    def __init__(
        self,
        name: str = "block",
        *,
        exact_peak: bool = False,
        collect: bool = False,
        quiet: bool = False,
        logger: logging.Logger | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError('MemoryScope takes a name: write @MemoryScope("load").')
        self.name = name
        self.exact_peak = exact_peak
        self.collect = collect
        self.quiet = quiet
        self.logger = logger
        self.report: ScopeReport | None = None
        self._open: list[_Run] = []

    def __enter__(self) -> MemoryScope:
        self._open.append(_Run(self).__enter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._open.pop().__exit__(kind)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return the function, each call of which is such a block; ``async`` ones too.

        Raises:
            TypeError: it is a generator function, whose body runs after the call.

        """
        return decorated(function, lambda: [_Run(self)])


class _Run:
    """One run of the block, so that a decorated function may call itself or run in threads."""

    def __init__(self, scope: MemoryScope) -> None:
        self._scope = scope

    def __enter__(self) -> _Run:
        if self._scope.collect:
            gc.collect()
        self._watch = PeakWatch(reset=self._scope.exact_peak)
        self._host, self._devices = host_level(), device_levels()
        self._begun = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        scope = self._scope
        try:
            scope.report = self._report(kind.__name__ if kind else None)
        except Exception:
            return
        if not scope.quiet:
            log_text(str(scope.report), scope.logger)

    def _report(self, left_by: str | None) -> ScopeReport:
        seconds = time.perf_counter() - self._begun
        if self._scope.collect:
            gc.collect()
        host, devices = host_level(), device_levels()
        peaks = self._watch.end()
        pairs = {name: (self._devices.get(name, _UNUSED), now) for name, now in devices.items()}
        return ScopeReport(
            name=self._scope.name,
            seconds=seconds,
            host_kept=host.resident - self._host.resident,
            host_in_use_kept=_rise(self._host.in_use, host.in_use),
            host_free_kept=_rise(self._host.free, host.free),
            host_peak=peaks.pop(HOST, None),
            device_kept={name: now.allocated - was.allocated for name, (was, now) in pairs.items()},
            device_reserved={
                name: now.reserved - was.reserved for name, (was, now) in pairs.items()
            },
            device_peak=peaks,
            left_by=left_by,
        )


def _rise(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _describe_change(place: str, kept: int, peak: Peak | None, free: int = 0) -> str:
    change = f"gave back {human_bytes(-kept)}" if kept < 0 else f"kept {human_bytes(kept)}"
    of_it = f" ({human_bytes(free)} of it free in the C heap)" if free >= NOISE_BYTES else ""
    return f"{place} {change}{of_it}" + (f", peak {peak}" if peak else "")
