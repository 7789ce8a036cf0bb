"""Workers of DataLoaders record themselves, and the loader is none the wiser."""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import random
import signal
import sys
import time
import traceback
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from torch.utils.data import dataloader as dataloader_module

import leakscope
from leakscope.capture.budget import WORKER_FLOOR
from leakscope.capture.children import is_importable
from leakscope.capture.workers import is_recorded
from leakscope.heap import census
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind
from leakscope.model.run import Recording
from leakscope.recording import open_run

METHODS = ("fork", "spawn", "forkserver")


class Augmented(Dataset):
    """Draws from every random stream that datasets draw from."""

    def __init__(self, count=24):
        self.count = count
        self.cache = []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.cache.append(bytes(1000))
        return index, torch.rand(3), np.random.rand(3), random.random()


class Counted(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        yield from range(info.id, 20, info.num_workers)


class Pooled(IterableDataset):
    """Mixes a stream through a pool, which only the running generator refers to."""

    def __iter__(self):
        pool = []
        for _ in range(40):
            pool.append(bytes(100_000))
            yield len(pool)


class Mixed(Pooled):
    """The same behind an iterator of the standard library's."""

    def __iter__(self):
        return enumerate(super().__iter__())


class OwnIterator(IterableDataset):
    """Is what it runs over."""

    def __init__(self):
        self.pool = []

    def __iter__(self):
        return self

    def __next__(self):
        if len(self.pool) == 40:
            raise StopIteration
        self.pool.append(bytes(100_000))
        return len(self.pool)


class Failing(Augmented):
    def __getitem__(self, index):
        if index == 13:
            raise KeyError("no such sample")
        return super().__getitem__(index)


class Nested(Augmented):
    """Iterates over a loader of its own inside a worker."""

    def __getitem__(self, index):
        inner = DataLoader(list(range(6)), batch_size=2)
        return sum(int(batch.sum()) for batch in inner) + index


class Slow(Augmented):
    def __getitem__(self, index):
        time.sleep(0.02)
        return super().__getitem__(index)


def sent_to_workers(worker):
    random.seed(1000 + worker)


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKSCOPE_STRICT", "0")
    return tmp_path / "run"


def batches(dataset=None, passes=2, **options):
    torch.manual_seed(7)
    np.random.seed(7)
    loader = DataLoader(
        Augmented() if dataset is None else dataset,
        batch_size=4,
        **{"num_workers": 2, "worker_init_fn": sent_to_workers, **options},
    )
    return [
        [np.asarray(part).tolist() for part in batch] if isinstance(batch, list) else batch.tolist()
        for _ in range(passes)
        for batch in loader
    ]


def recordings(out) -> list[Recording]:
    return [r for r in open_run(out).recordings if r.header.worker is not None]


def fetched(recording: Recording) -> int:
    return sum(m.boundary.kind is BoundaryKind.BATCH for m in recording.measurements)


@pytest.fixture
def nothing_is_dear(monkeypatch):
    """The process of the tests holds more than a training does: a census of it takes long."""
    monkeypatch.setattr(
        "leakscope.capture.workers.WORKER_FLOOR", replace(WORKER_FLOOR, expensive=math.inf)
    )


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        (Pooled(), "Pooled.__iter__.pool"),
        (Mixed(), "Pooled.__iter__.pool"),
        (OwnIterator(), "OwnIterator.pool"),
    ],
)
@pytest.mark.usefixtures("nothing_is_dear")
def test_what_an_iterable_dataset_gathers_while_it_runs_has_a_name(out, dataset, name):
    with leakscope.profile(out, report=False, quiet=True):
        batches(dataset, passes=1, num_workers=1)
    (recording,) = recordings(out)
    censuses = [m.census for m in recording.measurements if m.census is not None]
    held = {row.name: row.host_bytes for census in censuses for row in census.rows}
    assert held.get(name, 0) > 4 * 100_000, sorted(held)


@pytest.mark.usefixtures("nothing_is_dear")
def test_an_iterator_lives_no_longer_than_its_pass(out):
    with leakscope.profile(out, report=False, quiet=True):
        batches(Pooled(), passes=3, num_workers=1, persistent_workers=True)
    (recording,) = recordings(out)
    pools = [
        [row.host_bytes for row in m.census.rows if row.name == "Pooled.__iter__.pool"]
        for m in recording.measurements
        if m.census is not None
    ]
    assert max(len(found) for found in pools) == 1, "never that of two passes"
    assert max(size for found in pools for size in found) < 41 * 100_100


@pytest.mark.parametrize("persistent", [False, True])
def test_forked_workers_give_the_same_batches(out, persistent):
    plain = batches(persistent_workers=persistent)
    with leakscope.profile(out, report=False, quiet=True):
        assert batches(persistent_workers=persistent) == plain
    assert len(recordings(out)) == (2 if persistent else 4)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_started_otherwise_give_the_same_batches(out, method):
    options = {"multiprocessing_context": method, "persistent_workers": True}
    plain = batches(**options)
    with leakscope.profile(out, report=False, quiet=True):
        assert batches(**options) == plain
    assert {r.header.start_method for r in recordings(out)} == {method}
    assert sum(map(fetched, recordings(out))) == 12


def test_shuffled_batches_come_in_the_same_order(out):
    plain = batches(shuffle=True)
    with leakscope.profile(out, report=False, quiet=True):
        assert batches(shuffle=True) == plain


def test_iterable_datasets_give_the_same_batches(out):
    plain = batches(Counted(), worker_init_fn=None)
    with leakscope.profile(out, report=False, quiet=True):
        assert batches(Counted(), worker_init_fn=None) == plain
    assert len(recordings(out)) == 4


def test_a_worker_says_who_it_is_and_what_it_did(out):
    with leakscope.profile(out, report=False, quiet=True):
        batches(persistent_workers=True)
    first, second = sorted(recordings(out), key=lambda r: r.header.worker or 0)
    assert (first.header.worker, second.header.worker) == (0, 1)
    assert first.header.parent == os.getpid()
    assert (first.header.loader, first.header.generation) == (1, 0)
    assert first.header.start_method == "fork"
    assert first.end is not None
    assert first.end.status == "completed"
    assert not first.errors
    assert [fetched(first), fetched(second)] == [6, 6]
    assert {m.boundary.occurrence for m in first.measurements if m.boundary.phase} == {0, 1}


@pytest.mark.usefixtures("nothing_is_dear")
def test_a_census_in_a_worker_begins_at_its_dataset(out):
    with leakscope.profile(out, report=False, quiet=True):
        batches(persistent_workers=True, passes=4)
    censuses = [m.census for r in recordings(out) for m in r.measurements if m.census]
    names = {row.name for census in censuses for row in census.rows}
    assert "Augmented.cache" in names


def test_workers_of_each_generation_are_numbered(out):
    with leakscope.profile(out, report=False, quiet=True):
        batches(passes=6)
    assert sorted({r.header.generation for r in recordings(out)}) == [0, 1, 2, 4]


def test_where_censuses_are_dear_only_the_first_workers_of_a_loader_take_one(out, monkeypatch):
    floor = replace(WORKER_FLOOR, expensive=0.0, share=0.0, seconds=0.0)
    monkeypatch.setattr("leakscope.capture.workers.WORKER_FLOOR", floor)
    with leakscope.profile(out, report=False, quiet=True):
        batches(passes=3)
    taken = [
        (r.header.generation, sum(m.census is not None for m in r.measurements))
        for r in recordings(out)
    ]
    assert sorted(taken) == [(0, 1), (0, 1), (1, 0), (1, 0), (2, 0), (2, 0)]


def learning_slowly(monkeypatch, seconds):
    """Let each process need so long to learn of the user's modules, once."""
    find_roots, learned = census.find_roots, set()

    def slow(*args, **kwargs):
        until = time.process_time() + seconds * (os.getpid() not in learned)
        while time.process_time() < until:
            pass
        learned.add(os.getpid())
        return find_roots(*args, **kwargs)

    monkeypatch.setattr(census, "find_roots", slow)


def test_what_a_worker_learns_only_once_makes_its_censuses_no_dearer(out, monkeypatch):
    floor = replace(WORKER_FLOOR, expensive=0.6, share=0.0, seconds=0.0)
    monkeypatch.setattr("leakscope.capture.workers.WORKER_FLOOR", floor)
    learning_slowly(monkeypatch, 1.0)
    with leakscope.profile(out, report=False, quiet=True):
        batches(passes=1, num_workers=1)
    (recording,) = recordings(out)
    assert sum(m.census is not None for m in recording.measurements) > 1


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells it on Linux")
def test_a_worker_reads_its_own_memory_and_what_it_copied_when_it_ends(out):
    dataset = Augmented()
    dataset.samples = [{"number": i} for i in range(20_000)]
    with leakscope.profile(out, report=False, quiet=True):
        batches(dataset, passes=1)
    for recording in recordings(out):
        last = recording.measurements[-1]
        assert last.boundary.kind is BoundaryKind.RUN_END
        assert gauge.PRIVATE in last.gauges
        rows = [row for m in recording.measurements if m.census for row in m.census.rows]
        looked_at = {row.path for row in rows if row.copied_share is not None}
        assert looked_at
        assert {gauge.copied(path) for path in looked_at} <= last.gauges.keys()


def test_later_generations_are_recorded_ever_more_rarely():
    assert [n for n in range(70) if is_recorded(n)] == [0, 1, 2, 4, 8, 16, 32, 64]


def test_two_loaders_are_distinguished(out):
    with leakscope.profile(out, report=False, quiet=True):
        batches(passes=1)
        first = DataLoader(Augmented(), batch_size=4, num_workers=1)
        list(first)
    assert {r.header.loader for r in recordings(out)} == {1, 2}


def test_an_exception_in_a_worker_is_reported_in_the_same_words(out):
    def message():
        before = multiprocessing.active_children()
        with pytest.raises(KeyError) as caught:
            batches(Failing(), passes=1, shuffle=False)
        # Left to the collector, the iterator may go after its pipes, and torch waits for workers.
        traceback.clear_frames(caught.tb)
        assert multiprocessing.active_children() == before
        return str(caught.value)

    plain = message()
    with leakscope.profile(out, report=False, quiet=True):
        assert message() == plain
    assert "leakscope" not in plain


def test_a_loader_inside_the_dataset_is_no_boundary(out):
    plain = batches(Nested(), passes=1)
    with leakscope.profile(out, report=False, quiet=True):
        assert batches(Nested(), passes=1) == plain
    assert sum(map(fetched, recordings(out))) == 6


def test_torch_is_left_as_it_was_found(out):
    loop = dataloader_module._utils.worker._worker_loop
    made = dataloader_module._MultiProcessingDataLoaderIter.__init__
    with leakscope.profile(out, report=False, quiet=True):
        batches(passes=1)
        assert dataloader_module._utils.worker._worker_loop is loop
    assert dataloader_module._MultiProcessingDataLoaderIter.__init__ is made


def test_workers_can_be_left_alone(out):
    with leakscope.profile(out, report=False, quiet=True, workers="off"):
        batches(passes=1)
    assert recordings(out) == []


def test_without_a_way_to_import_leakscope_a_spawned_worker_is_left_alone(out, monkeypatch):
    monkeypatch.setattr("leakscope.capture.workers.is_importable", lambda: False)
    with leakscope.profile(out, report=False, quiet=True):
        context = "spawn"
        loader = DataLoader(Augmented(8), 4, num_workers=1, multiprocessing_context=context)
        assert len(list(loader)) == 2
    assert recordings(out) == []


def test_leakscope_can_be_imported_here():
    assert is_importable()


def test_a_directory_that_is_gone_costs_no_batch(out):
    plain = batches(passes=1)
    with leakscope.profile(out, report=False, quiet=True):
        for file in out.iterdir():
            file.unlink()
        out.rmdir()
        assert batches(passes=1) == plain


def test_a_fault_of_ours_costs_no_batch(out, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("ours")

    plain = batches(passes=1)
    monkeypatch.setattr("leakscope.capture.workers._session", broken)
    with leakscope.profile(out, report=False, quiet=True):
        assert batches(passes=1) == plain


def test_what_a_killed_worker_had_recorded_is_kept(out):
    with leakscope.profile(out, report=False, quiet=True):
        loader = DataLoader(Slow(200), batch_size=2, num_workers=1)
        iterator = iter(loader)
        for _ in range(5):
            next(iterator)
        worker = iterator._workers[0].pid
        with pytest.raises(RuntimeError, match="DataLoader worker"):
            os.kill(worker, signal.SIGKILL)
            os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)  # dead before torch asks
            list(iterator)
    (recording,) = recordings(out)
    assert recording.end is None
    assert fetched(recording) >= 4


def test_no_process_is_left_behind(out):
    with leakscope.profile(out, report=False, quiet=True):
        loader = DataLoader(Augmented(), batch_size=4, num_workers=2, persistent_workers=True)
        processes = list(iter(loader)._workers) if list(loader) else []
        del loader
        gc.collect()
    for process in processes:
        process.join(5)
        assert not process.is_alive()
