"""What keeps tracebacks and suspended frames is named, not the locals that these have."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "programs" / "frames_kept.py"
HOLDERS = {
    "log_records": ("Records.records", "logging.LogRecord"),
    "chained": ("Runner.last_error", "frame"),
    "futures": ("Pool.done", "concurrent.futures._base.Future"),
    "tasks": ("Service.requests", "_asyncio.Task"),
    "generators": ("Readers.open", "generator"),
    "last_exception": ("sys.last_value", "frame"),
}
"""By program the name of what keeps the frames, and what it mainly has."""
KEPT_BY = {
    "log_records": "A ValueError keeps its traceback",
    "chained": "A ValueError keeps its traceback",
    "futures": "A ValueError keeps its traceback",
    "tasks": "An exception keeps its traceback",  # in C, where a task has it
    "generators": "60 generators that wait for their next step",
    "last_exception": "A ValueError keeps its traceback",
}
"""What the remedy says of why frames stay."""
BYTES_A_STEP = 200_000
OF_THE_INTERPRETER = {"last_exception"}
"""No line of the program's own name fills these."""


def report_of(case: str, variant: str, folder: Path) -> dict[str, Any]:
    words = [sys.executable, str(PROGRAM), case, variant, "run"]
    subprocess.run(words, cwd=folder, check=True, timeout=120, capture_output=True)
    report: dict[str, Any] = json.loads((folder / "run" / "report.json").read_text())
    return report


def keeping_line(name: str) -> int:
    """Return the line that is marked as the one that keeps something under that name."""
    last = name.rpartition(".")[2]
    lines = enumerate(PROGRAM.read_text().splitlines(), 1)
    return next(n for n, line in lines if "# kept here" in line and f".{last}" in line)


@pytest.mark.parametrize("case", sampled(HOLDERS, {"futures"}))
def test_the_holder_is_named_with_its_line_and_not_the_locals_below(
    case: str, tmp_path: Path
) -> None:
    report = report_of(case, "leak", tmp_path)
    (first,) = report["culprits"]
    name, held = HOLDERS[case]
    assert report["verdict"] == "leak"
    assert first["name"] == name
    assert first["bytes_per_unit"] == pytest.approx(BYTES_A_STEP, rel=0.1)
    assert first["holds"][0]["type"] == held
    assert KEPT_BY[case] in first["remedy"]["text"]
    if case not in OF_THE_INTERPRETER:
        assert first["fed_at"][0].endswith(f"frames_kept.py:{keeping_line(name)}")


@pytest.mark.parametrize("case", sampled(HOLDERS, set()))
def test_what_keeps_words_alone_or_ends_frames_is_clean(case: str, tmp_path: Path) -> None:
    report = report_of(case, "fixed", tmp_path)
    assert report["verdict"] == "clean"
    assert report["culprits"] == []
