"""The session: one recording of this process, from its first boundary to its last."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from leakscope.capture import policy
from leakscope.capture.budget import CHILD_FLOOR, Costs, Due, Floor, Pauses
from leakscope.capture.clock import BoundaryClock, CostClock
from leakscope.capture.dispatch import EventDispatcher, Guard
from leakscope.capture.events import CleaningCalls, EventCounts
from leakscope.capture.gauges import Reader
from leakscope.capture.measuring import Devices, Measuring, WorkerFollower
from leakscope.capture.options import SessionOptions
from leakscope.capture.phase_stack import Phase
from leakscope.capture.phases import PhaseTracker
from leakscope.capture.profiles import HistoryWindows, NativeAllocations
from leakscope.capture.requests import Requests, Trials
from leakscope.capture.run_directory import (
    ALONE,
    World,
    header_of,
    make_run_directory,
    this_world,
    world_of_group,
)
from leakscope.capture.schedule import GrowthWatch, Schedule
from leakscope.capture.shortages import Shortages
from leakscope.capture.torch_hooks import AutoBoundaries
from leakscope.capture.tracing import AllocationWindows
from leakscope.capture.trackers import Trackers
from leakscope.capture.unobservable import DeferredReadings, unobservable_state
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.errors import is_interrupt
from leakscope.model.record import UNRECORDED_CHILDREN, EndRecord, ErrorRecord, HeaderRecord
from leakscope.recording import RunDirectory, redact_text

if TYPE_CHECKING:
    from leakscope.heap import CensusTaker
    from leakscope.probes.allocations import AllocationCounter, AllocationWindow
    from leakscope.probes.cuda import AllocationHistory
    from leakscope.probes.native_allocations import NativeProfile
    from leakscope.recording import RecordingWriter

A_TASK = "task"
_current: weakref.ref[Session] | None = None


def current_session() -> Session | None:
    """Return the session that measures this process, if there is one."""
    return None if _current is None else _current()


class Session:
    """Owns what measures: the sources of boundaries, the schedule, probes, census and writer.

    Tests run it on a clock and a heap of their own; :func:`start_session` makes the real thing.
    """

    world: World = ALONE
    """The place of this process among those that train together, as far as it is known."""
    header: HeaderRecord | None = None
    """What the recording began with; None where ranks are not looked for."""
    _closed = False
    _concluded = False
    _task: Phase | None = None

    def __init__(
        self,
        options: SessionOptions,
        run_path: Path,
        *,
        writer: RecordingWriter,
        taker: CensusTaker,
        probes: Iterable[Reader],
        window: Callable[[], AllocationWindow],
        devices: Devices = lambda **_: [],
        history: AllocationHistory | None = None,
        counter: AllocationCounter | None = None,
        native: NativeProfile | None = None,
        clock: Callable[[], float] = time.perf_counter,
        work_clock: Callable[[], float] = time.thread_time,
        project_root: str = "",
        floor: Floor | None = None,
        costs: Costs | None = None,
        follow_workers: Callable[[Session], WorkerFollower] | None = None,
        watches_time: bool = False,
        counts_events: bool = False,
    ) -> None:
        self.options, self.run_path = options, run_path
        self._writer, self._put_off = writer, DeferredReadings()
        self._clock, self._work_clock = clock, work_clock
        self._pid = os.getpid()
        self._index, self._begun = 0, clock()
        self._reached = self._worked = 0.0
        self._floor = floor
        self._time = self._make_clock() if watches_time else None
        self._costs = costs or Costs()
        self._guard = Guard(self._write_fault)
        self.gate = EventDispatcher(self._guard, self._costs, clock)
        self.tracker = PhaseTracker(self._reach)
        self._is_of_a_worker = floor is not None and not floor.has_full
        growth, floor = GrowthWatch(), floor or Floor()
        pauses = Pauses(options.max_pause / 1000, self._costs)
        self._schedule = Schedule(options.budget, pauses, self._write_note, growth, floor)
        windows = partial(AllocationWindows, options.tracemalloc, window, growth, self._costs)
        self._windows = windows(counter, self._write_note, options.budget, project_root)
        recorder = history if options.cuda_history == "window" else None
        self._history = HistoryWindows(recorder, self._costs, options.budget)
        self._measuring = Measuring(
            writer=writer,
            taker=taker,
            probes=probes,
            devices=devices,
            windows=self._windows,
            history=self._history,
            pauses=pauses,
            guard=self._guard,
            budget=options.budget,
            clock=clock,
            cost_clock=CostClock(clock, work_clock),
            in_child=self._is_of_a_worker,
            put_off=self._put_off.counts,
        )
        outputs = writer.write, self._write_note
        sampled = NativeAllocations(native, *outputs, self._costs, clock, options.budget)
        self._native, self._measuring.sampling_bytes = sampled, lambda: sampled.own_bytes
        self.events, self._counts_events = EventCounts(), counts_events
        self._measuring.events, self._cleaning = self.events.changed, CleaningCalls()
        self._measuring.collections = self._cleaning.gauges
        self._measuring.cleaning = self._cleaning.calls
        self._shortages = Shortages(
            self._measuring, self.gate, self._costs, self._moment, budget=options.budget
        )
        self._requests = Requests(self.gate, self._look, writer.write, self._idle)
        self._trials: Trials | None = None
        if options.probe_cleanup:
            self._trials = Trials(self._costs, budget=options.budget, clock=clock)
        self.trackers = Trackers(
            options, self._guard, self._costs, self._write_note, clock, lambda: self.run_path
        )
        self._auto: AutoBoundaries | None = None
        self._make_workers = follow_workers
        self._workers: WorkerFollower | None = None
        self.project_root = project_root

    def begin(self) -> None:
        """Become this process's session and reach the first boundary."""
        global _current
        _current = weakref.ref(self)
        self._begun = self._clock()
        self._guard.call("native", None, self._native.start)
        if self.options.tracemalloc == "auto" and self._native.samples_blocks:
            self._windows.leave_to_samples()
        self.gate.open()
        self._guard.call("boundaries", None, self._reach, BoundaryKind.RUN_BEGIN, None, "")
        first = Boundary(index=0, kind=BoundaryKind.RUN_BEGIN, time_s=0.0)
        self._guard.call("tracemalloc", None, self._windows.begin, first)
        if self.options.boundaries == "auto":
            self._guard.call("boundaries", None, self._listen)
        if self._is_of_a_worker:
            return
        if self._counts_events:
            self._guard.call("events", None, self.events.install)
            self._guard.call("collections", None, self._cleaning.install)
        self._guard.call("shortages", None, self._shortages.start)
        self._guard.call("workers", None, self._follow_workers)
        if self.options.snapshot_signal != "off":
            self._guard.call("requests", None, self._requests.listen, self.options.snapshot_signal)
        if self._time is not None:
            self._guard.call("time", None, self._time.start)

    def take_place(self, world: World) -> None:
        """Mark this process as a rank of a distributed training."""
        self.world = world
        if world.size > 1:
            self._schedule.align()

    @property
    def is_live(self) -> bool:
        """Whether it still records: not closed, and not the copy in a forked child."""
        return not self._closed and os.getpid() == self._pid

    @property
    def trouble(self) -> str | None:
        """Why nothing is written down any more, as a sentence; None while all is well."""
        return self._writer.failed

    def boundary(self, kind: BoundaryKind, *, label: str = "") -> None:
        """Reach a boundary that somebody else has found, in the phase that is open."""
        self.gate.dispatch(lambda: self._reach(kind, self.tracker.phase, label))

    def on_wake(self, call: Callable[[], object]) -> bool:
        """Call ``call`` some times a second, in a thread that forks don't inherit.

        Return False where there is no such thread.
        """
        if self._time is not None:
            self._time.on_wake.append(call)
        return self._time is not None

    def take_snapshot(self) -> None:
        """Take a census that was requested, now and in any thread, outside all series."""
        self.gate.take_turn(partial(self._look, at_once=True))

    def end_task(self, calls: int = 1) -> None:
        """End a task of a pool's worker, or the ``calls`` that the pool had handed out together."""
        self.gate.dispatch(self._next_task, calls)

    def _next_task(self, calls: int) -> None:
        if self._task is not None:
            self.tracker.phase_end(self._task)
            self.tracker.pass_over(A_TASK, calls - 1)
        self._task = self.tracker.phase_begin(A_TASK)

    def claim_phase_control(self) -> bool:
        """Find no phases and steps from now on: the caller tells them to ``tracker.external``.

        Return False if somebody leads already.
        """
        if self.gate.is_phase_control_claimed or not self.is_live:
            return False
        self.gate.take_over()
        self.gate.dispatch(self.tracker.yield_to_external)
        self.gate.is_phase_control_claimed = True
        return True

    def release_phase_control(self) -> None:
        """Find phases and steps again."""
        self.gate.is_phase_control_claimed = False

    def note(self, slug: str, message: str) -> None:
        """Add a note to the report."""
        if self.is_live:
            self._guard.call("notes", None, self._write_note, slug, message)

    def fault(self, part: str, error: Exception) -> bool:
        """Write down a fault of a part that runs by itself; return whether it may go on."""
        if self.is_live:
            self._guard.fault(part, error)
        return self._guard.allows(part)

    def failed(self, error: BaseException) -> None:
        """Examine an exception that leaves the program, while its traceback keeps its frames."""
        if self.is_live:
            self._requests.mute()
            self._guard.call("shortages", None, self._shortages.left, error)

    def conclude(self, unwound: Sequence[FrameType] = ()) -> None:
        """Reach the last boundary while what the program worked with, or a traceback, is there."""
        cannot = not self.is_live or self._concluded or self._index < 2
        if cannot or unobservable_state() is not None:
            return
        self._concluded = True
        self._measuring.unwound = unwound
        try:
            self._stop()
        finally:
            self._measuring.unwound = ()

    def close(
        self, *, status: str, exit_code: int = 0, exception: str = "", for_good: bool = False
    ) -> None:
        """Reach the last boundary, say how the program ended, and measure no more.

        ``for_good`` when the process ends too. An interrupt breaks off the last look alone.
        """
        global _current
        if not self.is_live:
            return
        self._closed = True
        try:
            if not self._concluded:
                self._stop()
        finally:
            message = redact_text(exception)[:2000]
            end = EndRecord(
                status=status, exit_code=exit_code, exception=message, time_s=self._now()
            )
            self._guard.call("recording", None, self._write_endings)
            self._guard.call("recording", None, self._write_unrecorded)
            self._guard.call("recording", None, self._seal, end)
            self._guard.call("requests", None, lambda: self._requests.let_go(for_good=for_good))
            if current_session() is self:
                _current = None

    def forget(self) -> None:
        """Deactivate the copy of a session in a forked child."""
        self._closed = True
        self._cleaning.forget()
        self.gate.shut()
        if self._time is not None:
            self._time.forget()

    def _stop(self) -> None:
        if self._time is not None:
            self._guard.call("time", None, self._time.stop)
        self._requests.mute()
        self.gate.shut()
        self._guard.call("shortages", None, self._shortages.stop)
        if self._workers is not None:  # the last to be installed: others lie below
            self._guard.call("workers", None, self._workers.uninstall)
        self._guard.call("events", None, self.events.uninstall)
        if self._auto is not None:
            self._guard.call("boundaries", None, self._auto.uninstall)
        self._guard.call("boundaries", None, self.tracker.finish)
        self._guard.call("boundaries", None, self._reach, BoundaryKind.RUN_END, None, "")
        last = self._describe(self._index - 1, BoundaryKind.RUN_END, self._now(), None, "")
        self._guard.call("overhead", None, self._measuring.finish, last)
        self._guard.call("collections", None, self._cleaning.uninstall)
        self._guard.call("native", None, self._native.stop)

    def _make_clock(self) -> BoundaryClock:
        """Return what makes boundaries by time, without a reference to this session."""
        session = weakref.ref(self)

        def reach() -> None:
            if (alive := session()) is not None and alive.is_live:
                alive.gate.take_turn(alive._reach_by_time)

        def idle() -> float:
            return 0.0 if (alive := session()) is None else alive._now() - alive._worked

        def now() -> float:
            return 0.0 if (alive := session()) is None else alive._now()

        def read_ahead() -> None:
            if (alive := session()) is not None and alive.is_live:
                alive._measuring.read_ahead(alive._now())

        is_child = self._floor is CHILD_FLOOR
        patience = policy.TIME_IDLE_SECONDS_OF_CHILD if is_child else None
        clock = BoundaryClock(reach, idle, now, patience)
        clock.on_wake.append(read_ahead)
        return clock

    def _reach_by_time(self) -> None:
        self._guard.call("time", None, self._reach, BoundaryKind.TIME, None, "")
        closes_at = self._windows.closes_at_time
        if closes_at is not None and self._time is not None:
            self._time.hasten(closes_at)

    @property
    def boundaries_reached(self) -> int:
        """How many boundaries were reached until now."""
        return self._index

    def _listen(self) -> None:
        self._auto = AutoBoundaries(self.tracker, self.gate)
        self._auto.install()

    def _follow_workers(self) -> None:
        if self._make_workers is not None:
            self._workers = self._make_workers(self)
            self._workers.install()

    def _look_for_ranks(self) -> None:
        """Join the others' run once it turns out that this process is one of several ranks."""
        self._note_actor()
        group = world_of_group()
        if group is None or group[1] < 2 or self.header is None:
            return
        if self.header.child is not None:  # its run is its parent's
            rank, size = group
            if self.header.group_size != size:
                self.header = msgspec.structs.replace(self.header, group_rank=rank, group_size=size)
                self._writer.write(self.header)
            return
        self.take_place(world := this_world())
        header = msgspec.structs.replace(header_of(world), started=self.header.started)
        path = make_run_directory(self.options, world=world, numbered=True)
        if path == self.run_path:
            self._writer.write(header)
        elif self._writer.move(path, header):
            left, self.run_path = self.run_path, path
            RunDirectory(left).remove_if_empty()
        if self._workers is not None:
            self._workers.follow(self)

    def _note_actor(self) -> None:
        if self.header is None or self.header.child is None:
            return
        from leakscope.heap.roots import actors_of_ray

        names = [*actors_of_ray()]
        target = f"{names[0]} (actor of Ray)" if len(names) == 1 else ""
        if target and self.header.target != target:
            self.header = msgspec.structs.replace(self.header, target=target)
            self._writer.write(self.header)

    def _seal(self, end: EndRecord) -> None:
        self._writer.write(end, sync=True)
        self._writer.close()

    def _reach(self, kind: BoundaryKind, phase: Phase | None, label: str) -> None:
        # Whatever strikes in there, the tracker goes on as if it had not.
        try:
            index = self._index
            self._index = index + 1
            now = self._reached = self._clock() - self._begun
            if kind is not BoundaryKind.TIME:
                self._worked = now
                self.events.place = index
            due = self._schedule.due(kind, phase, label, now)
            waits = self._put_off.due or self._requests.waiting
            if due or waits or self._windows.listens or self._history.is_open:
                settled = self._put_off.settle(kind, due, now)
                if settled is not None:
                    boundary = self._describe(index, kind, now, phase, label)
                    self._guard.call("measuring", None, self._measure, boundary, settled)
        except BaseException as interrupt:
            if not is_interrupt(interrupt) or not self.gate.postpone(interrupt):
                raise

    def _measure(self, boundary: Boundary, due: Due) -> None:
        if self._writer.failed is not None:
            self._measuring.abandon(boundary)
            self._requests.mute()
            return
        closes = self._windows.closes_at(boundary) or self._history.closes_at(boundary)
        if due is not Due.NOTHING or closes:
            with self._cleaning.muted():
                self._record(boundary, due)
        if self._requests.waiting:
            self._requests.serve()

    def _record(self, boundary: Boundary, due: Due) -> None:
        if self.world.size < 2 and not self._is_of_a_worker:
            self._guard.call("ranks", None, self._look_for_ranks)
        self._schedule.serves = serves = self.events.served >= policy.SERVED_FROM
        if serves:
            self._measuring.spare(reads_ahead=self._time is not None)
        began, charged = self._work_clock(), self._costs.total
        done = self._measuring.at(boundary, due)
        resident = self._measuring.resident
        self._guard.call("native", None, self._native.at, boundary, done, resident)
        self._write_endings()
        for record in self.events.compilations(boundary.index):
            self._writer.write(record)
        last = boundary.kind is BoundaryKind.RUN_END
        compiled_code = partial(self.events.compiled_code, boundary.index, last=last)
        if kept := self._guard.call("events", None, compiled_code):
            self._writer.write(kept)
        now = self._now()
        if done >= Due.FOCUSED:
            self._costs.learn_pace(now - boundary.time_s, self._work_clock() - began)
        is_alongside = boundary.kind is BoundaryKind.TIME
        seconds = self._costs.total - charged if is_alongside else now - boundary.time_s
        seconds -= self._measuring.uncounted_seconds(done)
        objects = self._measuring.objects_of(done)
        self._schedule.recorded(done, seconds, now, resident, objects)
        if self._trials is not None and not self._closed and not self._concluded:
            tried = self._guard.call("cleanup", None, self._trials.at, boundary)
            if tried is not None:
                self._writer.write(tried)
        readings = self._measuring.gauges, self._windows.growth
        with self.events.muted():
            self._guard.call("trackers", None, self.trackers.at, boundary, *readings)
        self._guard.call("requests", None, self._requests.look_after)

    def _describe(
        self, index: int, kind: BoundaryKind, now: float, phase: Phase | None, label: str
    ) -> Boundary:
        where: dict[str, Any] = {}
        if phase is not None:
            where = {"phase": phase.name, "occurrence": phase.occurrence, "batch": phase.batch}
            where["expected_batches"] = phase.expected
        epoch, step = self.tracker.epoch, self.tracker.step
        return Boundary(
            index=index, kind=kind, time_s=now, epoch=epoch, step=step, label=label, **where
        )

    def _moment(self, kind: BoundaryKind = BoundaryKind.MARK) -> Boundary:
        last = max(0, self._index - 1)
        return self._describe(last, kind, self._now(), self.tracker.phase, "")

    def _look(self, *, at_once: bool) -> None:
        moment = self._moment(BoundaryKind.REQUEST)
        snapshot = partial(self._measuring.snapshot, moment, at_once=at_once)
        with self._cleaning.muted():
            self._guard.call("requests", None, snapshot)

    def _idle(self) -> float:
        return self._now() - self._reached

    def _now(self) -> float:
        return self._clock() - self._begun

    def _write_fault(self, where: str, message: str, disabled: bool) -> None:
        last = max(0, self._index - 1)
        self._writer.write(
            ErrorRecord(where=where, message=message, boundary=last, disabled=disabled)
        )

    def _write_endings(self) -> None:
        for record in self._workers.ended() if self._workers is not None else ():
            self._writer.write(record)

    def _write_unrecorded(self) -> None:
        if self._workers is not None and (unrecorded := self._workers.unrecorded()):
            self._write_note(UNRECORDED_CHILDREN, unrecorded)

    def _write_note(self, slug: str, message: str) -> None:
        self._measuring.note(slug, message, max(0, self._index - 1))


def _forget_in_child() -> None:
    global _current
    session = current_session()
    _current = None
    if session is not None:
        session.forget()


def _count_in_parent() -> None:
    session = current_session()
    if session is not None:
        session.events.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child, after_in_parent=_count_in_parent)
