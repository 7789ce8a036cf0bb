from __future__ import annotations

import re

import msgspec
import pytest
import report_samples as samples
from hostile_text import ATTACKS, infested

from leakscope.model.report import Falsifier, Point, Problem, ProblemKind
from leakscope.report import render_comparison_text, render_summary, render_text, words
from leakscope.report.text import encodable, sparkline

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


def is_path_or_command(line: str) -> bool:
    return line.startswith(("  report   ", "  next     "))


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_lines_fit_the_width(width: int) -> None:
    for text in all_texts(samples.leaking(), samples.comparison(), width=width):
        for line in text.splitlines():
            assert len(line) <= width or is_path_or_command(line), line


def test_a_very_wide_terminal_is_not_filled() -> None:
    for text in all_texts(samples.leaking(), samples.comparison(), width=300):
        assert max(len(line) for line in text.splitlines()) <= 120


def test_the_answer_comes_in_a_screenful() -> None:
    lines = render_text(samples.leaking()).splitlines()
    assert len(lines) <= 30
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
    assert "leakscope verify runs/a" in text
    assert len(text.splitlines()) <= 14


@pytest.mark.parametrize("render", [render_text, summary], ids=["report", "summary"])
def test_where_nothing_leaks_what_is_listed_is_reported_as_noted_only(render) -> None:
    note = samples.loss_culprit()
    text = render(msgspec.structs.replace(samples.clean(), culprits=[note]))
    verdict, _, listed = text.partition("Noted, but too little in this run to be called a leak:\n")
    assert verdict.startswith("✓ No leak")
    assert listed.lstrip().startswith("3. train_epoch.total_loss  ")
    assert listed.splitlines()[0].endswith(" per step (note)")


@pytest.mark.parametrize("render", [render_text, summary], ids=["report", "summary"])
def test_a_note_next_to_a_leak_is_marked_and_the_leak_is_not(render) -> None:
    shown = render(samples.leaking()).splitlines()
    assert not [line for line in shown if line.strip().startswith("Noted, but too little")]
    marked = [line.strip() for line in shown if line.endswith("(note)")]
    assert [line[:26] for line in marked] == ["3. train_epoch.total_loss "]


@pytest.mark.parametrize("render", [render_text, summary], ids=["report", "summary"])
def test_where_nothing_is_listed_nothing_is_noted(render) -> None:
    assert "Noted" not in render(msgspec.structs.replace(samples.clean(), culprits=[]))


@pytest.mark.parametrize(
    ("notes", "sentence"),
    [(0, "and 2 more culprits: see"), (1, "and 1 more culprit, 1 note: see"),
     (2, "and 2 more notes: see")],
)  # fmt: skip
def test_what_is_left_to_the_report_is_counted_as_the_headline_counts(
    notes: int, sentence: str
) -> None:
    many = many_culprits(5)
    left = [
        msgspec.structs.replace(culprit, severity=samples.Severity.NOTE)
        if 5 - number <= notes
        else culprit
        for number, culprit in enumerate(many.culprits)
    ]
    assert sentence in summary(msgspec.structs.replace(many, culprits=left))


def many_culprits(count: int):
    first, second, _ = samples.leaking().culprits
    others = [
        msgspec.structs.replace(second, rank=n, name=f"Trainer.list_{n}")
        for n in range(2, count + 1)
    ]
    return msgspec.structs.replace(samples.leaking(), culprits=[first, *others])


def one_leak():
    report = samples.leaking()
    return msgspec.structs.replace(report, culprits=report.culprits[:1], findings=[], cleared=[])


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_first_culprit_tells_how_sure_it_is_and_what_would_prove_it_wrong(width: int) -> None:
    lines = render_text(one_leak(), width=width).splitlines()
    assert len(lines) <= 30
    text = " ".join(line.strip() for line in lines)
    assert (
        "it grew through 14 readings; falsifier: If the list shrank at any later validation, or "
        "gc.collect() "
        "freed its arrays, this would be no leak. tried: gc.collect() freed 0 B of it; it never "
        "shrank in 12 validations. → Keep"
    ) in text


def test_the_forecast_is_reported_as_a_time_where_that_fits() -> None:
    report = one_leak()
    wait = words.wait_words(report.culprits[0].forecast, report.work)
    assert re.fullmatch(r"some \d+ minutes away at this pace", wait)
    assert f"   reaches 64.0 GiB in epoch 159 of 200, {wait}\n" in render_text(report)
    assert "   reaches 64.0 GiB in epoch 159 of 200\n" in render_text(report, width=60)
    idle = msgspec.structs.replace(report, work=msgspec.structs.replace(report.work, epochs=0))
    assert "   reaches 64.0 GiB in epoch 159 of 200\n" in render_text(idle)


def test_what_was_not_tried_is_reported_as_such() -> None:
    report = one_leak()
    (culprit,) = report.culprits
    untried = msgspec.structs.replace(culprit, falsifier=Falsifier(text="It may shrink."))
    text = render_text(msgspec.structs.replace(report, culprits=[untried]))
    assert "   it grew through 14 readings; falsifier: It may shrink.\n   tried: not tried" in text


@pytest.mark.parametrize("width", [60, 70, 80, 100, 120])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 20])
def test_doubts_and_changes_give_way_where_lines_are_few(count: int, width: int) -> None:
    for report in (samples.leaking(), many_culprits(count)):
        assert len(render_text(report, width=width).splitlines()) <= 30


@pytest.mark.parametrize("count", [1, 2, 5, 20, 200])
def test_however_many_culprits_there_are_the_report_fits_thirty_lines(count: int) -> None:
    text = render_text(many_culprits(count))
    shown = len(re.findall(r"^\d+\. ", text, re.MULTILINE))
    left = count - shown
    assert len(text.splitlines()) <= 30
    assert shown >= min(count, 2)
    assert ("see report.html" in text) == (left > 0)
    if left > 0:
        assert re.search(rf"and {left} more culprits?: see report\.html", text)


def test_each_culprit_has_its_course_its_share_and_its_line() -> None:
    text = render_text(samples.leaking())
    assert "2. validate_episode.crops  44.9 MiB per batch" in text
    assert re.search(
        r"^ +[▁▂▃▄▅▆▇█]{8} 17 % of the phase's height, fed at src/training/trainer.py:584$",
        text,
        re.MULTILINE,
    )


def test_even_growth_is_drawn_evenly_however_the_looks_lie() -> None:
    """They lie close at first and ever further apart."""
    report = samples.leaking()
    points = [Point(x, 1e6 * x, 0) for x in (0, 1, 2, 3, 4, 6, 9, 13, 19, 28, 42, 63, 100, 150)]
    culprits = [msgspec.structs.replace(culprit, chart=points) for culprit in report.culprits]
    text = render_text(msgspec.structs.replace(report, culprits=culprits))
    assert "▁▂▃▄▅▆▇█ 17 % of the phase's height" in text


def test_a_course_of_looks_without_work_between_them_keeps_its_width() -> None:
    report = samples.leaking()
    points = [Point(5.0, 1e6 * look, 0) for look in range(100)]
    culprits = [msgspec.structs.replace(culprit, chart=points) for culprit in report.culprits]
    text = render_text(msgspec.structs.replace(report, culprits=culprits))
    assert re.search(r"(?<![▁▂▃▄▅▆▇█])[▁▂▃▄▅▆▇█]{8} 17 % of the phase's height", text)


def test_report_and_summary_give_one_answer_in_the_same_words() -> None:
    report, sentence = (
        render_text(samples.leaking(), width=80),
        summary(samples.leaking(), width=80),
    )
    suspect = words.leading_suspect(samples.leaking())
    assert suspect is not None
    for shown in (
        samples.leaking().headline[:40],
        words.rate_words(suspect),
        words.share_words(suspect.share, suspect.growth),
        f"fed at {words.source_place(suspect)}",
        suspect.forecast.text,
        f"→ {suspect.remedy.title}",
    ):
        assert shown in report
        assert shown in sentence
    second = [line.strip() for line in report.splitlines() if "crops" in line]
    assert set(second) <= {line.strip() for line in sentence.splitlines()}


def test_only_the_lines_that_change_are_shown_of_a_diff() -> None:
    text = render_text(samples.leaking())
    assert "-        self.all_pred_boxes.extend" in text
    assert "def validate" not in text
    assert "@@" not in text


def test_a_remedy_without_a_diff_is_reported_in_words() -> None:
    first = samples.boxes_culprit()
    bare = msgspec.structs.replace(first, remedy=msgspec.structs.replace(first.remedy, diff=None))
    text = render_text(msgspec.structs.replace(samples.leaking(), culprits=[bare]))
    assert "validate() appends to a list that lives on the trainer" in " ".join(text.split())


def test_a_finding_that_leads_is_reported_with_its_remedy() -> None:
    finding = msgspec.structs.replace(samples.slack_finding(), severity=samples.Severity.WARNING)
    report = msgspec.structs.replace(samples.leaking(), culprits=[], findings=[finding])
    for text in (render_text(report), summary(report)):
        assert text.count("warning: glibc keeps 210 MiB") == 1
        assert "→ Limit the arenas" in text


def test_what_is_unexplained_is_reported_however_little() -> None:
    assert re.search(r"unexplained \+\d+ MiB \(\d+ %\)", render_text(samples.leaking()))


def test_more_unexplained_than_memory_grew_is_no_share_of_that_growth() -> None:
    (ledger, *_) = samples.leaking().ledgers
    shrunk = msgspec.structs.replace(ledger, total_bytes=1000)
    text = render_text(msgspec.structs.replace(samples.leaking(), ledgers=[shrunk]))
    assert re.search(r"unexplained \+\d+ MiB\s", text)


def test_a_clean_report_tells_why_what_was_looked_at_is_fine() -> None:
    assert "✓ FrameCache.frames: bounded: 500 entries since epoch 2" in render_text(samples.clean())


def test_where_nothing_leaks_the_first_note_is_reported_at_length() -> None:
    slack = samples.slack_finding()
    text = render_text(msgspec.structs.replace(samples.clean(), findings=[slack]), width=200)
    assert text.count(slack.text) == 1
    assert f"→ {slack.remedy.title}" in text
    leaking = render_text(msgspec.structs.replace(samples.leaking(), findings=[slack]), width=200)
    assert slack.title in leaking
    assert slack.text not in leaking


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
    assert len(text.splitlines()) <= 30


def test_a_comparison_says_its_word_once() -> None:
    shown = msgspec.structs.replace(samples.comparison(), headline="Fixed: a.xs no longer grows.")
    assert render_comparison_text(shown).startswith("✓ Fixed · a.xs no longer grows.\n")


def test_curves_of_both_runs_have_one_scale() -> None:
    lines = render_comparison_text(samples.comparison()).splitlines()
    before, after = (next(x for x in lines if x.startswith(side)) for side in ("before ", "after "))
    assert "█" in before
    assert "█" not in after


def test_a_comparison_of_many_culprits_fits_thirty_lines() -> None:
    first, *others = samples.comparison().culprits
    many = [msgspec.structs.replace(first, name=f"a.list_{n}") for n in range(40)]
    text = render_comparison_text(
        msgspec.structs.replace(samples.comparison(), culprits=many + others)
    )
    assert len(text.splitlines()) <= 30
    assert "and 37 more changes" in text


def test_a_comparison_of_many_amounts_fits_thirty_lines() -> None:
    peak = samples.comparison().peaks[0]
    many = [msgspec.structs.replace(peak, name=f"phase {n}") for n in range(40)]
    for count in (1, 8, 12, 40):
        shown = msgspec.structs.replace(samples.comparison(), peaks=many[:count])
        assert len(render_comparison_text(shown).splitlines()) <= 30
    assert re.search(r"and \d+ more amounts that differ", render_comparison_text(shown))


def test_a_comparison_tells_what_is_within_the_noise_and_what_the_runs_cost() -> None:
    first, *others = samples.comparison().culprits
    doubtful = msgspec.structs.replace(first, doubt="both intervals overlap")
    shown = msgspec.structs.replace(samples.comparison(), culprits=[doubtful, *others])
    text = " ".join(render_comparison_text(shown).split())
    assert "~ within the noise: Trainer.all_pred_boxes: both intervals overlap" in text
    assert "the runs took 3 min 31 s and 3 min 18 s; leakscope 3 % and 1 % of that" in text


def test_amounts_that_hardly_differ_are_left_out() -> None:
    text = render_comparison_text(samples.comparison())
    assert "peak of accumulations" in text
    assert "optimizer state" not in text


def test_a_sparkline_keeps_peaks() -> None:
    assert sparkline([0, 0, 0, 9, 0, 0, 0, 0], 4) == "▁█▁▁"
    assert sparkline([5, 5], 10) == "▁▁"
    assert sparkline([], 10) == ""
    assert sparkline([float("nan"), 1.0], 10) == "▁"


def test_sparklines_of_one_scale_can_be_compared() -> None:
    assert sparkline([1, 2], 10, (0, 8)) == "▂▃"
    assert sparkline([-1, 9], 10, (0, 8)) == "▁█"


def test_an_encoding_without_our_signs_gets_plain_ones() -> None:
    for text in all_texts(samples.leaking(), samples.comparison()):
        plain = encodable(text, "ascii")
        assert plain.isascii()
        assert "\\u" not in plain
    assert encodable("✗ Leak · a → b ▁▂▃▄▅▆▇█ −1 …", "ascii") == "x Leak - a -> b _.-:=+*# -1 ~"
    assert encodable("✗ Leak", "utf-8") == "✗ Leak"
    assert encodable("✗ Leak", None) == "✗ Leak"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("attack", [*ATTACKS, "名前"])
def test_any_name_can_be_written_in_any_encoding(attack: str, encoding: str) -> None:
    report = infested(samples.leaking(), attack)
    for text in all_texts(report, infested(samples.comparison(), attack)):
        encodable(text, encoding).encode(encoding)


def test_out_of_memory_comes_before_the_culprits() -> None:
    text = render_text(samples.out_of_memory())
    assert text.startswith("✗ Out of memory · Out of memory on cuda:0")
    assert text.index("what would have made it fit") < text.index("1. ")
    assert "held by: Trainer.crops 41 GiB" in text
    assert "✗ expandable_segments:True (would not help)" in text


def test_cures_that_were_tried_are_reported_one_by_one() -> None:
    text = render_text(samples.cures_tried())
    assert "  ✓ gc.collect() freed 210 MiB in 41 ms each time after train: it helps." in text
    assert "  ✗ empty_cache() returned 3 MiB on cuda:0" in text
    untried = render_text(samples.leaking())
    assert "gc.collect() freed 210 MiB" not in untried
    assert not re.search(r"^ +[✓✗?] ", untried, re.MULTILINE)
    assert "empty_cache()" not in untried


def test_the_summary_says_what_would_make_it_fit() -> None:
    assert "to make it fit: Mend Trainer.crops\n" in summary(samples.out_of_memory())
    assert "to make it fit" not in summary(samples.leaking())


def test_a_device_is_reported_in_a_line() -> None:
    text = " ".join(render_text(samples.on_device()).split())
    assert (
        "cuda:0: 600 MiB live of 900 MiB reserved after step 40 of train: parameters 50 %" in text
    )
    assert "10 % unexplained; 100 MiB cached, 200 MiB stuck in holes" in text


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ("the program ended by ValueError: No.", "  The program ended by ValueError: No."),
        ("the run was killed by SIGKILL", "  The run was killed by SIGKILL."),
    ],
)
def test_how_the_program_ended_stands_below_the_verdict(ending: str, words: str) -> None:
    report = samples.leaking()
    ended_so = msgspec.structs.replace(report, run=samples.run_facts(ending=ending))
    for text in (render_text(ended_so), render_summary(ended_so, report_path="report.html")):
        assert words in text.splitlines()[1:4]


def test_of_a_program_that_just_ended_nothing_is_reported() -> None:
    text = render_text(samples.leaking())
    assert "The program" not in text
    assert "The run was" not in text


def test_what_would_settle_a_run_is_reported_once() -> None:
    report = samples.inconclusive()
    first, second = "Only 1 boundary: go on.", "Another thing."
    shown = msgspec.structs.replace(
        report, headline=f"Inconclusive after 1 s. {first}", missing=[first, second]
    )
    for text in (render_text(shown), render_summary(shown, report_path="report.html")):
        assert text.count("Only 1 boundary") == 1
        assert "to settle it: Another thing." in text


def test_faults_that_are_not_shown_are_counted() -> None:
    lost = [
        Problem(where=f"main.journal@{n}", message="a record is damaged", kind=ProblemKind.GAP)
        for n in range(38)
    ]
    damaged = msgspec.structs.replace(samples.leaking(), errors=lost)
    for text in (render_text(damaged), render_summary(damaged, report_path="report.html")):
        assert "! and 36 more: see report.html" in text
        assert "amounts and shares are of what could be read" in text
    cut_off = Problem(where="main.journal@9", message="the last record was cut off while …")
    killed = msgspec.structs.replace(samples.leaking(), errors=[cut_off])
    assert "could be read" not in render_text(killed)
    assert "more: see report.html" not in render_summary(killed, report_path="")


def test_a_run_too_short_for_the_budget_says_from_which_length_on_it_is_kept() -> None:
    report = samples.leaking()
    dear = msgspec.structs.replace(
        report.overhead, wall_share=0.16, budget=0.02, seconds={"census": 0.46}
    )
    text = render_text(msgspec.structs.replace(report, overhead=dear))
    assert "leakscope took 16 % of the time (460 ms); " in text
    assert "the budget of 2 % is kept in runs of 23 seconds or more" in text
    assert "is kept in runs" not in render_text(report)
