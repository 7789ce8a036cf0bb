"""Programs that really run out of memory under `leakscope run`, and those that only seem to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from limited_group import entering, limited_group

from leakscope.probes.cgroup import memory_events
from leakscope.recording import open_run

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")]

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
TRAINING = """
import resource, sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
ROOM = {room}
if ROOM:
    space = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (space + ROOM, space + ROOM))


class Trainer:
    def __init__(self):
        self.model = nn.Linear(64, 10)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.history = []

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            for inputs, targets in loader:
                loss = nn.functional.cross_entropy(self.model(inputs), targets)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                {each_step}


data = TensorDataset(torch.rand(160, 64), torch.randint(0, 10, (160,)))
Trainer().fit(DataLoader(data, batch_size=16), {epochs})
print("trained to the end")
"""
KEEPS = "self.history.append(torch.ones({size}, dtype=torch.uint8))"


def record(
    folder: Path, each_step: str, *, room: int = 0, epochs: int = 40, group: Path | None = None
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run a training that does something each step; return how it went, and its report."""
    program = TRAINING.format(room=room, each_step=each_step, epochs=epochs)
    (folder / "train.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "leakscope", "run", "--out", "run", "train.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=entering(group),
    )
    return done, json.loads((folder / "run" / "report.json").read_text())


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of our own with 600 MiB, where this machine lets us make one."""
    with limited_group(600 * MIB) as path:
        yield path


def test_an_allocator_error_leaves_what_was_live_and_who_held_it(tmp_path: Path) -> None:
    keeps = KEEPS.format(size=4 * MIB)
    done, report = record(tmp_path, keeps, room=700 * MIB)
    assert done.returncode == 1
    assert "DefaultCPUAllocator: can't allocate memory" in done.stderr
    ended = report["out_of_memory"]
    assert (ended["device"], ended["cause"]) == ("host", "exception")
    assert ended["requested_bytes"] == 4 * MIB
    assert ended["evidence"].startswith("Looked at when the exception left the program")
    most = ended["names"][0]
    (record_of_it,) = open_run(tmp_path / "run").main.shortages
    assert most["name"] == "Trainer.history"
    assert most["bytes"] == pytest.approx(record_of_it.step * 4 * MIB, rel=0.05)
    assert ended["fits_if"][0]["title"] == "Mend Trainer.history"
    assert ended["fits_if"][0]["helps"]
    assert report["verdict"] == "leak"
    assert report["headline"].startswith("Out of memory")
    assert "Trainer.history grows by 4 MiB per step" in report["headline"]


def test_a_request_that_is_too_large_is_no_leak(tmp_path: Path) -> None:
    done, report = record(tmp_path, "if epoch == 5: bytearray(10**15)")
    assert done.returncode == 1
    assert report["verdict"] == "out_of_memory"
    assert report["out_of_memory"]["error"].startswith("MemoryError")
    assert report["culprits"] == []


def test_a_program_that_catches_its_error_has_not_failed(tmp_path: Path) -> None:
    caught = """
                try:
                    torch.empty(10**15)
                except RuntimeError:
                    pass"""
    done, report = record(tmp_path, caught)
    assert done.returncode == 0
    assert done.stdout == "trained to the end\n"
    assert report.get("out_of_memory") is None
    assert report["verdict"] == "clean"
    assert report["run"]["ended"] == "completed"


def test_the_kernels_kill_is_reported_with_the_last_census_before_it(
    tmp_path: Path, group: Path
) -> None:
    keeps = KEEPS.format(size=2 * MIB)
    done, report = record(tmp_path, keeps, group=group)
    if memory_events().oom_kills is None:
        pytest.skip("the kernel counts no kills here")
    assert done.returncode == -signal.SIGKILL
    ended = report["out_of_memory"]
    assert ended["cause"] == "killed"
    assert report["headline"].startswith(
        "The program was killed by the kernel's out-of-memory killer"
    )
    assert report["run"]["ended"] == "killed by the kernel's out-of-memory killer"
    assert ended["limit_bytes"] == 600 * MIB
    assert ended["names"][0]["name"] == "Trainer.history"
    assert ended["names"][0]["bytes"] > 100 * MIB, "the census foreseen, not the first few"
    assert ended["fits_if"][0]["title"] == "Mend Trainer.history"
    assert any("of memory were left" in note for note in report["notes"])


def test_the_kill_is_known_to_a_report_made_later(tmp_path: Path, group: Path) -> None:
    record(tmp_path, KEEPS.format(size=4 * MIB), group=group)
    words = [sys.executable, "-m", "leakscope", "report", "run", "--format", "json"]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert json.loads(done.stdout)["out_of_memory"]["cause"] == "killed"


def test_a_kill_by_a_user_is_none_of_the_kernels(tmp_path: Path) -> None:
    kills = "if epoch == 5: import os; os.kill(os.getpid(), 9)"
    done, report = record(tmp_path, kills)
    assert done.returncode == -signal.SIGKILL
    assert report.get("out_of_memory") is None
    assert report["run"]["ended"].startswith("killed by SIGKILL")
    assert "out-of-memory" not in report["run"]["ended"]
    assert report["verdict"] != "out_of_memory"


def test_an_error_that_leaves_the_block_of_profile_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import leakscope\n"
        "def fit():\n"
        "    table = [bytearray(1 << 20) for _ in range(64)]\n"
        "    bytearray(10**15)\n"
        "try:\n"
        "    with leakscope.profile('run', report=False):\n"
        "        fit()\n"
        "except MemoryError:\n"
        "    print('goes on')\n"
    )
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "LEAKSCOPE_STRICT": "1"},
    )
    assert done.stdout == "goes on\n"
    (shortage,) = open_run(tmp_path / "run").main.shortages
    assert shortage.census is not None
    sizes = {row.path: row.host_bytes for row in shortage.census.rows}
    assert sizes["fit()·table"] == pytest.approx(64 * MIB, rel=0.02)
