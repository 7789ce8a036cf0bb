"""What the user asked for by signal: told beside the conclusions, part of none of them."""

from __future__ import annotations

from leakscope.analysis.live import live_by_name
from leakscope.analysis.series import HOST
from leakscope.analysis.shortage import place_of
from leakscope.model import gauge
from leakscope.model.record import SnapshotRecord
from leakscope.model.run import Recording
from leakscope.model.shortage import LiveRow
from leakscope.model.sizes import human_bytes

NAMES_TOLD = 3


def snapshot_notes(recording: Recording) -> list[str]:
    """Return a note on the censuses that were asked for; none where there was none."""
    taken = [snapshot for snapshot in recording.snapshots if snapshot.census is not None]
    if not taken:
        return []
    last = taken[-1]
    was = "was" if len(taken) == 1 else "were"
    count = "1 census" if len(taken) == 1 else f"{len(taken):,} censuses"
    held = ", ".join(f"{row.name} {human_bytes(row.bytes)}" for row in biggest(last)[:NAMES_TOLD])
    return [
        f"{count} {was} taken on request, which no rate and no verdict rests on; the last "
        f"{last.boundary.time_s:.1f} s after the start, {place_of(last.boundary)}"
        + (f": {held}." if held else ".")
    ]


def biggest(snapshot: SnapshotRecord, device: str = HOST) -> list[LiveRow]:
    """Return the names that held most on a device, the most first."""
    if snapshot.census is None:
        return []
    metric = gauge.RSS if device == HOST else f"{device}.{gauge.DEVICE_ALLOCATED}"
    return live_by_name(snapshot.census, device, snapshot.gauges.get(metric, 0))


def devices_of(snapshot: SnapshotRecord) -> list[str]:
    """Return the devices besides the host on which tensors were live."""
    told = (name.rpartition(".") for name in snapshot.gauges)
    return sorted(
        {device for device, _, short in told if device and short == gauge.DEVICE_ALLOCATED}
    )
