"""Garbage in circles, from real programs: named and drawn where it piles up, else not mentioned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from warm import Warm

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "programs"


def report_of(name: str, tmp_path: Path, leakscope: Warm) -> dict[str, Any]:
    out = tmp_path / "run"
    command = ["-m", "leakscope", "run", "--quiet", "--out", str(out)]
    leakscope.run([*command, str(PROGRAMS / name)], tmp_path).well()
    report: dict[str, Any] = json.loads((out / "report.json").read_text(encoding="utf-8"))
    return report


def test_the_circle_between_engine_and_state_is_named(
    tmp_path: Path, leakscope_commands: Warm
) -> None:
    report = report_of("circles.py", tmp_path, leakscope_commands)
    found = {finding["kind"]: finding for finding in report["findings"]}
    assert report["culprits"] == []
    assert "unexplained" not in found
    assert {"Engine.state", "State.engine"} == set(found["garbage"]["circles"][0]["steps"])
    assert found["garbage"]["remedy"]["title"].startswith("Break the circle at")


def test_a_weak_reference_leaves_no_garbage(tmp_path: Path, leakscope_commands: Warm) -> None:
    report = report_of("circles_broken.py", tmp_path, leakscope_commands)
    kinds = {finding["kind"] for finding in report["findings"]}
    assert report["verdict"] != "leak"
    assert "garbage" not in kinds
