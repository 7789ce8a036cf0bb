"""What leakscope itself has cost: its time, its memory, each census and each gauge."""

from __future__ import annotations

import msgspec


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A census as it was taken: when, how much of the heap it walked, and what that cost."""

    time_s: float
    boundary: int
    phase: str
    step: int
    scope: str
    """``full``, or ``focused``: what the user's own names reach."""
    objects: int
    rows: int
    pause_s: float
    """How long the whole process stood still."""
    asked: bool = False
    """Whether the user asked for it, so that it belongs to no series."""


class Gauged(msgspec.Struct, frozen=True, kw_only=True):
    """A gauge and how often it was read."""

    metric: str
    unit: str
    """``bytes`` or ``count``."""
    meaning: str
    readings: int
    lowest: float
    highest: float
    last: float


class Overhead(msgspec.Struct, frozen=True, kw_only=True):
    """What leakscope cost, measured by itself."""

    wall_share: float
    peak_bytes: int
    seconds: dict[str, float] = {}
    censuses: int = 0
    boundaries: int = 0
    recorded_boundaries: int = 0
    longest_pause_s: float = 0.0
    budget: float | None = None
    walker: str = ""
    """``native``, or ``reference``: the slower one of an installation without a compiler."""
    put_off: dict[str, int] = {}
    """How often what was due waited for a later boundary, by what the program was inside of:
    ``torch.jit.trace``, say, which records what Python does meanwhile."""
    taken: list[Taken] = []
    """Censuses in the order in which they were taken; of very many those that paused longest."""
    gauged: list[Gauged] = []
    """What was read at boundaries, the most often first."""
