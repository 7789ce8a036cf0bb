"""How a run ended, reported where people look first."""

from __future__ import annotations

import msgspec
import pytest
import report_samples as samples
from page_reader import read_page

from leakscope.analysis.accounting.run_facts import problems_of
from leakscope.model.record import ErrorRecord, HeaderRecord
from leakscope.model.report import Finding, Problem, ProblemKind, Report, RunVerdict, Severity
from leakscope.model.run import Recording
from leakscope.report import render_html, render_text
from leakscope.report import words as wording
from leakscope.report.culprits import finding_views
from leakscope.report.page import report_page


def ran_out_by_a_leak() -> Report:
    return msgspec.structs.replace(samples.out_of_memory(), verdict=RunVerdict.LEAK)


def test_a_leak_that_ended_the_run_says_so_in_its_verdict() -> None:
    report = ran_out_by_a_leak()
    page = report_page(report)
    assert page.verdict_label == wording.LEAK_RAN_OUT
    assert page.title.startswith(wording.LEAK_RAN_OUT)
    assert render_text(report).startswith(f"✗ {wording.LEAK_RAN_OUT} · ")
    assert report_page(samples.leaking()).verdict_label == "Leak"
    assert report_page(samples.out_of_memory()).verdict_label == "Out of memory"


def test_what_would_have_made_it_fit_stands_on_the_first_screen() -> None:
    page = report_page(ran_out_by_a_leak())
    assert page.shortage is not None
    assert page.shortage.first_ways == "Mend Trainer.crops", "the other way would not help"
    text = " ".join(read_page(render_html(ran_out_by_a_leak())).text.split())
    assert text.index("What would have made it fit") < text.index("Change this:")


def ending() -> Finding:
    return msgspec.structs.replace(
        samples.slack_finding(),
        kind="out_of_memory",
        title="Memory ran out",
        unit="",
        share=0.0,
        severity=Severity.CRITICAL,
    )


def test_a_shortage_is_reported_as_no_growth() -> None:
    (card,) = finding_views([ending()])
    assert (card.share, card.growth_label) == ("", "")
    report = msgspec.structs.replace(samples.leaking(), findings=[ending()])
    cards = render_html(report).partition('id="findings"')[2].partition("</article>")[0]
    assert "Memory ran out" in cards
    for growing in ("Share of", "Kept: grows", "0 %"):
        assert growing not in cards
    (slack,) = finding_views([samples.slack_finding()])
    assert slack.share
    assert slack.growth_label


def test_a_shortage_of_our_own_is_reported_as_a_sentence() -> None:
    message = "MemoryError: (graph.py:311)"
    problem = Problem(where="census", message=message, kind=ProblemKind.OWN_SHORTAGE)
    words = wording.problem_words(problem)
    assert words.startswith("no memory was left for it")
    assert words.endswith(message)
    report = msgspec.structs.replace(samples.clean(), errors=[problem])
    assert words in [fact.value for fact in report_page(report).problems]
    assert message in " ".join(render_text(report).split())


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("MemoryError:  (graph.py:311)", ProblemKind.OWN_SHORTAGE),
        ("MemoryError", ProblemKind.OWN_SHORTAGE),
        ("OSError: MemoryError: (gauge.py:3)", ProblemKind.OTHER),
    ],
)
def test_a_shortage_of_our_own_is_known_by_its_exception(message: str, kind: ProblemKind) -> None:
    recording = Recording(HeaderRecord())
    recording.errors.append(ErrorRecord(where="census", message=message))
    assert [problem.kind for problem in problems_of(recording)] == [kind]


def test_other_faults_are_reported_as_they_are() -> None:
    assert wording.problem_words(Problem(where="gauge", message="OSError: no")) == "OSError: no"


def killed(report: Report, how: str = "the run was killed by SIGKILL") -> Report:
    return msgspec.structs.replace(report, run=msgspec.structs.replace(report.run, ending=how))


def test_a_kill_is_reported_under_the_headline() -> None:
    ended = wording.ending_words(killed(samples.leaking()))
    assert ended == "The run was killed by SIGKILL."
    text = " ".join(read_page(render_html(killed(samples.clean()))).text.split())
    assert "The run was killed by SIGKILL." in text
    assert not wording.ending_words(killed(samples.leaking(), ""))
    assert not wording.ending_words(killed(samples.out_of_memory())), "the headline tells"
