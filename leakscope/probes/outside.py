"""A process and its descendants as the kernel tells of them, from outside: nothing is touched."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from leakscope.model import gauge
from leakscope.model.errors import ours
from leakscope.probes.cgroup import MemoryEvents, MemoryGroup, limiting_group, memory_events
from leakscope.probes.process import divided, divided_bytes, read_rollup, shared_memory


class OutsideProcess:
    """Reads the gauges of another process and of all that it started.

    What the kernel hides from this user (another user's pages, for one) is not among them.
    """

    def __init__(self, pid: int, since: float) -> None:
        """Attach to a process; ``since`` is the time from which on its files count as made.

        Raises:
            psutil.NoSuchProcess: there is none of that number.

        """
        self._process = psutil.Process(pid)
        self._since = since
        self._proc = Path("/proc") / str(pid)
        self._group = limiting_group(self._proc)

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs; a zombie, which nobody has waited for, does not."""
        try:
            status = self._process.status()  # of whoever has the number now
            return bool(self._process.is_running() and status != psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return False

    def pids(self) -> set[int]:
        """Return the numbers of the process and its descendants."""
        return {self._process.pid, *(child.pid for child in self._children())}

    def limit(self) -> int | None:
        """Return the memory limit that would kill it, in bytes: its group's or the machine's."""
        total = int(psutil.virtual_memory().total)
        own = None if self._group is None else self._group.limit()
        return total if own is None else min(total, own)

    def events(self) -> MemoryEvents:
        """Return what the kernel counts of its control group, also when the process is gone."""
        return memory_events(self._proc) if self._group is None else _events(self._group)

    def gauges(self) -> dict[str, int]:
        """Return what can be read of it now; empty once it is gone."""
        try:
            resident = int(self._process.memory_info().rss)
        except psutil.Error:
            return {}
        children = self._children()
        divided = [divided_bytes(child) for child in children]
        found = {
            gauge.RSS: resident,
            gauge.CHILDREN: len(children),
            gauge.CHILDREN_PSS: sum(whole for whole, _ in divided),
            gauge.SYSTEM_AVAILABLE: int(psutil.virtual_memory().available),
            **self._divided(sum(files for _, files in divided)),
            **self._counted(),
            **self._of_group(),
        }
        if os.path.ismount("/dev/shm"):  # noqa: S108
            found |= shared_memory(self._since)
        return found

    def _children(self) -> list[psutil.Process]:
        try:
            return list(self._process.children(recursive=True))
        except psutil.Error:
            return []

    def _divided(self, files_of_children: int) -> dict[str, int]:
        try:
            rollup = read_rollup(self._process.pid)
            files = rollup.get("Pss_File", 0) + files_of_children
            return divided(rollup) | {gauge.TREE_FILES: files}
        except ours(OSError, KeyError, ValueError):
            return {}

    def _counted(self) -> dict[str, int]:
        try:
            found = {gauge.THREADS: self._process.num_threads()}
            return {**found, gauge.OPEN_FILES: self._process.num_fds()}
        except psutil.Error:
            return {}

    def _of_group(self) -> dict[str, int]:
        if self._group is None:
            return {}
        try:
            found = {gauge.CGROUP_USED: self._group.used()}
            limit = self._group.limit()
        except ours(OSError, ValueError):
            return {}
        return found if limit is None else {**found, gauge.CGROUP_LIMIT: limit}


def _events(group: MemoryGroup) -> MemoryEvents:
    try:
        return group.events()
    except ours(OSError, ValueError):
        return MemoryEvents()
