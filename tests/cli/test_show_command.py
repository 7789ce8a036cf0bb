"""``leakscope show`` tells where a run stands while it goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runs import record_run

from leakscope.analysis import analyse
from leakscope.cli.runs import state_of
from leakscope.recording import open_run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LEAKING = """
import time, torch
from torch import nn
model = nn.Linear(64, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = []
for epoch in range(4000):
    for _ in range(20):
        loss = model(torch.rand(8, 64)).sum()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        history.append(torch.rand(20_000))
        time.sleep(0.002)
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
LEAKSCOPE = [sys.executable, "-m", "leakscope"]


def show(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LEAKSCOPE, "show", *words],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def running(tmp_path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A leaking run that has taken some censuses and goes on."""
    (tmp_path / "train.py").write_text(LEAKING)
    command = [*LEAKSCOPE, "run", "--quiet", "--no-report", "--out", "run", "train.py"]
    process = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, text=True)
    try:
        deadline = time.monotonic() + 90
        while censuses(tmp_path / "run") < 6 and time.monotonic() < deadline:
            time.sleep(0.5)
        yield process, tmp_path / "run"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def censuses(run: Path) -> int:
    try:
        return sum(m.census is not None for m in open_run(run).main.measurements)
    except Exception:
        return 0


def test_a_run_is_shown_while_it_goes_on(running):
    process, run = running
    done = show(str(run))
    assert done.returncode == 0, done.stderr
    assert "train.py is running: step" in done.stdout  # no loader tells where an epoch ends
    assert "history" in done.stdout
    assert "train.py:11" in done.stdout
    assert analyse(open_run(run)).run.ended == "still running"
    assert process.poll() is None


def test_following_ends_with_ctrl_c_and_leaves_the_training_alone(running):
    process, run = running
    following = subprocess.Popen(
        [*LEAKSCOPE, "show", "--follow", "--interval", "0.5", str(run)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    seen = 0
    for line in following.stdout:
        seen += "is running" in line
        if seen == 2:
            break
    following.send_signal(signal.SIGINT)
    following.stdout.read()
    following.stdout.close()
    assert following.wait(30) == 0
    assert process.poll() is None


def test_following_ends_with_the_run(running):
    process, run = running
    following = subprocess.Popen(
        [*LEAKSCOPE, "show", "--follow", "--interval", "0.5", str(run)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    output, _ = following.communicate(timeout=60)
    assert following.returncode == 0
    assert "train.py ended after" in output


def test_a_path_that_is_no_run_is_reported(tmp_path):
    done = show(str(tmp_path / "nothing"))
    assert done.returncode == 1
    assert "does not exist" in done.stderr
    assert "Traceback" not in done.stderr


def test_epochs_are_counted_from_one(tmp_path: Path) -> None:
    run = open_run(record_run(tmp_path / "run"))
    assert state_of(run, goes_on=False) == (
        "train.py ended after 46 s (epoch 12, step 230, train)."
    )
