"""Child processes: DataLoader workers and whatever else the program started."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from leakscope.model import gauge
from leakscope.model.interrupts import ours
from leakscope.probes.base import GuardedProbe
from leakscope.probes.process import read_rollup

_TASKS = "/proc/self/task"


class ChildCountProbe(GuardedProbe):
    """Number of all descendants, which is quick to read where Linux lists those of each thread."""

    name = "child count"
    slow = True

    def measure(self) -> dict[str, int]:
        """Return how many there are."""
        if _has_none():
            return {gauge.CHILDREN: 0}
        return {gauge.CHILDREN: len(psutil.Process().children(recursive=True))}


class ChildrenProbe(GuardedProbe):
    """Proportional memory of all descendants."""

    name = "children"
    slow = True

    def measure(self) -> dict[str, int]:
        """Return what they hold together."""
        if _has_none():
            return {gauge.CHILDREN_PSS: 0}
        children = psutil.Process().children(recursive=True)
        return {gauge.CHILDREN_PSS: sum(proportional_bytes(child) for child in children)}


def _has_none() -> bool:
    """Say whether the kernel tells that no thread of this process has a child."""
    try:
        with os.scandir(_TASKS) as tasks:
            return not any(Path(task.path, "children").read_bytes() for task in tasks)
    except ours(OSError):
        return False


def proportional_bytes(child: psutil.Process) -> int:
    """Return proportional memory, or resident where that is not told; 0 once it has ended."""
    return divided_bytes(child)[0]


def divided_bytes(child: psutil.Process) -> tuple[int, int]:
    """Return the same, and how much of it are pages of files, as far as the kernel tells."""
    try:
        rollup = read_rollup(child.pid)
        return rollup["Pss"], rollup.get("Pss_File", 0)
    except ours(OSError, KeyError, ValueError):
        pass
    try:
        return int(child.memory_info().rss), 0
    except psutil.Error:
        return 0, 0
