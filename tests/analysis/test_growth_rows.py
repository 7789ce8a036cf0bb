"""Growth within phases and of single rows, where few censuses tell what was there before."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import numpy as np
import pytest
from synthetic_runs import KIB, MIB, Program, Size, State, Thing

from leakscope.analysis.columns.series import HOST
from leakscope.analysis.growth.rows import spread_of
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind
from leakscope.model.census import RootKind
from leakscope.model.report import Report, RunVerdict, Severity
from leakscope.model.run import Run
from leakscope.model.trend import TrendVerdict

EPOCHS, LATE = 12, 8


def looked_at_late(run: Run) -> Run:
    """Return a run of whose late validations only the ends were looked at."""
    recorded = run.main.measurements
    for place, m in enumerate(recorded):
        is_late = m.boundary.phase == "validation" and m.boundary.occurrence >= LATE
        if is_late and m.boundary.kind is not BoundaryKind.PHASE_END:
            recorded[place] = replace(m, census=None)
    return run


def test_what_arrived_between_phases_is_no_climb_within_one() -> None:
    def held(state: State) -> float:
        arrived = 40 * MIB if state.epoch > LATE else 0
        gathered = 0.1 * MIB * state.batch if state.phase == "validation" else 0
        return 20 * MIB + arrived + gathered

    run = Program(epochs=EPOCHS).plant(Thing("main()·run", held, "object", "Run")).build()
    (peak,) = analyse(looked_at_late(run)).culprits
    assert peak.growth == "within"
    assert peak.severity is Severity.NOTE
    assert peak.bytes_per_unit == pytest.approx(0.1 * MIB, rel=0.01)


def test_what_a_phase_alone_holds_is_seen_to_climb_without_a_look_at_its_beginning() -> None:
    program = Program(epochs=5, validation=80).local("validate()·outputs", 250 * KIB)
    run = program.build()
    recorded = run.main.measurements
    for place, m in enumerate(recorded):
        b = m.boundary
        late = b.phase == "validation" and b.occurrence > 0
        if late and b.batch not in {40, 72} and b.kind is not BoundaryKind.PHASE_END:
            recorded[place] = replace(m, census=None)
    (peak,) = [c for c in analyse(run).culprits if c.growth == "within"]
    assert peak.name == "validate.outputs"
    assert peak.bytes_per_unit == pytest.approx(250 * KIB, rel=0.02)


@pytest.mark.parametrize("size", [200 * KIB, 8 * KIB])
def test_what_is_emptied_before_its_only_phase_ends_is_judged_by_what_it_came_to(
    size: float,
) -> None:
    """The last look lies in the middle of training, and the one at its end shows it empty."""
    steps = 400
    program = Program(
        epochs=1, steps=steps, validation=10, inner=12, endless=True, validate_every=steps
    )
    climbing = Thing("main()·hooks", lambda s: 32 * KIB + size * s.step * (s.step < steps))
    run = program.plant(climbing).build()
    for place, m in enumerate(run.main.measurements):
        if steps / 2 < m.boundary.step < steps:
            run.main.measurements[place] = replace(m, census=None)
    (peak,) = [c for c in analyse(run).culprits if c.growth == "within"]
    assert (peak.name, peak.falls_back) == ("main.hooks", True)
    assert peak.severity is (Severity.WARNING if size > 100 * KIB else Severity.NOTE)


def with_arrivals(count: int) -> Report:
    """Return the report of a run in which so many names of 12 MiB come one after the other."""
    names = [f"main()·run.part_{n}" for n in range(count)]

    def there(state: State, number: int) -> float | None:
        return 12 * MIB if state.epochs_done > EPOCHS - 6 + number else None

    program = Program(epochs=EPOCHS)
    for number, name in enumerate(names):
        program.plant(
            Thing(name, lambda s, n=number: there(s, n), "tensor", "torch.Tensor", "main()·run")
        )
    whole = Thing(
        "main()·run", lambda s: 1 * MIB + sum(there(s, n) or 0 for n in range(count)), "object"
    )
    return analyse(program.plant(whole).build())


def test_one_object_that_came_and_stayed_is_no_growth() -> None:
    assert with_arrivals(1).verdict is RunVerdict.CLEAN


@pytest.mark.parametrize("count", [4, 5])
def test_objects_that_come_one_after_the_other_are_not_acquitted_one_by_one(count: int) -> None:
    assert with_arrivals(count).verdict is not RunVerdict.CLEAN


def stacked_in_each_step(until: int) -> Report:
    """A variable of a function that each step calls, larger with each call and seen until one."""
    program = Program(epochs=1, steps=400, validation=0, inner=20, endless=True)

    def stacked(state: State) -> float | None:
        return state.step * 100 * KIB if 0 < state.step <= until else None

    states = Thing("learn()·states", stacked, "tensor", "torch.Tensor", root=RootKind.LOCAL)
    run = program.plant(states).build()
    for place, m in enumerate(run.main.measurements):
        if until < m.boundary.step < 400:
            run.main.measurements[place] = replace(m, census=None)
    return analyse(run)


def test_a_variable_that_each_step_makes_again_does_not_leak_by_its_first_values() -> None:
    assert stacked_in_each_step(150).culprits == []
    assert [c.name for c in stacked_in_each_step(399).culprits] == ["learn.states"]


def test_a_part_that_shrank_in_what_went_on_growing_is_judged_by_its_last_reading() -> None:
    """Of a buffer that is full other parts have taken the place of these."""

    def part(state: State) -> float:
        return 10 * KIB * state.step if state.step < 200 else 1300 * KIB

    kept = Thing("main()·rows", lambda s: 60 * KIB * min(s.step, 300), "deque", "deque",
                 length=lambda s: min(s.step, 300), capacity=300)  # fmt: skip
    first = Thing("main()·rows[*][0]", part, "tensor", "torch.Tensor", "main()·rows",
                  count=lambda s: min(s.step, 180))  # fmt: skip
    run = Program(endless=True, steps=400).plant(kept, first).build()
    recorded = run.main.measurements
    at_end = next(m.census for m in reversed(recorded) if m.census is not None)
    for place, m in enumerate(recorded):
        if m.boundary.step > 180:
            recorded[place] = replace(m, census=None)
    recorded[-1] = replace(recorded[-1], census=at_end)
    case = RunContext(run, run.main)
    columns, sizes, _ = case.observations.series(case.table.number[first.path], "host")
    assert case.table.at[columns[-1]] > case.track.last_work
    assert sizes[-1] == 1300 * KIB < sizes[-2]


def test_what_took_over_from_another_name_is_no_growth_of_names() -> None:
    """A list of work that is done grows by what the list of work to do loses."""
    todo = Thing("main()·pipeline.todo", lambda s: (1000 - s.step) * 100 * KIB)
    done = Thing("main()·pipeline.done", lambda s: s.step * 100 * KIB)
    run = Program(endless=True, steps=300).plant(todo, done).build()
    for m in run.main.measurements:  # a late rise, so that the terms are judged
        m.gauges[gauge.RSS] = 500 * MIB + (3 * MIB // 2 if m.boundary.step > 270 else 0)
    report = analyse(run)
    (named,) = (d for d in report.decisions if d.subject == "named" and d.rule == "growth")
    assert abs(named.figure or 0) < MIB


def with_teeth(at_the_end: int) -> RunContext:
    """Return a run whose metrics are gathered and reset, looked at seldom and at its end."""
    looked_at = {1, 3, 7, 14, 30, 60, 72, 220, 300, 430, 490, 545}
    program = Program(endless=True, steps=700)
    program.plant(Thing("metrics", lambda s: 40 * KIB + (s.step % 70) * 100 * KIB))
    ended = Program().plant(Thing("metrics", lambda _: at_the_end)).census_at(State())
    run = program.build()
    for place, m in enumerate(recorded := run.main.measurements):
        is_read = m.boundary.kind is BoundaryKind.STEP and m.boundary.step in looked_at
        census = program.census_at(State(step=m.boundary.step)) if is_read else None
        is_end = m.boundary.kind is BoundaryKind.RUN_END
        recorded[place] = replace(m, census=ended if is_end else census)
    return RunContext(run, run.main)


@pytest.mark.parametrize(
    ("at_the_end", "verdict"),
    [(40 * KIB, TrendVerdict.BOUNDED), (5 * MIB, TrendVerdict.INCONCLUSIVE)],
)
def test_what_rises_and_falls_is_bounded_if_it_is_released_once_more_at_the_end(
    at_the_end: int, verdict: TrendVerdict
) -> None:
    case = with_teeth(at_the_end)
    growth, *_ = case.observations.judge(case.table.number["metrics"], HOST)
    assert growth.verdict is verdict


def test_what_only_rose_is_not_acquitted_by_being_dropped_at_the_end() -> None:
    program = Program(endless=True, steps=700).leak("kept", 40 * KIB)
    run = program.build()
    last = run.main.measurements[-1]
    ended = Program().leak("kept", 40 * KIB).census_at(State())
    run.main.measurements[-1] = replace(last, census=ended)
    assert analyse(run).verdict is RunVerdict.LEAK


@pytest.mark.parametrize("full", [350, 410])
def test_what_rests_while_memory_goes_on_is_undecided_and_not_accused(full: int) -> None:
    """A memo that is full, and something without a name that begins to grow as fast."""
    looked_at = {2, 10, 30, 60, 120, 200, 300, 400, 420, 470}
    program = Program(endless=True, steps=500, rss_noise=0.05 * MIB)
    program.plant(
        Thing(
            "memo", lambda s: min(s.step, full) * 40 * KIB, "dict", "dict",
            length=lambda s: min(s.step, full),
        )
    ).swell(lambda s: max(0, s.step - full) * 40 * KIB)  # fmt: skip
    run = program.build()
    for place, m in enumerate(recorded := run.main.measurements):
        is_read = m.boundary.step in looked_at
        census = program.census_at(State(step=m.boundary.step)) if is_read else None
        recorded[place] = replace(m, census=census)
    report = analyse(run)
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert report.culprits == []
    assert "memo grew by" in report.headline


@pytest.mark.parametrize(
    ("count", "y", "spread"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 4], 1.0),
        ([1, 1, 1, 1], [1, 2, 3, 4], 0.0),
        ([nan, 1, 1, 1], [0, 2, 3, 4], 0.0),
        ([nan, nan, 1, 1], [0, 0, 4, 4], 1.0),
        ([nan, 2, 3, 4], [0, 2, 3, 4], 1.0),
    ],
)
def test_growth_is_spread_where_objects_become_more(
    count: list[float], y: list[float], spread: float
) -> None:
    assert spread_of(np.array(count, dtype=float), np.array(y, dtype=float)) == spread


def with_parts(parts: Size, whole: Size) -> Report:
    """Sessions gather in a list through one training, each with a state that has a row too."""
    sessions = Thing("bus·handlers", whole, length=lambda s: s.step)
    each = Thing(
        f"{sessions.path}[*]", whole, "other", "Session", sessions.path, count=sessions.length
    )
    state = Thing(f"{each.path}.state", parts, "dict", "dict", each.path, count=sessions.length)
    program = Program(endless=True, steps=400, validation=0, inner=14, validate_every=1000)
    return analyse(program.plant(sessions, each, state).build())


def test_parts_that_later_censuses_have_no_rows_for_were_not_released() -> None:
    report = with_parts(
        lambda s: 20_000.0 * s.step if s.step < 200 else None, lambda s: 30_000.0 * s.step
    )
    assert [culprit.name for culprit in report.culprits] == ["bus.handlers"]


def test_parts_that_were_released_are_a_peak_of_their_phase() -> None:
    report = with_parts(
        lambda s: 20_000.0 * s.step if s.step < 200 else None,
        lambda s: (30_000.0 if s.step < 200 else 10_000.0) * s.step,
    )
    assert "bus.handlers[*].state" in [culprit.name for culprit in report.culprits]


def test_items_of_a_list_that_rises_and_falls_do_not_grow_without_it() -> None:
    """Of many items a census shows a part, which may rise while the list doesn't."""
    heights = [12, 20, 17, 22, 18, 21, 19, 22]
    history = Thing("chat.history", lambda s: heights[s.epoch] * MIB, length=lambda s: s.step)
    shown = Thing("chat.history[*]", lambda s: (11 + s.epoch) * MIB, "dict", "dict", "chat.history")
    run = Program(epochs=8, validation=0).plant(history, shown).build()
    for place, m in enumerate(run.main.measurements):
        if m.boundary.kind is not BoundaryKind.PHASE_END:
            run.main.measurements[place] = replace(m, census=None)
    assert [c.name for c in analyse(run).culprits if c.severity is not Severity.NOTE] == []
