"""torch's history of allocations on CUDA, for a window: who allocated what lives at its end.

Recorded is the Python stack of each allocation, and kept with the block while it lives; no ring of
past events, no native frames. A recording that the program itself has started is never touched:
there is but one per process, and a second call would replace it.
"""

from __future__ import annotations

import sys

from leakscope.probes import cuda as allocator


class AllocationHistory:
    """Records allocation stacks from :meth:`open` to :meth:`close`."""

    def __init__(self) -> None:
        self.is_open = False

    def open(self) -> bool:
        """Begin; return False where CUDA isn't in use or the program records by itself.

        A torch that can't tell whether it records (before 2.1) is left alone too.
        """
        cuda = allocator.awake_cuda()
        asks = getattr(sys.modules["torch"]._C, "_cuda_isHistoryEnabled", None) if cuda else None
        if cuda is None or asks is None or asks() or cuda.is_current_stream_capturing():
            return False
        cuda.memory._record_memory_history("state", context="state", stacks="python")
        self.is_open = allocator.own_history = True
        return True

    def close(self) -> None:
        """End, unless the program has begun a recording of its own meanwhile: that goes on."""
        if not self.is_open:
            return
        self.is_open = allocator.own_history = False
        cuda = allocator.awake_cuda()
        if cuda is None:
            return
        # Ours keeps one event at most; a longer list belongs to a recording that replaced it.
        events = cuda.memory._snapshot().get("device_traces", [])
        if all(len(of_device) <= 1 for of_device in events):
            cuda.memory._record_memory_history(enabled=None)
