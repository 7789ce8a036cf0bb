"""A culprit's card: the way to it, its source in colours, and what its buttons hand over."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
import report_samples as samples
from hostile_text import ATTACKS, infested
from page_reader import read_page

from leakscope.model.report import Excerpt, Falsifier, HeldLine, Severity
from leakscope.report import render_html, words
from leakscope.report.culprits import (
    MOST_STEPS,
    coloured,
    culprit_views,
    excerpt_view,
    finding_views,
    path_steps,
)
from leakscope.report.markdown import suspect_markdown

MIB = 1 << 20


def boxes_of(path: str, **more: object) -> list[tuple[str, str]]:
    culprit = msgspec.structs.replace(samples.boxes_culprit(), path=path, **more)
    return [(box.kind, box.text) for box in path_steps(culprit)]


def test_the_way_leads_from_the_root_over_each_step_to_the_contents() -> None:
    assert boxes_of("main()·trainer.logger['rows']") == [
        ("root", "main()"),
        ("step", "trainer"),
        ("step", ".logger"),
        ("culprit", "Trainer.all_pred_boxes"),
        ("contents", "7,680 × numpy.ndarray"),
    ]


def test_items_and_closures_are_steps_too() -> None:
    kept = boxes_of("lib·register[*]⟨hook⟩.cache", holds=[])
    assert kept == [
        ("root", "lib"),
        ("step", "register"),
        ("step", "[*]"),
        ("step", "hook"),
        ("culprit", "Trainer.all_pred_boxes"),
    ]


def test_a_long_way_is_shortened_in_the_middle() -> None:
    way = boxes_of("main()·a" + "".join(f".b{i}" for i in range(20)))
    steps = [text for kind, text in way if kind == "step"]
    assert len(steps) == MOST_STEPS + 1
    assert steps[0] == "a"
    assert steps[MOST_STEPS // 2] == "…"
    assert steps[-1] == ".b18"


def test_a_path_without_a_root_falls_back_on_the_holders() -> None:
    assert boxes_of("somewhere", held_by=["Trainer.logger"], holds=[]) == [
        ("step", "Trainer.logger"),
        ("culprit", "Trainer.all_pred_boxes"),
    ]


def test_contents_are_compared_by_bars() -> None:
    holds = [HeldLine(type="a", count=3, bytes=400), HeldLine(type="b", count=1, bytes=100)]
    culprit = msgspec.structs.replace(samples.boxes_culprit(), holds=holds)
    (card,) = culprit_views([culprit])
    assert [row.bar.width for row in card.holds] == ["100.00%", "25.00%"]


def test_a_text_over_several_lines_keeps_its_colour() -> None:
    lines = ['"""One', "for two in three", '"""', "x = 1"]
    assert [[token.style for token in line] for line in coloured(lines)] == [
        ["string"],
        ["string"],
        ["string"],
        ["", "number"],
    ]


def test_coloured_lines_are_the_lines_again() -> None:
    lines = ["def f(self):", "\treturn f'{self!r}' \x00", "", "  '''open", "\u2028 \r odd"]
    assert ["".join(token.text for token in line) for line in coloured(lines)] == lines


def test_the_feeding_line_is_marked_also_inside_a_text() -> None:
    excerpt = Excerpt(file="a.py", first_line=3, lines=["'''", "x", "'''"], marked=[4])
    view = excerpt_view(excerpt)
    assert [(line.number, line.marked) for line in view.lines] == [
        (3, False),
        (4, True),
        (5, False),
    ]


def test_the_buttons_hand_over_markdown_diff_and_json() -> None:
    report = samples.leaking()
    page = render_html(report)
    copies = json.loads(read_page(page).scripts[0][1])["copies"]
    anchor = culprit_views(report.culprits)[0].anchor
    assert copies[f"{anchor}-markdown"].startswith("### Memory leak: `Trainer.all_pred_boxes`")
    assert copies[f"{anchor}-diff"] == report.culprits[0].remedy.diff
    shown = json.loads(copies[f"{anchor}-json"])
    assert shown["signature"] == report.culprits[0].signature
    assert len(shown["chart"]) == len(report.culprits[0].chart)
    for name in ("markdown", "diff", "json"):
        assert f'data-copy="{anchor}-{name}" hidden' in page
    assert f'data-copy-link="{anchor}" hidden' in page
    assert f'id="{anchor}"' in page


@pytest.mark.parametrize(
    ("severity", "growth", "falls_back", "title"),
    [
        (Severity.CRITICAL, "across", True, "Memory leak"),
        (Severity.WARNING, "across", True, "Memory leak"),
        (Severity.NOTE, "across", True, "Note on growth"),
        (Severity.WARNING, "within", True, "Memory peak in validation"),
        (Severity.WARNING, "within", False, "Memory climbs through validation"),
        (Severity.NOTE, "within", True, "Note on growth within validation"),
    ],
)
def test_markdown_is_titled_by_what_kind_of_growth_it_is_and_how_grave(
    severity: Severity, growth: str, falls_back: bool, title: str
) -> None:
    culprit = msgspec.structs.replace(
        samples.boxes_culprit(), severity=severity, growth=growth, falls_back=falls_back
    )
    lines = suspect_markdown(culprit).splitlines()
    assert lines[0] == f"### {title}: `Trainer.all_pred_boxes`"
    assert any(line.startswith(f"- **severity:** {severity.value}: ") for line in lines)


def test_markdown_tells_who_holds_it_and_what_it_holds() -> None:
    culprit = samples.boxes_culprit()
    lines = suspect_markdown(culprit).splitlines()
    assert f"- **path:** `{culprit.path}`" in lines
    (holding,) = (line for line in lines if line.startswith("- **holds:** "))
    first = culprit.holds[0]
    assert holding.startswith(f"- **holds:** {first.count:,} × `{first.type}`")


@pytest.mark.parametrize("attack", ATTACKS)
def test_markdown_tells_how_sure_a_verdict_is_and_what_would_prove_it_wrong(attack: str) -> None:
    lines = suspect_markdown(samples.boxes_culprit()).splitlines()
    assert "- **evidence:** it grew through 14 readings" in lines
    shown = {line.partition(":** ")[0]: line.partition(":** ")[2] for line in lines}
    falsifier = samples.boxes_culprit().falsifier
    assert falsifier is not None
    assert (shown["- **falsifier"], shown["- **tried"]) == (falsifier.text, falsifier.result)
    untried = msgspec.structs.replace(
        samples.slack_finding(), falsifier=Falsifier(text="One more epoch.")
    )
    assert "- **falsifier:** One more epoch.\n- **tried:** not tried in this run" in (
        suspect_markdown(untried)
    )
    for text in (
        suspect_markdown(infested(samples.boxes_culprit(), attack)),
        suspect_markdown(infested(samples.slack_finding(), attack)),
    ):
        (line,) = [line for line in text.splitlines() if line.startswith("- **falsifier")]
        assert not re.search(r"(?<!\\)[<\[]", line)


@pytest.mark.parametrize(
    ("count", "text"),
    [(1.0, "1 item per validation"), (1.5, "1.5 items per validation"),
     (640.0, "640 items per validation")],
)  # fmt: skip
def test_one_item_is_no_items(count: float, text: str) -> None:
    culprit = msgspec.structs.replace(samples.boxes_culprit(), items_per_unit=count)
    assert culprit_views([culprit])[0].items == text


def test_where_a_finding_goes_up_and_down_no_number_is_its_rate() -> None:
    finding = samples.slack_finding()
    assert words.rate_words(finding) == "17.5 MiB per epoch"
    unsure = msgspec.structs.replace(finding, interval=(-77.0 * MIB, 80.0 * MIB))
    (card,) = finding_views([unsure])
    assert card.rate is not None
    assert card.rate.text == "no steady rate"
    assert card.rate.interval == "−77 to 80 MiB"


def test_a_finding_is_handed_over_as_markdown_too() -> None:
    report = samples.leaking()
    copies = json.loads(read_page(render_html(report)).scripts[0][1])["copies"]
    (finding,) = report.findings
    text = next(
        text for key, text in copies.items() if key.startswith("finding-") and "###" in text
    )
    assert text == suspect_markdown(finding, report.run)
    assert text.startswith(f"### {finding.title}\n")
    assert "per epoch (95 % interval" in text
    assert f"**{finding.remedy.title}**" in text


def test_no_name_breaks_out_of_a_findings_markdown() -> None:
    finding = infested(samples.slack_finding(), "\n# `<b>`")
    text = suspect_markdown(finding)
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert len(headings) == 1
    assert "\n# " not in text


def test_a_card_leads_to_its_series_on_the_timeline() -> None:
    report = samples.leaking()
    anchor = culprit_views(report.culprits)[0].anchor
    assert f'data-overlay="{anchor}" hidden' in render_html(report)


def test_copied_markdown_says_of_which_run_it_is() -> None:
    report = samples.leaking()
    command, version = " ".join(report.run.command), report.run.environment["torch"]
    copies = json.loads(read_page(render_html(report)).scripts[0][1])["copies"]
    sections = [text for key, text in copies.items() if key.endswith("-markdown")]
    assert len(sections) == len(report.culprits) + len(report.findings)
    for text in sections:
        assert f"- **run:** `{command}`" in text
        assert f"torch {version}" in text
        assert f"leakscope {report.run.leakscope_version}" in text


def test_a_findings_card_says_that_its_falsifier_was_not_tried() -> None:
    untried = Falsifier(text="If it were noise, it would stop.")
    finding = msgspec.structs.replace(samples.slack_finding(), falsifier=untried)
    report = msgspec.structs.replace(samples.leaking(), culprits=[], findings=[finding])
    assert words.UNTRIED in read_page(render_html(report)).text
    without = msgspec.structs.replace(
        report, findings=[msgspec.structs.replace(finding, falsifier=None)]
    )
    assert words.UNTRIED not in read_page(render_html(without)).text


def test_a_culprit_that_rose_mostly_is_not_reported_to_have_risen_each_time() -> None:
    text = culprit_views([samples.boxes_culprit()])[0].growth_text
    assert text.startswith("Kept: grows from validation to validation")
    assert "each" not in text
