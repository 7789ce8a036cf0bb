"""The tutorial is true: its program leaks as it says, and each command prints what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from diagnosis_pages import DOCS, without_figures

pytestmark = pytest.mark.slow

TUTORIAL = (DOCS / "tutorial.md").read_text()
PROGRAM, MENDED_LINE = re.findall(r"^```python\n(.*?)^```$", TUTORIAL, re.M | re.S)
SUMMARY, COMPARED = re.findall(r"^```text\n(.*?)\n```$", TUTORIAL, re.M | re.S)
LEAKING_LINE = "    replies[user, question] = reply\n"
COMMANDS = re.findall(r"^\$ leakscope (.+)$", TUTORIAL, re.M)


def leakscope(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    paths = [str(DOCS.parent), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-m", "leakscope", *command.split()],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )


def test_who_follows_it_sees_what_it_shows(tmp_path: Path) -> None:
    recorded, again, compared, checked, listed = COMMANDS
    script = tmp_path / "serve.py"
    script.write_text(PROGRAM)
    done = leakscope(recorded, tmp_path)
    assert done.returncode == 0
    assert re.fullmatch(r"answered \d+ questions\n", done.stdout)
    assert without_figures(done.stderr) == without_figures(SUMMARY)
    assert PROGRAM.splitlines()[7] + "\n" == LEAKING_LINE, "the page speaks of line 8"
    assert "<svg" in (tmp_path / "runs/before/report.html").read_text()

    script.write_text(PROGRAM.replace(LEAKING_LINE, MENDED_LINE))
    assert leakscope(again, tmp_path).returncode == 0
    done = leakscope(compared, tmp_path)
    assert done.returncode == 0
    assert without_figures(done.stdout).startswith(without_figures(COMPARED))

    for command in (checked, listed):
        done = leakscope(command, tmp_path)
        assert done.returncode == 0
        assert f"$ leakscope {command}\n{done.stdout.splitlines()[0]}\n" in TUTORIAL
    assert leakscope("check runs/before", tmp_path).returncode == 2
    text = leakscope("report runs/before --format text", tmp_path)
    assert "replies" in text.stdout
