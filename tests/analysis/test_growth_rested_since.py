"""Growth seen by the last census counts only if memory didn't stand still after it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from synthetic_runs import KIB, MIB, Program, State, Thing

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind
from leakscope.model.report import RunVerdict
from leakscope.model.run import Run

LOOKED_UNTIL = 6
"""The epoch after which no census was taken, of 16."""


def grown(until: int) -> Thing:
    """Return a container that gains 500 KiB an epoch until an epoch."""
    return Thing("state", lambda s: 500 * KIB * (1 + min(s.epoch, until)), "dict", "dict")


def run_of(*things: Thing, slack: float = 0.0, reads_slack: bool = True) -> Run:
    """Return a run whose censuses end early, with gauges to its end."""

    def free(state: State) -> float:
        return 20 * MIB - slack * state.epoch

    program = Program(epochs=16, steps=20, validation=0, rss_noise=0.0).plant(*things)
    program.swell(free)
    if reads_slack:
        program.gauge(gauge.MALLOC_FREE, free)
    run = program.build()
    recording = run.recordings[0]
    recording.measurements[:] = [
        replace(m, census=None) if m.boundary.epoch > LOOKED_UNTIL else m
        for m in recording.measurements
    ]
    return run


def test_a_warm_up_as_long_as_the_censuses_is_no_leak() -> None:
    report = analyse(run_of(grown(until=LOOKED_UNTIL)))
    assert report.verdict is RunVerdict.CLEAN, report.headline


def test_what_goes_on_growing_is_one() -> None:
    report = analyse(run_of(grown(until=16)))
    assert [culprit.name for culprit in report.culprits] == ["state"]


def test_growth_into_what_malloc_held_free_is_growth() -> None:
    report = analyse(run_of(grown(until=16), slack=500 * KIB))
    assert [culprit.name for culprit in report.culprits] == ["state"]


def test_without_the_heaps_own_account_nothing_is_withdrawn() -> None:
    report = analyse(run_of(grown(until=LOOKED_UNTIL), reads_slack=False))
    assert [culprit.name for culprit in report.culprits] == ["state"]


@pytest.mark.parametrize(
    ("until", "verdict"), [(LOOKED_UNTIL, RunVerdict.CLEAN), (16, RunVerdict.LEAK)]
)
def test_a_census_at_the_end_of_the_run_tells_too(until: int, verdict: RunVerdict) -> None:
    thing = grown(until)
    run = run_of(thing, reads_slack=False)
    whole = Program(epochs=16, steps=20, validation=0).plant(thing).build()
    last = [m.census for m in whole.recordings[0].measurements if m.census is not None][-1]
    measurements = run.recordings[0].measurements
    measurements[-1] = replace(measurements[-1], census=last)
    assert analyse(run).verdict is verdict


def test_what_slows_down_and_stops_later_is_no_leak() -> None:
    run = run_of(grown(until=9))
    assert analyse(run).verdict is RunVerdict.CLEAN, analyse(run).headline


@pytest.mark.parametrize(("until", "leaks"), [(LOOKED_UNTIL, False), (16, True)])
def test_what_malloc_holds_free_may_be_read_for_the_last_time_long_before(
    until: int, leaks: bool
) -> None:
    run = run_of(grown(until=until))
    for m in run.main.measurements:
        if m.boundary.epoch >= LOOKED_UNTIL:
            m.gauges.pop(gauge.MALLOC_FREE, None)
        elif gauge.MALLOC_FREE in m.gauges:
            m.gauges[gauge.MALLOC_FREE] = 100 * KIB
    assert (analyse(run).verdict is RunVerdict.LEAK) is leaks


@pytest.mark.parametrize("until", [LOOKED_UNTIL, 16])
def test_next_to_a_leak_that_goes_on_nothing_is_withdrawn(until: int) -> None:
    leak = Thing("kept", lambda s: 4 * MIB * (1 + s.epoch), "list", "list")
    report = analyse(run_of(leak, grown(until=until)))
    assert {culprit.name for culprit in report.culprits} == {"kept", "state"}


def test_what_another_leak_gained_later_accounts_for_no_earlier_growth() -> None:
    kept = Thing("kept", lambda s: 4 * MIB * (1 + s.epoch), "list", "list")
    run = run_of(kept, replace(grown(until=16), path="train()·state"))
    only_kept = Program(epochs=16, steps=20, validation=0).plant(kept).build()
    last = [m.census for m in only_kept.main.measurements if m.census is not None][-1]
    recorded = run.main.measurements
    recorded[-1] = replace(recorded[-1], census=last)
    for m in recorded:
        if m.boundary.epoch > LOOKED_UNTIL + 4:
            m.gauges.pop(gauge.MALLOC_FREE, None)
    report = analyse(run)
    assert {culprit.name for culprit in report.culprits} == {"kept", "train.state"}


@pytest.mark.parametrize("items", [16, 6])
def test_items_that_come_without_any_growth_of_memory_are_no_leak(items: int) -> None:
    thing = replace(
        grown(until=LOOKED_UNTIL), kind="list", length=lambda s: 1 + min(s.epoch, items)
    )
    run = run_of(thing, reads_slack=False)
    whole = Program(epochs=16, steps=20, validation=0).plant(thing).build()
    last = [m.census for m in whole.recordings[0].measurements if m.census is not None][-1]
    measurements = run.recordings[0].measurements
    measurements[-1] = replace(measurements[-1], census=last)
    assert analyse(run).verdict is RunVerdict.CLEAN


@pytest.mark.parametrize("lies_in_shared_memory", [True, False])
def test_what_lies_in_shared_memory_grows_there(lies_in_shared_memory: bool) -> None:
    def shared(state: State) -> float:
        return 500 * KIB * (1 + state.epoch)

    program = Program(epochs=16, steps=20, validation=0, rss_noise=0.0).plant(grown(until=16))
    program.swell(lambda s: 20 * MIB - max(0, s.epoch - LOOKED_UNTIL) * 500 * KIB)
    program.gauge(gauge.MALLOC_FREE, lambda s: 20.0 * MIB)
    if lies_in_shared_memory:
        program.gauge(gauge.SHM, shared)
    run = program.build()
    recording = run.recordings[0]
    recording.measurements[:] = [
        replace(m, census=None) if m.boundary.epoch > LOOKED_UNTIL else m
        for m in recording.measurements
    ]
    found = analyse(run)
    assert (found.verdict is RunVerdict.LEAK) is lies_in_shared_memory


@pytest.mark.parametrize(("until", "is_leak"), [(12, False), (16, True)])
def test_of_much_that_is_due_a_shorter_rest_tells(until: int, is_leak: bool) -> None:
    frames = Thing("state", lambda s: MIB * min(s.step, 20 * (until + 1)), "dict", "dict")
    program = Program(epochs=16, steps=20, validation=0, rss_noise=0.0).plant(frames)
    run = program.gauge(gauge.MALLOC_FREE, lambda s: 20 * MIB).build()
    recording = run.recordings[0]
    recording.measurements[:] = [
        replace(m, census=None) if m.boundary.epoch > 12 else m for m in recording.measurements
    ]
    report = analyse(run)
    assert (report.verdict is RunVerdict.LEAK) is is_leak, report.headline


@pytest.mark.parametrize(("size", "released"), [(4 * MIB, 0.0), (MIB, 30 * MIB)])
def test_a_step_that_may_be_due_and_what_else_was_released_acquit_nobody(
    size: float, released: float
) -> None:
    state = Thing("state", lambda s: size * (1 + s.epoch), "dict", "dict")
    program = Program(epochs=8, steps=20, validation=0, rss_noise=0.0).plant(state)
    program.swell(lambda s: 40 * MIB - released * (s.epoch > 5))
    run = program.gauge(gauge.MALLOC_FREE, lambda s: 20 * MIB).build()
    recording = run.recordings[0]
    recording.measurements[:] = [
        replace(m, census=None) if m.boundary.epoch > 5 else m for m in recording.measurements
    ]
    assert analyse(run).verdict is RunVerdict.LEAK


@pytest.mark.parametrize(
    ("left", "verdict"),
    [
        pytest.param(0.0, RunVerdict.CLEAN, id="all that it held"),
        pytest.param(3.5, RunVerdict.LEAK, id="less than it held"),
        pytest.param(-30.0, RunVerdict.LEAK, id="far more than it held"),
    ],
)
def test_what_a_function_let_go_as_it_returned_is_no_leak_if_memory_rests_then(
    left: float, verdict: RunVerdict
) -> None:
    """``left`` MiB of eight stay in use."""

    def kept(s: State) -> float:
        return MIB * (1 + s.epoch if s.epoch <= LOOKED_UNTIL + 1 else left)

    state = Thing("train()·state", lambda s: MIB * (1 + s.epoch), "dict", "dict")
    program = Program(epochs=16, steps=20, validation=0, rss_noise=0.0).plant(state)
    program.swell(lambda s: 60 * MIB + kept(s) - MIB * (1 + s.epoch))
    run = program.gauge(gauge.MALLOC_FREE, lambda s: 20 * MIB).build()
    recording = run.recordings[0]
    recording.measurements[:] = [
        replace(m, census=None) if m.boundary.epoch > LOOKED_UNTIL else m
        for m in recording.measurements
    ]
    report = analyse(run)
    assert report.verdict is verdict, report.headline


@pytest.mark.parametrize(
    ("until", "memory_until", "is_leak"), [(320, 320, True), (80, 80, False), (320, 80, False)]
)
def test_of_two_looks_memory_between_them_tells(
    until: int, memory_until: int, is_leak: bool
) -> None:
    state = Thing("state", lambda s: MIB * min(s.step, until), "dict", "dict")
    program = Program(epochs=16, steps=20, validation=0, rss_noise=0.0).plant(state)
    program.swell(lambda s: MIB * (min(s.step, memory_until) - min(s.step, until)))
    run = program.gauge(gauge.MALLOC_FREE, lambda s: 2 * MIB).build()
    measurements = run.recordings[0].measurements
    last = measurements[-1]
    by_time = []
    for n, measurement in enumerate([*measurements[::4], last]):
        looked_at = measurement is last or n == 8
        step = measurement.boundary.step
        kind = measurement.boundary.kind if measurement in (measurements[0], last) else "time"
        boundary = msgspec.structs.replace(
            measurement.boundary, index=n, kind=BoundaryKind(kind), phase="", time_s=float(n)
        )
        census = program.census_at(State(step=step)) if looked_at else None
        by_time.append(replace(measurement, boundary=boundary, census=census))
    measurements[:] = by_time
    report = analyse(run)
    assert (report.verdict is RunVerdict.LEAK) is is_leak, report.headline
