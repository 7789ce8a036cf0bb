"""Runs made of snapshots: what a session would have recorded where the snapshot was taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, CensusScope
from leakscope.model.device import BlockState, DeviceStorages, Holder, Segment, StorageRow
from leakscope.model.record import BlockListRecord, HeaderRecord, RunManifest
from leakscope.model.run import Measurement, Recording, Run
from leakscope.probes.cuda import list_blocks, summarise

_STATES = {
    BlockState.ALLOCATED: "active_allocated",
    BlockState.PENDING: "active_pending_free",
    BlockState.FREE: "inactive",
}


def as_torch_tells(segments: Iterable[Segment]) -> list[dict[str, Any]]:
    """Return segments in the form of ``torch.cuda.memory_snapshot``."""
    return [
        {
            "device": s.device,
            "address": s.address,
            "total_size": s.size,
            "stream": s.stream,
            "segment_pool_id": s.pool,
            "segment_type": "small" if s.is_small else "large",
            "is_expandable": s.is_expandable,
            "allocated_size": s.allocated,
            "active_size": s.active,
            "requested_size": s.requested,
            "blocks": [
                {
                    "size": b.size,
                    "requested_size": b.requested,
                    "state": _STATES[b.state],
                    "frames": [
                        {"filename": f.file, "line": f.line, "name": f.name}
                        for f in (b.stack.frames if b.stack else ())
                    ],
                }
                for b in s.blocks
            ],
        }
        for s in segments
    ]


def block_list(
    segments: Iterable[Segment], storages: Sequence[tuple[int, int, str, str]] = (), at: int = 0
) -> BlockListRecord:
    """Return what would be recorded of one device; storages as address, bytes, role and name."""
    (record,) = list_blocks(as_torch_tells(segments), settings={}, boundary=at)
    names = list(dict.fromkeys(name for *_, name in storages))
    record.storages = DeviceStorages(
        device=record.device,
        storages=[StorageRow(a, n, role, names.index(name)) for a, n, role, name in storages],
        holders=[Holder(f"__main__·{name}", name) for name in names],
    )
    return record


def run_of(
    states: Sequence[Sequence[Segment]],
    storages: Callable[[int], Sequence[tuple[int, int, str, str]]] = lambda _: (),
) -> Run:
    """Return a run of one training phase with a state of the allocator after each step."""
    recording = Recording(header=HeaderRecord(pid=1))
    for number, segments in enumerate(states):
        reported = as_torch_tells(segments)
        gauges = {"rss": 1 << 30}
        for device in summarise(reported):
            gauges |= {
                f"{device.device}.allocated": device.allocated,
                f"{device.device}.reserved": device.reserved,
                f"{device.device}.active": device.active,
                f"{device.device}.requested": device.requested,
            }
        boundary = Boundary(
            index=number, kind=BoundaryKind.STEP, time_s=float(number), phase="train",
            step=number + 1, batch=number + 1,
        )  # fmt: skip
        recording.measurements.append(
            Measurement(boundary, gauges, _census(), tuple(summarise(reported, boundary=number)))
        )
        recording.block_lists += [block_list(segments, storages(number), number)]
    return Run(
        path=Path("run"),
        manifest=RunManifest(run_id="r", project_root="/home/u"),
        recordings=[recording],
    )


def _census() -> Census:
    return Census(
        scope=CensusScope.FULL, rows=[], cutoff_bytes=1, objects=1, heap_bytes=1, garbage_bytes=0
    )
