"""Children of a recorded program neither hang nor write into its recording."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import fault_runs
import pytest

from leakscope.recording import open_run

FORKED_IN_A_CENSUS = """
import gc, multiprocessing, os, sys, threading, time
import leakscope
from leakscope.capture.session import current_session

objects = [[] for _ in range(100_000)]
children, reports = [], []
session = current_session()


def fork_while_measured():
    while not done.is_set():
        if session.gate._busy:
            reading, writing = os.pipe()
            child = os.fork()
            if not child:
                scope.mark("in the child")
                with leakscope.profile(f"child-{os.getpid()}", report=False, quiet=True) as mine:
                    mine.mark("a recording of its own")
                held = [[] for _ in range(1000)]
                os.write(writing, b"collects" if gc.isenabled() else b"never collects")
                os._exit(0)
            os.close(writing)
            children.append(child)
            reports.append(os.read(reading, 100))
            os.close(reading)
            os.waitpid(child, 0)
            if len(children) >= 12:
                return
        time.sleep(0.001)


done = threading.Event()
thread = threading.Thread(target=fork_while_measured)
with leakscope.profile(quiet=True) as scope:
    thread.start()
    for step in scope.steps(range(20_000)):
        objects.append([])
        if not thread.is_alive():
            break
    done.set()
    thread.join()
    scope.mark("at last")
print(len(children) >= 3, set(reports))
"""


def test_a_fork_in_the_middle_of_a_census_leaves_the_child_free(tmp_path: Path) -> None:
    ended = fault_runs.recorded(FORKED_IN_A_CENSUS, tmp_path, "--budget", "100%", "--no-report")
    assert ended.code == 0, ended.err
    assert ended.out == "True {b'collects'}\n"
    run = open_run(tmp_path / "run")
    assert len(run.recordings) == 1
    assert run.main.damage == []
    assert run.main.errors == []
    for own in tmp_path.glob("child-*"):
        marks = [m.boundary.label for m in open_run(own).main.measurements if m.boundary.label]
        assert marks == ["a recording of its own"]
    labels = [m.boundary.label for m in run.main.measurements if m.boundary.label]
    assert labels == ["at last"]
    assert run.main.end is not None


FORKED_IN_A_STEP = """
import multiprocessing, os, sys
import torch
from real_training import train


def child_of(step):
    if step == 3:
        child = os.fork()
        if not child:
            train(epochs=1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    if step == 5:
        worker = multiprocessing.get_context("fork").Process(target=train, args=(1,))
        worker.start()
        worker.join()
        assert worker.exitcode == 0


train(at_step=child_of)
"""


@pytest.mark.slow
def test_children_that_train_on_write_nothing_of_the_parents(tmp_path: Path, expected: str) -> None:
    ended = fault_runs.recorded(FORKED_IN_A_STEP, tmp_path, "--no-report", "-q")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[-1] == expected
    assert ended.out.count("result ") == 3
    run = open_run(tmp_path / "run")
    assert len(run.recordings) == 1
    assert run.main.damage == []
    assert run.main.measurements[-1].boundary.step == 32


WITH_WORKERS = """
import torch
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(
        data, batch_size=8, num_workers=2, multiprocessing_context="{method}", shuffle=True
    )
    for inputs, wanted in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), wanted).backward()
        optimizer.step()
    print("result", model.weight.tolist())


if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def of_workers(tmp_path_factory: pytest.TempPathFactory) -> str:
    program = WITH_WORKERS.format(method="fork")
    return fault_runs.plainly(program, tmp_path_factory.mktemp("plain")).result


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_a_loader_neither_hang_nor_disturb_the_recording(
    method: str, of_workers: str, tmp_path: Path
) -> None:
    program = WITH_WORKERS.format(method=method)
    ended = fault_runs.recorded(program, tmp_path, "--no-report", "-q")
    assert (ended.code, ended.result) == (0, of_workers)
    run = open_run(tmp_path / "run")
    assert {r.header.worker for r in run.recordings} == {None, 0, 1}
    assert all(r.damage == [] for r in run.recordings)
    assert run.main.measurements[-1].boundary.step == 8


OF_RANKS = """
import os, signal
import leakscope
kept = []
with leakscope.profile(quiet=True) as scope:
    for step in scope.steps(range(100)):
        kept.append(bytes(20_000))
        if step == 60 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
print("result", len(kept))
"""


@pytest.mark.slow
def test_a_rank_that_is_killed_costs_the_others_nothing(tmp_path: Path) -> None:
    words = fault_runs.run_words(OF_RANKS, tmp_path, "-q", "--budget", "100%")
    ranks = [
        subprocess.Popen(
            [sys.executable, *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=fault_runs.environment(RANK=str(rank), WORLD_SIZE="2"),
        )
        for rank in range(2)
    ]
    reported = [rank.communicate(timeout=fault_runs.PATIENCE_S) for rank in ranks]
    assert reported == [("result 100\n", ""), ("", "")]
    assert [rank.returncode for rank in ranks] == [0, -signal.SIGKILL]
    first, second = open_run(tmp_path / "run").recordings
    assert first.end is not None
    assert second.end is None
    assert second.measurements[-1].boundary.step >= 59
    report = fault_runs.report_again(tmp_path)
    assert report["work"]["processes"] == 2
    assert report["errors"] == []
