"""What people keep by hand to clean up memory, made to say what it really does.

>>> from leakscope import cleanup
>>> print(cleanup.clear_memory(force=True))         # what each step freed, and what it took
>>> print(cleanup.memory_stats())                   # host and devices
>>> with cleanup.MemoryScope("validation"):         # what a block kept, and its peak
...     validate()
>>> @cleanup.oom_guard(retries=1, on_retry=halve)   # explain, clean, try again
... def step(): ...
>>> for batch in cleanup.cleanup_every(10)(loader): # says so when it is useless
...     train(batch)

None of it imports torch or wakes a GPU that the process has not used, and all of it works without
either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leakscope.model import exports

if TYPE_CHECKING:
    from leakscope.cleanup.clearing import (
        CleanupReport,
        ClearedMemory,
        ClearedStep,
        cleanup_every,
        clear_memory,
    )
    from leakscope.cleanup.levels import Peak, reset_peak_memory_stats
    from leakscope.cleanup.out_of_memory import Attempt, OutOfMemory, is_out_of_memory, oom_guard
    from leakscope.cleanup.scope import MemoryScope, ScopeReport
    from leakscope.cleanup.statistics import (
        DeviceMemory,
        HostMemory,
        LiveTensors,
        MemoryStats,
        TensorGroup,
        live_tensors,
        log_memory_stats,
        memory_stats,
    )
    from leakscope.cleanup.survey import GpuSurvey, survey_gpus

__all__ = [
    "Attempt", "CleanupReport", "ClearedMemory", "ClearedStep", "DeviceMemory", "GpuSurvey",
    "HostMemory", "LiveTensors", "MemoryScope", "MemoryStats", "OutOfMemory", "Peak", "ScopeReport",
    "TensorGroup", "cleanup_every", "clear_memory", "is_out_of_memory", "live_tensors",
    "log_memory_stats", "memory_stats", "oom_guard", "reset_peak_memory_stats", "survey_gpus",
]  # fmt: skip

__getattr__, __dir__ = exports(__name__, {
    "clearing": (
        "CleanupReport", "ClearedMemory", "ClearedStep", "cleanup_every", "clear_memory",
    ),
    "levels": ("Peak", "reset_peak_memory_stats"),
    "out_of_memory": ("Attempt", "OutOfMemory", "is_out_of_memory", "oom_guard"),
    "scope": ("MemoryScope", "ScopeReport"),
    "statistics": (
        "DeviceMemory", "HostMemory", "LiveTensors", "MemoryStats", "TensorGroup", "live_tensors",
        "log_memory_stats", "memory_stats",
    ),
    "survey": ("GpuSurvey", "survey_gpus"),
})  # fmt: skip
