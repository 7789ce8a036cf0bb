"""A census on request: a signal asks for it, where the user has allowed that beforehand.

A signal's handler runs between two instructions of the main thread, which may be anywhere: in a
backward pass, in a library's lock, in the middle of our own recording. So it only takes note, and
the census is taken at the next boundary, where training stands between two pieces of work. Where
none has come for a while, as in a step of minutes, it is taken at once, if nothing of ours, of
autograd's or of the compiler's is under way. Otherwise it waits on; a later signal looks again.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from leakscope.instrument.autograd import is_in_backward, other_threads_compute
from leakscope.instrument.gate import Gate
from leakscope.instrument.inside import inside
from leakscope.model.interrupts import ours
from leakscope.model.record import SnapshotSignalRecord

PATIENCE_SECONDS = 1.0
"""So long the last boundary must lie back for a census between boundaries."""

_listening: weakref.ref[Requests] | None = None
"""Weak, for the interpreter keeps a handler for as long as the process lives."""


class Look(Protocol):
    """Takes a census and writes it down."""

    def __call__(self, *, at_once: bool) -> None:
        """Take it now; ``at_once`` where training is in the middle of something."""


class Requests:
    """What the user has asked for by signal and not got yet."""

    def __init__(
        self,
        gate: Gate,
        look: Look,
        tell: Callable[[SnapshotSignalRecord], object],
        idle: Callable[[], float],
    ) -> None:
        """Prepare to listen.

        Args:
            gate: the way into the session, closed while something is recorded.
            look: takes the census.
            tell: writes down which signal is listened to.
            idle: seconds since the last boundary.

        """
        self.waiting = False
        """Whether a census is wanted at the next boundary."""
        self._gate = gate
        self._look = look
        self._tell = tell
        self._idle = idle
        self._pid = os.getpid()
        self._number = 0
        self._is_ours = False
        self._is_looking = False

    def listen(self, name: str) -> None:
        """Have a signal ask for censuses, unless the program has its own use for it."""
        global _listening
        number = int(getattr(signal, f"SIG{name}", 0))
        why_not = _why_not(number, name)
        if why_not:
            self._tell(SnapshotSignalRecord(why_not=why_not))
            return
        _listening = weakref.ref(self)
        signal.signal(number, _heard)
        # Or what the signal breaks into in C, a library's read for example, would fail.
        signal.siginterrupt(number, False)
        self._number, self._is_ours = number, True
        self._tell(SnapshotSignalRecord(signal=number))

    def look_after(self) -> None:
        """Notice, and write down, when the program has put a handler of its own in our place."""
        if not self._number:
            return
        is_ours = signal.getsignal(self._number) is _heard
        if is_ours is not self._is_ours:
            self._is_ours = is_ours
            why_not = "the program has since taken that signal for itself"
            told = SnapshotSignalRecord(signal=self._number) if is_ours else None
            self._tell(told or SnapshotSignalRecord(why_not=why_not))

    def mute(self) -> None:
        """Take note of nothing any more; the handler stays."""
        global _listening
        self.waiting = False
        if _listening is not None and _listening() is self:
            _listening = None

    def let_go(self, *, for_good: bool) -> None:
        """Give the signal back; ``for_good`` when the process is about to end.

        A request may still be on its way then and must not be the death of it.
        """
        number, self._number = self._number, 0
        is_main = threading.current_thread() is threading.main_thread()
        if number and is_main and signal.getsignal(number) is _heard:
            signal.signal(number, signal.SIG_IGN if for_good else signal.SIG_DFL)

    def serve(self) -> None:
        """Take the census that is wanted, at a boundary."""
        if not is_in_backward():
            self._take(at_once=False)

    def ask(self) -> None:
        """Take note that a census is wanted; take it now if no boundary came for a while."""
        if os.getpid() != self._pid or self._is_looking:
            return  # a forked child; or the census under way answers
        self.waiting = True
        try:
            if self._idle() >= PATIENCE_SECONDS and self._is_safe():
                self._gate.seize(self._at_once)
        except ours(Exception):
            return

    def _is_safe(self) -> bool:
        """Return whether nothing is under way that a census must not see half done."""
        trains_here = self._gate.thread in (0, threading.get_ident())
        return trains_here and inside() is None and not other_threads_compute()

    def _at_once(self) -> None:
        self._take(at_once=True)

    def _take(self, *, at_once: bool) -> None:
        self.waiting = False
        self._is_looking = True
        try:
            self._look(at_once=at_once)
        finally:
            self._is_looking = False


def _heard(number: int, frame: FrameType | None) -> None:
    """Handle the signal: the handler itself, in whatever process it was copied into."""
    requests = None if _listening is None else _listening()
    if requests is not None:
        requests.ask()


def _why_not(number: int, name: str) -> str:
    if not number:
        return f"there is no SIG{name} on this platform"
    if threading.current_thread() is not threading.main_thread():
        return "recording began in another thread than the main one, which alone gets signals"
    if signal.getsignal(number) is signal.SIG_IGN:
        return f"SIG{name} was ignored already when recording began"
    if signal.getsignal(number) not in (signal.SIG_DFL, _heard):  # ours in a forked child
        return f"the program had a handler of its own for SIG{name} when recording began"
    return ""
