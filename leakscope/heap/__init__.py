"""The heap as a graph: walked, named, and answered as a census or to a person at a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leakscope.model import exports

if TYPE_CHECKING:
    from leakscope.heap.census import CensusTaker
    from leakscope.heap.ownership import ownership_under
    from leakscope.heap.snapshots.answers import Difference
    from leakscope.heap.snapshots.snapshot import Snapshot, snapshot

__all__ = ["CensusTaker", "Difference", "Snapshot", "ownership_under", "snapshot"]

__getattr__, __dir__ = exports(
    __name__,
    {
        "census": ("CensusTaker",),
        "ownership": ("ownership_under",),
        "snapshots.answers": ("Difference",),
        "snapshots.snapshot": ("Snapshot", "snapshot"),
    },
)
