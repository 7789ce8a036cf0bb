"""What is reported on two runs: a verdict in a sentence, the worst first, nothing made better."""

from __future__ import annotations

import re

import msgspec
import pytest
from test_analysis_compare import MB, culprit, report

from leakscope.analysis.compare import compare
from leakscope.model.comparison import ChangeKind
from leakscope.model.device import OutOfMemory
from leakscope.model.report import (
    Culprit,
    MetricGrowth,
    Overhead,
    PhaseMemory,
    Report,
    RunVerdict,
    Severity,
)
from leakscope.report import (
    render_comparison_html,
    render_comparison_markdown,
    render_comparison_text,
)
from leakscope.report.comparison.page import comparison_page
from leakscope.report.tables import Fact
from leakscope.report.words import outcome_of, significance_words


def test_the_verdict_is_one_sentence_and_the_rest_stands_below_it() -> None:
    peak = {"occurrences": 5, "metric": "rss"}
    peak |= {"before_bytes": 0, "after_bytes": 0, "kept_bytes": 0}
    names = ["A.worse", "B.fixed", "C.fixed", "D.fixed", "E.same"]
    before = report(
        *map(culprit, names),
        phases=[PhaseMemory(phase="validation", peak_bytes=1900 * MB, **peak)],
    )
    after = report(
        culprit("A.worse", rate=9.0 * MB), culprit("E.same"),
        phases=[PhaseMemory(phase="validation", peak_bytes=410 * MB, **peak)],
        run={"script": "train_fixed.py"},
    )  # fmt: skip
    compared = compare(before, after)
    assert compared.headline == (
        "Worse: A.worse grows faster: by 9 MiB per validation (was 2 MiB per validation)."
    )
    assert compared.details == [
        "Fixed: B.fixed no longer grows (was 2 MiB per validation); 2 more are fixed.",
        "Unchanged: E.same still grows by 2 MiB per validation, as before.",
        "Peak memory in validation fell from 1.9 GiB to 410 MiB.",
        "The scripts differ: train.py, then train_fixed.py.",
    ]


def test_what_became_of_memory_running_out_is_the_verdict() -> None:
    ended = OutOfMemory(
        device="host", cause="killed", shortage="capacity", sentence="", evidence=""
    )
    before = report(culprit(), out_of_memory=ended)
    compared = compare(before, report())
    assert compared.headline == "Memory no longer runs out."
    assert compared.details[0].startswith("Fixed: ")


@pytest.mark.parametrize("name", ["Z.worst", "A.worst"])
def test_what_got_worse_is_never_left_out_of_a_list(name: str) -> None:
    """Neither among more fixed ones than the terminal shows, nor than Markdown does."""
    fixed = [culprit(f"M.fixed_{n}") for n in range(14)]
    compared = compare(report(*fixed, culprit(name)), report(culprit(name, rate=9.0 * MB)))
    text = render_comparison_text(compared).splitlines()
    rows = (line for line in text if re.match(r"(worse|fixed) +\S+$", line))
    assert next(rows).split() == ["worse", name]
    assert len(text) <= 30
    rows = [line for line in render_comparison_markdown(compared).splitlines() if "| `" in line]
    assert rows[0].startswith(f"| worse | `{name}` |")
    assert "\n3 further changes." in render_comparison_markdown(compared)


def test_what_is_apart_but_differs_by_next_to_nothing_is_not_called_noise() -> None:
    before = culprit(rate=39.33 * MB, interval=(39.328 * MB, 39.332 * MB))
    after = culprit(rate=39.355 * MB, interval=(39.35 * MB, 39.36 * MB))
    compared = compare(report(before), report(after))
    assert not compared.culprits[0].significant
    page = render_comparison_html(compared).replace("\N{NO-BREAK SPACE}", " ")
    assert "don't overlap and the rates differ by more than 5 %" in page.replace("&#39;", "'")
    for text in (page, render_comparison_text(compared)):
        assert "at most 5 %" in text
        assert "within the noise" not in text


def test_what_another_script_did_not_do_is_neither_good_nor_a_real_difference() -> None:
    after = report(run={"script": "other.py"}, work={"steps": 900})
    compared = compare(report(culprit()), after)
    assert not compared.culprits[0].significant
    page = comparison_page(compared)
    (card,) = page.cards
    assert (card.change, card.label) == ("missing", "Not seen")
    assert significance_words(card.subject) == ""
    assert (card.after.text, page.counts) == ("not seen", [Fact("Not seen", "1", "missing")])
    html, text = render_comparison_html(compared), render_comparison_text(compared, color=True)
    assert not re.search(r'class="(change|card culprit changed) fixed', html)
    assert "not seen   Trainer.validate.all_boxes" in text, "in no colour"
    assert "2 MiB per validation → not seen" in text
    assert "| 2 MiB per validation (1.8 to 2.2 MiB) | not seen |" in render_comparison_markdown(
        compared
    )
    for reported in (html, text):
        assert "no growth" not in reported
        assert ">real<" not in reported


def test_a_culprit_whose_phase_did_not_run_again_is_not_fixed() -> None:
    compared = compare(report(culprit()), report(work={"batches": {"train": 100}}))
    assert compared.culprits[0].is_unproven
    assert outcome_of(compared) == ("inconclusive", "Not settled")
    for text in (
        render_comparison_text(compared),
        render_comparison_markdown(compared),
        render_comparison_html(compared),
    ):
        assert "ot seen" in text
        assert not re.search(r">Fixed<|Fixed:|^fixed |\| fixed \|", text, re.MULTILINE)


def test_less_memory_of_another_script_is_not_coloured_as_good() -> None:
    other = report(run={"script": "other.py"}, work={"steps": 900})
    coloured = '<main id="main" tabindex="-1">'
    assert coloured in render_comparison_html(compare(report(), report()))
    page = render_comparison_html(compare(report(), other))
    assert '<main id="main" tabindex="-1" class="apart">' in page
    assert ".apart .delta { color: inherit; }" in page


@pytest.mark.parametrize("width", [60, 80, 120])
def test_however_much_there_is_to_say_the_terminal_says_it_in_thirty_lines(width: int) -> None:
    names = [f"LongishTrainer.validate_episode.all_predicted_boxes_of_{n}" for n in range(9)]
    grew = [culprit(name) for name in names]
    after = [culprit(names[0], rate=9.0 * MB), culprit(names[1]), culprit(names[2], rate=0.5 * MB)]
    other = culprit("LongishTrainer.validate_episode.all_predicted_scores")
    compared = compare(report(*grew), report(*after, other, run={"script": "train_fixed.py"}))
    assert len(compared.details) == 5
    text = render_comparison_text(compared, width=width).splitlines()
    assert len(text) <= 30
    assert "  The scripts differ: train.py, then train_fixed.py." in text


def test_what_only_another_script_has_is_not_called_new() -> None:
    other = report(culprit("Other.frames"), run={"script": "other.py"}, work={"steps": 900})
    compared = compare(report(culprit()), other)
    assert compared.details == [
        "Only there: Other.frames is other.py's own and grows by 2 MiB per validation.",
        "Not seen there: Trainer.validate.all_boxes; what was not done can't have been mended.",
    ]
    page = comparison_page(compared)
    assert [(card.label, card.change, card.before.text) for card in page.cards] == [
        ("Only there", "missing", "not seen"), ("Not seen", "missing", "2 MiB per validation"),
    ]  # fmt: skip
    html, text = render_comparison_html(compared), render_comparison_text(compared)
    for reported in (html, text, render_comparison_markdown(compared)):
        assert not re.search(r">New<|New:|^new |\| new \|", reported, re.MULTILINE)
    assert "not seen → 2 MiB per validation" in text
    own = next(change for change in compared.culprits if change.name == "Other.frames")
    assert own.change is ChangeKind.NEW, "what fails on new culprits fails on it"


def test_what_an_inconclusive_first_run_could_not_show_is_not_called_new() -> None:
    short = report(verdict=RunVerdict.INCONCLUSIVE)
    compared = compare(short, report(culprit()))
    assert outcome_of(compared) == ("inconclusive", "Not settled")
    assert compared.headline.startswith(
        "First seen: Trainer.validate.all_boxes grows by 2 MiB per validation; "
        "it was not seen before, but the first run is inconclusive"
    )
    assert comparison_page(compared).cards[0].label == "First seen"


def test_what_workers_of_loaders_gathered_is_fixed_though_no_phase_of_theirs_is_listed() -> None:
    found = culprit(unit="pass", phase="pass", workers=2)
    ran = {"work": {"batches": {"train": 100}, "steps": 100, "epochs": 4}}
    compared = compare(report(found, **ran), report(**ran))
    assert compared.culprits[0].change is ChangeKind.FIXED
    assert not compared.culprits[0].is_unproven


def test_a_phase_that_the_first_run_lacked_has_nothing_new() -> None:
    compared = compare(report(work={"batches": {"train": 100}}), report(culprit()))
    assert compared.culprits[0].is_unproven
    assert "the first run had no phase validation" in compared.culprits[0].doubt


@pytest.mark.parametrize("name", ["Trainer.validate.all_scores", "Tester.validate.all_boxes"])
def test_what_grows_as_fast_under_another_name_is_reported_as_perhaps_the_same(name: str) -> None:
    compared = compare(report(culprit()), report(culprit(name)))
    assert compared.headline.startswith(
        f"New: {name} is new: it grows by 2 MiB per validation, as Trainer.validate.all_boxes did; "
        "it may be the same, renamed."
    )


@pytest.mark.parametrize(
    "others",
    [
        [culprit("Trainer.validate.all_scores", rate=3.0 * MB)],
        [culprit("Loader.items")],
        [culprit("Trainer.validate.all_scores", type="dict", kind="dict")],
        [culprit("Trainer.validate.all_scores"), culprit("Trainer.validate.all_labels")],
        [culprit("Trainer.validate.all_scores", severity=Severity.NOTE)],
    ],
    ids=["faster", "elsewhere", "another type", "two of them", "a note"],
)
def test_what_could_be_something_else_is_not_reported_as_renamed(others: list[Culprit]) -> None:
    compared = compare(report(culprit()), report(*others))
    assert not any("renamed" in change.text for change in compared.culprits)


def test_a_run_that_tells_too_little_is_named_where_nothing_was_found() -> None:
    thin, clean = report(verdict=RunVerdict.INCONCLUSIVE), report()
    assert compare(thin, thin).headline == "No culprit in either run, but both are inconclusive."
    for runs, which in (((thin, clean), "first"), ((clean, thin), "second")):
        compared = compare(*runs)
        assert compared.headline == (
            f"No culprit in either run, but the {which} run is inconclusive."
        )
        assert outcome_of(compared)[0] == "inconclusive"


def test_a_run_watched_from_outside_neither_fixes_nor_brings_what_has_a_name() -> None:
    recorded = msgspec.structs.replace(
        report(culprit()), overhead=Overhead(wall_share=0.01, peak_bytes=0, censuses=40)
    )
    watched = report(work={"steps": 0, "epochs": 0, "validations": 0, "batches": {}})
    gone, come = compare(recorded, watched), compare(watched, recorded)
    assert gone.headline.startswith("Not proven: Trainer.validate.all_boxes was not seen")
    assert "nothing in the second run was looked at by name" in gone.headline
    assert come.headline.startswith("First seen: ")
    assert [outcome_of(item) for item in (gone, come)] == [("inconclusive", "Not settled")] * 2


def test_a_narrow_terminal_still_tells_which_gauge_and_what_differs() -> None:
    grows = [
        MetricGrowth(
            metric=metric,
            unit="epoch",
            bytes_per_unit=rate * MB,
            interval=(rate, rate * MB),
            explained_share=0.0,
        )
        for metric, rate in (("rss", 6.0), ("pss", 5.0))
    ]
    before = report(culprit(), growth=grows)
    compared = compare(before, report(run={"script": "other.py"}, work={"steps": 900}))
    lines = render_comparison_text(compared, width=60).splitlines()
    reported = [line.split("  ")[0] for line in lines]
    assert {"growth of RSS per epoch", "growth of PSS per epoch"} <= set(reported)
    assert "! The first run did 100 steps, the second 900." in lines
    words = " ".join(" ".join(lines).split())
    assert "what was not done can't have been mended." in words
    assert all(len(line) <= 60 for line in lines)
    assert len(lines) <= 30


@pytest.mark.parametrize(
    ("looks", "work", "why"),
    [
        (5, {}, "the second run was looked at only 5 times"),
        (40, {"validations": 2}, "the second run did only 2 validations"),
    ],
)
def test_a_run_too_short_to_show_a_culprit_has_not_fixed_it(
    looks: int, work: dict[str, int], why: str
) -> None:
    def looked_at(times: int, reported: Report) -> Report:
        return msgspec.structs.replace(
            reported, overhead=Overhead(wall_share=0.01, peak_bytes=0, censuses=times)
        )

    def peak(most: int) -> PhaseMemory:
        return PhaseMemory(
            phase="validation", occurrences=5, metric="rss", before_bytes=0, peak_bytes=most * MB,
            after_bytes=0, kept_bytes=0,
        )  # fmt: skip

    long = looked_at(40, report(culprit(), phases=[peak(900)]))
    short = looked_at(looks, report(work=work, phases=[peak(400)]))
    compared = compare(long, short)
    assert compared.headline.startswith("Not proven: ")
    assert why in compared.headline
    assert "peak memory" not in f"{compared.headline} {compared.details}".lower()
    assert outcome_of(compared)[1] == "Not settled"
    assert compare(short, long).headline.startswith("First seen: ")
    assert compare(long, looked_at(40, report())).headline.startswith("Fixed: ")


@pytest.mark.parametrize(
    ("verdict", "rate", "seconds", "outcome"),
    [
        ("clean", 0.1, 60.0, "Fixed"),
        ("clean", 8.5, 60.0, "Not settled"),
        ("clean", 0.1, 5.0, "Not settled"),
        ("inconclusive", 0.1, 60.0, "Not settled"),
    ],
    ids=["as good as nothing grows", "memory may grow as fast", "a short run", "inconclusive"],
)
def test_memory_that_hardly_grows_settles_what_was_looked_at_seldom(
    verdict: str, rate: float, seconds: float, outcome: str
) -> None:
    def looked_at(times: int, reported: Report) -> Report:
        overhead = Overhead(wall_share=0.01, peak_bytes=0, censuses=times)
        return msgspec.structs.replace(reported, overhead=overhead)

    leaking = report(culprit(), work={"duration_s": 60.0})
    (suspect,) = leaking.culprits
    grows = MetricGrowth(
        metric="rss", unit=suspect.unit, bytes_per_unit=rate * MB, interval=(0.0, rate * MB),
        explained_share=0.0,
    )  # fmt: skip
    after = report(growth=[grows], work={"duration_s": seconds}, verdict=RunVerdict(verdict))
    compared = compare(looked_at(40, leaking), looked_at(9, after))
    assert outcome_of(compared)[1] == outcome
