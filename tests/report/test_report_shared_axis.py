"""Two runs along one axis: by step, what lies between two steps with room of its own."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
import report_samples as samples

from leakscope.model.comparison import Comparison, CulpritChange, RunCost
from leakscope.model.report import Line, Moment, PhaseSpan, Point, Timeline, Work
from leakscope.report.comparison.axis import SharedAxis, shared_axis
from leakscope.report.comparison.page import comparison_page

STEPS, BATCHES = 10, 20
"""In each epoch."""


def run(
    epochs: int = 3,
    pace: float = 1.0,
    batches: int = BATCHES,
    *,
    steps: int = STEPS,
    shown: bool = True,
    every: int = 1,
) -> Timeline:
    """Return a run that validates after each epoch, which takes it one step's time."""
    each = steps
    second, steps, boundary, begun = 0.0, 0, 0, []
    clock, spans, points, moments = [(0.0, 0.0)], [], [(0.0, 1.0)], [Moment(0.0, 0, 0, 0, "")]
    for epoch in range(epochs):
        begun.append((second, epoch))
        for _ in range(each):
            second, steps, boundary = second + pace, steps + 1, boundary + 1
            clock.append((second, float(steps)))
            points.append((second, 100.0 + epoch))
            moments.append(Moment(second, boundary, steps, epoch, "train"))
        if epoch % every:
            continue
        begin = second + 0.1 * pace
        for batch in range(batches):
            second, boundary = begin + 0.8 * pace * (batch + 1) / batches, boundary + 1
            points.append((second, 100.0 + epoch + batch))
            moments.append(Moment(second, boundary, steps, epoch, "validation"))
        clock.append((second, steps + 0.9))
        spans.append(
            PhaseSpan(
                phase="validation", occurrence=len(spans), epoch=epoch, start_s=begin, end_s=second,
                steps=(steps, steps) if shown else None,
            )
        )  # fmt: skip
    lines = [Line(label="resident", metric="rss", points=points)]
    return Timeline(lines=lines, spans=spans, steps=clock, moments=moments, epochs=begun)


def comparing(before: Timeline | None, after: Timeline | None) -> Comparison:
    costs = [
        RunCost(work=Work(batches={"validation": BATCHES * len(t.spans)} if t else {}))
        for t in (before, after)
    ]
    return msgspec.structs.replace(
        samples.comparison(),
        before_timeline=before,
        after_timeline=after,
        before_cost=costs[0],
        after_cost=costs[1],
        culprits=[],
        retained=None,
    )


def axis_of(before: Timeline | None, after: Timeline | None) -> SharedAxis:
    axis = shared_axis(comparing(before, after))
    assert axis is not None
    return axis


def stretches(axis: SharedAxis, side: int, timeline: Timeline) -> list[tuple[float, float]]:
    starts = axis.places(side, [span.start_s for span in timeline.spans])
    ends = axis.places(side, [span.end_s for span in timeline.spans])
    return list(zip(starts, ends, strict=True))


def test_a_validation_gets_more_room_than_the_step_that_it_lies_between() -> None:
    timeline = run()
    widths = [end - start for start, end in stretches(axis_of(timeline, timeline), 0, timeline)]
    assert all(width >= STEPS * 0.9 for width in widths)


def test_steps_and_validations_of_a_slower_run_lie_where_those_of_the_quick_one_do() -> None:
    quick, slow = run(), run(pace=3.7)
    axis = axis_of(quick, slow)
    first, second = stretches(axis, 0, quick), stretches(axis, 1, slow)
    for ours, theirs in zip(first, second, strict=True):
        assert ours == pytest.approx(theirs)
    steps = [seconds for seconds, step in quick.steps if step == round(step)]
    assert axis.places(0, steps) == pytest.approx(axis.places(1, [3.7 * item for item in steps]))


def test_what_only_one_run_stops_for_leaves_the_steps_of_both_together() -> None:
    often, seldom = run(epochs=4), run(epochs=4, every=2)
    axis = axis_of(often, seldom)
    at = [[seconds for seconds, step in t.steps if step == round(step)] for t in (often, seldom)]
    for first, second in zip(axis.places(0, at[0]), axis.places(1, at[1]), strict=True):
        assert abs(first - second) < 1e-6
    assert abs(stretches(axis, 0, often)[2][0] - stretches(axis, 1, seldom)[1][0]) < 1e-6


def test_a_run_cut_short_lies_along_the_longer_one() -> None:
    whole, killed = run(epochs=4), run(epochs=2)
    axis = axis_of(whole, killed)
    assert stretches(axis, 0, whole)[:2] == stretches(axis, 1, killed)


def test_places_go_up_with_the_time() -> None:
    timeline = run(epochs=5)
    axis = axis_of(timeline, run(epochs=3, every=2))
    places = axis.places(0, [x for x, _ in timeline.lines[0].points])
    assert all(first < second for first, second in pairwise(places))


def test_what_the_steps_stop_for_gets_a_quarter_to_half_of_the_axis() -> None:
    for batches in (1, 5000):
        timeline = run(batches=batches)
        comparison = comparing(timeline, None)
        cost = RunCost(work=Work(batches={"validation": batches * len(timeline.spans)}))
        axis = shared_axis(msgspec.structs.replace(comparison, before_cost=cost))
        assert axis is not None
        widths = sum(end - start for start, end in stretches(axis, 0, timeline))
        assert 0.2 <= widths / axis.steps[-1][0] <= 0.5


def test_ticks_are_round_steps_where_these_ended() -> None:
    timeline = run()
    axis = axis_of(timeline, timeline)
    ends = axis.places(0, [x for x, _ in timeline.lines[0].points])
    ticks = axis.ticks((ends[0], ends[-1]), 4)
    assert [tick.text for tick in ticks] == ["0", "10", "20", "30"]
    assert ticks[1].at == 10.0
    assert ticks[2].at > 20.0 + STEPS * 0.9


def test_a_report_that_does_not_tell_the_steps_of_its_phases_is_widened_too() -> None:
    older = run(shown=False)
    newer = run()
    axis = axis_of(older, newer)
    assert stretches(axis, 0, older) == stretches(axis, 1, newer)


def test_a_phase_in_which_steps_are_done_is_no_pause() -> None:
    timeline = run(epochs=1)
    whole = PhaseSpan(
        phase="finetuning", occurrence=0, epoch=0, start_s=0.0, end_s=9.0, steps=(0, 9)
    )
    axis = axis_of(msgspec.structs.replace(timeline, spans=[whole]), None)
    assert not axis.has_pauses
    assert axis.places(0, [3.0]) == [3.0]


def test_phases_that_come_with_each_step_are_parts_of_the_steps() -> None:
    timeline = run(epochs=2)
    rollouts = [
        PhaseSpan(phase="rollout", occurrence=n, epoch=0, start_s=n + 0.1, end_s=n + 0.4,
                  steps=(n, n))
        for n in range(20)
    ]  # fmt: skip
    assert not axis_of(msgspec.structs.replace(timeline, spans=rollouts), None).has_pauses


def test_phases_of_which_only_some_are_known_are_not_widened() -> None:
    timeline = msgspec.structs.replace(run(), phases_begun=5000)
    assert not axis_of(timeline, None).has_pauses


def test_epochs_of_different_lengths_lie_over_each_other() -> None:
    usual, halved = run(), run(steps=STEPS // 2)
    axis = axis_of(usual, halved)
    assert axis.unit == "epoch"
    first, second = stretches(axis, 0, usual), stretches(axis, 1, halved)
    for ours, theirs in zip(first, second, strict=True):
        assert ours == pytest.approx(theirs)
    places = axis.places(1, [x for x, _ in halved.lines[0].points])
    assert all(first < second for first, second in pairwise(places))
    assert [tick.text for tick in axis.ticks((0.0, places[-1]), 4)] == ["0", "1", "2", "3"]
    page = comparison_page(comparing(usual, halved))
    assert page.overlay is not None
    assert page.overlay.title == "Memory by epoch"
    assert "count epochs done" in page.overlay.view.note


def test_epochs_of_one_length_count_as_steps_also_where_one_run_is_cut_short() -> None:
    assert axis_of(run(epochs=4), run(epochs=3)).unit == "step"


def test_runs_without_steps_share_no_axis() -> None:
    assert shared_axis(comparing(run(), msgspec.structs.replace(run(), steps=[]))) is None


def test_a_culprit_that_climbs_within_validation_is_drawn_along_the_same_axis() -> None:
    timeline = run(epochs=2)
    inside = [moment for moment in timeline.moments if moment.phase == "validation"]
    chart = [Point(m.step + 0.5, float(i), m.boundary) for i, m in enumerate(inside)]
    change = msgspec.structs.replace(
        _within(), before_chart=chart, after_chart=[], chart_unit="step"
    )
    comparison = msgspec.structs.replace(comparing(timeline, timeline), culprits=[change])
    (view,) = comparison_page(comparison).cards
    assert view.series is not None
    before = view.series.data["lines"][0]
    assert before["label"] == "before"
    first = [x for x, _ in before["points"][:BATCHES]]
    assert first[-1] - first[0] > STEPS * 0.8


def _within() -> CulpritChange:
    return next(c for c in samples.comparison().culprits if c.growth == "within")
