"""Names that a program may choose to harm who reads about it, through every renderer."""

from __future__ import annotations

import re
from pathlib import Path

import fault_runs
import pytest
from page_reader import Seen, read_page
from scoring import LeakScore, Score, summarise
from zoo_page import render as render_zoo

from leakscope.analysis import analyse
from leakscope.analysis.compare import compare
from leakscope.model.report import Report
from leakscope.recording import open_run
from leakscope.report import (
    render_comparison_html,
    render_comparison_text,
    render_html,
    render_json,
    render_summary,
    render_text,
)
from leakscope.report.markdown import suspect_markdown

NAMES = (
    "</script><img src=x onerror=alert(1)>",
    "</SCRIPT ><svg onload=alert(2)>",
    "\x1b[31mred\x1b]0;title\x07\x9b2J",
    "abc\u202egnp.exe\u2066\u2069",
    "half \ud83d pair \udc80",
    "{{ 7 * 7 }}{% raw %}",
    "=cmd|' /C calc'!A0,\"@SUM(1)\"\t+1",
    "`code` ``` **bold** [link](javascript:alert(3)) | cell |",
    "nothing\x00after\r\n::error::line",
    "long " + "x" * 20_000,
)
CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\u2066-\u2069\ud800-\udfff]"
)
PROGRAM = r"""
import time

import leakscope

NAMES = {names!r}
kinds = [type(name.replace("\x00", ""), (), {{}}) for name in NAMES if name.isprintable()]
for number, name in enumerate(NAMES):
    globals()[name] = []
with leakscope.profile(quiet=True, label=NAMES[0]) as scope:
    for epoch in scope.epochs(range(8)):
        for step in scope.steps(range(3)):
            for number, name in enumerate(NAMES):
                globals()[name].append({{name: bytes(40_000 + 1000 * number)}})
        time.sleep(0.2)  # so that there is time for censuses, on a busy machine too
        for name in NAMES[:3] + NAMES[4:]:
            with scope.phase(name):
                scope.mark(name)
raise ValueError("".join(NAMES[:4]))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of a program whose variables, keys, phases, marks and file have such names."""
    folder = tmp_path_factory.mktemp("names")
    script = "<marquee>&'\u202e train\x1b[31m.py"
    (folder / script).write_bytes(PROGRAM.format(names=NAMES).encode("ascii", "backslashreplace"))
    options = ("--out", "run", "--label", NAMES[0], "--budget", "100%", "--no-report", "-q")
    words = ("run", *options, script, NAMES[1])
    ended = fault_runs.leakscope(*words, folder=folder)
    assert ended.code == 1
    assert "ValueError" in ended.err
    return folder / "run"


@pytest.fixture(scope="module")
def report(run: Path) -> Report:
    return analyse(open_run(run))


def assert_harmless(page: str, scripts: int) -> None:
    seen: Seen = read_page(page)
    assert seen.unclosed == []
    assert not seen.tags & {"img", "iframe", "object", "embed", "form", "base", "marquee"}
    assert not [name for name in seen.attributes if name.startswith("on")]
    assert len(seen.scripts) == scripts
    assert all(link.startswith(("#", "data:,")) for link in seen.links)
    assert not CONTROL.search(page.replace("\t", "").replace("\n", ""))
    page.encode()


def test_the_program_was_recorded_with_all_its_names(report: Report) -> None:
    assert report.errors == []
    assert len(report.culprits) >= len(NAMES) - 2
    assert "exception: ValueError" in report.run.ended
    text = "".join(culprit.name for culprit in report.culprits)
    assert "</script>" in text
    assert "\u202e" in text


def test_a_long_name_leaves_room_for_the_rest(report: Report) -> None:
    assert len(report.headline) < 500
    assert len(render_summary(report, report_path="r").splitlines()) < 40


def test_the_page_stays_a_page(report: Report) -> None:
    assert_harmless(render_html(report), scripts=2)


def test_the_comparison_stays_a_page_and_a_text(report: Report) -> None:
    comparison = compare(report, report)
    assert_harmless(render_comparison_html(comparison), scripts=2)
    assert render_json(comparison).encode()
    assert not CONTROL.search(render_comparison_text(comparison))


def test_the_terminal_obeys_nobody(report: Report, run: Path) -> None:
    texts = [render_text(report), render_summary(report, report_path=NAMES[2], run_path=NAMES[3])]
    for text in texts:
        assert not CONTROL.search(text)
        assert all(len(line) <= 100 for line in text.splitlines() if "report " not in line)
    ended = fault_runs.leakscope("report", str(run), "--format", "text", folder=run)
    fault_runs.assert_no_traceback_of_ours(ended)
    assert ended.code == 0
    assert not CONTROL.search(ended.out + ended.err)


def test_json_is_json_for_everybody(report: Report) -> None:
    text = render_json(report)
    assert not re.search("[\x00-\x09\x0b-\x1f\ud800-\udfff]", text)
    assert text.encode()


def test_markdown_keeps_names_inside_their_code(report: Report) -> None:
    for culprit in report.culprits:
        text = suspect_markdown(culprit)
        assert not CONTROL.search(text)
        title = text.splitlines()[0]
        fence = re.match(r"### [A-Za-z ]+: (`+)", title)
        assert fence is not None
        assert title.endswith(fence.group(1))
        inner = title[fence.end() : -len(fence.group(1))]
        assert fence.group(1) not in re.findall("`+", inner)


def test_the_page_of_the_zoo_stays_a_page() -> None:
    names = [name.encode("utf-8", "backslashreplace").decode() for name in NAMES[:2] + NAMES[5:]]
    leak = [LeakScore(name, 1, True, 0.0, name) for name in names]
    scores = [Score(n, n, True, n, True, n, leaks=leak, wrong=names, fault=n) for n in names]
    seen = read_page(render_zoo(scores, summarise(scores)))
    assert seen.unclosed == []
    assert seen.scripts == []
    assert not seen.tags & {"img", "svg", "script"}
    assert not [name for name in seen.attributes if name.startswith("on")]
