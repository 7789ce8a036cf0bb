"""The guide is true: its program leaks as it says, and every command prints what stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from diagnosis_pages import DOCS, excerpt, without_figures
from snippet_recorder import SnippetRecorder
from warm import Warm

from leakscope.analysis import analyse
from leakscope.recording import open_run
from leakscope.report import render_summary

pytestmark = pytest.mark.slow

GUIDE = (DOCS / "guide.md").read_text()
PROGRAM, MENDED_LINE = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.M | re.S)
SUMMARY, REPORT, COMPARED, CHECKED = re.findall(r"^```text\n(.*?)\n```$", GUIDE, re.M | re.S)
LEAKING_LINE = "            self.predictions.append(scores)\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, recorder: SnippetRecorder) -> Path:
    """Return a folder with the runs that the guide makes: ``before`` and ``after``."""
    folder = tmp_path_factory.mktemp("guide")
    mended = PROGRAM.replace(LEAKING_LINE, MENDED_LINE)
    assert mended != PROGRAM
    for name, program in (("before", PROGRAM), ("after", mended)):
        place = folder / f"making-{name}"
        place.mkdir()
        (place / "train.py").write_text(program)
        recorder.record(place).rename(folder / name)
    return folder


def test_the_summary_is_what_the_guide_shows(runs: Path) -> None:
    report = analyse(open_run(runs / "before"))
    text = render_summary(
        report,
        report_path="runs/before/report.html",
        run_path="runs/before",
        width=80,
        color=False,
    )
    assert without_figures(text) == without_figures(SUMMARY)


def test_the_report_is_what_the_guide_shows(runs: Path) -> None:
    report = excerpt(analyse(open_run(runs / "before")))
    assert without_figures(report) == without_figures(REPORT)


def test_comparing_says_what_the_guide_shows(runs: Path, leakscope_commands: Warm) -> None:
    done = leakscope_commands.run(["-m", "leakscope", "compare", "before", "after"], runs).well()
    output = without_figures(done.out.partition("\n\n")[0])
    expected = without_figures(COMPARED)
    busy = "! not the same work: The first run took # times as long for the same steps."
    if output.endswith(busy):  # the machine did other things meanwhile
        expected = expected.partition("same work")[0] + busy
    assert output == expected


def test_checking_says_what_the_guide_shows(runs: Path, leakscope_commands: Warm) -> None:
    done = leakscope_commands.run(["-m", "leakscope", "check", "after"], runs).well()
    assert done.out.strip() == CHECKED
    assert leakscope_commands.run(["-m", "leakscope", "check", "before"], runs).code == 2
