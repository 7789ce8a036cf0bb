"""Many runs side by side: of each what its report says in a line."""

from __future__ import annotations

from enum import Enum

import msgspec

from leakscope.model.report import RunVerdict

RUNS_SCHEMA_VERSION = 1
COURSE_POINTS = 60
"""At most so many points of a run's memory are kept for its sparkline."""


class Standing(str, Enum):
    """How far a run has come."""

    REPORTED = "reported"
    RUNNING = "running"
    UNREPORTED = "unreported"
    """It has ended, and nobody has made its report."""
    UNREADABLE = "unreadable"
    """Its report is damaged, or of a newer leakscope."""


class Lead(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a run a leak: its first grave culprit, or its first grave finding."""

    name: str
    bytes_per_unit: float = 0.0
    unit: str = ""
    is_code: bool = True
    """Whether the name is one of the program's."""
    workers: int = 0
    """In how many DataLoader workers at once it grows, at that rate in each."""


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a list."""

    name: str
    """Of its folder."""
    path: str
    standing: Standing
    remark: str = ""
    """A sentence where there is no report: why, and what to do."""
    page: str = ""
    """Path of its page; empty where it has none."""
    verdict: RunVerdict | None = None
    headline: str = ""
    ran_out_of_memory: bool = False
    ended: str = ""
    """How the program ended, where not by itself: ``the run was killed by SIGKILL``."""
    script: str = ""
    created: float = 0.0
    """Seconds since the epoch; 0 where unknown."""
    duration_s: float | None = None
    lead: Lead | None = None
    growth_bytes_per_unit: float | None = None
    """Of the first gauge that was judged, and of child processes where they were; 0 where its
    interval has both signs.
    """
    growth_unit: str = ""
    peak_bytes: float | None = None
    """Of the process and its child processes together."""
    has_children: bool = False
    """Whether child processes held memory."""
    course: list[float] = []
    """Memory over the run in bytes, the highest reading of each stretch."""


class RunLink(msgspec.Struct, frozen=True, kw_only=True):
    """Another page that belongs to a list of runs."""

    label: str
    page: str
    sentence: str = ""


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    """The runs in a folder."""

    schema_version: int = RUNS_SCHEMA_VERSION
    directory: str
    title: str = ""
    runs: list[ListedRun]
    others: list[str] = []
    """Names of folders beside them that hold no run."""
    are_alike: bool = False
    """Whether all of them are forms of one program."""
    links: list[RunLink] = []
