"""What recordings of child processes add to a report, and one verdict of all of them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from synthetic_runs import KIB, MIB, Program, State, Thing

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.record import EndRecord, HeaderRecord, ProcessEndRecord
from leakscope.model.report import Report, RunVerdict, Severity
from leakscope.model.run import Measurement, Recording, Run
from leakscope.report.markdown import suspect_markdown
from leakscope.report.page import report_page
from leakscope.report.terminal import render_summary, render_text

LEAKING = Program(epochs=8).leak("RolloutWorker.frames", 400 * KIB)


def child(program: Program, number: int, **reported) -> Recording:
    facts = {"name": f"Process-{number}", "target": "__main__.rollout", "pid": 100 + number}
    facts |= {"start_method": "spawn", "parent": 1, "host": "here", "started": 1.0, **reported}
    return Recording(
        header=HeaderRecord(role="child", child=number, **facts),
        measurements=program.build().main.measurements,
        end=EndRecord(status="completed"),
    )


def run_of(parent: Program, *children: Recording) -> Run:
    run = parent.build()
    run.main.header = msgspec.structs.replace(run.main.header, pid=1, host="here", started=1.0)
    run.recordings += children
    return run


def report_of(parent: Program, *children: Recording) -> Report:
    return analyse(run_of(parent, *children))


def row(report: Report, label: str):
    return next(process for process in report.processes if process.label == label)


def healthy() -> Program:
    return Program(epochs=8)


def at_its_ends(recording: Recording) -> list[Measurement]:
    """What is read of a process that makes no boundaries of its own in a short time."""
    return [recording.measurements[0], recording.measurements[-1]]


def test_a_leak_of_a_child_is_a_leak_of_the_run_with_the_process_that_has_it():
    report = report_of(healthy(), child(healthy(), 1), child(LEAKING, 2))
    assert report.verdict is RunVerdict.LEAK
    (culprit,) = [c for c in report.culprits if c.severity is not Severity.NOTE]
    assert culprit.name == "RolloutWorker.frames"
    assert (culprit.process, culprit.processes) == ("child 2 of 2", ["child 2 of 2"])
    assert "RolloutWorker.frames grows by" in report.headline
    assert "in child 2 of 2" in report.headline
    assert report.process == "child 2 of 2"
    assert row(report, "child 2 of 2").verdict == "leak"
    assert row(report, "child 1 of 2").verdict == "clean"


def test_what_grows_in_all_children_is_one_culprit_at_the_rate_of_one():
    report = report_of(healthy(), child(LEAKING, 1), child(LEAKING, 2))
    (culprit,) = [c for c in report.culprits if c.severity is not Severity.NOTE]
    assert culprit.processes == ["child 1 of 2", "child 2 of 2"]
    assert "in each of 2 child processes" in report.headline
    assert culprit.bytes_per_unit == pytest.approx(400 * KIB, rel=0.05)


def test_a_leak_of_the_parent_is_reported_as_before_next_to_its_children():
    report = report_of(LEAKING, child(healthy(), 1))
    assert report.verdict is RunVerdict.LEAK
    assert report.process == "main process"
    assert "child" not in report.headline
    assert row(report, "the child process").verdict == "clean"


def test_a_run_is_clean_where_all_of_its_processes_are():
    report = report_of(healthy(), child(healthy(), 1), child(healthy(), 2))
    assert report.verdict is RunVerdict.CLEAN
    assert report.headline.startswith("No leak found in 3 processes, ")
    assert [process.verdict for process in report.processes] == ["clean"] * 3


def test_a_parent_that_waits_for_healthy_children_leaves_nothing_open():
    run = run_of(healthy(), child(healthy(), 1))
    run.main.measurements = at_its_ends(run.main)
    report = analyse(run)
    assert report.verdict is RunVerdict.CLEAN
    assert not row(report, "main process").decides


@pytest.mark.parametrize(("events", "supervises"), [({}, True), ({"request": 500}, False)])
def test_a_parent_that_answers_requests_does_not_supervise(events, supervises):
    run = run_of(healthy(), child(healthy(), 1))
    run.main.measurements = [
        replace(at, boundary=msgspec.structs.replace(at.boundary, step=0), events=events)
        for at in at_its_ends(run.main)
    ]
    assert row(analyse(run), "main process").supervises is supervises


def test_a_child_that_rose_too_short_a_time_leaves_the_run_open():
    rising = child(Program(epochs=8).leak("RolloutWorker.frames", 400 * KIB), 1)
    rising.measurements = at_its_ends(rising)
    report = report_of(healthy(), rising)
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert report.missing[0].startswith("In the child process: ")


def test_a_child_whose_cache_has_become_full_is_clean():
    def entries(state: State) -> float:
        return min(state.step, 60)

    cache = Thing(
        "render", lambda s: entries(s) * 100 * KIB, "lru_cache", length=entries, capacity=60
    )
    report = report_of(healthy(), child(Program(epochs=2).plant(cache), 1))
    assert report.verdict is RunVerdict.CLEAN, report.headline


def test_the_sum_of_children_that_record_is_no_finding_of_its_own():
    run = run_of(healthy(), child(LEAKING, 1))
    run.main.measurements = [
        replace(m, gauges={**m.gauges, gauge.CHILDREN: 1, gauge.CHILDREN_PSS: c.gauges[gauge.RSS]})
        for m, c in zip(run.main.measurements, run.recordings[1].measurements, strict=True)
    ]
    report = analyse(run)
    assert report.verdict is RunVerdict.LEAK
    assert "children" not in [finding.kind for finding in report.findings]


def test_nothing_is_left_of_children_whose_pages_were_divided_at_their_begin_alone():
    """As where the kernel is slow to: they go on growing, and end by a signal, without a record."""
    run = run_of(healthy(), recorded := child(LEAKING, 1))
    recorded.end = None
    shared = 10 * MIB
    first = recorded.measurements[0].gauges
    first[gauge.PSS] = first[gauge.RSS] - shared
    run.main.measurements = [
        replace(
            m,
            gauges={
                **m.gauges,
                gauge.CHILDREN: 1,
                gauge.CHILDREN_PSS: c.gauges[gauge.RSS] - shared,
            },
        )
        for m, c in zip(run.main.measurements, recorded.measurements, strict=True)
    ]
    report = analyse(run)
    assert report.process == "the child process"
    assert "not recorded" not in {process.label for process in report.processes}
    assert "children" not in {finding.kind for finding in report.findings}


def test_children_that_did_not_record_stand_there_with_their_bytes():
    run = run_of(healthy(), child(healthy(), 1))
    run.main.measurements = [
        replace(
            m,
            gauges={
                **m.gauges,
                gauge.CHILDREN: 2,
                gauge.CHILDREN_PSS: c.gauges[gauge.RSS] + 300 * MIB,
            },
        )
        for m, c in zip(run.main.measurements, run.recordings[1].measurements, strict=True)
    ]
    report = analyse(run)
    left = row(report, "not recorded")
    assert not left.is_recorded
    assert left.peak_bytes == pytest.approx(300 * MIB, rel=0.1)
    assert report.verdict is RunVerdict.CLEAN


@pytest.mark.parametrize("code", [-15, -2])
def test_children_that_are_signalled_to_end_are_no_finding(code):
    ended = child(healthy(), 1)
    ended.end = None
    run = run_of(healthy(), ended)
    run.main.process_ends = [ProcessEndRecord(boundary=1, pid=101, exit_code=code, name="Process")]
    report = analyse(run)
    assert report.verdict is RunVerdict.CLEAN
    assert not report.findings
    assert row(report, "the child process").ended.startswith("terminated (SIG")


def test_a_child_that_died_is_reported_without_a_word_of_loaders():
    run = run_of(healthy(), child(healthy(), 1))
    run.main.process_ends = [ProcessEndRecord(boundary=1, pid=101, exit_code=-9, name="Process")]
    (finding,) = [f for f in analyse(run).findings if f.kind == "workers_died"]
    text = f"{finding.title} {finding.text} {finding.remedy.title} {finding.remedy.text}"
    assert "num_workers" not in text
    assert "prefetch" not in text


def test_the_child_that_leaves_the_course_of_its_like_is_named():
    report = report_of(healthy(), *(child(healthy(), n) for n in (1, 2)), child(LEAKING, 3))
    assert report.odd_process.startswith("Child 3 of 3 leaves the others' course")


def test_without_children_nothing_is_reported_of_processes():
    report = analyse(healthy().build())
    assert (report.processes, report.process, report.odd_process) == ([], "", "")
    assert "#processes" not in report_page(report).title
    assert report_page(report).processes is None


def test_every_form_of_the_report_has_the_processes():
    report = report_of(healthy(), child(healthy(), 1), child(LEAKING, 2))
    page = report_page(report)
    assert page.processes is not None
    assert page.processes.rows == report.processes
    assert page.of_rank == "child 2 of 2"
    for text in (render_text(report), render_summary(report, report_path="report.html")):
        assert "child 2 of 2 (rollout, 102)" in text
        assert "leak: RolloutWorker.frames" in text
    assert "- **process:** child 2 of 2" in suspect_markdown(report.culprits[0])


def worker_of_a_pool(
    number: int,
    began: float,
    *,
    leaks: Program = LEAKING,
    target: str = "multiprocessing.pool.worker",
) -> Recording:
    """Return one that begins then and lives as long as its program."""
    pool = {"target": target, "start_method": "fork", "started": began}
    recording = child(leaks, number, **pool)
    recording.end = EndRecord(status="exit", time_s=recording.measurements[-1].boundary.time_s)
    return recording


def test_what_workers_gather_that_a_pool_replaces_is_no_leak():
    length = LEAKING.build().main.measurements[-1].boundary.time_s + 0.5
    workers = [worker_of_a_pool(n, 1.0 + n * length) for n in range(4)]
    report = report_of(healthy(), *workers)
    assert report.verdict is RunVerdict.CLEAN
    cleared = [c for c in report.cleared if "goes with its process" in c.reason]
    assert {c.name for c in cleared} == {"RolloutWorker.frames"}
    assert "3 such processes were replaced meanwhile" in cleared[0].reason


@pytest.mark.parametrize("target", ["__main__.train_fold", ""])
def test_what_processes_gather_that_the_program_starts_in_turn_is_a_leak(target: str):
    length = LEAKING.build().main.measurements[-1].boundary.time_s + 0.5
    folds = [worker_of_a_pool(n, 1.0 + n * length, target=target) for n in range(4)]
    report = report_of(healthy(), *folds)
    assert report.verdict is RunVerdict.LEAK
    assert report.culprits[0].name == "RolloutWorker.frames"


def test_workers_that_live_side_by_side_are_not_replaced():
    workers = [worker_of_a_pool(n, 1.0) for n in range(4)]
    assert report_of(healthy(), *workers).verdict is RunVerdict.LEAK


def test_a_worker_that_gathers_far_more_than_those_replaced_before_leaks():
    length = LEAKING.build().main.measurements[-1].boundary.time_s + 0.5
    workers = [worker_of_a_pool(n, 1.0 + n * length) for n in range(3)]
    longer = Program(epochs=24).leak("RolloutWorker.frames", 400 * KIB)
    workers.append(worker_of_a_pool(3, 1.0 + 3 * length, leaks=longer))
    assert report_of(healthy(), *workers).verdict is RunVerdict.LEAK


@pytest.mark.parametrize("each", [4 * MIB, 0])
def test_children_that_record_nothing_are_judged_next_to_one_that_does(each):
    run = run_of(Program(epochs=12), child(healthy(), 1))
    readings = run.main.measurements
    for number, measured in enumerate(readings):
        held = 300 * MIB + each * number // 4
        ended = number >= len(readings) - 2
        measured.gauges[gauge.CHILDREN] = 1 if ended else 4
        measured.gauges[gauge.CHILDREN_PSS] = 40 * MIB if ended else held
    report = analyse(run)
    assert report.verdict is (RunVerdict.LEAK if each else RunVerdict.CLEAN)
    if each:
        assert "child processes grow" in report.headline
        assert "They are processes that don't record themselves." in report.findings[0].text


@pytest.mark.parametrize(("rate", "verdict"), [(8 * MIB, "inconclusive"), (0, "clean")])
def test_children_that_grew_as_far_as_they_were_read_acquit_nobody(rate: int, verdict: str) -> None:
    """Reading them may cost more than the budget of a short run has."""
    program = Program(epochs=10).gauge(gauge.CHILDREN, lambda _: 1)
    run = program.gauge(gauge.CHILDREN_PSS, lambda s: 50 * MIB + s.epochs_done * rate).build()
    for measurement in run.main.measurements[len(run.main.measurements) * 6 // 10 :]:
        measurement.gauges.pop(gauge.CHILDREN_PSS, None)
    report = analyse(run)
    assert report.verdict.value == verdict, report.headline
