"""Diagnoses that are no container, each with what it must not be confused with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from synthetic_runs import KIB, MIB, Program, Size, State, Thing

from leakscope.analysis.findings.gauge_rules import diagnose_gauges
from leakscope.analysis.growth.search import search_growth
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind
from leakscope.model.census import RootKind
from leakscope.model.record import NoteRecord
from leakscope.model.report import Finding, Report, RunVerdict, Severity
from leakscope.model.run import Run
from leakscope.model.trend import Reason, TrendVerdict


def report_of(program: Program) -> Report:
    return analyse(program.build())


def finding(report: Report, kind: str) -> Finding:
    return next(f for f in report.findings if f.kind == kind)


def test_a_collector_that_is_off_while_garbage_piles_up() -> None:
    program = Program(epochs=10, full_every=1).gauge(gauge.GC_ENABLED, lambda s: 0)
    program.garbage = lambda s: s.epochs_done * 20 * MIB
    program.swell(lambda s: s.epochs_done * 20 * MIB)
    report = report_of(program)
    assert report.verdict is RunVerdict.LEAK
    found = finding(report, "collector_off")
    assert found.severity is Severity.WARNING
    assert found.bytes_per_unit == pytest.approx(20 * MIB, rel=0.05)
    assert "unexplained" not in {f.kind for f in report.findings}


def test_a_little_garbage_that_grows_while_nobody_collects_is_a_leak() -> None:
    program = Program(epochs=10, full_every=1).gauge(gauge.GC_ENABLED, lambda s: 0)
    program.garbage = lambda s: s.epochs_done * MIB / 2
    program.swell(lambda s: s.epochs_done * MIB / 2)
    report = report_of(program)
    assert report.verdict is RunVerdict.LEAK
    assert finding(report, "collector_off").severity is Severity.WARNING


@pytest.mark.parametrize(
    ("python", "known"), [("3.14.2", "python-late-collector"), ("3.14.5", None), ("3.11.7", None)]
)
def test_garbage_of_a_python_whose_collector_comes_late_is_reported_with_that(
    python: str, known: str | None
) -> None:
    program = Program(epochs=10, full_every=1)
    program.garbage = lambda s: s.epochs_done * 20 * MIB
    program.swell(lambda s: s.epochs_done * 20 * MIB)
    run = program.build()
    run.manifest = msgspec.structs.replace(run.manifest, environment={"python": python})
    found = finding(analyse(run), "garbage")
    assert (found.known.id if found.known else None) == known
    assert found.remedy.title.startswith("Update Python to 3.14.5") is bool(known)


def test_a_program_that_collects_by_itself_now_and_then_is_no_leak() -> None:
    program = Program(epochs=10, full_every=1).gauge(gauge.GC_ENABLED, lambda s: 0)
    program.garbage = lambda s: (s.batch + s.step % 7) * MIB
    program.swell(lambda s: (s.batch + s.step % 7) * MIB)
    report = report_of(program)
    assert finding(report, "collector_off").severity is Severity.NOTE
    assert report.verdict is RunVerdict.CLEAN


def off_and_weighed_once(garbage_per_epoch: float) -> Report:
    """A short run without a collector whose garbage is weighed before it is much."""
    program = Program(epochs=8, full_every=4).gauge(gauge.GC_ENABLED, lambda s: 0)
    program.garbage = lambda s: s.epochs_done * garbage_per_epoch
    program.swell(lambda s: s.epochs_done * 5.5 * MIB)
    run = program.build()
    run.main.sources["/project/train.py"] = "import gc\n\ngc.disable()\n"
    return analyse(run)


def test_garbage_weighed_once_is_blamed_where_it_was_what_rose() -> None:
    report = off_and_weighed_once(3.9 * MIB)
    found = finding(report, "collector_off")
    assert found.severity is Severity.WARNING
    assert found.bytes_per_unit == pytest.approx(5.5 * MIB, rel=0.1)
    assert [place.rpartition("/")[2] for place in found.fed_at] == ["train.py:3"]
    assert "unexplained" not in {f.kind for f in report.findings}


def test_garbage_weighed_once_is_not_blamed_where_it_was_little_of_what_rose() -> None:
    assert finding(off_and_weighed_once(1 * MIB), "collector_off").severity is Severity.NOTE


def test_a_collector_that_is_off_without_garbage_is_a_note() -> None:
    report = report_of(Program(epochs=10).gauge(gauge.GC_ENABLED, lambda s: 0))
    assert finding(report, "collector_off").severity is Severity.NOTE
    assert report.verdict is RunVerdict.CLEAN


def test_a_collector_that_works_is_not_mentioned() -> None:
    report = report_of(Program(epochs=10).gauge(gauge.GC_ENABLED, lambda s: 1))
    assert report.findings == []


@pytest.mark.parametrize(
    ("frozen", "grows", "verdict"),
    [
        (lambda s: 300_000 + 5_000 * s.epoch, True, RunVerdict.LEAK),
        (lambda s: 300_000 + 5_000 * s.epoch, False, RunVerdict.CLEAN),
        (lambda s: 300_000, True, RunVerdict.LEAK),
    ],
    ids=["again and again", "of what is named", "once"],
)
def test_what_is_frozen_in_each_epoch_explains_growth_without_a_name(
    frozen: Callable[[State], float], grows: bool, verdict: RunVerdict
) -> None:
    program = Program(epochs=14).gauge(gauge.GC_FROZEN, frozen)
    report = report_of(program.swell(lambda s: grows * 2 * MIB * s.epoch))
    kinds = {f.kind for f in report.findings if f.severity is Severity.WARNING}
    assert report.verdict is verdict
    again = frozen(State(epoch=3)) != frozen(State(epoch=0))
    assert kinds == ({"collector_frozen" if again else "unexplained"} if grows else set())


def test_free_memory_between_what_is_frozen_comes_after_it() -> None:
    program = Program(epochs=14).gauge(gauge.GC_FROZEN, lambda s: 300_000 + 5_000 * s.epoch)
    program.swell(lambda s: 22 * MIB * s.epoch)
    program.gauge(gauge.MALLOC_FREE, lambda s: 20 * MIB * s.epoch)
    program.gauge(gauge.MALLOC_IN_USE, lambda s: 100 * MIB + 2 * MIB * s.epoch)
    report = report_of(program)
    kinds = [f.kind for f in report.findings if f.severity is Severity.WARNING]
    assert kinds == ["collector_frozen", "allocator_slack"]
    assert "frozen" in report.headline


def test_a_name_that_makes_most_of_what_is_undecided_is_named() -> None:
    program = Program(epochs=12)
    program.plant(Thing("__main__·cache", lambda s: 60 * MIB if s.epoch >= 11 else 0))
    report = report_of(program)
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert report.missing[0].startswith("__main__.cache grew by 60 MiB, too short a time to tell")


def test_frozen_objects_are_a_note_while_garbage_is_collected() -> None:
    program = Program(epochs=10).gauge(gauge.GC_FROZEN, lambda s: 10_000 if s.step > 5 else 0)
    assert finding(report_of(program), "collector_frozen").severity is Severity.NOTE


def test_garbage_that_dominates_the_peak_is_a_warning() -> None:
    program = Program(epochs=10, full_every=1)
    program.garbage = lambda s: 200 * MIB if s.step else 0
    program.swell(lambda s: 200 * MIB if s.step else 0)
    assert finding(report_of(program), "garbage").severity is Severity.WARNING


def garbage_until(epoch: int) -> Report:
    program = Program(epochs=12, full_every=1)
    program.garbage = lambda s: 100 * MIB if s.epoch < epoch else 0
    program.swell(lambda s: 100 * MIB if s.epoch < epoch else 0)
    return report_of(program)


def test_garbage_of_the_set_up_alone_is_none() -> None:
    assert not [f for f in garbage_until(3).findings if f.kind == "garbage"]
    assert finding(garbage_until(10), "garbage").total_bytes == 100 * MIB


def garbage_of(circle: tuple[str, ...]) -> Program:
    """A program whose garbage is freed at the end of every third epoch."""
    program = Program(epochs=12, full_every=1)

    def waiting(state: State) -> float:
        return (state.epoch % 3) * 100 * MIB

    program.garbage = waiting
    program.swell(waiting)
    path = "<garbage>·Engine"
    things = Thing(path, waiting, "object", root=RootKind.GARBAGE, user=False, cycle=circle)
    return program.plant(things)


def test_the_circle_that_keeps_garbage_is_named_with_what_the_collector_freed() -> None:
    found = finding(report_of(garbage_of(("Engine.state", "State.engine"))), "garbage")
    assert [circle.steps for circle in found.circles] == [["Engine.state", "State.engine"]]
    assert found.circles[0].bytes == 200 * MIB
    assert "`Engine.state` → `State.engine` → `Engine.state` kept 200 MiB" in found.text
    assert "the collector freed it 3 times, 200 MiB each" in found.text
    assert found.remedy.title.startswith("Break the circle at State.engine")


def piling(garbage_share: float) -> Program:
    """A program that rises by 20 MiB an epoch; its garbage is weighed at first and in epoch 6."""
    program = Program(epochs=12, full_every=6)

    def risen(state: State) -> float:
        return state.epochs_done * 20 * MIB

    program.swell(risen)
    program.garbage = lambda s: garbage_share * risen(s)
    return program


def test_garbage_that_was_what_memory_rose_by_explains_the_rise() -> None:
    report = report_of(piling(0.9))
    found = finding(report, "garbage")
    assert found.severity is Severity.WARNING
    assert "piles up" in found.title
    assert found.bytes_per_unit == pytest.approx(20 * MIB, rel=0.05)
    assert "unexplained" not in {f.kind for f in report.findings}


def test_garbage_that_was_little_of_the_rise_explains_nothing() -> None:
    kinds = {f.kind: f.severity for f in report_of(piling(0.1)).findings}
    assert kinds["unexplained"] is Severity.WARNING
    assert kinds.get("garbage", Severity.NOTE) is Severity.NOTE


def test_garbage_of_no_known_circle_is_reported_without_one() -> None:
    found = finding(report_of(garbage_of(())), "garbage")
    assert found.circles == []
    assert "circle " not in found.text


def test_garbage_next_to_a_larger_peak_is_a_note() -> None:
    program = Program(epochs=10, full_every=1)
    program.garbage = lambda s: 30 * MIB
    program.swell(lambda s: 500 * MIB if s.inner else 0)
    assert finding(report_of(program), "garbage").severity is Severity.NOTE


def awaiting(aged_per_step: float, mib_per_step: float) -> Program:
    """A program whose garbage waits until 20,000 objects have become old."""
    program = Program(epochs=14).swell(lambda s: s.step * mib_per_step * MIB)
    program.garbage = lambda s: s.step * mib_per_step * MIB
    program.gauge(gauge.GC_ENABLED, lambda s: 1)
    program.gauge(gauge.GC_PENDING, lambda s: s.step * aged_per_step)
    return program.gauge(gauge.GC_LONG_LIVED, lambda s: 80_000)


def test_garbage_that_the_collector_will_soon_free_is_undecided() -> None:
    report = report_of(awaiting(aged_per_step=30, mib_per_step=0.2))
    assert report.verdict is RunVerdict.INCONCLUSIVE
    found = finding(report, "garbage")
    assert found.severity is Severity.NOTE
    assert "until the collector visits these objects, at about 133 MiB" in found.text


def test_garbage_that_the_collector_frees_long_after_the_run_is_undecided() -> None:
    report = report_of(awaiting(aged_per_step=3, mib_per_step=0.2))
    assert finding(report, "garbage").severity is Severity.NOTE
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert "which the collector visits only after about 155 more epochs" in report.headline
    assert "gc.collect()" in report.headline


def test_garbage_that_the_collector_frees_too_late_for_the_memory_there_is_is_a_leak() -> None:
    program = awaiting(aged_per_step=3, mib_per_step=0.2)
    program.limit = 2 << 30
    report = report_of(program)
    assert finding(report, "garbage").severity is Severity.WARNING
    assert report.verdict is RunVerdict.LEAK


def young(collections: Size, thresholds: str = "700 10 10") -> Report:
    """A program whose garbage is no older than a few hundred objects."""
    program = Program(epochs=14, full_every=1).swell(lambda s: s.step * 0.2 * MIB)
    program.garbage = lambda s: s.step * 0.2 * MIB
    program.gauge(gauge.GC_ENABLED, lambda s: 1).gauge(gauge.GC_COLLECTIONS, collections)
    program.gauge(gauge.GC_PENDING, lambda s: 20_000).gauge(gauge.GC_LONG_LIVED, lambda s: 80_000)
    program.gauge(gauge.GC_COUNT, lambda s: s.step)
    run = program.build()
    run.manifest = msgspec.structs.replace(run.manifest, environment={"gc_thresholds": thresholds})
    return analyse(run)


def test_garbage_that_came_since_the_last_collection_is_undecided() -> None:
    report = young(lambda s: 3)
    assert report.verdict is RunVerdict.INCONCLUSIVE
    found = finding(report, "garbage")
    assert found.severity is Severity.NOTE
    assert "until the collector visits these objects, at about 140 MiB" in found.text


def test_garbage_that_outlived_collections_of_the_young_is_a_leak() -> None:
    report = young(lambda s: s.epochs_done)
    assert report.verdict is RunVerdict.LEAK
    assert finding(report, "garbage").severity is Severity.WARNING


def test_garbage_is_a_leak_where_no_collection_is_to_come() -> None:
    assert young(lambda s: 3, thresholds="0 10 10").verdict is RunVerdict.LEAK


def freed_once(faster: float) -> Report:
    """A program whose young garbage a collection freed at a third; since then it comes faster."""
    third = 200

    def waiting(state: State) -> float:
        late = state.step - third
        return (state.step if late < 0 else late * faster) * 0.1 * MIB

    program = Program(epochs=15, weighs_garbage=True).swell(waiting)
    program.garbage = waiting
    program.gauge(gauge.GC_ENABLED, lambda s: 1).gauge(gauge.GC_PENDING, lambda s: 20_000)
    program.gauge(gauge.GC_COLLECTIONS, lambda s: int(s.step >= third))
    program.gauge(gauge.GC_COUNT, lambda s: s.step - third * (s.step >= third))
    run = program.build()
    run.manifest = msgspec.structs.replace(run.manifest, environment={"gc_thresholds": "700 10 10"})
    return analyse(run)


def test_garbage_that_a_collection_freed_before_is_no_open_question() -> None:
    assert freed_once(1.0).verdict is RunVerdict.CLEAN


def test_garbage_that_comes_much_faster_than_what_was_freed_is_undecided() -> None:
    assert freed_once(5.0).verdict is RunVerdict.INCONCLUSIVE


def collected_every(epochs: int, stays: bool) -> Program:
    """A program of which the collector visits all objects every few epochs."""
    program = Program(epochs=14, full_every=1).swell(lambda s: s.step * 0.2 * MIB)

    def waiting(state: State) -> float:
        since = 0 if stays else state.epochs_done // epochs * epochs
        return (state.epochs_done - since) * 8 * MIB

    program.garbage = waiting
    program.gauge(gauge.GC_ENABLED, lambda s: 1)
    return program.gauge(gauge.GC_LONG_LIVED, lambda s: 80_000 + s.epochs_done // epochs)


def test_garbage_that_stays_though_the_collector_came_is_a_leak() -> None:
    report = report_of(collected_every(3, stays=True))
    assert report.verdict is RunVerdict.LEAK
    assert finding(report, "garbage").severity is Severity.WARNING


def test_garbage_that_is_gone_after_each_collection_is_none() -> None:
    report = report_of(collected_every(3, stays=False))
    assert "garbage" not in {f.kind for f in report.findings if f.severity is not Severity.NOTE}


def test_growth_without_a_name_is_undecided_while_as_much_garbage_waits() -> None:
    program = awaiting(aged_per_step=30, mib_per_step=0.15).swell(lambda s: s.step * 0.1 * MIB)
    report = report_of(program)
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert not report.culprits
    assert "objects in circles" in report.headline


def test_slack_that_grows_without_end_is_a_warning() -> None:
    program = Program(epochs=14).swell(lambda s: s.step * MIB)
    program.gauge(gauge.MALLOC_FREE, lambda s: s.step * 0.9 * MIB)
    program.gauge(gauge.MALLOC_IN_USE, lambda s: 100 * MIB + s.step * 0.1 * MIB)
    found = finding(report_of(program), "allocator_slack")
    assert found.severity is Severity.WARNING
    assert found.share == pytest.approx(0.9, abs=0.05)
    assert "malloc_trim" in found.remedy.text


def between_blocks_that_become_no_more(swell: Callable[[State], float]) -> Report:
    program = Program(epochs=14).swell(swell)
    program.gauge(gauge.MALLOC_FREE, lambda s: s.step * MIB)
    program.gauge(gauge.MALLOC_IN_USE, lambda s: 100 * MIB + min(s.step, 40) * MIB / 8)
    return report_of(program)


def test_slack_between_blocks_that_become_no_more_will_end() -> None:
    report = between_blocks_that_become_no_more(lambda s: 140 * MIB * (1 - 0.98**s.step))
    assert finding(report, "allocator_slack").severity is Severity.NOTE
    assert report.verdict is RunVerdict.CLEAN
    rules = {(d.subject, d.rule) for d in report.decisions}
    assert ("slack", "nothing_pins_it") in rules


def test_slack_that_grows_as_steadily_as_the_process_is_not_said_to_end() -> None:
    report = between_blocks_that_become_no_more(lambda s: s.step * MIB)
    assert report.verdict is RunVerdict.INCONCLUSIVE


def test_slack_between_new_objects_without_a_name_is_a_note_next_to_them() -> None:
    def left_behind(state: State) -> float:
        return state.step * 0.2 * MIB

    path = "<held by native code>·torch.Tensor"
    program = Program(epochs=14, full_every=1).swell(lambda s: s.step * MIB)
    program.plant(Thing(path, left_behind, "tensor", root=RootKind.NATIVE, user=False))
    program.gauge(gauge.MALLOC_FREE, lambda s: s.step * 0.9 * MIB)
    program.gauge(gauge.MALLOC_IN_USE, lambda s: 100 * MIB + s.step * 0.3 * MIB)
    report = report_of(program)
    assert report.findings[0].kind != "allocator_slack"
    assert finding(report, "allocator_slack").severity is Severity.NOTE
    assert report.verdict is RunVerdict.LEAK


def test_a_little_without_a_name_that_costs_much_free_memory_is_the_leak() -> None:
    path = "<held by native code>·torch.Tensor"
    program = Program(epochs=14, full_every=1).swell(lambda s: s.step * MIB)
    small = Thing(path, lambda s: s.step * 24 * 1024, "tensor", root=RootKind.NATIVE, user=False)
    program.plant(small)
    program.gauge(gauge.MALLOC_FREE, lambda s: s.step * 0.95 * MIB)
    program.gauge(gauge.MALLOC_IN_USE, lambda s: 100 * MIB + s.step * 0.05 * MIB)
    report = report_of(program)
    assert report.verdict is RunVerdict.LEAK
    assert finding(report, "allocator_slack").severity is Severity.NOTE
    assert "lies between the parts of what grows" in finding(report, "allocator_slack").text


def test_slack_is_undecided_while_what_is_in_use_is() -> None:
    program = Program(epochs=14).swell(lambda s: s.step * MIB)
    program.gauge(gauge.MALLOC_FREE, lambda s: s.step * MIB)
    late = 0.9 * program.epochs * program.steps
    program.gauge(gauge.MALLOC_IN_USE, lambda s: 100 * MIB + max(s.step - late, 0) * MIB)
    assert report_of(program).verdict is RunVerdict.INCONCLUSIVE


def test_slack_next_to_a_container_that_grows_is_a_note() -> None:
    program = Program(epochs=14).leak("main()·states", MIB).swell(lambda s: s.step * MIB)
    program.gauge(gauge.MALLOC_FREE, lambda s: s.step * 1.1 * MIB)
    report = report_of(program)
    assert finding(report, "allocator_slack").severity is Severity.NOTE
    assert [culprit.name for culprit in report.culprits] == ["main.states"]


def test_slack_that_was_released_only_as_the_program_ended_is_a_note() -> None:
    def free(state: State) -> float:
        return 0 if state.kind is BoundaryKind.RUN_END else min(state.step, 60) * 4 * MIB

    program = Program(epochs=14).swell(free).gauge(gauge.MALLOC_FREE, free)
    found = finding(report_of(program), "allocator_slack")
    assert found.severity is Severity.NOTE
    assert found.total_bytes == 240 * MIB


def test_slack_that_has_settled_is_a_note() -> None:
    program = Program(epochs=14).swell(lambda s: min(s.step, 60) * 4 * MIB)
    program.gauge(gauge.MALLOC_FREE, lambda s: min(s.step, 60) * 4 * MIB)
    report = report_of(program)
    assert finding(report, "allocator_slack").severity is Severity.NOTE
    assert report.verdict is RunVerdict.CLEAN


def test_steady_growth_without_a_name_is_a_warning_in_a_long_run() -> None:
    report = report_of(Program(epochs=14).swell(lambda s: s.step * MIB))
    found = finding(report, "unexplained")
    assert found.severity is Severity.WARNING
    assert found.share > 0.9
    assert report.verdict is RunVerdict.LEAK


def test_little_growth_without_a_name_is_reported_where_it_is_linear() -> None:
    report = report_of(Program(epochs=14).swell(lambda s: s.step * 25 * KIB))
    assert finding(report, "unexplained").severity is Severity.WARNING


@pytest.mark.parametrize("per_step", [0.98, 0.99, 0.995])
def test_little_growth_without_a_name_that_slows_down_is_a_warm_up(per_step: float) -> None:
    report = report_of(Program(epochs=14).swell(lambda s: 20 * MIB * (1 - per_step**s.step)))
    assert "unexplained" not in {f.kind for f in report.findings}


def test_pages_of_a_file_that_is_mapped_and_read_are_no_growth_without_a_name() -> None:
    program = Program(epochs=14).swell(lambda s: s.step * MIB)
    report = report_of(program.gauge(gauge.MAPPED, lambda s: 80 * MIB + s.step * MIB))
    assert report.verdict is RunVerdict.CLEAN
    reported = {entry.kind: entry.bytes for entry in report.ledgers[0].entries}
    assert reported["mapped"] > 0.9 * report.ledgers[0].total_bytes


def test_growth_without_a_name_next_to_a_larger_culprit_is_not_reported() -> None:
    program = (
        Program(epochs=14).leak("Trainer.losses", 900 * KIB).swell(lambda s: s.step * 100 * KIB)
    )
    assert [f.kind for f in report_of(program).findings] == []


def test_children_that_grow() -> None:
    program = Program(epochs=10).gauge(gauge.CHILDREN_PSS, lambda s: 100 * MIB + s.step * MIB)
    found = finding(report_of(program), "children")
    assert found.severity is Severity.WARNING
    assert found.bytes_per_unit == pytest.approx(40 * MIB, rel=0.02)


def test_children_that_grow_little_by_little_without_end() -> None:
    program = Program(epochs=12).gauge(gauge.CHILDREN_PSS, lambda s: 100 * MIB + s.step * 30 * KIB)
    found = finding(report_of(program), "children")
    assert found.severity is Severity.WARNING
    assert "Manager" in found.remedy.text, "no worker was recorded"


@pytest.mark.parametrize("per_step", [0.98, 0.99, 0.995])
def test_children_that_copy_little_at_first_touch(per_step: float) -> None:
    program = Program(epochs=12)
    program.gauge(gauge.CHILDREN_PSS, lambda s: 100 * MIB + 24 * MIB * (1 - per_step**s.step))
    assert report_of(program).verdict is RunVerdict.CLEAN


def test_children_that_copy_a_dataset_once() -> None:
    program = Program(epochs=10)
    program.gauge(gauge.CHILDREN_PSS, lambda s: 100 * MIB + 200 * MIB * (1 - 0.97**s.step))
    assert report_of(program).verdict is RunVerdict.CLEAN


@pytest.mark.parametrize("epochs", [6, 7])
def test_children_that_grow_evenly_are_reported_in_a_short_run(epochs: int) -> None:
    def held(state: State) -> float:
        return 0.0 if state.kind is BoundaryKind.RUN_END else state.step * MIB

    program = Program(epochs=epochs).gauge(gauge.CHILDREN_PSS, held)
    found = finding(report_of(program), "children")
    assert found.total_bytes == pytest.approx(epochs * 40 * MIB, rel=0.01)
    assert found.severity is Severity.WARNING
    assert found.bytes_per_unit == pytest.approx(40 * MIB, rel=0.02)


@pytest.mark.parametrize("per_step", [0.9, 0.97, 0.98, 0.99])
def test_pages_copied_on_first_touch_are_not_reported_in_a_short_run(per_step: float) -> None:
    program = Program(epochs=6)
    program.gauge(gauge.CHILDREN_PSS, lambda s: 100 * MIB + 400 * MIB * (1 - per_step**s.step))
    assert "children" not in {f.kind for f in report_of(program).findings}


def test_children_that_restart_in_each_epoch() -> None:
    program = Program(epochs=10)
    program.gauge(gauge.CHILDREN_PSS, lambda s: s.batch * 10 * MIB)
    assert report_of(program).verdict is RunVerdict.CLEAN


def endless(held: Callable[[State], float | None]) -> Program:
    """One pass without an end, in which child processes are read at some steps only."""
    program = Program(endless=True, steps=600, validation=0).gauge(gauge.CHILDREN_PSS, held)
    return program.gauge(gauge.CHILDREN, lambda s: None if held(s) is None else 2)


def at_steps(*steps: int) -> Callable[[State], bool]:
    return lambda s: s.kind is BoundaryKind.PHASE_BEGIN or s.step in steps


SEEN_SELDOM = at_steps(400)
SEEN_AT_FIRST = at_steps(5, 10, 20, 30, 40, 50, 60, 70)
SEEN_EVER_FURTHER_APART = at_steps(10, 20, 40, 60, 80, 110, 150, 200, 270, 360, 480)


def test_children_that_grow_and_are_read_too_seldom_are_not_called_clean() -> None:
    report = report_of(endless(lambda s: 170 * MIB + s.step * MIB if SEEN_SELDOM(s) else None))
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert "400 MiB more than at first" in report.missing[0]
    assert "too short a time" in report.missing[0]
    assert gauge.CHILDREN_PSS not in {g.metric for g in report.growth}, "no rate is known"
    assert gauge.RSS in {g.metric for g in report.growth}


def test_children_that_grew_where_they_were_read_may_have_rested_since() -> None:
    report = report_of(
        endless(lambda s: 170 * MIB + 3 * s.step * MIB if SEEN_AT_FIRST(s) else None)
    )
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert "too short a time" in report.missing[0]


def test_children_that_are_read_too_seldom_and_hold_little_are_no_reason_to_doubt() -> None:
    report = report_of(endless(lambda s: 170 * MIB + s.step * KIB if SEEN_SELDOM(s) else None))
    assert report.verdict is RunVerdict.CLEAN


def test_children_that_grow_throughout_one_long_pass() -> None:
    seen = SEEN_EVER_FURTHER_APART
    report = report_of(endless(lambda s: 170 * MIB + s.step * MIB if seen(s) else None))
    found = finding(report, "children")
    assert found.bytes_per_unit == pytest.approx(MIB)
    assert "gained 480 MiB" in found.text, "up to the last reading"
    assert "read from step 0 to 480 of 600 only" in found.text


def test_children_that_are_read_by_time_between_the_boundaries_that_are_compared() -> None:
    program = endless(
        lambda s: (
            None
            if s.phase == "validation" and s.step > 100
            else 170 * MIB + s.step * MIB
            if s.phase == "validation" or SEEN_EVER_FURTHER_APART(s)
            else None
        )
    )
    program.validation, program.validate_every = 4, 25
    assert finding(report_of(program), "children").bytes_per_unit == pytest.approx(MIB)


def counted(*children: tuple[int, int]) -> Program:
    """One pass without an end, in which processes of 20 MiB are counted at some steps."""
    at = dict(children)

    def count(state: State) -> float | None:
        first = state.kind is BoundaryKind.PHASE_BEGIN and children[0][1]
        return first or at.get(state.step)

    program = Program(endless=True, steps=600, validation=0).gauge(gauge.CHILDREN, count)
    return program.gauge(
        gauge.CHILDREN_PSS, lambda s: None if count(s) is None else (count(s) or 0) * 20 * MIB
    )


def test_children_that_become_ever_more_and_are_counted_too_seldom_are_not_called_clean() -> None:
    report = report_of(counted((0, 1), (50, 6), (300, 21), (590, 30)))
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert "580 MiB more than at first" in report.missing[0]


@pytest.mark.parametrize(
    "counts",
    [
        ((0, 4), (100, 4), (300, 8), (590, 12)),
        ((0, 1), (20, 4), (40, 8), (60, 12), (590, 12)),
        ((0, 1), (100, 9), (300, 2), (590, 10)),
    ],
    ids=["three loaders", "a pool that fills", "recreated"],
)
def test_children_that_have_their_number_are_no_reason_to_doubt(
    counts: tuple[tuple[int, int], ...],
) -> None:
    assert report_of(counted(*counts)).verdict is RunVerdict.CLEAN


def test_children_that_load_data_at_first() -> None:
    seen = SEEN_EVER_FURTHER_APART
    loads = endless(lambda s: (170 + 3 * min(s.step, 120)) * MIB if seen(s) else None)
    assert report_of(loads).verdict is RunVerdict.CLEAN


def test_children_that_restart_within_one_long_pass() -> None:
    seen = SEEN_EVER_FURTHER_APART
    again = endless(lambda s: (170 + 3 * (s.step % 90)) * MIB if seen(s) else None)
    assert report_of(again).verdict is RunVerdict.CLEAN


def test_open_figures_are_blamed_for_what_nothing_else_explains() -> None:
    program = Program(epochs=12).gauge(gauge.FIGURES, lambda s: s.epochs_done * 3)
    program.swell(lambda s: s.epochs_done * 9 * MIB)
    report = report_of(program)
    found = finding(report, "open_figures")
    assert found.severity is Severity.WARNING
    assert found.bytes_per_unit == pytest.approx(9 * MIB, rel=0.1)
    assert "plt.close" in found.remedy.text


def test_open_figures_are_reported_with_the_lines_that_make_them() -> None:
    program = Program(epochs=12).gauge(gauge.FIGURES, lambda s: s.epochs_done * 3)
    run = program.swell(lambda s: s.epochs_done * 9 * MIB).build()
    run.main.sources["/project/train.py"] = (
        "import matplotlib.pyplot as plt\n\n\ndef draw(figure, table):\n"
        "    fig, ax = plt.subplots(\n        1, 2\n    )\n    table.figure(fig)\n"
    )
    lines = finding(analyse(run), "open_figures").fed_at
    assert [place.rpartition("/")[2] for place in lines] == ["train.py:5"]


def test_a_few_figures_that_are_reused_are_fine() -> None:
    program = Program(epochs=12).gauge(gauge.FIGURES, lambda s: min(s.epochs_done, 3))
    assert report_of(program).findings == []


def test_more_and_more_open_files_are_a_note() -> None:
    program = Program(epochs=12).gauge(gauge.OPEN_FILES, lambda s: 30 + s.step)
    assert finding(report_of(program), "open_files").severity is Severity.NOTE


def test_objects_that_only_native_code_holds() -> None:
    held = Thing(
        "native·torch.Tensor", lambda s: s.epochs_done * 4 * MIB, "tensor", "torch.Tensor",
        root=RootKind.NATIVE, user=False, count=lambda s: s.epochs_done,
    )  # fmt: skip
    report = report_of(Program(epochs=10, full_every=1).plant(held))
    found = finding(report, "native_held")
    assert found.severity is Severity.WARNING
    assert found.bytes_per_unit == pytest.approx(4 * MIB, rel=0.05)
    assert report.culprits == []


def walked_four_times(held: Callable[[State], float]) -> Report:
    """One phase of training, the whole heap walked four times, where no gauge tells of growth."""
    program = Program(endless=True, steps=400, full_at=(10, 130, 270, 390), rss=False)
    thing = Thing(
        "<held by native code>·method", held, "object", "__main__.Trial",
        root=RootKind.NATIVE, user=False,
    )  # fmt: skip
    return report_of(program.plant(thing))


def test_what_the_first_walk_saw_nothing_of_was_not_there_yet() -> None:
    found = finding(walked_four_times(lambda s: s.step // 40 * 3 * MIB), "native_held")
    assert found.bytes_per_unit == pytest.approx(3 * MIB / 40, rel=0.15)


def test_what_native_code_made_once_after_the_first_walk_is_no_growth() -> None:
    for since in (50, 200, 300):
        report = walked_four_times(lambda s, since=since: 40 * MIB if s.step > since else 0)
        assert not [f for f in report.findings if f.kind == "native_held"], since


def registered(text: str, kind: str = "tuple", type_: str = "tuple") -> Finding:
    """Return what is found in a program that keeps tuples in native code."""
    held = Thing(
        f"<held by native code>·{kind}", lambda s: s.epochs_done * 4 * MIB, "object", type_,
        root=RootKind.NATIVE, user=False, count=lambda s: s.epochs_done,
    )  # fmt: skip
    run = Program(epochs=10, full_every=1).plant(held).build()
    run.main.sources["/project/train.py"] = text
    return finding(analyse(run), "native_held")


def test_what_atexit_is_given_again_and_again_is_reported_before_the_path() -> None:
    found = registered(
        "import atexit\nfor epoch in range(9):\n    atexit.register(save, epoch, model)\n"
    )
    assert found.text.startswith(
        "What atexit.register is given at train.py:3 stays until the program ends: "
    )
    assert found.text.endswith("no Python name reaches it.")
    assert found.title == "Calls pile up that are to be made when the program ends"
    assert found.remedy.title.startswith("Register one function before the loop")


def test_atexit_is_given_methods_of_large_objects_too() -> None:
    text = "import atexit\nfor trial in range(9):\n    atexit.register(Trial(trial).write)\n"
    found = registered(text, "method", "__main__.Trial")
    assert found.text.startswith("What atexit.register is given at train.py:3 stays")
    assert found.fed_at == ["train.py:3"]


def test_what_is_registered_once_is_not_what_grows() -> None:
    found = registered("import atexit\natexit.register(save)\nfor epoch in range(9):\n    pass\n")
    assert found.title == "tuple objects that only native code holds"
    assert "atexit.register" not in found.text


def seen_twice(grown: Callable[[State], float], **more: object) -> Program:
    """Eight epochs, the whole heap walked at the first and the fifth of them."""
    program = Program(epochs=8, full_every=4, validation=0)
    program.gauge(gauge.MALLOC_IN_USE, lambda s: 100 * MIB + grown(s)).swell(grown)
    held = Thing("atexit·kept", lambda s: 30 * KIB + s.epochs_done * 2 * MIB, user=False, **more)
    return program.plant(held)


def read_seldom_later(program: Program) -> Run:
    """Build a run whose gauges were read at each of the first 100 steps, and then now and then."""
    run = program.build()
    for measurement in run.main.measurements:
        if measurement.boundary.step > 100 and measurement.boundary.step % 25:
            measurement.gauges.clear()
    return run


def test_growth_without_a_name_is_reported_where_it_was_read_more_often_at_first() -> None:
    program = Program(endless=True, steps=1000, validation=0)
    report = analyse(read_seldom_later(program.swell(lambda s: s.step * 80 * KIB)))
    assert finding(report, "unexplained").bytes_per_unit == pytest.approx(80 * KIB, rel=0.1)
    program = Program(endless=True, steps=1000, validation=0)
    report = analyse(read_seldom_later(program.swell(lambda s: min(s.step, 150) * 800 * KIB)))
    assert not [f for f in report.findings if f.severity is not Severity.NOTE]


@pytest.mark.parametrize("root", [RootKind.NATIVE, RootKind.LIBRARY])
@pytest.mark.parametrize(
    "grown",
    [
        lambda s: min(s.epochs_done, 4) * 2 * MIB,
        lambda s: 0.0,
        lambda s: s.epochs_done * 9 * MIB,
    ],
    ids=["it ended", "nothing grew", "other things grew"],
)
def test_two_walks_of_the_heap_accuse_nothing_alone(
    root: RootKind, grown: Callable[[State], float]
) -> None:
    program = seen_twice(grown, root=root)
    program.weighs = False
    report = report_of(program)
    assert not report.culprits
    assert not [f for f in report.findings if f.kind == "native_held"]


def test_findings_are_ranked_by_severity() -> None:
    program = Program(epochs=14).swell(lambda s: s.step * MIB)
    program.gauge(gauge.OPEN_FILES, lambda s: 30 + s.step)
    found = report_of(program).findings
    assert [f.rank for f in found] == list(range(1, len(found) + 1))
    assert found[0].severity is Severity.WARNING


def cached(entries: Size, capacity: int | None) -> Program:
    """A cached function of a library that two full censuses saw, next to all that it keeps."""
    thing = Thing(
        "detectors·Detector.anchors", lambda s: entries(s) * 4 * MIB, "lru_cache",
        "functools._lru_cache_wrapper", user=False, root=RootKind.LIBRARY, length=entries,
        capacity=capacity,
    )  # fmt: skip
    return Program(epochs=12, full_every=8).plant(thing)


def test_a_librarys_cached_function_that_is_full_explains_nothing() -> None:
    program = cached(lambda s: 2, 2).swell(lambda s: s.epochs_done * 4 * MIB)
    found = finding(report_of(program), "unexplained")
    assert found.title == "Memory grows outside everything that has a name"


def test_nor_does_one_that_gathers_little() -> None:
    program = cached(lambda s: s.epochs_done + 1, None)
    program.swell(lambda s: s.epochs_done * 16 * MIB)
    found = finding(report_of(program), "unexplained")
    assert found.title == "Memory grows outside everything that has a name"


SKIPPED = NoteRecord(slug="census-skipped-threads", message="No census was taken.")


@pytest.mark.parametrize(
    ("kept", "notes", "title"),
    [
        (1, [SKIPPED], "Memory grows, and no census saw who holds it"),
        (1, [], "Memory grows outside everything that has a name"),
        (99, [SKIPPED], "Memory grows outside everything that has a name"),
    ],
)
def test_growth_that_no_census_looked_at_is_not_put_down_to_native_code(
    kept: int, notes: list[NoteRecord], title: str
) -> None:
    run = Program(epochs=12).swell(lambda s: s.epochs_done * 4 * MIB).build()
    measured = run.main.measurements
    measured[:-kept] = [replace(each, census=None) for each in measured[:-kept]]
    run.main.notes.extend(notes)
    assert finding(analyse(run), "unexplained").title == title


def loaders(started: Size, *, counted_until: int) -> Report:
    """Eight epochs; the loaders' workers were counted in the first of them, and at the end."""

    def held(state: State) -> float:
        return 2 * started(state)

    def counted(state: State) -> float | None:
        at_the_end = state.kind is BoundaryKind.RUN_END
        return held(state) if state.epoch < counted_until or at_the_end else None

    kept = Thing("main()·loaders", lambda s: held(s) * 20 * KIB, length=started)
    iterators = Thing(
        "main()·loaders[*]", lambda s: held(s) * 20 * KIB, "object",
        "torch.utils.data.dataloader._MultiProcessingDataLoaderIter", kept.path, count=started,
    )  # fmt: skip
    program = Program(epochs=8).plant(kept, iterators).gauge(gauge.CHILDREN, counted)
    program.gauge(gauge.CHILDREN_PSS, lambda s: (counted(s) or 0) * 30 * MIB)
    return report_of(program)


@pytest.mark.parametrize("counted_until", [4, 6, 8])
def test_loaders_that_start_their_workers_one_after_another_do_not_pile_up(
    counted_until: int,
) -> None:
    report = loaders(lambda s: min(s.epoch + 1, 3), counted_until=counted_until)
    assert "worker_processes" not in {f.kind for f in report.findings}


@pytest.mark.parametrize(
    ("verdict", "reason", "severity"),
    [
        (TrendVerdict.GROWING, Reason.STEADY, Severity.WARNING),
        (TrendVerdict.INCONCLUSIVE, Reason.SHORT_RISE, Severity.WARNING),
        (TrendVerdict.BOUNDED, Reason.STOPPED, Severity.NOTE),
    ],
)
def test_ever_more_figures_settle_what_memory_alone_leaves_open(
    verdict: TrendVerdict, reason: Reason, severity: Severity
) -> None:
    program = Program(epochs=12).gauge(gauge.FIGURES, lambda s: s.epochs_done * 3)
    run = program.swell(lambda s: s.epochs_done * 3 * MIB).build()
    case = RunContext(run, run.main)
    growth = search_growth(case)
    term = growth.terms["unexplained"]
    judged = msgspec.structs.replace(term.trend, verdict=verdict, reason=reason)
    terms = {**growth.terms, "unexplained": replace(term, trend=judged)}
    (found,) = diagnose_gauges(case, replace(growth, terms=terms), [])
    assert (found.kind, found.severity) == ("open_figures", severity)


@pytest.mark.parametrize(
    ("each", "severity"), [(1 * MIB, Severity.WARNING), (16 * KIB, Severity.NOTE)]
)
def test_what_figures_were_seen_to_keep_is_theirs_however_little_it_is(
    each: int, severity: Severity
) -> None:
    """Two walks of the heap show what pyplot keeps, too few to judge that by itself."""
    figs = Thing(
        "matplotlib._pylab_helpers·Gcf.figs", lambda s: 64 * KIB + s.epochs_done * each,
        "ordereddict", "collections.OrderedDict", user=False,
    )  # fmt: skip
    program = Program(epochs=12, full_every=8, weighs=False).plant(figs)
    run = program.gauge(gauge.FIGURES, lambda s: s.epochs_done).build()
    case = RunContext(run, run.main)
    (found,) = diagnose_gauges(case, replace(search_growth(case), growers=[]), [])
    assert (found.kind, found.severity) == ("open_figures", severity)
    assert ("They hold 1 MiB each." in found.text) is (severity is Severity.WARNING)


@pytest.mark.parametrize(
    ("grows_until", "verdict"),
    [(1000, RunVerdict.INCONCLUSIVE), (100, RunVerdict.CLEAN)],
    ids=["to the end", "and has ended"],
)
def test_little_that_grows_steadily_without_a_name_is_no_clean_run(
    grows_until: int, verdict: RunVerdict
) -> None:
    """3 MiB in a run of seconds is much in an hour."""
    program = Program(epochs=10, rss_noise=0.02 * MIB)
    report = analyse(program.swell(lambda s: min(s.step, grows_until) * 8 * KIB).build())
    assert report.verdict is verdict
    assert ("has no name" in report.headline) is (verdict is RunVerdict.INCONCLUSIVE)
