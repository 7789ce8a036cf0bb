"""A torch that stands in for one with a GPU, to see what is called of it; its figures are made up.

What is measured on a GPU is tested on one, in ``test_cleanup_on_gpu.py``.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest


class StandIn(types.ModuleType):
    """As much of ``torch.cuda`` as the room may touch, with a device in use and one that isn't."""

    def __init__(self, *, is_initialized: bool = True, is_capturing: bool = False) -> None:
        super().__init__("torch.cuda")
        self.memory = self
        self.calls: list[str] = []
        self.kept = {0: {"allocated": 100, "peak": 300, "reserved": 500}, 1: {}}
        self._state = is_initialized, is_capturing

    def is_initialized(self) -> bool:
        return self._state[0]

    def is_current_stream_capturing(self) -> bool:
        return self._state[1]

    def __getattribute__(self, name: str) -> Any:
        quiet = ("is_initialized", "calls", "_state", "OutOfMemoryError")
        if not name.startswith("__") and name not in quiet:
            assert self._state[0], f"torch.cuda.{name} would wake CUDA"
        return super().__getattribute__(name)

    def device_count(self) -> int:
        return len(self.kept)

    def current_device(self) -> int:
        return 0

    def memory_stats_as_nested_dict(self, device: int) -> dict[str, Any]:
        kept = self.kept[device]
        return {
            "allocated_bytes": {
                "all": {"current": kept.get("allocated", 0), "peak": kept.get("peak", 0)}
            },
            "reserved_bytes": {"all": {"current": kept.get("reserved", 0)}},
        }

    def memory_reserved(self, device: int) -> int:
        return self.kept[device].get("reserved", 0)

    def mem_get_info(self, device: int) -> tuple[int, int]:
        assert self.memory_reserved(device), "would make a context"
        return 1000, 8000

    def empty_cache(self) -> None:
        self.calls.append("empty_cache")
        self.kept[0]["reserved"] = 200

    def reset_peak_memory_stats(self, device: int) -> None:
        self.calls.append(f"reset {device}")
        self.kept[device]["peak"] = 100


def install(monkeypatch: pytest.MonkeyPatch, cuda: StandIn) -> StandIn:
    torch = types.ModuleType("torch")
    torch.cuda = cuda  # type: ignore[attr-defined]
    torch._C = types.SimpleNamespace(  # type: ignore[attr-defined]
        _host_emptyCache=lambda: cuda.calls.append("empty_host_cache")
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    return cuda
