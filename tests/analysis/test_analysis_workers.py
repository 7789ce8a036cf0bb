"""What recordings of DataLoader workers add to a report."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
import pytest
from synthetic_runs import GIB, KIB, MIB, Program, Thing

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind
from leakscope.model.census import Content, Owner
from leakscope.model.record import HeaderRecord, ProcessEndRecord
from leakscope.model.report import Culprit, Finding, Report, RunVerdict, Severity
from leakscope.model.run import Measurement, Recording, Run
from leakscope.report.page import deadline_words


def worker(program: Program, number: int = 0, **header) -> Recording:
    """A recording of a worker: passes over a loader, without optimizer steps."""
    reported = {"loader": 1, "start_method": "fork", "pid": 100 + number, **header}
    measurements = [_as_loading(m) for m in program.build().main.measurements]
    return Recording(
        header=HeaderRecord(role="worker", worker=number, **reported), measurements=measurements
    )


def _as_loading(m: Measurement) -> Measurement:
    where = {"phase": "pass" if m.boundary.phase else "", "step": 0, "epoch": 0}
    if m.boundary.kind is BoundaryKind.STEP:
        where["kind"] = BoundaryKind.BATCH
    return replace(m, boundary=msgspec.structs.replace(m.boundary, **where))


def loading(passes: int = 8) -> Program:
    return Program(epochs=passes, validation=0)


def run_of(parent: Program, *workers: Recording) -> Run:
    run = parent.build()
    run.recordings += workers
    return run


def copying(
    shares: list[float], start_method: str = "fork", number: int = 0, generation: int = 0
) -> Recording:
    """A worker with a steady list of which so much has been copied at each census, evenly."""
    samples = Thing("worker()·dataset.samples", lambda s: 200 * MIB, length=lambda s: 600_000)
    recording = worker(
        loading().plant(samples), number, start_method=start_method, generation=generation
    )
    censuses = [m.census for m in recording.measurements if m.census is not None]
    for n, census in enumerate(censuses):
        share = shares[n * len(shares) // len(censuses)]
        for place, row in enumerate(census.rows):
            census.rows[place] = msgspec.structs.replace(row, copied_share=share)
    return recording


def culprit(report: Report) -> Culprit:
    (only,) = report.culprits
    return only


def finding(report: Report, kind: str) -> Finding:
    return next(f for f in report.findings if f.kind == kind)


def leaking(number: int = 0, **header) -> Recording:
    return worker(loading().leak("Frames.cache", 400 * KIB), number, **header)


def test_a_leak_of_a_worker_is_a_leak_of_the_run():
    report = analyse(run_of(Program(epochs=8), leaking()))
    assert report.verdict is RunVerdict.LEAK
    assert culprit(report).name == "Frames.cache"
    assert culprit(report).workers == 1
    assert culprit(report).unit == "pass"
    assert culprit(report).bytes_per_unit == pytest.approx(40 * 400 * KIB, rel=0.05)
    assert "in a DataLoader worker" in report.headline


def test_a_leak_of_several_workers_is_one_culprit():
    report = analyse(run_of(Program(epochs=8), *(leaking(n) for n in range(4))))
    assert culprit(report).workers == 4
    assert culprit(report).bytes_per_unit == pytest.approx(40 * 400 * KIB, rel=0.05)
    assert "in each of 4 DataLoader workers" in culprit(report).sentence


def test_what_one_worker_holds_and_gains_is_distinguished_from_what_all_gain_in_a_pass():
    report = culprit(analyse(run_of(Program(epochs=8), *(leaking(n) for n in range(4))))).sentence
    single, _, rest = report.partition(
        " That is in one worker; it grows in each of 4 DataLoader workers, "
    )
    assert "grows by 15.6 MiB per pass" in single
    assert rest == "by 62.5 MiB per pass in all of them."


def test_the_forecast_of_workers_is_reported_as_a_time_too():
    workers = [leaking(n) for n in range(4)]
    report = analyse(run_of(Program(epochs=8, limit=64 * GIB), *workers))
    ahead = culprit(report).forecast
    assert ahead is not None
    assert ahead.unit == "pass"
    times = [m.boundary.time_s for m in workers[0].measurements]
    assert ahead.seconds_left == pytest.approx(
        ahead.units_left * (times[-1] - times[0]) / 8, rel=0.1
    )
    assert re.search(
        r"memory limit, some [\d,]+ minutes away at this pace\.", deadline_words(report)
    )


@pytest.mark.parametrize(
    ("started", "host", "later"),
    [
        (1_040.0, "here", 40.0),
        (960.0, "here", -40.0),
        (1_040.0, "there", None),
        (0.0, "here", None),
    ],
)
def test_clocks_are_held_against_each_other_on_one_machine_alone(started, host, later) -> None:
    parent = run_of(Program(epochs=1)).main
    parent.header = msgspec.structs.replace(parent.header, started=1_000.0, host="here")
    assert leaking(started=started, host=host).began_after(parent) == later


def test_the_course_of_a_workers_leak_is_reported_on_the_clock_of_its_parent() -> None:
    theirs = leaking(started=1_000.0 + 40.0, host="here")
    run = run_of(Program(epochs=8), theirs)
    run.main.header = msgspec.structs.replace(run.main.header, started=1_000.0, host="here")
    report = culprit(analyse(run))
    when = {m.boundary.index: m.boundary.time_s for m in theirs.measurements}
    assert report.chart_s == [pytest.approx(40.0 + when[p.boundary]) for p in report.chart]
    theirs.header = msgspec.structs.replace(theirs.header, host="there")
    assert culprit(analyse(run)).chart_s == []


def test_what_grows_in_workers_of_two_loaders_is_reported_as_the_one_has_it_that_loses_most():
    few = [worker(loading().leak("Frames.cache", 40 * KIB), n, loader=2, pid=n) for n in (7, 8, 9)]
    many = [leaking(n) for n in range(2)]
    report = analyse(run_of(Program(epochs=8), *few, *many))
    reported, alone = culprit(report), culprit(analyse(run_of(Program(epochs=8), *many)))
    assert reported.bytes_per_unit == pytest.approx(40 * 400 * KIB, rel=0.05)
    assert reported.workers == 2
    assert "It grows in 3 workers of other loaders too." in reported.sentence
    assert reported.forecast is not None and alone.forecast is not None
    assert reported.forecast.units_left == pytest.approx(
        alone.forecast.units_left / (1 + 3 * 40 / 800), rel=0.05
    )


def test_workers_of_one_epoch_after_the_other_are_not_added_up():
    workers = [leaking(n, generation=g, pid=10 * g + n) for g in range(3) for n in range(2)]
    assert culprit(analyse(run_of(Program(epochs=8), *workers))).workers == 2


def test_the_forecast_is_that_of_all_workers_together():
    single = culprit(analyse(run_of(Program(epochs=8, limit=64 * GIB), leaking()))).forecast
    parent = Program(epochs=8, limit=64 * GIB)
    four = culprit(analyse(run_of(parent, *(leaking(n) for n in range(4))))).forecast
    assert single is not None
    assert four is not None
    assert four.units_left == pytest.approx(single.units_left / 4, rel=0.05)


def test_the_worse_of_two_culprits_comes_first_wherever_it_grows():
    parent = Program(epochs=8).leak("Trainer.losses", 100 * KIB)
    report = analyse(run_of(parent, *(leaking(n) for n in range(4))))
    assert [c.name for c in report.culprits] == ["Frames.cache", "Trainer.losses"]
    assert [c.rank for c in report.culprits] == [1, 2]
    small = worker(loading().leak("Frames.cache", 10 * KIB))
    report = analyse(run_of(Program(epochs=8).leak("Trainer.losses", 100 * KIB), small))
    assert [c.name for c in report.culprits] == ["Trainer.losses", "Frames.cache"]


def test_growing_children_are_no_finding_where_workers_say_why():
    parent = Program(epochs=8).gauge(gauge.CHILDREN_PSS, lambda s: s.step * 800 * KIB)
    assert "children" in {f.kind for f in analyse(parent.build()).findings}
    report = analyse(run_of(parent, leaking(0), leaking(1)))
    assert "children" not in {f.kind for f in report.findings}


def test_growing_children_stay_a_finding_where_workers_explain_little_of_it():
    parent = Program(epochs=8).gauge(gauge.CHILDREN_PSS, lambda s: s.step * 8 * MIB)
    report = analyse(run_of(parent, leaking(0), leaking(1)))
    assert "children" in {f.kind for f in report.findings}


def test_steady_workers_change_no_verdict():
    steady = worker(loading().constant("worker()·dataset.images", 100 * MIB))
    report = analyse(run_of(Program(epochs=8), steady))
    assert report.verdict is RunVerdict.CLEAN
    assert [row.grows for row in report.workers] == [[]]


def test_what_forked_workers_copy_is_named_and_no_leak():
    workers = [copying([0.0, 0.2, 0.4, 0.6], number=n) for n in range(2)]
    report = analyse(run_of(Program(epochs=8), *workers))
    found = finding(report, "copy_on_write")
    assert report.verdict is RunVerdict.CLEAN
    assert found.severity is Severity.NOTE
    assert "dataset.samples" in found.title
    assert "600,000 items" in found.text
    assert "200 MiB in the parent" in found.text
    assert "2 forked workers copied up to 120 MiB" in found.text
    assert "160 MiB more may follow" in found.text
    assert found.falsifier is not None
    assert "0 % lay in the worker's own pages at the first look, 60 %" in str(
        found.falsifier.result
    )
    assert [row.copies for row in report.workers] == [["worker.dataset.samples"]] * 2


def with_private(recording: Recording, *sizes: float) -> Recording:
    """The same worker, with memory of its own of such sizes at its boundaries, evenly."""
    count = len(recording.measurements)
    for n, m in enumerate(recording.measurements):
        m.gauges[gauge.PRIVATE] = int(sizes[n * len(sizes) // count])
        m.gauges[gauge.PRIVATE_DIRTY] = m.gauges[gauge.PRIVATE]
    return recording


def test_pages_of_files_that_a_worker_alone_reads_are_no_copies():
    single = with_private(copying([0.0, 0.5, 1.0, 1.0]), 6 * MIB, 70 * MIB, 100 * MIB, 130 * MIB)
    for m in single.measurements:
        m.gauges[gauge.PRIVATE] += m.boundary.step * MIB
    found = finding(analyse(run_of(Program(epochs=8), single)), "copy_on_write")
    assert found.total_bytes == 124 * MIB


def test_what_was_copied_is_what_the_workers_own_memory_gained():
    single = with_private(copying([0.0, 0.5, 1.0, 1.0]), 6 * MIB, 70 * MIB, 100 * MIB, 130 * MIB)
    found = finding(analyse(run_of(Program(epochs=8), single)), "copy_on_write")
    assert (
        "copied up to 124 MiB of it (62 %) by looking at it; 76 MiB more may follow" in found.text
    )
    assert found.total_bytes == 124 * MIB
    assert "0 % lay in the worker's own pages at the first look, 100 %" in str(found.falsifier)


def test_more_than_a_structure_weighs_is_not_copied_of_it():
    single = with_private(copying([0.0, 1.0, 1.0, 1.0]), 6 * MIB, 500 * MIB)
    found = finding(analyse(run_of(Program(epochs=8), single)), "copy_on_write")
    assert "copied up to 200 MiB of it (100 %) by looking at it, all there is." in found.text


def test_all_is_not_copied_while_sampled_objects_are_shared():
    single = with_private(copying([0.0, 0.1, 0.1, 0.1]), 6 * MIB, 500 * MIB)
    found = finding(analyse(run_of(Program(epochs=8), single)), "copy_on_write")
    assert "180 MiB more may follow" in found.text


def test_own_memory_that_stays_was_not_copied_to():
    single = with_private(copying([0.0, 0.5, 1.0, 1.0]), 6 * MIB, 7 * MIB)
    assert analyse(run_of(Program(epochs=8), single)).findings == []


def test_what_grows_in_a_worker_is_no_copy_of_something_else():
    samples = Thing("worker()·dataset.samples", lambda s: 200 * MIB, length=lambda s: 600_000)
    single = worker(loading().leak("Frames.cache", 400 * KIB).plant(samples))
    censuses = [m.census for m in single.measurements if m.census is not None]
    for n, census in enumerate(censuses):
        for place, row in enumerate(census.rows):
            if row.path == samples.path:
                census.rows[place] = msgspec.structs.replace(row, copied_share=n / len(censuses))
    grown = 8 * 40 * 400 * KIB
    report = analyse(run_of(Program(epochs=8), with_private(single, 6 * MIB, grown + 56 * MIB)))
    assert culprit(report).name == "Frames.cache"
    assert finding(report, "copy_on_write").total_bytes == pytest.approx(50 * MIB, rel=0.2)


def test_a_look_at_pages_without_a_census_is_the_last_look():
    single = copying([0.0])
    first = next(n for n, m in enumerate(single.measurements) if m.census is not None)
    later = [replace(m, census=None) for m in single.measurements[first + 1 :]]
    later[-1].gauges[gauge.copied("worker()·dataset.samples")] = 750
    single.measurements[first + 1 :] = later
    found = finding(analyse(run_of(Program(epochs=8), single)), "copy_on_write")
    assert "copied up to 150 MiB of it (75 %)" in found.text


@pytest.mark.parametrize(
    ("types", "printed"),
    [
        ({"dict": 600_000, "int": 240}, "list of 600,000 dicts"),
        ({"__main__.Sample": 600_000}, "list of 600,000 Samples"),
        ({"str": 600_000}, "list of 600,000 strings"),
        ({"dict": 300_000, "list": 300_000}, "list of 600,000 items"),
    ],
)
def test_what_a_copied_structure_holds_is_reported_by_its_type(types, printed):
    held = [Content(type=name, count=count, bytes=count) for name, count in types.items()]
    single = copying([0.0, 0.6])
    for m in single.measurements:
        for place, row in enumerate(m.census.rows if m.census else []):
            m.census.rows[place] = msgspec.structs.replace(row, holds=held)
    found = finding(analyse(run_of(Program(epochs=8), single)), "copy_on_write")
    assert f"({printed}) holds 200 MiB in the parent" in found.text


def test_copies_that_would_fill_memory_are_a_warning():
    parent = Program(epochs=8, limit=650 * MIB)
    workers = [copying([0.0, 0.2, 0.4, 0.5], number=n) for n in range(2)]
    found = finding(analyse(run_of(parent, *workers)), "copy_on_write")
    assert found.severity is Severity.WARNING


def test_growing_children_are_no_finding_where_they_copy_what_they_inherited():
    parent = Program(epochs=8).gauge(gauge.CHILDREN_PSS, lambda s: s.step * 500 * KIB)
    report = analyse(run_of(parent, copying([0.0, 0.3, 0.6]), copying([0.0, 0.3, 0.6], number=1)))
    assert {f.kind for f in report.findings} == {"copy_on_write"}


def test_what_is_copied_is_reported_of_the_workers_that_live_at_the_same_time():
    passes = [copying([0.0, 0.3, 0.6], number=n, generation=g) for g in range(3) for n in range(2)]
    found = finding(analyse(run_of(Program(epochs=8), *passes)), "copy_on_write")
    assert "2 forked workers copied up to 120 MiB" in found.text
    assert "by looking at it, 240 MiB in all of them; 160 MiB more may follow." in found.text
    assert found.total_bytes == 240 * MIB


def test_workers_of_two_loaders_that_copy_the_same_are_counted_together():
    workers = [copying([0.0, 0.3, 0.6]) for _ in range(2)]
    workers[1].header = msgspec.structs.replace(workers[1].header, loader=2)
    found = finding(analyse(run_of(Program(epochs=8), *workers)), "copy_on_write")
    assert "2 forked workers copied up to 120 MiB" in found.text
    assert found.total_bytes == 240 * MIB


def test_what_workers_of_one_pass_after_the_other_copy_hides_no_growth_of_children():
    parent = Program(epochs=8).gauge(gauge.CHILDREN_PSS, lambda s: s.step * 2 * MIB)
    passes = [copying([0.0, 0.3, 0.6], generation=g) for g in range(4)]
    report = analyse(run_of(parent, *passes))
    assert {f.kind for f in report.findings} == {"copy_on_write", "children"}


def test_what_is_shared_all_along_is_not_copied():
    report = analyse(run_of(Program(epochs=8), copying([0.0, 0.01, 0.02])))
    assert report.findings == []


def test_what_was_the_workers_own_from_the_beginning_is_not_copied():
    report = analyse(run_of(Program(epochs=8), copying([1.0, 1.0])))
    assert report.findings == []


@pytest.mark.parametrize(("held", "reported"), [(200, True), (260, False), (0, False)])
def test_what_was_copied_before_the_first_look_is_reported_where_the_parent_holds_it_too(
    held: int, reported: bool
) -> None:
    parent = Program(epochs=8).constant("worker()·dataset.samples", held * MIB)
    report = analyse(run_of(parent, copying([1.0, 1.0])))
    assert [f.kind for f in report.findings] == ["copy_on_write"] * reported
    for found in report.findings:
        assert found.total_bytes == 200 * MIB
        assert "by looking at it, or the garbage collector did, which looks at all" in found.text
        assert "100 % lay in the worker's own pages at the first look" in str(found.falsifier)


def test_growing_children_stay_a_finding_next_to_what_was_copied_at_once() -> None:
    parent = Program(epochs=8).constant("worker()·dataset.samples", 200 * MIB)
    parent.gauge(gauge.CHILDREN_PSS, lambda s: s.step * 500 * KIB)
    report = analyse(run_of(parent, copying([1.0, 1.0])))
    assert {f.kind for f in report.findings} == {"copy_on_write", "children"}


def test_what_grows_by_itself_is_not_reported_as_copied():
    growing = loading().leak("worker()·dataset.cache", 400 * KIB)
    recording = worker(growing)
    for m in recording.measurements:
        for place, row in enumerate(m.census.rows if m.census else []):
            share = 0.1 + 0.8 * m.boundary.occurrence / 8
            m.census.rows[place] = msgspec.structs.replace(row, copied_share=share)
    report = analyse(run_of(Program(epochs=8), recording))
    assert [c.name for c in report.culprits] == ["worker.dataset.cache"]
    assert "copy_on_write" not in {f.kind for f in report.findings}


def test_spawned_workers_hold_copies_and_copy_nothing():
    workers = [copying([0.0, 0.9], "spawn", number=n) for n in range(2)]
    report = analyse(run_of(Program(epochs=8), *workers))
    (found,) = report.findings
    assert (found.kind, found.severity) == ("worker_copies", Severity.NOTE)
    assert "200 MiB in each of 2 workers, 400 MiB together" in found.text


def test_copies_of_one_epoch_after_the_other_are_not_added_up():
    workers = [
        copying([0.0, 0.9], "spawn", number=n, generation=g) for g in range(3) for n in range(2)
    ]
    (found,) = analyse(run_of(Program(epochs=8), *workers)).findings
    assert "in each of 2 workers" in found.text


def test_what_grew_in_spawned_workers_was_not_sent_to_them():
    cache = Thing("Frames.cache", lambda s: 40 * MIB + s.step * MIB, length=lambda s: 4000 + s.step)
    workers = [worker(loading().plant(cache), n, start_method="spawn") for n in range(2)]
    assert "worker_copies" not in {f.kind for f in analyse(run_of(Program(), *workers)).findings}


def test_what_spawned_workers_made_themselves_was_not_sent_to_them():
    def made(s):
        return 80 * MIB if s.epoch > 1 else 0

    index = Thing("Frames.index", made, length=lambda s: 4000)
    workers = [worker(loading().plant(index), n, start_method="spawn") for n in range(2)]
    assert "worker_copies" not in {f.kind for f in analyse(run_of(Program(), *workers)).findings}


def test_each_worker_has_a_row_the_heaviest_first():
    heavy = loading().gauge(gauge.PSS, lambda s: 300 * MIB)
    heavy.gauge(gauge.PRIVATE, lambda s: 20 * MIB + s.step * MIB)
    light = loading().gauge(gauge.PSS, lambda s: 100 * MIB)
    report = analyse(run_of(Program(epochs=8), worker(light, 0), worker(heavy, 1)))
    first, second = report.workers
    assert (first.worker, second.worker) == (1, 0)
    assert first.batches == 8 * 40
    assert first.private_last_bytes is not None
    assert first.private_last_bytes > first.private_first_bytes
    assert second.private_first_bytes is None


def test_an_empty_recording_of_a_worker_is_passed_over():
    empty = Recording(header=HeaderRecord(role="worker", worker=0))
    assert analyse(run_of(Program(epochs=8), empty)).workers == []


ITERATOR = "torch.utils.data.dataloader._MultiProcessingDataLoaderIter"


def keeping_loaders(each: float = 60 * MIB, processes=lambda s: 2 * s.epochs_done) -> Program:
    """A program that keeps the loader of each epoch, with two workers of so many bytes."""
    parent = Program(epochs=8).leak("loaders", 25 * KIB, "epoch")
    parent.plant(
        Thing(
            "loaders[*]._iterator",
            lambda s: 20 * KIB * s.epochs_done,
            "object",
            ITERATOR,
            "loaders",
            count=lambda s: s.epochs_done,
        )
    )
    parent.gauge(gauge.CHILDREN, processes)
    return parent.gauge(gauge.CHILDREN_PSS, lambda s: each * processes(s))


def test_what_keeps_ever_more_worker_processes_alive_is_named():
    report = analyse(keeping_loaders().build())
    assert report.verdict is RunVerdict.LEAK
    assert {f.kind for f in report.findings} == {"worker_processes"}
    found = finding(report, "worker_processes")
    assert found.severity is Severity.WARNING
    assert found.title == "Worker processes pile up: loaders keeps them alive"
    assert "16 child processes at last, 2.0 more per epoch" in found.text
    assert "each takes 60 MiB" in found.text
    assert found.bytes_per_unit == pytest.approx(120 * MIB, rel=0.05)
    assert "one DataLoader" in found.remedy.title
    assert report.headline.startswith("Memory grows: worker processes pile up")


@pytest.mark.parametrize("epochs", [{0, 1, 3, 5}, {0, 1, 2, 3}], ids=["far apart", "at first"])
def test_processes_that_are_counted_seldom_and_at_the_end_are_seen_to_pile_up(epochs):
    def seen(state):
        is_read = state.epoch in epochs or state.kind is BoundaryKind.RUN_END
        return 2 * min(state.epoch + 1, 8) if is_read else None

    parent = keeping_loaders(processes=lambda s: seen(s) or 0)
    parent.gauge(gauge.CHILDREN, seen)
    parent.gauge(gauge.CHILDREN_PSS, lambda s: None if (n := seen(s)) is None else n * 60 * MIB)
    found = finding(analyse(parent.build()), "worker_processes")
    assert "16 child processes at last" in found.text
    assert found.bytes_per_unit == pytest.approx(120 * MIB, rel=0.12)


def test_small_processes_that_pile_up_are_a_note():
    found = finding(analyse(keeping_loaders(each=100 * KIB).build()), "worker_processes")
    assert found.severity is Severity.NOTE


def test_processes_that_pile_up_to_the_limit_are_critical():
    parent = keeping_loaders()
    parent.limit = 4 * GIB
    assert finding(analyse(parent.build()), "worker_processes").severity is Severity.CRITICAL


@pytest.mark.parametrize(
    "processes",
    [lambda s: 12, lambda s: 4 * min(s.epochs_done, 3), lambda s: 2 * (s.epochs_done % 2)],
    ids=["from the beginning", "three loaders one after the other", "dropped again"],
)
def test_processes_that_come_and_stay_or_go_are_no_finding(processes):
    report = analyse(keeping_loaders(processes=processes).build())
    assert "worker_processes" not in {f.kind for f in report.findings}


def test_processes_that_nothing_known_keeps_are_reported_without_a_name():
    parent = Program(epochs=8).gauge(gauge.CHILDREN, lambda s: 2 * s.epochs_done)
    parent.gauge(gauge.CHILDREN_PSS, lambda s: 120 * MIB * s.epochs_done)
    assert {f.kind for f in analyse(parent.build()).findings} == {"children", "processes"}


def keeping_in_closures(each: float = 60 * MIB) -> Program:
    """The same, each loader kept by a function in a list: kilobytes, which nothing accuses."""
    parent = keeping_loaders(each)
    parent.things.clear()
    gathered = lambda s: s.epochs_done  # noqa: E731
    history = Thing("Trainer.history", lambda s: 20 * KIB + 100 * s.epochs_done, length=gathered)
    loader = "Trainer.history[*]⟨loader⟩"
    kept = Thing(loader, lambda s: 20 * KIB, "object", LOADER, "Trainer.history", count=gathered)
    return parent.plant(history, kept)


LOADER = "torch.utils.data.dataloader.DataLoader"


def test_what_keeps_worker_processes_alive_is_named_however_little_it_weighs():
    report = analyse(keeping_in_closures().build())
    assert report.culprits == []
    found = finding(report, "worker_processes")
    assert found.title == "Worker processes pile up: Trainer.history keeps them alive"
    assert "Trainer.history gathers DataLoaders" in found.text
    assert {f.kind for f in report.findings} == {"worker_processes"}


def test_workers_that_pile_up_by_nothing_that_a_census_shows_are_not_reported_to_grow_each():
    parent = keeping_loaders()
    parent.things.clear()
    report = analyse(run_of(parent, worker(loading(1))))
    assert {f.kind for f in report.findings} == {"worker_processes"}
    found = finding(report, "worker_processes")
    assert found.title == "Worker processes pile up"
    assert "one DataLoader" in found.remedy.title


def dying(*ends: ProcessEndRecord, **outcome: int) -> Report:
    run = run_of(
        Program(epochs=8), worker(loading().gauge(gauge.PSS, lambda s: 300 * MIB), pid=101)
    )
    run.main.process_ends += ends
    run.outcome = {**outcome}
    return analyse(run)


def test_workers_that_died_are_reported_with_their_exit_and_are_no_leak():
    ends = [ProcessEndRecord(boundary=n, pid=101, exit_code=-9, loader=1) for n in (60, 333)]
    report = dying(*ends, oom_kills=2)
    assert report.verdict is RunVerdict.CLEAN
    found = finding(report, "workers_died")
    assert found.severity is Severity.WARNING
    assert found.title == "2 processes died"
    assert "2 workers of loader 1 were ended by SIGKILL between steps" in found.text
    assert "The heaviest held 300 MiB at its last reading" in found.text
    assert "The kernel killed 2 processes of this control group for lack of memory" in found.text
    assert found.bytes_per_unit == 0


def test_a_worker_of_another_rank_is_not_taken_for_one_of_the_same_number_that_died():
    run = run_of(
        Program(epochs=8),
        worker(loading().gauge(gauge.PSS, lambda s: 300 * MIB), pid=101),
        worker(loading().gauge(gauge.PSS, lambda s: 900 * MIB), pid=101, rank=1),
    )
    run.main.process_ends.append(ProcessEndRecord(boundary=60, pid=101, exit_code=-9, loader=1))
    assert "The heaviest held 300 MiB" in finding(analyse(run), "workers_died").text


def test_what_a_dead_worker_held_is_its_share_though_resident_memory_was_read_last():
    program = loading().gauge(gauge.RSS, lambda s: 900 * MIB)
    program.gauge(gauge.PSS, lambda s: 40 * MIB if s.step < 200 else None)
    run = run_of(Program(epochs=8), worker(program, pid=101))
    run.main.process_ends.append(ProcessEndRecord(boundary=60, pid=101, exit_code=-9, loader=1))
    assert "The heaviest held 40 MiB" in finding(analyse(run), "workers_died").text


def test_processes_that_left_with_an_exit_code_are_a_note():
    report = dying(ProcessEndRecord(boundary=0, pid=7, exit_code=3, name="ForkPoolWorker"))
    found = finding(report, "workers_died")
    assert found.severity is Severity.NOTE
    assert found.text.startswith("1 ForkPoolWorker left with exit code 3. What they held")


def test_a_bus_error_points_to_shared_memory():
    report = dying(ProcessEndRecord(boundary=0, pid=7, exit_code=-7, loader=2))
    assert "--shm-size" in finding(report, "workers_died").remedy.text


def fetching(batch: int, prefetch: int = 4, **header) -> Recording:
    return worker(loading().gauge(gauge.BATCH, lambda s: batch), prefetch=prefetch, **header)


def test_what_is_prefetched_is_cleared_with_its_bound():
    report = analyse(run_of(Program(epochs=8), fetching(15 * MIB), fetching(15 * MIB, number=1)))
    (cleared,) = (c for c in report.cleared if c.name == "batches prefetched by loader 1")
    assert cleared.total_bytes == 120 * MIB
    assert cleared.reason == "bounded: 120 MiB, 8 batches of up to 15 MiB (prefetch_factor=4)"
    assert {row.prefetch for row in report.workers} == {4}
    assert {row.batch_bytes for row in report.workers} == {15 * MIB}


def test_prefetching_in_one_epoch_after_the_other_is_not_added_up():
    workers = [fetching(15 * MIB, generation=n) for n in range(3)]
    (cleared,) = (
        c for c in analyse(run_of(Program(epochs=8), *workers)).cleared if "prefetched" in c.name
    )
    assert cleared.total_bytes == 60 * MIB


def test_little_that_is_prefetched_is_not_worth_a_word():
    report = analyse(run_of(Program(epochs=8), fetching(10 * KIB)))
    assert not [c for c in report.cleared if "prefetched" in c.name]


def with_descriptors(count, limit: int = 1 << 20, files=None) -> Report:
    program = Program(epochs=8).gauge(gauge.SHARED_DESCRIPTORS, count)
    program.gauge(gauge.OPEN_FILES, files or (lambda s: 10 + count(s)))
    return analyse(program.gauge(gauge.OPEN_FILES_LIMIT, lambda s: limit).build())


def test_descriptors_of_shared_memory_far_from_the_limit_are_a_note():
    report = with_descriptors(lambda s: 40 * s.epochs_done)
    (found,) = report.findings
    assert (found.kind, found.severity) == ("shared_descriptors", Severity.NOTE)
    assert "39 per epoch" in found.text, "of a staircase"
    assert report.verdict is RunVerdict.CLEAN


def test_descriptors_that_reach_the_limit_are_a_warning():
    report = with_descriptors(lambda s: 40 * s.epochs_done, limit=1024)
    assert finding(report, "shared_descriptors").severity is Severity.WARNING


def test_descriptors_of_batches_on_their_way_are_no_finding():
    assert with_descriptors(lambda s: 40 + s.step % 7).findings == []


def test_other_open_files_are_still_reported_as_such():
    report = with_descriptors(lambda s: 3, files=lambda s: 10 + 40 * s.epochs_done)
    assert {f.kind for f in report.findings} == {"open_files"}


def test_what_climbs_through_the_only_pass_of_a_worker_is_growth_of_its_whole_run():
    passing = Program(epochs=1, steps=200, validation=0, inner=10)
    passing.local("worker()·Stream.__iter__()·pool", 400 * KIB, phase="train")
    report = analyse(run_of(Program(epochs=8), worker(passing)))
    found = culprit(report)
    assert (found.growth, found.phase, found.unit) == ("across", "pass", "batch")
    assert report.headline.startswith("Memory leaks:")
    text = f"{report.headline} {found.sentence} {found.remedy.text}"
    assert not any(words in text for words in ("freed only", "falls back", "it sets the peak"))


def test_what_climbs_in_workers_that_live_for_one_pass_is_freed_when_that_ends():
    def passing():
        program = Program(epochs=1, steps=200, validation=0, inner=10)
        return program.local("worker()·Stream.__iter__()·pool", 400 * KIB, phase="train")

    again = [worker(passing(), generation=n, pid=n) for n in range(3)]
    report = analyse(run_of(Program(epochs=8), *again))
    assert culprit(report).falls_back
    text = f"{report.headline} {culprit(report).sentence} {culprit(report).remedy.text}"
    assert "nothing shows it" not in text


def test_what_climbs_through_each_pass_of_a_worker_is_reported_to_fall_back():
    passing = loading().local("worker()·Stream.__iter__()·pool", 800 * KIB, phase="train")
    found = culprit(analyse(run_of(Program(epochs=8), worker(passing))))
    assert (found.growth, found.falls_back) == ("within", True)
    assert "falls back when it ends" in found.sentence


def test_a_culprit_of_workers_is_reported_as_looked_at_before_their_last_pass() -> None:
    late = leaking()
    for place, m in enumerate(late.measurements):
        if m.boundary.occurrence > 5:
            late.measurements[place] = replace(m, census=None)
    report = culprit(analyse(run_of(Program(epochs=8), late))).sentence
    assert "last looked at in pass 6 of 8" in report
    whole = culprit(analyse(run_of(Program(epochs=8), leaking()))).sentence
    assert "last looked at" not in whole


def caching(number: int = 0, path: str = "Frames.cache", **header) -> Recording:
    """A worker whose cache fills over two passes and then stays."""
    filling = Thing(
        path,
        lambda s: min(s.step, 80) * 100 * KIB,
        length=lambda s: min(s.step, 80),
        type="OrderedDict",
        kind="dict",
    )
    return worker(loading().plant(filling), number, **header)


def bounded(report: Report) -> list[str]:
    return [f"{item.name}: {item.reason}" for item in report.cleared if item.kind == "bounded"]


def test_what_fills_up_in_workers_is_reported_as_fine():
    report = bounded(analyse(run_of(Program(epochs=8), *(caching(n) for n in range(2)))))
    (only,) = report
    assert only.startswith("Frames.cache: bounded: 80 entries since pass ")
    assert only.endswith("(7.8 MiB), in each of 2 DataLoader workers, 15.6 MiB in all of them")


def test_workers_that_follow_one_another_are_not_added_up_in_what_is_fine():
    workers = [caching(generation=g, pid=10 + g) for g in range(3)]
    (only,) = bounded(analyse(run_of(Program(epochs=8), *workers)))
    assert only.endswith("(7.8 MiB), in a DataLoader worker")


def test_what_grows_in_one_worker_is_not_called_fine_for_another():
    report = analyse(run_of(Program(epochs=8), caching(0), leaking(1)))
    assert culprit(report).name == "Frames.cache"
    assert bounded(report) == []


def test_what_a_worker_merely_holds_is_not_listed_once_more():
    steady = worker(loading().constant("worker()·dataset.images", 100 * MIB))
    assert analyse(run_of(Program(epochs=8), steady)).cleared == []


def test_workers_of_one_number_on_two_machines_are_distinguished():
    shares = [0.0, 0.2, 0.4, 0.6]
    copies, steady = copying(shares), worker(loading(), rank=1)
    assert copies.header.pid == steady.header.pid
    report = analyse(run_of(Program(epochs=8), copies, steady))
    assert {row.rank: row.copies for row in report.workers} == {
        0: ["worker.dataset.samples"],
        1: [],
    }


def parent_of_growing_children(rate: float) -> Program:
    parent = Program(epochs=8, validation=0).gauge(gauge.PSS, lambda s: 300 * MIB)
    parent.gauge(gauge.CHILDREN, lambda s: 2)
    return parent.gauge(gauge.CHILDREN_PSS, lambda s: 100 * MIB + s.step * rate)


def ledger_of(report: Report) -> dict[str, int]:
    (host,) = report.ledgers
    assert sum(entry.bytes for entry in host.entries) == host.total_bytes
    return {entry.label: entry.bytes for entry in host.entries}


@pytest.mark.parametrize(("neighbour", "reported"), [(0, 1.0), (1600 * KIB, 1 / 3)])
def test_what_grows_in_workers_has_its_part_of_the_ledger(neighbour, reported):
    parent = parent_of_growing_children(2 * 400 * KIB + neighbour)
    report = analyse(run_of(parent, leaking(0), leaking(1)))
    (host,) = report.ledgers
    part = ledger_of(report)["Frames.cache in 2 workers"]
    assert part == pytest.approx(reported * host.total_bytes, rel=0.1)
    left = sum(size for label, size in ledger_of(report).items() if "child processes" in label)
    assert left == pytest.approx((1 - reported) * host.total_bytes, abs=0.1 * host.total_bytes)


def test_no_more_is_put_down_to_workers_than_child_processes_gained():
    report = analyse(run_of(parent_of_growing_children(100 * KIB), leaking(0), leaking(1)))
    (host,) = report.ledgers
    assert 0 < ledger_of(report)["Frames.cache in 2 workers"] <= host.total_bytes


def test_workers_of_another_rank_have_no_part_of_this_ones_ledger():
    parent = parent_of_growing_children(800 * KIB)
    report = analyse(run_of(parent, leaking(0, rank=1)))
    assert not any("Frames.cache" in label for label in ledger_of(report))


BOUNDED = """
class Frames:
    def __init__(self, most):
        self.most = most
        self.cache = {}

    def __getitem__(self, i):
        if len(self.cache) < self.most:
            self.cache[i] = load(i)
        return self.cache.get(i)
"""


@pytest.mark.parametrize("limit", ["len(self.cache) < self.most", "self.has_room(i)"])
def test_what_the_source_bounds_in_workers_leaves_the_run_open(limit: str) -> None:
    file = "/project/train.py"
    run = run_of(Program(epochs=8), leaking())
    owner = Owner(kind="class", name="Frames", variable="cache", file=file)
    for measurement in run.recordings[1].measurements:
        rows = measurement.census.rows if measurement.census is not None else []
        rows[:] = [msgspec.structs.replace(row, owner=owner) for row in rows]
    run.main.sources = {file: BOUNDED.replace("len(self.cache) < self.most", limit)}
    report = analyse(run)
    is_bounded = limit.startswith("len")
    assert report.verdict is (RunVerdict.INCONCLUSIVE if is_bounded else RunVerdict.LEAK)
    assert ("towards its bound, self.most at train.py:8" in report.headline) is is_bounded
