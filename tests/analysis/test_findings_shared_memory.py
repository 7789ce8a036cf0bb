"""What piles up in shared memory: files with names, and descriptors of files without."""

from __future__ import annotations

import pytest
from synthetic_runs import MIB, Program, Size

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.report import Finding, Report, RunVerdict


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
