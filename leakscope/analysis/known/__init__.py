"""Known culprits: the shipped catalogue, a project's own entries, and what they match."""

from __future__ import annotations

from leakscope.analysis.known.catalogue import Catalogue, Entry, shipped, with_own
from leakscope.analysis.known.matching import Found, Sighting, find_known

__all__ = [
    "Catalogue",
    "Entry",
    "Found",
    "Sighting",
    "find_known",
    "shipped",
    "with_own",
]
