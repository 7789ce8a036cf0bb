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
    whole: bool = False
    """Of a full one: whether it walked every object, rather than going on from what was sealed."""
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


class CensusCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the heap the censuses of a run have seen."""

    taken: int = 0
    """Censuses that are listed in the recording, those that the user asked for left out."""
    full: int = 0
    """Of them, how many saw the whole heap."""
    whole: int = 0
    """Of the full ones, how many walked every object; others went on from what was sealed."""
    weighed: int = 0
    """Of the others, how many weighed all that is new since the first."""
    postponed_by_budget: int = 0
    """How often a kind of boundary had to wait for its census because of the budget."""
    left_out_by_pause: int = 0
    """Censuses that were not taken because each would have paused the program for too long."""
    made_cheaper_by_pause: int = 0
    """Censuses that looked at less for the same reason."""
    checked: int = 0
    """How often a whole walk was held against a census that goes on from the seal."""
    largest_drift_bytes: int | None = None
    """By how many bytes the two differed at most, in a sum or in a row; None where none was
    checked. Where they differ, what the whole walk found is used."""


class Overhead(msgspec.Struct, frozen=True, kw_only=True):
    """What leakscope cost, measured by itself."""

    wall_share: float
    peak_bytes: int
    seconds: dict[str, float] = {}
    censuses: int = 0
    boundaries: int = 0
    recorded_boundaries: int = 0
    longest_pause_s: float = 0.0
    longest_pause: str = ""
    """The census that took it: ``focused``, ``full``, or ``whole`` where it walked every object."""
    max_pause_s: float | None = None
    """The pause that a census may make, the first and the last apart."""
    census_coverage: CensusCoverage = CensusCoverage()
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
