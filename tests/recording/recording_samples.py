"""Records and runs for the tests of the recording room."""

from __future__ import annotations

from pathlib import Path

from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, CensusRow, CensusScope, RootKind
from leakscope.model.device import (
    BlockRow,
    BlockState,
    DeviceStorages,
    Holder,
    SegmentRow,
    StorageRow,
)
from leakscope.model.record import (
    AllocationRecord,
    BlockListRecord,
    BoundaryRecord,
    CensusRecord,
    CleanupRecord,
    CleanupStep,
    CompilationRecord,
    CompiledCodeRecord,
    CompiledFunction,
    DeviceSnapshotRecord,
    EndRecord,
    ErrorRecord,
    HeaderRecord,
    NativeAllocationsRecord,
    NativeKind,
    NativeOwner,
    NativeSite,
    NoteRecord,
    OutOfMemoryRecord,
    OverheadRecord,
    ProcessEndRecord,
    Record,
    RunManifest,
    SourceRecord,
)
from leakscope.recording import RecordingWriter, RunDirectory


def boundary(index: int, **gauges: int) -> BoundaryRecord:
    return BoundaryRecord(
        boundary=Boundary(
            index=index, kind=BoundaryKind.STEP, time_s=index / 8, phase="train", step=index
        ),
        gauges=gauges or {"rss": 1_000_000 + index},
    )


def census(index: int, rows: int = 3) -> CensusRecord:
    return CensusRecord(
        boundary=index,
        census=Census(
            scope=CensusScope.FULL,
            cutoff_bytes=16384,
            objects=1000,
            heap_bytes=1 << 20,
            rows=[
                CensusRow(
                    path=f"main()·trainer.history_{row}[*]['pred']",
                    name=f"Trainer.history_{row}",
                    root=RootKind.LOCAL,
                    type="list",
                    kind="list",
                    host_bytes=(1 << 16) * row,
                    device_bytes={"cuda:0": row},
                )
                for row in range(rows)
            ],
        ),
    )


def block_list(boundary: int, *sizes: int, device: str = "cuda:0") -> BlockListRecord:
    blocks = [BlockRow(size, size - 1, BlockState.ALLOCATED) for size in sizes]
    segment = SegmentRow(4096, sum(sizes), 0, (0, 0), True, False, blocks)
    storages = DeviceStorages(
        device=device, storages=[StorageRow(4096, 4, "other", 0)], holders=[Holder("a", "b")]
    )
    return BlockListRecord(boundary=boundary, device=device, segments=[segment], storages=storages)


def one_of_each() -> list[Record]:
    return [
        census(0),
        DeviceSnapshotRecord(boundary=0, device="cuda:0", segments=2, stuck=17),
        block_list(0, 512),
        boundary(0),
        AllocationRecord(first_boundary=0, last_boundary=1, traced_bytes=5),
        NativeAllocationsRecord(
            boundary=0,
            interval_bytes=512 << 10,
            bytes=1 << 20,
            samples=2,
            sites=[
                NativeSite(
                    library="libdecoder.so",
                    function="decoder::open",
                    file="/p/train.py",
                    line=3,
                    caller="read",
                    kind=NativeKind.MAPPING,
                    owner=NativeOwner.TENSOR,
                    bytes=1 << 20,
                    samples=2,
                    stack=["libdecoder.so!decoder::open"],
                )
            ],
            by_owner={"tensor": 1 << 20},
        ),
        SourceRecord(path="/p/train.py", text="history.append(loss)\n"),
        OverheadRecord(boundary=1, seconds={"census": 0.5}, censuses=1),
        ErrorRecord(where="probe", message="broke", disabled=True),
        NoteRecord(slug="census-skipped", message="no memory"),
        OutOfMemoryRecord(boundary=0, time_s=1.0, seen="observer", census=census(0).census),
        CleanupRecord(boundary=0, steps=[CleanupStep(call="gc.collect()", seconds=0.1)]),
        CompilationRecord(boundary=0, function="forward", number=1, reason="size mismatch"),
        CompiledCodeRecord(
            boundary=0, functions=[CompiledFunction(function="forward", entries=2, most=2)], limit=8
        ),
        ProcessEndRecord(boundary=0, pid=43, exit_code=-9, name="Process", loader=1),
        boundary(1),
        EndRecord(status="completed", time_s=1.5),
    ]


def write_run(path: Path, records: list[Record], **manifest: object) -> Path:
    """Write a run and return its journal."""
    directory = RunDirectory.create(path, RunManifest(**manifest))  # type: ignore[arg-type]
    writer = RecordingWriter(directory.path, HeaderRecord(pid=42, host="h"))
    for record in records:
        assert writer.write(record)
    writer.close()
    return writer.path
