"""A state recorded inside a real out-of-memory observer, judged as a run's own would be."""

from __future__ import annotations

import gzip
import pickle

import pytest
from recorded import needs_recordings, recording

from leakscope.analysis.findings.out_of_memory import Shortage, _figures
from leakscope.analysis.processes.endings import EXCEPTION
from leakscope.model.record import OutOfMemoryRecord
from leakscope.probes import out_of_memory
from leakscope.probes.out_of_memory import device_room

MB = 1_000_000

pytestmark = needs_recordings


class Cuda:
    def is_current_stream_capturing(self) -> bool:
        return False

    def memory_allocated(self, device: int) -> int:
        return sum(s["allocated_size"] for s in out_of_memory.allocator_segments())

    def memory_reserved(self, device: int) -> int:
        return sum(s["total_size"] for s in out_of_memory.allocator_segments())


@pytest.mark.parametrize("request_mib", [12, 300, 4000])
def test_the_recorded_shortage_is_capacity(monkeypatch, request_mib):
    with gzip.open(recording("oom_observer_flexgen_t20")) as stream:
        segments = pickle.load(stream)["segments"]  # one of the project's own recordings
    monkeypatch.setattr(out_of_memory, "awake_cuda", Cuda)
    monkeypatch.setattr(out_of_memory, "allocator_segments", lambda: segments)
    room = device_room(0, request_mib << 20, free=0)
    assert room.snapshot.reserved == pytest.approx(11_296 * MB * 1.048576, rel=0.001)
    assert room.snapshot.reserved - room.snapshot.active < 5 << 20
    record = OutOfMemoryRecord(
        boundary=0,
        time_s=0.0,
        seen="observer",
        device="cuda:0",
        requested=request_mib << 20,
        largest_hole=room.largest_hole,
        snapshot=room.snapshot,
    )
    found = Shortage(EXCEPTION, "cuda:0", record, None, "", _figures(record), 0, 0, None)
    assert found.kind == "capacity"
