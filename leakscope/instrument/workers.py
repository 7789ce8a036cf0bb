"""Inside a DataLoader's worker: a recording of its own, batches fetched being the boundaries.

The worker's process is torch's and the user's: nothing here starts a thread, touches a random
stream, or can fail in a way that the loader would notice. A worker that was forked shares memory
with its parent, and a look at the heap must leave it shared: a census takes no reference to what it
walks (``heap/native``), and walks from what the worker works on.
"""

from __future__ import annotations

import functools
import inspect
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakscope.instrument.auto.classes import PatchedMethod, without_our_frame
from leakscope.instrument.census_cost import CensusCost, costs_with
from leakscope.instrument.copies import CopiesReader
from leakscope.instrument.costs import Costs
from leakscope.instrument.floor import WORKER_FLOOR
from leakscope.instrument.options import SessionOptions
from leakscope.instrument.session import Session
from leakscope.model.interrupts import ours
from leakscope.model.record import HeaderRecord
from leakscope.probes.batches import BatchProbe

if TYPE_CHECKING:
    from leakscope.heap import CensusTaker

A_PASS = "pass"  # noqa: S105  no password
"""The phase of a worker: a pass over what the loader's sampler gives it."""
FETCHERS = ("_MapDatasetFetcher", "_IterableDatasetFetcher")
_STARTED_BY_PARENT = ("fork", "spawn")
"""Start methods by which the process that made the loader is the worker's parent."""
GIVEN = ("dataset", "collate_fn", "init_fn")
"""Arguments of torch's loop that lead to objects of the user's, by their names there."""
ITERATOR = "iterator"
"""What a pass over an iterable dataset is called where no generator has a better name."""


@dataclass(frozen=True)
class Place:
    """Where a worker records and what it is called: all that crosses into another process."""

    run_path: str
    options: str
    """What :meth:`SessionOptions.to_json` wrote."""
    project_root: str
    rank: int = 0
    world_size: int = 1
    attempt: int = 0
    loader: int = 0
    generation: int = 0
    """How often the loader had started workers before."""
    start_method: str = ""
    parent: int = 0
    """Process id of the process that made the loader."""
    prefetch: int = 0
    """How many batches each worker may have loaded ahead."""
    census_seconds: float = 0.0
    """What a census cost in the loader's workers before; 0 where nobody knows."""


class WorkerLoop:
    """Stands in for torch's ``_worker_loop``: calls it, with a recording around it."""

    def __init__(
        self,
        place: Place,
        original: Callable[..., Any] | None = None,
        cost: CensusCost | None = None,
    ) -> None:
        self._place = place
        self._original = original
        self._cost = cost

    def __reduce__(self) -> tuple[type[WorkerLoop], tuple[Place]]:
        """Cross to a spawned worker, where torch's own loop is at hand."""
        return WorkerLoop, (self._place,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run torch's loop to its end; whatever it raises goes on."""
        loop = self._original or _loop_of_torch()
        _tell_the_parent(self._place)
        worker = _started(self._place, loop, args, kwargs)
        try:
            return loop(*args, **kwargs)
        except BaseException as error:
            without_our_frame(error)
            raise
        finally:
            if worker is not None:
                worker.close()
                worker.hand_on(self._cost)


class WorkerSession:
    """Records one worker: a pass begins with each new fetcher, a batch ends with each fetch."""

    def __init__(
        self, session: Session, batches: BatchProbe, given: dict[str, object], costs: Costs
    ) -> None:
        self._session = session
        self._costs = costs
        self._batches = batches
        self._given = given
        self._fetcher: object = None
        self._phase: Any = None
        self._depth = 0
        self._patches: list[PatchedMethod] = []

    def listen(self) -> None:
        """Begin to hear of batches, in this process alone."""
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

    def hand_on(self, cost: CensusCost | None) -> None:
        """Tell the workers that come after this one what a census costs."""
        if cost is not None:
            cost.hand_on(self._costs)

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        hear = self._session.gate.hear

        @functools.wraps(original)
        def fetch(fetcher: Any, *args: Any) -> Any:
            if self._depth:  # a loader that the dataset itself iterates over
                return original(fetcher, *args)
            self._depth += 1
            hear(self._asked, fetcher)
            try:
                batch = original(fetcher, *args)
            except BaseException as error:
                without_our_frame(error)
                raise
            finally:
                self._depth -= 1
            hear(self._fetched, batch)
            return batch

        return fetch

    def _asked(self, fetcher: object) -> None:
        if fetcher is self._fetcher:
            return
        tracker = self._session.tracker
        if self._phase is not None:
            tracker.phase_end(self._phase)
        self._fetcher = fetcher  # torch's loop keeps it as long
        self._follow(getattr(fetcher, "dataset_iter", None))
        self._phase = tracker.phase_begin(A_PASS)
        tracker.steps_begin()

    def _follow(self, iterator: object) -> None:
        """Begin censuses at what an iterable dataset runs over, too: torch's fetcher alone has it.

        A dataset that is its own iterator has a better name already.
        """
        self._given.pop(ITERATOR, None)
        if iterator is not None and iterator is not self._given.get("dataset"):
            self._given[ITERATOR] = iterator

    def _fetched(self, batch: object) -> None:
        self._batches.see(batch)
        self._session.tracker.steps_next(self._phase)


def _tell_the_parent(place: Place) -> None:
    """Have torch's loop end with the process that made the loader, in this worker.

    The loop ends when its parent is another than when it began. One that is killed while its worker
    still starts, and our own part of that takes a while, would never be another again, and the
    worker would wait for good.
    """
    if place.start_method not in _STARTED_BY_PARENT:
        return
    try:
        from torch.utils.data._utils.worker import ManagerWatchdog

        PatchedMethod(ManagerWatchdog, "__init__", lambda original: _knowing(original, place))
    except Exception:
        return


def _knowing(original: Callable[..., None], place: Place) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(watchdog: Any) -> None:  # noqa: N807
        original(watchdog)
        watchdog.manager_pid = place.parent

    return __init__


def _started(
    place: Place, loop: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> WorkerSession | None:
    """Return a worker that is being recorded; None where that can't be."""
    try:
        named = inspect.signature(loop).bind(*args, **kwargs).arguments
        given = {name: named[name] for name in GIVEN if named.get(name) is not None}
        batches, costs = BatchProbe(), costs_with(place.census_seconds)
        session = _session(place, int(named["worker_id"]), given, batches, costs)
        if session is None:
            return None
        session.begin()
        worker = WorkerSession(session, batches, given, costs)
        worker.listen()
        return worker
    except ours(Exception):
        return None


def _session(
    place: Place, worker: int, given: dict[str, object], batches: BatchProbe, costs: Costs
) -> Session | None:
    from leakscope.heap import CensusTaker
    from leakscope.probes import AllocationWindow, worker_probes
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
    writer = RecordingWriter(path, _header(place, worker))
    if writer.failed:
        return None
    taker = CensusTaker(project_root=place.project_root, given=given)
    _prepare(taker, costs)
    return Session(
        options,
        path,
        writer=writer,
        taker=taker,
        probes=[*worker_probes(batches), CopiesReader(taker)],
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


def _header(place: Place, worker: int) -> HeaderRecord:
    return HeaderRecord(
        role="worker",
        rank=place.rank,
        world_size=place.world_size,
        attempt=place.attempt,
        worker=worker,
        pid=os.getpid(),
        host=socket.gethostname(),
        started=time.time(),
        loader=place.loader,
        generation=place.generation,
        start_method=place.start_method,
        parent=place.parent,
        prefetch=place.prefetch,
    )


def _loop_of_torch() -> Callable[..., Any]:
    from torch.utils.data._utils.worker import _worker_loop

    loop: Callable[..., Any] = _worker_loop
    return loop
