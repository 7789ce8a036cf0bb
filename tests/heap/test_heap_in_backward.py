"""A census while autograd holds the lock of a node: it doesn't wait for it and changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from optional_torch import needs_torch

pytestmark = needs_torch

ROOT = Path(__file__).parents[2]
PROGRAM = """
import torch
from leakscope.heap import CensusTaker
from leakscope.model.census import CensusScope

taker = CensusTaker(project_root="/")
looks = []


def unpack(kept):
    looks.extend(taker.take(scope).scope.value for scope in CensusScope)
    return kept


def gradient(looking):
    torch.manual_seed(0)
    weight = torch.rand(50, 50, requires_grad=True)
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, looking)
    with hooks:
        torch.cat([(weight * weight).exp()] * 2).sin().pow(3).sum().backward()
    return weight.grad


assert torch.equal(gradient(unpack), gradient(lambda kept: kept))
print(len(looks))
"""


def test_a_census_inside_a_node_ends_and_changes_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=True,
    )
    assert int(done.stdout) >= 8
