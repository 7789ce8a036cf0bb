"""Growers: paths whose retained bytes grow, across phases or within one."""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.analysis.series import FloatArray, IntArray
from leakscope.model.trend import Trend


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
    """The censuses that tell what is kept, in the stretch that its rate is of."""
    x: FloatArray
    """Units done at those censuses."""
    y: FloatArray
    observed: IntArray
    """All censuses at which it could be seen."""
    observed_x: FloatArray
    """Units done at those."""
    per_boundary: float = 0.0
    """Across: bytes per boundary of the recording, whatever the unit."""
    spread: float = 0.0
    """Part of the growth that comes from there being more such objects, not larger ones."""
    items_per_unit: float | None = None
    repeats: int = 1
    """Occurrences of the phase in which growth within was seen."""
    falls_back: bool = True
    """Within: whether it was seen to be given back; an only passage may last to the end."""
