"""A run explained in few words: what comes first, what is left out, and nothing else than facts."""

from __future__ import annotations

import json
import re

import jsonschema
import msgspec
import pytest
import rank_samples
import report_samples as samples
from hostile_text import ATTACKS, infested

from leakscope.model.documents import PartKind, RunExplanation
from leakscope.model.record import VERIFY_FOLDER
from leakscope.model.report import Decision, Report, Severity
from leakscope.report import json_schema, render_json, render_summary
from leakscope.report.explaining import (
    explain_run,
    next_steps,
    render_run_explanation_text,
    tokens_in,
)

PLENTY = 100_000
REPORTS = [
    samples.leaking,
    samples.clean,
    samples.inconclusive,
    samples.empty,
    samples.out_of_memory,
    samples.on_device,
    samples.cures_tried,
    lambda: rank_samples.report_of([rank_samples.rank(n, grows=["x"]) for n in range(12)]),
]
CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\u2066-\u2069\ud800-\udfff]"
)


def text_of(report: Report, budget: int = PLENTY) -> str:
    return render_run_explanation_text(explain_run(report, "runs/a", budget))


def kinds(explained: RunExplanation) -> list[PartKind]:
    return [part.kind for part in explained.parts]


def without_notes(report: Report) -> Report:
    graver = [
        msgspec.structs.replace(culprit, severity=Severity.NOTE) for culprit in report.culprits
    ]
    return msgspec.structs.replace(report, culprits=graver, findings=[])


@pytest.mark.parametrize("make", REPORTS)
def test_explanations_obey_their_part_of_the_schema(make) -> None:
    for budget in (1, 300, PLENTY):
        document = json.loads(render_json(explain_run(make(), "runs/a", budget)))
        jsonschema.validate(document, {**json_schema(), "$ref": "#/$defs/RunExplanation"})


@pytest.mark.parametrize("make", REPORTS)
def test_verdict_comes_first_and_the_next_command_last_whatever_the_budget(make) -> None:
    for budget in (1, 100, 300, 1000, PLENTY):
        explained = explain_run(make(), "runs/a", budget)
        assert kinds(explained)[0] is PartKind.VERDICT
        assert kinds(explained)[-1] is PartKind.NEXT
        assert explained.parts[-1].command.startswith("leakscope ")


@pytest.mark.parametrize("make", REPORTS)
def test_the_text_takes_no_more_tokens_than_there_may_be(make) -> None:
    always = explain_run(make(), "runs/a", 1)
    for budget in range(always.tokens + 5, 1500, 60):
        explained = explain_run(make(), "runs/a", budget)
        assert tokens_in(render_run_explanation_text(explained)) <= budget
        assert explained.tokens <= budget


def test_a_larger_budget_takes_nothing_away() -> None:
    reported = [
        {part.text for part in explain_run(samples.leaking(), "runs/a", budget).parts[:3]}
        for budget in (400, 1000, PLENTY)
    ]
    assert reported[0] == reported[1] == reported[2]


@pytest.mark.parametrize("make", REPORTS)
def test_what_is_left_out_is_counted_and_the_command_tells_all_of_it(make) -> None:
    whole = explain_run(make(), "runs/a", PLENTY)
    assert whole.left_out == {}
    part = explain_run(make(), "runs/a", 120)
    assert len(part.parts) + sum(part.left_out.values()) == len(whole.parts)
    *_, budget = part.whole_command.split()
    assert part.whole_command.startswith("leakscope explain runs/a --budget ")
    assert explain_run(make(), "runs/a", int(budget)).left_out == {}
    last = render_run_explanation_text(part).splitlines()[-1]
    assert last.startswith("left out for the budget: ") == bool(part.left_out)
    assert not part.left_out or last.endswith(part.whole_command)


def test_a_leak_is_reported_with_name_line_rate_deadline_change_and_falsifier() -> None:
    report = samples.leaking()
    first = report.culprits[0]
    explained = explain_run(report, "runs/a", PLENTY)
    culprit = explained.parts[1]
    assert (culprit.kind, culprit.name) == (PartKind.CULPRIT, first.name)
    assert culprit.place == first.fed_at[0]
    assert (culprit.bytes_per_unit, culprit.interval) == (first.bytes_per_unit, first.interval)
    assert first.name in culprit.text
    assert first.fed_at[0] in culprit.text
    text = render_run_explanation_text(explained)
    assert first.forecast is not None
    assert f"runs out: {first.forecast.text}" in text
    assert f"change: {first.remedy.title}" in text
    assert first.falsifier is not None
    assert f"falsifier: {first.falsifier.text}" in text
    assert first.falsifier.result is not None
    assert f"Tried: {first.falsifier.result}" in text
    order = kinds(explained)
    valued = [PartKind.CULPRIT, PartKind.FORECAST, PartKind.REMEDY, PartKind.LEDGER]
    valued += [PartKind.FALSIFIER, PartKind.CLEARED, PartKind.COST, PartKind.NEXT]
    assert [order.index(kind) for kind in valued] == sorted(order.index(kind) for kind in valued)


def test_a_diff_is_reported_whole_or_not_at_all() -> None:
    report = samples.leaking()
    (diff,) = [c.remedy.diff for c in report.culprits[:1]]
    assert diff is not None
    for budget in range(40, 1200, 40):
        explained = explain_run(report, "runs/a", budget)
        texts = [part.text for part in explained.parts if part.kind is PartKind.DIFF]
        assert texts in ([], [diff.rstrip("\n")])


def test_how_the_leading_culprit_was_judged_is_reported() -> None:
    report = samples.leaking()
    first = report.culprits[0]
    step = {"rule": "growth", "outcome": "growing: steady", "figure": 3e6, "threshold": 4096.0}
    own = Decision(subject=first.name, path=first.path, **step)
    other = Decision(subject="another", path="main()·another", **step)
    report = msgspec.structs.replace(report, decisions=[own, other])
    (reported,) = [
        p for p in explain_run(report, "a", PLENTY).parts if p.kind is PartKind.DECISIONS
    ]
    assert reported.text == f"{first.name}: growth: growing: steady [2.9 MiB, threshold 4 KiB]"


def test_without_a_leak_the_terms_are_reported_that_were_judged() -> None:
    step = {"rule": "growth", "outcome": "bounded: stopped"}
    decisions = [Decision(subject="slack", **step), Decision(subject="x", path="main()·x", **step)]
    report = msgspec.structs.replace(samples.clean(), decisions=decisions)
    reported = [
        p.text for p in explain_run(report, "a", PLENTY).parts if p.kind is PartKind.DECISIONS
    ]
    assert reported == ["free memory in the C heap: growth: bounded: stopped"]


def test_a_clean_run_says_below_what_rate_it_can_tell_nothing() -> None:
    text = text_of(samples.clean())
    assert text.startswith("✓ No leak · ")
    assert "falsifier: Growth that has no name and is slower than" in text
    assert "looked at and fine: FrameCache.frames: bounded: 500 entries since epoch 2" in text


def test_an_inconclusive_run_says_what_would_settle_it_and_how_to_run_it_again() -> None:
    text = text_of(samples.inconclusive())
    for missing in samples.inconclusive().missing:
        assert f"to settle it: {missing}" in text
    last = text.splitlines()[-1]
    assert last.startswith("next: run it for longer: leakscope run train_detector.py")


def test_no_command_leads_into_the_copy_in_which_a_remedy_was_tried() -> None:
    report = samples.inconclusive()
    command = ["python", f"/scratch/{VERIFY_FOLDER}x1/project/train.py"]
    run = msgspec.structs.replace(report.run, command=command)
    last = text_of(msgspec.structs.replace(report, run=run)).splitlines()[-1]
    assert last.startswith("next: run it for longer, then: leakscope compare ")


def test_a_run_without_memory_says_who_held_it_and_what_would_have_fitted() -> None:
    text = text_of(samples.out_of_memory())
    assert text.startswith("✗ Out of memory · ")
    assert "memory was held by: Trainer.crops 41 GiB" in text
    assert "Mend Trainer.crops: would have made it fit." in text
    assert "expandable_segments:True: would not have been enough." in text


def test_of_many_ranks_those_are_named_in_which_something_grows() -> None:
    ranks = [rank_samples.rank(n, grows=["seen"] if n % 2 else []) for n in range(40)]
    report = text_of(rank_samples.report_of(ranks))
    assert "ranks: 40 in all; rank 1: seen; rank 3: seen" in report
    assert "12 more ranks" in report


def test_notes_alone_leave_nothing_to_mend_first() -> None:
    explained = explain_run(without_notes(samples.clean()), "runs/a", PLENTY)
    assert PartKind.REMEDY not in kinds(explained)


@pytest.mark.parametrize(
    ("make", "command"),
    [
        (samples.clean, "leakscope report runs/a --format text"),
        (samples.out_of_memory, "leakscope compare runs/a NEW-RUN"),
    ],
)
def test_what_comes_next_follows_from_the_verdict(make, command: str) -> None:
    report = msgspec.structs.replace(make(), culprits=[])
    assert next_steps(report, "runs/a")[0].command == command


def test_a_diff_is_tried_by_the_number_of_its_culprit() -> None:
    report = samples.leaking()
    first, second, third = report.culprits
    assert next_steps(report, "runs/a")[0].command == "leakscope verify runs/a"
    note = msgspec.structs.replace(first, severity=Severity.NOTE)
    remedy = msgspec.structs.replace(second.remedy, diff="--- a\n+++ b\n")
    leading = msgspec.structs.replace(second, remedy=remedy, severity=Severity.WARNING)
    report = msgspec.structs.replace(report, culprits=[note, leading, third])
    assert next_steps(report, "runs/a")[0].command == "leakscope verify runs/a --remedy 2"


def test_paths_in_commands_can_be_pasted_into_a_shell() -> None:
    report = samples.leaking()
    commands = [step.command for step in next_steps(report, "my runs/it's")]
    assert "leakscope verify 'my runs/it'\"'\"'s'" in commands


def test_the_summary_after_a_run_names_the_same_next_step() -> None:
    for make in REPORTS:
        step = next_steps(make(), "runs/a")[0]
        summary = render_summary(make(), report_path="runs/a/report.html", run_path="runs/a")
        assert f"  next     {step.aim}: {step.command}" in summary


@pytest.mark.parametrize("attack", ATTACKS)
def test_names_from_the_program_stay_text(attack: str) -> None:
    for make in (samples.leaking, samples.out_of_memory, samples.inconclusive):
        explained = explain_run(infested(make(), attack), attack, PLENTY)
        shown = render_run_explanation_text(explained)
        for part in explained.parts:
            assert shown.count(part.text)
            if part.kind is PartKind.DIFF:
                shown = shown.replace(part.text, part.text.replace("\t", " "))
            else:
                assert "\n" not in part.text
        assert not CONTROL.search(shown)
        render_json(explained).encode("utf-8")
