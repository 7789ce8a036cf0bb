"""What grows in the DataLoader workers of ranks that train together."""

from __future__ import annotations

import msgspec
import pytest
from synthetic_runs import KIB, Program
from test_analysis_ranks import healthy, together
from test_analysis_workers import copying, culprit, leaking, loading, worker

from leakscope.analysis.processes.ranks import summarise_rank
from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.report import Report
from leakscope.model.run import Recording


def report_of(*workers: Recording, parent: Program | None = None) -> Report:
    run = together(parent or healthy(), healthy(1))
    run.recordings += workers
    return analyse(run)


def leaking_in(rank: int, size: int = 2) -> list[Recording]:
    more = {"rank": rank, "world_size": size}
    return [leaking(number, pid=500 + 10 * rank + number, **more) for number in range(2)]


def test_what_grows_in_the_workers_of_one_rank_is_reported_with_the_rank():
    report = report_of(*leaking_in(1))
    reported = culprit(report)
    assert "in each of 2 DataLoader workers of rank 1" in report.headline
    assert "It grows in rank 1 of 2 only." in reported.sentence
    assert (reported.in_ranks, list(reported.rates_by_rank)) == ("rank 1", ["1"])
    assert reported.workers == 2


def test_the_report_is_of_the_rank_in_whose_workers_the_worst_culprit_grows():
    report = report_of(*leaking_in(1))
    assert report.rank == 1
    assert [row.grows for row in report.ranks] == [[], ["Frames.cache"]]
    assert report_of(*leaking_in(0)).rank == 0


def test_what_grows_in_the_workers_of_all_ranks_is_reported_once_and_fills_memory_by_all_of_them():
    of_one, of_all = (report_of(*workers) for workers in (leaking_in(0), _of_both()))
    assert "in each of 2 DataLoader workers." in of_all.headline
    assert list(culprit(of_all).rates_by_rank) == ["0", "1"]
    single, every = culprit(of_one).forecast, culprit(of_all).forecast
    assert single is not None and every is not None
    assert every.units_left == pytest.approx(single.units_left / 2, rel=0.05)


def _of_both() -> list[Recording]:
    return [*leaking_in(0), *leaking_in(1)]


def test_what_workers_of_another_rank_gain_explains_no_children_of_this_one():
    parent = healthy().gauge(gauge.CHILDREN_PSS, lambda s: s.step * 500 * KIB)
    others = [copying([0.0, 0.3, 0.6], number=n) for n in range(2)]
    for item in others:
        item.header = msgspec.structs.replace(item.header, rank=1)
    report = report_of(*others, parent=parent)
    assert "children" in {finding.kind for finding in report.findings}


def test_of_many_ranks_the_one_whose_workers_leak_is_read_and_reported():
    run = together(*(healthy(seed) for seed in range(10)))
    elsewhere = {item.header.rank: item for item in run.recordings[1:]}
    summaries = [summarise_rank(run, item) for item in elsewhere.values()]
    idle = [loading_in(rank) for rank in range(10) if rank != 7]
    run.recordings = [run.recordings[0], *leaking_in(7, 10), *idle]
    run.unread = 9
    report = analyse(run, summaries, read_rank=elsewhere.get)
    assert "in each of 2 DataLoader workers of rank 7" in report.headline
    assert report.rank == 7
    assert report.notes[0] == (
        "Ledger, timeline and phases are those of rank 7 of 10: Frames.cache grows most there."
    )


def loading_in(rank: int) -> Recording:
    return worker(loading(), rank=rank, pid=700 + rank, world_size=10)


def test_workers_that_were_not_read_are_not_reported_as_without():
    run = together(*(healthy(seed) for seed in range(10)))
    summaries = [summarise_rank(run, recording) for recording in run.recordings[1:]]
    run.recordings = [run.recordings[0], *leaking_in(7, 10)]
    run.unread = 20
    report = culprit(analyse(run, summaries))
    assert report.in_ranks == ""
    assert "only" not in report.sentence
