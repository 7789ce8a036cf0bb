"""A forked process goes on sharing the pages of the objects that its censuses visit.

A DataLoader's worker is a fork of the training process. Each page that somebody writes to, if only
to count a reference, is copied: a look at the heap that did so would double each worker's memory.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from optional_torch import needs_torch

from leakscope.heap import graph

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/smaps_rollup"),
    pytest.mark.skipif(graph.engine_name() != "native", reason="the reference counts references"),
]

HEAP = """
import gc, json, os, sys
from pathlib import Path
from leakscope.heap import CensusTaker
from leakscope.heap.graph import WalkRequest, walk
from leakscope.model.census import CensusScope

class Sample:
    def __init__(self, i):
        self.name, self.values, self.place = f"sample {i}", [i * 1.5, str(i)], (i + 10**6, {i})

held = []

def private():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(l.split()[1]) * 1024 for l in lines if l.startswith("Private_Dirty"))

def count_references():
    for one in gc.get_objects():
        sys.getrefcount(one)

looks = {
    "walk": lambda: walk(WalkRequest(roots=[held])),
    "full walk": lambda: walk(WalkRequest(roots=[held], full=True)),
    "focused census": lambda: CensusTaker(project_root="/").take(CensusScope.FOCUSED),
    "full census": lambda: CensusTaker(project_root="/").take(CensusScope.FULL),
    "counting references": count_references,
}

def grown(look):
    before = private()
    look()
    return private() - before

def measure(grown_in_a_fork):
    "Print the weight of a heap, and what each look at it dirties more than a look without it."
    for look in list(looks.values())[:-1]:
        look()
    without = {name: grown_in_a_fork(name) for name in looks}
    held.extend(Sample(i) for i in range(200_000))
    gc.collect()
    found = {name: grown_in_a_fork(name) - without[name] for name in looks}
    print(json.dumps([walk(WalkRequest(roots=[held])).heap_bytes, found]))
"""

IN_FORKS = (
    HEAP
    + """
def grown_in_a_fork(name):
    reading, writing = os.pipe()
    if os.fork() == 0:
        gc.disable()
        os.write(writing, str(grown(looks[name])).encode())
        os._exit(0)
    os.wait()
    return int(os.read(reading, 100))

measure(grown_in_a_fork)
"""
)

IN_WORKERS = (
    HEAP
    + """
import torch
from torch.utils.data import DataLoader, Dataset

class Looks(Dataset):
    def __len__(self):
        return len(looks)
    def __getitem__(self, i):
        gc.disable()
        return grown(list(looks.values())[i])

def grown_in_a_worker(name):
    at = list(looks).index(name)
    [answer] = DataLoader(Looks(), sampler=[at], num_workers=1, batch_size=None)
    return answer

torch.set_num_threads(1)
measure(grown_in_a_worker)
"""
)


def dirtied(program: str) -> tuple[int, dict[str, int]]:
    """Return what a heap weighs, and how much a forked process got for itself by each look."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    heap_bytes, found = json.loads(done.stdout)
    return heap_bytes, found


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", [IN_FORKS, pytest.param(IN_WORKERS, marks=needs_torch)], ids=["fork", "DataLoader"]
)
def test_looking_at_objects_leaves_their_pages_shared(program: str) -> None:
    heap_bytes, found = dirtied(program)
    assert heap_bytes > 90 << 20
    assert found.pop("counting references") > heap_bytes / 2
    assert {name: grown for name, grown in found.items() if grown > heap_bytes / 50} == {}


MODULES = (
    HEAP
    + """
from types import ModuleType
from leakscope.heap.ownership import Ownership, ownership_under

for i in range(8000):
    module = sys.modules[f"library_{i}"] = ModuleType(f"library_{i}")
    module.__file__ = f"/elsewhere/{i}.py"
    module.padding = [object() for _ in range(100)]
ownership_under("/nowhere").user_modules()
looks = {
    "known": lambda: ownership_under("/nowhere").user_modules(),
    "unknown": lambda: Ownership("/nowhere").user_modules(),
}

def grown_in_a_fork(name):
    reading, writing = os.pipe()
    if os.fork() == 0:
        gc.disable()
        os.write(writing, str(grown(looks[name])).encode())
        os._exit(0)
    os.wait()
    return int(os.read(reading, 100))

gc.collect()
print(json.dumps([0, {name: grown_in_a_fork(name) for name in looks}]))
"""
)


def test_modules_that_the_parent_knows_are_not_looked_at_again_in_a_fork() -> None:
    _, found = dirtied(MODULES)
    assert found["unknown"] > 4 << 20
    assert found["known"] < found["unknown"] / 4


GLOBALS = (
    HEAP
    + """
from leakscope.heap import anatomy

held.extend(Sample(i) for i in range(50_000))
names = {str(i): sample for i, sample in enumerate(held)}
names["Sample"] = Sample
looks = {
    "classes": lambda: anatomy.classes_in(names) == [Sample] or os._exit(1),
    "values": lambda: list(names.values()),
}

def grown_in_a_fork(name):
    reading, writing = os.pipe()
    if os.fork() == 0:
        gc.disable()
        os.write(writing, str(grown(looks[name])).encode())
        os._exit(0)
    assert os.wait()[1] == 0
    return int(os.read(reading, 100))

gc.collect()
print(json.dumps([0, {name: grown_in_a_fork(name) for name in looks}]))
"""
)


def test_globals_that_are_no_classes_are_not_looked_at_in_a_fork() -> None:
    _, found = dirtied(GLOBALS)
    assert found["values"] > 4 << 20
    assert found["classes"] < found["values"] / 4
