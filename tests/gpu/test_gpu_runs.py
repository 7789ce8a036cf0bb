"""`leakscope run` from end to end on a device: a leak, its tidy form, and who allocated."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

PROGRAM = Path(__file__).parent / "programs" / "kept_predictions.py"
PER_STEP = 8 * 64 * 256 * 4
STEPS = 8 * 30


def report_of(tmp_path: Path, *arguments: str, options: tuple[str, ...] = ()) -> dict[str, Any]:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "leakscope", "run", "--quiet", "--out", str(out), *options]
    subprocess.run([*command, str(PROGRAM), "cuda:0", *arguments], check=True, cwd=tmp_path)
    report: dict[str, Any] = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert report["errors"] == []
    return report


def test_tensors_kept_on_the_device_are_named_there(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    (culprit,) = [c for c in report["culprits"] if c["severity"] != "note"]
    assert culprit["name"] == "Trainer.predictions"
    assert culprit["device"] == "cuda:0"
    assert culprit["bytes_per_unit"] == pytest.approx(PER_STEP, rel=0.1)
    (device,) = report["devices"]
    roles = {row["role"]: row["bytes"] for row in device["roles"]}
    assert roles["accumulation"] > 0.5 * STEPS * PER_STEP
    assert device["explained_share"] > 0.95
    assert "device_leak" not in {f["kind"] for f in report["findings"]}


def test_its_tidy_form_is_clean(tmp_path: Path) -> None:
    report = report_of(tmp_path, "tidy")
    assert report["verdict"] == "clean"
    serious = [f for f in report["findings"] if f["severity"] != "note"]
    assert serious == []


def test_a_window_of_history_adds_the_allocating_lines(tmp_path: Path) -> None:
    report = report_of(tmp_path, options=("--cuda-history", "window"))
    places = [p for d in report["devices"] for o in d["owners"] for p in o.get("allocated_at", [])]
    assert any("kept_predictions.py:" in place for place in places)
