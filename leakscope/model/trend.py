"""What became of a series over comparable boundaries."""

from __future__ import annotations

from enum import Enum

import msgspec


class TrendVerdict(str, Enum):
    """The shape of a series once warm-up is dropped."""

    GROWING = "growing"
    STEPWISE = "stepwise"
    BOUNDED = "bounded"
    SAWTOOTH = "sawtooth"
    FLAT = "flat"
    INCONCLUSIVE = "inconclusive"


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """Rate and verdict of one series."""

    verdict: TrendVerdict
    bytes_per_unit: float
    interval: tuple[float, float]
    """95 % interval of the rate, in bytes per unit."""
    unit: str
    points: int
    net_bytes: float
    """Last less first value after warm-up."""
    reason: str
    """Why this verdict, in words."""
