"""Recorded runs and reports for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, CensusRow, CensusScope, Owner, RootKind
from leakscope.model.record import (
    BoundaryRecord,
    CensusRecord,
    EndRecord,
    HeaderRecord,
    RunManifest,
    SourceRecord,
)
from leakscope.model.report import (
    Culprit,
    Overhead,
    Remedy,
    Report,
    RunFacts,
    RunVerdict,
    Severity,
    Work,
)
from leakscope.recording import RecordingWriter, RunDirectory

MIB = 1 << 20
SOURCE = "history = []\nfor epoch in range(12):\n    history.append(bytearray(4 << 20))\n"


def record_run(path: Path, *, grows: int = 4 * MIB, epochs: int = 12) -> Path:
    """Record a training whose list grows by so many bytes each epoch."""
    manifest = RunManifest(
        run_id="one", script="train.py", command=["python", "train.py"], project_root="/project"
    )
    RunDirectory.create(path, manifest)
    writer = RecordingWriter(path, HeaderRecord(pid=1))
    writer.write(SourceRecord(path="/project/train.py", text=SOURCE))
    for epoch in range(epochs):
        kept = MIB + grows * epoch
        for kind in (BoundaryKind.PHASE_BEGIN, BoundaryKind.PHASE_END):
            index = 2 * epoch + (kind is BoundaryKind.PHASE_END)
            writer.write(CensusRecord(boundary=index, census=census(kept, epoch)))
            boundary = Boundary(
                index=index,
                kind=kind,
                time_s=index * 2.0,
                phase="train",
                occurrence=epoch,
                epoch=epoch,
                step=10 * index,
            )
            writer.write(BoundaryRecord(boundary=boundary, gauges={"rss": 200 * MIB + kept}))
    writer.write(EndRecord(status="completed", time_s=4.0 * epochs))
    writer.close()
    return path


def census(kept: int, length: int) -> Census:
    row = CensusRow(
        path="__main__.history",
        name="history",
        root=RootKind.GLOBAL,
        owner=Owner(kind="module", name="__main__", file="/project/train.py", variable="history"),
        type="list",
        kind="list",
        host_bytes=kept,
        length=length,
    )
    return Census(
        scope=CensusScope.FULL, rows=[row], cutoff_bytes=16384, objects=1000, heap_bytes=10 * MIB
    )


def report_with(rate: float | None, *, severity: Severity = Severity.CRITICAL) -> Report:
    """Return a report with one culprit of this many bytes per epoch, or with none."""
    return Report(
        verdict=RunVerdict.LEAK if rate else RunVerdict.CLEAN,
        headline="history grows" if rate else "nothing grows",
        growth=[],
        culprits=[culprit(rate, severity)] if rate else [],
        findings=[],
        cleared=[],
        overhead=Overhead(wall_share=0.01, peak_bytes=0),
        errors=[],
        run=RunFacts(
            run_id="one",
            path="/runs/one",
            script="train.py",
            command=["python", "train.py"],
            created=0.0,
            environment={},
            ended="completed",
        ),
        work=Work(duration_s=10.0, steps=100, epochs=10),
    )


def culprit(rate: float, severity: Severity) -> Culprit:
    return Culprit(
        rank=1,
        name="train.history",
        path="__main__.history",
        kind="list",
        type="list",
        growth="across",
        unit="epoch",
        phase="train",
        bytes_per_unit=rate,
        interval=(rate * 0.95, rate * 1.05),
        share=0.9,
        total_bytes=int(rate * 10),
        severity=severity,
        readings=14,
        signature="history-list",
        remedy=Remedy(title="Clear it", text="Clear the list."),
    )
