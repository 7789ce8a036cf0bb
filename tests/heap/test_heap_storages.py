"""The storages that a census met on devices: where they lie, and under whose name.

There is no device here: those of the host stand for them.
"""

from __future__ import annotations

import msgspec
import pytest
from heap_programs import RunProgram

from leakscope.heap import roles as module
from leakscope.heap.roles import Roles, StorageRole

pytest.importorskip("torch")

PROGRAM = """
import torch
def train():
    model = torch.nn.Linear(128, 64, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    history = [torch.zeros(5000) for _ in range(12)]
    model(torch.randn(2, 128)).sum().backward()
    optimizer.step()
    look()
train()
"""


@pytest.fixture(autouse=True)
def host_as_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_devices(roles: Roles) -> list[StorageRole]:
        found = [s._replace(device="cuda:0") for s in roles._storages.values() if s.address]
        return sorted(found, key=lambda s: -s.nbytes)

    monkeypatch.setattr(Roles, "on_devices", on_devices)


def test_each_storage_has_its_place_its_role_and_who_holds_it(run_program: RunProgram) -> None:
    taken = run_program(PROGRAM)
    (found,) = taken.taker.device_storages()
    assert found.device == "cuda:0"
    by_name: dict[str, set[tuple[int, str]]] = {}
    for row in found.storages:
        name = found.holders[row.holder].name if row.holder >= 0 else ""
        by_name.setdefault(name, set()).add((row.bytes, row.role))
    weight = 128 * 64 * 4
    assert by_name["train.model.weight"] == {(weight, "parameters"), (weight, "gradients")}
    assert by_name["train.optimizer.state[*]['momentum_buffer']"] == {(weight, "optimizer_state")}
    assert by_name["train.history[*]"] == {(20000, "accumulation")}
    addresses = [row.address for row in found.storages]
    assert len(set(addresses)) == len(addresses)


def test_objects_that_share_a_path_are_one_holder(run_program: RunProgram) -> None:
    (found,) = run_program(PROGRAM).taker.device_storages()
    assert len({holder.path for holder in found.holders}) == len(found.holders)
    assert len(found.storages) > len(found.holders)


def test_they_are_reported_once_and_hold_nothing(run_program: RunProgram) -> None:
    taker = run_program(PROGRAM).taker
    (found,) = taker.device_storages()
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found
    assert taker.device_storages() == []


def test_of_too_many_the_smallest_are_left_out(
    run_program: RunProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_STORAGES", 3)
    (found,) = run_program(PROGRAM).taker.device_storages()
    assert len(found.storages) == 3
    assert found.left_out > 0
    assert {row.bytes for row in found.storages} == {32768}


def test_a_program_without_a_device_has_none(
    run_program: RunProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert run_program(PROGRAM).taker.device_storages() == []
