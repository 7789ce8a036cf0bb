"""Growers: paths whose retained bytes grow, across phases or within one."""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.analysis.series import FloatArray, IntArray
from leakscope.model.trend import Trend

ROW_NOISE_BYTES = 4096.0
"""Retained sizes are exact, but tables of dicts and lists are over-allocated in small jumps."""


@dataclass(frozen=True)
class Grower:
    """One path that grows on one device."""

    path: int
    """Its place in the table of rows."""
    device: str
    growth: str
    """``across`` or ``within``."""
    unit: str
    phase: str
    trend: Trend
    """Rate and verdict, per unit."""
    gained: float
    """Bytes gained: over the recording (across) or at the height of the phase (within)."""
    units: float
    """Units of work in the whole recording (across) or from first to last census (within)."""
    columns: IntArray
    """The censuses it was judged by."""
    x: FloatArray
    """Units done at those censuses."""
    y: FloatArray
    per_boundary: float = 0.0
    """Across: bytes per boundary of the recording, whatever the unit."""
    spread: float = 0.0
    """Part of the growth that comes from there being more such objects, not larger ones."""
    items_per_unit: float | None = None
    repeats: int = 1
    """Occurrences of the phase in which growth within was seen."""
    falls_back: bool = True
    """Within: whether it was seen to be given back; an only passage may last to the end."""
