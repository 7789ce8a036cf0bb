"""Child processes that hold much more than at first, and were read too seldom to be judged."""

from __future__ import annotations

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.severity import MIB
from leakscope.analysis.trends import FEWEST_POINTS
from leakscope.model import gauge
from leakscope.model.sizes import human_bytes, plural

GAINED_BYTES = 128 * MIB
"""A process that imports torch and makes its batches ready takes less."""


def unread_children(case: Case) -> list[str]:
    """Return what is missing when nobody can tell whether child processes grow, though they did.

    Workers of DataLoaders are left to their own recordings.
    """
    if any(recording.header.worker is not None for recording in case.run.recordings):
        return []
    if case.is_read_throughout(gauge.CHILDREN_PSS):
        return []
    gained, held = _gained(case)
    if gained < GAINED_BYTES:
        return []
    readings = len(case.gauge_series(gauge.CHILDREN_PSS)[1])
    few = f"only {plural(readings, 'comparable boundary')}"
    text = (
        f"Child processes held up to {human_bytes(held)}, {human_bytes(gained)} more than at "
        f"first, and were read at {few if readings < FEWEST_POINTS else 'the beginning only'}, so "
        "growth can't be told from a warm-up: profile longer, or raise --budget."
    )
    return [text]


def _gained(case: Case) -> tuple[float, float]:
    """Return how much more than at first as many child processes held later, and how much."""
    count, held = (case.track.gauge(name) for name in (gauge.CHILDREN, gauge.CHILDREN_PSS))
    known = np.isfinite(held) & (count > 0)
    if not known.any():
        return 0.0, 0.0
    count, held = count[known], held[known]
    most = float(held[count <= count[0]].max())
    return most - float(held[0]), most
