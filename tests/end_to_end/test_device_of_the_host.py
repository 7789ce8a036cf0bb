"""A recording with a device from end to end, where there is none: the host's tensors play it.

Storages of the host are shown as if they lay on `cuda:0`, and a list of segments as if torch's
allocator had made them: all else is the real way of the data, from the session to the report.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import leakscope
from leakscope.analysis.verdict.analyse import analyse
from leakscope.heap.roles import Roles, StorageRole
from leakscope.model.report import Report
from leakscope.probes import cuda as block_probe
from leakscope.recording import open_run
from leakscope.report import render_html, render_text

torch = pytest.importorskip("torch")

MIB = 1 << 20
ROUNDING = 512
NATIVE = 1 << 46
"""Where something lies that no tensor has: only native code could hold it."""


class PlayedDevice:
    """An allocator that gives each tensor a segment of its own."""

    def __init__(self) -> None:
        self.blocks: dict[int, int] = {}

    def is_initialized(self) -> bool:
        return True

    def is_current_stream_capturing(self) -> bool:
        return False

    def tensor(self, size: int) -> Any:
        made = torch.empty(size, dtype=torch.uint8)
        self.blocks[made.data_ptr()] = size
        return made

    def segments(self) -> list[dict[str, Any]]:
        return [self._segment(address, size) for address, size in self.blocks.items()]

    def _segment(self, address: int, size: int) -> dict[str, Any]:
        rounded = -(-size // ROUNDING) * ROUNDING
        block = {"size": rounded, "requested_size": size, "state": "active_allocated", "frames": []}
        return {
            "device": 0, "address": address, "total_size": rounded, "stream": 0,
            "segment_type": "large", "segment_pool_id": (0, 0), "blocks": [block],
            "allocated_size": rounded, "active_size": rounded, "requested_size": size,
        }  # fmt: skip


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedDevice:
    device = PlayedDevice()

    def on_devices(roles: Roles) -> list[StorageRole]:
        return [s._replace(device="cuda:0") for s in roles._storages.values() if s.address]

    monkeypatch.setattr(Roles, "on_devices", on_devices)
    monkeypatch.setattr(block_probe, "awake_cuda", lambda: device)
    monkeypatch.setattr(block_probe, "allocator_segments", device.segments)
    for probe in (block_probe.CudaProbe, block_probe.DeviceProbe):
        monkeypatch.setattr(probe, "_measure", lambda _: {})  # it has blocks and no statistics
    return device


def recorded(device: PlayedDevice, folder: Path) -> Report:
    device.blocks[NATIVE] = 3 * MIB
    with leakscope.profile(folder / "run", boundaries="manual", quiet=True, report=False) as scope:
        model = [device.tensor(2 * MIB + 100) for _ in range(3)]
        history = []
        for _ in scope.epochs(range(6)):
            history.append(device.tensor(MIB))
    assert len(model) == 3
    report = analyse(open_run(folder / "run"))
    assert (report.errors, len(report.devices)) == ([], 1), report.notes
    return report


def test_blocks_find_their_holders_through_a_recording(
    played: PlayedDevice, tmp_path: Path
) -> None:
    report = recorded(played, tmp_path)
    (device,) = report.devices
    owners = {row.name: row for row in device.owners}
    assert {name.rpartition(".")[2] for name in owners} == {"model[*]", "history[*]", ""}
    (history,) = [row for name, row in owners.items() if name.endswith("history[*]")]
    assert history.role in {"accumulation", "batch"}
    assert history.bytes == history.count * MIB
    (model,) = [row for name, row in owners.items() if name.endswith("model[*]")]
    assert model.bytes == 3 * (2 * MIB + ROUNDING)
    assert sum(row.bytes for row in device.roles) == device.figures.active


def test_what_no_tensor_has_is_unexplained(played: PlayedDevice, tmp_path: Path) -> None:
    (device,) = recorded(played, tmp_path).devices
    assert [(row.size, row.count) for row in device.unexplained] == [(3 * MIB, 1)]
    assert 0.5 < device.explained_share < 1.0


def test_the_report_shows_them(played: PlayedDevice, tmp_path: Path) -> None:
    report = recorded(played, tmp_path)
    assert 'id="devices"' in render_html(report)
    assert "cuda:0:" in render_text(report)
