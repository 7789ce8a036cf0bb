"""When a session writes down the blocks of devices, and with what."""

from __future__ import annotations

from fake_session import FakeSession

from leakscope.model.device import DeviceStorages, Holder, StorageRow
from leakscope.model.record import BlockListRecord, CensusRecord, DeviceSnapshotRecord, ErrorRecord

STORAGES = DeviceStorages(
    device="cuda:0",
    storages=[StorageRow(4096, 512, "accumulation", 0)],
    holders=[Holder("main()\u00b7losses", "losses")],
)


def trained(passes: int, seconds: float = 0.01) -> FakeSession:
    run = FakeSession()
    run.devices.in_use = True
    run.taker.storages = [STORAGES]
    for _ in range(passes):
        run.train_pass(10, seconds)
    return run


def test_each_census_comes_with_the_sums_of_the_devices_at_its_boundary() -> None:
    run = trained(3)
    censuses = [record.boundary for record in run.writer.of(CensusRecord)]
    sums = [record.boundary for record in run.writer.of(DeviceSnapshotRecord)]
    assert sums == censuses
    assert run.writer.of(ErrorRecord) == []


def test_a_list_of_blocks_comes_with_the_storages_that_the_census_saw() -> None:
    (record, *_) = trained(1).writer.of(BlockListRecord)
    assert record.storages == STORAGES
    assert record.boundary == 1


def test_blocks_are_listed_ever_more_rarely() -> None:
    run = trained(200, seconds=1.0)
    listed = run.devices.listed_at
    assert 10 < len(listed) < 60
    first, last = listed[1] - listed[0], listed[-1] - listed[-2]
    assert last > 10 * first
    assert len(listed) == len(run.writer.of(BlockListRecord)) < len(run.writer.of(CensusRecord))


def test_without_a_device_nothing_of_one_is_written() -> None:
    run = FakeSession()
    run.train_pass(10)
    assert run.writer.of(CensusRecord)
    assert run.writer.of(DeviceSnapshotRecord) == run.writer.of(BlockListRecord) == []
