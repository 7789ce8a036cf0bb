"""Boundaries by time, for programs in which no other boundary comes: servers, engines, pipelines.

A thread of ours wakes now and then. Where the program has reached no boundary for a while, it
reaches one itself: gauges are read and, within the budget, a census is taken, while the program's
threads wait for the interpreter's lock. As long as a training loop, requests or passes of a model
make boundaries, the thread sleeps on.

The thread is not one of :mod:`threading`, so that the program doesn't find it in
``threading.enumerate()``. It keeps nothing of the session alive. On CPython 3.12 and newer it is
stopped around ``os.fork``, which warns where a process has several threads.
"""

from __future__ import annotations

import _thread
import os
import weakref
from collections.abc import Callable

from leakscope.capture import policy
from leakscope.capture.children import WARNS_OF_FORKS, call_after_fork, is_importing
from leakscope.capture.unobservable import changes_graphs
from leakscope.heap.pausing import frames_of_other_threads, is_collecting, keeping_lock


class BoundaryClock:
    """Calls ``reach`` from a thread of its own, as long as the program reaches no boundary.

    That is, when ``idle()`` seconds since one are more than ``patience``, by default the policy's;
    ``now()`` are seconds since the recording began. ``reach`` is called with no lock of ours held.
    """

    def __init__(
        self,
        reach: Callable[[], object],
        idle: Callable[[], float],
        now: Callable[[], float],
        patience: float | None = None,
    ) -> None:
        self._patience = policy.TIME_IDLE_SECONDS if patience is None else patience
        self._reach, self._idle, self._now = reach, idle, now
        self._main = _thread.get_ident()
        self._stop: _Signal | None = None
        self._next = 0.0
        self._waited_since = 0.0
        self.on_wake: list[Callable[[], object]] = []

    def start(self) -> None:
        """Begin to watch the time, in this thread's process."""
        self._stop = _Signal()
        _clocks.add(self)
        _run_thread(weakref.ref(self), self._stop)

    def stop(self) -> None:
        """Reach no more boundaries; one that is being reached is over when this returns."""
        stop, self._stop = self._stop, None
        _clocks.discard(self)
        if stop is not None:
            stop.send()

    def forget(self) -> None:
        """Deactivate the copy in a forked child, which doesn't have the thread."""
        self._stop = None
        _clocks.discard(self)
        _threads.clear()

    def hasten(self, until: float) -> None:
        """Set the latest time of the next boundary, in seconds since the recording began."""
        self._next = min(self._next, until)

    def tick(self) -> None:
        """Reach a boundary if one is due and nothing is under way that must not be seen."""
        now = self._now()
        if now < self._next or self._idle() < self._patience:
            self._waited_since = now
            return
        imports, waits = keeping_lock(self._look_at_threads)
        if now < policy.TIME_SETUP_SECONDS and imports:
            # A program that imports is being set up: what it holds is neither work nor growth.
            self._waited_since, self._next = now, now + policy.TIME_SPACING_SECONDS
            return
        if waits and now - self._waited_since < policy.TIME_PATIENCE_SECONDS:
            return
        self._waited_since = now
        self._next = now + max(policy.TIME_SPACING_SECONDS, policy.TIME_SPACING_SHARE * now)
        self._reach()

    def _look_at_threads(self) -> tuple[bool, bool]:
        frames = frames_of_other_threads()
        waits = is_collecting() or changes_graphs(frames)
        return is_importing(frames.get(self._main)), waits


class CostClock:
    """The seconds that measuring takes from the program.

    In the program's own threads all that passes. In the thread of a :class:`BoundaryClock` what the
    processor works: while that waits for the interpreter's lock, the program has it.
    """

    def __init__(self, clock: Callable[[], float], work_clock: Callable[[], float]) -> None:
        self._clock, self._work_clock = clock, work_clock

    def __call__(self) -> float:
        """Return seconds since some moment, to be compared within one thread."""
        return self._work_clock() if _thread.get_ident() in _threads else self._clock()


class _Signal:
    def __init__(self) -> None:
        self._sent, self._ended = _thread.allocate_lock(), _thread.allocate_lock()
        self._sent.acquire()
        self._ended.acquire()
        self.thread = 0

    def wait(self, seconds: float) -> bool:
        return self._sent.acquire(timeout=seconds)

    def end(self) -> None:
        self._ended.release()

    def send(self) -> None:
        """End the thread; return when it has ended, or after :data:`policy.TIME_JOIN_SECONDS`."""
        self._sent.release()
        if self.thread == _thread.get_ident():
            return
        self._ended.acquire(timeout=policy.TIME_JOIN_SECONDS)


def _run_thread(clock: weakref.ref[BoundaryClock], stop: _Signal) -> None:
    pid = os.getpid()

    def run() -> None:
        stop.thread = _thread.get_ident()
        _threads.add(stop.thread)
        try:
            while not stop.wait(policy.TIME_WAKES_SECONDS) and os.getpid() == pid:
                alive = clock()
                if alive is None:
                    return
                alive.tick()
                for call in alive.on_wake:
                    call()
                del alive
        except BaseException:  # the interpreter is shutting down, or what reads the clock is gone
            return
        finally:
            _threads.discard(stop.thread)
            stop.end()

    _thread.start_new_thread(run, ())


_threads: set[int] = set()
"""Those that clocks run in."""
_clocks: weakref.WeakSet[BoundaryClock] = weakref.WeakSet()
_paused: list[weakref.ref[BoundaryClock]] = []


def _pause_for_fork() -> None:
    _paused[:] = [weakref.ref(clock) for clock in _clocks]
    for clock in list(_clocks):
        clock.stop()


def _go_on_after_fork() -> None:
    call_after_fork(_start_paused)


def _start_paused() -> None:
    for paused in _paused:
        clock = paused()
        if clock is not None:
            clock.start()
    _paused.clear()


if WARNS_OF_FORKS and hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_pause_for_fork, after_in_parent=_go_on_after_fork)
