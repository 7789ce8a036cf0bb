"""What pages without a test file of their own show is run, and does what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from leakscope.recording import open_run

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
ASKED = re.compile(r"^```pycon\n(.*?)^```$", re.M | re.S)
FIGURE = re.compile(r"[+−]?\d[\d.,]*( (B|KiB|MiB))?")
OF_THE_PROGRAM = re.compile(r"trainer|Trainer|history|scores|__main__·last")

AROUND = """
loader = range(3)
def train(): pass
def validate(): pass
"""


def without_figures(text: str) -> list[str]:
    """Return what lines say of the program's own names: the rest is of Python and of torch."""
    sentences = text.replace("would be\n  freed", "would be freed")
    plain = (" ".join(FIGURE.sub("", line).split()) for line in sentences.splitlines())
    return [line for line in plain if OF_THE_PROGRAM.search(line)]


def test_the_heap_answers_as_its_page_shows(tmp_path: Path) -> None:
    page = (DOCS / "heap-snapshot.md").read_text()
    (program,) = PROGRAM.findall(page)
    (tmp_path / "loop.py").write_text(program)
    lines = [line for block in ASKED.findall(page) for line in block.splitlines()]
    requested = "".join(f"{line[4:]}\n" for line in lines if line.startswith(">>> "))
    done = subprocess.run(
        [sys.executable, "-i", "-q", "loop.py"],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "100"},
        input=requested,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    shown = "\n".join(line for line in lines if not line.startswith(">>> "))
    assert without_figures(done.stdout) == without_figures(shown), done.stderr


def test_the_three_ways_to_wrap_record_what_they_wrap(tmp_path: Path) -> None:
    (program,) = PROGRAM.findall((DOCS / "wrapping.md").read_text())
    (tmp_path / "wrapped.py").write_text(f"{AROUND}{program}\nmain()\n")
    done = subprocess.run(
        [sys.executable, "wrapped.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "runs" / "detector" / "run.json").exists()
    plain, exact = sorted((tmp_path / "leakscope-runs").iterdir())
    (recording,) = open_run(exact).recordings
    kinds = [measured.boundary.kind.value for measured in recording.measurements]
    assert kinds.count("epoch_end") == 40
    assert (plain / "run.json").exists()
