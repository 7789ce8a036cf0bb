"""Fewer readings of the same shape."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def thinned(positions: IntArray, most: int) -> IntArray:
    """Return at most so many positions, evenly over them, the first and the last among them."""
    if len(positions) <= most:
        return positions
    return positions[np.unique(np.linspace(0, len(positions) - 1, most).round().astype(np.int64))]
