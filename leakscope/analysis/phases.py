"""Memory before, at the peak of and after each phase."""

from __future__ import annotations

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.heights import raised_to
from leakscope.analysis.series import HOST, code_of
from leakscope.model.boundary import BoundaryKind
from leakscope.model.report import PhaseMemory

WORTH_BYTES, WORTH_SHARE = 4 << 20, 0.02
"""What resident memory reached between boundaries is told from so far above them on."""


def find_phases(case: Case) -> list[PhaseMemory]:
    """Return medians over the occurrences of each phase, for the host and each device."""
    found = [
        _phase(case, phase, case.metric_of(device))
        for phase in case.track.phases
        for device in [HOST, *case.track.devices]
    ]
    return [phase for phase in found if phase is not None]


def _phase(case: Case, phase: str, metric: str) -> PhaseMemory | None:
    track = case.track
    values = track.gauge(metric)
    mine = np.flatnonzero((track.phase == track.phase_code(phase)) & np.isfinite(values))
    if not len(mine):
        return None
    starts = np.flatnonzero(np.diff(track.occurrence[mine], prepend=-1))
    stops = np.append(starts[1:], len(mine))
    before, peak, after = [], [], []
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        inside = values[mine[start:stop]]
        before.append(inside[0])
        peak.append(inside.max())
        after.append(_after(track.kind[mine[start:stop]], values, int(mine[stop - 1]), inside))
    highest, raised = _raised(case, phase, metric, max(peak))
    return PhaseMemory(
        phase=phase,
        occurrences=track.begun(phase),
        metric=metric,
        before_bytes=int(np.median(before)),
        peak_bytes=int(np.median(peak)),
        after_bytes=int(np.median(after)),
        kept_bytes=int(np.median(np.subtract(after, before))),
        highest_bytes=highest,
        raised_bytes=raised,
        most_bytes=int(max(peak)),
    )


def _raised(case: Case, phase: str, metric: str, seen: float) -> tuple[int | None, int | None]:
    """Return to what and by how much a phase raised the highest memory, where it is worth telling.

    Resident memory moves a little between any two boundaries.
    """
    highest, raised = raised_to(case, phase, metric)
    is_device = "." in metric
    worth = 0.0 if is_device else seen + max(WORTH_BYTES, WORTH_SHARE * seen)
    told = int(highest) if highest > worth else None
    return told, None if raised is None else int(raised)


def _after(
    kinds: np.ndarray[tuple[int], np.dtype[np.int64]],
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
    last: int,
    inside: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> float:
    """Return memory at the boundary after a phase: at its end its locals are still alive."""
    if kinds[-1] == code_of(BoundaryKind.PHASE_END) and last + 1 < len(values):
        following = values[last + 1]
        return float(following) if np.isfinite(following) else float(inside[-1])
    return float(inside[-1])
