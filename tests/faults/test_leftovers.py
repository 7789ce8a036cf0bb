"""Nothing is left behind when a recorded training is killed: no process, no shared memory, no file.

The moments are random, the seeds are not: workers are starting, at work or ending. Epochs are long
enough that all the workers are among the first ones, which are recorded. Each of a pair of start
method, life and victim is tried: workers end when their parent does, whoever ended it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fault_runs
import psutil
import pytest
from sampling import sampled
from warm import Warm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel ends the others"),
]

MARK = "LEFT_BY"
PATIENCE_S = 60.0
OF_OTHERS = ("pymp-", "torchinductor_", "torchelastic_")
"""Temporary folders of multiprocessing's and torch's, which a kill leaves without us too."""
OURS = {"run.json", "outcome.json", "report.html", "report.json"}

WITH_WORKERS = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Frames(Dataset):
    def __init__(self):
        self.cache = {}
    def __len__(self):
        return 800
    def __getitem__(self, n):
        self.cache[n] = torch.rand(1000)
        return torch.rand(50_000)

def tell(number):
    with open("telling", "w") as file:
        file.write(f"{os.getpid()} {os.getppid()}")
    os.rename("telling", f"rank{number}")

def main(method, persistent):
    torch.set_num_threads(1)
    model = torch.nn.Linear(50_000, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(
        Frames(), batch_size=8, num_workers=2, multiprocessing_context=method,
        persistent_workers=persistent == "persistent",
    )
    for epoch in range(10_000):
        for step, batch in enumerate(loader):
            optimizer.zero_grad(); model(batch).sum().backward(); optimizer.step()
            if (epoch, step) == (0, 3):
                tell(0)

if __name__ == "__main__":
    main(*sys.argv[1:])
"""
OF_RANKS = """
import os, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for epoch in range(10_000):
    data = TensorDataset(torch.randn(2000, 8))
    for step, (batch,) in enumerate(DataLoader(data, batch_size=8, num_workers=1)):
        optimizer.zero_grad(); model(batch).sum().backward(); optimizer.step()
        time.sleep(0.005)
        if (epoch, step) == (0, 3):
            name = f"rank{dist.get_rank()}"
            with open(f"telling-{name}", "w") as file:
                file.write(f"{os.getpid()} {os.getppid()}")
            os.rename(f"telling-{name}", name)
"""


@dataclass
class Tree:
    """A program and all that it started, known by a word in their environment."""

    process: subprocess.Popen[bytes]
    folder: Path
    mark: str
    temporary: Path

    def members(self) -> dict[int, str]:
        """Return the processes that live, by number."""
        found = {}
        for process in psutil.process_iter():
            try:
                is_ours = process.environ().get(MARK) == self.mark
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = f"of {process.ppid()}: {process.cmdline()[-2:]}"
            except psutil.Error:
                continue
        return found

    def victim(self, rank: int, which: str) -> int:
        """Return the number of a rank's program, or of the ``leakscope run`` above it."""
        reported = self.folder / f"rank{rank}"
        wait(lambda: "" if reported.exists() else "the program has not begun")
        program, supervisor = map(int, reported.read_text().split())
        return {"program": program, "supervisor": supervisor}[which]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Tree]]:
    """Return what starts a program in a folder of its own, temporary files in another."""
    trees: list[Tree] = []
    work = tmp_path / "work"
    # Sockets of workers lie there, whose names a kernel takes up to 107 characters long.
    temporary = Path(tempfile.mkdtemp(prefix="left-", dir="/tmp"))

    def started(words: list[str], program: str) -> Tree:
        work.mkdir()
        (work / "program.py").write_text(program)
        mark = uuid.uuid4().hex
        environment = fault_runs.environment(**{MARK: mark, "TMPDIR": str(temporary)})
        with (tmp_path / "output").open("wb") as output:
            process = subprocess.Popen(
                words, cwd=work, env=environment, stdout=output, stderr=output
            )
        trees.append(Tree(process, work, mark, temporary))
        return trees[0]

    yield started
    for tree in trees:
        for pid in tree.members():
            os.kill(pid, signal.SIGKILL)
        tree.process.wait(PATIENCE_S)
    shutil.rmtree(temporary)


def wait(tells: Callable[[], object]) -> None:
    """Wait until nothing is printed any more."""
    deadline = time.monotonic() + PATIENCE_S
    while reported := tells():
        assert time.monotonic() < deadline, reported
        time.sleep(0.05)


def killed(tree: Tree, victim: int, seed: str) -> set[int]:
    """Kill a process at a random moment; return who there was, once all are gone."""
    time.sleep(random.Random(seed).uniform(0.0, 4.0))
    there = set(tree.members())
    os.kill(victim, signal.SIGKILL)
    wait(tree.members)
    tree.process.wait(PATIENCE_S)
    return there


def assert_nothing_left(tree: Tree, there: set[int]) -> None:
    """Assert that only the run directory and what others leave too is there."""
    segments = os.listdir("/dev/shm")  # noqa: PTH208
    assert not [name for name in segments if any(f"_{pid}_" in name for pid in there)]
    assert not [p.name for p in tree.temporary.iterdir() if not p.name.startswith(OF_OTHERS)]
    neighbour = {p.name for p in tree.folder.iterdir() if not p.name.startswith("rank")}
    assert neighbour - {"__pycache__"} == {"program.py", "run"}
    inside = {p.name for p in (tree.folder / "run").iterdir() if p.suffix != ".journal"}
    assert inside <= OURS


def report_of(tree: Tree, commands: Warm) -> dict[str, Any]:
    """Return the report that the command makes of what is left of the run."""
    words = ["-m", "leakscope", "report", "run", "--format", "json"]
    ended = commands.run(words, tree.folder).well()
    assert "Traceback" not in ended.err, ended.err
    output: dict[str, Any] = json.loads(ended.out)
    return output


def assert_reads_well(tree: Tree, commands: Warm) -> None:
    """Assert that the report says how the run ended, and complains of nothing else."""
    report = report_of(tree, commands)
    assert report["run"]["ended"].startswith("killed")
    assert all("was cut off while it was written" in e["message"] for e in report["errors"])
    words = ["-m", "leakscope", "report", "run", "--format", "text"]
    assert "The run was killed" in commands.run(words, tree.folder).well().out


@pytest.mark.parametrize(
    ("method", "lives", "victim"),
    [
        pytest.param("fork", "persistent", "supervisor", marks=pytest.mark.corpus),
        ("fork", "for an epoch", "program"),
        pytest.param("spawn", "persistent", "program", marks=pytest.mark.corpus),
        ("spawn", "for an epoch", "supervisor"),
    ],
)
def test_a_killed_training_with_workers_leaves_its_recording_alone(
    method: str,
    lives: str,
    victim: str,
    start: Callable[..., Tree],
    leakscope_commands: Warm,
) -> None:
    words = [sys.executable, "-m", "leakscope", "run", "-q", "--out", "run", "program.py"]
    tree = start([*words, method, lives], WITH_WORKERS)
    there = killed(tree, tree.victim(0, victim), f"{method} {lives} {victim}")
    assert tree.process.returncode == -signal.SIGKILL
    assert_nothing_left(tree, there)
    assert_reads_well(tree, leakscope_commands)


@pytest.mark.parametrize("victim", sampled(["supervisor", "program"], ["program"]))
def test_a_killed_rank_leaves_its_recording_alone(
    victim: str, start: Callable[..., Tree], leakscope_commands: Warm
) -> None:
    pytest.importorskip("torch.distributed.run")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    ours = ["-m", "leakscope", "run", "-q", "--out", "run", "program.py"]
    tree = start([*launcher, "--nproc-per-node", "2", *ours], OF_RANKS)
    tree.victim(0, victim)
    there = killed(tree, tree.victim(1, victim), victim)
    assert tree.process.returncode == 1
    assert_nothing_left(tree, there)
    ranks = report_of(tree, leakscope_commands)["ranks"]
    assert {rank["rank"] for rank in ranks} == {0, 1}
    assert json.dumps(ranks).count("killed") >= 1


def test_a_worker_whose_parent_died_while_it_started_does_not_wait_for_good(
    tmp_path: Path,
) -> None:
    code = """
import os, sys
from leakscope.capture.options import SessionOptions
from leakscope.capture.workers import WorkerPlacement as Place, WorkerLoop

def loop(dataset_kind, dataset, worker_id):
    from torch.utils.data._utils.worker import ManagerWatchdog
    print(worker_id, ManagerWatchdog().is_alive())

method, parent = sys.argv[1:]
place = Place(
    "run", SessionOptions().to_json(), ".", start_method=method, parent=int(eval(parent))
)
WorkerLoop(place, loop)(0, [], method)
"""
    cases = {
        ("spawn", "os.getppid()"): "spawn True\n",
        ("spawn", "os.getppid() + 1"): "spawn False\n",
        ("forkserver", "os.getppid() + 1"): "forkserver True\n",
    }
    for (method, parent), expected in cases.items():
        reported = fault_runs.python("-c", code, method, parent, folder=tmp_path)
        assert reported.out == expected, reported.err
