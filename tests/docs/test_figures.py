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


def test_the_readme_tells_what_the_zoo_says() -> None:
    summary: dict[str, Any] = json.loads((ROOT / "reports" / "zoo.json").read_text())["summary"]
    leaking, healthy = summary["leaking"], summary["healthy"]
    told = table("How often it is right")
    assert told["greatest leak named first"] == f"{summary['first_right']} of {leaking}"
    assert told["… with a line that feeds it"] == f"{summary['line_right']} of {leaking}"
    assert told["… at a rate within 10 %"] == f"{summary['rate_right']} of {leaking}"
    assert (
        told["leaks among the first three accusations"]
        == f"{summary['within']} of {summary['leaks']}"
    )
    assert told[
        "growth of memory explained by the ledger, median"
    ] == f"{summary['explained']:.0%}".replace("%", " %")
    assert told["… held by culprits alone"] == f"{summary['named']:.0%}".replace("%", " %")
    assert told["a wrong alarm beside a right one"] == f"{summary['wrong_beside']} of {leaking}"
    assert told["false alarm on a healthy program"] == f"{summary['false_alarms']} of {healthy}"
    assert told["inconclusive"] == str(summary["inconclusive"])
