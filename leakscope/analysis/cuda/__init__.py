"""Snapshots of torch's CUDA allocator, explained offline: no torch, no GPU.

A file becomes a typed snapshot (``reading``), its history is played back exactly (``replay``),
and the state that matters is classified and judged (``explain``); several are held side by side
(``growth``).
"""

from __future__ import annotations

from leakscope.analysis.cuda.explain import explain
from leakscope.analysis.cuda.growth import compare_snapshots
from leakscope.analysis.cuda.reading import read_snapshot

__all__ = ["compare_snapshots", "explain", "read_snapshot"]
