"""A control group with little memory, for programs that the kernel shall kill."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

GROUPS = Path("/sys/fs/cgroup/memory")


@contextmanager
def limited_group(limit_bytes: int) -> Iterator[Path]:
    """Make a group of our own, where this machine lets us make one, and take it away again."""
    path = GROUPS / f"leakscope-test-{os.getpid()}"
    try:
        path.mkdir()
        (path / "memory.limit_in_bytes").write_text(str(limit_bytes))
    except OSError as fault:
        pytest.skip(f"no control group can be made here: {fault}")
    try:
        yield path
    finally:
        path.rmdir()


def entering(group: Path | None) -> Callable[[], object] | None:
    """Return what a new process calls before its program, so that it runs in the group."""
    if group is None:
        return None
    return lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
