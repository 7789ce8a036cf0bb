"""Device memory as its caching allocator sees it, from a recorded run or from a snapshot file.

Works without torch and without a GPU. A file becomes a typed snapshot (``reading``), its history is
played back exactly (``replay``), and the state that matters is classified and judged (``explain``).
"""

from __future__ import annotations

from leakscope.analysis.allocator.comparison import compare_snapshots
from leakscope.analysis.allocator.explain import explain
from leakscope.analysis.allocator.reading import read_snapshot

__all__ = ["compare_snapshots", "explain", "read_snapshot"]
