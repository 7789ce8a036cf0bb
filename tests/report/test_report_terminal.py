from __future__ import annotations

import re

import msgspec
import pytest
import report_samples as samples
from hostile_text import ATTACKS, infested

from leakscope.report import render_comparison_text, render_summary, render_text
from leakscope.report.sparkline import sparkline

ESCAPE = "\x1b"
CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\u2066-\u2069\ud800-\udfff]"
)


def summary(report, **options) -> str:
    return render_summary(report, report_path="runs/a/report.html", run_path="runs/a", **options)


def all_texts(report, comparison, **options) -> list[str]:
    return [
        render_text(report, **options),
        summary(report, **options),
        render_comparison_text(comparison, **options),
    ]


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_control_character_reaches_the_terminal(attack: str) -> None:
    report = infested(samples.leaking(), attack)
    comparison = infested(samples.comparison(), attack)
    texts = all_texts(report, comparison)
    texts.append(render_summary(report, report_path=attack, run_path=attack))
    for text in texts:
        assert not CONTROL.search(text)


@pytest.mark.parametrize("attack", ATTACKS)
def test_colours_are_only_ours(attack: str) -> None:
    report = infested(samples.leaking(), attack)
    for text in all_texts(report, infested(samples.comparison(), attack), color=True):
        assert not CONTROL.search(re.sub(f"{ESCAPE}\\[[0-9;]+m", "", text))
        assert text.count(ESCAPE + "[0m") * 2 == text.count(ESCAPE)


def test_without_colour_the_text_is_plain() -> None:
    for text in all_texts(samples.leaking(), samples.comparison()):
        assert ESCAPE not in text


def test_with_colour_only_colours_differ() -> None:
    plain, painted = render_text(samples.leaking()), render_text(samples.leaking(), color=True)
    assert painted != plain
    assert re.sub(f"{ESCAPE}\\[[0-9;]+m", "", painted) == plain


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_lines_fit_the_width(width: int) -> None:
    for line in render_text(samples.leaking(), width=width).splitlines():
        assert len(line) <= width, line


def test_the_answer_comes_in_a_screenful() -> None:
    lines = render_text(samples.leaking()).splitlines()
    assert len(lines) <= 42
    text = "\n".join(lines[:30])
    for answer in (
        "Leak · Trainer.all_pred_boxes",
        "298 MiB per validation, 95 % interval 291 to 306 MiB",
        "fed at src/training/trainer.py:600",
        "reaches 64.0 GiB in epoch 159 of 200",
        "→ Keep the boxes local to one validation",
        "+        all_pred_boxes = []",
    ):
        assert answer in text


def test_the_summary_names_three_culprits_the_report_and_the_next_command() -> None:
    report = samples.leaking()
    four = msgspec.structs.replace(report, culprits=[*report.culprits, report.culprits[0]])
    text = summary(four)
    for name in ("Trainer.all_pred_boxes", "validate_episode.crops", "train_epoch.total_loss"):
        assert name in text
    assert "and 1 more culprit" in text
    assert "runs/a/report.html" in text
    assert "leakscope compare runs/a NEW-RUN" in text
    assert len(text.splitlines()) <= 14


def test_a_clean_summary_asks_for_no_change() -> None:
    text = summary(samples.clean())
    assert text.startswith("✓ No leak · ")
    assert "compare" not in text


def test_an_inconclusive_summary_says_what_is_missing() -> None:
    assert "Two more epochs" in summary(samples.inconclusive())


def test_within_growth_is_no_share_of_the_growth() -> None:
    assert "17 % of the phase's height" in render_text(samples.leaking())


def test_an_empty_report_is_still_a_text() -> None:
    assert render_text(samples.empty()).startswith("? Not enough evidence")
    assert summary(samples.empty())


def test_a_comparison_tells_before_and_after() -> None:
    text = render_comparison_text(samples.comparison())
    assert text.startswith("✓ Fixed")
    assert re.search(r"fixed +Trainer\.all_pred_boxes\n +298 MiB → none per validation", text)
    assert "not the same work: batch size of validation" in text


def test_a_sparkline_keeps_peaks() -> None:
    assert sparkline([0, 0, 0, 9, 0, 0, 0, 0], 4) == "▁█▁▁"
    assert sparkline([5, 5], 10) == "▁▁"
    assert sparkline([], 10) == ""
    assert sparkline([float("nan"), 1.0], 10) == "▁"


def test_out_of_memory_comes_before_the_culprits() -> None:
    text = render_text(samples.out_of_memory())
    assert text.startswith("✗ Out of memory · Out of memory on cuda:0")
    assert text.index("what would have made it fit") < text.index("1. ")
    assert "held by: Trainer.crops 41 GiB" in text
    assert "✗ expandable_segments:True (would not help)" in text


def test_cures_that_were_tried_are_told_one_by_one() -> None:
    text = render_text(samples.cures_tried())
    assert "  ✓ gc.collect() freed 210 MiB in 41 ms each time after train: it helps." in text
    assert "  ✗ empty_cache() returned 3 MiB on cuda:0" in text
    assert "gc.collect() freed" not in render_text(samples.leaking())


def test_the_summary_says_what_would_make_it_fit() -> None:
    assert "to make it fit: Mend Trainer.crops\n" in summary(samples.out_of_memory())
    assert "to make it fit" not in summary(samples.leaking())


def test_a_device_is_told_in_a_line() -> None:
    text = " ".join(render_text(samples.on_device()).split())
    assert (
        "cuda:0: 600 MiB live of 900 MiB reserved after step 40 of train: parameters 50 %" in text
    )
    assert "10 % unexplained; 100 MiB cached, 200 MiB stuck in holes" in text
