"""Accelerators other than CUDA: read where torch says the program uses them, and only there."""

from __future__ import annotations

import sys
import types

import pytest

from leakscope.model import gauge
from leakscope.probes.cuda import AcceleratorDeviceProbe, AcceleratorProbe

STATISTICS = {
    "allocated_bytes": {"all": {"current": 10, "peak": 20}},
    "reserved_bytes": {"all": {"current": 30}},
}


def install(monkeypatch, *, kind="xpu", used=True, awake=True, says_whether_used=True):
    """As much of ``torch`` as the probes may touch; what would wake a device fails."""

    def is_used():
        if not says_whether_used:
            raise RuntimeError("Allocator for mps is not a DeviceAllocator.")
        return used

    def of_used(value):
        def read(*_):
            assert used and awake, "would wake the device"
            return value

        return read

    torch = types.ModuleType("torch")
    torch.accelerator = types.SimpleNamespace(
        current_accelerator=lambda: None if kind is None else types.SimpleNamespace(type=kind),
        device_count=of_used(2),
        current_device_index=of_used(0),
        memory_reserved=lambda device: of_used(30)() if device == 0 else 0,
        get_memory_info=of_used((100, 1000)),
    )
    torch._C = types.SimpleNamespace(
        _accelerator_isAllocatorInitialized=is_used,
        _accelerator_getDeviceStats=lambda device: of_used(STATISTICS)() if device == 0 else {},
    )
    torch.mps = types.SimpleNamespace(driver_allocated_memory=of_used(70))
    if kind == "xpu":
        torch.xpu = types.SimpleNamespace(is_initialized=lambda: awake)
    monkeypatch.setitem(sys.modules, "torch", torch)


@pytest.mark.parametrize("kind", ["xpu", "mps"])
def test_an_accelerator_in_use_has_the_gauges_that_it_tells(monkeypatch, kind):
    install(monkeypatch, kind=kind)
    assert AcceleratorProbe().read() == {
        f"{kind}:0.{gauge.DEVICE_ALLOCATED}": 10,
        f"{kind}:0.{gauge.DEVICE_PEAK}": 20,
        f"{kind}:0.{gauge.DEVICE_RESERVED}": 30,
    }
    own = {f"mps:0.{gauge.DEVICE_OWN}": 70} if kind == "mps" else {}
    assert AcceleratorDeviceProbe().read() == {f"{kind}:0.{gauge.DEVICE_USED}": 900} | own


@pytest.mark.parametrize(
    "state",
    [
        {"kind": None},
        {"kind": "cuda"},
        {"used": False},
        {"awake": False},
        {"kind": "mps", "says_whether_used": False},
    ],
    ids=["none", "cuda has its own", "not used", "in a forked child", "torch can't say"],
)
def test_nothing_else_is_queried(monkeypatch, state):
    install(monkeypatch, **state)
    assert AcceleratorProbe().read() == AcceleratorDeviceProbe().read() == {}


def test_a_torch_without_accelerators_has_no_gauges(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    assert AcceleratorProbe().read() == {}


def test_the_torch_that_is_installed_is_not_woken():
    torch = pytest.importorskip("torch")
    if torch.accelerator.current_accelerator() is not None:
        pytest.skip("this torch has an accelerator")
    assert AcceleratorProbe().read() == AcceleratorDeviceProbe().read() == {}
