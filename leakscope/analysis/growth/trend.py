"""What the growth model concludes, in a unit of work."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from leakscope.analysis.growth.model import Growth, judge_growth
from leakscope.model.trend import Trend

FloatArray = npt.NDArray[np.float64]


def judge(x: FloatArray, y: FloatArray, *, unit: str, noise: float) -> Trend:
    """Return whether a series grows with the work, and how fast.

    Args:
        x: Work done at each reading, not falling.
        y: Bytes, or a count.
        unit: What x counts.
        noise: Changes up to this much mean nothing, in the unit of y.

    """
    return trend_of(judge_growth(x, y, noise=noise), unit)


def trend_of(growth: Growth, unit: str) -> Trend:
    """Return a conclusion with the unit of work in which it was drawn."""
    return Trend(
        verdict=growth.verdict,
        reason=growth.reason,
        bytes_per_unit=growth.rate.rate,
        interval=(growth.rate.low, growth.rate.high),
        unit=unit,
        points=growth.readings,
        net_bytes=growth.gained,
        gained_before=growth.gained_before,
        tail_from=growth.tail_from,
        late_bytes_per_unit=growth.late_rate,
        more_work=growth.more_work,
    )
