"""Freed memory that the C heap keeps is an accusation only beyond what leakscope could cause."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from warm import Warm

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "programs" / "heap_with_holes.py"


@pytest.mark.parametrize(
    ("in_use_mib", "severity", "verdict"), [(0, "warning", "leak"), (200, "note", "clean")]
)
def test_holes_that_grow_are_reported_where_they_are_larger_than_what_is_in_use(
    in_use_mib: int, severity: str, verdict: str, tmp_path: Path, leakscope_commands: Warm
) -> None:
    program = tmp_path / "train.py"
    text = PROGRAM.read_text(encoding="utf-8")
    program.write_text(text.replace("IN_USE_MIB = 0", f"IN_USE_MIB = {in_use_mib}"))
    command = ["-m", "leakscope", "run", "--quiet", "--out", "run", "train.py"]
    leakscope_commands.run(command, tmp_path).well()
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    findings = {finding["kind"]: finding for finding in report["findings"]}
    assert report["verdict"] == verdict
    assert findings["allocator_slack"]["severity"] == severity
    assert ("leakscope's own" in findings["allocator_slack"]["text"]) is (severity == "note")
