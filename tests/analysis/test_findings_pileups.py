"""Tasks and threads that pile up are reported as what they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
from synthetic_runs import KIB, MIB, Program, Thing

from leakscope.analysis import analyse
from leakscope.analysis.source import SourceIndex
from leakscope.analysis.source.index import places_that_start
from leakscope.model import gauge
from leakscope.model.census import Content, Waiting, WaitKind, WaitPlace
from leakscope.model.report import Report, RunVerdict, Severity

FILE = "/project/service.py"
SOURCE = """import asyncio
import threading


class Service:
    def __init__(self):
        self.beats = set()

    async def heartbeat(self, name):
        while True:
            await asyncio.sleep(3600)

    def spawn(self, coroutine):
        task = asyncio.create_task(coroutine)
        self.beats.add(task)

    def handle(self, name):
        self.beats.add(asyncio.create_task(self.heartbeat(name)))

    async def other(self):
        await asyncio.sleep(1)

    def indirect(self):
        self.spawn(self.other())


class Watcher(threading.Thread):
    def run(self):
        threading.Event().wait()


def watch():
    Watcher().start()
    threading.Thread(target=beat, args=(1,)).start()


def beat(number):
    threading.Event().wait()
"""
BEATS = Waiting(
    kind=WaitKind.TASK,
    name="Service.heartbeat",
    file=FILE,
    line=9,
    count=0,
    places=[
        WaitPlace(count=1, file=FILE, line=11, function="Service.heartbeat", at="asyncio.sleep")
    ],
)


@pytest.mark.parametrize(
    ("name", "line", "places"),
    [
        ("Service.heartbeat", 9, ["service.py:18"]),
        ("Service.other", 20, ["service.py:24"]),
        ("Watcher.run", 28, ["service.py:33"]),
        ("beat", 37, ["service.py:34"]),
    ],
)
def test_the_lines_that_start_them_come_from_the_sources(name, line, places):
    sources = SourceIndex({FILE: SOURCE}, "/project")
    assert places_that_start(sources, name, FILE, line) == places


def report(
    count_at: Callable[[int], int], group: Waiting = BEATS, things: Sequence[Thing] = ()
) -> Report:
    """Return the report of a run in which so many tasks are alive after each epoch."""
    program = Program(epochs=12, things=[*things]).gauge(
        gauge.waiting(group.key), lambda state: count_at(state.epochs_done)
    )
    run = program.build()
    run.main.sources[FILE] = SOURCE
    for measurement in run.main.measurements:
        if measurement.census is not None:
            count = measurement.gauges[gauge.waiting(group.key)]
            places = [msgspec.structs.replace(place, count=count) for place in group.places]
            lost = count if group.lost else 0
            visited = msgspec.structs.replace(group, count=count, lost=lost, places=places)
            measurement.census.waiting.append(visited)
    return analyse(run)


def test_tasks_that_pile_up_are_a_leak_with_where_they_start_and_wait():
    found = report(lambda epoch: 100 * epoch)
    assert found.verdict is RunVerdict.LEAK
    (finding,) = (f for f in found.findings if f.kind == "tasks")
    assert finding.severity is Severity.WARNING
    assert "started at service.py:18" in finding.text
    assert "all wait at await asyncio.sleep (service.py:11)" in finding.text
    assert finding.remedy.title == "End the tasks of Service.heartbeat"
    assert "nothing can wake" not in finding.text


def test_those_that_nothing_can_wake_are_distinguished():
    lost = msgspec.structs.replace(BEATS, lost=1)
    (finding,) = (f for f in report(lambda epoch: 100 * epoch, lost).findings if f.kind == "tasks")
    assert "nothing can wake them" in finding.text


@pytest.mark.parametrize(
    "count_at", [lambda epoch: 200, lambda epoch: min(100 * epoch, 300), lambda epoch: epoch % 3]
)
def test_pools_and_tasks_that_come_and_go_are_none(count_at):
    found = report(count_at)
    assert found.verdict is RunVerdict.CLEAN
    assert not [f for f in found.findings if f.kind == "tasks"]


def test_their_registry_is_not_reported_next_to_them_nor_as_what_keeps_them():
    alive = gauge.registry("tasks")
    tasks = [lambda state: 100 * state.epochs_done, lambda state: 300 * state.epochs_done]
    program = Program(epochs=12).gauge(alive, tasks[1]).swell(lambda s: 2 * MIB * s.epochs_done)
    (finding,) = (f for f in analyse(program.build()).findings if f.kind == "registry")
    assert finding.title == "More and more live tasks"
    assert "keeps each" not in finding.text
    assert finding.remedy.title == "Let go of live tasks"
    program.gauge(gauge.waiting(BEATS.key), tasks[0])
    run = program.build()
    for measurement in run.main.measurements:
        if measurement.census is not None:
            count = measurement.gauges[gauge.waiting(BEATS.key)]
            measurement.census.waiting.append(msgspec.structs.replace(BEATS, count=count))
    report = analyse(run)
    assert [f.kind for f in report.findings if f.severity is not Severity.NOTE] == ["tasks"]
    assert "tasks that pile up" in {entry.label for entry in report.ledgers[0].entries}


@pytest.mark.parametrize("last", [900, 0])
def test_tasks_that_end_with_the_program_have_piled_up_until_then(last):
    """The clock may read while the program is taking them down."""
    program = Program(epochs=1, steps=12, validation=0)
    program.gauge(gauge.waiting(BEATS.key), lambda s: 100 * s.step if s.step < 12 else last)
    run = program.build()
    for measurement in run.main.measurements:
        if measurement.census is not None:
            measurement.census.waiting.append(msgspec.structs.replace(BEATS, count=1))
    assert "tasks" in {finding.kind for finding in analyse(run).findings}


def test_a_few_more_are_a_note():
    (finding,) = (f for f in report(lambda epoch: 2 * epoch).findings if f.kind == "tasks")
    assert finding.severity is Severity.NOTE


def container(path: str, holds: str, each: float) -> Thing:
    """Return a container that gains an item for each task."""
    return Thing(
        path,
        lambda state: 100 * state.epochs_done * each,
        "set",
        "set",
        length=lambda state: 100 * state.epochs_done,
        holds=(Content(type=holds, count=100, bytes=100),) if holds else (),
    )


@pytest.mark.parametrize("holds", ["_asyncio.Task", ""])
def test_what_keeps_them_is_reported_as_tasks_and_the_loops_timers_with_it(holds):
    beats = container("main()·service.beats", holds, 4 * KIB)
    timers = container("main()·loop._scheduled", "asyncio.events.TimerHandle", KIB)
    found = report(lambda epoch: 100 * epoch, things=[beats, timers])
    (culprit,) = found.culprits
    assert culprit.name == "main.service.beats"
    assert culprit.piled_up is not None
    assert culprit.piled_up.started_at == ["service.py:18"]
    assert culprit.bytes_per_unit == pytest.approx(500 * KIB, rel=0.1)
    assert culprit.remedy.title == "End the tasks of Service.heartbeat"
    assert "main.loop._scheduled grows with it" in culprit.sentence
    assert found.headline.startswith("Memory leaks: 1,100 tasks of Service.heartbeat wait at ")
    assert "main.service.beats keeps them and grows by 500 KiB per epoch" in found.headline
    assert not [f for f in found.findings if f.kind == "tasks"]


def test_what_gains_a_record_for_each_task_is_a_leak_of_its_own():
    beats = container("main()·service.beats", "_asyncio.Task", 4 * KIB)
    history = container("main()·service.history", "dict", 2 * KIB)
    found = report(lambda epoch: 100 * epoch, things=[beats, history])
    by_name = {culprit.name: culprit for culprit in found.culprits}
    assert by_name["main.service.beats"].piled_up is not None
    assert by_name["main.service.history"].piled_up is None
