"""What is reported on findings in a sentence: titles that are sentences themselves can't grow.

Every kind takes part with the title that its rule has and, where they are of another form, with
those that a diagnosis gives.
"""

from __future__ import annotations

from datetime import date

import msgspec
import pytest
from test_analysis_compare import culprit, finding, report

from leakscope.analysis.compare import compare
from leakscope.analysis.gate import Allowed, check
from leakscope.analysis.verdict.headline import headline
from leakscope.model.report import RunVerdict, Severity, Work
from leakscope.report.gates.sarif import known_rules, rule_of

MB = 1_048_576
NOTE = Severity.NOTE
TITLES = [
    *(rule_of(kind).title for kind in known_rules()),
    "Child processes grow",
    "tuple objects that only native code holds",
    "More and more open figures",
    "Memory ran out on cuda:0",
    "Gradients (20 MiB) are filled with zeros instead of dropped",
    "Worker processes pile up: loaders keeps them alive",
]


def not_allowed(*suspects) -> str:
    culprits = [suspect for suspect in suspects if hasattr(suspect, "name")]
    found = report(*culprits, findings=[suspect for suspect in suspects if suspect not in culprits])
    return check(found, Allowed(today=date(2026, 6, 1))).headline


@pytest.mark.parametrize("title", TITLES)
def test_a_check_names_the_finding_and_how_fast_it_is(title: str) -> None:
    single = finding(title=title, bytes_per_unit=40.0 * 1024, fed_at=["train.py:7"])
    assert not_allowed(single) == f"Not allowed: {title} (40 KiB per epoch, train.py:7)."


@pytest.mark.parametrize("title", TITLES)
def test_a_check_names_a_finding_that_has_no_rate(title: str) -> None:
    assert not_allowed(finding(title=title, bytes_per_unit=0.0)) == f"Not allowed: {title}."


def test_a_check_says_of_a_culprit_that_it_grows() -> None:
    reported = not_allowed(culprit(name="A.xs", fed_at=["train.py:7"]), finding())
    assert reported == "Not allowed: A.xs grows by 2 MiB per validation (train.py:7). And 1 more."


@pytest.mark.parametrize("title", TITLES)
@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (None, 2.0, "is new: 2 MiB per epoch."),
        (2.0, None, "is gone (was 2 MiB per epoch)."),
        (2.0, 2.0, "is still so: 2 MiB per epoch, as before."),
        (2.0, 9.0, "is more than it was: 9 MiB per epoch (was 2 MiB per epoch)."),
        (9.0, 2.0, "is less than it was: 2 MiB per epoch (was 9 MiB per epoch)."),
        (None, 0.0, "is new."),
        (0.0, None, "is gone."),
    ],
)
def test_a_comparison_quotes_the_finding(
    title: str, before: float | None, after: float | None, text: str
) -> None:
    first, second = (
        report(findings=[at_rate(title, rate)] if rate is not None else [])
        for rate in (before, after)
    )
    assert [item.text for item in compare(first, second).culprits] == [f'"{title}" {text}']


def test_a_finding_that_does_no_harm_any_more_is_reported_as_such() -> None:
    harmless = msgspec.structs.replace(at_rate("Child processes grow", 0.25), severity=NOTE)
    first = report(findings=[at_rate("Child processes grow", 2.0)])
    (single,) = compare(first, report(findings=[harmless])).culprits
    assert single.text == (
        '"Child processes grow" does no harm any more: 256 KiB per epoch (was 2 MiB per epoch).'
    )


@pytest.mark.parametrize("title", TITLES)
def test_the_answer_of_a_report_does_not_say_twice_that_memory_grows(title: str) -> None:
    printed = headline(RunVerdict.LEAK, [], [finding(title=title, text="All.")], [], Work())
    assert printed.lower().count("memory grows") == 1
    assert printed.endswith(f"{title[1:]}. All.")


def at_rate(title: str, rate: float):
    spread = (0.99 * rate * MB, 1.01 * rate * MB)
    return finding(title=title, bytes_per_unit=rate * MB, interval=spread)
