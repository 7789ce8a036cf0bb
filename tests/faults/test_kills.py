"""`kill -9` at any moment: all that was recorded is in the report, with its true end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import fault_runs
import pytest

from leakscope.analysis import analyse
from leakscope.recording import open_run
from leakscope.report import render_html

ACKNOWLEDGED = "acknowledged"
ENDLESS = r"""
import os
import leakscope
from leakscope.model.record import BoundaryRecord
from leakscope.recording import RecordingWriter

acknowledged = os.open("acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
plain = RecordingWriter.write


def write(writer, record, *, sync=False):
    is_written = plain(writer, record, sync=sync)
    if is_written and isinstance(record, BoundaryRecord):
        os.write(acknowledged, b"%d\n" % record.boundary.index)
    return is_written


RecordingWriter.write = write
weights, kept = [0.0] * 20, []
print(os.getpid(), flush=True)
with leakscope.profile(quiet=True) as scope:
    for epoch in scope.epochs(range(10**6)):
        for step in scope.steps(range(20)):
            weights = [w - 0.1 * (w - step) for w in weights]
            kept.append(bytes(3000))
        with scope.phase("validation"):
            predictions = [bytes(5000) for _ in weights]
"""


def killed(folder: Path, after_s: float) -> int:
    """Record a training, kill it after a while and return the exit status of leakscope."""
    words = fault_runs.run_words(ENDLESS, folder, "--budget", "100%", "--no-report", "-q")
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=fault_runs.environment(),
    )
    assert process.stdout is not None
    program = int(process.stdout.readline())
    time.sleep(after_s)
    os.kill(program, signal.SIGKILL)
    _, reported = process.communicate(timeout=fault_runs.PATIENCE_S)
    assert reported == ""
    return process.returncode


MOMENTS = [
    pytest.param(
        random.Random(seed).uniform(0.0, 0.5),
        marks=[pytest.mark.slow] * (seed > 1) + [pytest.mark.corpus] * (seed >= 15),
    )
    for seed in range(50)
]


@pytest.mark.parametrize("after_s", MOMENTS)
def test_a_kill_loses_at_most_the_record_being_written(after_s: float, tmp_path: Path) -> None:
    assert killed(tmp_path, after_s) == -signal.SIGKILL
    run = open_run(tmp_path / fault_runs.RUN)
    recording = run.main
    known = [measurement.boundary.index for measurement in recording.measurements]
    acknowledged = [int(line) for line in (tmp_path / ACKNOWLEDGED).read_text().split()]
    assert acknowledged == known[1 : len(acknowledged) + 1]
    assert len(known) <= len(acknowledged) + 2, "those of before, and the one not acknowledged yet"
    assert len(recording.damage) <= 2, "the record being written, and the census it left alone"
    report = analyse(run)
    assert "killed by SIGKILL" in report.run.ended
    assert len(report.errors) == len(recording.damage)
    assert render_html(report)


@pytest.mark.slow
def test_a_killed_training_has_its_report(tmp_path: Path) -> None:
    program = """
        import os, signal
        from real_training import train
        train(at_step=lambda step: step == 20 and os.kill(os.getpid(), signal.SIGKILL))
    """
    ended = fault_runs.recorded("if True:" + program, tmp_path)
    assert ended.code == -signal.SIGKILL
    report = fault_runs.report_of(tmp_path)
    assert report["work"]["steps"] in (19, 20)
    assert "SIGKILL" in report["run"]["ended"]
    assert report["errors"] == []
    assert "SIGKILL" in (tmp_path / "run" / "report.html").read_text()


KILLED_AT_RENAME = """
import os, pathlib, signal, sys

target, moment = sys.argv.pop(1), sys.argv.pop(1)


def dying(rename):
    def renamed(source, final, **options):
        if os.path.basename(final) != target:
            return rename(source, final, **options)
        if moment == "after":
            rename(source, final, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    return renamed


os.link, os.replace = dying(os.link), dying(os.replace)
pathlib.Path.replace = lambda path, final: os.replace(path, final)
from leakscope.cli import main
main()
"""
MARKS = "import leakscope\nwith leakscope.profile(quiet=True) as scope: scope.mark('here')\n"


def killed_at_rename(target: str, moment: str, folder: Path) -> fault_runs.Ended:
    (folder / "program.py").write_text(MARKS)
    own = ("-c", KILLED_AT_RENAME, target, moment)
    return fault_runs.python(*own, "run", "--out", "run", "program.py", folder=folder)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "target",
    [
        "outcome.json",
        *(pytest.param(f"report.{s}", marks=pytest.mark.slow) for s in ("json", "html")),
    ],
)
def test_a_kill_while_a_file_is_renamed_leaves_the_recording_whole(
    target: str, moment: str, tmp_path: Path
) -> None:
    ended = killed_at_rename(target, moment, tmp_path)
    assert ended.code == -signal.SIGKILL
    assert (tmp_path / "run" / target).exists() == (moment == "after")
    report = fault_runs.report_again(tmp_path)
    assert report["errors"] == []
    assert report["run"]["ended"] == "completed"


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_while_the_manifest_is_renamed_leaves_room_for_another_run(
    moment: str, tmp_path: Path
) -> None:
    ended = killed_at_rename("run.json", moment, tmp_path)
    assert (ended.code, ended.out) == (-signal.SIGKILL, "")
    refused = fault_runs.leakscope("report", "run", folder=tmp_path)
    assert refused.code == 1
    assert refused.err.count("\n") == 1
    again = fault_runs.recorded(MARKS, tmp_path, "-q", *(["--force"] * (moment == "after")))
    assert again.code == 0
    assert fault_runs.report_of(tmp_path)["errors"] == []
