"""The blocks of a real allocator: their sums, and each joined with what holds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leakscope.analysis.allocator.devices import (
    find_owners,
    owner_rows,
    unexplained_bytes,
)
from leakscope.analysis.allocator.segments import DeviceState, state_of
from leakscope.heap import CensusTaker
from leakscope.model.census import CensusScope
from leakscope.model.record import BlockListRecord, DeviceSnapshotRecord
from leakscope.probes.cuda import device_memory

pytestmark = pytest.mark.gpu
MIB = 1 << 20


def listed() -> tuple[DeviceSnapshotRecord, BlockListRecord]:
    sums = blocks = None
    for record in device_memory(with_blocks=True):
        if record.device == "cuda:0" and isinstance(record, BlockListRecord):
            blocks = record
        elif record.device == "cuda:0":
            sums = record
    assert isinstance(sums, DeviceSnapshotRecord)
    assert blocks is not None
    return sums, blocks


def joined(taker: CensusTaker) -> DeviceState:
    """The device just after a census, with the storages that it met."""
    taker.take(CensusScope.FULL)
    found = {of_device.device: of_device for of_device in taker.device_storages()}
    _, blocks = listed()
    blocks.storages = found.get("cuda:0")
    return state_of(blocks)


@pytest.fixture
def taker() -> CensusTaker:
    return CensusTaker(project_root=str(Path(__file__).parent))


def uint8(size: int, device: str) -> Any:
    import torch

    return torch.empty(size, dtype=torch.uint8, device=device)


def test_the_sums_of_the_blocks_are_torchs_own(device: str) -> None:
    import torch

    held = [uint8(n * MIB // 2 + 1, device) for n in range(1, 30)]
    del held[::3]
    sums, blocks = listed()
    reported = torch.cuda.memory_stats(0)
    figures = state_of(blocks).figures
    assert sums.reserved == figures.reserved == reported["reserved_bytes.all.current"]
    assert sums.allocated == figures.allocated == reported["allocated_bytes.all.current"]
    assert sums.active == figures.active == reported["active_bytes.all.current"]
    assert sums.requested == figures.requested == reported["requested_bytes.all.current"]
    assert (sums.cached, sums.stuck) == (figures.cached, figures.stuck)
    assert sums.cached + sums.stuck == sums.reserved - sums.active


def test_all_of_a_small_training_is_explained(device: str, taker: CensusTaker) -> None:
    import torch

    model = torch.nn.Sequential(
        torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(3):
        batch = torch.randn(256, 512, device=device)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        losses.append(loss)
    torch.cuda.synchronize()
    state = joined(taker)
    found = find_owners(state)
    roles = {row.role: row.bytes for row in owner_rows(found.blocks, by_name=False)}
    parameters = sum(p.untyped_storage().nbytes() for p in model.parameters())
    assert sum(roles.values()) == state.figures.active
    assert roles["parameters"] == pytest.approx(parameters, rel=0.02)
    assert roles["gradients"] == pytest.approx(parameters, rel=0.02)
    assert roles["optimizer_state"] == pytest.approx(2 * parameters, rel=0.02)
    assert roles["graph"] > 3 * 256 * 1024 * 4
    assert unexplained_bytes(found.blocks) <= 0.01 * state.figures.active
    names = " ".join(row.name for row in owner_rows(found.blocks, by_name=True))
    assert "losses" in names
    assert found.astray == 0


def test_holes_between_live_blocks_are_stuck_and_free_segments_are_cache(device: str) -> None:
    held = [uint8(4 * MIB, device) for _ in range(60)]
    whole = [uint8(64 * MIB, device) for _ in range(2)]
    del whole
    del held[::2]
    sums, _ = listed()
    assert sums.cached >= 128 * MIB
    assert sums.stuck >= 20 * 4 * MIB
    assert len(held) == 30


def test_pools_of_graphs_are_private(device: str, taker: CensusTaker) -> None:
    import torch

    graphs = []
    for size in (1, 2, 3):
        static = torch.zeros(size * MIB, device=device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            (static * 2).sum()
        graphs.append((graph, static))
    sums, _ = listed()
    assert sums.private_pools == 3
    assert sums.private > 0
    state = joined(taker)
    assert {segment.pool for segment in state.segments} > {(0, 0)}
    assert len(graphs) == 3


def test_what_another_stream_still_uses_is_pending(device: str, taker: CensusTaker) -> None:
    import torch

    side = torch.cuda.Stream()
    used = uint8(32 * MIB, device)
    with torch.cuda.stream(side):
        torch.cuda._sleep(2_000_000_000)
    used.record_stream(side)
    del used
    state = joined(taker)
    roles = {row.role: row.bytes for row in owner_rows(find_owners(state).blocks, by_name=False)}
    assert roles["pending"] == 32 * MIB
    torch.cuda.synchronize()


def test_page_locked_memory_is_the_hosts(device: str, taker: CensusTaker) -> None:
    import torch

    pinned = torch.empty(16 * MIB, dtype=torch.uint8, pin_memory=True)
    census = taker.take(CensusScope.FULL)
    storages = [s for of_device in taker.device_storages() for s in of_device.storages]
    assert pinned.untyped_storage().data_ptr() not in {s.address for s in storages}
    assert census.payload_bytes["host"] >= pinned.nbytes


def test_a_storage_lies_where_its_block_begins(device: str, taker: CensusTaker) -> None:
    kept = [uint8(n * MIB, device) for n in range(1, 6)]
    taker.take(CensusScope.FULL)
    (of_device,) = [d for d in taker.device_storages() if d.device == device]
    reported = {s.address: s.bytes for s in of_device.storages}
    assert {t.untyped_storage().data_ptr(): t.nbytes for t in kept}.items() <= reported.items()
