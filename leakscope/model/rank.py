"""Ranks of a distributed training, as a report tells of them."""

from __future__ import annotations

import msgspec


class RankMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One rank, by its own recording."""

    rank: int
    host: str = ""
    pid: int = 0
    steps: int
    first_bytes: int | None = None
    """Memory of the process at its first reading, at its highest and at its last."""
    peak_bytes: int | None = None
    last_bytes: int | None = None
    bytes_per_unit: float = 0.0
    """How fast its memory grows."""
    unit: str = ""
    grows: list[str] = []
    """Names of what grows in it."""
    ended: str = ""
    began: float = 0.0
    """When it was first measured at work, in seconds since the epoch."""
    late_s: float = 0.0
    """How much later than the first rank that was; 0 where they began together."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One of several times that a launcher started all ranks."""

    number: int
    """From 1, in the order in which they began."""
    ranks: int
    steps: int
    began_s: float
    """Seconds after the first attempt."""
    duration_s: float
    ended: str
    is_judged: bool
    """Whether the report is about it."""


class RankCourse(msgspec.Struct, frozen=True, kw_only=True):
    """Memory by step of one rank, or of the middle of many."""

    label: str
    points: list[tuple[float, float]]
    """Steps and bytes."""


class OddRank(msgspec.Struct, frozen=True, kw_only=True):
    """The rank whose memory was the first to go another way than that of the others."""

    rank: int
    step: int
    """From which on its memory goes away from theirs."""
    bytes: int
    """How much more than the median of the others at the end, or where a rank ended early; negative
    if less."""
    sentence: str
