"""What is measured at a boundary: one module per source.

Probes read; they never start threads, import torch, create a CUDA context or raise. A source that
is missing (another platform, no GPU, no control group) yields no gauges rather than zeros. A probe
has two entries: ``read`` never raises, ``gauges`` raises the faults of the probe itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import psutil

from leakscope.model.errors import ours


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

    def gauges(self) -> dict[str, int]:
        """Return the same; raises what is a fault of the probe's and no missing source."""


class GuardedProbe(ABC):
    """A probe whose source may be missing, now or always."""

    name: str
    slow: bool = False

    def read(self) -> dict[str, int]:
        """Return the gauges that can be read just now; never raises."""
        try:
            return self.gauges()
        except ours(Exception):
            return {}

    def gauges(self) -> dict[str, int]:
        """Return the gauges that can be read just now; raises what no missing source explains."""
        try:
            return self.measure()
        except ours(OSError, psutil.Error):
            return {}

    @abstractmethod
    def measure(self) -> dict[str, int]:
        """Return the gauges; may raise whatever the source raises."""
