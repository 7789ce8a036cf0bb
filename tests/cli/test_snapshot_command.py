"""``leakscope snapshot PID``: a running training takes a census, and never comes to harm by it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from leakscope.analysis import analyse
from leakscope.model.run import Recording
from leakscope.probes.process import catches, status_of
from leakscope.recording import open_run
from leakscope.report import render_json

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc"),
]

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
LEAKSCOPE = [sys.executable, "-m", "leakscope"]
ALLOWED = ("--snapshot-signal", "USR1")
PATIENCE_S = 120.0

TRAINING = """
import os, sys, time
history = []
print(os.getpid(), flush=True)

def train(wait=lambda: None):
    import torch
    torch.set_num_threads(1); torch.manual_seed(0)
    model = torch.nn.Linear(64, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(12):
        for _ in range(20):
            loss = model(torch.rand(8, 64)).sum()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            history.append(torch.rand(20_000))
            time.sleep(0.005)
        wait()
    print("result", float(model.weight.detach().sum()), len(history), flush=True)

def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.02)
"""


BLOCKED = """
import ctypes
pipe = os.open("pipe", os.O_RDWR)
print("read", ctypes.CDLL(None).read(pipe, ctypes.create_string_buffer(1), 1), flush=True)
wait_for("enough")
"""
"""Stays in the C library until there is something in the pipe."""
ENDS_ON_A_SIGNAL = """
import signal, threading
reading, writing = os.pipe()
os.set_blocking(writing, False)
signal.set_wakeup_fd(writing)
def end():
    os.read(reading, 1)
    os._exit(7)
threading.Thread(target=end, daemon=True).start()
"""
"""Ends as soon as the kernel has delivered a signal, before any handler of Python's runs."""


@dataclasses.dataclass
class Running:
    """A program under ``leakscope run`` that has printed its process id."""

    process: subprocess.Popen[str]
    folder: Path
    pid: int

    def ended(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err

    @property
    def recording(self) -> Recording:
        return open_run(self.folder / "run").main


LAUNCHER = """
import os, subprocess, sys
ranks = []
for n in range(2):
    environment = {**os.environ, "RANK": str(n), "WORLD_SIZE": "2"}
    ranks.append(subprocess.Popen(sys.argv[1:], env=environment))
sys.exit(max(rank.wait() for rank in ranks))
"""


@contextmanager
def started(script: str, folder: Path, *options: str, **added: str) -> Iterator[Running]:
    (folder / "train.py").write_text(script)
    command = [*LEAKSCOPE, "run", "-q", "--no-report", "--out", "run", *options, "train.py"]
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, **added},
    )
    assert process.stdout is not None
    try:
        yield Running(process, folder, int(process.stdout.readline()))
    finally:
        process.kill()
        process.communicate()


@contextmanager
def two_ranks(script: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], set[int]]]:
    """Yield a process that has started two ranks, and the ranks' process ids."""
    (folder / "train.py").write_text(script)
    command = [*LEAKSCOPE, "run", "-q", "--no-report", "--out", "run", *ALLOWED, "train.py"]
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert launcher.stdout is not None
    try:
        yield launcher, {int(launcher.stdout.readline()) for _ in range(2)}
    finally:
        (folder / "enough").touch()
        launcher.communicate(timeout=PATIENCE_S)


def ask(pid: int, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LEAKSCOPE, "snapshot", str(pid), *options],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def refused(pid: int) -> str:
    """Return the sentence by which a request is refused before anything is sent."""
    done = ask(pid, "--wait", "5")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    return done.stderr


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert holds()


STEPS_UNTIL_ASKED = (
    TRAINING
    + """
train(lambda: wait_for("enough") if len(history) > 200 else None)
"""
)
"""Takes some two hundred steps, and the others when a test has seen enough."""


class TestACensusIsTaken:
    def test_verdict_results_and_series_stay_the_same(self, tmp_path: Path) -> None:
        with started(STEPS_UNTIL_ASKED, tmp_path, *ALLOWED) as running:
            until(lambda: len(running.recording.measurements) > 60)
            done = ask(running.pid, "--format", "json")
            assert done.returncode == 0, done.stderr
            output = json.loads(done.stdout)
            assert output["pid"] == running.pid
            assert output["run"] == str(tmp_path / "run")
            assert output["names"]["host"][0]["name"] == "history"
            assert output["objects"] > 1000
            (tmp_path / "enough").touch()
            code, out, err = running.ended()
        assert (code, err) == (0, "")
        assert out.startswith("result ")
        assert out == plain_result(tmp_path)
        run = open_run(tmp_path / "run")
        assert len(run.main.snapshots) == 1
        report = analyse(run)
        assert report.culprits[0].name == "history"
        assert any("1 census was taken on request" in note for note in report.notes)
        run.main.snapshots.clear()
        assert reported_by(report) == reported_by(analyse(run))

    def test_it_reads_well_and_names_the_run(self, tmp_path: Path) -> None:
        with started(STEPS_UNTIL_ASKED, tmp_path, *ALLOWED) as running:
            until(lambda: len(running.recording.measurements) > 30)
            done = ask(running.process.pid)  # the supervisor's, which is what a user sees first
            assert done.returncode == 0, done.stderr
            assert done.stderr == ""
            first, second, *rest = done.stdout.splitlines()
            assert first.startswith(f"Process {running.pid}, ")
            assert "in train of epoch" in first
            assert second.startswith("It took ")
            assert any("history  (list, " in line for line in rest)
            assert f"leakscope show {tmp_path / 'run'}" in rest[-1]

    def test_a_program_that_sleeps_in_a_step_is_looked_at_at_once(self, tmp_path: Path) -> None:
        script = TRAINING + "\nhistory.append(bytes(200 << 20))\nwait_for('enough')\n"
        with started(script, tmp_path, *ALLOWED) as running:
            time.sleep(1.5)
            done = ask(running.pid, "--format", "json")
            assert done.returncode == 0, done.stderr
            output = json.loads(done.stdout)
            assert output["at_once"]
            assert output["names"]["host"][0]["name"] == "history"
            (tmp_path / "enough").touch()
            assert running.ended()[0] == 0

    def test_the_supervisor_hands_the_signal_on(self, tmp_path: Path) -> None:
        with started(STEPS_UNTIL_ASKED, tmp_path, *ALLOWED) as running:
            until(lambda: len(running.recording.measurements) > 30)
            running.process.send_signal(signal.SIGUSR1)
            until(lambda: bool(running.recording.snapshots) or again(running))
            (tmp_path / "enough").touch()
            assert running.ended()[0] == 0

    def test_ranks_are_queried_each_by_itself(self, tmp_path: Path) -> None:
        with two_ranks(STEPS_UNTIL_ASKED, tmp_path) as (launcher, pids):
            both = refused(launcher.pid)
            ranks = {int(n): int(pid) for pid, n in re.findall(r"(\d+) \(rank (\d)\)", both)}
            assert {*ranks} == {0, 1}
            assert {*ranks.values()} == pids
            output = json.loads(ask(ranks[1], "--format", "json").stdout)
            assert output["rank"] == 1
            (tmp_path / "enough").touch()
            assert launcher.wait(PATIENCE_S) == 0
        taken = {r.header.rank: len(r.snapshots) for r in open_run(tmp_path / "run").recordings}
        assert taken[0] == 0
        assert taken[1] >= 1


class TestNoCensusComes:
    def test_a_call_into_c_has_to_return_first_and_is_not_broken_off(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        script = TRAINING + BLOCKED
        with started(script, tmp_path, *ALLOWED) as running:
            done = ask(running.pid, "--wait", "2")
            assert done.returncode == 3
            assert "its main thread waits and has reached no boundary" in done.stderr
            (tmp_path / "pipe").write_text("x")
            until(lambda: len(running.recording.snapshots) > 0)
            (tmp_path / "enough").touch()
            assert running.ended()[:2] == (0, "read 1\n")

    def test_a_stopped_process_is_reported_as_stopped(self, tmp_path: Path) -> None:
        script = TRAINING + "\nwait_for('enough')\n"
        with started(script, tmp_path, *ALLOWED) as running:
            os.kill(running.pid, signal.SIGSTOP)
            until(lambda: status_of(running.pid)["State"].startswith("T"))
            done = ask(running.pid, "--wait", "1")
            os.kill(running.pid, signal.SIGCONT)
            assert done.returncode == 3
            assert "it is stopped" in done.stderr
            (tmp_path / "enough").touch()
            assert running.ended()[0] == 0

    def test_a_process_that_ends_meanwhile_is_reported_as_ended(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with started(TRAINING + ENDS_ON_A_SIGNAL + BLOCKED, tmp_path, *ALLOWED) as running:
            done = ask(running.pid)
            assert done.returncode == 4
            assert "ended before there was a census" in done.stderr
            assert running.ended()[0] == 7


class TestNothingIsSent:
    def test_to_a_run_that_did_not_allow_it(self, tmp_path: Path) -> None:
        with started(TRAINING + "\nwait_for('enough')\n", tmp_path) as running:
            assert "Start it: leakscope run --snapshot-signal USR1" in refused(running.pid)
            running.process.send_signal(signal.SIGUSR1)  # nor does the supervisor hand it on
            time.sleep(0.5)
            (tmp_path / "enough").touch()
            assert running.ended()[0] == 0

    def test_to_a_program_that_takes_the_signal_for_itself(self, tmp_path: Path) -> None:
        script = TRAINING + (
            "\nimport signal\nsignal.signal(signal.SIGUSR1, lambda *_: print('mine', flush=True))"
            "\ntrain(lambda: wait_for('enough') if len(history) > 200 else None)\n"
        )
        with started(script, tmp_path, *ALLOWED) as running:
            until(lambda: len(running.recording.measurements) > 30)
            assert "has since taken that signal for itself" in refused(running.pid)
            os.kill(running.pid, signal.SIGUSR1)
            (tmp_path / "enough").touch()
            code, out, _ = running.ended()
            assert code == 0
            assert out.splitlines()[0] == "mine"
            assert running.recording.snapshots == []

    def test_to_processes_that_are_not_recorded(self) -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
            assert "is not recorded by leakscope" in refused(other.pid)
            assert other.poll() is None
            other.communicate(b"\n")
            assert other.returncode == 0
        assert refused(other.pid) == f"leakscope: There is no process {other.pid}.\n"

    def test_to_a_process_that_has_ended(self) -> None:
        other = subprocess.Popen(["true"])
        until(lambda: status_of(other.pid).get("State", "").startswith("Z"))
        assert "has ended already" in refused(other.pid)
        other.wait()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
    def test_to_another_users_process(self, tmp_path: Path) -> None:
        with started(TRAINING + "\nwait_for('enough')\n", tmp_path, *ALLOWED) as running:
            code = (  # the other user may be unable to read what would be imported later
                "import os, sys; from leakscope.cli import leakscope, main; "
                "[leakscope.get_command(None, name) for name in leakscope.list_commands(None)]; "
                f"os.setuid(65534); sys.argv = ['leakscope', 'snapshot', '{running.pid}']; main()"
            )
            done = subprocess.run(
                [sys.executable, "-c", code],
                env=ENVIRONMENT,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 1, done.stderr
            assert "is another user's" in done.stderr
            (tmp_path / "enough").touch()
            assert running.ended()[0] == 0


WITH_WORKERS = (
    TRAINING
    + """
def main():
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    data = TensorDataset(torch.arange(4000.0))
    total = 0.0
    for (batch,) in DataLoader(data, batch_size=10, num_workers=2, multiprocessing_context="fork"):
        total += float(batch.sum())
        if total > 2_000_000:
            wait_for("enough")
    print("result", total)
main()
"""
)


def test_a_forked_worker_comes_to_no_harm(tmp_path: Path) -> None:
    with started(WITH_WORKERS, tmp_path, *ALLOWED) as running:
        workers: list[int] = []

        def both_run() -> bool:
            of_workers = [r.header for r in open_run(tmp_path / "run").recordings]
            workers[:] = [h.pid for h in of_workers if h.worker is not None]
            return len(workers) == 2

        until(both_run)
        for worker in workers:
            assert catches(worker, signal.SIGUSR1)
            os.kill(worker, signal.SIGUSR1)
            sentence = refused(worker)
            assert f"a worker of a DataLoader of process {running.pid}" in sentence
        time.sleep(1.5)
        assert ask(running.pid).returncode == 0
        (tmp_path / "enough").touch()
        assert running.ended()[:2] == (0, "result 7998000.0\n")
    snapshots = {r.header.worker: len(r.snapshots) for r in open_run(tmp_path / "run").recordings}
    assert snapshots[0] == snapshots[1] == 0


def plain_result(folder: Path) -> str:
    """Return what the same program prints without leakscope, but for its process id."""
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.partition("\n")[2]


def reported_by(report: Any) -> dict[str, Any]:
    """Return what a report concludes: all but what only tells of requests."""
    document: dict[str, Any] = json.loads(render_json(report))
    document["notes"] = [note for note in document["notes"] if "on request" not in note]
    document["timeline"].pop("censuses_s")
    taken = document["overhead"]["taken"]
    document["overhead"]["taken"] = [item for item in taken if not item.get("asked")]
    return document


def again(running: Running) -> bool:
    """Ask once more, by the supervisor: the program may be between two boundaries for good."""
    time.sleep(0.5)
    running.process.send_signal(signal.SIGUSR1)
    return False
