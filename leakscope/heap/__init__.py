"""The heap as a graph: walked, named, and answered as a census."""

from leakscope.heap.census import CensusTaker

__all__ = ["CensusTaker"]
