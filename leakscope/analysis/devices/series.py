"""What the block lists of a run say of a device, as series over comparable boundaries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.series import INNER, FloatArray
from leakscope.analysis.units import is_training
from leakscope.model import gauge
from leakscope.model.boundary import comparable_key
from leakscope.model.device import Figures
from leakscope.model.record import DeviceSnapshotRecord
from leakscope.model.trend import Trend


@dataclass(frozen=True)
class DeviceSeries:
    """The summaries of one device's blocks at the boundaries of one kind that have most of them."""

    done: FloatArray
    """Units of work done at each."""
    snapshots: list[DeviceSnapshotRecord]

    def of(self, field: str) -> FloatArray:
        """Return one sum at each boundary, in bytes."""
        return np.array([getattr(s, field) for s in self.snapshots], dtype=np.float64)

    def stuck(self) -> FloatArray:
        """Return the bytes in holes that nothing gives back, at each boundary."""
        return self.of("stuck") - self.of("releasable")

    def gain(self, field: str) -> float:
        """Return the change of one sum from the first to the last."""
        values = self.of(field)
        return float(values[-1] - values[0]) if len(values) else 0.0

    @property
    def last(self) -> DeviceSnapshotRecord | None:
        """The latest of them."""
        return self.snapshots[-1] if self.snapshots else None


def device_series(case: Case, device: str) -> DeviceSeries:
    """Return the summaries of a device's blocks at comparable boundaries; empty without any."""
    groups: dict[tuple[str, str, str], list[tuple[int, DeviceSnapshotRecord]]] = {}
    for position, measurement in enumerate(case.track.measurements):
        if (found := _of_device(measurement.devices, device)) and _is_comparable(case, position):
            key = comparable_key(measurement.boundary)
            groups.setdefault(key, []).append((position, found))
    chosen = max(groups.values(), key=len, default=[])
    at = [position for position, _ in chosen]
    return DeviceSeries(case.unit.done[at], [snapshot for _, snapshot in chosen])


def snapshot_trend(case: Case, series: DeviceSeries, field: str) -> Trend:
    """Return rate and shape of one sum of a device's blocks."""
    return case.trend_of(series.done, series.of(field))


def has_risen_by(case: Case, device: str, name: str) -> float:
    """Return the change of a device's gauge over the window, 0 where it was not read."""
    return case.gauge_gain(f"{device}.{name}") or 0.0


def latest(case: Case, device: str, name: str) -> float:
    """Return the last reading of a device's gauge, 0 where it was not read."""
    return case.nearest(f"{device}.{name}", len(case.track) - 1) or 0.0


def private_growth(case: Case, device: str) -> float:
    """Return by how much private pools grew, by torch's own count or else by the block lists."""
    if case.track.has_gauge(f"{device}.{gauge.DEVICE_PRIVATE}"):
        return has_risen_by(case, device, gauge.DEVICE_PRIVATE)
    return device_series(case, device).gain("private")


def peak_figures(case: Case, device: str, figures: Figures) -> Figures | None:
    """Return what is known of the peak: torch's own, beside what is reserved."""
    peak = case.nearest(f"{device}.{gauge.DEVICE_PEAK}", len(case.track) - 1)
    if peak is None or peak < figures.allocated:
        return None
    return Figures(active=int(peak), allocated=int(peak), reserved=figures.reserved)


def _of_device(
    snapshots: tuple[DeviceSnapshotRecord, ...], device: str
) -> DeviceSnapshotRecord | None:
    return next((s for s in snapshots if s.device == device), None)


def _is_comparable(case: Case, position: int) -> bool:
    """Batches differ in how far their phase has come, unless there is but one long phase."""
    track = case.track
    phase = track.boundaries[position].phase
    once = track.begun(phase) <= 1 and is_training(phase)
    return bool(track.kind[position] not in INNER or once)
