"""What malloc may have held free, where it was read long before and after, has an explanation."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_runs import KIB, MIB, Program, State, Thing

from leakscope.analysis.accounting.terms import unexplained_series
from leakscope.analysis.growth import policy
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind
from leakscope.model.report import RunVerdict, Severity


def grows(state: State) -> float:
    return 0.5 * MIB * state.step


@pytest.mark.parametrize(
    ("is_slack", "kinds"),
    [
        pytest.param(
            True,
            set(),
            marks=pytest.mark.xfail(
                strict=True, reason="a reading after the work ended is not taken for slack"
            ),
        ),
        (False, {"unexplained"}),
    ],
)
def test_growth_is_unexplained_only_if_the_heap_did_not_hold_it_free(
    is_slack: bool, kinds: set[str]
) -> None:
    program = Program(epochs=1, steps=160, validation=0, endless=True).swell(grows)
    run = program.gauge(gauge.MALLOC_FREE, lambda s: is_slack * grows(s)).build()
    for measurement in run.main.measurements:
        state = measurement.boundary
        if state.kind is not BoundaryKind.RUN_END and state.step > 2:
            measurement.gauges.pop(gauge.MALLOC_FREE)
    findings = analyse(run).findings
    assert {f.kind for f in findings if f.kind == "unexplained"} == kinds


@pytest.mark.parametrize(("was_in_use", "kinds"), [(True, {"unexplained"}), (False, set())])
def test_what_was_in_use_at_the_last_look_is_no_slack_though_it_was_let_go_at_the_end(
    was_in_use: bool, kinds: set[str]
) -> None:
    def in_use(state: State) -> float:
        is_kept = was_in_use and state.kind is not BoundaryKind.RUN_END
        return 100 * MIB + is_kept * grows(state)

    program = Program(epochs=1, steps=160, validation=0, endless=True).swell(grows)
    program.gauge(gauge.MALLOC_FREE, lambda s: grows(s) - (in_use(s) - 100 * MIB))
    run = program.gauge(gauge.MALLOC_IN_USE, in_use).build()
    for measurement in run.main.measurements:
        state = measurement.boundary
        if state.kind is not BoundaryKind.RUN_END and (state.step % 20 or state.step > 120):
            measurement.gauges.pop(gauge.MALLOC_FREE)
            measurement.gauges.pop(gauge.MALLOC_IN_USE)
    findings = analyse(run).findings
    assert {f.kind for f in findings if f.kind == "unexplained"} == kinds


@pytest.mark.parametrize(
    ("other", "verdict"), [(0, RunVerdict.CLEAN), (300 * KIB, RunVerdict.LEAK)]
)
def test_free_memory_between_what_fills_a_bound_is_no_leak(other: int, verdict: RunVerdict) -> None:
    """Only where that is most of what the C heap has more in use."""

    def in_use(state: State) -> float:
        return 100 * MIB + state.step * (50 * KIB + other)

    replay = Thing(
        "replay", lambda s: s.step * 50 * KIB, "deque", "collections.deque",
        length=lambda s: s.step, capacity=500,
    )  # fmt: skip
    program = Program(epochs=8).plant(replay).swell(grows).swell(lambda s: s.step * other)
    run = program.gauge(gauge.MALLOC_FREE, grows).gauge(gauge.MALLOC_IN_USE, in_use).build()
    report = analyse(run)
    assert report.verdict is verdict
    rules = [d.rule for d in report.decisions if d.subject == "slack"]
    assert ("pinned_by_growth" in rules) is (verdict is RunVerdict.CLEAN)


@pytest.mark.parametrize(
    ("pins", "verdict"), [(1 * KIB, RunVerdict.INCONCLUSIVE), (20 * KIB, RunVerdict.LEAK)]
)
def test_free_memory_that_hardly_anything_pins_is_undecided(pins: int, verdict: RunVerdict) -> None:
    program = Program(epochs=8).swell(grows).gauge(gauge.MALLOC_FREE, grows)
    program.gauge(gauge.MALLOC_IN_USE, lambda s: 100 * MIB + s.step * pins)
    report = analyse(program.build())
    assert report.verdict is verdict
    warned = {f.kind for f in report.findings if f.severity is Severity.WARNING}
    assert ("allocator_slack" in warned) is (verdict is RunVerdict.LEAK)


@pytest.mark.parametrize(("rate", "verdict"), [(0, RunVerdict.CLEAN), (100 * KIB, RunVerdict.LEAK)])
def test_what_leaks_into_free_memory_of_the_heap_is_a_leak_though_the_process_is_no_larger(
    rate: int, verdict: RunVerdict
) -> None:
    """A start that freed much leaves room for a leak: malloc counts it, resident memory doesn't."""
    program = Program(epochs=8).gauge(gauge.MALLOC_FREE, lambda s: 200 * MIB - s.step * rate)
    run = program.gauge(gauge.MALLOC_IN_USE, lambda s: 100 * MIB + s.step * rate).build()
    report = analyse(run)
    assert report.verdict is verdict
    assert {f.kind for f in report.findings if f.kind == "unexplained"} == (
        {"unexplained"} if rate else set()
    )


def test_a_little_that_leaks_into_free_memory_leaves_the_run_undecided() -> None:
    """Less than libraries warm up by, but malloc goes on handing it out."""
    program = Program(epochs=8).gauge(gauge.MALLOC_FREE, lambda s: 200 * MIB - s.step * 10 * KIB)
    run = program.gauge(gauge.MALLOC_IN_USE, lambda s: 100 * MIB + s.step * 10 * KIB).build()
    report = analyse(run)
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert "has no name" in report.missing[0]


def test_growth_since_the_last_of_few_censuses_may_belong_to_a_name() -> None:
    program = Program(epochs=1, steps=160, validation=0, endless=True)
    run = program.leak("main()·losses", 200 * KIB).build()
    looks = [m for m in run.main.measurements if m.census is not None]
    for measurement in looks[3:]:
        object.__setattr__(measurement, "census", None)
    report = analyse(run)
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert not report.findings


@pytest.mark.parametrize("swaps", [True, False])
def test_what_leaks_and_is_swapped_out_is_a_leak_though_resident_memory_is_flat(
    swaps: bool,
) -> None:
    run = Program(epochs=8).gauge(gauge.SWAPPED, lambda s: swaps * grows(s)).build()
    report = analyse(run)
    assert report.verdict is (RunVerdict.LEAK if swaps else RunVerdict.CLEAN)
    assert {f.kind for f in report.findings} == ({"unexplained"} if swaps else set())


def test_a_culprit_that_is_swapped_out_is_explained_by_name() -> None:
    program = Program(epochs=8).plant(Thing("kept", grows, length=lambda s: s.step))
    program.swell(lambda s: -grows(s))
    report = analyse(program.gauge(gauge.SWAPPED, grows).build())
    assert [culprit.path for culprit in report.culprits] == ["kept"]
    (ledger,) = report.ledgers
    entries = {entry.kind: entry.bytes for entry in ledger.entries}
    assert entries["named"] == pytest.approx(-entries["swapped"], rel=0.05)
    assert abs(entries["unexplained"]) < 0.05 * entries["named"]
    assert ledger.total_bytes < 0.05 * entries["named"]


def test_free_memory_between_readings_that_differ_much_is_not_known() -> None:
    """The heap is read at 49 and at 51 of 50 steps, and is full of free memory at the first."""

    def free(state: State) -> float:
        return 60 * MIB if state.step % 50 == 49 else 4 * MIB

    program = Program(endless=True, steps=619, rss_noise=0.0).swell(free)
    run = program.gauge(gauge.MALLOC_FREE, free).build()
    for m in run.main.measurements:
        if m.boundary.step % 50 == 0:
            m.gauges.pop(gauge.MALLOC_FREE, None)
    case = RunContext(run, run.main)
    assert (case.track.step[case.table.at] % 50 == 0).sum() > 5
    _, left = unexplained_series(case)
    assert np.ptp(left) < MIB


@pytest.mark.parametrize("is_ours", [True, False])
def test_what_leakscope_has_in_the_c_heap_is_no_part_of_what_is_in_use(is_ours: bool) -> None:
    """Its tables grow with what was looked at, and pin none of the program's free memory."""
    program = Program(epochs=8).gauge(gauge.MALLOC_IN_USE, lambda s: 100 * MIB + s.step * 8 * KIB)
    program.gauge(gauge.OWN, lambda s: MIB + s.step * 8 * KIB * is_ours)
    run = program.build()
    case = RunContext(run, run.main)
    trend = case.gauge_trend(gauge.MALLOC_IN_USE, policy.ELSEWHERE_NOISE_BYTES)
    assert trend.is_growing is not is_ours
