"""When memory runs out: recognise it, explain it, clean up, and try again or let the exception go
on.

The figures come from the exception's own words where it has some, for they were written at the
moment of the failure, else from the statistics now. An exception keeps the frames that it passed
through, and they keep their locals, tensors of the failed step among them: nothing is cleaned while
the exception holds them.
"""

from __future__ import annotations

import gc
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import ParamSpec, TypeVar

from leakscope.cleanup.clearing import (
    RELEASE_EXCEPTION,
    ClearedMemory,
    ClearedStep,
    Level,
    clear_memory,
    difference,
)
from leakscope.cleanup.levels import device_levels
from leakscope.cleanup.scope import decorated
from leakscope.cleanup.statistics import (
    HostMemory,
    LiveTensors,
    live_tensors,
    log_text,
    memory_stats,
)
from leakscope.model.text import human_bytes, human_share
from leakscope.probes.out_of_memory import (
    HOST,
    OutOfMemoryMessage,
    is_of_device,
    is_out_of_memory,
    read_message,
)

__all__ = ["OutOfMemory", "explain", "is_out_of_memory", "judged"]


P = ParamSpec("P")
T = TypeVar("T")

_EXPLAINED = "_leakscope_told"
"""Set on an exception that was explained, so that guards within each other explain it once."""


class oom_guard:  # noqa: N801 - used as a statement and a decorator, and named like one
    """Explains and cleans up when memory runs out, on the host or on a device.

    As a context manager it can't run the block again: it explains, cleans and lets the exception
    go on. A decorated function, ``async`` ones too, is called again up to ``retries`` times with
    the same arguments; a loop over :meth:`attempts` runs its block again. ``on_retry`` is called
    after the cleanup and before each new attempt, with the :class:`Attempt` that failed; it may
    halve the batch. When the last attempt fails, its own exception goes on, traceback unchanged.

    ``force`` is that of :func:`clear_memory`; ``keep_locals`` leaves the locals of the failed
    frames to a debugger, and with them the memory that they hold. The explanation is logged at
    level WARNING (on stderr where nobody listens). Other exceptions pass untouched.
    """

    def __init__(
        self,
        *,
        retries: int = 0,
        on_retry: Callable[[Attempt], object] | None = None,
        force: bool = False,
        keep_locals: bool = False,
        logger: logging.Logger | None = None,
    ) -> None:
        if retries < 0:
            raise ValueError("retries can't be negative.")
        self.retries = retries
        self.on_retry = on_retry
        self.force = force
        self.keep_locals = keep_locals
        self.logger = logger
        self._open: list[Attempt] = []

    @classmethod
    def attempts(
        cls,
        retries: int = 1,
        *,
        on_retry: Callable[[Attempt], object] | None = None,
        force: bool = False,
        keep_locals: bool = False,
        logger: logging.Logger | None = None,
    ) -> Iterator[Attempt]:
        """Return attempts at a block, one at least, until one doesn't run out of memory.

        >>> for attempt in oom_guard.attempts(retries=2):
        ...     with attempt:
        ...         train(batch_size // 2 ** (attempt.number - 1))
        """
        guard = cls(
            retries=retries, on_retry=on_retry, force=force, keep_locals=keep_locals, logger=logger
        )
        return guard._attempts()

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return the function, guarded.

        Raises:
            TypeError: it is a generator function, whose body runs after the call.

        """
        return decorated(function, self._attempts)

    def __enter__(self) -> Attempt:
        if self.retries:
            raise TypeError(
                "A with block can't be run again: decorate a function with "
                "@oom_guard(retries=…), or loop over oom_guard.attempts(retries=…)."
            )
        self._open.append(Attempt(self, 1).__enter__())
        return self._open[-1]

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        return self._open.pop().__exit__(kind, error, traceback)

    def _attempts(self) -> Iterator[Attempt]:
        for number in range(1, self.retries + 2):
            attempt = Attempt(self, number)
            yield attempt
            if attempt.failure is None:
                return
            # The block has been left, and its exception with it: no frame holds anything now.
            attempt.clean(f"Trying again, {number} of {self.retries}.")
            if self.on_retry is not None:
                self.on_retry(attempt)


class Attempt:
    """One attempt at a block; ``number`` counts from 1.

    ``failure`` says why it ran out of memory, ``let_go`` what was freed with the exception's
    frames and ``cleared`` what the cleanup after that freed; all are None while it runs, and if it
    succeeded or failed in another way.
    """

    def __init__(self, guard: oom_guard, number: int) -> None:
        self.number = number
        self.failure: OutOfMemory | None = None
        self.let_go: ClearedStep | None = None
        self.cleared: ClearedMemory | None = None
        self._before: Level | None = None
        self._guard = guard
        self._outer = 0

    @property
    def is_last(self) -> bool:
        """Whether its exception would go on."""
        return self.number > self._guard.retries

    def __enter__(self) -> Attempt:
        self._outer = id(sys.exc_info()[1])
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if error is None or not is_out_of_memory(error):
            return False
        self._explain(error)
        if not self.is_last:
            return True
        if not self._guard.keep_locals:
            drop_locals(error, self._outer)
        self.clean("The exception goes on.")
        return False

    def clean(self, then: str) -> None:
        """Clear memory and say what that freed, and what comes then; never raises."""
        try:
            if self._before is not None:
                self.let_go = difference(RELEASE_EXCEPTION, self._before, Level.now())
                self._before = None
            self.cleared = clear_memory(self._guard.force)
            first = f"{self.let_go}; " if self.let_go else ""
            self._log(f"{first}{self.cleared.summary} {then}")
        except Exception:
            pass  # the program's own exception must not be hidden by one of ours

    def _explain(self, error: BaseException) -> None:
        self.failure = explain(error)
        try:
            self._before = Level.now()
            if not hasattr(error, _EXPLAINED):
                self._log(str(self.failure))
                setattr(error, _EXPLAINED, True)
        except Exception:
            pass  # there may be no memory left for words

    def _log(self, text: str) -> None:
        log_text(text, self._guard.logger, logging.WARNING)


CAPACITY = "capacity"
FRAGMENTATION = "fragmentation"
UNKNOWN = "unknown"

_OWN_OF_DRIVER = 0.05
"""Less than this share of a device is the driver's own, or rounding."""
_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_TOO_LARGE = (
    "The request alone is larger than {}: look at the shapes that lead to it; "
    "no setting and no cleanup can help."
)


@dataclass(frozen=True)
class OutOfMemory:
    """One failure to allocate, in bytes; None where unknown. Holds figures only."""

    kind: str
    """The type of the exception."""
    place: str
    """``host``, ``cuda:0``, or ``device`` where the device is unknown."""
    verdict: str
    """``capacity``, ``fragmentation`` or ``unknown``."""
    requested: int | None = None
    allocated: int | None = None
    """Live on the device; on the host, what was resident."""
    holes: int | None = None
    """Reserved by torch between live blocks."""
    free: int | None = None
    """Free on the device for everybody; on the host, the headroom."""
    total: int | None = None
    """Of the device; on the host, the limit of the container or batch job if there is one."""
    others: int | None = None
    """Used on the device by other processes."""
    live: LiveTensors = field(default_factory=LiveTensors)
    advice: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [self.headline, *(f"  {line}" for line in self.live.lines(self.place))]
        lines += [f"  → {line}" for line in self.advice]
        return "\n".join(lines)

    @property
    def headline(self) -> str:
        """What happened in one sentence."""
        request = f"{human_bytes(self.requested)} asked for" if self.requested else "size unknown"
        amounts = [
            ("live" if self.place != "host" else "resident", self.allocated),
            ("in holes", self.holes),
            ("free" if self.place != "host" else "of headroom", self.free),
            ("used by other processes", self.others or None),
        ]
        parts = [f"{human_bytes(size)} {word}" for word, size in amounts if size is not None]
        of = f" of {human_bytes(self.total)}" if self.total else ""
        verdict = "" if self.verdict == UNKNOWN else f" by {self.verdict}"
        there = f"; {', '.join(parts)}{of}" if parts else ""
        return f"Out of memory on {self.place}{verdict}: {request}{there}."


def explain(error: BaseException) -> OutOfMemory:
    """Return what an exception and the statistics show; keeps neither it nor any tensor.

    Never raises: what can't be found out, perhaps for lack of memory, is left out.
    """
    kind = type(error).__name__
    try:
        message = read_message(error)
        if message.device == HOST:
            return _on_host(kind, message.requested, live_tensors())
        return _on_device(kind, message, live_tensors())
    except Exception:
        place = "device" if is_of_device(error) else HOST
        return OutOfMemory(kind, place, UNKNOWN)


def judged(requested: int | None, free: int | None, holes: int | None) -> str:
    """Return the verdict: fragmentation where the free bytes would do, were they in one piece."""
    if requested is None or free is None or holes is None or requested <= free:
        return UNKNOWN
    return FRAGMENTATION if requested <= free + holes else CAPACITY


def _on_device(kind: str, message: OutOfMemoryMessage, live: LiveTensors) -> OutOfMemory:
    levels = device_levels()
    _, _, number = message.device.partition(":")
    names = [name for name in levels if not number or name.endswith(f":{number}")]
    place = names[0] if len(names) == 1 else (message.device if number else "device")
    level = levels.get(place)
    allocated, holes = message.allocated, message.holes
    if allocated is None and level is not None:
        allocated, holes = level.allocated, level.reserved - level.allocated
    verdict = judged(message.requested, message.free, holes)
    others = _used_by_others(message)
    failure = OutOfMemory(
        kind, place, verdict, message.requested, allocated, holes, message.free, message.total,
        others, live,
    )  # fmt: skip
    return replace(failure, advice=tuple(_advice_for_device(failure, message.allowed)))


def _used_by_others(message: OutOfMemoryMessage) -> int | None:
    """As the message lists them; where it doesn't, as in containers, what nothing else explains."""
    if message.others is not None:
        return message.others
    if message.total is None or message.free is None or message.process is None:
        return None
    rest = message.total - message.free - message.process
    return rest if rest > message.total * _OWN_OF_DRIVER else 0


def _on_host(kind: str, requested: int | None, live: LiveTensors) -> OutOfMemory:
    host = memory_stats().host
    verdict = UNKNOWN
    if requested is not None and host.headroom is not None and requested > host.headroom:
        verdict = CAPACITY
    failure = OutOfMemory(
        kind, HOST, verdict, requested, host.rss, None, host.headroom, host.cgroup_limit, None, live
    )
    return replace(failure, advice=tuple(_advice_for_host(failure, host)))


def _advice_for_device(failure: OutOfMemory, allowed: int | None) -> list[str]:
    advice = []
    requested, free, allocated = failure.requested, failure.free, failure.allocated
    if requested and failure.total and requested > failure.total:
        return [_TOO_LARGE.format("the device")]
    if allowed is not None:
        advice.append(
            f"The process may use {human_bytes(allowed)}: a fraction was set "
            "(set_per_process_memory_fraction)."
        )
    if failure.verdict == FRAGMENTATION:
        advice.append(_against_holes())
        if allocated and failure.holes is not None and failure.holes < allocated // 10:
            advice.append(
                f"Little would be gained: {human_share(allocated / (allocated + failure.holes))} "
                "of what torch holds is live. Make the batch smaller, too."
            )
    elif failure.verdict == CAPACITY and allocated and requested and free is not None:
        lacking = requested - free - (failure.holes or 0)
        advice.append(
            f"At least {human_bytes(lacking)} are lacking, {human_share(lacking / allocated)} of "
            "what is live: a smaller batch with gradient accumulation, torch.utils.checkpoint, or "
            "autocast make activations smaller."
        )
    if failure.others and requested and failure.others >= requested - (free or 0):
        advice.append(
            f"Other processes use {human_bytes(failure.others)} of the device: "
            "`leakscope gpu` tells who they are."
        )
    return advice


def _against_holes() -> str:
    settings = [os.environ.get(name, "") for name in _SETTINGS]
    if any("expandable_segments:True" in setting for setting in settings):
        return (
            "There is enough memory, but in holes, though expandable_segments is on: make the "
            "sizes vary less (bucketed or padded batches)."
        )
    return (
        "There is enough memory, but in holes between live blocks: start the program with "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
    )


def _advice_for_host(failure: OutOfMemory, host: HostMemory) -> list[str]:
    advice = []
    requested = failure.requested
    if requested and host.headroom and requested > 4 * (host.headroom + host.rss):
        return [_TOO_LARGE.format("this machine's memory")]
    if host.cgroup_limit is not None and host.headroom is not None:
        advice.append(
            f"The container or job is limited to {human_bytes(host.cgroup_limit)}, of which "
            f"{human_bytes(host.headroom)} are left."
        )
    if host.malloc_free and requested and host.malloc_free >= requested:
        advice.append(
            f"The C library keeps {human_bytes(host.malloc_free)} free: "
            "clear_memory(force=True) may return it."
        )
    if failure.verdict == UNKNOWN and requested and host.headroom and requested <= host.headroom:
        advice.append(
            "The system has more than was asked for: look for a limit on address space "
            "(ulimit -v) or on overcommitted memory."
        )
    return advice


_MAY_PAUSE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_PAUSED = (
    (GeneratorType, "gi_frame"),
    (CoroutineType, "cr_frame"),
    (AsyncGeneratorType, "ag_frame"),
)
"""What has a frame that may be paused, and where: an attribute of anything else may run code."""


def drop_locals(error: BaseException, outer: int = 0) -> None:
    """Drop the locals of all frames that have ended, of an exception and those behind it.

    ``outer`` is the ``id`` of an exception to leave alone, with those behind it: one that was being
    handled already is the program's own business.
    """
    for frame in _frames(error, outer):
        if not _is_paused(frame):
            try:
                frame.clear()
            except RuntimeError:
                pass  # it still runs


def _frames(error: BaseException, outer: int) -> Iterator[FrameType]:
    pending: list[BaseException | None] = [error]
    seen = {outer}
    while pending:
        behind = pending.pop()
        if behind is None or id(behind) in seen:
            continue
        seen.add(id(behind))
        traceback = behind.__traceback__
        while traceback is not None:
            yield traceback.tb_frame
            traceback = traceback.tb_next
        pending += [behind.__cause__, behind.__context__]


def _is_paused(frame: FrameType) -> bool:
    """Whether a generator or coroutine still has the frame: clearing it would end them."""
    if not frame.f_code.co_flags & _MAY_PAUSE:
        return False
    return any(
        type(holder) is kind and getattr(holder, name) is frame
        for holder in gc.get_referrers(frame)
        for kind, name in _PAUSED
    )
