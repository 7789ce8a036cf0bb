"""Workers whose memory was read often and whose heap was seldom looked at."""

from __future__ import annotations

from dataclasses import replace

from synthetic_runs import KIB, MIB, Program
from test_analysis_workers import finding, loading, run_of, worker

from leakscope.analysis.analyse import analyse
from leakscope.model import gauge
from leakscope.model.report import Finding, Report
from leakscope.model.run import Recording


def growing_parent() -> Program:
    children = Program(epochs=8, validation=0).gauge(gauge.CHILDREN, lambda s: 2)
    return children.gauge(gauge.CHILDREN_PSS, lambda s: 2 * s.step * 400 * KIB)


def looked_at(program: Program, *looks: int, number: int = 0) -> Recording:
    """A worker that was looked into at so many of its measurements, and read all along."""
    program.gauge(gauge.PRIVATE, lambda s: 20 * MIB + s.step * 400 * KIB)
    recording = worker(program, number)
    found = [i for i, m in enumerate(recording.measurements) if m.census is not None]
    kept = {found[n] for n in looks}
    recording.measurements = [
        m if i in kept else replace(m, census=None) for i, m in enumerate(recording.measurements)
    ]
    return recording


def report_of(*workers: Recording) -> Report:
    return analyse(run_of(growing_parent(), *workers))


def grown(report: Report) -> Finding:
    return finding(report, "children")


def cached() -> Program:
    return loading().leak("Frames.cache", 400 * KIB)


def test_what_a_worker_held_at_its_last_look_is_told_of_children_that_grow():
    workers = [looked_at(cached(), 0, number=0), looked_at(cached(), 0, 30, number=1)]
    report = report_of(*workers)
    assert "Frames.cache held 78.1 MiB more than at first, of 78.1 MiB" in grown(report).text
    assert grown(report).remedy.title == "Look into Frames.cache, in the workers"
    assert "Frames.cache" in report.headline


def test_the_container_is_told_of_and_not_what_owns_it():
    program = cached().leak("Frames", 401 * KIB)
    program.things[0] = replace(program.things[0], parent="Frames")
    assert "s, Frames.cache held" in grown(report_of(looked_at(program, 0, 30))).text


def test_what_a_worker_inherited_is_not_what_it_gained():
    program = loading().constant("Frames.rows", 300 * MIB, length=lambda s: 60_000)
    assert "looked into" not in grown(report_of(looked_at(program, 0, 30))).text


def test_a_small_part_of_what_a_worker_gained_is_not_told_of():
    program = loading().leak("Frames.names", 40 * KIB)
    assert "looked into" not in grown(report_of(looked_at(program, 0, 30))).text


def test_a_single_look_tells_nothing_of_growth():
    assert "looked into" not in grown(report_of(looked_at(cached(), 30))).text
