"""What memory there was when it ran out."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from leakscope.probes import out_of_memory
from leakscope.probes.out_of_memory import device_room, host_room

MIB = 1 << 20
BASE = 0x7F00_0000_0000


class Cuda:
    def __init__(self, *, capturing: bool = False) -> None:
        self.capturing = capturing

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def memory_allocated(self, device: int) -> int:
        return 70 * MIB

    def memory_reserved(self, device: int) -> int:
        return 200 * MIB


def segment(blocks, *, device=0, kind="large", pool=(0, 0), expandable=False):
    offset, laid = 0, []
    for state, size in blocks:
        laid.append({"state": state, "size": size * MIB, "address": BASE + offset})
        offset += size * MIB
    live = sum(size for state, size in blocks if state == "active_allocated") * MIB
    return {
        "device": device,
        "address": BASE,
        "total_size": offset,
        "allocated_size": live,
        "active_size": live,
        "segment_type": kind,
        "segment_pool_id": pool,
        "is_expandable": expandable,
        "blocks": laid,
    }


@pytest.fixture
def cuda(monkeypatch):
    """Segments that a test fills, of a device that is in use."""
    fake = Cuda()
    fake.segments = []
    monkeypatch.setattr(out_of_memory, "awake_cuda", lambda: fake)
    monkeypatch.setattr(out_of_memory, "allocator_segments", lambda: fake.segments)
    return fake


def test_the_host_tells_use_and_the_least_that_any_limit_leaves():
    room = host_room()
    assert 0 < room.allocated <= room.reserved
    assert 0 < room.free < room.limits["machine"]


def test_a_limit_on_the_address_space_counts():
    script = (
        "import resource, leakscope.probes.out_of_memory as p; r = p.host_room();"
        "soft = r.reserved + (300 << 20); resource.setrlimit(resource.RLIMIT_AS, (soft, soft));"
        "r = p.host_room(); print(r.limits['address_space'] == soft, r.free <= 300 << 20)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True"], done.stderr
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


def test_the_largest_hole_is_of_the_kind_that_serves_the_request(cuda):
    cuda.segments += [
        segment([("active_allocated", 70), ("inactive", 40), ("inactive", 10)]),
        segment([("inactive", 90)], device=1),
        segment([("active_allocated", 1), ("inactive", 60)], pool=(0, 7)),
        segment([("active_allocated", 1), ("inactive", 1)], kind="small"),
    ]
    large = device_room(0, 50 * MIB, total=300 * MIB, free=5 * MIB)
    assert large.largest_hole == 40 * MIB
    assert device_room(0, 1000).largest_hole == MIB
    assert (large.allocated, large.reserved, large.free) == (70 * MIB, 200 * MIB, 5 * MIB)
    assert large.limits == {"device": 300 * MIB}
    assert large.snapshot is not None
    assert large.snapshot.stuck == 111 * MIB


def test_whole_pages_in_holes_are_what_expandable_segments_would_give(cuda):
    blocks = [("active_allocated", 10), ("inactive", 55), ("active_allocated", 5)]
    cuda.segments = [segment(blocks)]
    fixed = device_room(0, MIB * 60).snapshot
    assert (fixed.stuck, fixed.pages, fixed.releasable) == (55 * MIB, 40 * MIB, 0)
    cuda.segments = [segment(blocks, expandable=True)]
    grown = device_room(0, MIB * 60).snapshot
    assert (grown.pages, grown.releasable, grown.expandable) == (0, 40 * MIB, True)


def test_a_graph_that_is_being_captured_is_left_alone(cuda):
    cuda.capturing = True
    cuda.segments = [segment([("inactive", 90)])]
    room = device_room(0, MIB)
    assert (room.snapshot, room.largest_hole) == (None, None)


def test_a_device_that_nobody_uses_is_not_woken():
    assert device_room(0, MIB, free=7).free == 7
