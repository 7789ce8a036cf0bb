"""How a run was measured, and how far its answer can be trusted."""

from __future__ import annotations

import math

import msgspec
import pytest
import report_samples as samples
from page_reader import read_page

from leakscope.model.report import Falsifier, Gauged, Overhead, Problem, Report, Severity, Taken
from leakscope.report import render_html
from leakscope.report.measuring import MOST_ROWS, assurance_view, gauged_size, measuring_view
from leakscope.report.page import deadline_words
from leakscope.report.terminal import render_summary
from leakscope.report.text import humane_wait
from leakscope.report.words import together_words

MIB = 1 << 20


def taken(
    second: float, pause: float = 0.01, scope: str = "focused", requested: bool = False
) -> Taken:
    return Taken(
        time_s=second, boundary=int(second), phase="train", step=int(10 * second), scope=scope,
        objects=1234, rows=56, pause_s=pause, requested=requested,
    )  # fmt: skip


def overhead(*all_taken: Taken, **more: object) -> Overhead:
    return msgspec.structs.replace(
        Overhead(wall_share=0.01, peak_bytes=MIB, taken=[*all_taken]), **more
    )


@pytest.mark.parametrize(("errors", "shown"), [(0, "0"), (3, "3")])
def test_how_many_errors_were_suppressed_is_always_reported(errors: int, shown: str) -> None:
    facts = measuring_view(overhead(taken(1)), 51, errors).facts
    assert [fact.value for fact in facts if fact.label == "Errors suppressed"] == [shown]


def test_censuses_are_summed_up_in_a_sentence() -> None:
    view = measuring_view(
        overhead(taken(1, 0.2, "full"), taken(2, 0.3), taken(3, requested=True)), 51
    )
    assert view.sentence == (
        "3 censuses, 1 of the whole heap, 1 on request. "
        "The program stood still for 510 ms altogether, 1.0 % of the run."
    )


def test_each_census_has_a_row_and_a_line_along_the_run() -> None:
    measured = overhead(taken(10, 0.1, "full"), taken(20, 0.05, requested=True))
    view = measuring_view(measured, 40)
    page = render_html(msgspec.structs.replace(samples.leaking(), overhead=measured))
    assert '">0:10</th><td>train, step 100</td><td>whole heap</td>' in page
    assert '">0:20</th><td>train, step 200</td><td>the program&#39;s own names (on req' in page
    assert view.strip is not None
    assert view.strip.full == "M250.0 40v-40.0"
    assert view.strip.focused == "M500.0 40v-23.0"
    assert view.strip.last == "0:40"


def test_of_very_many_censuses_those_that_paused_longest_are_listed_and_that_is_reported() -> None:
    every = [taken(second, 0.001 * second) for second in range(MOST_ROWS + 50)]
    view = measuring_view(overhead(*every), 1000)
    assert len(view.taken) == MOST_ROWS
    assert view.taken_note == f"The {MOST_ROWS} that paused longest."
    assert view.taken[0].time_s == 50


def test_without_a_census_nothing_is_claimed() -> None:
    view = measuring_view(overhead(), 0.0)
    assert view.sentence == "No census was taken: nothing could be named."
    assert (view.strip, view.taken) == (None, [])


def test_gauges_of_bytes_and_of_things_are_written_apart() -> None:
    shown = [
        Gauged(metric=name, unit=unit, meaning="m", readings=2, lowest=0, highest=2048, last=3)
        for name, unit in (("rss", "bytes"), ("threads", "count"))
    ]
    rows = [(gauged_size(row.highest, row.unit), gauged_size(row.last, row.unit)) for row in shown]
    assert [(high.text, last.text) for high, last in rows] == [("2 KiB", "3 B"), ("2,048", "3")]


def test_time_is_reported_by_activity_the_longest_first() -> None:
    spent = measuring_view(overhead(seconds={"gauges": 1.0, "census": 4.0, "odd": 0.0}), 100).spent
    assert [(row.activity, row.time, row.share) for row in spent] == [
        ("censuses", "4 s", "4.0 %"),
        ("reading gauges", "1 s", "1.0 %"),
        ("odd", "0 ms", "0.0 %"),
    ]


def test_the_first_screen_says_how_far_it_can_be_trusted() -> None:
    view = assurance_view(samples.leaking(), "culprit-x")
    assert [(part.label, part.value, part.link, part.worries) for part in view.parts] == [
        ("Evidence", "it grew through 14 readings", "culprit-x", False),
        ("95 % interval", "291 to 306 MiB per validation", "culprit-x", False),
        ("Unexplained", "12 % of the growth", "ledger", False),
        ("Measuring cost", "1.4 % of the time", "measuring", False),
        ("Went wrong", "1 thing", "notices", True),
    ]
    text = read_page(render_html(samples.leaking())).text
    hero = text[: text.index("Ranked by the growth")]
    for part in view.parts:
        assert part.value in hero
    assert view.falsifier in hero
    assert view.tried in hero


def test_what_is_doubtful_is_marked() -> None:
    report = samples.leaking()
    unsure = msgspec.structs.replace(
        report.culprits[0], readings=4, falsifier=Falsifier(text="If it shrank.")
    )
    dear = msgspec.structs.replace(report.overhead, wall_share=0.2, budget=0.02)
    report = msgspec.structs.replace(
        report, culprits=[unsure], overhead=dear, errors=[Problem(where="a", message="b")] * 3
    )
    view = assurance_view(report, "x")
    worries = {part.label: part.value for part in view.parts if part.worries}
    assert worries == {
        "Evidence": "it grew through 4 readings",
        "Measuring cost": "20.0 % of the time, over budget",
        "Went wrong": "3 things",
    }
    assert view.tried == "not tried in this run"
    cost = next(part for part in view.parts if part.label == "Measuring cost")
    seconds = sum(dear.seconds.values())
    assert f"2 % is kept in runs of {humane_wait(seconds / 0.02)} or more" in cost.exact


def test_a_clean_run_names_no_suspect_but_what_measuring_cost() -> None:
    labels = {part.label for part in assurance_view(samples.clean(), "").parts}
    assert "Measuring cost" in labels
    assert not labels & {"Evidence", "95 % interval"}


def test_a_clean_run_says_what_it_cannot_have_seen() -> None:
    report = samples.clean()
    view = assurance_view(report, "")
    assert "slower than 1.6 MiB per epoch" in view.falsifier
    assert view.tried == ""
    hero = read_page(render_html(report)).text.partition("Cleared items")[0]
    assert view.falsifier in hero
    assert "−1.1 to 1.6 MiB" in hero
    shrinking = msgspec.structs.replace(report.growth[0], interval=(-2.0, -1.0))
    falling = msgspec.structs.replace(report, growth=[shrinking])
    assert not assurance_view(falling, "").falsifier
    open_ended = msgspec.structs.replace(report.growth[0], interval=(-math.inf, math.inf))
    assert not assurance_view(msgspec.structs.replace(report, growth=[open_ended]), "").falsifier
    assert not assurance_view(msgspec.structs.replace(report, growth=[]), "").falsifier


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 second"), (90, "90 seconds"), (150, "2 minutes"), (7300, "2 hours"), (4e5, "5 days")],
)
def test_a_time_to_come_is_one_number(seconds: float, words: str) -> None:
    assert humane_wait(seconds) == words


def test_the_forecast_says_how_long_the_limit_is_away_at_this_pace() -> None:
    report = samples.leaking()
    forecast = report.culprits[0].forecast
    assert forecast is not None
    assert forecast.unit == "epoch"
    work = msgspec.structs.replace(report.work, epochs=12, duration_s=12 * 60.0)
    near = msgspec.structs.replace(forecast, units_left=90.0)
    suspect = msgspec.structs.replace(report.culprits[0], forecast=near)
    report = msgspec.structs.replace(report, culprits=[suspect], work=work)
    words = "That is the memory limit, some 90 minutes away at this pace."
    assert deadline_words(report) == words
    assert words in read_page(render_html(report)).text


def test_without_a_pace_only_the_limit_is_named() -> None:
    report = samples.leaking()
    work = msgspec.structs.replace(report.work, epochs=0)
    assert deadline_words(msgspec.structs.replace(report, work=work)) == "That is the memory limit."
    assert deadline_words(samples.clean()) == ""


def growing(count: int, **fields: object) -> Report:
    """A report of so many culprits of 2 MiB a step each, a tenth of the growth."""
    shown = {
        "growth": "across", "unit": "step", "bytes_per_unit": 2.0 * MIB, "share": 0.1,
        "severity": Severity.WARNING,
    }  # fmt: skip
    first = msgspec.structs.replace(samples.leaking().culprits[0], **shown)
    last = msgspec.structs.replace(first, **fields)
    return msgspec.structs.replace(samples.leaking(), culprits=[first] * (count - 1) + [last])


def test_the_first_screen_says_how_fast_all_culprits_grow_together() -> None:
    words = "10 % of the growth; all 3 culprits grow by 6 MiB per step"
    assert together_words(growing(3)) == words
    assert f"{words}." in read_page(render_html(growing(3))).text
    shown = render_summary(growing(9), report_path="report.html")
    assert "and 6 more culprits: see report.html; all together grow by 18 MiB per step\n" in shown
    assert together_words(growing(1)) == "10 % of the growth"
    assert together_words(growing(3, severity=Severity.NOTE)).startswith(
        "10 % of the growth; all 2 "
    )


@pytest.mark.parametrize(
    "unlike",
    [
        {"unit": "epoch"}, {"growth": "within"}, {"device": "cuda:0"}, {"workers": 2},
        {"also_held_by": ["Trainer.b"]}, {"leak_share_bytes": 1024}, {"rates_by_rank": {"1": 3.0}},
    ],
)  # fmt: skip
def test_rates_that_may_not_be_added_up_are_reported_of_the_first_alone(unlike: dict) -> None:
    assert together_words(growing(3, **unlike)) == "10 % of the growth"


def test_what_falls_back_has_no_part_of_the_growth() -> None:
    assert together_words(growing(1, growth="within")) == ""
    assert together_words(samples.clean()) == ""
