"""Runs an example, as a user would, and reads what leakscope says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from warm import Warm

from leakscope.analysis import analyse
from leakscope.recording import open_run

EXAMPLES = Path(__file__).parents[2] / "examples"


def report_of(example: str, form: str, programs: Warm, folder: Path) -> dict[str, Any]:
    """Return the report on what the program has recorded by itself."""
    script = str(EXAMPLES / example / f"{form}.py")
    words = [script, "--out", str(folder / form)]
    ended = programs.run(words, folder, {"LEAKSCOPE_REPORT": "false"}).well()
    assert "Traceback" not in ended.err
    report: dict[str, Any] = msgspec.to_builtins(analyse(open_run(folder / form)))
    assert not report["errors"], report["errors"]
    return report


def line_at(example: str, place: str) -> str:
    """Return the line of the leaking form that a report names."""
    lines = (EXAMPLES / example / "train.py").read_text().splitlines()
    return lines[int(place.rpartition(":")[2]) - 1]


def alarms(report: dict[str, Any]) -> list[str]:
    """Return what a report accuses."""
    entries = report["culprits"] + report["findings"]
    return [entry.get("name") or entry["title"] for entry in entries if entry["severity"] != "note"]
