"""A library's cached method that keeps the models it is called on, and its look-alike."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from warm import Warm

pytestmark = [pytest.mark.slow, pytest.mark.corpus]

PROGRAM = Path(__file__).parent / "programs" / "cached_method.py"
LIBRARY = """\
import functools

import torch
from torch import nn


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))

    @functools.lru_cache(maxsize={bound})
    def anchors(self, size):
        return torch.linspace(0, 1, size)

    def forward(self, x):
        return self.layers(x) * self.anchors(10)
"""
NAME = "detectors.Detector.anchors"


def reported_for(bound: int | None, tmp_path: Path, leakscope: Warm) -> dict[str, Any]:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "detectors.py").write_text(LIBRARY.format(bound=bound))
    environment = {"PYTHONPATH": os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])}
    words = ["-m", "leakscope", "run", "--quiet", "--out", "run", str(PROGRAM)]
    leakscope.run(words, tmp_path, environment).well()
    report: dict[str, Any] = json.loads((tmp_path / "run" / "report.json").read_text())
    return report


def test_it_is_named_with_the_line_that_defines_it(
    tmp_path: Path, leakscope_commands: Warm
) -> None:
    report = reported_for(None, tmp_path, leakscope_commands)
    named = [c for c in report["culprits"] if c["name"] == NAME]
    named += [f for f in report["findings"] if f["title"].endswith(NAME)]
    assert report["verdict"] == "leak"
    assert named, report["headline"]


def test_one_that_is_full_is_fine(tmp_path: Path, leakscope_commands: Warm) -> None:
    report = reported_for(2, tmp_path, leakscope_commands)
    assert report["verdict"] == "clean", report["headline"]
