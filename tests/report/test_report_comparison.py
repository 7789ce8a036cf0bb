"""The comparison as a page and as Markdown: verdict, evidence, doubts."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
import report_samples as samples
from hostile_text import ATTACKS, infested
from page_reader import read_page

from leakscope.model.comparison import Comparison
from leakscope.model.report import Line
from leakscope.report import render_comparison_html, render_comparison_markdown
from leakscope.report.comparison.page import comparison_page


@pytest.fixture(scope="module")
def page() -> str:
    return render_comparison_html(samples.comparison())


@pytest.fixture(scope="module")
def text(page: str) -> str:
    return read_page(page).text


def changed(**changes: object) -> Comparison:
    return msgspec.structs.replace(samples.comparison(), **changes)


def test_the_first_screen_tells_verdict_change_and_peak(text: str) -> None:
    hero = text[: text.index("Matched by what they are")]
    for shown in (
        "The leak is fixed",
        "298 MiB per validation → no growth",
        "Peak in validation",
        "did not do the same work",
        "batch size of validation: 32 before",
    ):
        assert shown in hero


def test_each_grave_culprit_has_a_card_with_both_series(page: str) -> None:
    cards = re.findall(r'<article class="card culprit changed (\w+)"', page)
    assert cards == ["reduced", "fixed"]
    reduced = page[page.index('id="change-b77e01d3c4"') :].partition("</article>")[0]
    assert "var(--before)" in reduced
    assert "var(--after)" in reduced
    assert "40.2 to 48.8\N{NO-BREAK SPACE}MiB" in reduced
    assert "4 before, 2 after" in reduced


def test_every_culprit_has_a_permanent_link_and_the_grave_ones_can_be_copied() -> None:
    page = comparison_page(samples.comparison())
    assert len({view.anchor for view in page.culprits}) == 3
    copied = {f"{view.anchor}-markdown" for view in page.cards}
    assert len(copied) == 2
    assert page.data["copies"].keys() - copied == {"comparison-markdown", "comparison-json"}


def test_rates_of_few_ranks_are_reported_one_by_one(text: str) -> None:
    assert "0: 298 MiB → none; 1: 297 MiB → none" in text


def test_of_many_ranks_the_report_says_in_how_many_it_grows() -> None:
    first = samples.comparison().culprits[0]
    many = {str(n): 1.0 for n in range(512)}
    culprits = [msgspec.structs.replace(first, before_rates_by_rank=many)]
    assert "grew in 512 ranks before, in 0 after" in render_comparison_html(
        changed(culprits=culprits)
    )


def test_a_doubt_stands_at_the_culprit_and_among_what_could_not_be_distinguished() -> None:
    first = msgspec.structs.replace(samples.comparison().culprits[0], doubt="both overlap")
    text = read_page(render_comparison_html(changed(culprits=[first]))).text
    assert "Not certain: both overlap." in text
    assert "Trainer.all_pred_boxes: both overlap." in text
    assert "(not certain)" in text


def test_a_gauge_within_its_noise_is_not_coloured_as_progress() -> None:
    noisy = msgspec.structs.replace(
        samples.comparison().growth[0],
        significant=False,
        before_interval=(-1.0, 900.0 * samples.MIB),
        after_interval=(-2.0, 90.0 * samples.MIB),
    )
    page = comparison_page(changed(growth=[noisy]))
    assert (page.growth[0].direction, page.growth[0].certain) == ("", "within the noise")
    assert any("each other's noise" in text for text in page.undecided)


def test_nothing_undecided_is_reported_too(text: str) -> None:
    assert "Nothing: each difference of a rate is larger than its intervals" in text


def test_timelines_are_laid_over_each_other_by_step(text: str) -> None:
    page = comparison_page(samples.comparison())
    assert page.overlay is not None
    data = page.overlay.data
    assert data["x"] == "step"
    assert data["lines"][0]["key"] == "before"
    assert data["steps"][-1] >= [max(x for x, _ in data["lines"][0]["points"]), 396.0]
    assert data["steps"][-1][1] <= 400
    assert [overlay.data["x"] for overlay in page.by_time] == ["clock"]
    assert "Memory by step" in text


def test_without_steps_in_both_the_clock_is_taken_and_that_is_reported() -> None:
    page = comparison_page(changed(after_timeline=samples.timeline(points=40)))
    assert page.overlay is not None
    assert (page.overlay.data["x"], page.by_time) == ("clock", [])
    assert "not both runs counted steps" in page.overlay.view.note


def test_one_run_without_a_timeline_leaves_the_other_drawn() -> None:
    page = comparison_page(changed(after_timeline=None))
    assert page.overlay is not None
    assert [line["key"] for line in page.overlay.data["lines"]] == ["before"]
    assert comparison_page(changed(before_timeline=None, after_timeline=None)).overlay is None


def test_gauges_of_devices_are_drawn_too() -> None:
    both = samples.comparison().before_timeline
    assert both is not None
    points = [(0.0, 1.0), (9.0, 2.0)]
    device = Line(label="cuda:0 allocated", metric="cuda:0.allocated", points=points)
    more = msgspec.structs.replace(both, lines=[*both.lines, device])
    page = comparison_page(changed(before_timeline=more))
    assert "cuda:0 in live tensors by step" in [overlay.title for overlay in page.overlays]


def test_the_check_of_the_work_shows_what_was_compared(text: str) -> None:
    assert "Versions and machine: 1 of 1 differ" in text
    assert "Work done: all 2 alike" in text
    states = {
        row.name: row.state
        for table in comparison_page(samples.comparison()).facts
        for row in table.rows
    }
    assert states == {
        "steps": "same", "ranks": "same", "--out": "aside", "torch": "differs", "budget": "unknown",
    }  # fmt: skip


def test_the_same_work_is_reported_by_what_was_compared() -> None:
    same = [fact for fact in samples.comparison().work if not fact.differs]
    text = read_page(render_comparison_html(changed(work=same, work_differences=[]))).text
    assert "Same work: 4,800 steps, 2 ranks" in text


def test_what_each_run_cost_is_reported(text: str) -> None:
    for shown in ("3 min 31 s", "44 ms", "3 % (budget 2 %)", "5.7 GiB", "Errors suppressed"):
        assert shown in text


def test_ranks_and_workers_stand_side_by_side(text: str) -> None:
    assert "Before: Rank 1 is the first that differs." in text
    assert "worker 0 of loader 1" in text
    assert "copies FrameDataset.samples" in text
    assert "no such worker" in text


def test_of_many_ranks_those_that_changed_most_come_first() -> None:
    pair = samples.comparison().ranks[0]
    assert pair.after is not None
    pairs = [
        msgspec.structs.replace(
            pair, rank=n, after=msgspec.structs.replace(pair.after, peak_bytes=n * samples.GIB)
        )
        for n in range(600)
    ]
    table = comparison_page(changed(ranks=pairs)).ranks
    assert table is not None
    assert table.rows[0].name == "rank 599"
    assert (len(table.rows), len(table.others), table.left_out) == (
        16, 512, "88 more, all in the JSON",
    )  # fmt: skip


def test_the_whole_comparison_can_be_copied() -> None:
    copies = comparison_page(samples.comparison()).data["copies"]
    shown = json.loads(copies["comparison-json"])
    assert shown["headline"] == samples.comparison().headline
    assert len(shown["culprits"]) == 3
    assert shown["before_timeline"] is None, "the drawings' points are left to the file"
    assert copies["comparison-markdown"] == render_comparison_markdown(samples.comparison())


def test_markdown_for_a_pull_request_tells_verdict_culprits_peaks_and_work() -> None:
    lines = render_comparison_markdown(samples.comparison()).splitlines()
    assert lines[0].startswith("### ✓ Fixed: The leak is fixed")
    assert (
        "| fixed | `Trainer.all_pred_boxes` | 298 MiB per validation (291 to 306 MiB) | no growth |"
        in lines
    )
    assert "- **Peaks:** train 4.6 GiB → 2.3 GiB; validation 5.7 GiB → 2.4 GiB" in lines
    assert "- **Not the same work**, so read the numbers with care:" in lines
    assert "  - batch size of validation: 32 before, 16 after" in lines


@pytest.mark.parametrize("attack", [*ATTACKS, "a | b `c` \\ <d>"])
def test_no_name_breaks_out_of_its_cell(attack: str) -> None:
    lines = render_comparison_markdown(infested(samples.comparison(), attack)).splitlines()
    beginnings = ("### ", "| ", "- **", "  - ", "1 further change, ")
    assert all(line.startswith(beginnings) for line in lines if line)
    assert len([line for line in lines if line.startswith("| ")]) == 4
    for line in lines:
        outside = re.sub(r"(`+).*?\1", "", line)
        assert not re.search(r"(?<!\\)[<\[]", outside)
        if line.startswith("| fixed"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 5


def test_an_empty_comparison_is_a_page_and_a_text() -> None:
    run = samples.empty().run
    empty = Comparison(
        headline="", before=run, after=run, before_verdict=samples.empty().verdict,
        after_verdict=samples.empty().verdict, culprits=[], growth=[], components=[], peaks=[],
        work_differences=[],
    )  # fmt: skip
    assert read_page(render_comparison_html(empty)).unclosed == []
    assert render_comparison_markdown(empty).startswith("### ? Not settled")
