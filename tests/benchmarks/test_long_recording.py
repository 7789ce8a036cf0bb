"""A long recording is the short one repeated: nothing invented, growth carried on."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, CensusRow, CensusScope, Content, RootKind
from leakscope.model.record import (
    BoundaryRecord,
    CensusRecord,
    EndRecord,
    HeaderRecord,
    RunManifest,
)
from leakscope.model.run import Measurement
from leakscope.recording import RecordingWriter, RunDirectory, open_run

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from long_recording import carried_on, stretch

EPOCHS = 6
STEPS = 3
PER_EPOCH = STEPS + 2
"""Boundaries: the beginning of training, its steps and its end."""
GROWTH = 1000
"""Bytes an epoch."""


def census(epoch: int) -> Census:
    row = CensusRow(
        path="main()·history",
        name="main.history",
        root=RootKind.LOCAL,
        type="list",
        kind="list",
        host_bytes=GROWTH * epoch,
        length=epoch,
        holds=[Content(type="Tensor", count=epoch, bytes=100 * epoch)],
    )
    return Census(
        scope=CensusScope.FULL,
        rows=[row],
        cutoff_bytes=1,
        objects=50,
        heap_bytes=7,
        walker="native",
    )


def record_epoch(writer: RecordingWriter, epoch: int, index: int) -> int:
    kinds = [BoundaryKind.PHASE_BEGIN, *[BoundaryKind.STEP] * STEPS, BoundaryKind.PHASE_END]
    for place, kind in enumerate(kinds):
        step = epoch * STEPS + min(place, STEPS)
        boundary = Boundary(
            index=index, kind=kind, time_s=float(index), phase="train", occurrence=epoch,
            epoch=epoch, step=step, batch=min(place, STEPS),
        )  # fmt: skip
        if kind is BoundaryKind.PHASE_BEGIN:
            writer.write(CensusRecord(boundary=index, census=census(epoch)))
        gauges = {"rss": 50_000 + GROWTH * epoch + place, "threads": 4}
        writer.write(BoundaryRecord(boundary=boundary, gauges=gauges))
        index += 1
    return index


def short_run(folder: Path, epochs: int = EPOCHS) -> Path:
    directory = RunDirectory.create(folder / "short", RunManifest(memory_total=1 << 30))
    writer = RecordingWriter(directory.path, HeaderRecord(pid=1))
    index = 1
    for epoch in range(epochs):
        index = record_epoch(writer, epoch, index)
    writer.write(EndRecord(status="completed"))
    writer.close()
    return directory.path


def stretched(folder: Path, boundaries: int = 200, censuses: int = 20) -> list[Measurement]:
    long = stretch(short_run(folder), folder / "long", boundaries=boundaries, censuses=censuses)
    run = open_run(long)
    assert not run.damage
    assert not run.main.damage
    return run.main.measurements


def test_as_many_boundaries_and_censuses_as_wanted(tmp_path: Path) -> None:
    measurements = stretched(tmp_path)
    assert 200 <= len(measurements) < 200 + EPOCHS * PER_EPOCH
    assert sum(m.census is not None for m in measurements) == 20


def test_training_goes_on_without_a_seam(tmp_path: Path) -> None:
    boundaries = [m.boundary for m in stretched(tmp_path)]
    assert [b.index for b in boundaries] == list(range(1, len(boundaries) + 1))
    assert [b.time_s for b in boundaries] == [float(n) for n in range(len(boundaries))]
    begins = [b for b in boundaries if b.kind is BoundaryKind.PHASE_BEGIN]
    assert [b.epoch for b in begins] == list(range(len(begins)))
    assert [b.occurrence for b in begins] == list(range(1, len(begins) + 1))
    assert [b.step for b in begins] == [STEPS * n for n in range(len(begins))]


def test_what_grew_goes_on_growing_at_its_rate(tmp_path: Path) -> None:
    measurements = stretched(tmp_path)
    begins = [m for m in measurements if m.boundary.kind is BoundaryKind.PHASE_BEGIN]
    assert [m.gauges["rss"] for m in begins] == [
        50_000 + GROWTH * (n + 1) for n in range(len(begins))
    ]
    assert {m.gauges["threads"] for m in measurements} == {4}
    with_census = [(n, m.census.rows[0]) for n, m in enumerate(begins) if m.census is not None]
    assert [row.host_bytes for _, row in with_census] == [GROWTH * (n + 1) for n, _ in with_census]
    assert [row.length for _, row in with_census] == [n + 1 for n, _ in with_census]
    assert [row.holds[0].bytes for _, row in with_census] == [100 * (n + 1) for n, _ in with_census]


def test_censuses_lie_all_over_the_run(tmp_path: Path) -> None:
    measurements = stretched(tmp_path, boundaries=500, censuses=10)
    at = [n / len(measurements) for n, m in enumerate(measurements) if m.census is not None]
    assert at[0] < 0.1
    assert at[-1] > 0.8
    assert all(later - earlier < 0.2 for earlier, later in pairwise(at))


def test_more_censuses_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too few"):
        stretched(tmp_path, boundaries=20, censuses=1000)


def test_a_run_too_short_to_carry_on_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="epochs"):
        stretch(short_run(tmp_path, epochs=2), tmp_path / "long", boundaries=10, censuses=1)


def test_entries_are_matched_by_what_they_are_not_by_their_place() -> None:
    first = [{"path": "a", "bytes": 10}, {"path": "b", "bytes": 5}]
    last = [{"path": "b", "bytes": 25}, {"path": "a", "bytes": 10}]
    now = [{"path": "b", "bytes": 25, "line": 7}, {"path": "new", "bytes": 3}]
    assert carried_on(now, first, last, 2.0) == [
        {"path": "b", "bytes": 65, "line": 7},
        {"path": "new", "bytes": 3},
    ]


def test_what_shrinks_stops_at_nothing() -> None:
    assert carried_on({"free": 5}, {"free": 10}, {"free": 8}, 100.0) == {"free": 0}
