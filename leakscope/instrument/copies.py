"""How much of what a worker inherited it has copied by now, between censuses too.

One census suffices to know where objects lie; whether their pages are still shared is then asked
without walking the heap again, which large datasets make dear.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from leakscope.model import gauge


class Looked(Protocol):
    """What :class:`leakscope.heap.CensusTaker` offers."""

    def copied_shares(self) -> Mapping[str, float]:
        """Return the copied part, 0 to 1, of structures that were looked at, by their paths."""


class CopiesReader:
    """Asks again what the latest census of a worker has asked; a source of gauges."""

    name = "copies"
    slow = True

    def __init__(self, taker: Looked) -> None:
        self._taker = taker

    def gauges(self) -> dict[str, int]:
        """Return the copied part of each structure, in thousandths."""
        shares = self._taker.copied_shares()
        return {gauge.copied(path): round(1000 * share) for path, share in shares.items()}
