from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import subprocess
import sys

import pytest

from leakscope.model import gauge
from leakscope.probes import malloc
from leakscope.probes.malloc import MallocProbe

MB = 1 << 20

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")


@glibc
def test_blocks_in_use_then_kept_free_are_distinguished():
    probe = MallocProbe()
    before = probe.read()
    blocks = [bytearray(60_000) for _ in range(500)]
    during = probe.read()
    del blocks[:-1]  # the last one keeps the heap from shrinking
    after = probe.read()
    assert during[gauge.MALLOC_IN_USE] - before[gauge.MALLOC_IN_USE] >= 20 * MB
    assert after[gauge.MALLOC_IN_USE] - before[gauge.MALLOC_IN_USE] < 2 * MB
    assert after[gauge.MALLOC_FREE] >= 20 * MB


@glibc
def test_a_large_block_is_in_a_mapping_of_its_own():
    probe = MallocProbe()
    before = probe.read()
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    # Larger than what other tests may have left free in the heap; no page of it is touched.
    block = libc.malloc(ctypes.c_size_t(1024 * MB))
    during = probe.read()
    libc.free(block)
    assert during[gauge.MALLOC_MAPPED] - before[gauge.MALLOC_MAPPED] >= 1024 * MB
    assert during[gauge.MALLOC_IN_USE] - before[gauge.MALLOC_IN_USE] >= 1024 * MB


@glibc
def test_older_versions_of_glibc_tell_the_same_by_another_way():
    libc = ctypes.CDLL(None)
    newer = MallocProbe().read()
    older = malloc._from_malloc_info(libc)()
    assert older.keys() == newer.keys()
    for name in newer:
        assert older[name] == pytest.approx(newer[name], abs=MB)


def test_the_sums_over_all_arenas_are_taken_from_the_xml():
    xml = b"""<malloc version="1"><heap nr="0"><sizes></sizes>
    <total type="fast" count="1" size="10"/><total type="rest" count="2" size="200"/>
    <system type="current" size="1000"/></heap><heap nr="1">
    <total type="fast" count="1" size="1"/><total type="rest" count="2" size="100"/>
    <system type="current" size="500"/></heap>
    <total type="fast" count="2" size="11"/><total type="rest" count="4" size="300"/>
    <total type="mmap" count="3" size="7000"/>
    <system type="current" size="1500"/><system type="max" size="9999"/></malloc>"""
    assert malloc._from_xml(xml) == {
        gauge.MALLOC_IN_USE: 1500 - 311 + 7000,
        gauge.MALLOC_FREE: 311,
        gauge.MALLOC_MAPPED: 7000,
    }


def test_another_c_library_tells_nothing(monkeypatch):
    monkeypatch.setattr(malloc.ctypes, "CDLL", lambda name: object())
    assert MallocProbe().read() == {}


LIBRARIES = {"jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}
OF_ANOTHER = """
from leakscope.probes.environment import environment
from leakscope.probes.malloc import MallocProbe
probe = MallocProbe()
readings = [probe.read()]
blocks = [bytearray(60_000) for _ in range(500)]
readings.append(probe.read())
del blocks[:-1]
readings.append(probe.read())
print(environment()["allocator"], *(r["malloc_in_use"] >> 20 for r in readings))
print(*(r["malloc_free"] >> 20 for r in readings))
"""


@pytest.mark.parametrize("name", LIBRARIES)
def test_an_allocator_in_its_place_is_named_and_tells_the_same(name):
    library = ctypes.util.find_library(name) or LIBRARIES[name]
    environment = {**os.environ, "LD_PRELOAD": library}
    command = [sys.executable, "-c", OF_ANOTHER]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    if "cannot be preloaded" in done.stderr:
        pytest.skip(f"{library} is not installed")
    (allocator, *in_use), free = (line.split() for line in done.stdout.splitlines())
    first, during, after = map(int, in_use)
    assert allocator == name
    assert during - first >= 25
    assert after - first <= 2
    assert int(free[2]) - int(free[1]) >= 20
