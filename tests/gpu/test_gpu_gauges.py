"""The gauges of a device are torch's own figures, and reading them disturbs nobody."""

from __future__ import annotations

import subprocess
import sys

import pytest

from leakscope.model import gauge
from leakscope.probes.cuda import CudaProbe, DeviceProbe

pytestmark = pytest.mark.gpu
MIB = 1 << 20
ASLEEP = """
import torch
from leakscope.probes.cuda import device_memory
from leakscope.capture.gauges import default_probes
for probe in default_probes():
    probe.read()
assert device_memory(with_blocks=True) == []
assert not torch.cuda.is_initialized()
"""


def test_a_device_that_nobody_used_is_not_woken() -> None:
    subprocess.run([sys.executable, "-c", ASLEEP], check=True)


def test_gauges_are_torchs_own_figures(device: str) -> None:
    import torch

    held = [torch.empty(3 * MIB, dtype=torch.uint8, device=device) for _ in range(5)]
    held.append(torch.empty(1, device=device))
    read = CudaProbe().read()
    reported = torch.cuda.memory_stats(0)
    assert {name: read[f"{device}.{name}"] for name in EXPECTED} == {
        name: reported[key] for name, key in EXPECTED.items()
    }
    assert len(held) == 6


EXPECTED = {
    gauge.DEVICE_ALLOCATED: "allocated_bytes.all.current",
    gauge.DEVICE_RESERVED: "reserved_bytes.all.current",
    gauge.DEVICE_PEAK: "allocated_bytes.all.peak",
    gauge.DEVICE_ACTIVE: "active_bytes.all.current",
    gauge.DEVICE_REQUESTED: "requested_bytes.all.current",
    gauge.DEVICE_SEGMENTS: "segment.all.current",
    gauge.DEVICE_BLOCKS: "active.all.current",
    gauge.DEVICE_RETRIES: "num_alloc_retries",
    gauge.DEVICE_OOMS: "num_ooms",
}


def test_reading_never_resets_the_peak(device: str) -> None:
    import torch

    torch.empty(64 * MIB, dtype=torch.uint8, device=device)
    before = torch.cuda.max_memory_allocated(0)
    CudaProbe().read()
    DeviceProbe().read()
    assert torch.cuda.max_memory_allocated(0) == before >= 64 * MIB


def test_what_the_device_has_in_use_is_more_than_torch_reserves(device: str) -> None:
    import torch

    kept = torch.empty(8 * MIB, dtype=torch.uint8, device=device)
    used = DeviceProbe().read()[f"{device}.{gauge.DEVICE_USED}"]
    assert used >= torch.cuda.memory_reserved(0) >= kept.nbytes


def test_page_locked_memory_is_distinguished(device: str) -> None:
    import torch

    before = DeviceProbe().read().get(gauge.PINNED_HOST, 0)
    kept = torch.empty(32 * MIB, dtype=torch.uint8, pin_memory=True)
    allocated = CudaProbe().read().get(f"{device}.{gauge.DEVICE_ALLOCATED}", 0)
    if not hasattr(torch.cuda, "host_memory_stats"):
        pytest.skip("this torch tells nothing of page-locked memory")
    assert DeviceProbe().read()[gauge.PINNED_HOST] - before >= kept.nbytes
    assert allocated < kept.nbytes
