"""How high memory rises in a passage through a phase, at its boundaries and between them."""

from __future__ import annotations

import numpy as np

from leakscope.analysis import severity
from leakscope.analysis.case import Case
from leakscope.analysis.series import HOST, FloatArray
from leakscope.model import gauge

ROOM = 0.9
"""A passage has room for what climbed in it when it rises by this part of it: gauges and censuses
are read at different batches."""


def phase_height(case: Case, phase: str, device: str, climbed: float) -> severity.PhaseHeight:
    """Return how high memory of a device rises in a passage through a phase.

    Passages differ: the first pays for warm-up, and later ones refill what the C allocator kept of
    it, so that resident memory doesn't move. What the C heap has in use tells better, where it was
    read. The lowest rise that has room for what ``climbed`` says most about it.

    What stands between two boundaries is part of the peak and not of the rise: most often it is a
    copy of all that was gathered, of which nobody could say that it would be there without.
    """
    metric = case.metric_of(device)
    resident = _passages(case, phase, metric)
    in_use = _passages(case, phase, gauge.MALLOC_IN_USE) if device == HOST else []
    rises = [float(p.max() - p[0]) for p in (*resident, *in_use)]
    roomy = [rise for rise in rises if rise >= ROOM * climbed]
    seen = max((float(p.max()) for p in resident), default=0.0)
    return severity.PhaseHeight(
        baseline=min((float(p[0]) for p in resident), default=0.0),
        peak=max(seen, raised_to(case, phase, metric)[0]),
        rise=min(roomy) if roomy else max(rises, default=0.0),
        limit=case.limit_bytes if device == HOST else None,
    )


def raised_to(case: Case, phase: str, metric: str) -> tuple[float, float | None]:
    """Return to what and by how much a phase raised the highest memory: torch's mark, the kernel's.

    The mark belongs to the program, which may reset it: only what rises above all before counts.
    Where there is no mark it is 0, by None.
    """
    device, _, _ = metric.rpartition(".")
    if not device and metric != gauge.RSS:
        return 0.0, None
    peaks = case.track.gauge(f"{device}.{gauge.DEVICE_PEAK}" if device else gauge.RSS_PEAK)
    known = np.flatnonzero(np.isfinite(peaks))
    if not len(known):
        return 0.0, None
    highest = np.maximum.accumulate(peaks[known])
    rises = np.diff(highest, prepend=highest[0])
    # What rose up to a boundary rose in the phase that lay before it.
    mine = (case.track.before[known] == case.track.phase_code(phase)) & (rises > 0)
    return float(highest[mine].max()) if mine.any() else 0.0, float(rises[mine].sum())


def _passages(case: Case, phase: str, metric: str) -> list[FloatArray]:
    """Return a gauge's readings in each passage through a phase."""
    track = case.track
    values = track.gauge(metric)
    mine = (track.phase == track.phase_code(phase)) & np.isfinite(values)
    return [values[mine & (track.occurrence == o)] for o in np.unique(track.occurrence[mine])]
