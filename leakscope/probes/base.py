"""The door that every probe has, and the guard behind which it reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol


class Probe(Protocol):
    """Reads gauges from one source."""

    @property
    def name(self) -> str:
        """What the source is called in the overhead and in faults."""

    @property
    def slow(self) -> bool:
        """True: read only now and then. False: cheap enough for every boundary."""

    def read(self) -> dict[str, int]:
        """Return gauges by their names in :mod:`leakscope.model.gauge`; never raises."""


class GuardedProbe(ABC):
    """A probe whose faults cost it this one reading and nothing else."""

    name: str
    slow: bool = False

    def read(self) -> dict[str, int]:
        """Return the gauges that can be read just now."""
        try:
            return self.measure()
        except Exception:
            return {}

    @abstractmethod
    def measure(self) -> dict[str, int]:
        """Return the gauges; may raise whatever the source raises."""
