"""Rates that outliers don't move: the weighted median slope of all pairs, with its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from leakscope.analysis.growth import policy

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Slope:
    """A rate with its interval."""

    rate: float
    low: float
    high: float


def theil_sen(x: FloatArray, y: FloatArray, z: float = policy.Z_INTERVAL) -> Slope:
    """Return Theil and Sen's slope with Sen's interval; zero where no two readings differ in work.

    Args:
        x: Work done, not falling.
        y: What was read.
        z: The normal score of the interval.

    """
    if len(x) > policy.MOST_READINGS:
        chosen = np.unique(np.linspace(0, len(x) - 1, policy.MOST_READINGS).round().astype(int))
        x, y = x[chosen], y[chosen]
    first, second = np.triu_indices(len(x), 1)
    worked = x[second] - x[first]
    moved = worked > 0
    if not moved.any():
        return Slope(0.0, 0.0, 0.0)
    slopes = (y[second] - y[first])[moved] / worked[moved]
    order = np.argsort(slopes)
    # Readings lie close together where a run begins: each counts by the work that it stands for.
    stands_for = np.gradient(x)
    stands_for = np.maximum(stands_for, policy.USUAL_GAPS * np.median(stands_for))
    weights = (stands_for[first] * stands_for[second])[moved][order]
    share = np.cumsum(weights) / weights.sum()
    half = z * math.sqrt(_kendall_variance(y)) / (2 * len(slopes))
    wanted = [0.5 - half, 0.5, 0.5 + half]
    places = np.minimum(np.searchsorted(share, wanted), len(slopes) - 1)
    low, middle, high = slopes[order][places]
    return Slope(float(middle), float(low), float(high))


def kendall_score(y: FloatArray) -> float:
    """Return the normal score of Kendall's S of values in order: above 0 where they rise."""
    first, second = np.triu_indices(len(y), 1)
    s = float(np.sign(y[second] - y[first]).sum())
    variance = _kendall_variance(y)
    return (s - math.copysign(1.0, s)) / math.sqrt(variance) if s and variance else 0.0


def _kendall_variance(y: FloatArray) -> float:
    """Return the variance of Kendall's S without a trend, corrected for ties."""
    n = len(y)
    _, ties = np.unique(y, return_counts=True)
    tied = float((ties * (ties - 1) * (2 * ties + 5)).sum())
    return max(n * (n - 1) * (2 * n + 5) - tied, 0.0) / 18
