"""The history of allocations: recorded in a window, never in the way of the program's own."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from leakscope.probes import cuda as allocator
from leakscope.probes.cuda import AllocationHistory


class FakeTorch(types.ModuleType):
    """One allocator whose history is on or off."""

    def __init__(self, *, awake: bool = True, capturing: bool = False, can_tell: bool = True):
        super().__init__("torch")
        self.recording: tuple[Any, ...] = ()
        self.events: list[list[int]] = [[1]]
        self.cuda = types.SimpleNamespace(
            is_initialized=lambda: awake,
            is_current_stream_capturing=lambda: capturing,
            memory=types.SimpleNamespace(
                _record_memory_history=self.record,
                _snapshot=lambda: {"segments": [], "device_traces": self.events},
            ),
        )
        self._C = types.SimpleNamespace()
        if can_tell:
            self._C._cuda_isHistoryEnabled = lambda: bool(self.recording)

    def record(self, enabled: str | None = "all", **how: str) -> None:
        self.recording = (enabled, how) if enabled else ()


@pytest.fixture(autouse=True)
def forgotten() -> Any:
    yield
    allocator.own_history = False


def install(monkeypatch: pytest.MonkeyPatch, torch: FakeTorch) -> FakeTorch:
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


def test_a_window_records_python_stacks_of_live_memory_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = install(monkeypatch, FakeTorch())
    history = AllocationHistory()
    assert history.open()
    assert torch.recording == ("state", {"context": "state", "stacks": "python"})
    assert allocator.own_history
    history.close()
    assert torch.recording == ()
    assert not allocator.own_history


@pytest.mark.parametrize(
    "torch",
    [FakeTorch(awake=False), FakeTorch(capturing=True), FakeTorch(can_tell=False)],
    ids=["asleep", "a graph is captured", "can't tell"],
)
def test_where_it_can_not_be_recorded_nothing_is_done(
    monkeypatch: pytest.MonkeyPatch, torch: FakeTorch
) -> None:
    install(monkeypatch, torch)
    history = AllocationHistory()
    assert not history.open()
    history.close()
    assert torch.recording == ()


def test_a_recording_of_the_programs_own_is_never_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = install(monkeypatch, FakeTorch())
    torch.record("all", max_entries="7")
    history = AllocationHistory()
    assert not history.open()
    history.close()
    assert torch.recording == ("all", {"max_entries": "7"})


def test_one_that_the_program_begins_within_a_window_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = install(monkeypatch, FakeTorch())
    history = AllocationHistory()
    history.open()
    torch.record("all")
    torch.events = [[1, 2, 3]]
    history.close()
    assert torch.recording == ("all", {})


def test_blocks_are_listed_while_the_history_is_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = install(monkeypatch, FakeTorch())
    monkeypatch.setitem(sys.modules, "torch.cuda.memory", torch.cuda.memory)
    torch.cuda.memory.memory_snapshot = lambda mempool_id=None: []
    torch.cuda.memory._snapshot = lambda: {"segments": [1], "device_traces": [[1]]}
    torch.record("all")
    assert allocator.allocator_segments() == []
    torch.record(None)
    AllocationHistory().open()
    assert allocator.allocator_segments() == [1]
