"""What becomes of culprits between two runs, and what is reported about it."""

from __future__ import annotations

import itertools
import re
from typing import Any

import msgspec
import pytest

from leakscope.analysis.compare import compare
from leakscope.model.comparison import ChangeKind
from leakscope.model.report import (
    Component,
    Culprit,
    Finding,
    MetricGrowth,
    Overhead,
    PhaseMemory,
    Remedy,
    Report,
    RunFacts,
    RunVerdict,
    Severity,
    Work,
)
from leakscope.report import (
    render_comparison_html,
    render_comparison_markdown,
    render_comparison_text,
)
from leakscope.report.words import outcome_of

MB = 1_048_576
REMEDY = Remedy(title="", text="")


def culprit(name="Trainer.validate.all_boxes", rate=2.0 * MB, **more) -> Culprit:
    spread = more.pop("spread", 0.1)
    fields = {
        "rank": 1,
        "name": name,
        "path": f"Trainer.validate()·{name.rpartition('.')[2]}",
        "kind": "list",
        "type": "list",
        "growth": "across",
        "unit": "validation",
        "phase": "validation",
        "bytes_per_unit": rate,
        "interval": (rate * (1 - spread), rate * (1 + spread)),
        "share": 0.9,
        "total_bytes": int(20 * rate),
        "severity": Severity.WARNING,
        "readings": 9,
        "signature": f"sig-{name}",
        "remedy": REMEDY,
    }
    return Culprit(**{**fields, **more})


def finding(**more) -> Finding:
    fields = {
        "rank": 1,
        "kind": "slack",
        "title": "Free memory not returned",
        "text": "",
        "severity": Severity.WARNING,
        "signature": "slack",
        "remedy": REMEDY,
        "bytes_per_unit": 1.0 * MB,
        "interval": (0.9 * MB, 1.1 * MB),
        "unit": "epoch",
    }
    return Finding(**{**fields, **more})


def report(*culprits, verdict=None, findings=(), work=None, run=None, **more) -> Report:
    grave = [c for c in [*culprits, *findings] if c.severity is not Severity.NOTE]
    facts = {
        "run_id": "r",
        "path": "runs/r",
        "script": "train.py",
        "command": ["train.py"],
        "created": 0.0,
        "environment": {"python": "3.11", "torch": "2.13", "machine": "a"},
        "ended": "completed",
    }
    done = {"duration_s": 60.0, "steps": 100, "epochs": 5, "validations": 5}
    return Report(
        verdict=verdict or (RunVerdict.LEAK if grave else RunVerdict.CLEAN),
        headline="",
        growth=more.pop("growth", []),
        culprits=list(culprits),
        findings=list(findings),
        cleared=[],
        overhead=Overhead(wall_share=0.01, peak_bytes=0, budget=more.pop("budget", 0.02)),
        errors=[],
        run=RunFacts(**{**facts, **(run or {})}),
        work=Work(**{**done, "batches": {"train": 100, "validation": 50}, **(work or {})}),
        **more,
    )


def only(before: Report, after: Report):
    changes = compare(before, after).culprits
    assert len(changes) == 1
    return changes[0]


@pytest.mark.parametrize(
    ("before", "after", "change", "significant"),
    [
        (culprit(), None, ChangeKind.FIXED, True),
        (culprit(), culprit(rate=2.05 * MB), ChangeKind.UNCHANGED, False),
        (culprit(), culprit(rate=0.5 * MB), ChangeKind.REDUCED, True),
        (culprit(), culprit(rate=9.0 * MB), ChangeKind.WORSE, True),
        (None, culprit(), ChangeKind.NEW, True),
        (culprit(), culprit(rate=1000.0, severity=Severity.NOTE), ChangeKind.FIXED, True),
        (culprit(), culprit(severity=Severity.NOTE), ChangeKind.UNCHANGED, False),
        (culprit(severity=Severity.NOTE), culprit(rate=9.0 * MB), ChangeKind.WORSE, True),
        (culprit(spread=0.0), culprit(rate=2.01 * MB, spread=0.0), ChangeKind.UNCHANGED, False),
        (
            culprit(),
            culprit(growth="within", unit="batch", severity=Severity.NOTE),
            ChangeKind.FIXED,
            True,
        ),
        (culprit(), culprit(growth="within", unit="batch"), ChangeKind.REDUCED, True),
        (culprit(growth="within", unit="batch"), culprit(), ChangeKind.WORSE, True),
    ],
)
def test_says_what_became_of_a_culprit(before, after, change, significant) -> None:
    found = only(report(*[before] if before else []), report(*[after] if after else []))
    assert (found.change, found.significant) == (change, significant)
    assert found.name in found.text


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("Trainer.validate.all_boxes", "moved"),
        ("Trainer.evaluate.all_boxes", "renamed"),
    ],
)
def test_matches_a_culprit_whose_line_moved_or_function_was_renamed(name, signature) -> None:
    found = only(report(culprit()), report(culprit(name, signature=signature)))
    assert found.change is ChangeKind.UNCHANGED


@pytest.mark.parametrize(
    "other",
    [
        culprit("Tester.validate.all_boxes"),
        culprit("Trainer.validate.all_scores"),
        culprit("Trainer.evaluate.all_boxes", type="dict", kind="dict"),
        culprit(device="cuda:0"),
    ],
)
def test_keeps_different_culprits_apart(other) -> None:
    changes = compare(report(culprit()), report(other)).culprits
    assert [c.change for c in changes] == [ChangeKind.FIXED, ChangeKind.NEW]


def test_matches_each_culprit_once() -> None:
    before = report(culprit("T.run.xs", signature="a"), culprit("T.run.xs", signature="b"))
    after = report(culprit("T.run.xs", signature="c"))
    assert [c.change for c in compare(before, after).culprits] == [
        ChangeKind.FIXED,
        ChangeKind.UNCHANGED,
    ]


def test_converts_rates_of_different_units_by_the_work_done() -> None:
    before = report(culprit(rate=20.0 * MB, unit="epoch"))
    after = report(culprit(rate=1.0 * MB, unit="step"))
    found = only(before, after)
    assert found.after_bytes_per_unit == 20.0 * MB
    assert found.change is ChangeKind.UNCHANGED


def test_claims_nothing_about_rates_whose_units_do_not_convert() -> None:
    found = only(report(culprit(unit="mark")), report(culprit(rate=9.0 * MB, unit="step")))
    assert (found.change, found.after_bytes_per_unit) == (ChangeKind.UNCHANGED, None)


def test_lists_grave_culprits_before_notes() -> None:
    note = culprit("T.notes", severity=Severity.NOTE)
    changes = compare(report(note, culprit("T.run.xs")), report(note)).culprits
    assert [c.name for c in changes] == ["T.run.xs", "T.notes"]


def growing_peak(most: int | None, median: int) -> PhaseMemory:
    return PhaseMemory(
        phase="validation",
        occurrences=5,
        metric="rss",
        before_bytes=0,
        peak_bytes=median,
        after_bytes=0,
        kept_bytes=0,
        most_bytes=most,
    )


def test_peaks_are_compared_at_their_highest() -> None:
    before = report(culprit(), phases=[growing_peak(3000 * MB, 1900 * MB)])
    after = report(phases=[growing_peak(420 * MB, 410 * MB)])
    reported = compare(before, after)
    assert "fell from 2.9 GiB to 420 MiB" in reported.headline
    assert [(p.before_bytes, p.after_bytes) for p in reported.peaks] == [(3000 * MB, 420 * MB)]


@pytest.mark.parametrize(("first", "second"), [(None, 420 * MB), (3000 * MB, None)])
def test_peaks_compare_with_those_of_older_reports(first: int | None, second: int | None) -> None:
    before = report(culprit(), phases=[growing_peak(first, 1900 * MB)])
    after = report(phases=[growing_peak(second, 410 * MB)])
    assert "fell from 1.9 GiB to 410 MiB" in compare(before, after).headline


def test_headline_names_what_was_fixed_and_the_peak() -> None:
    peak = {"occurrences": 5, "metric": "rss"}
    peak |= {"before_bytes": 0, "after_bytes": 0, "kept_bytes": 0}
    before = report(
        culprit(), phases=[PhaseMemory(phase="validation", peak_bytes=1900 * MB, **peak)]
    )
    after = report(phases=[PhaseMemory(phase="validation", peak_bytes=410 * MB, **peak)])
    assert compare(before, after).headline == (
        "Fixed: Trainer.validate.all_boxes no longer grows (was 2 MiB per validation); "
        "peak memory in validation fell from 1.9 GiB to 410 MiB."
    )


def test_headline_puts_what_is_new_first() -> None:
    compared = compare(report(culprit("A.run.xs")), report(culprit("B.run.ys")))
    assert compared.headline.startswith("New: B.run.ys")
    assert compared.details == ["Fixed: A.run.xs no longer grows (was 2 MiB per validation)."]


def test_a_vanished_note_makes_no_headline() -> None:
    note = culprit(severity=Severity.NOTE)
    assert compare(report(note), report()).headline == "No culprit in either run."


@pytest.mark.parametrize(
    "after",
    [
        report(verdict=RunVerdict.INCONCLUSIVE),
        report(work={"batches": {"train": 100}}),
    ],
)
def test_absence_from_a_run_that_could_not_show_it_is_not_called_fixed(after) -> None:
    comparison = compare(report(culprit()), after)
    assert "was not seen again" in comparison.culprits[0].text
    assert comparison.headline.startswith("Not proven: ")
    assert "Fixed" not in comparison.headline


def test_findings_are_matched_by_kind() -> None:
    before = report(findings=[finding(signature="x")])
    after = report(findings=[finding(signature="y", bytes_per_unit=1.02 * MB)])
    assert only(before, after).change is ChangeKind.UNCHANGED


def test_growth_rates_say_whether_the_difference_is_real() -> None:
    def rss(rate: float) -> list[MetricGrowth]:
        interval = (rate - MB, rate + MB)
        return [
            MetricGrowth(
                metric="rss", unit="epoch", bytes_per_unit=rate, interval=interval,
                explained_share=0.9,
            )
        ]  # fmt: skip

    real = compare(report(growth=rss(9.0 * MB)), report(growth=rss(1.0 * MB))).growth[0]
    noise = compare(report(growth=rss(9.0 * MB)), report(growth=rss(8.5 * MB))).growth[0]
    missing = compare(report(growth=rss(9.0 * MB)), report()).growth[0]
    assert (real.significant, noise.significant, missing.significant) == (True, False, None)
    assert missing.after_bytes is None


def test_components_are_compared_by_name_and_device() -> None:
    def component(device: str, peak: int) -> Component:
        return Component(
            name="activations", device=device, start_bytes=0, peak_bytes=peak, end_bytes=0
        )

    before = report(components=[component("host", 10), component("cuda:0", 20)])
    after = report(components=[component("cuda:0", 5)])
    found = {c.device: (c.before_bytes, c.after_bytes) for c in compare(before, after).components}
    assert found == {"host": (10, None), "cuda:0": (20, 5)}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"work": {"steps": 50}}, "100 steps, the second 50"),
        ({"work": {"epochs": 6}}, "epochs"),
        ({"work": {"validations": 1}}, "validations"),
        ({"work": {"batches": {"train": 100}}}, "Only the first run had the phase validation"),
        ({"work": {"batches": {"train": 90, "validation": 50}}}, "In train"),
        ({"work": {"duration_s": 600.0}}, "10.0 times as long"),
        ({"work": {"processes": 4}}, "had 1 process, the second 4"),
        ({"run": {"environment": {"python": "3.12"}}}, "Python differs: 3.11"),
        ({"run": {"environment": {"torch": "2.2"}}}, "torch differs"),
        ({"run": {"environment": {"machine": "b"}}}, "machine differs"),
        (
            {"run": {"ended": "killed (no closing record)", "ended_regularly": False}},
            "did not end by itself: killed",
        ),
        ({"run": {"limit_bytes": 64 << 30}}, "memory limits differ"),
        ({"budget": 0.1}, "budgets differ"),
    ],
)
def test_warns_when_the_runs_did_not_do_the_same_work(change, word) -> None:
    sentences = compare(report(), report(**change)).work_differences
    assert any(word in sentence for sentence in sentences)


def test_has_nothing_to_warn_of_for_the_same_work() -> None:
    assert compare(report(), report()).work_differences == []


def test_a_watched_process_that_ended_was_not_broken_off() -> None:
    assert compare(report(), report(run={"ended": "ended"})).work_differences == []


def test_scripts_in_other_folders_are_the_same_script() -> None:
    after = report(run={"script": "/elsewhere/train.py"})
    assert compare(report(), after).work_differences == []


def test_the_mended_copy_of_a_script_is_reported_as_another_one() -> None:
    compared = compare(report(culprit()), report(run={"script": "train_fixed.py"}))
    assert compared.headline.startswith("Fixed: ")
    assert compared.details == ["The scripts differ: train.py, then train_fixed.py."]
    assert compared.work_differences == []
    assert not compared.is_another_program
    assert outcome_of(compared)[1] == "Fixed"
    calm = compare(report(), report(run={"script": "train_fixed.py"}))
    assert calm.headline == "No culprit in either run."
    assert calm.details == ["The scripts differ: train.py, then train_fixed.py."]


@pytest.mark.parametrize(
    "work", [{"steps": 900}, {"epochs": 1}, {"batches": {"train": 100}}, {"validations": 9}]
)
def test_another_script_that_did_other_work_fixes_nothing(work: dict[str, Any]) -> None:
    compared = compare(report(culprit()), report(run={"script": "other.py"}, work=work))
    assert compared.is_another_program
    assert (
        compared.headline == "Another script: other.py ran instead of train.py and did other work."
    )
    assert compared.details == [
        "Not seen there: Trainer.validate.all_boxes; what was not done can't have been mended."
    ]
    assert "ixed" not in f"{compared.headline} {compared.details}"
    assert "no longer grows" not in compared.culprits[0].text
    assert compared.culprits[0].is_elsewhere
    for page in (
        render_comparison_text(compared),
        render_comparison_markdown(compared),
        render_comparison_html(compared),
    ):
        assert "ot seen" in page
        assert not re.search(r">Fixed<|Fixed:|^fixed ", page, re.MULTILINE)
    assert compared.work_differences[0] == (
        "The first run was of train.py, the second of other.py."
    )
    assert outcome_of(compared) == ("inconclusive", "Another script")
    text = render_comparison_text(compared)
    assert text.startswith("? Another script · other.py ran instead of train.py")


def test_a_quicker_copy_is_no_other_program() -> None:
    slow = report(culprit(), work={"duration_s": 600.0})
    assert not compare(slow, report(run={"script": "quick.py"})).is_another_program


def test_the_same_script_that_did_other_work_may_have_fixed_something() -> None:
    compared = compare(report(culprit()), report(work={"steps": 900}))
    assert compared.headline.startswith("Fixed: ")
    assert "script" not in compared.headline


def test_empty_and_momentary_runs_compare_without_complaint() -> None:
    nothing = report(
        verdict=RunVerdict.INCONCLUSIVE,
        work={"duration_s": 0.0, "steps": 0, "epochs": 0, "validations": 0, "batches": {}},
        run={"environment": {}, "script": "", "ended": ""},
    )
    some = report(culprit(rate=0.0, interval=(0.0, 0.0), unit="epoch"), findings=[finding()])
    for before, after in itertools.product([nothing, some, report()], repeat=2):
        comparison = compare(before, after)
        assert comparison.headline
        msgspec.json.encode(comparison)
