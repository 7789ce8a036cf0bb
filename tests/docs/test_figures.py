"""Figures in the documents are those of the files that their commands make."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def table(heading: str) -> dict[str, str]:
    """Return the first table of a section of the README, by its first column."""
    section = (ROOT / "README.md").read_text().partition(f"## {heading}\n")[2]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]*) \|$", section.partition("\n## ")[0], re.M)
    return dict(rows)


def test_the_readme_tells_what_was_judged() -> None:
    figures: dict[str, Any] = json.loads((ROOT / "tests" / "zoo" / "judged.json").read_text())
    leaking, healthy = figures["leaking"], figures["healthy"]
    reported = table("How often it is right")
    assert reported["greatest leak named first"] == f"{figures['first_right']} of {leaking}"
    assert reported["… with a line that feeds it"] == f"{figures['line_right']} of {leaking}"
    assert reported["… at a rate within 10 %"] == f"{figures['rate_right']} of {leaking}"
    within = f"{figures['within']} of {figures['leaks']}"
    assert reported["leaks among the first three accusations"] == within
    assert reported["a leak called clean"] == f"{figures['called_clean']} of {leaking}"
    assert reported["false alarm on a healthy program"] == f"{figures['false_alarms']} of {healthy}"
    assert reported["inconclusive"] == f"{figures['inconclusive']} of {figures['programs']}"
    explained = f"{figures['explained']:.0%}".replace("%", " %")
    assert reported["growth of memory explained by the ledger, median"] == explained
    measuring = f"{figures['measuring_share']:.0%}".replace("%", " %")
    assert reported["time spent on measuring, median"] == measuring
