"""`memory_stats` tells the host's figures everywhere, and says why there are none of a GPU."""

from __future__ import annotations

import dataclasses
import logging
import platform

import psutil
import pytest
import torch

from leakscope import cleanup
from leakscope.cleanup.levels import NOT_USED

MIB = 1 << 20

without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")


def test_the_hosts_figures_are_those_of_the_system() -> None:
    host = cleanup.memory_stats().host
    assert abs(host.rss - psutil.Process().memory_info().rss) < 16 * MIB
    assert host.peak_rss is not None
    assert host.peak_rss >= host.rss - MIB
    assert host.available is not None
    assert 0 < host.available <= psutil.virtual_memory().total


def test_the_c_heap_is_reported_where_glibc_is() -> None:
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("needs glibc")
    before = cleanup.memory_stats().host.malloc_in_use
    block = bytearray(32 * MIB)
    after = cleanup.memory_stats().host.malloc_in_use
    assert before is not None
    assert after is not None
    assert after - before >= len(block)


def test_headroom_is_the_nearer_of_machine_and_control_group() -> None:
    host = cleanup.memory_stats().host
    limited = dataclasses.replace(host, available=900, cgroup_used=300, cgroup_limit=1000)
    assert limited.headroom == 700
    assert dataclasses.replace(limited, available=500).headroom == 500
    assert dataclasses.replace(limited, cgroup_used=2000).headroom == 0
    assert dataclasses.replace(limited, available=None, cgroup_limit=None).headroom is None


@without_cuda
def test_without_a_gpu_the_sentence_is_there() -> None:
    stats = cleanup.memory_stats()
    assert stats.devices == ()
    assert stats.remark == NOT_USED
    assert str(stats).endswith(NOT_USED)


def test_one_line_is_logged_with_its_prefix(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "leakscope.cleanup"):
        cleanup.log_memory_stats("epoch 3")
        cleanup.log_memory_stats()
    first, second = (record.message for record in caplog.records)
    assert first.startswith("epoch 3: host ")
    assert second.startswith("host ")


def test_resetting_the_peak_says_where_it_could() -> None:
    torch.ones(128 * MIB, dtype=torch.uint8)
    done = cleanup.reset_peak_memory_stats()
    host = cleanup.memory_stats().host
    assert set(done) <= {"host"} or torch.cuda.is_initialized()
    if "host" in done:
        assert host.peak_rss is not None
        assert host.peak_rss - host.rss < 64 * MIB
