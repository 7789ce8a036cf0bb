"""Tasks and threads by what they run, and those that nothing else can wake."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import types
import weakref

import pytest

from leakscope.heap import waiting as heap_waiting
from leakscope.heap.census import CensusTaker
from leakscope.model.census import CensusScope, Waiting, WaitKind

PROGRAM = """
import asyncio, queue, threading, time, weakref

gate = threading.Event()


class Service:
    def __init__(self):
        self.tasks = set()
        self.stop = asyncio.Event()
        self.queue = asyncio.Queue()
        self.replies = {}

    def start(self, coroutine):
        self.tasks.add(asyncio.create_task(coroutine))

    async def own_event(self):
        await asyncio.Event().wait()

    async def own_future(self):
        await asyncio.get_running_loop().create_future()

    async def own_queue(self):
        queue = asyncio.Queue()
        await queue.get()

    async def sleeps(self):
        await asyncio.sleep(3600)

    async def stops(self):
        await self.stop.wait()

    async def gets(self):
        await self.queue.get()

    async def replies_to(self, number):
        self.replies[number] = reply = asyncio.get_running_loop().create_future()
        await reply

    async def weakly(self):
        event = asyncio.Event()
        known.add(event)
        await event.wait()

    async def gathers(self):
        await asyncio.gather(asyncio.sleep(1000), asyncio.sleep(1000))

    async def in_thread(self):
        await asyncio.to_thread(gate.wait)


class Watcher:
    def __init__(self, function):
        self.stop = threading.Event()
        self.queue = queue.Queue()
        threading.Thread(target=getattr(self, function), daemon=True).start()

    def own_event_of_thread(self):
        self.stop.wait()

    def common_event(self):
        gate.wait()

    def busy(self):
        while not gate.is_set():
            time.sleep(0.005)


kept = []
known = weakref.WeakSet()


class Kept(Watcher):
    def kept_event(self):
        self.stop.wait()


async def crawl(take):
    service = Service()
    for number in range(5):
        for coroutine in (
            service.own_event(), service.own_future(), service.own_queue(), service.sleeps(),
            service.stops(), service.gets(), service.replies_to(number), service.gathers(),
            service.in_thread(), service.weakly(),
        ):
            service.start(coroutine)
        for function in ("own_event_of_thread", "common_event", "busy"):
            Watcher(function)
        kept.append(Kept("kept_event"))
    await asyncio.sleep(0.05)
    found = await asyncio.get_running_loop().run_in_executor(None, take)
    gate.set()
    for each in kept:
        each.stop.set()
    return found
"""


@pytest.fixture(scope="module")
def groups(tmp_path_factory) -> dict[str, Waiting]:
    """Return what a census tells; threads that nothing can wake end with the process."""
    folder = tmp_path_factory.mktemp("service")
    file = folder / "service.py"
    program = types.ModuleType("service")
    program.__file__ = str(file)
    exec(compile(PROGRAM, str(file), "exec"), vars(program))
    taker = CensusTaker(project_root=str(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heap_waiting, "MOST_GROUPS", 50)
        census = asyncio.run(program.crawl(lambda: taker.take(CensusScope.FOCUSED)))
    return {group.name: group for group in census.waiting}


def test_they_are_reported_by_function_and_place(groups):
    sleeps = groups["Service.sleeps"]
    assert (sleeps.kind, sleeps.count) == (WaitKind.TASK, 5)
    lines = PROGRAM.splitlines()
    assert lines[sleeps.line - 1].strip() == "async def sleeps(self):"
    (place,) = sleeps.places
    assert (place.count, place.function, place.at) == (5, "Service.sleeps", "asyncio.sleep")
    assert lines[place.line - 1].strip() == "await asyncio.sleep(3600)"
    assert groups["Service.own_queue"].places[0].at == "asyncio.Queue.get"
    thread = groups["Watcher.common_event"]
    assert (thread.kind, thread.count) == (WaitKind.THREAD, 5)
    assert thread.places[0].at == "threading.Event.wait"
    assert groups["concurrent.futures.thread._worker"].count >= 5
    assert groups["asyncio.sleep"].count == 10


def test_only_those_are_lost_whose_future_or_event_nobody_else_has(groups):
    lost = {name for name, group in groups.items() if group.lost}
    assert lost == {
        "Service.own_event",
        "Service.own_future",
        "Service.own_queue",
        "Watcher.own_event_of_thread",
    }
    assert groups["Service.own_event"].lost == 5


def test_of_very_many_some_are_looked_at_and_their_number_is_right(tmp_path, monkeypatch):
    monkeypatch.setattr(heap_waiting, "MOST_LOOKED_AT", 100)
    taker = CensusTaker(project_root=str(tmp_path))

    async def beat() -> None:
        await asyncio.sleep(60)

    async def many() -> list[Waiting]:
        tasks = [asyncio.create_task(beat()) for _ in range(1000)]
        await asyncio.sleep(0)
        found = taker.waiting()
        for task in tasks:
            task.cancel()
        return found

    (group,) = (g for g in asyncio.run(many()) if g.kind is WaitKind.TASK)
    assert group.count == pytest.approx(1000, rel=0.05)


def test_looking_keeps_nothing_alive_and_changes_nothing(tmp_path):
    taker = CensusTaker(project_root=str(tmp_path))

    async def look() -> None:
        event = asyncio.Event()
        tasks = [asyncio.create_task(event.wait()) for _ in range(8)]
        await asyncio.sleep(0)
        before = [sys.getrefcount(task) for task in tasks], sys.getrefcount(event)
        for _ in range(3):
            await asyncio.get_running_loop().run_in_executor(None, taker.take, CensusScope.FOCUSED)
        await asyncio.sleep(0)
        gc.collect()
        assert ([sys.getrefcount(task) for task in tasks], sys.getrefcount(event)) == before
        event.set()
        await asyncio.gather(*tasks)

    asyncio.run(look())


def test_looking_makes_no_circles_that_keep_frames_alive(tmp_path):
    taker = CensusTaker(project_root=str(tmp_path))
    ready, end = threading.Event(), threading.Event()

    class Kept:
        pass

    def wait(kept: Kept) -> None:
        ready.set()
        end.wait()

    def look(kept: Kept) -> None:
        taker.waiting()
        taker.take(CensusScope.FOCUSED)

    for _ in range(2):  # what the first census learns stays
        each = Kept()
        thread = threading.Thread(target=wait, args=(each,))
        thread.start()
        ready.wait()
        gc.collect()
        gc.disable()
        try:
            look(each)
            end.set()
            thread.join()
            reference = weakref.ref(each)
            del each, thread
            assert reference() is None
        finally:
            gc.enable()
        end.clear()


class AsyncioOf314:
    """What CPython 3.14 has: a list of the tasks of a loop, which C keeps."""

    def __init__(self) -> None:
        core = sys.modules["_asyncio"]
        self.Task, self.Future = core.Task, core.Future
        self._get_running_loop = core._get_running_loop
        self.queried: list[object] = []

    def all_tasks(self, loop):
        self.queried.append(loop)
        return asyncio.all_tasks(loop)


def test_tasks_that_are_listed_in_c_alone_are_found_in_every_thread(monkeypatch):
    started, end = threading.Event(), threading.Event()
    loops = []

    async def wait():
        loops.append(asyncio.get_running_loop())
        tasks = [asyncio.create_task(asyncio.sleep(60), name="of another thread")]
        await asyncio.sleep(0)
        started.set()
        while not end.is_set():
            await asyncio.sleep(0.01)
        tasks[0].cancel()

    async def look():
        mine = asyncio.create_task(asyncio.sleep(60), name="of this thread")
        await asyncio.sleep(0)
        found = {task.get_name() for task in heap_waiting.alive_tasks()}
        mine.cancel()
        return found

    thread = threading.Thread(target=lambda: asyncio.run(wait()))
    thread.start()
    started.wait(10)
    core = AsyncioOf314()
    monkeypatch.setattr(heap_waiting, "_TASK_SETS", ())
    try:
        assert heap_waiting.alive_tasks() == []
        monkeypatch.setitem(sys.modules, "_asyncio", core)
        from_here = asyncio.run(look())
        from_outside = {task.get_name() for task in heap_waiting.alive_tasks()}
    finally:
        end.set()
        thread.join()
    assert {"of this thread", "of another thread"} <= from_here
    assert "of another thread" in from_outside
    assert loops[0] in core.queried


def test_what_a_running_coroutine_awaits_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython 3.11 may read the stack of a frame that runs, which it has none of, and crash."""
    read = []

    class Awaited:
        def __get__(self, coroutine: object, kind: object = None) -> object:
            read.append(coroutine)
            return vars(types.CoroutineType)["cr_await"].__get__(coroutine)

    monkeypatch.setitem(heap_waiting._AWAITED, types.CoroutineType, Awaited())
    found = {}

    async def waits() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        other = asyncio.create_task(waits())
        await asyncio.sleep(0)
        for task in (asyncio.current_task(), other):
            found[task is other] = [
                f.f_code.co_name for f in heap_waiting.awaiting(task.get_coro())
            ]
        other.cancel()

    asyncio.run(main())
    assert found == {False: ["main"], True: ["waits", "sleep"]}
    assert {coroutine.cr_code.co_name for coroutine in read} == {"waits", "sleep"}


def test_data_around_a_waiting_task_is_not_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of a server leads to all that the server keeps."""
    entered: list[int] = []
    referents = heap_waiting._referents
    monkeypatch.setattr(
        heap_waiting,
        "_referents",
        lambda obj: entered.append(len(found := referents(obj))) or found,
    )

    async def wait_for(event, kept):
        await event.wait()
        return kept

    async def main():
        event, kept = asyncio.Event(), {number: [number] for number in range(100_000)}
        tasks = [asyncio.create_task(wait_for(event, kept)) for _ in range(8)]
        await asyncio.sleep(0)
        taker = CensusTaker(project_root=".")
        taker.take(CensusScope.FOCUSED)
        first, entered[:] = list(entered), []
        taker.take(CensusScope.FOCUSED)
        event.set()
        await asyncio.gather(*tasks)
        return first

    first = asyncio.run(main())
    assert first
    assert max(first) < 10_000
    assert not entered, "there are no more of them than at the first look"
