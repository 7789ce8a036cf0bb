"""Signals: what a user or a scheduler sends reaches the program once, and its end is ours."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_S = 30.0

COUNTING = """
import os, signal, sys, time
hits = []
def hit(number, frame):
    hits.append(signal.Signals(number).name)
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, hit)
print(os.getpid(), flush=True)
deadline = time.monotonic() + 30
while not hits and time.monotonic() < deadline:
    time.sleep(0.01)
time.sleep(0.3)
print(hits, flush=True)
sys.exit(5)
"""
SLEEPING = """
import os, time
try:
    print(os.getpid(), flush=True)
    time.sleep(30)
finally:
    time.sleep(0.3)
    print('cleaned up', flush=True)
"""


@contextmanager
def started(words: list[str], folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yield the process at the head of a group of its own, and the pid the program printed."""
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
    )
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wrapped(script: str, folder: Path) -> list[str]:
    (folder / "train.py").write_text(script)
    return ["-m", "leakscope", "run", "-q", "--no-report", "--out", "run", "train.py"]


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


@pytest.mark.parametrize("to_group", [True, False], ids=["group", "alone"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGHUP", "SIGINT"])
def test_signal_reaches_the_program_exactly_once(name: str, to_group: bool, tmp_path: Path) -> None:
    with started(wrapped(COUNTING, tmp_path), tmp_path) as (process, _):
        send = os.killpg if to_group else os.kill
        send(process.pid, signal.Signals[name])
        assert ended(process) == (5, f"['{name}']\n", "")


@pytest.mark.parametrize("to_group", [True, False], ids=["group", "alone"])
def test_interrupt_ends_as_under_python(to_group: bool, tmp_path: Path) -> None:
    results = []
    for words in (["train.py"], wrapped(SLEEPING, tmp_path)):
        with started(words, tmp_path) as (process, _):
            time.sleep(0.2)
            (os.killpg if to_group else os.kill)(process.pid, signal.SIGINT)
            results.append(ended(process))
    plain, ours = results
    assert ours == plain
    assert plain[0] == -signal.SIGINT
    assert plain[1] == "cleaned up\n"
    assert "KeyboardInterrupt" in plain[2]


def test_signal_without_a_handler_ends_both(tmp_path: Path) -> None:
    with started(wrapped(SLEEPING, tmp_path), tmp_path) as (process, _):
        process.terminate()
        assert ended(process) == (-signal.SIGTERM, "", "")
    assert outcome(tmp_path) == {"exit_code": 128 + signal.SIGTERM, "signal": signal.SIGTERM}


def test_killed_program_is_reported_by_the_same_signal(tmp_path: Path) -> None:
    with started(wrapped(SLEEPING, tmp_path), tmp_path) as (process, program):
        os.kill(program, signal.SIGKILL)
        assert ended(process) == (-signal.SIGKILL, "", "")
    assert outcome(tmp_path) == {"exit_code": 137, "signal": signal.SIGKILL}


def test_program_does_not_outlive_a_killed_supervisor(tmp_path: Path) -> None:
    with started(wrapped(SLEEPING, tmp_path), tmp_path) as (process, program):
        process.kill()
        process.wait(PATIENCE_S)
        deadline = time.monotonic() + 5
        while is_running(program) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not is_running(program)


def test_ignored_hangup_stays_ignored(tmp_path: Path) -> None:
    script = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
    words = wrapped(script, tmp_path)
    command = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, *words]
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "True\n"


def test_no_process_is_left_behind(tmp_path: Path) -> None:
    script = "import os; print(os.getpgrp())"
    process = subprocess.Popen(
        [sys.executable, *wrapped(script, tmp_path)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
    )
    out, _ = process.communicate(timeout=PATIENCE_S)
    with pytest.raises(ProcessLookupError):
        os.killpg(int(out), 0)


def outcome(folder: Path) -> dict[str, int]:
    output: dict[str, int] = json.loads((folder / "run" / "outcome.json").read_text())
    return output


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
