"""What a tracker must be able to do, and what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Told:
    """What a report says in the end, for a tracker to keep."""

    page: Path
    """``report.html``."""
    verdict: str
    sentence: str
    rates: Mapping[str, float]
    """Of each culprit, by the name under which it is drawn."""
    step: int


class Place(Protocol):
    """A run or a writer that the program has open now."""

    @property
    def is_local(self) -> bool:
        """Whether what is logged there stays on this machine."""

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Draw figures; the axis of the program's own figures stays as it is."""

    def keep(self, told: Told) -> None:
        """Keep a report, as far as the tracker has room for files."""


class Tracker(Protocol):
    """A library that draws what programs log."""

    @property
    def name(self) -> str:
        """What it is called in options."""

    @property
    def logs_rows(self) -> bool:
        """Whether a log makes a row of the program's: then its last figures are told at the end."""

    def place(self) -> Place | None:
        """Return where the program logs now; None where it hasn't imported it or has no run."""
