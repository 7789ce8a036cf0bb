"""How high memory rises in a passage through a phase, at its boundaries and between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leakscope.analysis import severity
from leakscope.analysis.case import Case
from leakscope.analysis.series import HOST, FloatArray, IntArray
from leakscope.model import gauge

ROOM = 0.9
"""A passage has room for what climbed in it when it rises by this part of it: gauges and censuses
are read at different batches."""


def phase_height(case: Case, phase: str, device: str, climbed: float) -> severity.PhaseHeight:
    """Return how high memory of a device rises in a passage through a phase.

    Passages differ: the first pays for warm-up, and later ones refill what the C allocator kept of
    it, so that resident memory doesn't move. What the C heap has in use tells better, where it was
    read. The lowest rise that has room for what ``climbed`` says most about it.

    What stands between two boundaries is part of the peak and of the full rise, not of the rise:
    most often it is a copy of all that was gathered, of which nobody could say that it would be
    there without.
    """
    metric = case.metric_of(device)
    resident = _passages(case, phase, metric)
    in_use = _passages(case, phase, gauge.MALLOC_IN_USE) if device == HOST else []
    rises = [float(p.max() - p[0]) for p in (*resident, *in_use)]
    roomy = [rise for rise in rises if rise >= ROOM * climbed]
    seen = max((float(p.max()) for p in resident), default=0.0)
    rise = min(roomy) if roomy else max(rises, default=0.0)
    return severity.PhaseHeight(
        baseline=min((float(p[0]) for p in resident), default=0.0),
        peak=max(seen, raised_to(case, phase, metric)[0]),
        rise=rise,
        full_rise=max(rise, _full_rise(case, phase, metric)),
        limit=case.limit_bytes if device == HOST else None,
    )


def raised_to(case: Case, phase: str, metric: str) -> tuple[float, float | None]:
    """Return to what and by how much a phase raised the highest memory: torch's mark, the kernel's.

    The mark belongs to the program, which may reset it: only what rises above all before counts.
    Where there is no mark it is 0, by None.
    """
    marks = _marks(case, phase, metric)
    if marks is None:
        return 0.0, None
    return max(marks.highest, default=0.0), float(sum(marks.rises))


def _full_rise(case: Case, phase: str, metric: str) -> float:
    """Return how far memory rose at most, at and between boundaries, in one passage of a phase.

    Only a passage that raised the mark says so, and not the first of all, which pays for warm-up;
    it is 0 where there is none. The one that reached highest alone would not do: each may raise
    the mark by a page, from a beginning that is higher by all that the C allocator kept.
    """
    marks = _marks(case, phase, metric)
    if marks is None:
        return 0.0
    track, values = case.track, case.track.gauge(metric)
    mine = np.flatnonzero((track.phase == track.phase_code(phase)) & np.isfinite(values))
    _, firsts = np.unique(track.occurrence[mine], return_index=True)
    begins = mine[firsts]
    passage = np.searchsorted(begins, marks.at, side="right") - 1
    warm = passage > 0
    rises = marks.highest[warm] - values[begins[passage[warm]]]
    return float(rises.max(initial=0.0))


@dataclass(frozen=True)
class _Marks:
    """Where one phase raised the highest memory: at which measurements, to what and by how much."""

    at: IntArray
    highest: FloatArray
    rises: FloatArray


def _marks(case: Case, phase: str, metric: str) -> _Marks | None:
    device, _, _ = metric.rpartition(".")
    if not device and metric != gauge.RSS:
        return None
    peaks = case.track.gauge(f"{device}.{gauge.DEVICE_PEAK}" if device else gauge.RSS_PEAK)
    known = np.flatnonzero(np.isfinite(peaks))
    if not len(known):
        return None
    highest = np.maximum.accumulate(peaks[known])
    rises = np.diff(highest, prepend=highest[0])
    # What rose up to a boundary rose in the phase that lay before it.
    mine = (case.track.before[known] == case.track.phase_code(phase)) & (rises > 0)
    return _Marks(known[mine], highest[mine], rises[mine])


def _passages(case: Case, phase: str, metric: str) -> list[FloatArray]:
    """Return a gauge's readings in each passage through a phase."""
    track = case.track
    values = track.gauge(metric)
    mine = (track.phase == track.phase_code(phase)) & np.isfinite(values)
    return [values[mine & (track.occurrence == o)] for o in np.unique(track.occurrence[mine])]
