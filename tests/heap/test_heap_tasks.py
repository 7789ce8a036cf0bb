"""Variables of asyncio's tasks, which have names though no frame of theirs is running."""

from __future__ import annotations

import asyncio
import types

import pytest

from leakscope.heap.census import CensusTaker
from leakscope.model.census import CensusRow, CensusScope
from leakscope.probes import native_allocations

MIB = 1 << 20
PROGRAM = """
import asyncio

async def look(take):
    await asyncio.sleep(0.01)
    return await asyncio.get_running_loop().run_in_executor(None, take)

async def worker(number, stop):
    session = {"cookies": [bytearray(1 << 20)]}
    await wait(stop)

async def wait(stop):
    waiting = [bytearray(1 << 18)]
    await stop.wait()

async def crawl(take, count):
    jar = [bytearray(1 << 21)]
    stop = asyncio.Event()
    workers = [asyncio.create_task(worker(number, stop)) for number in range(count)]
    census = await look(take)
    stop.set()
    await asyncio.gather(*workers)
    return census
"""


def rows_of(
    tmp_path, scope: CensusScope, count: int, source: str = PROGRAM
) -> dict[str, CensusRow]:
    """Take a census in another thread while all tasks of a program wait."""
    file = tmp_path / "service.py"
    program = types.ModuleType("service")
    program.__file__ = str(file)
    exec(compile(source, str(file), "exec"), vars(program))
    taker = CensusTaker(project_root=str(tmp_path))
    census = asyncio.run(program.crawl(lambda: taker.take(scope), count))
    vars(program).clear()
    return {row.path: row for row in census.rows}


@pytest.mark.parametrize("scope", list(CensusScope))
def test_what_waiting_tasks_hold_has_their_variables_names(tmp_path, scope):
    rows = rows_of(tmp_path, scope, 3)
    assert rows["crawl()·jar"].host_bytes == pytest.approx(2 * MIB, rel=0.05)
    session = rows["crawl()·workers[*].session"]
    assert (session.count, session.name) == (3, "worker.session")
    assert session.host_bytes == pytest.approx(3 * MIB, rel=0.05)
    waiting = rows["crawl()·workers[*].waiting"]
    assert (waiting.count, waiting.name) == (3, "wait.waiting")
    assert rows["crawl()·jar"].user


def test_a_program_without_tasks_has_no_such_names(tmp_path):
    rows = rows_of(tmp_path, CensusScope.FOCUSED, 0)
    assert "crawl()·jar" in rows
    assert not [row.name for row in rows.values() if row.name.startswith("worker.")]


UNANSWERED = """
import asyncio

async def look(take):
    await asyncio.sleep(0.01)
    return await asyncio.get_running_loop().run_in_executor(None, take)

class Gateway:
    def __init__(self):
        self.waiting = {}

    async def publish(self, number):
        payload = [bytearray(1 << 18)]
        self.waiting[number] = asyncio.get_running_loop().create_future()
        await self.waiting[number]

async def crawl(take, count):
    gateway = Gateway()
    for number in range(count):
        asyncio.create_task(gateway.publish(number))
    return await look(take)
"""


@pytest.mark.parametrize("scope", list(CensusScope))
def test_calls_that_wait_for_ever_hang_on_what_they_wait_in(tmp_path, scope):
    rows = rows_of(tmp_path, scope, 40, UNANSWERED)
    assert rows["crawl()·gateway.waiting"].host_bytes == pytest.approx(10 * MIB, rel=0.05)
    assert rows["crawl()·gateway.waiting"].length == 40


SCHEDULES = """
import asyncio

async def crawl(take, count):
    known = bytearray(1 << 20)
    asyncio.get_running_loop().call_later(3600, print, known)
    for _ in range(count):
        asyncio.get_running_loop().call_later(3600, print, [bytearray(1 << 18)])
    return await asyncio.get_running_loop().run_in_executor(None, take)
"""


@pytest.mark.parametrize("scope", list(CensusScope))
def test_what_timers_keep_has_the_name_of_their_loop(tmp_path, scope):
    rows = rows_of(tmp_path, scope, 12, SCHEDULES)
    timers = rows["asyncio·loop._scheduled"]
    assert timers.name == "loop._scheduled"
    assert timers.host_bytes == pytest.approx(3 * MIB, rel=0.05)
    assert rows["crawl()·known"].host_bytes == pytest.approx(MIB, rel=0.05)


TICKS = """
import asyncio

async def crawl(take, count):
    for _ in range(2):
        for _ in range(count):
            asyncio.get_running_loop().call_later(3600, print, bytes(3000))
            await asyncio.sleep(0.0005)
        census = await asyncio.get_running_loop().run_in_executor(None, take)
    return census
"""


def test_timers_are_fed_by_the_line_that_makes_those_that_stay(tmp_path, monkeypatch):
    """Pauses of the program make timers too, and the list's room is made for any of them."""
    pytest.importorskip("leakscope.probes._sampling", reason="it was not built here")
    monkeypatch.setattr(native_allocations, "PYTHON_INTERVAL_BYTES", 64)
    file = tmp_path / "service.py"
    program = types.ModuleType("service")
    program.__file__ = str(file)
    exec(compile(TICKS, str(file), "exec"), vars(program))
    profile = native_allocations.NativeProfile(seed=1, project_root=str(tmp_path))
    assert profile.start(), profile.why_not
    try:
        taker = CensusTaker(project_root=str(tmp_path), blocks=profile.blocks_of)
        census = asyncio.run(program.crawl(lambda: taker.take(CensusScope.FOCUSED), 400))
    finally:
        profile.stop()
        vars(program).clear()
    (timers,) = [row for row in census.rows if row.path == "asyncio·loop._scheduled"]
    assert timers.inserted_at[0].line == 7
