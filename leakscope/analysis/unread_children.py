"""Child processes that hold much more than at first or become ever more, and were read too seldom
to be judged.
"""

from __future__ import annotations

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.severity import MIB
from leakscope.analysis.trends import FEWEST_POINTS
from leakscope.model import gauge
from leakscope.model.sizes import human_bytes, plural

GAINED_BYTES = 128 * MIB
"""A process that imports torch and makes its batches ready takes less."""
MORE_PROCESSES = 4
MORE_BYTES = 32 * MIB
"""So much more there must be where processes pile up."""
LEVELS = 4
"""Loaders for training, validation and test start their workers one after the other: three."""


def unread_children(case: Case) -> list[str]:
    """Return what is missing when nobody can tell whether child processes grow, though they did.

    What workers of DataLoaders gain is left to their own recordings, how many they are is not.
    """
    if piled := _piled_up(case):
        return [piled]
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


def _piled_up(case: Case) -> str:
    """Return that processes became ever more until the work ended, if they did."""
    track = case.track
    known = track.known(gauge.CHILDREN)
    read = np.array([p for p in known if track.boundaries[p].phase], dtype=np.int64)
    if len(read) < LEVELS:
        return ""
    count, at = track.gauge(gauge.CHILDREN)[read], track.time_s[read]
    lately = at > at[0] + 2 * (at[-1] - at[0]) / 3
    rises = bool((np.diff(count) >= 0).all()) and count[-1] > count[~lately].max()
    if not rises or len({*count.tolist()}) < LEVELS or count[-1] - count[0] < MORE_PROCESSES:
        return ""
    before, after = (case.nearest(gauge.CHILDREN_PSS, int(read[end])) or 0.0 for end in (0, -1))
    if after - before < MORE_BYTES:
        return ""
    return (
        f"Child processes became ever more, from {count[0]:.0f} to {count[-1]:.0f}, and hold "
        f"{human_bytes(after - before)} more than at first; they were counted too seldom for a "
        "verdict. Loaders, iterators or pools that are kept keep their processes alive: let go of "
        "them, or profile longer."
    )


def _gained(case: Case) -> tuple[float, float]:
    """Return how much more than at first as many child processes held later, and how much."""
    count, held = (case.track.gauge(name) for name in (gauge.CHILDREN, gauge.CHILDREN_PSS))
    known = np.isfinite(held) & (count > 0)
    if not known.any():
        return 0.0, 0.0
    count, held = count[known], held[known]
    most = float(held[count <= count[0]].max())
    return most - float(held[0]), most
