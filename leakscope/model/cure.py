"""What the popular cleaning calls did in a run in which they were tried."""

from __future__ import annotations

from enum import Enum

import msgspec


class Effect(str, Enum):
    """Whether a call is worth anything here."""

    HELPS = "helps"
    LITTLE = "little"
    USELESS = "useless"
    UNDECIDED = "undecided"
    """Too few trials."""


class Cure(msgspec.Struct, frozen=True, kw_only=True):
    """One cleaning call over all its trials. Sizes are medians over the trials, in bytes."""

    call: str
    effect: Effect
    sentence: str
    times: int
    seconds: float
    """Median time that the call itself took."""
    objects: int | None = None
    """Unreachable objects found; only of a collection."""
    host_bytes: int = 0
    """Freed for this process, or returned to the system."""
    device_bytes: dict[str, int] = {}
    """Freed or returned, per device."""
    taken_again_bytes: int = 0
    """The part of what was returned that the program had taken again by the next trial."""


class Cures(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the popular cures can help in this run and which can't, as measured."""

    sentence: str
    cures: list[Cure] = []
    remarks: list[str] = []
    """What could not be tried, and why."""
