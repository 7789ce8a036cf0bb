"""Snapshots that `tests/gpu/record_snapshots.py` made, with what a census met next to them."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from recorded_runs import as_torch_tells

from leakscope.analysis.allocator import read_snapshot
from leakscope.analysis.allocator.devices import find_owners, owner_rows, unexplained_bytes
from leakscope.analysis.allocator.replay import replay
from leakscope.analysis.allocator.segments import DeviceState, state_of
from leakscope.model.device import AllocatorSnapshot, DeviceStorages
from leakscope.probes.cuda import list_blocks

FOLDER = Path(__file__).parents[2] / "data" / "cuda"
NAMES = sorted(path.name.partition(".")[0] for path in FOLDER.glob("*.pickle.gz"))
WITHOUT_A_PYTHON_HOLDER = {"pending_free", "reference_cycles"}

pytestmark = pytest.mark.skipif(
    not NAMES, reason="no GPU has recorded them yet: python tests/gpu/record_snapshots.py"
)


class Told(msgspec.Struct):
    """What lies next to a snapshot."""

    torch: str
    storages: list[DeviceStorages]


def read(name: str) -> tuple[AllocatorSnapshot, DeviceState]:
    snapshot = read_snapshot(FOLDER / f"{name}.pickle.gz")
    neighbour = gzip.decompress((FOLDER / f"{name}.census.json.gz").read_bytes())
    document = msgspec.json.decode(neighbour, type=Told)
    first = [s for s in snapshot.segments if s.device == 0]
    (record,) = list_blocks(as_torch_tells(first), settings={})
    record.storages = next((s for s in document.storages if s.device == "cuda:0"), None)
    return snapshot, state_of(record)


@pytest.mark.parametrize("name", NAMES)
def test_the_history_agrees_with_the_blocks(name: str) -> None:
    snapshot, _ = read(name)
    assert replay(snapshot, 0).conflicts == 0
    assert snapshot.oddities == []


@pytest.mark.parametrize("name", [n for n in NAMES if n not in WITHOUT_A_PYTHON_HOLDER])
def test_nearly_every_live_byte_has_an_owner(name: str) -> None:
    _, state = read(name)
    found = find_owners(state)
    assert sum(row.bytes for row in owner_rows(found.blocks, by_name=False)) == state.figures.active
    assert unexplained_bytes(found.blocks) <= 0.02 * state.figures.active


@pytest.mark.parametrize("name", NAMES)
def test_paths_name_no_folder_of_a_machine(name: str) -> None:
    snapshot, _ = read(name)
    stacks = [e.stack for trace in snapshot.traces.values() for e in trace if e.stack]
    assert not [f.file for stack in stacks for f in stack.frames if f.file.startswith("/")]
