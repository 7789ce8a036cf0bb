"""Recordings of many ranks are judged one by one in other processes, into one report."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from leakscope.analysis import analyse
from leakscope.analysis.processes.ranks import MANY
from leakscope.cli.many_ranks import analyse_in_parallel, open_many
from leakscope.cli.report import conclude
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, CensusRow, CensusScope, RootKind
from leakscope.model.record import (
    BoundaryRecord,
    CensusRecord,
    EndRecord,
    HeaderRecord,
    RunManifest,
)
from leakscope.recording import RecordingWriter, RunDirectory, open_run

RANKS, LEAKY, EPOCHS, MIB = 12, 7, 8, 1 << 20
PIECE = 10 * MIB


def write_rank(folder: Path, rank: int, attempt: int = 0, epochs: int = EPOCHS) -> Path:
    """Write the recording of a rank; ``LEAKY`` keeps a piece in each epoch."""
    pid = 100 + rank + 1000 * attempt
    header = HeaderRecord(
        role="rank",
        rank=rank,
        world_size=RANKS,
        attempt=attempt,
        pid=pid,
        host="h",
        started=1e9 + 1000 * attempt,
    )
    writer = RecordingWriter(folder, header)
    for index in range(epochs):
        kept = PIECE * index * (rank == LEAKY)
        row = CensusRow(
            path="main()·trainer.kept",
            name="Trainer.kept",
            root=RootKind.LOCAL,
            type="list",
            kind="list",
            host_bytes=kept + 20_000,
            length=index * (rank == LEAKY),
        )
        census = Census(
            scope=CensusScope.FULL, cutoff_bytes=1 << 14, objects=9, heap_bytes=MIB, rows=[row]
        )
        place = Boundary(
            index=index,
            kind=BoundaryKind.PHASE_BEGIN,
            time_s=float(index),
            phase="train",
            occurrence=index,
            epoch=index,
            step=index * 10,
        )
        writer.write(CensusRecord(boundary=index, census=census))
        writer.write(BoundaryRecord(boundary=place, gauges={"rss": 300 * MIB + kept}))
    writer.write(EndRecord(status="completed", time_s=float(epochs)))
    writer.close()
    return writer.path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = RunDirectory.create(tmp_path / "run", RunManifest(script="train.py")).path
    for rank in range(RANKS):
        write_rank(folder, rank)
    return folder


def test_the_report_is_the_one_of_all_recordings_read_at_once(run):
    assert conclude(run) == analyse(open_run(run))
    report = conclude(run)
    assert len(report.ranks) == RANKS > MANY
    assert report.culprits[0].name == "Trainer.kept"
    assert list(report.culprits[0].rates_by_rank) == [str(LEAKY)]
    assert report.odd_rank is not None
    assert report.odd_rank.rank == LEAKY


def test_the_report_is_of_the_rank_in_which_the_worst_culprit_grows(run):
    report = conclude(run)
    assert report.rank == LEAKY
    assert report.notes[0] == (
        f"Ledger, timeline and phases are those of rank {LEAKY} of {RANKS}: "
        "Trainer.kept grows most there."
    )
    assert report.timeline is not None
    highest = max(value for line in report.timeline.lines for _, value in line.points)
    assert highest >= (300 + 10 * (EPOCHS - 1)) * MIB


def test_a_rank_whose_recording_is_gone_meanwhile_is_reported_as_of_the_first_one(run):
    many = open_many(run)
    assert many is not None
    summaries = list(analyse_in_parallel(many))
    many.others[LEAKY].unlink()
    report = analyse(many.run, summaries, read_rank=many.read)
    assert report.rank == 0
    assert report.culprits[0].name == "Trainer.kept"


def test_few_ranks_are_read_at_once(run):
    for journal in sorted(run.glob("*.journal"))[MANY:]:
        journal.unlink()
    assert open_many(run) is None


def test_a_damaged_recording_loses_none_of_the_others(run):
    middle = run / "rank3-103.journal"
    data = middle.read_bytes()
    middle.write_bytes(data[: len(data) // 2] + b"\0" * 400 + data[len(data) // 2 + 400 :])
    (run / "rank4-104.journal").write_bytes(b"noise" * 1000)
    (run / "rank5-105.journal").write_bytes((run / "rank5-105.journal").read_bytes()[:250])
    report = conclude(run)
    assert {row.rank for row in report.ranks} == set(range(RANKS)) - {4, 5}
    text = " ".join(problem.where for problem in report.errors)
    assert "rank3-103" in text
    assert "rank4-104" in text


def test_where_a_judge_dies_another_one_goes_on(run):
    many = open_many(run)
    assert many is not None
    before = {child.pid for child in psutil.Process().children()}
    summaries = analyse_in_parallel(many, processes=1)
    first = next(summaries)
    (judge,) = (
        child
        for child in psutil.Process().children()
        if child.pid not in before and "spawn_main" in " ".join(child.cmdline())
    )
    judge.kill()
    judge.wait()
    ranks = [summary.row.rank for summary in (first, *summaries) if summary.row is not None]
    assert sorted(ranks) == list(range(1, RANKS))
    assert not any(
        "spawn_main" in " ".join(c.cmdline())
        for c in psutil.Process().children()
        if c.pid not in before
    )


def test_of_several_attempts_the_one_that_got_furthest_is_judged(run):
    for rank in range(RANKS):
        write_rank(run, rank, attempt=1, epochs=2)
    report = conclude(run)
    assert [attempt.is_judged for attempt in report.attempts] == [True, False]
    assert {row.steps for row in report.ranks} == {(EPOCHS - 1) * 10}
    assert len(report.ranks) == RANKS
    assert report == analyse(open_run(run))
