"""What is called of torch where a device is in use, and that nothing is where none is."""

from __future__ import annotations

import sys
import types

import pytest
from stand_in import StandIn, install

from leakscope import cleanup
from leakscope.cleanup.levels import (
    NO_TORCH,
    CounterMark,
    PeakWatch,
    awake_accelerator,
    peak_between,
)


def test_cuda_that_nobody_used_is_not_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = install(monkeypatch, StandIn(is_initialized=False))
    cleanup.clear_memory(force=True)
    assert cleanup.memory_stats().devices == ()
    cleanup.reset_peak_memory_stats()
    with cleanup.MemoryScope(quiet=True, exact_peak=True):
        pass
    assert cuda.calls == []


def test_caches_are_emptied_and_what_went_back_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = install(monkeypatch, StandIn())
    cleared = cleanup.clear_memory()
    assert cuda.calls == ["empty_cache", "empty_host_cache"]
    assert cleared.device_returned == {"cuda:0": 300}
    assert "empty_cache() returned 300 B on cuda:0" in str(cleared)


def test_caches_are_left_alone_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = install(monkeypatch, StandIn(is_capturing=True))
    cleared = cleanup.clear_memory()
    assert cuda.calls == []
    assert "graph is being captured" in str(cleared)


def test_devices_in_use_are_reported_and_others_not_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, StandIn())
    stats = cleanup.memory_stats()
    (device,) = stats.devices
    assert (device.device, device.allocated, device.reserved) == ("cuda:0", 100, 500)
    assert (device.free, device.total, device.outside) == (1000, 8000, 6500)
    assert (device.cached, device.stuck) == (None, None)
    assert stats.remark is None
    assert "cuda:0 100 B allocated, peak 300 B" in str(stats)


def test_peaks_of_devices_in_use_start_again_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = install(monkeypatch, StandIn())
    assert "cuda:0" in cleanup.reset_peak_memory_stats()
    assert cuda.calls == ["reset 0"]


def test_a_scope_leaves_the_programs_counters_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = install(monkeypatch, StandIn())
    with cleanup.MemoryScope("step", quiet=True) as scope:
        cuda.kept[0]["allocated"] = 250
    assert cuda.calls == []
    assert scope.report is not None
    assert scope.report.device_kept == {"cuda:0": 150}
    assert str(scope.report.device_peak["cuda:0"]) == "between 250 B and 300 B"


def test_an_inner_exact_scope_doesnt_spoil_the_outer_ones_peak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = install(monkeypatch, StandIn())
    with cleanup.MemoryScope("outer", quiet=True) as outer:
        cuda.kept[0]["peak"] = 900
        with cleanup.MemoryScope("inner", quiet=True, exact_peak=True) as inner:
            cuda.kept[0]["peak"] = 400
    assert outer.report is not None
    assert inner.report is not None
    assert outer.report.device_peak["cuda:0"] == cleanup.Peak(900, 900)
    assert inner.report.device_peak["cuda:0"] == cleanup.Peak(400, 400)


def test_torch_accelerator_is_queried_where_it_means_these_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = install(monkeypatch, StandIn())
    sys.modules["torch"].accelerator = types.SimpleNamespace(  # type: ignore[attr-defined]
        current_accelerator=lambda: types.SimpleNamespace(type="cuda"),
        empty_cache=lambda: cuda.calls.append("accelerator.empty_cache"),
        empty_host_cache=lambda: cuda.calls.append("accelerator.empty_host_cache"),
    )
    cleanup.clear_memory()
    assert cuda.calls == ["accelerator.empty_cache", "accelerator.empty_host_cache"]


def test_a_process_without_torch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert awake_accelerator() is None
    assert cleanup.memory_stats().remark == NO_TORCH
    assert NO_TORCH in cleanup.clear_memory().remarks
    assert cleanup.live_tensors() == cleanup.LiveTensors()


@pytest.mark.parametrize(
    ("begin", "end", "shown"),
    [
        (CounterMark(10, 50), CounterMark(20, 80), "80 B"),
        (CounterMark(10, 50), CounterMark(20, 50), "between 20 B and 50 B"),
        (CounterMark(10, 50), CounterMark(20, 30), "at least 30 B"),
        (CounterMark(10, 10), CounterMark(10, 10), "10 B"),
    ],
)
def test_a_counter_that_only_rises_tells_a_peak_or_bounds(
    begin: CounterMark, end: CounterMark, shown: str
) -> None:
    assert str(peak_between(begin, end)) == shown


def test_a_watch_that_nobody_ended_goes_away() -> None:
    from leakscope.cleanup import levels

    before = len(levels._under_way)
    watch = PeakWatch()
    assert len(levels._under_way) == before + 1
    del watch
    assert len(levels._under_way) == before
