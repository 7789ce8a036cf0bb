"""DataLoader workers that record themselves, whichever way their processes are started; and how a
session is started with all that it measures by.

The worker's process is torch's and the user's: nothing here starts a thread, touches a random
stream, or can fail in a way that the loader would notice. A worker that was forked shares memory
with its parent, and a look at the heap must leave it shared: a census takes no reference to what it
walks (``heap/native``), and walks from what the worker works on.

torch starts each worker with its ``_worker_loop`` as what the process runs. While a loader's
iterator is made, a stand-in of ours is there instead: a forked process inherits it, to others it
crosses as a pickle. Nothing is left in torch or in the environment.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from leakscope.capture.budget import CHILD_FLOOR, WORKER_FLOOR, CensusCost, Costs, costs_with
from leakscope.capture.children import (
    ChildHooks,
    ChildPlacement,
    begin_pending,
    calls_at_once,
    is_importable,
)
from leakscope.capture.options import SessionOptions
from leakscope.capture.process_endings import ProcessEndings
from leakscope.capture.profiles import chosen_profile
from leakscope.capture.run_directory import (
    World,
    begin_of,
    header_of,
    make_run_directory,
    project_root_of,
    this_world,
)
from leakscope.capture.session import Session, current_session
from leakscope.capture.sites import WeakNumbering
from leakscope.capture.torch_hooks.patching import (
    LatePatches,
    PatchedMethod,
    surrounded,
    without_our_frame,
)
from leakscope.configuration import METERS
from leakscope.model.errors import UnwritableError, ours
from leakscope.model.record import HeaderRecord
from leakscope.probes.interpreter import BatchProbe
from leakscope.recording.directory import redact_text
from leakscope.recording.writer import JOURNAL_SUFFIX

if TYPE_CHECKING:
    from leakscope.heap import CensusTaker


A_PASS = "pass"  # noqa: S105  no password
"""The phase of a worker: a pass over what the loader's sampler gives it."""
FETCHERS = ("_MapDatasetFetcher", "_IterableDatasetFetcher")
_STARTED_BY_PARENT = ("fork", "spawn")
"""Start methods by which the process that made the loader is the worker's parent."""
LOOP_ARGUMENTS = ("dataset", "collate_fn", "init_fn")
"""Arguments of torch's loop that lead to objects of the user's, by their names there."""
ITERATOR = "iterator"
"""What a pass over an iterable dataset is called where no generator has a better name."""


@dataclass(frozen=True)
class WorkerPlacement:
    """Where a worker records and what it is called: all that crosses into another process."""

    run_path: str
    options: str
    project_root: str
    rank: int = 0
    world_size: int = 1
    attempt: int = 0
    loader: int = 0
    generation: int = 0
    """How often the loader had started workers before."""
    start_method: str = ""
    parent: int = 0
    prefetch: int = 0
    """How many batches each worker may have loaded ahead."""
    census_seconds: float = 0.0
    """What a census cost in the loader's workers before; 0 where nobody knows."""


class WorkerLoop:
    """Stands in for torch's ``_worker_loop``: calls it, with a recording around it."""

    def __init__(
        self,
        place: WorkerPlacement,
        original: Callable[..., Any] | None = None,
        cost: CensusCost | None = None,
    ) -> None:
        self._place = place
        self._original = original
        self._cost = cost

    def __reduce__(self) -> tuple[type[WorkerLoop], tuple[WorkerPlacement]]:
        return WorkerLoop, (self._place,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run torch's loop to its end; whatever it raises goes on."""
        loop = self._original or _loop_of_torch()
        _notify_parent(self._place)
        worker = _started(self._place, loop, args, kwargs)
        try:
            return loop(*args, **kwargs)
        except BaseException as error:
            without_our_frame(error)
            raise
        finally:
            if worker is not None:
                worker.close()
                if self._cost is not None:
                    self._cost.publish(worker.costs)


class WorkerSession:
    """Records one worker: a pass begins with each new fetcher, a batch ends with each fetch."""

    def __init__(
        self, session: Session, batches: BatchProbe, work_items: dict[str, object], costs: Costs
    ) -> None:
        self._session = session
        self.costs = costs
        self._batches = batches
        self._work_items = work_items
        self._fetcher: object = None
        self._phase: Any = None
        self._depth = 0
        self._patches: list[PatchedMethod] = []

    def listen(self) -> None:
        """Begin to count batches, in this process alone."""
        from torch.utils.data._utils import fetch

        self._patches = [
            PatchedMethod(getattr(fetch, name), "fetch", self._wrap) for name in FETCHERS
        ]

    def close(self) -> None:
        """Say that the worker ended by itself."""
        try:
            for patch in self._patches:
                patch.remove()
            self._session.close(status="completed")
        except ours(Exception):
            return

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        dispatch = self._session.gate.dispatch

        @functools.wraps(original)
        def fetch(fetcher: Any, *args: Any) -> Any:
            if self._depth:  # a loader that the dataset itself iterates over
                return original(fetcher, *args)
            self._depth += 1
            dispatch(self._batch_requested, fetcher)
            try:
                batch = original(fetcher, *args)
            except BaseException as error:
                without_our_frame(error)
                raise
            finally:
                self._depth -= 1
            dispatch(self._fetched, batch)
            return batch

        return fetch

    def _batch_requested(self, fetcher: object) -> None:
        if fetcher is self._fetcher:
            return
        tracker = self._session.tracker
        if self._phase is not None:
            tracker.phase_end(self._phase)
        self._fetcher = fetcher  # torch's loop keeps it as long
        # Censuses begin at what an iterable dataset runs over, too, if it is another object.
        iterator = getattr(fetcher, "dataset_iter", None)
        self._work_items.pop(ITERATOR, None)
        if iterator is not None and iterator is not self._work_items.get("dataset"):
            self._work_items[ITERATOR] = iterator
        self._phase = tracker.phase_begin(A_PASS)
        tracker.steps_begin()

    def _fetched(self, batch: object) -> None:
        self._batches.see(batch)
        self._session.tracker.steps_next(self._phase)


def _notify_parent(place: WorkerPlacement) -> None:
    """Have torch's loop end with the process that made the loader, in this worker.

    It ends when its parent is another than at its begin: not where the parent dies before that.
    """
    if place.start_method not in _STARTED_BY_PARENT:
        return
    try:
        from torch.utils.data._utils.worker import ManagerWatchdog

        def know(watchdog: Any, error: BaseException | None) -> None:
            watchdog.manager_pid = place.parent

        PatchedMethod(
            ManagerWatchdog, "__init__", lambda f: surrounded(f, lambda watchdog: watchdog, know)
        )
    except Exception:
        return


def _started(
    place: WorkerPlacement, loop: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> WorkerSession | None:
    try:
        named = inspect.signature(loop).bind(*args, **kwargs).arguments
        work_items = {name: named[name] for name in LOOP_ARGUMENTS if named.get(name) is not None}
        batches, costs = BatchProbe(), costs_with(place.census_seconds)
        session = _session(place, int(named["worker_id"]), work_items, batches, costs)
        if session is None:
            return None
        session.begin()
        worker = WorkerSession(session, batches, work_items, costs)
        worker.listen()
        return worker
    except ours(Exception):
        return None


def _session(
    place: WorkerPlacement,
    worker: int,
    work_items: dict[str, object],
    batches: BatchProbe,
    costs: Costs,
) -> Session | None:
    from leakscope.capture.gauges import copies_of, worker_probes
    from leakscope.heap import CensusTaker
    from leakscope.probes.allocations import AllocationWindow
    from leakscope.recording import RecordingWriter

    options = replace(
        SessionOptions.from_json(place.options),
        boundaries="manual",
        tracemalloc="off",
        cuda_history="off",
        native="off",
        probe_cleanup=False,
        snapshot_signal="off",
        trackers="off",
    )
    path = Path(place.run_path)
    header = header_of(
        World(place.rank, place.world_size, place.attempt),
        role="worker",
        worker=worker,
        loader=place.loader,
        generation=place.generation,
        start_method=place.start_method,
        parent=place.parent,
        prefetch=place.prefetch,
    )
    writer = RecordingWriter(path, header, max_bytes=options.max_recording)
    if writer.failed:
        return None
    taker = CensusTaker(project_root=place.project_root, work_items=work_items)
    _prepare(taker, costs)
    return Session(
        options,
        path,
        writer=writer,
        taker=taker,
        probes=[*worker_probes(batches), copies_of(taker)],
        window=AllocationWindow,
        project_root=place.project_root,
        floor=WORKER_FLOOR,
        costs=costs,
    )


def _prepare(taker: CensusTaker, costs: Costs) -> None:
    """Have what only the first census needs to learn be no part of what the next will cost."""
    began = time.perf_counter()
    try:
        taker.prepare()
    except ours(Exception):
        return
    finally:
        costs.spend("census", time.perf_counter() - began)


def _loop_of_torch() -> Callable[..., Any]:
    from torch.utils.data._utils.worker import _worker_loop

    loop: Callable[..., Any] = _worker_loop
    return loop


LOADER_MODULE = "torch.utils.data.dataloader"
_SENDS_RESULT = "_sendback_result"
_SHARES_HEAP = ("fork", "os.fork")
"""Start methods by which a child goes on with the blocks of its parent, of which no profile of
its own could know."""
FIRST_GENERATIONS = 2
"""Workers that live for one epoch are all alike: those of the first epochs are recorded, then of
every epoch whose number is a power of two."""


def start_session(
    options: SessionOptions, run_path: Path | None = None, child: ChildPlacement | None = None
) -> Session:
    """Begin to record; ``run_path`` is a run directory that somebody has made already.

    ``child`` where this is a child process that records alongside its parent. Raises LeakscopeError
    where the run directory can't be made.
    """
    from leakscope.capture import gauges
    from leakscope.heap import CensusTaker
    from leakscope.heap.pausing import remember_allocators
    from leakscope.probes.allocations import AllocationCounter, AllocationWindow
    from leakscope.probes.cuda import AllocationHistory, device_memory
    from leakscope.recording import RecordingWriter

    world = this_world() if child is None else World(child.rank, child.world_size, child.attempt)
    path = make_run_directory(options, world=world, numbered=True) if run_path is None else run_path
    root = project_root_of(options) if child is None else child.project_root
    header = header_of(world) if child is None else header_of_child(child, this_world())
    writer = RecordingWriter(path, header, max_bytes=options.max_recording)
    if writer.failed:
        failed = writer.failed.removesuffix(".")
        why = f"{failed}: choose another folder with --out (in Python: out=)."
        raise UnwritableError(why, slug="unwritable")
    native = chosen_profile(options, root)
    taker = CensusTaker(project_root=root, blocks=None if native is None else native.blocks_of)
    session = Session(
        options,
        path,
        writer=writer,
        taker=taker,
        probes=[*gauges.default_probes(), *gauges.readers_of(taker)],
        window=partial(AllocationWindow, before=remember_allocators),
        devices=device_memory,
        history=AllocationHistory(),
        counter=AllocationCounter(),
        native=native,
        project_root=root,
        floor=None if child is None else CHILD_FLOOR,
        follow_workers=WorkerHooks.of,
        watches_time=True,
        counts_events=True,
    )
    session.header = header
    if child is None:
        session.take_place(world)
    else:
        session.world = world
    session.begin()
    return session


def begin_child(place: ChildPlacement) -> Session | None:
    """Begin to record this process alongside its parent; None where it records itself already."""
    running = current_session()
    if running is not None and running.is_live:
        return None
    is_forked = place.start_method in _SHARES_HEAP
    options = SessionOptions.from_json(place.options)
    options = replace(
        options,
        native="off" if is_forked else options.native,
        cuda_history="off",
        probe_cleanup=False,
        snapshot_signal="off",
        trackers=",".join(n for n in METERS if n in options.trackers.split(",")) or "off",
        report=False,
        quiet=True,
    )
    session = start_session(options, Path(place.run_path), place)
    _follow_tasks(session, place)
    return session


def _follow_tasks(session: Session, place: ChildPlacement) -> None:
    """Hear of each task that a worker of an executor has done: it sends its result."""
    module, _, function = place.target.rpartition(".")
    if function != "_process_worker" or not hasattr(sys.modules.get(module), _SENDS_RESULT):
        return

    def begin(*args: Any, **kwargs: Any) -> None:
        """Nothing: a task ends when its result is sent, by itself or as an exception."""

    def end(begun: None, error: BaseException | None) -> None:
        session.end_task(calls_at_once())

    PatchedMethod(sys.modules[module], _SENDS_RESULT, lambda f: surrounded(f, begin, end))


def header_of_child(place: ChildPlacement, among: World) -> HeaderRecord:
    """Return what the recording of a child begins with; ``among`` are those it trains with."""
    return header_of(
        World(place.rank, place.world_size, place.attempt),
        role="child",
        start_method=place.start_method,
        parent=place.parent,
        child=place.number,
        name=redact_text(place.name),
        target=redact_text(place.target),
        lived_s=max(0.0, time.time() - begin_of(os.getpid())),
        group_rank=among.rank if among.size > 1 else None,
        group_size=among.size if among.size > 1 else 0,
    )


def place_of_children(session: Session) -> ChildPlacement | None:
    """Return where children of a session's process record; None where they are not to."""
    if session.options.children == "off":
        return None
    return ChildPlacement(
        run_path=str(session.run_path.absolute()),
        begins_by=f"{begin_child.__module__}:{begin_child.__name__}",
        **_place_of(session),
    )


def place_of_workers(session: Session) -> WorkerPlacement | None:
    """Return where workers of a session's process record; None where they are not to."""
    if session.options.workers == "off":
        return None
    return WorkerPlacement(run_path=str(session.run_path), **_place_of(session))


def _place_of(session: Session) -> dict[str, Any]:
    return {
        "options": session.options.to_json(),
        "project_root": session.project_root,
        "rank": session.world.rank,
        "world_size": session.world.size,
        "attempt": session.world.attempt,
        "parent": os.getpid(),
    }


def has_recorded(session: Session, pid: int) -> bool:
    """Return whether a process of this number has a recording alongside a session's."""
    return any(session.run_path.glob(f"*-{pid}{JOURNAL_SUFFIX}"))


class WorkerHooks:
    """Hands the stand-in to each DataLoader that starts workers; hears of processes that end."""

    def __init__(
        self,
        place: WorkerPlacement | None,
        endings: ProcessEndings,
        children: ChildHooks | None = None,
    ) -> None:
        self.place = place
        self._endings = endings
        self._children = children
        self._pid = os.getpid()
        self._loaders = WeakNumbering(self._forget)
        self._generations: dict[int, int] = {}
        self._costs: dict[int, CensusCost] = {}
        self._patches = LatePatches([LOADER_MODULE], self._patches_of)
        self.ended, self.unrecorded = endings.take, endings.work_of_others

    @classmethod
    def of(cls, session: Session) -> WorkerHooks:
        """Return hooks for the process that a session records."""
        ends = ProcessEndings(
            lambda: max(0, session.boundaries_reached - 1), lambda pid: has_recorded(session, pid)
        )
        place = place_of_children(session)
        return cls(place_of_workers(session), ends, None if place is None else ChildHooks(place))

    def follow(self, session: Session) -> None:
        """Have workers record where the session does now."""
        self.place = place_of_workers(session)
        place = place_of_children(session)
        if self._children is not None and place is not None:
            self._children.place = place

    def install(self) -> None:
        """Listen, now or as soon as the program imports torch or starts a process."""
        self._endings.install()
        if self._children is not None:
            self._children.install()
        self._patches.install()

    def uninstall(self) -> None:
        """Leave torch and multiprocessing as they were found."""
        self._endings.uninstall()
        if self._children is not None:
            self._children.uninstall()
        self._patches.remove()
        self._loaders.clear()

    def _patches_of(self, module: ModuleType) -> Iterator[PatchedMethod]:
        wrap = functools.partial(self._wrap, worker=module._utils.worker)
        yield PatchedMethod(module._MultiProcessingDataLoaderIter, "__init__", wrap)

    def _wrap(self, original: Callable[..., None], worker: Any) -> Callable[..., None]:
        @functools.wraps(original)
        def __init__(iterator: Any, loader: Any) -> None:  # noqa: N807
            if os.getpid() != self._pid and begin_pending():
                type(iterator).__init__(iterator, loader)  # as the child's own hooks have it now
                return
            with self._stand_in(worker, loader):
                try:
                    original(iterator, loader)
                except BaseException as error:
                    without_our_frame(error)
                    raise
            self._keep_pids(iterator, loader)

        return __init__

    def _keep_pids(self, iterator: Any, loader: Any) -> None:
        try:
            pids = [process.pid for process in iterator._workers]
            self._endings.belong(pids, self._loaders.of(loader))
        except ours(Exception):
            return

    @contextmanager
    def _stand_in(self, worker: Any, loader: Any) -> Iterator[None]:
        original = worker._worker_loop
        loop = self._loop(loader, original)
        if loop is None:
            yield
            return
        worker._worker_loop = loop
        try:
            yield
        finally:
            if worker._worker_loop is loop:
                worker._worker_loop = original

    def _loop(self, loader: Any, original: Callable[..., Any]) -> WorkerLoop | None:
        try:
            from leakscope.heap import ownership_under

            is_nested = isinstance(original, WorkerLoop)
            if self.place is None or is_nested or os.getpid() != self._pid:
                return None
            number = self._loaders.of(loader)
            generation = self._generations.get(number, 0)
            self._generations[number] = generation + 1
            method = start_method(loader)
            if not is_recorded(generation) or not (method == "fork" or is_importable()):
                return None
            cost = self._costs.setdefault(number, CensusCost())
            place = replace(
                self.place,
                loader=number,
                generation=generation,
                start_method=method,
                prefetch=loader.prefetch_factor or 0,
                census_seconds=cost.seconds,
            )
            # All modules before the fork: what only the child looked at it would have to copy.
            ownership_under(place.project_root).user_modules()
            return WorkerLoop(place, original, cost)
        except ours(Exception):
            return None

    def _forget(self, loader: int) -> None:
        self._generations.pop(loader, None)
        self._costs.pop(loader, None)


def is_recorded(generation: int) -> bool:
    """Return whether workers are recorded that a loader starts after so many others."""
    return generation < FIRST_GENERATIONS or generation & (generation - 1) == 0


def start_method(loader: Any) -> str:
    """Return how a loader starts its workers: ``fork``, ``spawn`` or ``forkserver``."""
    context = loader.multiprocessing_context
    if context is None:
        import multiprocessing as context
    return str(context.get_start_method())
