from __future__ import annotations

import gzip
import json
import sys
import types
from pathlib import Path

import pytest

from leakscope.model import gauge
from leakscope.probes import cuda as module
from leakscope.probes.cuda import CudaProbe, DeviceProbe, device_snapshots, figures_of, summarise

SNAPSHOTS = Path(__file__).parents[2].parent / "shared" / "data" / "cuda_snapshots"
MB = 1 << 20


class FakeCuda(types.ModuleType):
    """As much of ``torch.cuda`` as the probes may touch; anything that would wake it fails."""

    def __init__(self, *, initialized=True, capturing=False, devices=None):
        super().__init__("torch.cuda")
        self.memory = self
        self.queried: list[int] = []
        self._devices = devices or {0: (0, 0, 0)}
        self._state = initialized, capturing

    def is_initialized(self):
        return self._state[0]

    def is_current_stream_capturing(self):
        return self._state[1]

    def device_count(self):
        return len(self._devices)

    def current_device(self):
        assert self._state[0], "would wake CUDA"
        return 0

    def memory_stats_as_nested_dict(self, device):
        self.queried.append(device)
        current, reserved, peak = self._devices[device]
        return {
            "allocated_bytes": {"all": {"current": current, "peak": peak}},
            "reserved_bytes": {"all": {"current": reserved}},
        }

    def memory_reserved(self, device):
        return self._devices[device][1]

    def mem_get_info(self, device):
        assert self._devices[device][1], "would make a context"
        return 100, 1000

    def host_memory_stats_as_nested_dict(self):
        return {"allocated_bytes": {"current": 4096, "peak": 8192}}

    def memory_snapshot(self, mempool_id=None, include_traces=True):
        assert not include_traces
        return [segment(0, [("active_allocated", 4)])]

    def _snapshot(self):
        return {"segments": [segment(0, [("active_allocated", 2)])]}


def install(monkeypatch, cuda, *, history=False):
    torch = types.ModuleType("torch")
    torch.cuda = cuda  # type: ignore[attr-defined]
    torch._C = types.SimpleNamespace(_cuda_isHistoryEnabled=lambda: history)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.cuda.memory", cuda)
    return cuda


def segment(device, blocks, **totals):
    sizes = {"active_allocated": 0, "active_pending_free": 0, "inactive": 0}
    for state, size in blocks:
        sizes[state] += size * MB
    return {
        "device": device,
        "total_size": sum(sizes.values()),
        "allocated_size": sizes["active_allocated"],
        "active_size": sizes["active_allocated"] + sizes["active_pending_free"],
        "requested_size": sizes["active_allocated"],
        "blocks": [{"state": state, "size": size * MB} for state, size in blocks],
        **totals,
    }


def test_cuda_that_nobody_used_is_not_woken(monkeypatch):
    install(monkeypatch, FakeCuda(initialized=False))
    assert CudaProbe().read() == DeviceProbe().read() == {}
    assert device_snapshots() == []


def test_a_build_of_torch_without_cuda_has_no_gauges():
    pytest.importorskip("torch")
    assert CudaProbe().read() == {} or sys.modules["torch"].cuda.is_initialized()


def test_allocated_reserved_and_peak_are_read_per_device(monkeypatch):
    install(monkeypatch, FakeCuda(devices={0: (10, 30, 20), 1: (0, 0, 0)}))
    assert CudaProbe().read() == {
        f"cuda:0.{gauge.DEVICE_ALLOCATED}": 10,
        f"cuda:0.{gauge.DEVICE_RESERVED}": 30,
        f"cuda:0.{gauge.DEVICE_PEAK}": 20,
    }


def nested(**sizes):
    names = ("allocated", "reserved", "active", "requested")
    found = {f"{n}_bytes": {"all": {"current": sizes[n], "peak": 99}} for n in names if n in sizes}
    found |= {n: {"all": {"current": 7}} for n in ("segment", "active")}
    return found | {"num_alloc_retries": 3, "num_ooms": 1}


def test_all_that_one_call_tells_becomes_gauges():
    pool = {"all": {"current": 5}}
    reported = nested(allocated=10, reserved=40, active=12, requested=9)
    reported["reserved_bytes_by_private_pools"] = {(0, 1): pool, (0, 2): pool}
    assert figures_of(reported) == {
        gauge.DEVICE_ALLOCATED: 10,
        gauge.DEVICE_RESERVED: 40,
        gauge.DEVICE_PEAK: 99,
        gauge.DEVICE_ACTIVE: 12,
        gauge.DEVICE_REQUESTED: 9,
        gauge.DEVICE_SEGMENTS: 7,
        gauge.DEVICE_BLOCKS: 7,
        gauge.DEVICE_RETRIES: 3,
        gauge.DEVICE_OOMS: 1,
        gauge.DEVICE_PRIVATE: 10,
    }


def test_releases_that_tell_less_give_fewer_gauges():
    assert figures_of({}) == {}
    assert figures_of({"allocated_bytes": {"all": {"current": 4}}}) == {gauge.DEVICE_ALLOCATED: 4}


def test_every_gauge_of_a_device_is_described():
    reported = nested(allocated=1, reserved=1, active=1, requested=1)
    assert set(figures_of(reported)) | set(gauge.DERIVED) <= set(gauge.DESCRIPTIONS)
    assert gauge.DESCRIPTIONS[gauge.DEVICE_RETRIES][0] == "count"


def test_devices_without_memory_are_queried_rarely_and_found_once_they_have_some(monkeypatch):
    devices = {n: (5, 5, 5) if n == 0 else (0, 0, 0) for n in range(8)}
    cuda = install(monkeypatch, FakeCuda(devices=devices))
    probe = CudaProbe()
    for _ in range(64):
        probe.read()
    assert cuda.queried.count(0) == 64
    assert cuda.queried.count(7) == 1
    devices[7] = (1, 2, 3)
    assert f"cuda:7.{gauge.DEVICE_PEAK}" in probe.read()
    assert f"cuda:7.{gauge.DEVICE_PEAK}" in probe.read()


def test_device_use_and_pinned_memory_never_make_a_context(monkeypatch):
    install(monkeypatch, FakeCuda(devices={0: (10, 30, 20), 1: (0, 0, 0)}))
    assert DeviceProbe().read() == {f"cuda:0.{gauge.DEVICE_USED}": 900, gauge.PINNED_HOST: 4096}


def test_nothing_disturbs_the_capture_of_a_graph(monkeypatch):
    install(monkeypatch, FakeCuda(capturing=True))
    assert DeviceProbe().read() == {}
    assert device_snapshots() == []


def test_releases_without_statistics_of_pinned_memory_lack_that_gauge(monkeypatch):
    cuda = install(monkeypatch, FakeCuda(devices={0: (1, 1, 1)}))
    monkeypatch.setattr(type(cuda), "host_memory_stats_as_nested_dict", None)
    assert DeviceProbe().read() == {f"cuda:0.{gauge.DEVICE_USED}": 900}


@pytest.mark.parametrize(("version", "allocated"), [((3, 12), 4), ((3, 11), 2)])
def test_the_call_that_eats_references_is_used_only_where_they_are_immortal(
    monkeypatch, version, allocated
):
    install(monkeypatch, FakeCuda())
    monkeypatch.setattr(module.sys, "version_info", version)
    (record,) = device_snapshots()
    assert record.allocated == allocated * MB


def test_a_history_that_the_program_records_is_never_copied(monkeypatch):
    install(monkeypatch, FakeCuda(), history=True)
    monkeypatch.setattr(module.sys, "version_info", (3, 11))
    assert device_snapshots() == []


def test_a_snapshot_that_fails_is_no_snapshot(monkeypatch):
    cuda = install(monkeypatch, FakeCuda())
    monkeypatch.setattr(type(cuda), "memory_snapshot", None)
    assert device_snapshots() == []


def test_free_segments_are_cache_and_holes_in_used_ones_are_stuck():
    (record,) = summarise(
        [
            segment(0, [("inactive", 20)]),
            segment(0, [("active_allocated", 3), ("inactive", 5), ("inactive", 2)]),
            segment(0, [("active_pending_free", 4), ("inactive", 1)]),
        ]
    )
    assert (record.segments, record.reserved) == (3, 35 * MB)
    assert (record.allocated, record.active) == (3 * MB, 7 * MB)
    assert record.cached == 20 * MB
    assert record.stuck == 8 * MB
    assert record.largest_hole == 20 * MB
    assert record.pending_free == 4 * MB


def test_devices_are_summed_apart_and_in_order():
    records = summarise([segment(d, [("active_allocated", d + 1)]) for d in (1, 0, 1)], boundary=9)
    assert [(r.device, r.segments, r.allocated) for r in records] == [
        ("cuda:0", 1, MB),
        ("cuda:1", 2, 4 * MB),
    ]
    assert all(r.boundary == 9 for r in records)


def test_segments_of_unknown_versions_are_summed_as_far_as_they_go():
    assert summarise([]) == []
    (record,) = summarise([{"total_size": 5, "novelty": 1}, {"blocks": [{}]}])
    assert (record.device, record.segments, record.reserved) == ("cuda:0", 2, 5)


def recorded() -> list[str]:
    expected = SNAPSHOTS / "expected.json"
    return sorted(json.loads(expected.read_text())) if expected.is_file() else []


@pytest.mark.skipif(not recorded(), reason="the recorded snapshots are not here")
@pytest.mark.parametrize("name", recorded())
def test_real_snapshots_give_the_golden_numbers(name):
    golden = json.loads((SNAPSHOTS / "expected.json").read_text())[name]
    with gzip.open(SNAPSHOTS / f"{name}.json.gz") as stream:
        records = summarise(json.load(stream)["snapshot"]["segments"])
    assert [r.device for r in records] == [f"cuda:{d}" for d in golden["devices"]]
    sums = {
        "segments": golden["segments"],
        "reserved": golden["reserved"],
        "allocated": golden["allocated"],
        "active": golden["active"],
        "requested": golden["requested"],
        "cached": golden["bytes_in_fully_free_segments"],
        "stuck": golden["inactive_bytes_in_part_used_segments"],
        "pending_free": golden["bytes_by_state"].get("active_pending_free", 0),
    }
    assert {field: sum(getattr(r, field) for r in records) for field in sums} == sums
    holes = [r.largest_hole for r in records]
    assert max(holes, default=0) == golden["largest_inactive_block"]
