"""The one way into a session: an event at a time, of the training thread, with our faults and our
frames kept away from the program.

Interrupts leave without our frames. A bare ``raise`` adds no entry for the frame that it stands in.
So whoever takes that frame's entry off an exception, and raises it again, leaves no trace.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from threading import get_ident
from time import perf_counter
from types import FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

from leakscope.capture import policy
from leakscope.capture.budget import Costs
from leakscope.model.errors import OUR_FILES, is_interrupt, since_the_handler

PART = "boundaries"
LATE_KEPT = 64
SAMPLE_EVERY = 256
MOST_OF_A_SAMPLE = 50e-6
"""An event took longer only because another thread or process had the processor meanwhile."""


class EventDispatcher:
    """Lets events in or turns them away; never waits.

    An event that comes while another is handled (a census may make the collector run a callback),
    or from another thread, is turned away and counted. The first thread followed is the training
    thread, unless another one takes over, or follows it when it has ended.
    """

    def __init__(
        self, guard: Guard, costs: Costs, clock: Callable[[], float] = perf_counter
    ) -> None:
        self.is_open = False
        self.is_phase_control_claimed = False
        """Whether a framework says where training stands, so that nothing is to be found."""
        self.turned_away = 0
        self.thread = 0
        self._holder: weakref.ref[threading.Thread] | None = None
        """The thread that is followed, if it may end before the program does."""
        self._guard = guard
        self._costs = costs
        self._clock = clock
        self._busy = False
        self._is_muted = False
        self._dispatched = 0
        self._interrupt: BaseException | None = None
        self._late: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque(maxlen=LATE_KEPT)
        self._turn = threading.Lock()
        self._clock_thread = 0
        self._is_clock_at_work = False

    def open(self) -> None:
        """Begin to follow the program."""
        self.is_open = True

    def shut(self) -> None:
        """Ignore all further events, in this process or this child of it."""
        self.is_open = False
        self._late.clear()

    def dispatch(self, event: Callable[..., Any], *args: Any) -> Any:
        """Pass an event on and return what it returns; None if it is turned away or fails."""
        me = get_ident()
        if me != self.thread or self._busy or not self.is_open:
            if self._is_clock_at_work:
                self._wait_for_turn(me)
            left = self._holder is not None and self.is_left()
            if self._busy or not self.is_open or (self.thread not in (0, me) and not left):
                self.turned_away += self.is_open
                return None
            if me != self.thread:
                self._hold()
        self._busy = True
        self._dispatched += 1
        try:
            try:
                if not self._dispatched % SAMPLE_EVERY:
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
                    self._raise_interrupt()
        except BaseException as interrupt:
            # What a handler in Python raised keeps the frames from the handler on. An `Exception`
            # keeps everything: that is how it is distinguished from a fault of ours.
            if not isinstance(interrupt, Exception):
                _cut(interrupt, since_the_handler(interrupt.__traceback__))
            raise

    def dispatch_found(self, event: Callable[..., Any], *args: Any) -> Any:
        """Pass on an event found by our hooks, unless a framework or the user reports events."""
        return None if self.is_phase_control_claimed else self.dispatch(event, *args)

    def postpone(self, interrupt: BaseException) -> bool:
        """Raise an interrupt again once the event that it broke into is handled.

        Return False if none is being handled: then it is to leave at once.
        """
        if not self._busy:
            return False
        self._interrupt = interrupt
        return True

    def is_training_thread(self) -> bool:
        """Return whether what the calling thread does would be found and handled."""
        is_free = self.is_open and not self.is_phase_control_claimed and not self._busy
        return is_free and self.thread in (0, get_ident())

    def is_idle_here(self) -> bool:
        """Return whether no event is handled just now, and none could be of another thread."""
        return not self._busy and self.thread in (0, get_ident())

    def is_left(self) -> bool:
        """Return whether the thread that is followed has ended."""
        if self._holder is None:
            return False
        holder = self._holder()
        return holder is None or not threading.Thread.is_alive(holder)

    def take_over(self) -> None:
        """Take events of the calling thread from now on."""
        if not self._busy:
            self._hold()

    def dispatch_deferred(self, event: Callable[..., Any], *args: Any) -> None:
        """Pass on an event that must not be lost: after the present one if need be."""
        if self._busy and get_ident() == self.thread:
            self._late.append((event, args))
        else:
            self.dispatch(event, *args)

    def seize(self, event: Callable[..., Any], *args: Any) -> bool:
        """Pass on an event of any thread; return False, undone, if another is being handled."""
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
                self._raise_interrupt()
        return True

    def take_turn(self, event: Callable[..., Any], *args: Any) -> bool:
        """Pass on an event of a thread of ours, for whose end the training thread waits.

        Return False, undone, if another event is being handled.
        """
        with self._turn:
            self._clock_thread, self._is_clock_at_work = get_ident(), True
            try:
                return self.seize(event, *args)
            finally:
                self._is_clock_at_work = False

    def _wait_for_turn(self, me: int) -> None:
        must_wait = me != self._clock_thread and self.thread in (0, me)
        if must_wait and self._turn.acquire(timeout=policy.TURN_SECONDS):
            self._turn.release()

    def muted(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return what ``function`` returns; events are ignored meanwhile."""
        if self._busy or not self.is_open or get_ident() != self.thread:
            return function(*args)
        self._busy = self._is_muted = True
        try:
            return function(*args)
        finally:
            self._busy = self._is_muted = False

    def _hold(self) -> None:
        """Take events of the calling thread. The main thread stays until the end."""
        self.thread = get_ident()
        holder = next((t for t in threading.enumerate() if t.ident == self.thread), None)
        self._holder = None
        if holder is not None and holder is not threading.main_thread():
            self._holder = weakref.ref(holder)

    def _timed(self, event: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        spent = self._costs.total
        began = self._clock()
        try:
            return event(*args)
        finally:
            own = self._clock() - began - (self._costs.total - spent)
            self._costs.spend("boundary", min(max(0.0, own), MOST_OF_A_SAMPLE) * SAMPLE_EVERY)

    def _raise_interrupt(self) -> None:
        interrupt, self._interrupt = self._interrupt, None
        assert interrupt is not None
        try:
            raise interrupt
        finally:
            del interrupt  # its traceback holds this frame

    def _catch_up(self) -> None:
        for _ in range(len(self._late)):
            if not self._late:  # one that was passed on has caught up with the rest
                return
            event, args = self._late.popleft()
            self.dispatch(event, *args)

    def _fault(self, error: Exception) -> None:
        if isinstance(error, MemoryError):
            self._guard.shortage(PART, error)
            return
        self._guard.fault(PART, error)
        if not self._guard.allows(PART):
            self.shut()


P = ParamSpec("P")
T = TypeVar("T")

FAULTS_ALLOWED = 3
"""After so many faults a part is switched off for the rest of the run."""

FaultSink = Callable[[str, str, bool], None]


class Guard:
    """Runs parts of ours so that none of their exceptions reach the user's program.

    ``Exception`` is contained (``MemoryError`` too); ``KeyboardInterrupt``, ``SystemExit`` and what
    a signal's handler of the program's raises pass. With ``LEAKSCOPE_STRICT=1`` everything passes,
    for our own tests.
    """

    def __init__(self, report: FaultSink | None = None) -> None:
        self.report = report
        self.strict = os.environ.get("LEAKSCOPE_STRICT") == "1"
        self._faults: dict[str, int] = {}
        self._shortages: dict[str, int] = {}

    def allows(self, part: str) -> bool:
        """Return whether a part is still switched on."""
        return self._faults.get(part, 0) < FAULTS_ALLOWED

    def call(
        self, part: str, default: T, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return what ``function`` returns, or ``default`` if it fails or is switched off."""
        if not self.allows(part):
            return default
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if self.passes(error):
                raise
            if isinstance(error, MemoryError):
                self.shortage(part, error)
            else:
                self.fault(part, error)
            return default

    def passes(self, error: Exception) -> bool:
        """Return whether to raise it again: what is not ours, in strict mode anything.

        Whoever asks raises without naming it: a frame that names an exception which left it is
        held by that exception's traceback, and the two live on with all that the program's own
        frames keep until the collector runs.
        """
        return self.strict or is_interrupt(error)

    def fault(self, part: str, error: Exception) -> None:
        """Count a fault and report it."""
        count = self._faults[part] = self._faults.get(part, 0) + 1
        self._report(part, error, is_off=count >= FAULTS_ALLOWED)

    def shortage(self, part: str, error: MemoryError) -> None:
        """Report that a part found no memory, a few times; it is never switched off for that."""
        count = self._shortages[part] = self._shortages.get(part, 0) + 1
        if count <= FAULTS_ALLOWED:
            self._report(part, error, is_off=False)

    def _report(self, part: str, error: Exception, *, is_off: bool) -> None:
        if self.report is None:
            return
        try:
            self.report(part, describe(error), is_off)
        except MemoryError:
            return
        except Exception:
            self.report = None


def describe(error: BaseException) -> str:
    """Return type, message and innermost line of an exception, without holding its frames."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    traceback = error.__traceback__
    if traceback is None:
        return text[:500]
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    return f"{text[:500]} ({os.path.basename(code.co_filename)}:{traceback.tb_lineno})"  # noqa: PTH119


def leave_hook(error: BaseException) -> None:
    """Remove the frames of a hook of ours, and of the event that it called, from an interrupt."""
    if is_interrupt(error):
        traceback = error.__traceback__
        _cut(error, since_the_handler(traceback) or _without_leading(traceback))


def without_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of our code, wherever they stand."""
    traceback = first = _without_leading(traceback)
    while traceback is not None:
        traceback.tb_next = _without_leading(traceback.tb_next)
        traceback = traceback.tb_next
    return first


def _without_leading(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(OUR_FILES):
        traceback = traceback.tb_next
    return traceback


def _cut(interrupt: BaseException, rest: TracebackType | None) -> None:
    """Reduce an interrupt's traceback to ``rest``, and drop exceptions of ours from its context."""
    left = _frames_before(rest, interrupt.__traceback__)
    upon = interrupt.__context__
    while upon is not None and upon.__traceback__ is not None:
        if upon.__traceback__.tb_frame not in left:  # it was caught elsewhere
            break
        upon = upon.__context__
    interrupt.__context__ = upon
    interrupt.__traceback__ = rest


def _frames_before(rest: TracebackType | None, traceback: TracebackType | None) -> list[FrameType]:
    frames = []
    while traceback is not None and traceback is not rest:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return frames
