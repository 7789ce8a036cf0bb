"""Growth that comes with new shapes of tensors is a cache's or a larger batch's, and no leak."""

from __future__ import annotations

import pytest
from synthetic_runs import GIB, MIB, Program, Size, State

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind
from leakscope.model.report import Report, RunVerdict, Severity

STEPS = 40


def by_epoch(state: State) -> int:
    """Shapes met so far where each epoch brings two: of its batches, and of its last one."""
    return 2 * state.epochs_done + (state.batch > 0) + (state.batch == STEPS)


def by_step(state: State) -> int:
    """Shapes met so far where each step brings one."""
    return state.step


def program(grows: Size, shapes: Size, steps: int = STEPS, epochs: int = 14) -> Program:
    made = Program(epochs=epochs, steps=steps, validation=0).swell(grows)
    return made.gauge(gauge.SHAPES, shapes)


def report_of(grows: Size, shapes: Size, **more: int) -> Report:
    return analyse(program(grows, shapes, **more).build())


def unexplained(report: Report) -> list[tuple[Severity, str]]:
    return [(f.severity, f.title) for f in report.findings if f.kind == "unexplained"]


LEAK = [(Severity.WARNING, "Memory grows outside everything that has a name")]
EITHER = [(Severity.NOTE, "Memory grows with new shapes of tensors, or leaks")]


def test_growth_that_comes_with_new_shapes_alone_is_accused_of_nothing() -> None:
    report = report_of(lambda s: by_epoch(s) * 2 * MIB, by_epoch)
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert unexplained(report) == EITHER
    (finding,) = report.findings
    assert "tensors of 30 new shapes" in finding.text
    assert "ONEDNN_PRIMITIVE_CACHE_CAPACITY" in finding.remedy.text


def test_the_same_growth_is_accused_where_no_shape_is_new() -> None:
    report = report_of(lambda s: by_epoch(s) * 2 * MIB, lambda _: 3)
    assert report.verdict is RunVerdict.LEAK
    assert unexplained(report) == LEAK


def test_and_where_shapes_were_not_recorded() -> None:
    report = report_of(lambda s: by_epoch(s) * 2 * MIB, lambda _: None)
    assert unexplained(report) == LEAK


def test_growth_that_goes_on_between_new_shapes_is_accused() -> None:
    report = report_of(lambda s: s.step * 100 * 1024, by_epoch)
    assert report.verdict is RunVerdict.LEAK
    assert unexplained(report) == LEAK


def test_a_leak_next_to_a_cache_by_shape_is_accused() -> None:
    both = report_of(lambda s: s.step * 100 * 1024 + by_epoch(s) * MIB, by_epoch)
    assert unexplained(both) == LEAK


def test_some_jumps_of_the_heap_between_new_shapes_are_no_leak() -> None:
    def jumps(state: State) -> int:
        return sum(state.step > epoch * STEPS + 9 for epoch in (4, 7, 11))

    report = report_of(lambda s: by_epoch(s) * MIB + jumps(s) * 8 * MIB, by_epoch)
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert unexplained(report) == EITHER


def test_kernels_that_a_new_shape_costs_soon_after_it_was_seen_are_no_leak() -> None:
    """A batch's shape is seen as it is fetched, before what its backward pass costs."""

    def kernels(state: State) -> int:
        return 4 * state.epochs_done + (state.batch > 0) + 3 * (state.batch > 1)

    report = report_of(lambda s: kernels(s) * MIB, by_epoch)
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert unexplained(report) == EITHER


def test_looks_between_phases_tell_nothing_of_epochs_that_had_none_inside() -> None:
    """On a busy machine few steps are measured: there no function holds the batches any more."""

    def seen(state: State) -> int | None:
        is_inside = state.kind is BoundaryKind.STEP
        if state.epoch % 3:
            return None if is_inside else state.epoch // 3 + 1
        return state.epoch // 3 + (is_inside or state.kind is BoundaryKind.PHASE_END)

    report = report_of(lambda s: (s.epochs_done + (s.batch > 0)) * 4 * MIB, seen, epochs=18)
    assert unexplained(report) == EITHER


def test_a_leak_between_epochs_is_accused_though_each_epoch_has_new_shapes() -> None:
    """Validation leaks in native code; its shapes stay as they are."""
    run = Program(epochs=14, steps=STEPS).swell(lambda s: s.validation_batches * 400 * 1024)
    run.gauge(gauge.SHAPES, lambda s: 2 * s.epoch + (s.kind is not BoundaryKind.PHASE_BEGIN))
    assert unexplained(analyse(run.build())) == LEAK


def test_looks_between_phases_tell_where_there_were_few_inside() -> None:
    """Later epochs are looked at as they begin and end alone, and each has a new shape."""

    def met(state: State) -> int:
        begins = {BoundaryKind.RUN_BEGIN, BoundaryKind.PHASE_BEGIN}
        return state.epoch + (state.kind not in begins)

    def seen(state: State) -> int | None:
        return None if state.kind is BoundaryKind.STEP and state.epoch else met(state)

    report = report_of(lambda s: met(s) * MIB, seen, epochs=18)
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert unexplained(report) == EITHER


def test_growth_while_every_look_meets_a_new_shape_is_inconclusive() -> None:
    report = report_of(lambda s: s.step * 100 * 1024, by_step)
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert unexplained(report) == EITHER
    assert "ONEDNN_PRIMITIVE_CACHE_CAPACITY=1" in report.missing[0]
    assert report.headline.startswith("Inconclusive after")


def test_but_is_accused_when_it_goes_on_with_more_shapes_than_a_cache_has_room_for() -> None:
    report = report_of(lambda s: s.step * 100 * 1024, by_step, steps=200)
    assert report.verdict is RunVerdict.LEAK
    assert unexplained(report) == LEAK


def test_growth_that_no_cache_has_room_for_is_not_excused() -> None:
    report = report_of(lambda s: by_epoch(s) * 0.1 * GIB, by_epoch)
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert unexplained(report) == EITHER


def test_what_a_culprit_gains_between_new_shapes_is_not_counted_twice() -> None:
    run = program(lambda s: by_epoch(s) * 2 * MIB, by_epoch).leak("main()·losses", 40 * 1024)
    report = analyse(run.build())
    assert [c.name for c in report.culprits] == ["main.losses"]
    assert unexplained(report) == EITHER


@pytest.mark.parametrize(
    ("shapes", "expected"), [(by_epoch, {}), (lambda _: 3, {"allocator_slack": "warning"})]
)
def test_holes_that_larger_batches_leave_are_no_finding(
    shapes: Size, expected: dict[str, str]
) -> None:
    run = program(lambda s: by_epoch(s) * 4 * MIB, shapes)
    run.gauge(gauge.MALLOC_FREE, lambda s: by_epoch(s) * 3.6 * MIB)
    found = {f.kind: f.severity.value for f in analyse(run.build()).findings}
    assert found == expected
