"""Two containers that keep the same objects: the report names both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from warm import Warm

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "programs" / "kept_twice.py"


def test_a_culprits_remedy_names_who_else_keeps_its_contents(
    tmp_path: Path, leakscope_commands: Warm
) -> None:
    out = tmp_path / "run"
    command = ["-m", "leakscope", "run", "--quiet", "--out", str(out), str(PROGRAM)]
    leakscope_commands.run(command, tmp_path).well()
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    first = report["culprits"][0]
    assert first["name"] == "Trainer.outputs"
    assert first["bytes_per_unit"] == pytest.approx(32 * 512 * 4, rel=0.05)
    assert first["also_held_by"] == ["Logger.records"]
    assert first["exclusive_bytes"] < 0.05 * first["total_bytes"]
    assert "`Logger.records` holds the same objects" in first["remedy"]["text"]
