"""What became of a series: whether what is kept grows with the work, how fast, and why."""

from __future__ import annotations

from enum import Enum

import msgspec


class TrendVerdict(str, Enum):
    """Whether what is kept grows with the work."""

    GROWING = "growing"
    BOUNDED = "bounded"
    INCONCLUSIVE = "inconclusive"


class Reason(str, Enum):
    """Why: the last rule of the growth model that decided."""

    STEADY = "steady"
    """Growing: the tail rises."""
    SLOWING = "slowing"
    """Growing, but the tail's second half rises less than half as steeply as its first."""
    UNCHANGED = "unchanged"
    """Bounded: it never moved by more than noise."""
    RELEASED = "released"
    """Bounded: what it gains is released."""
    STOPPED = "stopped"
    """Bounded: it grew, and rests since longer than ever before."""
    SETTLED = "settled"
    """Bounded: it approaches a level, and has nearly reached it."""
    NO_TREND = "no trend"
    """Bounded: its readings scatter about a level."""
    TOO_FEW = "too few"
    """Inconclusive: readings."""
    SHORT_RISE = "short rise"
    """Inconclusive: it rises, for too short a time to distinguish it from a jump or a fill."""
    SHORT_REST = "short rest"
    """Inconclusive: it rests, no longer than it did before."""
    SETTLING = "settling"
    """Inconclusive: it approaches a level, and has some way to go."""
    SCATTERED = "scattered"
    """Inconclusive: its readings scatter too much for the size of the trend."""


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """What the growth model concludes of a series, in units of work."""

    verdict: TrendVerdict
    reason: Reason
    bytes_per_unit: float
    """Of the tail: the last stretch, which alone decides whether growth goes on."""
    interval: tuple[float, float]
    """95 % interval of the rate, in bytes per unit."""
    unit: str
    points: int
    """Readings of the tail."""
    net_bytes: float
    """What the tail gained."""
    gained_before: float = 0.0
    """What was gained before the tail."""
    tail_from: float = 0.0
    """The work done where the tail begins."""
    late_bytes_per_unit: float | None = None
    """By which to forecast where growth slows down."""
    more_work: float | None = None
    """Inconclusive: how many more units would decide; None where nobody knows."""

    @property
    def is_growing(self) -> bool:
        """Whether it grows, and goes on."""
        return self.verdict is TrendVerdict.GROWING

    @property
    def is_bounded(self) -> bool:
        """Whether it doesn't grow, or did and has ended."""
        return self.verdict is TrendVerdict.BOUNDED

    @property
    def is_open(self) -> bool:
        """Whether it is undecided."""
        return self.verdict is TrendVerdict.INCONCLUSIVE
