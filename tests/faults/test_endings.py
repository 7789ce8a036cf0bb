"""However the program ends, it ends as without leakscope, and the report says how."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fault_runs
import pytest

KEEPING = """
import ctypes, faulthandler, os, signal, sys, threading
import leakscope

kept = []
with leakscope.profile(quiet=True) as scope:
    for step in scope.steps(range(40)):
        kept.append(bytes(3000))
    print("result", len(kept), flush=True)
    {ending}
"""
ENDINGS = {
    "os._exit": ("os._exit(3)", 3, "ended with exit code 3 (no closing record)"),
    "os.abort": ("os.abort()", -signal.SIGABRT, "killed by signal 6"),
    "segmentation fault": ("ctypes.string_at(0)", -signal.SIGSEGV, "killed by signal 11"),
    "sys.exit": ("sys.exit(4)", 4, "exit code 4"),
    "sys.exit with words": ("sys.exit('no more data')", 1, "exit code 1"),
    "exec": (
        "os.execv(sys.executable, [sys.executable, '-c', 'raise SystemExit(5)'])", 5, "exit code 5"
    ),
    "exit of a thread": (
        "t = threading.Thread(target=sys.exit, args=(6,)); t.start(); t.join()", 0, "completed"
    ),
    "fault of a thread": (
        "t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()", 0, "completed"
    ),
    "exception": ("raise ValueError('no such batch')", 1, "exception: ValueError: no such batch"),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    fault_runs.mostly_slow(
        ENDINGS, "os._exit", "segmentation fault", "sys.exit", "exit of a thread"
    ),
)
def test_a_program_ends_as_it_would_alone(name: str, tmp_path: Path) -> None:
    ending, code, reported = ENDINGS[name]
    program = KEEPING.format(ending=ending)
    plain = fault_runs.python(
        *fault_runs.run_words(program, tmp_path)[-1:], folder=tmp_path, LEAKSCOPE="off"
    )
    words = fault_runs.run_words(program, tmp_path, "--no-report", "-q")
    ended = fault_runs.python(*words, folder=tmp_path)
    assert (ended.code, ended.out) == (plain.code, plain.out) == (code, "result 40\n")
    assert ended.err == plain.err
    report = fault_runs.report_again(tmp_path)
    assert reported in report["run"]["ended"]
    assert report["work"]["steps"] in (39, 40)
    assert report["errors"] == []


PREEMPTED = """
import os, signal, sys, time
from real_training import train

saved = []


def save(number, frame):
    saved.append(number)


{handling}


def at_step(step):
    if step == 10:
        print("begun", os.getpid(), flush=True)
        deadline = time.monotonic() + 30
        while not saved and time.monotonic() < deadline:
            time.sleep(0.01)


train(at_step=at_step)
print("saved", saved)
sys.exit(9)
"""


def terminated(handling: str, folder: Path) -> tuple[int, str, str]:
    """Record a training that gets SIGTERM in the middle, as schedulers send it."""
    words = fault_runs.run_words(PREEMPTED.format(handling=handling), folder, "--no-report", "-q")
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=fault_runs.environment(),
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("begun")
    time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=fault_runs.PATIENCE_S)
    return process.returncode, out, err


@pytest.mark.slow
def test_a_handler_of_the_programs_takes_sigterm(tmp_path: Path, expected: str) -> None:
    code, out, err = terminated("signal.signal(signal.SIGTERM, save)", tmp_path)
    assert (code, err) == (9, "")
    assert out.splitlines() == [expected, "saved [15]"]
    assert fault_runs.report_again(tmp_path)["run"]["ended"] == "exit code 9"


@pytest.mark.slow
def test_without_one_sigterm_ends_both_and_the_report_says_so(tmp_path: Path) -> None:
    code, out, err = terminated("", tmp_path)
    assert (code, out, err) == (-signal.SIGTERM, "", "")
    report = fault_runs.report_again(tmp_path)
    assert "signal 15" in report["run"]["ended"]
    assert report["work"]["steps"] in (9, 10, 11)


def test_files_named_like_libraries_of_ours_stop_no_report(tmp_path: Path) -> None:
    for name in ("click", "jinja2", "msgspec", "rich", "leakscope_report"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not meant for leakscope')\n")
    (tmp_path / "below").mkdir()
    program = tmp_path / "below" / "program.py"
    program.write_text("import leakscope\nwith leakscope.profile('run'): print('result')\n")
    ended = fault_runs.python(str(program), folder=tmp_path)
    fault_runs.assert_no_traceback_of_ours(ended)
    assert (ended.code, ended.out) == (0, "result\n")
    assert fault_runs.report_of(tmp_path)["run"]["ended"] == "completed"
