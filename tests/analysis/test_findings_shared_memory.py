"""What piles up in shared memory: files with names, descriptors of files without, and what is sent
and not received.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from synthetic_runs import KIB, MIB, Program, Size

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.census import SHARED
from leakscope.model.record import HeaderRecord
from leakscope.model.report import Finding, Report, RunVerdict
from leakscope.model.run import Measurement, Run


def with_files(size: Size, epochs: int) -> Report:
    return analyse(Program(epochs=epochs, validation=0).gauge(gauge.SHM_FILES, size).build())


def found(report: Report, kind: str = "shared_memory") -> Finding:
    return next(f for f in report.findings if f.kind == kind)


@pytest.mark.parametrize("epochs", [4, 5, 8])
def test_files_that_pile_up_are_reported_however_few_epochs_a_run_has(epochs):
    report = with_files(lambda s: s.step * MIB, epochs)
    assert report.verdict is RunVerdict.LEAK
    assert found(report).bytes_per_unit == pytest.approx(40 * MIB)


def test_all_that_came_is_reported_though_the_first_epochs_are_no_part_of_the_rate():
    report = with_files(lambda s: s.step * MIB, 5)
    assert found(report).text.startswith("200 MiB of named files came to /dev/shm in this run")
    assert found(report).total_bytes == 200 * MIB


def test_files_that_only_came_between_the_first_of_few_epochs_are_not_reported():
    report = with_files(lambda s: min(s.epochs_done, 2) * 40 * MIB + s.step, 5)
    assert not report.findings


def test_files_that_come_and_go_within_the_epochs_of_a_short_run_are_not_reported():
    in_use = with_files(lambda s: (s.batch % 40) * 10 * MIB + s.epochs_done * 2 * MIB, 5)
    assert not in_use.findings


@pytest.mark.parametrize(("children", "verdict"), [(0, RunVerdict.CLEAN), (2, RunVerdict.LEAK)])
def test_a_program_that_shares_with_nobody_is_not_accused_of_files_that_bear_no_name(
    children, verdict
):
    program = Program(epochs=8, validation=0).gauge(gauge.SHM_FILES, lambda s: s.step * MIB)
    report = analyse(program.gauge(gauge.CHILDREN, lambda _: children).build())
    assert report.verdict is verdict
    assert ("had no child process" in found(report).text) is (children == 0)


def test_a_program_without_children_that_makes_segments_is_accused():
    program = Program(epochs=8, validation=0).gauge(gauge.SHM_FILES, lambda s: s.step * MIB)
    run = program.gauge(gauge.CHILDREN, lambda _: 0).build()
    run.main.sources["train.py"] = (
        "from multiprocessing.shared_memory import SharedMemory\n\n\n"
        "def batch(size):\n    return SharedMemory(create=True, size=size)\n"
    )
    assert analyse(run).verdict is RunVerdict.LEAK
    assert found(analyse(run)).fed_at == ["train.py:5"]


def test_descriptors_that_pile_up_are_reported_in_five_epochs():
    program = Program(epochs=5, validation=0).gauge(gauge.SHARED_DESCRIPTORS, lambda s: s.step)
    program.gauge(gauge.OPEN_FILES, lambda s: 10 + s.step)
    report = analyse(program.gauge(gauge.OPEN_FILES_LIMIT, lambda s: 1024).build())
    assert "40 per epoch" in found(report, "shared_descriptors").text


def test_open_files_are_counted_while_the_program_runs_and_not_when_it_has_closed_them():
    program = Program(epochs=8, validation=0).gauge(gauge.SHARED_DESCRIPTORS, lambda s: s.step)
    program.gauge(gauge.OPEN_FILES, lambda s: 10 + s.step if s.phase else 10)
    report = analyse(program.gauge(gauge.OPEN_FILES_LIMIT, lambda s: 20_000).build())
    assert "Of 20,000 that may be open 330 were." in found(report, "shared_descriptors").text


HANDLES = gauge.registry("sent-handles")


def that_sends(size: Size, *, is_counted: bool = True) -> Program:
    """Return a program that keeps so much and hasn't mapped it, in one handle for each step."""
    program = Program(epochs=8, validation=0).gauge(gauge.SHM_UNMAPPED, size)
    if is_counted:
        program.gauge(HANDLES, lambda s: s.step)
        program.gauge(gauge.SHARED_DESCRIPTORS, lambda s: s.step)
        program.gauge(gauge.OPEN_FILES, lambda s: 10 + s.step)
    return program


def sending(run: Run) -> Run:
    run.main.sources["train.py"] = (
        "from torch import multiprocessing as mp\n\n\ndef train(loader):\n"
        "    queue = mp.SimpleQueue()\n    for batch in loader:\n        queue.put(batch)\n"
    )
    return run


def test_shared_memory_that_was_sent_and_not_received_is_a_leak_with_the_line_that_sends():
    report = analyse(sending(that_sends(lambda s: s.step * MIB / 16).build()))
    assert report.verdict is RunVerdict.LEAK
    assert [f.kind for f in report.findings if f.kind != "registry"] == ["shared_memory"]
    sent = found(report)
    assert sent.title == "Shared memory that was sent is not received"
    assert sent.bytes_per_unit == pytest.approx(2.5 * MIB)
    assert sent.fed_at == ["train.py:7"]
    assert "more handles that wait for their receiver came with it" in sent.text
    assert "registry" not in {f.kind for f in report.findings}


def test_what_a_descriptor_alone_keeps_is_a_leak_though_nothing_was_sent():
    report = analyse(that_sends(lambda s: s.step * MIB / 16, is_counted=False).build())
    assert report.verdict is RunVerdict.LEAK
    assert found(report).title == "Shared memory is kept by descriptors alone"


@pytest.mark.parametrize(
    "size",
    [
        lambda s: min(s.step, 16) * MIB,
        lambda s: s.batch % 8 * MIB,
        lambda s: 40 * MIB,
        lambda s: s.step * 4 * KIB,
    ],
    ids=["filled", "received", "constant", "little"],
)
def test_what_comes_to_a_bound_or_is_received_is_no_leak(size):
    report = analyse(sending(that_sends(size, is_counted=False).build()))
    assert report.verdict is RunVerdict.CLEAN
    assert not report.findings


def test_descriptors_of_little_that_was_sent_are_noted_as_such():
    report = analyse(sending(that_sends(lambda s: s.step * 4 * KIB).build()))
    assert report.verdict is RunVerdict.CLEAN
    assert "each belongs to a tensor that was sent and not received" in (
        found(report, "shared_descriptors").text
    )


def by_name(size: Size) -> Program:
    program = that_sends(size, is_counted=False).gauge(gauge.SHM_FILES, size)
    return program.gauge(gauge.CHILDREN, lambda _: 1)


@pytest.mark.parametrize("each", [MIB / 32, MIB])
def test_files_of_what_was_sent_are_reported_once_and_where_they_are_little(each):
    report = analyse(sending(by_name(lambda s: s.step * each).build()))
    assert report.verdict is RunVerdict.LEAK
    assert [f.kind for f in report.findings] == ["shared_memory"]
    assert "Torch made these files" in found(report).text
    assert found(report).fed_at == ["train.py:7"]


def sent_by_a_child(named: Callable[[int], float], *, by_another: bool = False) -> Run:
    """Return a run with a child that sends by name, and what is named of that in the main process
    or in another child.
    """
    run = Program(epochs=8, validation=0).gauge(gauge.SHM_FILES, lambda s: s.step * MIB).build()
    sender = by_name(lambda s: s.step * MIB).build().main
    receiver = run.main
    run.recordings.append(replace(sender, header=child(1)))
    if by_another:
        receiver = replace(Program(epochs=8, validation=0).build().main, header=child(2))
        run.recordings.append(receiver)
    receiver.measurements = [naming(m, named) for m in receiver.measurements]
    return sending(run)


def child(number: int) -> HeaderRecord:
    facts = {"parent": 1, "start_method": "spawn", "host": "here"}
    return HeaderRecord(role="child", child=number, pid=1 + number, **facts)


def naming(measurement: Measurement, named: Callable[[int], float]) -> Measurement:
    if measurement.census is None:
        return measurement
    shared = {SHARED: round(named(measurement.boundary.step))}
    census = msgspec.structs.replace(measurement.census, payload_bytes=shared)
    return replace(measurement, census=census)


def test_files_that_a_child_sent_are_reported_once_for_all_processes():
    report = analyse(sent_by_a_child(lambda step: 0))
    assert report.verdict is RunVerdict.LEAK
    assert [(f.kind, f.fed_at) for f in report.findings] == [("shared_memory", ["train.py:7"])]
    assert found(report).title == "Shared memory that was sent is not received"


@pytest.mark.parametrize("by_another", [False, True])
def test_files_that_a_child_sent_are_none_of_its_where_the_receiver_has_a_name_for_them(by_another):
    report = analyse(sent_by_a_child(lambda step: step * MIB, by_another=by_another))
    assert "shared_memory" not in {f.kind for f in report.findings}
