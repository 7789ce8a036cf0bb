"""What a notebook shows of a run's report, without a shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from leakscope.model.report import (
    Finding,
    Overhead,
    Remedy,
    Report,
    RunFacts,
    RunVerdict,
    Severity,
    Work,
)
from leakscope.notebook import RunAnswer

ENDED = Finding(
    rank=1, kind="out_of_memory", title="Memory ran out", text="It did.", unit="",
    bytes_per_unit=0.0, interval=(0.0, 0.0), severity=Severity.CRITICAL, signature="def",
    remedy=Remedy(title="Ask for less", text="Ask for less."),
)  # fmt: skip


def report(verdict: RunVerdict, *findings: Finding) -> Report:
    run = RunFacts(
        run_id="one", path="run", script="train.py", command=[], created=0.0, environment={},
        ended="completed",
    )  # fmt: skip
    return Report(
        verdict=verdict, headline="It ended.", growth=[], culprits=[], findings=list(findings),
        cleared=[], overhead=Overhead(wall_share=0.01, peak_bytes=0), errors=[], run=run,
        work=Work(duration_s=1.0, steps=1, epochs=1, validations=0, batches={}),
    )  # fmt: skip


@pytest.mark.parametrize("verdict", list(RunVerdict))
def test_every_verdict_is_shown_as_itself(verdict: RunVerdict, tmp_path: Path) -> None:
    answer = RunAnswer(report(verdict), tmp_path)
    signs = {
        "leak": "✗ Leak",
        "clean": "✓ No leak",
        "inconclusive": "? Inconclusive",
        "out_of_memory": "✗ Out of memory",
    }
    assert str(answer).startswith(f"{signs[answer.verdict]} · ")


def test_how_a_run_ended_is_no_rate_of_nothing(tmp_path: Path) -> None:
    shown = str(RunAnswer(report(RunVerdict.OUT_OF_MEMORY, ENDED), tmp_path))
    assert "Memory ran out" in shown
    assert "0 B" not in shown
    assert "0 % of" not in shown


def test_the_page_and_the_docstring_name_every_verdict() -> None:
    page = (Path(__file__).parents[2] / "docs" / "notebooks.md").read_text()
    is_reported = RunAnswer.verdict.__doc__ or ""
    (sentence,) = [line for line in page.splitlines() if line.startswith("`found.verdict` is")]
    for verdict in RunVerdict:
        assert f"`{verdict.value}`" in sentence
        assert f"``{verdict.value}``" in is_reported
