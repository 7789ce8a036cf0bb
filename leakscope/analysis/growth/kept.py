"""What is kept of a series: the least that it reads from each moment to its end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from leakscope.analysis.growth import policy

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Series:
    """A series up to where it is known what is kept of it."""

    x: FloatArray
    y: FloatArray
    noise: float
    scatter: float
    """Standard deviation of readings about their neighbours: exact series have none."""
    kept_x: FloatArray
    """Work done at the readings that are kept to the end."""
    kept_y: FloatArray
    """What was read there, with its scatter."""
    least: FloatArray
    """The least that was read from there on: it never falls."""
    valleys: IntArray
    """Positions of the lowest reading after each release, up to the next one."""

    @staticmethod
    def of(x: FloatArray, y: FloatArray, noise: float) -> Series:
        """Return what is kept of readings over work; see ``judge_growth``."""
        x, y = _readings(x, y)
        scatter = scatter_of(x, y)
        step = _release(y, noise, scatter)
        released = np.flatnonzero(np.diff(y) < -step) + 1
        if len(released) and x[-1] - x[released[-1]] <= np.diff(x[[0, *released]]).max():
            x, y = x[: released[-1] + 1], y[: released[-1] + 1]
        least = np.minimum.accumulate(y[::-1])[::-1]
        valleys = _valleys(y, released[released < len(y)])
        kept = np.flatnonzero(y - least <= step)
        if scatter > 0 and len(valleys) >= policy.FEWEST_SCATTERED:
            kept, scatter = valleys, max(scatter, scatter_of(x[valleys], y[valleys]))
        kept = thinned(kept, policy.MOST_READINGS)
        return Series(x, y, noise, scatter, x[kept], y[kept], least[kept], valleys)

    @property
    def span(self) -> float:
        """The work from the first reading to where what is kept is known."""
        return float(self.x[-1] - self.x[0]) if len(self.x) else 0.0

    @property
    def rise(self) -> float:
        """What more is kept at its end than at its beginning."""
        return float(self.least[-1] - self.least[0])

    @property
    def is_exact(self) -> bool:
        """Whether rises and rests can be read off, scatter being little beside them."""
        return self.is_little(float(np.ptp(self.y)))

    def is_little(self, size: float) -> bool:
        """Return whether scatter is little beside a change of some size."""
        return policy.RELEASE_SCATTERS * self.scatter <= policy.EXACT_SHARE * size

    def step(self, rise: float) -> float:
        """Return what counts as a change in a stretch that rises so far."""
        return max(self.noise, policy.STEP_SHARE * rise, policy.RELEASE_SCATTERS * self.scatter)

    def since(self, begin: float) -> tuple[FloatArray, FloatArray]:
        """Return all readings from some work on, teeth included."""
        later = thinned(np.flatnonzero(self.x >= begin), policy.MOST_READINGS)
        return self.x[later], self.y[later]

    def resting_since(self, begin: float) -> int:
        """Return how many readings tell that nothing was gained since some work.

        Among teeth their lowest readings do, and what came after the last of them.
        """
        if not len(self.valleys):
            return int((self.kept_x >= begin).sum())
        valleys = self.x[self.valleys]
        after = (self.kept_x >= max(begin, float(valleys[-1]))).sum()
        return int(max((valleys >= begin).sum(), after))

    def kept_since(self, begin: float) -> tuple[FloatArray, FloatArray]:
        """Return the readings that are kept from some work on."""
        later = self.kept_x >= begin
        return self.kept_x[later], self.kept_y[later]


def _valleys(y: FloatArray, released: IntArray) -> IntArray:
    """Return the position of the lowest reading from each release to the next one."""
    parts = np.split(np.arange(len(y)), released)[1:]
    return np.array([part[np.argmin(y[part])] for part in parts], dtype=np.int64)


def scatter_of(x: FloatArray, y: FloatArray) -> float:
    """Return the standard deviation of readings about the line between their neighbours.

    The median decides, so that breaks and teeth that are wider than a few readings are no scatter.
    """
    if len(x) < policy.FEWEST_SCATTERED:
        return 0.0
    share = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    off = y[1:-1] - (1 - share) * y[:-2] - share * y[2:]
    off /= np.sqrt(1 + share**2 + (1 - share) ** 2)
    scatter = float(policy.NORMAL_MAD * np.median(np.abs(off)))
    return scatter if scatter > policy.ROUNDING * float(np.ptp(y)) else 0.0


def _release(y: FloatArray, noise: float, scatter: float) -> float:
    """Return what a series must fall by to have released something."""
    whole = policy.STEP_SHARE * float(np.ptp(y)) if len(y) else 0.0
    return max(noise, whole, policy.RELEASE_SCATTERS * scatter)


def _readings(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what was read, in the order of work; of several looks at one moment the least."""
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known].astype(np.float64), y[known].astype(np.float64)
    moments, first = np.unique(x, return_index=True)
    return moments, np.minimum.reduceat(y, first) if len(first) else y


def thinned(positions: IntArray, most: int) -> IntArray:
    """Return at most so many positions, evenly over them, the first and the last among them."""
    if len(positions) <= most:
        return positions
    return positions[np.unique(np.linspace(0, len(positions) - 1, most).round().astype(np.int64))]
