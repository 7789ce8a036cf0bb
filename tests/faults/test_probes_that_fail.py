"""Each probe in turn fails: the training learns the same, and the report says which one failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fault_runs
import pytest

from leakscope.capture.gauges import default_probes

PROBES = [probe.name for probe in default_probes()]
FAULTS = {
    "an exception": "RuntimeError('no such source')",
    "no memory": "MemoryError()",
    "endless recursion": "RecursionError('maximum recursion depth exceeded')",
}
ONE_AFTER_THE_OTHER = """
import json, sys
from unittest import mock

import leakscope
from leakscope.capture.gauges import default_probes
from real_training import train


def failing(self):
    raise {fault}


for kind in map(type, default_probes()):
    with mock.patch.object(kind, "_measure", failing):
        with leakscope.profile("runs/" + kind.name, report=False, quiet=True):
            train(epochs=2)
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """What is learnt while one probe after the other fails, and where the runs are."""
    folder = tmp_path_factory.mktemp("probes")
    program = ONE_AFTER_THE_OTHER.format(fault=FAULTS["an exception"])
    (folder / "program.py").write_text(program)
    ended = fault_runs.python("program.py", folder=folder)
    fault_runs.assert_no_traceback_of_ours(ended)
    assert ended.code == 0, ended.err
    return ended.out.splitlines(), folder / "runs"


def report(run: Path) -> dict[str, Any]:
    from leakscope.analysis import analyse
    from leakscope.recording import open_run
    from leakscope.report import render_json

    document: dict[str, Any] = json.loads(render_json(analyse(open_run(run))))
    return document


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_that_fails_costs_its_gauges_and_is_reported(
    name: str, reports: tuple[list[str], Path]
) -> None:
    results, runs = reports
    assert len(results) == len(PROBES)
    assert len(set(results)) == 1
    reported = report(runs / name)
    assert reported["run"]["ended"] == "completed"
    assert reported["work"]["steps"] == 16
    mine = [item for item in reported["errors"] if item["where"] == f"probe {name}"]
    assert mine == reported["errors"]
    assert 1 <= len(mine) <= 3
    assert all("RuntimeError: no such source (" in item["message"] for item in mine)
    assert all("switched off" in item["message"] for item in mine[2:])


EVERYTHING_FAILS = """
from unittest import mock

from leakscope.heap import CensusTaker
from leakscope.capture.sites import SourceTexts as Sources
from leakscope.capture.tracing import AllocationWindows
from leakscope.capture.gauges import default_probes
from real_training import train


def failing(*arguments, **options):
    raise {fault}


for kind in map(type, default_probes()):
    kind._measure = failing
CensusTaker.take = AllocationWindows.learn = Sources.new = failing
train()
"""


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_where_everything_fails_the_training_learns_the_same(
    fault: str, tmp_path: Path, expected: str
) -> None:
    program = EVERYTHING_FAILS.format(fault=FAULTS[fault])
    ended = fault_runs.recorded(program, tmp_path)
    assert (ended.code, ended.result) == (0, expected)
    reported = fault_runs.report_of(tmp_path)
    kind = FAULTS[fault].partition("(")[0]
    for name in ("probe process", "census"):
        assert f"{name}: {kind}" in fault_runs.problems(reported)
    assert reported["verdict"] == "inconclusive"


PARTS = """
from unittest import mock
import sys
from leakscope.capture import measuring, schedule, session, phase_stack as stack
from leakscope.recording import RecordingWriter
from real_training import train

place, name = sys.argv[1].rsplit(".", 1)


def failing(*arguments, **options):
    raise RuntimeError("ours")


owner = eval(place)
setattr(owner, name, failing)
train()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        "stack.PhaseStack.begin",
        "schedule.Schedule.due",
        "session.Session._describe",
        "measuring.Measuring.at",
        "RecordingWriter.write",
    ],
)
def test_any_part_that_fails_is_switched_off(part: str, tmp_path: Path, expected: str) -> None:
    words = [*fault_runs.run_words(PARTS, tmp_path, "--no-report"), part]
    ended = fault_runs.python(*words, folder=tmp_path)
    fault_runs.assert_no_traceback_of_ours(ended)
    assert (ended.code, ended.result) == (0, expected)
    if part != "RecordingWriter.write":
        assert "RuntimeError: ours" in fault_runs.problems(fault_runs.report_again(tmp_path))
