"""Runs an example, as a user would, and reads what leakscope says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from warm import Warm

EXAMPLES = Path(__file__).parents[2] / "examples"


def report_of(example: str, form: str, programs: Warm, folder: Path) -> dict[str, Any]:
    """Return the report that the program has made by itself."""
    script = str(EXAMPLES / example / f"{form}.py")
    ended = programs.run([script, "--out", str(folder / form)], folder).well()
    assert "Traceback" not in ended.err
    report: dict[str, Any] = json.loads((folder / form / "report.json").read_text())
    assert not report["errors"], report["errors"]
    return report


def line_at(example: str, place: str) -> str:
    """Return the line of the leaking form that a report names."""
    lines = (EXAMPLES / example / "train.py").read_text().splitlines()
    return lines[int(place.rpartition(":")[2]) - 1]


def alarms(report: dict[str, Any]) -> list[str]:
    entries = report["culprits"] + report["findings"]
    return [e.get("name") or e["title"] for e in entries if e["severity"] != "note"]
