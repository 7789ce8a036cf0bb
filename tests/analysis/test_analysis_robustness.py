"""Odd recordings give a report, never an exception; large ones give it soon."""

from __future__ import annotations

import random
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic_runs import KIB, MIB, Program, Thing

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, CensusRow, CensusScope, RootKind
from leakscope.model.record import HeaderRecord, RunManifest
from leakscope.model.report import Report, RunVerdict
from leakscope.model.run import Measurement, Recording, Run


def run_of(*measurements: Measurement) -> Run:
    recording = Recording(header=HeaderRecord(), measurements=list(measurements))
    return Run(path=Path("r"), manifest=RunManifest(), recordings=[recording])


def test_a_run_without_recordings() -> None:
    report = analyse(Run(path=Path("r"), manifest=RunManifest()))
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert report.missing


def test_a_recording_without_boundaries() -> None:
    assert analyse(run_of()).verdict is RunVerdict.INCONCLUSIVE


@pytest.mark.parametrize("kind", list(BoundaryKind))
def test_a_single_boundary_of_any_kind(kind: BoundaryKind) -> None:
    boundary = Boundary(index=0, kind=kind, time_s=0.0, phase="train")
    report = analyse(run_of(Measurement(boundary, {})))
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert report.culprits == []


def test_missing_gauges_leave_the_culprits() -> None:
    program = Program(epochs=8, rss=False).leak("Trainer.losses", 200 * KIB)
    report = analyse(program.build())
    assert [c.name for c in report.culprits] == ["Trainer.losses"]
    assert report.growth == []
    assert report.ledgers == []
    within = analyse(Program(epochs=8, rss=False).local("validate()·p", 10 * MIB).build())
    assert within.verdict is RunVerdict.INCONCLUSIVE
    assert "could not be read" in within.missing[0]


@pytest.mark.slow
@given(cut=st.integers(0, 330))
@settings(max_examples=60, deadline=None)
def test_a_recording_cut_anywhere(cut: int) -> None:
    program = Program(epochs=6, killed_at=cut).leak("Trainer.losses", 200 * KIB)
    report = analyse(program.local("validate()·p", MIB).build())
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
    if cut > 250:
        assert report.verdict is RunVerdict.LEAK


kinds = st.sampled_from(list(BoundaryKind))
rows = st.builds(
    CensusRow,
    path=st.sampled_from(["a", "b", "a.x", "a.x[*]"]),
    name=st.sampled_from(["a", "b"]),
    root=st.sampled_from(list(RootKind)),
    type=st.just("list"),
    kind=st.sampled_from(["list", "graph", "dict", "object"]),
    user=st.booleans(),
    host_bytes=st.integers(0, 1 << 45),
    device_bytes=st.sampled_from([{}, {"cuda:0": 1 << 30}]),
    count=st.integers(0, 5),
    length=st.none() | st.integers(0, 9),
    capacity=st.none() | st.integers(0, 9),
    parent=st.sampled_from(["", "a", "b", "a.x", "nowhere"]),
)
censuses = st.builds(
    Census,
    scope=st.sampled_from(list(CensusScope)),
    rows=st.lists(rows, max_size=4),
    cutoff_bytes=st.just(16384),
    objects=st.just(1),
    heap_bytes=st.just(1),
    garbage_bytes=st.none() | st.integers(0, 1 << 40),
    components=st.sampled_from([{}, {"parameters": {"host": 5}}]),
)
measurements = st.builds(
    Measurement,
    st.builds(
        Boundary,
        index=st.integers(0, 50),
        kind=kinds,
        time_s=st.floats(0, 10),
        phase=st.sampled_from(["", "train", "validation", "mine"]),
        occurrence=st.integers(0, 4),
        epoch=st.integers(0, 4),
        step=st.integers(0, 30),
        batch=st.integers(0, 10),
        label=st.sampled_from(["", "x"]),
    ),
    st.dictionaries(
        st.sampled_from([*gauge.DESCRIPTIONS, "cuda:0.allocated", "cuda:0.reserved", "new"]),
        st.integers(-1, 1 << 45),
        max_size=4,
    ),
    st.none() | censuses,
)


@pytest.mark.slow
@given(st.lists(measurements, max_size=14))
@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
def test_nonsense_gives_a_report_that_can_be_written(given_measurements: list[Measurement]) -> None:
    report = analyse(run_of(*given_measurements))
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
    for ledger in report.ledgers:
        assert sum(entry.bytes for entry in ledger.entries) == ledger.total_bytes
    for culprit in report.culprits:
        assert 0 <= culprit.share <= 1
        assert culprit.readings >= 0


def large_run() -> Run:
    """100,000 boundaries with gauges, 300 censuses of 400 rows, leaks among noise."""
    chance = random.Random(0)
    program = Program(epochs=50, steps=1900, validation=98, full_every=4)
    for i in range(20):
        program.leak(f"Trainer.list_{i}", 100 * (i + 1))
    program.local("validate()·preds", MIB)
    for i in range(360):
        size = chance.uniform(0.1, 3) * MIB
        wobble = chance.choice([0, 0, 0.3])
        program.plant(
            Thing(f"model.part_{i}", lambda s, z=size, w=wobble: z * (1 + w * (s.step % 7)))
        )
    for name in (gauge.PSS, gauge.MALLOC_FREE, gauge.GC_COUNT, gauge.THREADS, gauge.OPEN_FILES):
        program.gauge(name, lambda s: 100 * MIB + s.step)
    return program.build()


@pytest.mark.slow
def test_a_large_run_is_analysed_in_seconds() -> None:
    run = large_run()
    censuses = sum(m.census is not None for m in run.main.measurements)
    assert len(run.main.measurements) > 99_000
    assert 230 < censuses < 400
    began = time.process_time()
    report = analyse(run)
    spent = time.process_time() - began
    assert report.verdict is RunVerdict.LEAK
    assert spent < 5.0


def test_a_limit_that_was_passed_already_is_no_error() -> None:
    program = Program(epochs=8, limit=100 * MIB).leak("Trainer.history", 3 * MIB, "epoch")
    culprit = analyse(program.build()).culprits[0]
    assert culprit.forecast is not None
    assert culprit.forecast.units_left == 0


def test_a_worker_alone_is_analysed_like_a_main_process() -> None:
    run = Program(epochs=8).leak("Dataset.cache", 200 * KIB).build()
    run.recordings.append(Recording(header=HeaderRecord(role="worker", worker=0)))
    run.recordings.reverse()
    assert analyse(run).verdict is RunVerdict.LEAK
