"""What is measured at a boundary: one module per source.

Probes read; they never start threads, import torch, create a CUDA context or raise. A source that
is missing (another platform, no GPU, no control group) yields no gauges rather than zeros. A probe
has two entries: ``read`` never raises, ``gauges`` raises the faults of the probe itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import psutil

from leakscope.model.errors import ours


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
            return self._measure()
        except ours(OSError, psutil.Error):
            return {}

    @abstractmethod
    def _measure(self) -> dict[str, int]:
        """Return the gauges; may raise whatever the source raises."""


def content(path: Path) -> bytes:
    """Return what is in a file; nothing where it can't be read."""
    try:
        return path.read_bytes()
    except ours(OSError):
        return b""
