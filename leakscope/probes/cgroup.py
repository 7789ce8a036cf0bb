"""The control group: the memory limit that ends containers and batch jobs, and how near it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil

from leakscope.model import gauge
from leakscope.model.errors import ours
from leakscope.probes import GuardedProbe, content

_UNLIMITED = 1 << 60
"""Version 1 says "no limit" with the largest page-aligned number."""


class CgroupProbe(GuardedProbe):
    """Use and limit of the control group that would kill this process first.

    Use is counted as ``docker stats`` and the kubelet do: without the file cache that the kernel
    would drop before it kills anything.
    """

    name = "cgroup"
    slow = True

    def __init__(self) -> None:
        self._group = limiting_group()

    def _measure(self) -> dict[str, int]:
        return {} if self._group is None else self._group.gauges()


def memory_limit() -> tuple[int | None, int | None]:
    """Return the machine's memory and the amount whose excess would kill the run, in bytes."""
    try:
        total: int | None = int(psutil.virtual_memory().total)
    except ours(Exception):
        total = None
    group = limiting_group()
    limits = [size for size in (total, group.limit() if group else None) if size is not None]
    return total, min(limits, default=None)


@dataclass(frozen=True)
class MemoryEvents:
    """What the kernel counts for a control group; None for what it doesn't report."""

    oom_kills: int | None = None
    """Processes of the group that its out-of-memory killer has ended."""
    limit_hits: int | None = None
    """How often the group stood at its limit and had to give something back first."""


def memory_events(proc: Path = Path("/proc/self")) -> MemoryEvents:
    """Return the counters of the process's own control group.

    Kills of the whole machine (``/proc/vmstat``) where no group counts them.
    """
    group = next(iter(_accounting(proc)), None)
    found = MemoryEvents() if group is None else group.events()
    if found.oom_kills is None:
        machine = _counters(proc.parent / "vmstat").get("oom_kill")
        found = MemoryEvents(machine, found.limit_hits)
    return found


@dataclass(frozen=True)
class MemoryGroup:
    """A directory of the control group file system that accounts memory."""

    path: Path
    version: int

    def gauges(self) -> dict[str, int]:
        """Return use and limit; raises ``OSError`` where they can't be read."""
        found, limit = {gauge.CGROUP_USED: self.used()}, self.limit()
        return found if limit is None else {**found, gauge.CGROUP_LIMIT: limit}

    @property
    def _usage(self) -> Path:
        name = "memory.current" if self.version == 2 else "memory.usage_in_bytes"
        return self.path / name

    def used(self) -> int:
        """Return bytes in use, without reclaimable file cache."""
        cache = b"inactive_file" if self.version == 2 else b"total_inactive_file"
        fields = (line.split() for line in (self.path / "memory.stat").read_bytes().splitlines())
        reclaimable = next((int(f[1]) for f in fields if f[0] == cache), 0)
        return max(0, int(self._usage.read_bytes()) - reclaimable)

    def limit(self) -> int | None:
        """Return the limit in bytes; None where there is none."""
        name = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        text = content(self.path / name).strip()  # nothing of the root group, which has no limit
        limit = None if text in (b"", b"max") else int(text)
        return None if limit is None or limit >= _UNLIMITED else limit

    def events(self) -> MemoryEvents:
        """Return what ``memory.events`` counts; version 1 counts kills since Linux 4.13."""
        if self.version == 2:
            counted = _counters(self.path / "memory.events")
            return MemoryEvents(counted.get("oom_kill"), counted.get("max"))
        kills = _counters(self.path / "memory.oom_control").get("oom_kill")
        return MemoryEvents(kills, _counters(self.path / "memory.failcnt").get(""))

    def exists(self) -> bool:
        """Return whether it accounts memory at all."""
        return self._usage.is_file()


def limiting_group(proc: Path = Path("/proc/self")) -> MemoryGroup | None:
    """Return the tightest limited group among the process's own and those around it.

    Limits apply to whole subtrees: a batch system limits the job, and the process sits in a step
    below it. Without any limit it is the process's own group; None where memory is not accounted.
    """
    groups = _accounting(proc)
    try:
        limited = [(limit, group) for group in groups if (limit := group.limit()) is not None]
    except ours(OSError, ValueError):
        return None
    if limited:
        return min(limited, key=lambda pair: pair[0])[1]
    return groups[0] if groups else None


def _counters(path: Path) -> dict[str, int]:
    """Return the numbers of a file by name; a number that stands alone has the empty name."""
    try:
        parted = [line.rpartition(" ") for line in path.read_text().splitlines()]
        return {name: int(number) for name, _, number in parted}
    except ours(OSError, ValueError):
        return {}


def _accounting(proc: Path) -> list[MemoryGroup]:
    """Return the process's memory group and those above it that are visible, innermost first."""
    found: list[MemoryGroup] = []
    try:
        entries = [line.split(":", 2) for line in (proc / "cgroup").read_text().splitlines()]
        for version, mounted_at, root in _mounts(proc):
            for _, controllers, path in entries:
                if ("memory" in controllers.split(",")) if version == 1 else not controllers:
                    inside = _below(path, root)
                    folders = [inside, *inside.parents]
                    found += [MemoryGroup(mounted_at / folder, version) for folder in folders]
        return [group for group in found if group.exists()]
    except ours(OSError, ValueError, IndexError):
        return []


def _mounts(proc: Path) -> list[tuple[int, Path, str]]:
    """Where control groups that account memory are mounted: version, mount point, root in it."""
    mounts = []
    for line in (proc / "mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, mounted_at = before.split(" ")[3:5]
        if kind == "cgroup2":
            mounts.append((2, Path(mounted_at), root))
        elif kind == "cgroup" and "memory" in options.split(","):
            mounts.append((1, Path(mounted_at), root))
    return mounts


def _below(path: str, root: str) -> PurePosixPath:
    """The group's place under the mount: a container often sees only a part of the tree."""
    try:
        return PurePosixPath(path).relative_to(root)
    except ValueError:
        return PurePosixPath()
