"""What is known about a run, where little of it was recorded."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from synthetic_runs import MIB, Program

from leakscope.analysis.columns.series import BoundaryTable
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.analyse import analyse
from leakscope.model.boundary import Boundary, BoundaryKind, comparable_key
from leakscope.model.census import Census, CensusScope
from leakscope.model.record import UNRECORDED_CHILDREN, HeaderRecord, NoteRecord
from leakscope.model.report import RunVerdict
from leakscope.model.run import Measurement, Recording, Run


def sparse() -> Run:
    """Return a leaking run of which the middle was recorded at every thirtieth boundary alone."""
    run = Program(epochs=10, steps=60, validation=0, endless=True).leak("history", MIB / 4).build()
    recorded, n = run.main.measurements, len(run.main.measurements)
    recorded[:] = [m for k, m in enumerate(recorded) if k < n // 5 or k % 30 == 0 or k > n - 5]
    return run


def test_between_two_readings_growth_is_even_over_boundaries() -> None:
    run = sparse()
    case = RunContext(run, run.main)
    index = case.track.index
    known = np.array([0, len(index) - 1])
    middle = np.arange(len(index))
    between = case.read_between(middle, known, index[known].astype(float))
    assert between == pytest.approx(index.astype(float))
    assert case.read_between(np.array([0]), np.array([3]), np.array([7.0]), before=0.0) == [0.0]


def test_a_leak_is_accounted_for_where_few_boundaries_were_recorded() -> None:
    report = analyse(sparse())
    assert report.culprits[0].name == "history"
    (ledger,) = report.ledgers
    named = sum(entry.bytes for entry in ledger.entries if entry.kind == "named")
    assert named == pytest.approx(ledger.total_bytes, rel=0.05)
    assert not [f for f in report.findings if f.kind == "unexplained"]


@pytest.mark.parametrize("leaks", [False, True])
def test_nobody_is_acquitted_whose_children_did_the_work_unrecorded(leaks: bool) -> None:
    program = Program(epochs=8)
    run = (program.leak("history", MIB) if leaks else program).build()
    sentence = "2 child processes (Process) did most of the work: 5 s against 1 s in this process."
    run.main.notes.append(NoteRecord(slug=UNRECORDED_CHILDREN, message=sentence))
    report = analyse(run)
    assert report.verdict is (RunVerdict.LEAK if leaks else RunVerdict.INCONCLUSIVE)
    assert (sentence in report.headline) is not leaks


@pytest.mark.parametrize(("looks", "unit"), [(0, "step"), (2, "step"), (3, "minute")])
def test_growth_is_counted_by_time_only_where_that_was_looked_at_often_enough(
    looks: int, unit: str
) -> None:
    """A profiler that ends takes minutes to order its events, and little is read meanwhile."""
    run = Program(epochs=1, steps=200, validation=0, endless=True).leak("kept", MIB / 4).build()
    recorded = run.main.measurements
    end = recorded.pop()
    begin = recorded[-1].boundary
    late = [
        msgspec.structs.replace(
            begin, kind=kind, index=begin.index + at, time_s=begin.time_s + 10.0 * at
        )
        for at, kind in enumerate([BoundaryKind.TIME] * looks + [BoundaryKind.RUN_END], 1)
    ]
    recorded += [replace(end, boundary=boundary, census=None) for boundary in late]
    case = RunContext(run, run.main)
    assert case.unit.name == unit
    assert case.pool.is_growing is (unit == "step")


@pytest.mark.parametrize(("path", "is_below"), [("kept[*]", True), ("other", False)])
def test_a_path_lies_below_what_it_was_named_through_though_that_had_no_row_at_last(
    path: str, is_below: bool
) -> None:
    run = Program(epochs=2).leak("kept", MIB).build()
    last = next(m for m in reversed(run.main.measurements) if m.census)
    assert last.census is not None
    rows = [
        msgspec.structs.replace(row, path=path, parent="")
        for row in last.census.rows
        if row.path != "kept"
    ]
    at = run.main.measurements.index(last)
    census = msgspec.structs.replace(last.census, rows=rows)
    run.main.measurements[at] = replace(last, census=census)
    table = RunContext(run, run.main).table
    assert table.parent(table.number[path]) == (table.number["kept"] if is_below else None)


def test_what_was_seen_last_long_ago_gained_more_than_it_held_then() -> None:
    run = Program(epochs=8, validation=0).leak("kept", MIB / 4, user=True).build()
    recorded = run.main.measurements
    half = len(recorded) // 4
    recorded[half:] = [replace(m, census=None) for m in recorded[half:]]
    culprit = analyse(run).culprits[0]
    assert culprit.share > 0.9
    assert culprit.gained_bytes > 3 * culprit.total_bytes


def test_ends_of_the_account_are_alike_where_censuses_lie_too_early() -> None:
    """What a validation holds only while it runs would be growth between a step and its end."""
    program = Program(epochs=9).leak("main()·rows", MIB).local("evaluate()·outputs", 8 * MIB)
    run = program.build()
    measurements = run.main.measurements
    for place, m in enumerate(measurements):
        if m.boundary.epoch > 2:
            measurements[place] = replace(m, census=None)
    del measurements[-12:]  # it ended within a validation
    case = RunContext(run, run.main)
    assert case.window is not None
    ends = [measurements[at].boundary for at in (case.window.first, case.window.last)]
    assert comparable_key(ends[0]) == comparable_key(ends[1])


def test_work_by_time_leaves_out_what_censuses_took() -> None:
    def looked_at(index: int, time_s: float, pause_s: float) -> Measurement:
        at = Boundary(index=index, kind=BoundaryKind.TIME, time_s=time_s)
        census = Census(
            scope=CensusScope.FOCUSED,
            rows=[],
            cutoff_bytes=0,
            objects=0,
            heap_bytes=0,
            pause_s=pause_s,
        )
        return Measurement(at, {}, census)

    looks = [looked_at(0, 1.0, 0.25), looked_at(1, 3.0, 0.5), looked_at(2, 4.0, 0.1)]
    table = BoundaryTable(Recording(HeaderRecord(pid=1), looks))
    assert table.work.tolist() == [100, 275, 325]
