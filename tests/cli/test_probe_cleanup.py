"""`leakscope run --probe-cleanup` on programs whose memory the calls free, and can't free."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
PROGRAM = """
import gc
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.rand(160, 64), torch.randint(0, 10, (160,)))
loader = DataLoader(data, batch_size=16)
history = []
gc.disable()


class Circle:
    def __init__(self):
        self.itself = self
        self.payload = torch.ones(2 << 20, dtype=torch.uint8)


for epoch in range(5):
    model.train()
    for inputs, targets in loader:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {each_step}
    model.eval()
    with torch.no_grad():
        for inputs, _ in loader:
            model(inputs)
print(float(model.weight.sum()))
"""


def record(folder: Path, each_step: str, *options: str) -> tuple[str, dict[str, Any]]:
    (folder / "train.py").write_text(PROGRAM.format(each_step=each_step))
    words = ("run", "-q", "--force", "--out", "run", *options, "train.py")
    done = subprocess.run(
        [sys.executable, "-m", "leakscope", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return done.stdout, json.loads((folder / "run" / "report.json").read_text())


def collection(report: dict[str, Any]) -> dict[str, Any]:
    cures = {cure["call"]: cure for cure in report["cures"]["cures"]}
    found: dict[str, Any] = cures["gc.collect()"]
    return found


def test_circles_that_nobody_else_collects_are_freed_by_a_collection(tmp_path: Path) -> None:
    _, report = record(tmp_path, "Circle()", "--probe-cleanup")
    found = collection(report)
    assert found["effect"] == "helps"
    assert found["host_bytes"] == pytest.approx(20 * MIB, rel=0.1)
    assert "after train: it helps." in found["sentence"]


def test_a_list_is_freed_by_none_and_the_training_computes_the_same(tmp_path: Path) -> None:
    keeps = "history.append(torch.ones(2 << 20, dtype=torch.uint8))"
    plain, without = record(tmp_path, keeps)
    tried, report = record(tmp_path, keeps, "--probe-cleanup")
    assert tried == plain
    assert without.get("cures") is None
    assert collection(report)["effect"] == "useless"
    assert report["culprits"][0]["name"] == "history"
    assert "Tried: gc.collect() freed" in report["culprits"][0]["falsifier"]["result"]
    assert (
        "higher the last time than before: none of them frees that" in (report["cures"]["sentence"])
    )


def test_help_says_that_it_changes_the_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "leakscope", "run", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    output = " ".join(done.stdout.split())
    assert "It changes when garbage is collected." in output
