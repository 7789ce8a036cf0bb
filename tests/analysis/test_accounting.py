"""Ledger, phases, components, timeline, overhead: what adds up must add up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from synthetic_runs import GIB, KIB, MIB, Program, Size, State, Thing

from leakscope.analysis.accounting.ledger import named_bytes, named_bytes_at
from leakscope.analysis.accounting.phases import (
    BETWEEN_STEPS_SHARE,
    MOST_EPOCHS,
    MOST_SPANS,
    MOST_STEPS,
    keep_extremes,
)
from leakscope.analysis.columns.series import HOST
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, CensusScope, RootKind
from leakscope.model.record import (
    EndRecord,
    ErrorRecord,
    NoteRecord,
    OverheadRecord,
    SnapshotRecord,
)
from leakscope.model.report import Ledger, PhaseMemory, Report
from leakscope.model.run import Damage, Measurement


def report_of(program: Program) -> Report:
    return analyse(program.build())


def amount(ledger: Ledger, kind: str) -> int:
    return sum(entry.bytes for entry in ledger.entries if entry.kind == kind)


def mixed() -> Program:
    graph = Thing(
        "train()·total", lambda s: s.step * 100 * KIB, "graph", "torch.Tensor",
        root=RootKind.LOCAL, graph_nodes=9,
    )  # fmt: skip
    program = Program(epochs=10, full_every=1).leak("Trainer.losses", 200 * KIB).plant(graph)
    program.garbage = lambda s: s.epochs_done * MIB
    program.gauge(gauge.MALLOC_FREE, lambda s: s.step * 50 * KIB)
    program.swell(lambda s: s.step * 50 * KIB + s.epochs_done * MIB)
    return program.gauge(gauge.CHILDREN_PSS, lambda s: 50 * MIB + s.epochs_done * MIB)


def test_a_ledger_tells_what_there_was_before() -> None:
    run = mixed().build()
    by_boundary = {m.boundary.index: m.gauges for m in run.main.measurements}
    (ledger,) = analyse(run).ledgers
    first, last = (by_boundary[at] for at in (ledger.from_boundary, ledger.to_boundary))
    assert ledger.metric == "rss+children_pss"
    assert ledger.before_bytes == first["rss"] + first["children_pss"]
    assert ledger.before_bytes + ledger.total_bytes == last["rss"] + last["children_pss"]


def test_the_entries_of_a_ledger_add_up_to_its_total() -> None:
    for ledger in report_of(mixed()).ledgers:
        assert sum(entry.bytes for entry in ledger.entries) == ledger.total_bytes


def test_each_kind_of_growth_is_booked_where_it_belongs() -> None:
    run = mixed().build()
    (ledger,) = analyse(run).ledgers
    ends = (ledger.from_boundary, ledger.to_boundary)
    first, last = (m.boundary for m in run.main.measurements if m.boundary.index in ends)
    steps, epochs = last.step - first.step, last.epoch - first.epoch
    assert steps > 0.8 * 400
    assert amount(ledger, "named") == pytest.approx(steps * 200 * KIB, rel=0.02)
    assert amount(ledger, "graph") == pytest.approx(steps * 100 * KIB, rel=0.03)
    assert amount(ledger, "garbage") == pytest.approx(epochs * MIB, abs=MIB)
    assert amount(ledger, "slack") == pytest.approx(steps * 50 * KIB, rel=0.02)
    assert amount(ledger, "children") == pytest.approx(epochs * MIB, abs=MIB)
    assert abs(amount(ledger, "unexplained")) < 3 * MIB


def test_advice_names_the_call_that_could_help() -> None:
    program = Program(epochs=10, full_every=1)
    program.garbage = lambda s: s.epochs_done * 30 * MIB
    program.swell(lambda s: s.epochs_done * 30 * MIB)
    advice = report_of(program).ledgers[0].advice
    assert "gc.collect() (" in advice
    assert "could help" in advice
    assert "malloc_trim(0) can't help" in advice


def test_advice_for_what_names_hold_is_to_let_go() -> None:
    advice = report_of(Program(epochs=10).leak("Trainer.losses", 200 * KIB)).ledgers[0].advice
    assert "gc.collect() and malloc_trim(0) can't help" in advice
    assert "held by names" in advice


def test_phases_tell_before_peak_after() -> None:
    program = Program(epochs=6, rss_noise=0)
    program.swell(lambda s: 100 * MIB if s.phase == "validation" and s.inner else 0)
    phases = {p.phase: p for p in report_of(program).phases}
    validation = phases["validation"]
    assert validation.occurrences == 6
    assert validation.before_bytes == 400 * MIB
    assert validation.peak_bytes == 500 * MIB
    assert validation.kept_bytes == 0


def test_the_highest_of_a_phase_is_that_of_its_last_time_where_memory_grows():
    (train, *_) = report_of(Program(epochs=6, validation=0).leak("kept", 400 * KIB)).phases
    assert train.most_bytes > train.peak_bytes + 10 * MIB


def test_a_phase_that_keeps_memory_says_how_much() -> None:
    program = Program(epochs=6, rss_noise=0).leak("Trainer.preds", MIB, "validation batch")
    validation = next(p for p in report_of(program).phases if p.phase == "validation")
    assert validation.kept_bytes == pytest.approx(10 * MIB, rel=0.01)


def device_phases(peak: Size) -> dict[str, PhaseMemory]:
    program = Program(epochs=6).gauge("cuda:0.allocated", lambda s: 100 * MIB)
    report = report_of(program.gauge("cuda:0.peak_allocated", peak))
    return {p.phase: p for p in report.phases if p.metric == "cuda:0.allocated"}


def test_a_phase_tells_by_how_much_it_raised_the_peak_of_a_device() -> None:
    phases = device_phases(lambda s: (150 if s.step < 5 else 300) * MIB)
    assert phases["train"].highest_bytes == 300 * MIB
    assert phases["train"].raised_bytes == 150 * MIB
    assert (phases["validation"].highest_bytes, phases["validation"].raised_bytes) == (None, 0)


def test_a_peak_that_the_program_resets_is_not_raised_again() -> None:
    phases = device_phases(lambda s: (200 if s.phase == "train" and s.batch > 3 else 120) * MIB)
    assert phases["train"].raised_bytes == 80 * MIB


def test_phases_of_a_host_without_a_mark_have_no_highest() -> None:
    (train, *_) = report_of(Program(epochs=4)).phases
    assert (train.highest_bytes, train.raised_bytes) == (None, None)


@pytest.mark.parametrize(("above", "highest"), [(90, 490 * MIB), (2, None)])
def test_a_phase_tells_what_resident_memory_reached_between_boundaries(
    above: int, highest: int | None
) -> None:
    mark = Program(epochs=4).gauge(gauge.RSS_PEAK, lambda s: (400 + above * (s.step > 3)) * MIB)
    phases = {p.phase: p for p in report_of(mark).phases}
    assert (phases["train"].highest_bytes, phases["train"].raised_bytes) == (highest, above * MIB)
    assert phases["validation"].highest_bytes is None


def test_memory_outside_the_allocator_is_what_is_used_beyond_it() -> None:
    program = Program(epochs=4).gauge("cuda:0.used", lambda s: 900)
    track = RunContext(
        run := program.gauge("cuda:0.reserved", lambda s: 600).build(), run.main
    ).track
    assert set(track.gauge("cuda:0.outside")) == {300.0}
    assert not track.has_gauge("cuda:0.pending_free")


def test_growth_of_gauges_has_its_unit_and_explained_share() -> None:
    program = Program(epochs=10).leak("Trainer.losses", 400 * KIB)
    growth = report_of(program).growth[0]
    assert (growth.metric, growth.unit) == ("rss", "epoch")
    assert growth.bytes_per_unit == pytest.approx(40 * 400 * KIB, rel=0.05)
    assert growth.explained_share == pytest.approx(1.0, abs=0.05)
    assert growth.named_share == pytest.approx(1.0, abs=0.05)


def test_slack_explains_growth_that_no_culprit_holds() -> None:
    program = Program(epochs=10).leak("Trainer.losses", 400 * KIB)
    program.gauge(gauge.MALLOC_FREE, lambda s: s.step * 400 * KIB)
    report = report_of(program.swell(lambda s: s.step * 400 * KIB))
    growth = report.growth[0]
    assert growth.explained_share == pytest.approx(1.0, abs=0.05)
    assert growth.named_share == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("released", "explained"), [(0, 1.0), (100 * MIB, 0.75)], ids=["it keeps all", "it releases"]
)
def test_free_memory_read_after_the_work_counts_unless_the_program_released_some(
    released: int, explained: float
) -> None:
    """It is read at few boundaries: of the last half of the run here right after its end alone."""
    program = Program(epochs=10).leak("Trainer.losses", 400 * KIB)
    program.gauge(gauge.MALLOC_FREE, lambda s: s.step * 400 * KIB)
    program.gauge(gauge.MALLOC_IN_USE, lambda s: 300 * MIB + s.step * 400 * KIB)
    run = program.swell(lambda s: s.step * 400 * KIB).build()
    *_, last = run.main.measurements
    half = last.boundary.index / 2
    for measurement in run.main.measurements:
        if half < measurement.boundary.index < last.boundary.index:
            del measurement.gauges[gauge.MALLOC_FREE], measurement.gauges[gauge.MALLOC_IN_USE]
    last.gauges[gauge.MALLOC_FREE] += released
    last.gauges[gauge.MALLOC_IN_USE] -= released
    assert analyse(run).growth[0].explained_share == pytest.approx(explained, abs=0.06)


def test_what_nothing_explains_is_no_part_of_the_explained_share() -> None:
    program = Program(epochs=10).leak("Trainer.losses", 400 * KIB)
    growth = report_of(program.swell(lambda s: s.step * 1200 * KIB)).growth[0]
    assert growth.explained_share == pytest.approx(0.25, abs=0.05)


def own_of(program: Program) -> int:
    entries = report_of(program).ledgers[0].entries
    return sum(entry.bytes for entry in entries if entry.kind == "own")


def test_what_the_program_has_taken_over_is_no_longer_leakscopes() -> None:
    program = Program(epochs=10).leak("Trainer.losses", 400 * KIB)
    program.gauge(gauge.OWN_RESIDENT, lambda s: 30 * MIB * (s.epochs_done > 4))
    assert own_of(program) <= MIB


def test_what_leakscope_takes_is_no_part_of_the_programs_growth() -> None:
    """Its own memory is in what the kernel reports of the process, and in no share."""
    rates = []
    for own in (0, 600 * KIB):
        program = Program(epochs=10).leak("Trainer.losses", 400 * KIB)
        program.swell(lambda s, own=own: own * s.step)
        program.gauge(gauge.OWN, lambda s, own=own: own * s.step)
        report = report_of(program)
        assert report.culprits[0].share == pytest.approx(1.0, abs=0.05)
        assert report.growth[0].explained_share == pytest.approx(1.0, abs=0.05)
        rates.append(report.growth[0].bytes_per_unit)
    assert rates[0] == pytest.approx(rates[1], rel=0.05)


def test_growth_of_a_steady_gauge_explains_nothing() -> None:
    assert report_of(Program(epochs=10)).growth[0].explained_share is None


def test_the_timeline_keeps_spikes_when_it_is_thinned() -> None:
    values = np.zeros(100_000)
    values[77_777] = 9.0
    kept = keep_extremes(values, 1000)
    assert len(kept) <= 1002
    assert 77_777 in kept
    assert {0, 99_999} <= set(kept.tolist())


def test_the_timeline_has_lines_spans_and_the_limit() -> None:
    timeline = report_of(Program(epochs=3, limit=2 * GIB)).timeline
    assert timeline is not None
    assert [line.metric for line in timeline.lines] == ["rss"]
    assert [s.phase for s in timeline.spans] == ["train", "validation"] * 3
    assert all(s.end_s > s.start_s for s in timeline.spans)
    assert timeline.limit_bytes == 2 * GIB
    assert timeline.thinned_from is None
    assert timeline.phases_begun is None


def test_what_memory_is_made_of_can_be_drawn_next_to_it() -> None:
    program = Program(epochs=3).gauge(gauge.MALLOC_FREE, lambda s: s.step * KIB)
    timeline = report_of(program.gauge(gauge.SHM, lambda s: 0)).timeline
    assert timeline is not None
    assert [line.metric for line in timeline.lines] == ["rss"]
    assert [line.metric for line in timeline.further] == [gauge.MALLOC_FREE]
    assert timeline.further[0].points[-1][1] == 3 * 40 * KIB


def test_the_timeline_tells_when_which_step_had_ended() -> None:
    timeline = report_of(Program(epochs=3, steps=40, validation=10)).timeline
    assert timeline is not None
    seconds, steps = zip(*timeline.steps, strict=True)
    assert list(seconds) == sorted(seconds)
    assert list(steps) == sorted(set(steps))
    assert (steps[0], steps[-1]) == (0, 120 + BETWEEN_STEPS_SHARE), "the last validation included"
    last_validation = timeline.spans[-1]
    assert dict(zip(steps, seconds, strict=True))[120] <= last_validation.start_s < seconds[-1]


def test_the_clock_of_a_long_run_is_thinned() -> None:
    timeline = report_of(Program(epochs=2, steps=2000, validation=0)).timeline
    assert timeline is not None
    assert len(timeline.steps) <= 2 * MOST_STEPS
    assert timeline.steps[-1][1] >= 4000


def test_a_run_without_steps_has_no_clock() -> None:
    timeline = report_of(Program(epochs=3, steps=0)).timeline
    assert timeline is not None
    assert timeline.steps == []


def test_the_timeline_tells_how_many_phases_it_leaves_out() -> None:
    epochs = MOST_SPANS // 2 + 50
    timeline = report_of(Program(epochs=epochs, steps=1, validation=1)).timeline
    assert timeline is not None
    assert len(timeline.spans) == MOST_SPANS
    assert timeline.phases_begun == 2 * epochs


def test_of_many_phases_as_many_are_reported_of_each_from_the_first_to_the_last() -> None:
    timeline = report_of(Program(epochs=2 * MOST_SPANS, steps=1, validation=1)).timeline
    assert timeline is not None
    for phase in ("train", "validation"):
        reported = [span.epoch for span in timeline.spans if span.phase == phase]
        assert len(reported) == MOST_SPANS // 2
        assert (reported[0], reported[-1]) == (0, 2 * MOST_SPANS - 1)
        assert set(np.diff(reported)) <= {4, 5}, "as far apart from each other all along"
    assert [s.start_s for s in timeline.spans] == sorted(s.start_s for s in timeline.spans)


def test_epochs_begin_where_they_did_however_few_phases_are_reported() -> None:
    epochs = MOST_EPOCHS + 500
    report = report_of(Program(epochs=epochs, steps=1, validation=1))
    timeline = report.timeline
    assert timeline is not None
    assert len(timeline.epochs) == MOST_EPOCHS
    assert timeline.epochs_begun == epochs
    assert [timeline.epochs[0][1], timeline.epochs[-1][1]] == [0, epochs - 1]
    moments = {m.time_s: m.epoch for m in timeline.moments}
    known = [(start, epoch) for start, epoch in timeline.epochs if start in moments]
    assert len(known) > 100
    assert all(moments[start] == epoch for start, epoch in known)
    few = report_of(Program(epochs=3, steps=4)).timeline
    assert few is not None
    assert [epoch for _, epoch in few.epochs] == [0, 1, 2]
    assert few.epochs_begun is None


def test_every_point_of_the_timeline_tells_where_training_stood() -> None:
    report = report_of(Program(epochs=5, steps=4))
    timeline = report.timeline
    assert timeline is not None
    moments = {moment.time_s: moment for moment in timeline.moments}
    assert [m.boundary for m in timeline.moments] == sorted({m.boundary for m in moments.values()})
    assert {x for line in timeline.lines for x, _ in line.points} <= set(moments)
    assert set(timeline.censuses_s) <= set(moments)
    for span in timeline.spans:
        begun = moments[span.start_s]
        assert (begun.phase, begun.epoch) == (span.phase, span.epoch)
    assert timeline.moments[-1].step == 20


def test_a_phase_lasts_until_its_end_also_where_another_is_nested_in_it() -> None:
    run = Program(epochs=1).build()
    begun = [("train", 0.0), ("validation", 1.0)]
    ended = [("validation", 2.0), ("train", 3.0)]
    boundaries = [
        *((BoundaryKind.PHASE_BEGIN, *each) for each in begun),
        *((BoundaryKind.PHASE_END, *each) for each in ended),
    ]
    run.main.measurements[:] = [
        Measurement(Boundary(index=i, kind=kind, phase=phase, time_s=second), {"rss": MIB})
        for i, (kind, phase, second) in enumerate(boundaries)
    ]
    timeline = analyse(run).timeline
    assert timeline is not None
    spans = [(span.phase, span.start_s, span.end_s) for span in timeline.spans]
    assert spans == [("train", 0.0, 3.0), ("validation", 1.0, 2.0)]


def test_work_counts_what_was_done() -> None:
    work = report_of(Program(epochs=3, steps=7, validation=5)).work
    assert (work.epochs, work.steps, work.validations) == (3, 21, 3)
    assert work.batches == {"train": 21, "validation": 15}
    assert work.processes == 1


def test_overhead_errors_notes_and_end_are_handed_on() -> None:
    run = Program(epochs=5).build()
    recording = run.main
    recording.overhead = OverheadRecord(
        boundary=9, seconds={"census": 0.02, "gauges": 0.01}, own_peak_bytes=MIB, censuses=4
    )
    recording.end = EndRecord(status="exception", exception="ValueError: x", time_s=3.0)
    recording.errors.append(ErrorRecord(where="heap", message="boom", disabled=True))
    recording.notes.append(NoteRecord(slug="n", message="skipped"))
    run.damage.append(Damage("main.journal", 17, "cut"))
    report = analyse(run)
    assert report.overhead.wall_share == pytest.approx(0.01)
    assert report.overhead.peak_bytes == MIB
    assert report.overhead.longest_pause_s == pytest.approx(0.003)
    assert len(report.overhead.taken) == sum(m.census is not None for m in recording.measurements)
    assert report.run.ended == "exception: ValueError: x"
    assert [p.message for p in report.errors] == ["boom (switched off)", "cut"]
    assert report.notes == ["skipped"]


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ({}, "killed (no closing record)"),
        ({"oom_killed": 1}, "killed by the kernel's out-of-memory killer"),
        ({"signal": 9, "exit_code": 137}, "killed by SIGKILL"),
        ({"signal": "SIGKILL"}, "killed by signal SIGKILL"),
        ({"exit_code": 3}, "ended with exit code 3 (no closing record)"),
    ],
)
def test_how_a_run_ended_without_a_closing_record(
    outcome: dict[str, str | int], words: str
) -> None:
    run = Program(epochs=5).build()
    run.outcome = outcome
    assert analyse(run).run.ended == words


@pytest.mark.parametrize(
    ("goes_on", "words"),
    [
        (True, "still running"),
        (None, "killed, or still running on node7 (no closing record)"),
        (False, "killed (no closing record)"),
    ],
)
def test_a_run_that_goes_on_was_not_killed(goes_on: bool | None, words: str) -> None:
    run = Program(epochs=5).build()
    run.main.goes_on, run.main.header.host = goes_on, "node7"
    assert analyse(run).run.ended == words


def test_components_are_reported_at_start_peak_and_end() -> None:
    run = Program(epochs=5).constant("model", 50 * MIB).build()
    import msgspec

    for i, m in enumerate(run.main.measurements):
        if m.census is not None:
            by_role = {"parameters": {"host": 50 * MIB, "cuda:0": MIB}, "graph": {"host": i * KIB}}
            census = msgspec.structs.replace(m.census, components=by_role)
            run.main.measurements[i] = type(m)(m.boundary, m.gauges, census)
    components = {(c.name, c.device): c for c in analyse(run).components}
    assert components["parameters", "host"].peak_bytes == 50 * MIB
    assert components["parameters", "cuda:0"].by_phase == {"train": MIB, "validation": MIB}
    assert components["parameters", "cuda:0"].end_bytes == MIB
    graphs = components["activations and graphs", "host"]
    assert graphs.start_bytes < graphs.end_bytes == graphs.peak_bytes
    assert components["baseline", "host"].start_bytes == pytest.approx(400 * MIB, rel=0.02)


def with_components(
    program: Program, seen: Callable[[Measurement, Census], dict[str, dict[str, int]]]
) -> Report:
    run = program.build()
    for i, m in enumerate(run.main.measurements):
        if m.census is not None:
            census = msgspec.structs.replace(m.census, components=seen(m, m.census))
            run.main.measurements[i] = type(m)(m.boundary, m.gauges, census)
    return analyse(run)


def test_what_only_walks_of_the_whole_heap_see_of_libraries_is_no_growth_of_a_component() -> None:
    def seen(m: Measurement, census: Census) -> dict[str, dict[str, int]]:
        beyond = 90 * MIB + m.boundary.index * KIB if census.scope is CensusScope.FULL else 0
        return {"code": {"host": 100 * KIB + beyond}}

    reported = with_components(Program(epochs=5).constant("model", 50 * MIB), seen).components
    code = next(c for c in reported if c.name == "code and libraries")
    assert code.start_bytes == 100 * KIB
    assert code.start_bytes < code.by_phase["train"] <= code.peak_bytes < MIB
    baseline = next(c for c in reported if c.name == "baseline")
    assert baseline.start_bytes == pytest.approx(450 * MIB, rel=0.02)


def test_components_at_the_end_are_those_of_the_last_phase_not_of_what_returned_after_it() -> None:
    run = Program(epochs=5).build()
    *_, last = (m.census for m in run.main.measurements if m.census)
    training = msgspec.structs.replace(last, components={"parameters": {"host": 50 * MIB}})
    returned = msgspec.structs.replace(last, components={"parameters": {"host": 0}})
    for i, m in enumerate(run.main.measurements):
        census = training if m.census else None
        is_over = m.boundary.kind is BoundaryKind.RUN_END
        run.main.measurements[i] = type(m)(m.boundary, m.gauges, returned if is_over else census)
    report = analyse(run).components
    assert next(c for c in report if c.name == "parameters").end_bytes == 50 * MIB


def test_a_culprit_carries_its_evidence() -> None:
    def owner(state: State) -> float:
        return state.step * 200 * KIB

    program = Program(epochs=8).plant(Thing("main()·trainer", owner, "object", "Trainer"))
    program.leak("main()·trainer.losses", 200 * KIB, parent="main()·trainer")
    culprit = report_of(program).culprits[0]
    assert culprit.held_by == ["main.trainer"]
    assert culprit.falsifier is not None
    assert "0 B" in (culprit.falsifier.result or "")
    assert culprit.chart_unit == "step"
    assert [p.y for p in culprit.chart] == sorted(p.y for p in culprit.chart)
    assert len(culprit.signature) == 12
    assert "per step" in culprit.sentence


def test_signatures_survive_another_run_and_tell_paths_apart() -> None:
    first = report_of(Program(epochs=8).leak("a[3].x", 200 * KIB)).culprits[0]
    again = report_of(Program(epochs=9, seed=4).leak("a[5].x", 100 * KIB)).culprits[0]
    other = report_of(Program(epochs=8).leak("b[3].x", 200 * KIB)).culprits[0]
    assert first.signature == again.signature != other.signature


def terms_of(program: Program) -> dict[str, int]:
    (host, *_) = report_of(program).ledgers
    return {entry.kind: entry.bytes for entry in host.entries}


def test_open_figures_have_a_term_of_the_ledger() -> None:
    program = Program(epochs=12).gauge(gauge.FIGURES, lambda s: s.epochs_done * 3)
    terms = terms_of(program.swell(lambda s: s.epochs_done * 9 * MIB))
    assert terms["imputed"] == pytest.approx(10 * 9 * MIB, rel=0.1)
    assert terms["unexplained"] == pytest.approx(0, abs=MIB)


def test_growth_that_no_finding_tells_of_stays_unexplained() -> None:
    terms = terms_of(Program(epochs=12).swell(lambda s: s.epochs_done * 9 * MIB))
    assert "imputed" not in terms
    assert terms["unexplained"] == pytest.approx(10 * 9 * MIB, rel=0.1)


def test_each_census_is_reported_with_what_it_cost_also_one_that_the_user_requested() -> None:
    run = Program(epochs=3).build()
    recording = run.main
    known = next(m for m in recording.measurements if m.census is not None)
    requested = msgspec.structs.replace(known.boundary, kind=BoundaryKind.REQUEST, time_s=1e6)
    recording.snapshots.append(SnapshotRecord(boundary=requested, census=known.census, seconds=0.5))
    taken = analyse(run).overhead.taken
    assert [item.requested for item in taken] == [False] * (len(taken) - 1) + [True]
    assert known.census is not None
    first, last = taken[0], taken[-1]
    assert (first.boundary, first.time_s) == (known.boundary.index, known.boundary.time_s)
    assert (first.objects, first.rows) == (known.census.objects, len(known.census.rows))
    assert first.scope == known.census.scope.value
    assert first.pause_s == pytest.approx(known.census.pause_s)
    assert last.pause_s == pytest.approx(0.5)


def test_of_very_many_censuses_the_costliest_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Program(epochs=6).build()
    monkeypatch.setattr("leakscope.analysis.accounting.run_facts.MOST_TAKEN", 2)
    measured = run.main.measurements
    costly = [i for i, m in enumerate(measured) if m.census is not None][-1]
    census = measured[costly].census
    assert census is not None
    slow = msgspec.structs.replace(census, pause_s=9.0)
    measured[costly] = replace(measured[costly], census=slow)
    taken = analyse(run).overhead.taken
    assert len(taken) == 2
    assert taken[-1].pause_s == pytest.approx(9.0)
    assert taken[0].time_s < taken[1].time_s


def test_each_gauge_is_reported_with_how_often_it_was_read() -> None:
    run = Program(epochs=3).build()
    report = {item.metric: item for item in analyse(run).overhead.gauged}
    read = [m.gauges["rss"] for m in run.main.measurements if "rss" in m.gauges]
    assert report["rss"].readings == len(read)
    assert (report["rss"].lowest, report["rss"].highest) == (min(read), max(read))
    assert report["rss"].last == read[-1]
    assert report["rss"].unit == "bytes"
    assert report["rss"].meaning == "resident memory of the process"


def test_what_a_function_let_go_whenever_it_returned_is_no_growth_to_the_end() -> None:
    program = Program(epochs=6, full_every=1).leak("Trainer.history", 100 * KIB)
    program.local("Trainer.validate()·scores", 2 * MIB)
    (ledger,) = report_of(program).ledgers
    others = [e.bytes for e in ledger.entries if e.label == "all other named objects"]
    assert sum(others) == pytest.approx(0, abs=MIB)
    assert abs(amount(ledger, "unexplained")) < 4 * MIB


def test_what_a_validation_holds_is_not_there_a_step_later() -> None:
    """No census lies in the step after a validation that one has seen the end of."""
    program = Program(epochs=6, inner=8).local("evaluate()·outputs", 4 * MIB)
    run = program.constant("main()·model", 3 * MIB, root=RootKind.LOCAL).build()
    measurements = run.main.measurements
    for place, m in enumerate(measurements):
        b = m.boundary
        if b.kind is BoundaryKind.STEP and (b.epoch, b.batch) not in {(0, 1), (5, 1)}:
            measurements[place] = replace(m, census=None)
    case = RunContext(run, run.main)
    after = [n for n, m in enumerate(measurements) if m.boundary.batch == 3 and m.boundary.epoch]
    steps = [n for n in after if measurements[n].boundary.kind is BoundaryKind.STEP]
    assert named_bytes_at(case, HOST, np.array(steps)) == pytest.approx(3 * MIB, abs=MIB / 100)
    inside = [n for n, m in enumerate(measurements) if m.boundary.kind is BoundaryKind.BATCH]
    assert named_bytes_at(case, HOST, np.array(inside)).max() > 20 * MIB


def test_another_name_that_comes_after_the_work_does_not_count_it_twice() -> None:
    """``rows = tracker.rows`` in the last line of a program, whose functions have returned."""
    program = Program(epochs=4, validation=0).constant("main()·model", MIB, root=RootKind.LOCAL)
    run = program.leak("train()·tracker.rows", MIB, root=RootKind.LOCAL).build()
    measurements = run.main.measurements
    last = next(m for m in reversed(measurements) if m.census is not None)
    assert last.census is not None
    rows = [
        msgspec.structs.replace(row, path=row.path.replace("train()·tracker.", "main()·"))
        for row in last.census.rows
        if row.path.startswith("train()")
    ]
    measurements[-1] = replace(
        measurements[-1], census=msgspec.structs.replace(last.census, rows=rows)
    )
    case = RunContext(run, run.main)
    held = named_bytes(case, HOST)
    assert held[-1] == held[-2] > 100 * MIB
    (ledger,) = analyse(run).ledgers
    assert amount(ledger, "named") == pytest.approx(ledger.total_bytes, rel=0.05)


def test_what_a_call_of_a_library_gathers_is_held_while_it_runs_alone() -> None:
    """Between two evaluations their predictions are no named bytes, nor is a part of them."""
    program = Program(epochs=6, inner=40).local(
        "lib.evaluate()·preds", MIB, user=False, of_a_call=True
    )
    run = program.constant("main()·model", 3 * MIB).build()
    case = RunContext(run, run.main)
    held = dict(zip(case.table.at.tolist(), named_bytes(case, HOST).tolist(), strict=True))
    phases = {at: run.main.measurements[at].boundary.phase for at in held}
    outside = [size for at, size in held.items() if phases[at] != "validation"]
    inside = [size for at, size in held.items() if phases[at] == "validation"]
    assert outside == [pytest.approx(3 * MIB, abs=MIB / 100)] * len(outside)
    assert max(inside) == pytest.approx(13 * MIB, abs=MIB / 10)


@pytest.mark.parametrize(("resident", "booked"), [(True, True), (False, False)])
def test_shared_memory_of_other_processes_explains_nothing(resident: bool, booked: bool) -> None:
    """Files come to /dev/shm while this process maps pages of code: neither is shared memory."""

    def grows(state: State) -> float:
        return state.epochs_done * MIB

    program = Program(epochs=8).leak("kept", MIB, per="epoch").swell(grows)
    program.gauge(gauge.SHM, grows).gauge(gauge.SHARED, grows)
    program.gauge(gauge.MAPPED_SHARED, grows if resident else lambda _: 0)
    (ledger,) = [each for each in report_of(program).ledgers if each.metric == gauge.RSS]
    shared = [entry.bytes for entry in ledger.entries if entry.kind == "shm"]
    assert bool(sum(shared)) is booked
