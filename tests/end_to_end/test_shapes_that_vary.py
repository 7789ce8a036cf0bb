"""Shapes that are new in every epoch excuse what libraries keep for them, and no other leak."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from warm import Warm

pytestmark = pytest.mark.slow

LEAKING = Path(__file__).parent / "programs" / "handles_while_shapes_vary.py"
HEALTHY = Path(__file__).parents[1] / "zoo" / "cases" / "healthy_longer_every_epoch.py"


def report_of(program: Path, tmp_path: Path, leakscope: Warm) -> dict[str, Any]:
    out = tmp_path / "run"
    command = ["-m", "leakscope", "run", "--quiet", "--out", str(out), str(program)]
    leakscope.run(command, tmp_path).well()
    report: dict[str, Any] = json.loads((out / "report.json").read_text(encoding="utf-8"))
    return report


def test_native_memory_that_leaks_while_shapes_vary_is_accused(
    tmp_path: Path, leakscope_commands: Warm
) -> None:
    report = report_of(LEAKING, tmp_path, leakscope_commands)
    assert report["verdict"] == "leak"
    assert [f["kind"] for f in report["findings"] if f["severity"] == "warning"] == ["unexplained"]
    shapes = next(g for g in report["overhead"]["gauged"] if g["metric"] == "shapes")
    assert shapes["highest"] >= 16


def test_what_longer_series_cost_is_not(tmp_path: Path, leakscope_commands: Warm) -> None:
    report = report_of(HEALTHY, tmp_path, leakscope_commands)
    assert report["verdict"] != "leak"
    assert {f["severity"] for f in report["findings"]} <= {"note"}
