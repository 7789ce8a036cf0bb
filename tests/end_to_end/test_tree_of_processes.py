"""Memory of a process and its forked workers is counted by its shares: what is shared, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from leakscope.analysis import analyse
from leakscope.model import gauge
from leakscope.model.report import Ledger
from leakscope.recording import open_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc"),
]

MIB = 1 << 20
HELD = 200
"""MiB that the parent holds and its workers inherit."""
PROGRAM = f"""
import psutil, torch
from torch.utils.data import DataLoader

def tree():
    here = psutil.Process()
    return sum(p.memory_full_info().pss for p in [here, *here.children()])

held = torch.ones({HELD} << 18)
samples = [(torch.rand(64), n % 3) for n in range(160)]
alone = DataLoader(samples, 16)
forked = DataLoader(samples, 16, num_workers=2, persistent_workers=True)
model = torch.nn.Linear(64, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(8):
    for x, y in alone if epoch < 4 else forked:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch in (3, 7):
        print(tree())
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose workers begin in the middle, and what its processes held before and after."""
    folder = tmp_path_factory.mktemp("tree")
    (folder / "train.py").write_text(PROGRAM)
    command = ["-m", "leakscope", "run", "--quiet", "--no-report", "--out", "run", "train.py"]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    return open_run(folder / "run"), [json.loads(line) for line in done.stdout.splitlines()]


def host_ledger(run) -> Ledger:
    return analyse(run).ledgers[0]


def test_the_ledger_of_a_tree_is_what_its_processes_hold_by_their_shares(run):
    recorded, (before, after) = run
    ledger = host_ledger(recorded)
    assert ledger.metric == "tree"
    assert sum(entry.bytes for entry in ledger.entries) == ledger.total_bytes
    assert ledger.total_bytes == pytest.approx(after - before, abs=16 * MIB)


def test_what_workers_share_with_their_parent_is_not_counted_again(run):
    recorded, _ = run
    ledger = host_ledger(recorded)
    last = next(
        m for m in reversed(recorded.main.measurements) if m.gauges.get(gauge.CHILDREN_PSS, 0) > 0
    )
    assert last.gauges[gauge.CHILDREN_PSS] > 2 / 3 * HELD * MIB, "their shares of what is held"
    (children,) = (entry for entry in ledger.entries if entry.kind == "children")
    assert "beyond what they share" in children.label
    assert 0 < children.bytes < last.gauges[gauge.CHILDREN_PSS] - HELD / 2 * MIB
