"""The first line of a report."""

from __future__ import annotations

import pytest

from leakscope.analysis.headline import headline
from leakscope.model.report import Culprit, Finding, Remedy, RunVerdict, Severity, Work

WORK = Work(epochs=3, steps=30, validations=3, duration_s=9.0)
REMEDY = Remedy(title="", text="")


def culprit(name: str, severity: Severity = Severity.WARNING) -> Culprit:
    return Culprit(
        rank=1,
        name=name,
        path=name,
        kind="list",
        type="list",
        growth="across",
        unit="step",
        phase="train",
        bytes_per_unit=2048.0,
        interval=(2000.0, 2100.0),
        share=0.9,
        total_bytes=100_000,
        severity=severity,
        confidence=0.9,
        fed_at=["train.py:7"],
        signature=name,
        remedy=REMEDY,
    )


def finding(title: str, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(
        rank=1, kind="k", title=title, text="All.", severity=severity, signature="", remedy=REMEDY
    )


@pytest.mark.parametrize(
    ("culprits", "findings", "text"),
    [
        (["A.xs"], [], "Memory leaks: A.xs grows by 2 KiB per step (train.py:7)."),
        (
            ["A.xs", "B.ys", "C.zs"],
            [],
            "Memory leaks: A.xs grows by 2 KiB per step (train.py:7). 2 more culprits below.",
        ),
        (
            ["A.xs"],
            ["More and more open figures"],
            (
                "Memory leaks: A.xs grows by 2 KiB per step (train.py:7). "
                "Also: more and more open figures."
            ),
        ),
        ([], ["Open files"], "Memory grows: open files. All."),
    ],
)
def test_of_a_leak_it_names_all_that_matters(
    culprits: list[str], findings: list[str], text: str
) -> None:
    found = [*map(culprit, culprits), culprit("small", Severity.NOTE)]
    diagnosed = [*map(finding, findings), finding("Slack", Severity.NOTE)]
    assert headline(RunVerdict.LEAK, found, diagnosed, [], WORK) == text
