"""Has the workers of DataLoaders record themselves, whichever way their processes are started.

torch starts each worker with its ``_worker_loop`` as what the process runs. While a loader's
iterator is made, a stand-in of ours is there instead: a forked process inherits it, to others it
crosses as a pickle. Nothing is left in torch or in the environment.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from leakscope.instrument.auto.classes import PatchedMethod, without_our_frame
from leakscope.instrument.auto.endings import ProcessEndings
from leakscope.instrument.auto.imports import ImportWatch
from leakscope.instrument.census_cost import CensusCost
from leakscope.instrument.native import chosen_profile
from leakscope.instrument.options import SessionOptions
from leakscope.instrument.rundirectory import make_run_directory, project_root_of
from leakscope.instrument.session import Session
from leakscope.instrument.sites import Numbers
from leakscope.instrument.workers import Place, WorkerLoop
from leakscope.instrument.world import header_of, this_world
from leakscope.model.errors import UnwritableError
from leakscope.model.interrupts import ours
from leakscope.model.record import ProcessEndRecord

MODULE = "torch.utils.data.dataloader"
FIRST_GENERATIONS = 2
"""Workers that live for one epoch are all alike: those of the first epochs are recorded, then of
every epoch whose number is a power of two."""


def start_session(options: SessionOptions, run_path: Path | None = None) -> Session:
    """Begin to record; ``run_path`` is a run directory that somebody has made already.

    Raises:
        LeakscopeError: the run directory can't be made, in a sentence.

    """
    from leakscope import probes
    from leakscope.heap import CensusTaker
    from leakscope.heap.untraced import remember_allocators
    from leakscope.instrument.shapes import ShapesReader
    from leakscope.recording import RecordingWriter

    world = this_world()
    path = make_run_directory(options, world=world) if run_path is None else run_path
    root = project_root_of(options)
    writer = RecordingWriter(path, header := header_of(world))
    if writer.failed:
        failed = writer.failed.removesuffix(".")
        why = f"{failed}: choose another folder with --out (in Python: out=)."
        raise UnwritableError(why, slug="unwritable")
    session = Session(
        options,
        path,
        writer=writer,
        taker=CensusTaker(project_root=root),
        probes=[*probes.default_probes(), ShapesReader()],
        window=partial(probes.AllocationWindow, before=remember_allocators),
        devices=probes.device_memory,
        history=probes.AllocationHistory(),
        counter=probes.AllocationCounter(),
        native=chosen_profile(options, root),
        project_root=root,
        follow_workers=WorkerHooks.of,
    )
    session.header = header
    session.take_place(world)
    session.begin()
    return session


def place_of_workers(session: Session) -> Place | None:
    """Return where workers of a session's process record; None where they are not to."""
    if session.options.workers == "off":
        return None
    return Place(
        run_path=str(session.run_path),
        options=session.options.to_json(),
        project_root=session.project_root,
        rank=session.world.rank,
        world_size=session.world.size,
        attempt=session.world.attempt,
        parent=os.getpid(),
    )


class WorkerHooks:
    """Hands the stand-in to each DataLoader that starts workers, in the process of the session.

    Hears of processes that end by themselves, too. Without a place workers don't record.
    """

    def __init__(self, place: Place | None, endings: ProcessEndings) -> None:
        self.place = place
        self._endings = endings
        self._pid = os.getpid()
        self._loaders = Numbers(self._forget)
        self._generations: dict[int, int] = {}
        self._costs: dict[int, CensusCost] = {}
        self._patch: PatchedMethod | None = None
        self._watch = ImportWatch({MODULE: self._install})

    @classmethod
    def of(cls, session: Session) -> WorkerHooks:
        """Return hooks for the process that a session records."""
        ends = ProcessEndings(lambda: max(0, session.boundaries_reached - 1))
        return cls(place_of_workers(session), ends)

    def follow(self, session: Session) -> None:
        """Have workers record where the session does now."""
        self.place = place_of_workers(session)

    def install(self) -> None:
        """Listen, now or as soon as the program imports torch or starts a process."""
        self._endings.install()
        module = sys.modules.get(MODULE)
        spec = getattr(module, "__spec__", None)
        if module is not None and not getattr(spec, "_initializing", False):
            self._watch.arrived(MODULE)
            self._install(module)
        self._watch.start()

    def uninstall(self) -> None:
        """Leave torch and multiprocessing as they were found."""
        self._endings.uninstall()
        self._watch.stop()
        if self._patch is not None:
            self._patch.remove()
        self._loaders.clear()

    def ended(self) -> list[ProcessEndRecord]:
        """Return the processes that have ended by themselves since the last time."""
        return self._endings.take()

    def unrecorded(self) -> str:
        """Return that other processes did the program's work, if they did, in a sentence."""
        return self._endings.work_of_others()

    def _install(self, module: ModuleType) -> None:
        self._patch = PatchedMethod(
            module._MultiProcessingDataLoaderIter,
            "__init__",
            lambda original: self._wrap(original, module._utils.worker),
        )

    def _wrap(self, original: Callable[..., None], worker: Any) -> Callable[..., None]:
        @functools.wraps(original)
        def __init__(iterator: Any, loader: Any) -> None:  # noqa: N807
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
        """Put the stand-in where torch looks for its loop, as long as a loader starts workers."""
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
            if self.place is None or os.getpid() != self._pid:
                return None
            if isinstance(original, WorkerLoop):
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
            _prepare(place)
            return WorkerLoop(place, original, cost)
        except ours(Exception):
            return None

    def _forget(self, loader: int) -> None:
        self._generations.pop(loader, None)
        self._costs.pop(loader, None)


def _prepare(place: Place) -> None:
    """Judge all modules before the fork: what only the child looked at it would have to copy."""
    from leakscope.heap import ownership_under

    ownership_under(place.project_root).user_modules()


def is_recorded(generation: int) -> bool:
    """Return whether workers are recorded that a loader starts after so many others."""
    return generation < FIRST_GENERATIONS or generation & (generation - 1) == 0


def start_method(loader: Any) -> str:
    """Return how a loader starts its workers: ``fork``, ``spawn`` or ``forkserver``."""
    context = loader.multiprocessing_context
    if context is None:
        import multiprocessing as context
    return str(context.get_start_method())


def is_importable() -> bool:
    """Return whether a new interpreter with this one's path finds leakscope: its worker must."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if find is not None and find("leakscope", None) is not None:
            return True
    return False
