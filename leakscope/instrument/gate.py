"""The one way into a session: an event at a time, of the training thread, faults contained."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from threading import get_ident
from time import perf_counter
from typing import Any

from leakscope.instrument.costs import Costs
from leakscope.instrument.guard import Guard
from leakscope.instrument.tracebacks import leave_event

PART = "boundaries"
LATE_KEPT = 64
SAMPLE_EVERY = 256
MOST_OF_A_SAMPLE = 50e-6
"""An event took longer only because another thread or process had the processor meanwhile."""


class Gate:
    """Lets events in or turns them away; never waits.

    An event that comes while another is heard (a census may make the collector run a callback), or
    from another thread, is turned away and counted. The first thread that is heard is the training
    thread, unless another one takes over, or follows it when it has ended.
    """

    def __init__(
        self, guard: Guard, costs: Costs, clock: Callable[[], float] = perf_counter
    ) -> None:
        self.is_open = False
        self.is_led = False
        """Whether a framework says where training stands, so that nothing is to be found."""
        self.turned_away = 0
        self.thread = 0
        self._holder: weakref.ref[threading.Thread] | None = None
        """The thread that is heard, if it may end before the program does."""
        self._guard = guard
        self._costs = costs
        self._clock = clock
        self._busy = False
        self._is_muted = False
        self._heard = 0
        self._interrupt: BaseException | None = None
        self._late: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque(maxlen=LATE_KEPT)

    def open(self) -> None:
        """Begin to hear."""
        self.is_open = True

    def shut(self) -> None:
        """Hear nothing any more, in this process or this child of it."""
        self.is_open = False
        self._late.clear()

    def hear(self, event: Callable[..., Any], *args: Any) -> Any:
        """Pass an event on and return what it returns; None if it is turned away or fails."""
        if self._busy or not self.is_open or get_ident() != self.thread:
            left = self._holder is not None and self.is_left()
            if self._busy or not self.is_open or (self.thread and not left):
                self.turned_away += self.is_open
                return None
            self._hold()
        self._busy = True
        self._heard += 1
        try:
            try:
                if not self._heard % SAMPLE_EVERY:
                    return self._timed(event, args)
                return event(*args)
            except Exception as error:
                if self._guard.passes(error):
                    raise
                self._fault(error)
            finally:
                self._busy = False
                if self._late:
                    self._catch_up()
                if self._interrupt is not None:
                    self._let_pass()
        except BaseException as interrupt:
            leave_event(interrupt)
            raise

    def hear_found(self, event: Callable[..., Any], *args: Any) -> Any:
        """Pass on an event that was found by itself, unless somebody leads."""
        return None if self.is_led else self.hear(event, *args)

    def postpone(self, interrupt: BaseException) -> bool:
        """Have an interrupt leave when the event that it broke into is dealt with.

        Else Ctrl-C during a census would leave a phase half opened or half closed for good. False
        is returned if no event is heard: then the interrupt is to leave at once.
        """
        if not self._busy:
            return False
        self._interrupt = interrupt
        return True

    def is_training_thread(self) -> bool:
        """Return whether what the calling thread does would be found and heard."""
        is_free = self.is_open and not self.is_led and not self._busy
        return is_free and self.thread in (0, get_ident())

    def is_idle_here(self) -> bool:
        """Return whether no event is heard just now, and none could be of another thread."""
        return not self._busy and self.thread in (0, get_ident())

    def is_left(self) -> bool:
        """Return whether the thread that is heard has ended."""
        if self._holder is None:
            return False
        holder = self._holder()
        return holder is None or not threading.Thread.is_alive(holder)

    def take_over(self) -> None:
        """Hear the calling thread from now on."""
        if not self._busy:
            self._hold()

    def hear_late(self, event: Callable[..., Any], *args: Any) -> None:
        """Pass on an event that must not be lost: after the present one if need be."""
        if self._busy and get_ident() == self.thread:
            self._late.append((event, args))
        else:
            self.hear(event, *args)

    def seize(self, event: Callable[..., Any], *args: Any) -> bool:
        """Pass on an event of any thread; return False, undone, if another is just heard."""
        free = not self._busy or (self._is_muted and get_ident() == self.thread)
        if not free or not self.is_open:
            return False
        muted, self._is_muted, self._busy = self._is_muted, False, True
        try:
            event(*args)
        finally:
            self._busy = self._is_muted = muted
            if self._late and get_ident() == self.thread:
                self._catch_up()
            if self._interrupt is not None:
                self._let_pass()
        return True

    def muted(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return what ``function`` returns, hearing no event meanwhile."""
        if self._busy or not self.is_open or get_ident() != self.thread:
            return function(*args)
        self._busy = self._is_muted = True
        try:
            return function(*args)
        finally:
            self._busy = self._is_muted = False

    def _hold(self) -> None:
        """Hear the calling thread. The main thread stays until the end."""
        self.thread = get_ident()
        holder = next((t for t in threading.enumerate() if t.ident == self.thread), None)
        self._holder = None
        if holder is not None and holder is not threading.main_thread():
            self._holder = weakref.ref(holder)

    def _timed(self, event: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Charge the time that the other events took, judging by this one."""
        spent = self._costs.total
        began = self._clock()
        try:
            return event(*args)
        finally:
            own = self._clock() - began - (self._costs.total - spent)
            self._costs.spend("boundary", min(max(0.0, own), MOST_OF_A_SAMPLE) * SAMPLE_EVERY)

    def _let_pass(self) -> None:
        interrupt, self._interrupt = self._interrupt, None
        assert interrupt is not None
        try:
            raise interrupt
        finally:
            del interrupt  # its traceback holds this frame

    def _catch_up(self) -> None:
        for _ in range(len(self._late)):
            event, args = self._late.popleft()
            self.hear(event, *args)

    def _fault(self, error: Exception) -> None:
        self._guard.fault(PART, error)
        if not self._guard.allows(PART):
            self.shut()
