"""Looks that the user requested: a census on a signal, and the popular cleaning calls tried and
measured.

A signal's handler runs between two instructions of the main thread, which may be anywhere: in a
backward pass, in a library's lock, in the middle of our own recording. So it only takes note, and
the census is taken at the next boundary, where training stands between two pieces of work. Where
none has come for a while, as in a step of minutes, it is taken at once, if nothing of ours, of
autograd's or of the compiler's is under way. Otherwise it waits on; a later signal looks again.

Cleaning calls are tried where a phase has just ended, so never inside a step: after the first ends
of each phase, and then after ever longer pauses. The first few are tried at once, since the user
requested them; those after them wait until the budget pays. A collection takes with it the garbage
that would have waited, so a run with trials is not the run without them.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from leakscope.capture.budget import Costs
from leakscope.capture.dispatch import EventDispatcher
from leakscope.capture.unobservable import other_threads_compute, unobservable_state
from leakscope.heap.pausing import is_in_backward
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.errors import ours
from leakscope.model.record import CleanupRecord, CleanupStep, SnapshotSignalRecord

if TYPE_CHECKING:
    from leakscope.cleanup.clearing import ClearedMemory, ClearedStep


PATIENCE_SECONDS = 1.0
"""So long the last boundary must lie back for a census between boundaries."""

_listening: weakref.ref[Requests] | None = None
"""Weak, for the interpreter keeps a handler for as long as the process lives."""


class Requests:
    """What the user has requested by signal and not got yet."""

    def __init__(
        self,
        gate: EventDispatcher,
        look: Callable[..., object],
        write: Callable[[SnapshotSignalRecord], object],
        idle: Callable[[], float],
    ) -> None:
        """Prepare to listen.

        ``look`` takes a census, ``at_once`` where training is in the middle of something; ``write``
        writes down the signal; ``idle`` returns the seconds since the last boundary.
        """
        self.waiting = False
        self._gate = gate
        self._look = look
        self._write = write
        self._idle = idle
        self._pid = os.getpid()
        self._number = 0
        self._is_ours = False
        self._is_looking = False

    def listen(self, name: str) -> None:
        """Take a census on a signal, unless the program handles that signal itself."""
        global _listening
        number = int(getattr(signal, f"SIG{name}", 0))
        why_not = _why_not(number, name)
        if why_not:
            self._write(SnapshotSignalRecord(why_not=why_not))
            return
        _listening = weakref.ref(self)
        signal.signal(number, _on_signal)
        # Or what the signal breaks into in C, a library's read for example, would fail.
        signal.siginterrupt(number, False)
        self._number, self._is_ours = number, True
        self._write(SnapshotSignalRecord(signal=number))

    def look_after(self) -> None:
        """Notice, and write down, when the program has put a handler of its own in our place."""
        if not self._number:
            return
        is_ours = signal.getsignal(self._number) is _on_signal
        if is_ours is not self._is_ours:
            self._is_ours = is_ours
            why_not = "the program has since taken that signal for itself"
            record = SnapshotSignalRecord(signal=self._number) if is_ours else None
            self._write(record or SnapshotSignalRecord(why_not=why_not))

    def mute(self) -> None:
        """Take note of nothing any more; the handler stays."""
        global _listening
        self.waiting = False
        if _listening is not None and _listening() is self:
            _listening = None

    def let_go(self, *, for_good: bool) -> None:
        """Give the signal back; ``for_good`` it is ignored: one on its way must not end the
        process.
        """
        number, self._number = self._number, 0
        is_main = threading.current_thread() is threading.main_thread()
        if number and is_main and signal.getsignal(number) is _on_signal:
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
                self._gate.seize(partial(self._take, at_once=True))
        except ours(Exception):
            return

    def _is_safe(self) -> bool:
        trains_here = self._gate.thread in (0, threading.get_ident())
        return trains_here and unobservable_state() is None and not other_threads_compute()

    def _take(self, *, at_once: bool) -> None:
        self.waiting = False
        self._is_looking = True
        try:
            self._look(at_once=at_once)
        finally:
            self._is_looking = False


def _on_signal(number: int, frame: FrameType | None) -> None:
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
    if signal.getsignal(number) not in (signal.SIG_DFL, _on_signal):  # ours in a forked child
        return f"the program had a handler of its own for SIG{name} when recording began"
    return ""


ACTIVITY = "cleanup"
AT_ONCE = 6
AT_ONCE_SECONDS = 3.0
"""So many trials are made before the budget has paid for them, if they take no longer together;
the first however long it takes."""
FIRST_ENDS = 3
"""Ends of a phase after which the next trial is twice as far away."""
KINDS = frozenset({BoundaryKind.PHASE_END, BoundaryKind.EPOCH_END, BoundaryKind.MARK})
_KEYS_KEPT = 64
_RECENT = 0.5

Clear = Callable[[], "ClearedMemory"]
Read = Callable[[], dict[str, int]]


class Trials:
    """Decides where the calls are tried, and returns what came of it."""

    def __init__(
        self,
        costs: Costs,
        *,
        budget: float,
        clock: Callable[[], float],
        clear: Clear | None = None,
        read: Read | None = None,
    ) -> None:
        self._costs = costs
        self._budget = budget
        self._clock = clock
        self._clear = clear or _clear
        self._read = read or _read
        self._seen: dict[tuple[BoundaryKind, str, str], int] = {}
        self._next: dict[tuple[BoundaryKind, str, str], int] = {}
        self._made = 0
        self._expected = 0.0

    def at(self, boundary: Boundary) -> CleanupRecord | None:
        """Try the calls if this boundary is one of the chosen; return what each changed."""
        if boundary.kind not in KINDS or not self._has_turn(boundary):
            return None
        spent = self._costs.seconds.get(ACTIVITY, 0.0)
        is_short = not spent or spent + self._expected <= AT_ONCE_SECONDS
        is_paid = self._costs.total + self._expected <= self._budget * boundary.time_s
        if not (is_paid or (is_short and self._made < AT_ONCE)):
            return None
        began = self._clock()
        before = self._read()
        cleared = self._clear()
        record = CleanupRecord(
            boundary=boundary.index,
            steps=[_step(step) for step in cleared.steps],
            before=before,
            after=self._read(),
            remarks=list(cleared.remarks),
        )
        self._learn(boundary, self._clock() - began)
        return record

    def _has_turn(self, boundary: Boundary) -> bool:
        key = (boundary.kind, boundary.phase, boundary.label)
        if key not in self._seen and len(self._seen) >= _KEYS_KEPT:
            return False
        seen = self._seen[key] = self._seen.get(key, 0) + 1
        return seen >= self._next.get(key, 1)

    def _learn(self, boundary: Boundary, seconds: float) -> None:
        key = (boundary.kind, boundary.phase, boundary.label)
        seen = self._seen[key]
        self._next[key] = seen + 1 if seen < FIRST_ENDS else 2 * seen
        self._costs.spend(ACTIVITY, seconds)
        known = self._expected or seconds
        self._expected = known + _RECENT * (seconds - known)
        self._made += 1


def _step(step: ClearedStep) -> CleanupStep:
    return CleanupStep(
        call=step.name,
        seconds=step.seconds,
        objects=step.objects,
        host_freed=step.host_freed,
        host_returned=step.host_returned,
        device_freed=step.device_freed,
        device_returned=step.device_returned,
        pinned_returned=step.pinned_returned,
    )


def _clear() -> ClearedMemory:
    from leakscope.cleanup.clearing import clear_memory

    return clear_memory(force=True)


def _read() -> dict[str, int]:
    from leakscope.capture.gauges import default_probes

    gauges: dict[str, int] = {}
    for probe in default_probes():
        if probe.name in _SOURCES:
            gauges |= probe.read()
    return {name: size for name, size in gauges.items() if name.rpartition(".")[2] in _GAUGES}


_SOURCES = ("process", "mappings", "malloc", "cuda", "accelerator")
_GAUGES = (
    gauge.RSS,
    gauge.PSS,
    gauge.MALLOC_FREE,
    gauge.DEVICE_ALLOCATED,
    gauge.DEVICE_RESERVED,
)
