"""What the memory of other processes held: of ranks and DataLoader workers."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from synthetic_runs import KIB, MIB, Program
from test_analysis_ranks import healthy, together
from test_analysis_ranks import leaking as leaking_rank
from test_analysis_workers import leaking, loading, run_of, worker

from leakscope.analysis.holdings import MOST_PROCESSES, ROOM
from leakscope.analysis.processes.ranks import summarise_rank
from leakscope.analysis.verdict.analyse import analyse
from leakscope.model.report import Report
from leakscope.model.run import Recording, Retained, Run


def grown(retained: Retained, path: str) -> int:
    """Bytes that a path gained between the two censuses that growth is reported for."""
    place = next(n for n, node in enumerate(retained.nodes) if node.path == path)
    ends = (retained.censuses[at].bytes["host"][place] for at in (retained.first, retained.last))
    before, after = (size or 0 for size in ends)
    return after - before


def paths(retained: Retained) -> set[str]:
    return {node.path for node in retained.nodes if node.path}


def process(report: Report) -> list[tuple[int | None, int | None]]:
    return [(item.process.rank, item.process.worker) for item in report.retained_elsewhere]


def test_a_worker_in_which_something_grows_has_a_tree_of_its_own() -> None:
    report = analyse(run_of(Program(epochs=8).constant("main()·model", 30 * MIB), leaking()))
    (culprit,) = report.culprits
    assert report.retained is not None
    assert culprit.path not in paths(report.retained)
    (theirs,) = report.retained_elsewhere
    assert (theirs.process.worker, theirs.process.loader) == (0, 1)
    assert grown(theirs, culprit.path) > 50 * MIB


def test_the_worker_as_which_a_culprit_is_reported_comes_first() -> None:
    quiet = [worker(loading().constant("Frames.index", 90 * MIB), number) for number in range(3)]
    report = analyse(run_of(Program(epochs=8), *quiet, leaking(3)))
    assert process(report)[0] == (None, 3)
    assert len(report.retained_elsewhere) == 4


def test_of_ranks_the_one_that_leaks_is_reported_and_others_can_be_looked_at() -> None:
    report = analyse(together(healthy(), healthy(1), leaking_rank(seed=2)))
    assert report.retained is not None
    assert report.retained.process.rank == report.rank == 2
    assert "Trainer.losses" in paths(report.retained)
    assert process(report) == [(0, None), (1, None)]


def test_a_rank_in_which_another_culprit_grows_comes_before_the_others() -> None:
    other = healthy(3).leak("Metrics.seen", 20 * KIB)
    report = analyse(together(healthy(), healthy(1), leaking_rank(seed=2), other))
    assert process(report) == [(3, None), (0, None), (1, None)]
    assert "Metrics.seen" in paths(report.retained_elsewhere[0])


def test_a_rank_that_was_judged_elsewhere_is_read_for_its_tree() -> None:
    programs = [healthy(n) for n in range(12)]
    programs[7], programs[9] = leaking_rank(seed=7), healthy(9).leak("Metrics.seen", 20 * KIB)
    run = together(*programs)
    away = {r.header.rank: r for r in run.recordings[1:]}
    requested: list[int] = []

    def read(rank: int) -> Recording:
        requested.append(rank)
        return away[rank]

    first = replace(run, recordings=run.recordings[:1])
    report = analyse(first, [summarise_rank(run, item) for item in away.values()], read_rank=read)
    assert report.rank == 7
    assert process(report) == [(9, None), (0, None)]
    assert requested == [7, 9]


def test_processes_are_reported_by_one_clock() -> None:
    later = leaking(started=1_000.0 + 40.0, host="here")
    run = run_of(Program(epochs=8), later)
    run.main.header = msgspec.structs.replace(run.main.header, started=1_000.0, host="here")
    (theirs,) = analyse(run).retained_elsewhere
    began = next(m for m in later.measurements if m.census).boundary.time_s
    assert theirs.censuses[0].boundary.time_s == 40.0 + began
    later.header = msgspec.structs.replace(later.header, host="there")
    (theirs,) = analyse(run).retained_elsewhere
    assert theirs.censuses[0].boundary.time_s == began


def test_of_many_processes_few_are_reported_and_of_each_little() -> None:
    long = (worker(loading(24).leak("Frames.cache", 400 * KIB), n) for n in range(9))
    run: Run = run_of(Program(epochs=8), *long)
    report = analyse(run)
    assert len(report.retained_elsewhere) == MOST_PROCESSES
    for item in report.retained_elsewhere:
        assert len(item.censuses) <= ROOM.censuses < item.taken
        assert len(item.nodes) * len(item.censuses) <= ROOM.cells


def test_a_process_alone_has_nothing_elsewhere() -> None:
    assert not analyse(Program(epochs=8).build()).retained_elsewhere
