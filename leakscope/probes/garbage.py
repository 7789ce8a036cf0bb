"""Python's cyclic garbage collector: what it has done and whether it is at work."""

from __future__ import annotations

import gc

from leakscope.model import gauge
from leakscope.probes.base import GuardedProbe


class GarbageProbe(GuardedProbe):
    """Counters of the collector, about two microseconds; collects nothing itself."""

    name = "gc"

    def measure(self) -> dict[str, int]:
        """Return the counters, summed over the generations."""
        generations = gc.get_stats()
        return {
            gauge.GC_COUNT: gc.get_count()[0],
            gauge.GC_COLLECTIONS: sum(g["collections"] for g in generations),
            gauge.GC_COLLECTED: sum(g["collected"] for g in generations),
            gauge.GC_UNCOLLECTABLE: sum(g["uncollectable"] for g in generations),
            gauge.GC_FROZEN: gc.get_freeze_count(),
            gauge.GC_ENABLED: int(gc.isenabled()),
        }
