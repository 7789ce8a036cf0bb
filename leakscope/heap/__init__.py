"""The heap as a graph: walked, named, and answered as a census or to a person who asks."""

from leakscope.heap.census import CensusTaker
from leakscope.heap.ownership import ownership_under
from leakscope.heap.snapshots.difference import Difference
from leakscope.heap.snapshots.snapshot import Snapshot
from leakscope.heap.snapshots.taking import snapshot

__all__ = ["CensusTaker", "Difference", "Snapshot", "ownership_under", "snapshot"]
