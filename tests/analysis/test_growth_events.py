"""Growth with an event is reported per event; growth with the work stays per step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_runs import KIB, MIB, Program, State, Thing

from leakscope.analysis.columns.series import FloatArray
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.events import EventFit, Regressor, fit_events
from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.boundary import SERVED, Boundary, BoundaryKind, Event
from leakscope.model.census import Census, CensusRow, CensusScope, RootKind
from leakscope.model.record import HeaderRecord, RunManifest
from leakscope.model.report import Report, RunVerdict, Severity
from leakscope.model.run import Measurement, Recording, Run

STEPS = 3000
NOISE = policy.ROW_NOISE_BYTES
EVENTS = [event.value for event in Event]
EXACT = pytest.approx


def read_at(readings: int, seed: int) -> FloatArray:
    """The steps at which a series is read: anywhere, as censuses are."""
    chance = np.random.default_rng(seed)
    chosen = np.sort(chance.choice(STEPS, readings, replace=False)).astype(float)
    return np.concatenate([[0.0], chosen])


def every(steps: FloatArray, period: int, offset: int = 0) -> FloatArray:
    return np.floor((steps + offset) / period)


def fit(y: FloatArray, steps: FloatArray, noise: float = NOISE, **events: FloatArray) -> EventFit:
    counters = [Regressor("step", steps, is_work=True)]
    found = fit_events(
        y, counters + [Regressor(name, done) for name, done in events.items()], noise
    )
    assert found is not None
    return found


def named(found: EventFit) -> list[str]:
    return [rate.counter.name for rate in found.rates]


SEEDS = st.integers(0, 10_000)
READINGS = st.integers(25, 90)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, readings=READINGS, period=st.integers(80, 300), size=st.floats(1e5, 1e10))
def test_growth_per_save_is_reported_by_saves(
    seed: int, readings: int, period: int, size: float
) -> None:
    steps = read_at(readings, seed)
    saves = every(steps, period)
    found = fit(size * saves, steps, save=saves, log=every(steps, 7), load=every(steps, period, 40))
    assert found.is_by_event
    assert named(found)[0] == "save"
    assert found.rates[0].rate == EXACT(size, rel=0.01)
    assert found.work.rate == 0


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, readings=READINGS, period=st.integers(20, 300), size=st.floats(2e4, 1e9))
def test_growth_per_step_stays_per_step_whatever_happens_regularly(
    seed: int, readings: int, period: int, size: float
) -> None:
    steps = read_at(readings, seed)
    found = fit(size * steps, steps, save=every(steps, period), log=every(steps, 10))
    assert not found.is_by_event
    assert named(found) == ["step"]
    assert found.work.rate == EXACT(size, rel=0.01)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, shuffle=SEEDS, is_by_save=st.booleans())
def test_events_that_have_nothing_to_do_with_it_change_nothing(
    seed: int, shuffle: int, is_by_save: bool
) -> None:
    steps = read_at(50, seed)
    saves = every(steps, 150)
    y = 8e6 * (saves if is_by_save else steps / 150)
    chance = np.random.default_rng(shuffle)
    others = {
        name: np.concatenate([[0.0], np.cumsum(chance.permutation(np.diff(saves)))])
        for name in ("image", "thread", "optimizer")
    }
    alone, among = fit(y, steps, save=saves), fit(y, steps, save=saves, **others)
    assert (alone.is_by_event, named(alone)) == (among.is_by_event, named(among))
    assert [rate.rate for rate in alone.rates] == EXACT([rate.rate for rate in among.rates])


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, scale=st.floats(1e-3, 1e6), level=st.floats(-1e9, 1e9), is_by_save=st.booleans())
def test_bytes_may_be_scaled_and_shifted(
    seed: int, scale: float, level: float, is_by_save: bool
) -> None:
    steps = read_at(40, seed)
    saves = every(steps, 200)
    y = 8e6 * (saves if is_by_save else steps / 200)
    y = y + np.random.default_rng(seed).normal(0, 1e5, len(y))
    plain = fit(y, steps, save=saves)
    other = fit(y * scale + level * scale, steps, NOISE * scale, save=saves)
    assert named(plain) == named(other)
    assert plain.is_by_event == other.is_by_event
    ratios = [b.rate / a.rate for a, b in zip(plain.rates, other.rates, strict=True)]
    assert ratios == EXACT([scale] * len(ratios), rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, times=st.integers(2, 50))
def test_work_may_be_counted_in_other_units(seed: int, times: int) -> None:
    steps = read_at(40, seed)
    y = 3e5 * steps
    first, other = (fit(y, done, save=every(steps, 100)) for done in (steps, steps * times))
    assert named(first) == named(other) == ["step"]
    assert first.work.rate == EXACT(other.work.rate * times)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, jump=st.floats(0, 3e7), at=st.integers(3, 45))
def test_a_jump_weighs_as_one_reading(seed: int, jump: float, at: int) -> None:
    steps = read_at(50, seed)
    saves = every(steps, 100)
    y = 8e6 * saves + np.where(np.arange(len(steps)) >= at, jump, 0)
    found = fit(y, steps, save=saves)
    assert found.is_by_event
    assert named(found)[0] == "save"
    assert found.rates[0].rate == EXACT(8e6, rel=0.05)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, share=st.floats(0.2, 0.8))
def test_both_rates_are_reported_where_steps_and_saves_bring_it(seed: int, share: float) -> None:
    steps = read_at(60, seed)
    saves = every(steps, 150)
    found = fit(3e7 * (share * saves + (1 - share) * steps / 150), steps, save=saves)
    assert sorted(named(found)) == ["save", "step"]
    rates = {rate.counter.name: rate.rate for rate in found.rates}
    assert rates["save"] == EXACT(3e7 * share, rel=0.05)
    assert rates["step"] == EXACT(3e7 * (1 - share) / 150, rel=0.05)


def test_noise_above_what_an_event_brings_leaves_growth_per_step() -> None:
    steps = read_at(40, 1)
    saves = every(steps, 100)
    y = 1e6 * saves + np.random.default_rng(1).normal(0, 4e6, len(steps))
    found = fit_events(
        np.minimum.accumulate(y[::-1])[::-1],
        [Regressor("step", steps, is_work=True), Regressor("save", saves)],
        4e6,
    )
    assert found is None or not found.is_by_event


def test_what_always_happens_together_is_reported_as_such() -> None:
    steps = read_at(60, 2)
    saves = every(steps, 150)
    found = fit(8e6 * saves, steps, save=saves, load=saves)
    assert named(found) == ["save"]
    assert [counter.name for counter in found.indistinct] == ["load"]


def test_what_happens_evenly_between_readings_leaves_growth_per_step() -> None:
    steps = np.arange(0, STEPS, 200.0)
    found = fit(1e6 * steps, steps, save=every(steps, 100))
    assert not found.is_by_event
    assert [counter.name for counter in found.indistinct] == ["save"]


def test_without_events_nothing_is_reported() -> None:
    steps = read_at(40, 3)
    work = [
        Regressor("step", steps, is_work=True),
        Regressor("epoch", every(steps, 500), is_work=True),
    ]
    assert fit_events(1e6 * steps, work, NOISE) is None
    rare = [*work, Regressor("save", every(steps, STEPS // 2))]
    assert fit_events(1e6 * steps, rare, NOISE) is None
    assert fit_events(np.zeros(40), rare, NOISE) is None


# Whole reports of runs made of planted objects: 8 epochs of 40 steps, a validation after each.


def report(program: Program) -> Report:
    return analyse(program.build())


def leaking(size: float, count) -> Program:  # type: ignore[no-untyped-def]
    made = Program(epochs=8, steps=40, inner=20)
    made.leak("main()·kept", size)
    things = made.things[-2:]
    grown = [
        type(thing)(
            thing.path,
            lambda s, part=part: count(s) * size + part,
            thing.kind,
            thing.type,
            thing.parent,
            length=count,
        )
        for thing, part in zip(things, (56, 0), strict=True)
    ]
    made.things[-2:] = grown
    return made


def saved(state: State) -> int:
    return state.step // 16


def test_the_report_of_a_leak_per_save_gives_the_rate_per_save() -> None:
    found = report(leaking(2 * MIB, saved).event("save", saved).event("log", lambda s: s.step))
    (culprit,) = found.culprits
    assert found.verdict is RunVerdict.LEAK
    assert culprit.per_event is not None
    assert culprit.per_event.is_by_event
    (rate,) = culprit.per_event.rates
    assert (rate.event, rate.bytes_each) == ("save", EXACT(2 * MIB))
    assert culprit.per_event.work.bytes_each == 0
    assert f"grows by 2 MiB per save ({rate.count} saves), on average" in found.headline
    assert f"It grows with saves: 2 MiB per save ({rate.count} saves)" in culprit.sentence


def test_the_report_of_a_leak_per_step_stays_as_it_was() -> None:
    plain = report(Program().leak("main()·kept", 200 * KIB))
    found = report(Program().leak("main()·kept", 200 * KIB).event("save", saved))
    assert found.headline == plain.headline
    assert "200 KiB per step" in found.headline
    assert [c.sentence for c in found.culprits] == [c.sentence for c in plain.culprits]
    (culprit,) = found.culprits
    assert culprit.per_event is not None
    assert not culprit.per_event.is_by_event
    assert culprit.per_event.work.bytes_each == EXACT(200 * KIB, rel=0.01)


def test_a_save_with_every_validation_is_reported_with_the_run_that_would_settle_it() -> None:
    made = Program(endless=True, steps=600, validate_every=40)
    made.leak("main()·kept", 3 * MIB, per="validation")
    found = report(made.event("save", lambda s: s.validations))
    (culprit,) = found.culprits
    assert "3 MiB per validation" in found.headline
    assert culprit.per_event is not None
    assert not culprit.per_event.is_by_event
    assert "save" in culprit.per_event.indistinct
    assert culprit.sentence.endswith(
        "Saves went with validations, so this run can't tell whether they bring it: one in which "
        "only every second validation comes with a save would."
    )


@pytest.mark.parametrize(
    "name", [name for name in EVENTS if name.count("_0") + name.count("_1") == 0]
)
def test_events_never_change_a_verdict(name: str) -> None:
    for made in (
        lambda: leaking(2 * MIB, saved),
        lambda: Program().leak("main()·kept", 200 * KIB),
        lambda: Program().constant("main()·kept", 20 * MIB),
    ):
        plain, found = report(made()), report(made().event(name, saved))
        assert found.verdict is plain.verdict
        assert [c.signature for c in found.culprits] == [c.signature for c in plain.culprits]
        for with_event, without in zip(found.culprits, plain.culprits, strict=True):
            if with_event.unit == without.unit:
                assert with_event.bytes_per_unit == without.bytes_per_unit
            else:  # a server's growth has its own unit
                assert name in SERVED
                gained = with_event.gained_bytes, without.gained_bytes
                assert gained[0] == gained[1]


def test_a_servers_growth_is_reported_in_requests_alone() -> None:
    made = Program(endless=True, steps=600).leak("main()·kept", 40 * KIB, per="step")
    found = report(made.event("request", lambda s: s.step * 3))
    (culprit,) = found.culprits
    assert culprit.unit == "request"
    assert culprit.bytes_per_unit == EXACT(40 * KIB / 3, rel=0.05)
    assert "per step" not in found.headline
    assert "13.3 KiB per request" in found.headline
    assert culprit.forecast is None or " in request " in culprit.forecast.text
    low, high = culprit.interval
    assert low <= culprit.bytes_per_unit <= high


def test_growth_without_a_name_is_reported_by_the_event_it_comes_with() -> None:
    made = Program(epochs=8, steps=40, rss_noise=0.05 * MIB).swell(lambda s: 12 * MIB * saved(s))
    found = report(made.event("save", saved))
    unnamed = [f for f in found.findings if f.kind == "unexplained"]
    assert found.verdict is RunVerdict.LEAK
    assert unnamed[0].per_event is not None
    assert found.headline.count("MiB per save (") == 1
    assert unnamed[0].per_event.rates[0].bytes_each == EXACT(12 * MIB, rel=0.05)
    rss = next(g for g in found.growth if g.metric == "rss")
    assert rss.per_event is not None
    assert rss.per_event.rates[0].event == "save"


@pytest.mark.parametrize("late", [1, 3, 8])
def test_what_an_asynchronous_save_brings_may_arrive_late(late: int) -> None:
    def arrived(state: State) -> int:
        return (state.step - late) // 16 if state.step >= late else 0

    found = report(leaking(2 * MIB, arrived).event("async_save", saved))
    (culprit,) = found.culprits
    assert culprit.per_event is not None
    assert culprit.per_event.is_by_event, culprit.per_event
    assert culprit.per_event.rates[0].event == "async_save"


def test_what_comes_late_after_a_save_in_this_thread_is_not_put_down_to_it() -> None:
    def arrived(state: State) -> int:
        return (state.step - 5) // 16 if state.step >= 5 else 0

    found = report(leaking(2 * MIB, arrived).event("save", saved))
    (culprit,) = found.culprits
    assert culprit.per_event is not None
    assert not culprit.per_event.is_by_event


def test_growth_with_requests_is_reported_by_them_even_where_they_come_evenly() -> None:
    minutes = read_at(40, 3) / 60
    requests = np.floor(100 * minutes)
    found = fit(4096 * requests, minutes, request=requests)
    assert found.is_by_event
    assert named(found) == ["request"]
    assert found.rates[0].rate == EXACT(4096, rel=0.02)


def test_growth_in_time_stays_per_minute_in_a_run_of_less_than_three() -> None:
    minutes = np.array([0.05, 0.12, 0.15, 0.2, 0.21, 0.26, 0.27, 0.35])
    caught = np.array([0.0, 5.0, 26.0, 45.0, 46.0, 61.0, 63.0, 97.0])
    counters = [Regressor("minute", minutes, is_work=True), Regressor("caught", caught)]
    by_time = fit_events(1.27e8 * minutes, counters, NOISE)
    assert by_time is None or not by_time.is_by_event
    by_event = fit_events(5e5 * caught, counters, NOISE)
    assert by_event is not None and by_event.is_by_event


def test_growth_in_time_is_not_reported_by_requests_that_come_unevenly() -> None:
    minutes = read_at(40, 3) / 60
    requests = np.floor(100 * np.minimum(minutes, 10) + 5 * np.maximum(minutes - 10, 0))
    found = fit(1e6 * minutes, minutes, request=requests)
    assert not found.is_by_event


def test_what_comes_between_passes_is_reported_by_passes_though_no_pass_follows_the_last() -> None:
    """A callback that prepares the next epoch does so before the loop over its batches begins."""

    def prepared(state: State) -> int:
        follows = state.kind is BoundaryKind.PHASE_END
        return min(state.epochs_done + 1 + follows, 16)

    made = Program(epochs=16, steps=40, inner=20, validation=0)
    made.plant(Thing("main()·hooks", lambda s: prepared(s) * 2 * MIB, length=prepared))
    found = report(made.event("loader_iterator", prepared))
    (culprit,) = found.culprits
    assert culprit.per_event is not None
    (rate,) = culprit.per_event.rates
    assert (rate.event, rate.bytes_each) == ("epoch", EXACT(2 * MIB))
    assert "grows by 2 MiB per epoch" in found.headline
    assert "loader" not in found.headline


def looped(
    *, passes_each: list[int], kept_each: float, is_read: Callable[[int], bool] = lambda at: True
) -> Report:
    """Analyse a loop of a program without steps, whose passes between readings are given."""
    done = np.cumsum([0, *passes_each])
    measurements = []
    for at, passes in enumerate(done):
        is_end = at == len(done) - 1
        kind = BoundaryKind.RUN_END if is_end else BoundaryKind.TIME
        boundary = Boundary(index=at, kind=kind, time_s=float(at + 1), batch=0, step=0)
        kept = round(64 * KIB + kept_each * float(passes))
        row = CensusRow(
            path="main()·kept", name="main.kept", root=RootKind.LOCAL, kind="list", type="list",
            host_bytes=kept, length=int(passes),
        )  # fmt: skip
        census = Census(
            scope=CensusScope.FOCUSED, rows=[row], cutoff_bytes=0, objects=9, heap_bytes=kept,
            pause_s=0.01,
        )  # fmt: skip
        gauges = {gauge.RSS: 100 * MIB + kept, gauge.PRIVATE: 90 * MIB + kept}
        if not is_end and is_read(at):
            gauges[gauge.loop("/work/my.program.py", 12)] = int(passes)
        measurements.append(Measurement(boundary, gauges, census))
    manifest = RunManifest(run_id="looped", project_root="/work")
    return analyse(Run(Path("looped"), manifest, [Recording(HeaderRecord(pid=1), measurements)]))


SLOWER = [400, 360, 320, 300, 270, 240, 210, 190, 170, 150, 140, 130]


def test_growth_of_a_program_without_steps_is_reported_by_the_passes_of_its_loop() -> None:
    found = looped(passes_each=SLOWER, kept_each=20 * KIB)
    (culprit,) = found.culprits
    assert culprit.unit == "minute"
    assert culprit.per_event is not None
    (rate,) = culprit.per_event.rates
    assert (rate.event, rate.place) == ("iteration", "my.program.py:12")
    assert rate.bytes_each == EXACT(20 * KIB, rel=0.02)
    assert "20 KiB per iteration (" in found.headline
    assert "iterations of the loop at my.program.py:12" in culprit.per_event.text
    assert "loop my.program.py:12" in [each.metric for each in found.overhead.gauged]


def test_a_note_of_each_pass_through_a_loop_is_no_leak() -> None:
    found = looped(passes_each=[100] * 12, kept_each=240.0)
    assert found.verdict is RunVerdict.CLEAN
    assert [culprit.severity for culprit in found.culprits] == [Severity.NOTE]


def test_little_with_each_of_many_passes_is_a_leak() -> None:
    found = looped(passes_each=[10_000] * 12, kept_each=240.0)
    assert found.verdict is RunVerdict.LEAK
    assert "240 B per iteration" in found.headline


@pytest.mark.parametrize(
    "is_read", [lambda at: at < 4, lambda at: at == 5], ids=["at first", "once"]
)
def test_a_loop_that_was_seen_for_a_part_of_the_growth_is_no_measure_of_it(
    is_read: Callable[[int], bool],
) -> None:
    found = looped(passes_each=SLOWER, kept_each=20 * KIB, is_read=is_read)
    assert found.verdict is RunVerdict.INCONCLUSIVE  # by time alone it may be about to end
