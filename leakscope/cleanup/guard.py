"""When memory runs out: explain, clean up, and try again or let the exception go on.

An exception keeps the frames that it passed through, and they keep their locals: tensors of the
failed step. So nothing is cleaned while the exception holds them. Before another attempt it has
been let go of altogether; where it goes on, its traceback stays as it was, but the locals of the
frames that have ended are dropped, unless ``keep_locals``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import ParamSpec, TypeVar

from leakscope.cleanup.clearing import (
    LET_GO,
    ClearedMemory,
    ClearedStep,
    Level,
    clear_memory,
    difference,
)
from leakscope.cleanup.decorating import decorated
from leakscope.cleanup.exhaustion import OutOfMemory, explain, is_out_of_memory
from leakscope.cleanup.letting_go import drop_locals
from leakscope.cleanup.speaking import say

P = ParamSpec("P")
T = TypeVar("T")

_TOLD = "_leakscope_told"
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
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
        self._held: Level | None = None
        self._guard = guard
        self._outer = 0

    @property
    def is_last(self) -> bool:
        """Whether its exception would go on."""
        return self.number > self._guard.retries

    def __enter__(self) -> Attempt:
        self._outer = id(sys.exc_info()[1])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        del traceback
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
            if self._held is not None:
                self.let_go, self._held = difference(LET_GO, self._held, Level.now()), None
            self.cleared = clear_memory(self._guard.force)
            first = f"{self.let_go}; " if self.let_go else ""
            self._say(f"{first}{self.cleared.told} {then}")
        except Exception:
            pass  # the program's own exception must not be hidden by one of ours

    def _explain(self, error: BaseException) -> None:
        self.failure = explain(error)
        try:
            self._held = Level.now()
            if not hasattr(error, _TOLD):
                self._say(str(self.failure))
                setattr(error, _TOLD, True)
        except Exception:
            pass  # there may be no memory left for words

    def _say(self, text: str) -> None:
        say(text, self._guard.logger, logging.WARNING)
