"""Two runs held side by side, as ``comparison.json`` has it."""

from __future__ import annotations

from enum import Enum

import msgspec

from leakscope.model.known import Recognised
from leakscope.model.report import (
    REPORT_SCHEMA_MINOR,
    REPORT_SCHEMA_VERSION,
    OddRank,
    Overhead,
    Point,
    RankCourse,
    RankMemory,
    RunFacts,
    RunVerdict,
    Severity,
    Timeline,
    Work,
    WorkerMemory,
)
from leakscope.model.run import Retained

NOTABLE_DIFFERENCE = 0.05
"""Rates and amounts that differ by no more than this part count as equal."""


class ChangeKind(str, Enum):
    """What became of a culprit between two runs."""

    FIXED = "fixed"
    REDUCED = "reduced"
    UNCHANGED = "unchanged"
    WORSE = "worse"
    NEW = "new"


class CulpritChange(msgspec.Struct, frozen=True, kw_only=True):
    """One culprit before and after."""

    change: ChangeKind
    name: str
    path: str
    signature: str
    unit: str
    severity: Severity
    """The worse of both."""
    before_bytes_per_unit: float | None = None
    before_interval: tuple[float, float] | None = None
    after_bytes_per_unit: float | None = None
    after_interval: tuple[float, float] | None = None
    significant: bool = False
    """Whether the difference of the rates is real: their intervals don't overlap, and they differ
    by more than :data:`NOTABLE_DIFFERENCE`."""
    text: str = ""
    doubt: str = ""
    """Why it is uncertain; empty where it isn't."""
    is_elsewhere: bool = False
    """Whether only one of two scripts has it, which did different work: neither fixed nor new."""
    is_unproven: bool = False
    """Whether the run that lacks it could not have shown it: neither fixed nor new."""
    place: str = ""
    """The line to look at: of the second run where it is still there, else of the first."""
    growth: str = "across"
    """``across`` or ``within``, in the second run where it is still there."""
    phase: str = ""
    device: str = "host"
    before_total_bytes: int | None = None
    """What it retained at its highest census."""
    after_total_bytes: int | None = None
    before_chart: list[Point] = []
    after_chart: list[Point] = []
    chart_unit: str = ""
    """What ``x`` counts in both charts, so that they lie over each other; ``s`` for seconds."""
    before_workers: int = 0
    """In how many DataLoader workers at once it grows."""
    after_workers: int = 0
    before_rates_by_rank: dict[str, float] = {}
    after_rates_by_rank: dict[str, float] = {}
    known: Recognised | None = None
    """What a library is known for here, in the second run where it is still there."""


class ValueChange(msgspec.Struct, frozen=True, kw_only=True):
    """A number of bytes before and after; None where one run lacks it."""

    name: str
    device: str = "host"
    before_bytes: float | None = None
    after_bytes: float | None = None
    unit: str = ""
    significant: bool | None = None
    before_interval: tuple[float, float] | None = None
    """95 % interval of a rate; None of what is no rate."""
    after_interval: tuple[float, float] | None = None


class Topic(str, Enum):
    """What a fact about two runs is about."""

    WORK = "work"
    PROGRAM = "program"
    ENVIRONMENT = "environment"
    MEASURING = "measuring"


class WorkFact(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was looked at to see whether two runs did the same work."""

    topic: Topic
    name: str
    before: str
    """Empty where the run doesn't have it."""
    after: str
    differs: bool = False
    matters: bool = True
    """Whether a difference makes their bytes hard to compare; it is a warning then."""


class RunCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a run took, and what it took to measure it."""

    work: Work = Work()
    peak_bytes: int | None = None
    """The highest reading of the process's memory."""
    overhead: Overhead = Overhead(wall_share=0.0, peak_bytes=0)
    problems: int = 0
    """What went wrong with measuring, recording or reading."""


class RankPair(msgspec.Struct, frozen=True, kw_only=True):
    """One rank in both runs; None where a run had no such rank."""

    rank: int
    before: RankMemory | None = None
    after: RankMemory | None = None


class WorkerPair(msgspec.Struct, frozen=True, kw_only=True):
    """One place for a DataLoader worker in both runs, by its heaviest process."""

    rank: int = 0
    loader: int
    worker: int
    before: WorkerMemory | None = None
    after: WorkerMemory | None = None


ANOTHER_SCRIPT = "Another script"
"""So begins the headline where another script did other work."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs held side by side."""

    schema_version: int = REPORT_SCHEMA_VERSION
    schema_minor: int = REPORT_SCHEMA_MINOR
    headline: str
    """The verdict in a sentence."""
    before: RunFacts
    after: RunFacts
    before_verdict: RunVerdict
    after_verdict: RunVerdict
    culprits: list[CulpritChange]
    growth: list[ValueChange]
    components: list[ValueChange]
    """Peaks per component."""
    peaks: list[ValueChange]
    """Peak per phase."""
    work_differences: list[str]
    """Why the two runs may not be comparable; empty when they did the same work."""
    is_another_program: bool = False
    """Whether another script did other work: then nothing that is missing there is fixed."""
    before_timeline: Timeline | None = None
    after_timeline: Timeline | None = None
    work: list[WorkFact] = []
    """What was compared to see whether both did the same work."""
    before_cost: RunCost = RunCost()
    after_cost: RunCost = RunCost()
    ranks: list[RankPair] = []
    before_odd_rank: OddRank | None = None
    after_odd_rank: OddRank | None = None
    before_rank_courses: list[RankCourse] = []
    after_rank_courses: list[RankCourse] = []
    workers: list[WorkerPair] = []
    details: list[str] = []
    """Further sentences on the verdict."""
    retained: Retained | None = None
    """What memory held in both, at the last censuses that are alike."""
