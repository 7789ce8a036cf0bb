"""What a comparison shows next to its verdict: series, facts, doubts, costs, processes."""

from __future__ import annotations

import msgspec
import pytest
from test_analysis_compare import MB, culprit, only, report

from leakscope.analysis.compare import compare
from leakscope.analysis.compare.work import by_step
from leakscope.model.comparison import ChangeKind, Topic
from leakscope.model.report import (
    Cleared,
    Component,
    Line,
    Point,
    RankMemory,
    RunVerdict,
    Timeline,
    WorkerMemory,
)


def chart(*xs: float) -> list[Point]:
    return [Point(x, x * MB, i) for i, x in enumerate(xs)]


def timeline(seconds_per_step: float) -> Timeline:
    steps = [(seconds_per_step * n, float(n)) for n in range(11)]
    points = [(s, 100.0 * MB + n) for s, n in steps]
    return Timeline(
        lines=[Line(label="resident", metric="rss", points=points)], spans=[], steps=steps
    )


def test_moments_between_two_steps_lie_between_them() -> None:
    assert by_step([0.0, 2.5, 5.0, 99.0], [(0.0, 0.0), (5.0, 1.0), (10.0, 2.0)]) == [0, 0.5, 1, 2]


def test_series_over_seconds_are_laid_over_each_other_by_step() -> None:
    slow = report(culprit(chart=chart(2.0, 4.0), chart_unit="s"), timeline=timeline(1.0))
    fast = report(culprit(chart=chart(1.0, 2.0), chart_unit="s"), timeline=timeline(0.5))
    change = only(slow, fast)
    assert change.chart_unit == "step"
    assert [p.x for p in change.before_chart] == [p.x for p in change.after_chart] == [2.0, 4.0]


def test_series_without_a_clock_of_steps_keep_their_seconds() -> None:
    change = only(
        report(culprit(chart=chart(2.0), chart_unit="s")),
        report(culprit(chart=chart(1.0), chart_unit="s")),
    )
    assert change.chart_unit == "s"
    assert [p.x for p in change.before_chart] == [2.0]


def test_series_over_different_axes_are_not_drawn_over_each_other() -> None:
    change = only(
        report(culprit(chart=chart(1, 2), chart_unit="validation")),
        report(culprit(chart=chart(40, 80), chart_unit="step")),
    )
    assert (change.chart_unit, change.after_chart) == ("validation", [])


def test_a_new_culprit_brings_its_own_axis() -> None:
    change = only(report(), report(culprit(chart=chart(1, 2), chart_unit="epoch")))
    assert (change.before_chart, len(change.after_chart), change.chart_unit) == ([], 2, "epoch")


def test_a_culprit_is_reported_with_its_place_in_the_later_run() -> None:
    before, after = culprit(fed_at=["train.py:10"]), culprit(fed_at=["train.py:14"])
    assert only(report(before), report(after)).place == "train.py:14"
    assert only(report(before), report()).place == "train.py:10"


def test_what_is_bounded_now_is_reported_as_such() -> None:
    gone = Cleared(
        name="x", path="x", reason="bounded: 100 entries since step 90", kind="list",
        signature="sig-Trainer.validate.all_boxes",
    )  # fmt: skip
    after = msgspec.structs.replace(report(), cleared=[gone])
    assert only(report(culprit()), after).text == (
        "Trainer.validate.all_boxes no longer grows (was 2 MiB per validation); now bounded: "
        "100 entries since step 90."
    )


@pytest.mark.parametrize("signature", ["sig-Trainer.validate.all_boxes", "sig-of-a-deque"])
@pytest.mark.parametrize("is_filling", [False, True])
def test_only_a_bound_that_was_reached_fixes_anything(is_filling: bool, signature: str) -> None:
    """A deque of which less was filled than the run before kept is as it was, under its name."""
    grown = culprit()
    bounded = Cleared(
        name=grown.name, path=grown.path, reason="bounded", kind="bounded",
        is_filling=is_filling, signature=signature,
    )  # fmt: skip
    verdict = RunVerdict.CLEAN if is_filling else RunVerdict.INCONCLUSIVE
    after = msgspec.structs.replace(report(verdict=verdict), cleared=[bounded])
    change = only(report(grown), after)
    assert change.change is ChangeKind.FIXED
    assert ("has a bound now" in change.text) == is_filling
    assert change.is_unproven == is_filling
    assert ("before it was full" in change.text) == is_filling


@pytest.mark.parametrize(
    ("before", "after", "doubt"),
    [
        (culprit(), report(culprit(rate=0.5 * MB)), ""),
        (culprit(), report(culprit(rate=2.01 * MB)), ""),
        (culprit(), report(), ""),
        (
            culprit(spread=0.5),
            report(culprit(rate=1.2 * MB, spread=0.5)),
            (
                "the intervals of both rates overlap: 1 MiB to 3 MiB in the first run, "
                "614 KiB to 1.8 MiB in the second"
            ),
        ),
        (culprit(spread=1.5), report(), "its rate in the first run may have been −1 MiB"),
        (culprit(), report(verdict=RunVerdict.INCONCLUSIVE), "the second run is inconclusive"),
        (
            culprit(unit="mark"),
            report(culprit(unit="step")),
            "rates per mark and per step can't be held against each other",
        ),
    ],
)  # fmt: skip
def test_says_why_nothing_certain_can_be_reported(before, after, doubt) -> None:
    found = only(report(before), after)
    assert found.doubt.startswith(doubt)
    assert bool(found.doubt) == bool(doubt)


def facts(before, after) -> dict:
    return {fact.name: fact for fact in compare(before, after).work}


def test_the_same_work_is_shown_with_what_was_compared() -> None:
    found = facts(report(), report())
    assert {"steps", "epochs", "batches in validation", "torch", "budget"} <= found.keys()
    assert (found["steps"].before, found["steps"].after) == ("100", "100")
    assert not any(fact.differs for fact in found.values())
    assert {fact.topic for fact in found.values()} == set(Topic)


def test_a_fact_that_only_one_run_tells_is_no_difference() -> None:
    after = report(run={"environment": {"python": "3.11"}})
    assert facts(report(), after)["torch"].after == ""
    assert not facts(report(), after)["torch"].differs


def with_command(*words: str):
    return report(run={"command": ["python", "train.py", *words]})


@pytest.mark.parametrize(
    ("before", "after", "warned"),
    [
        (["--seed", "1"], ["--seed", "2"], "--seed differs: 1 in the first run, 2 in the second."),
        (["--batch-size=32"], ["--batch-size=16"], "--batch-size differs: 32"),
        (["--amp"], [], "--amp differs: given in the first run, not given in the second."),
        (["lr=0.1"], ["lr=0.2"], "lr differs"),
        (["12"], ["24"], "argument 1 differs"),
        (["--lr", "-1e-3"], ["--lr", "-1e-4"], "--lr differs: -1e-3"),
        (["--out", "runs/a"], ["--out", "runs/b"], ""),
        (["--name", "first"], [], ""),
    ],
)
def test_arguments_that_decide_about_the_work_are_warned_of(before, after, warned) -> None:
    comparison = compare(with_command(*before), with_command(*after))
    assert bool(comparison.work_differences) == bool(warned)
    assert all(text.startswith(warned) for text in comparison.work_differences)
    shown = [fact for fact in comparison.work if fact.differs]
    assert len(shown) == 1
    assert shown[0].matters == bool(warned)


def test_the_interpreters_name_is_no_argument() -> None:
    first = report(run={"command": ["/usr/bin/python3.11", "a/train.py"]})
    other = report(run={"command": ["python", "b/train.py"]})
    assert not [f for f in compare(first, other).work if f.topic is Topic.PROGRAM and f.differs]


def test_another_size_of_the_model_is_shown_and_decides_nothing() -> None:
    def sized(size: int):
        part = Component(
            name="parameters", device="host", start_bytes=size, peak_bytes=size, end_bytes=size
        )
        return report(components=[part])

    comparison = compare(sized(10 * MB), sized(20 * MB))
    fact = next(f for f in comparison.work if f.name == "parameters at first")
    assert (fact.before, fact.after, fact.differs, fact.matters) == (
        "10 MiB", "20 MiB", True, False,
    )  # fmt: skip
    assert comparison.work_differences == []


def test_each_run_is_reported_with_its_cost() -> None:
    cost = compare(report(timeline=timeline(1.0)), report()).before_cost
    assert (cost.work.steps, cost.overhead.wall_share) == (100, 0.01)
    assert cost.peak_bytes == 100 * MB + 10
    assert compare(report(), report()).after_cost.peak_bytes is None


def test_ranks_are_paired_by_number() -> None:
    def ranks(*numbers: int) -> list[RankMemory]:
        return [RankMemory(rank=n, steps=10, peak_bytes=n * MB) for n in numbers]

    pairs = compare(report(ranks=ranks(0, 1)), report(ranks=ranks(0, 1, 2))).ranks
    assert [(p.rank, p.before is not None, p.after is not None) for p in pairs] == [
        (0, True, True), (1, True, True), (2, False, True),
    ]  # fmt: skip


def test_rates_of_ranks_stay_with_their_culprit() -> None:
    rates = {"0": 2.0 * MB, "1": 9.0 * MB}
    change = only(report(culprit(rates_by_rank=rates)), report())
    assert (change.before_rates_by_rank, change.after_rates_by_rank) == (rates, {})


def test_workers_are_paired_by_place_and_reported_by_their_heaviest_process() -> None:
    def worker(number: int, pss: int, pid: int) -> WorkerMemory:
        return WorkerMemory(loader=1, worker=number, pid=pid, batches=5, pss_bytes=pss)

    before = report(workers=[worker(0, 5 * MB, 10), worker(0, 9 * MB, 11), worker(1, MB, 12)])
    pairs = compare(before, report(workers=[worker(0, MB, 20)])).workers
    assert [(p.worker, p.before.pid if p.before else None, p.after is None) for p in pairs] == [
        (0, 11, False), (1, 12, True),
    ]  # fmt: skip


def test_growth_of_a_worker_says_in_how_many() -> None:
    change = only(report(culprit(workers=4)), report(culprit(workers=2)))
    assert (change.change, change.before_workers, change.after_workers) == (
        ChangeKind.UNCHANGED,
        4,
        2,
    )
