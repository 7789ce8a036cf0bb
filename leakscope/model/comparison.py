"""Two runs held side by side, as ``comparison.json`` has it."""

from __future__ import annotations

from enum import Enum

import msgspec

from leakscope.model.report import (
    REPORT_SCHEMA_VERSION,
    RunFacts,
    RunVerdict,
    Severity,
    Timeline,
)


class Change(str, Enum):
    """What became of a culprit between two runs."""

    FIXED = "fixed"
    REDUCED = "reduced"
    UNCHANGED = "unchanged"
    WORSE = "worse"
    NEW = "new"


class CulpritChange(msgspec.Struct, frozen=True, kw_only=True):
    """One culprit before and after."""

    change: Change
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
    """Whether the difference of the rates is real: their intervals don't overlap."""
    text: str = ""


class ValueChange(msgspec.Struct, frozen=True, kw_only=True):
    """A number of bytes before and after; None where one run lacks it."""

    name: str
    device: str = "host"
    before_bytes: float | None = None
    after_bytes: float | None = None
    unit: str = ""
    significant: bool | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs held side by side."""

    schema_version: int = REPORT_SCHEMA_VERSION
    headline: str
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
    before_timeline: Timeline | None = None
    after_timeline: Timeline | None = None
