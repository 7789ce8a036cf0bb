"""The shape of a series: straight pieces over work, or an approach to a level.

A break is worth its cost if it lowers the log of the mean absolute deviation enough (a Laplace
likelihood whose scale never falls below a share of the range, so that exact series aren't split for
nothing). All places for one and two breaks on a grid of knots are tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from leakscope.analysis.growth import policy

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

CONSTANTS = np.geomspace(0.04, 0.7, 18)
"""Time constants that are tried, as shares of the run; longer ones look straight."""
FEWEST_CURVED = 8
"""Readings that a curve takes; of fewer three pieces or a kink look the same."""


@dataclass(frozen=True)
class Shape:
    """The shape that explains a series best."""

    breaks: tuple[float, ...]
    """The work done at the first reading of each piece but the first."""
    settles_after: float | None = None
    """The time constant with which it approaches a level, in work; None where it is straight."""
    is_surely_curved: bool = False
    """Whether that explains it better than straight pieces, not only as well."""


def fit_shape(x: FloatArray, y: FloatArray, noise: float) -> Shape:
    """Return the shape of what is kept.

    Args:
        x: Work done, rising.
        y: What is kept.
        noise: Deviations that mean nothing.

    """
    if len(x) < 3:
        return Shape(())
    scale = max(noise, policy.SCALE_SHARE * float(np.ptp(y)), np.finfo(float).tiny)
    knots = _knots(len(x))
    deviation = _deviations(x, y, knots)
    candidates: list[tuple[float, tuple[int, ...]]] = [
        (_cost(float(deviation[0, -1]), len(x), scale, 0), ()),
        _one_break(deviation, len(x), scale),
        _two_breaks(deviation, len(x), scale),
    ]
    best, places = min(candidates, key=lambda candidate: candidate[0])
    breaks = tuple(float(x[knots[place]]) for place in places)
    constant, cost = _settling(x, y, scale)
    if constant is None or cost > best + policy.CURVE_GAIN:
        return Shape(breaks)
    return Shape(breaks, constant, is_surely_curved=cost < best - policy.CURVE_GAIN)


def _knots(n: int) -> IntArray:
    """Return the readings at which a piece may begin, the end of the series last."""
    if n <= policy.MOST_KNOTS:
        return np.arange(n + 1)
    return np.unique(np.linspace(0, n, policy.MOST_KNOTS + 1).round().astype(np.int64))


def _deviations(x: FloatArray, y: FloatArray, knots: IntArray) -> FloatArray:
    """Return the absolute deviation from its line of each piece from a knot to another."""
    x, y = (x - x[0]) / (x[-1] - x[0]), y - y[0]
    sums = [np.concatenate([[0.0], np.cumsum(v)]) for v in (np.ones(len(x)), x, y, x * x, x * y)]
    n, sx, sy, sxx, sxy = (s[knots][None, :] - s[knots][:, None] for s in sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = sxx - sx * sx / n
        slope = np.where(spread > 1e-12, (sxy - sx * sy / n) / spread, 0.0)
        level = (sy - slope * sx) / n
    off = np.abs(y[None, None, :] - level[:, :, None] - slope[:, :, None] * x[None, None, :])
    total = np.concatenate([np.zeros((*off.shape[:2], 1)), np.cumsum(off, axis=2)], axis=2)
    rows, columns = np.indices(off.shape[:2])
    deviation: FloatArray = total[rows, columns, knots[columns]] - total[rows, columns, knots[rows]]
    deviation[n < 2] = np.inf
    return deviation


def _cost(deviation: float, n: int, scale: float, breaks: int) -> float:
    return float(_costs(np.array(deviation), n, scale, breaks))


def _costs(deviation: FloatArray, n: int, scale: float, breaks: int) -> FloatArray:
    costs: FloatArray = n * np.log1p(deviation / (n * scale)) + policy.BREAK_COST * breaks
    return costs


def _one_break(deviation: FloatArray, n: int, scale: float) -> tuple[float, tuple[int, ...]]:
    costs = _costs(deviation[0, :] + deviation[:, -1], n, scale, 1)
    at = int(np.argmin(costs))
    return float(costs[at]), (at,)


def _two_breaks(deviation: FloatArray, n: int, scale: float) -> tuple[float, tuple[int, ...]]:
    together = deviation[0, :][:, None] + deviation + deviation[:, -1][None, :]
    costs = _costs(together, n, scale, 2)
    first, second = divmod(int(np.argmin(costs)), costs.shape[1])
    return float(costs[first, second]), (first, second)


def _settling(x: FloatArray, y: FloatArray, scale: float) -> tuple[float | None, float]:
    """Return the time constant of the approach to a level that fits best, and its cost."""
    if len(x) < FEWEST_CURVED:
        return None, np.inf
    span = float(x[-1] - x[0])
    t = (x - x[0]) / span
    curves = 1 - np.exp(-t[None, :] / CONSTANTS[:, None])
    curves -= curves.mean(axis=1, keepdims=True)
    level = y - y.mean()
    height = (curves * level).sum(axis=1) / (curves * curves).sum(axis=1)
    off = np.abs(height[:, None] * curves - level)
    costs = _costs(off.sum(axis=1), len(x), scale, 1)
    best = int(np.argmin(costs))
    if height[best] <= 0 or _ends_straight(t, y, off[best], scale):
        return None, np.inf
    return float(CONSTANTS[best]) * span, float(costs[best])


def _ends_straight(t: FloatArray, y: FloatArray, off: FloatArray, scale: float) -> bool:
    """Return whether a line explains the second half better than the curve that fits the whole."""
    late = t >= 0.5
    n = int(late.sum())
    if n < FEWEST_CURVED // 2:
        return False
    slope, level = np.polyfit(t[late], y[late], 1)
    line = float(np.abs(slope * t[late] + level - y[late]).sum())
    curve = _cost(float(off[late].sum()), n, scale, 0)
    return bool(slope > 0 and _cost(line, n, scale, 0) < curve - policy.CURVE_GAIN)
