from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from leakscope.model import gauge
from leakscope.probes.cgroup import (
    CgroupProbe,
    MemoryEvents,
    limiting_group,
    memory_events,
    memory_limit,
)

GB = 1 << 30


class Kernel:
    """Lays out a control group file system and the process's view of it."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.mount = folder / "proc", folder / "cgroup"
        self.proc.mkdir()
        self._mounts: list[str] = []

    def process(self, *memberships: str) -> Kernel:
        (self.proc / "cgroup").write_text("\n".join(memberships) + "\n")
        return self

    def mounted(self, version: int, root: str = "/") -> Kernel:
        kind, options = ("cgroup2", "rw") if version == 2 else ("cgroup", "rw,memory")
        self._mounts.append(f"30 23 0:26 {root} {self.mount} rw - {kind} {kind} {options}")
        (self.proc / "mountinfo").write_text("\n".join(self._mounts) + "\n")
        return self

    def v2(self, path: str, *, used: int, limit: str, cache: int = 0) -> Kernel:
        return self._group(
            path,
            {
                "memory.current": used,
                "memory.max": limit,
                "memory.stat": f"anon 5\ninactive_file {cache}",
            },
        )

    def v1(self, path: str, *, used: int, limit: int, cache: int = 0) -> Kernel:
        return self._group(
            path,
            {
                "memory.usage_in_bytes": used,
                "memory.limit_in_bytes": limit,
                "memory.stat": f"inactive_file 1\ntotal_inactive_file {cache}",
            },
        )

    def _group(self, path: str, files: dict[str, object]) -> Kernel:
        folder = self.mount / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_text(f"{content}\n")
        return self

    def read(self) -> dict[str, int]:
        probe = CgroupProbe()
        probe._group = limiting_group(self.proc)
        return probe.read()


@pytest.fixture
def kernel(tmp_path):
    return Kernel(tmp_path)


def test_version_2_tells_use_without_file_cache_and_the_limit(kernel):
    kernel.process("0::/job").mounted(2).v2("job", used=3 * GB, cache=GB, limit=str(8 * GB))
    assert kernel.read() == {gauge.CGROUP_USED: 2 * GB, gauge.CGROUP_LIMIT: 8 * GB}


def test_no_limit_is_no_gauge(kernel):
    kernel.process("0::/job").mounted(2).v2("job", used=GB, limit="max")
    assert kernel.read() == {gauge.CGROUP_USED: GB}


def test_the_limit_of_a_group_around_ours_counts_with_that_groups_use(kernel):
    kernel.process("0::/slurm/job/step").mounted(2)
    kernel.v2("slurm/job/step", used=GB, limit="max")
    kernel.v2("slurm/job", used=3 * GB, limit=str(4 * GB))
    kernel.v2("slurm", used=9 * GB, limit=str(64 * GB))
    assert kernel.read() == {gauge.CGROUP_USED: 3 * GB, gauge.CGROUP_LIMIT: 4 * GB}


def test_version_1_is_read_and_its_largest_number_means_no_limit(kernel):
    kernel.process("9:name=systemd:/", "4:memory:/box").mounted(1)
    kernel.v1("box", used=2 * GB, cache=GB, limit=9223372036854771712)
    assert kernel.read() == {gauge.CGROUP_USED: GB}
    kernel.v1("box", used=2 * GB, limit=3 * GB)
    assert kernel.read()[gauge.CGROUP_LIMIT] == 3 * GB


def test_a_container_that_sees_only_its_own_part_of_the_tree(kernel):
    kernel.process("4:memory:/docker/abc").mounted(1, root="/docker/abc")
    kernel.v1("", used=GB, limit=2 * GB)
    assert kernel.read() == {gauge.CGROUP_USED: GB, gauge.CGROUP_LIMIT: 2 * GB}


def test_a_container_whose_path_lies_outside_its_mount(kernel):
    kernel.process("0::/../../other").mounted(2, root="/docker/abc")
    kernel.v2("", used=GB, limit=str(2 * GB))
    assert kernel.read()[gauge.CGROUP_LIMIT] == 2 * GB


def test_both_versions_at_once_with_memory_in_the_first(kernel):
    kernel.process("4:memory:/box", "0::/").mounted(1).mounted(2)
    kernel.v1("box", used=GB, limit=2 * GB)
    assert kernel.read() == {gauge.CGROUP_USED: GB, gauge.CGROUP_LIMIT: 2 * GB}


def test_without_control_groups_there_are_no_gauges(kernel, tmp_path):
    assert kernel.read() == {}
    kernel.process("garbage").mounted(2)
    assert kernel.read() == {}


def test_the_limit_of_a_run_never_exceeds_the_machine():
    total, limit = memory_limit()
    assert total == psutil.virtual_memory().total
    assert limit is not None
    assert 0 < limit <= total


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs control groups")
def test_the_group_of_this_very_process_is_plausible():
    gauges = CgroupProbe().read()
    assert gauges == {} or gauges[gauge.CGROUP_USED] > 0


def write(kernel, path, **files):
    for name, text in files.items():
        (kernel.mount / path / name.replace("memory_", "memory.")).write_text(text)


def test_version_2_counts_kills_and_hits_of_the_limit(kernel):
    kernel.process("0::/job").mounted(2).v2("job", used=GB, limit=str(2 * GB))
    write(kernel, "job", memory_events="low 0\nhigh 3\nmax 17\noom 2\noom_kill 1\n")
    assert memory_events(kernel.proc) == MemoryEvents(oom_kills=1, limit_hits=17)


def test_version_1_counts_them_in_two_files(kernel):
    kernel.process("4:memory:/box").mounted(1).v1("box", used=GB, limit=2 * GB)
    control = "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"
    write(kernel, "box", memory_oom_control=control, memory_failcnt="52\n")
    assert memory_events(kernel.proc) == MemoryEvents(oom_kills=4, limit_hits=52)


def test_before_linux_4_13_only_hits_of_the_limit_are_known(kernel):
    kernel.process("4:memory:/box").mounted(1).v1("box", used=GB, limit=2 * GB)
    control = "oom_kill_disable 0\nunder_oom 0\n"
    write(kernel, "box", memory_oom_control=control, memory_failcnt="52\n")
    assert memory_events(kernel.proc) == MemoryEvents(oom_kills=None, limit_hits=52)


def test_where_no_group_counts_kills_the_machine_does(kernel, tmp_path):
    (tmp_path / "vmstat").write_text("nr_free_pages 5\noom_kill 3\n")
    assert memory_events(kernel.proc) == MemoryEvents(oom_kills=3)


def test_kills_are_of_the_own_group_not_of_those_around_it(kernel):
    kernel.process("0::/jobs/mine").mounted(2)
    kernel.v2("jobs/mine", used=GB, limit="max").v2("jobs", used=GB, limit=str(2 * GB))
    write(kernel, "jobs/mine", memory_events="max 0\noom_kill 0\n")
    write(kernel, "jobs", memory_events="max 9\noom_kill 5\n")
    assert memory_events(kernel.proc) == MemoryEvents(oom_kills=0, limit_hits=0)


def test_unreadable_counters_are_no_counters(kernel):
    kernel.process("0::/job").mounted(2).v2("job", used=GB, limit="max")
    write(kernel, "job", memory_events="oom_kill many\n")
    assert memory_events(kernel.proc) == MemoryEvents()
