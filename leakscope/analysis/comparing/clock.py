"""The clock of steps: where in the training a moment of a run lies, so that two runs line up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def by_step(seconds: Sequence[float], clock: Sequence[tuple[float, float]]) -> list[float]:
    """Return moments as steps: what lies between two steps in parts of one, by its time.

    Args:
        seconds: moments of a run.
        clock: its :attr:`~leakscope.model.report.Timeline.steps`, not empty.

    """
    times, steps = [time for time, _ in clock], [step for _, step in clock]
    found: list[float] = np.interp(seconds, times, steps).tolist()
    return found
