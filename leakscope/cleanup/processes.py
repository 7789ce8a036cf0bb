"""Facts about a process that tell whether anybody still wants it; Linux tells most of them."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from leakscope.model.printable import one_line

T = TypeVar("T")

_PROC = Path("/proc")
_DEVICE_FILE = re.compile(r"/dev/nvidia\d+$")
"""What a process that uses a GPU holds open; monitors may hold ``/dev/nvidiactl`` alone."""
_INITS = frozenset(
    [
        *("systemd", "init", "launchd", "runit", "s6-svscan"),
        *("tini", "docker-init", "dumb-init", "catatonit", "pause"),
    ]
)
"""Those who adopt processes whose parent has ended, besides process 1 whatever its name."""
_COMMANDS = (
    ("multiprocessing", re.compile(r"from multiprocessing\.(spawn|forkserver)\b")),
    ("Jupyter", re.compile(r"ipykernel_launcher|-m ipykernel\b")),
)
_WORKER = "pt_data_worker"
"""How torch names the workers of a DataLoader."""
_TORCHRUN = "TORCHELASTIC_RUN_ID"
"""In the environment of what torchrun started."""
_PYTHON = re.compile(r"^(python|pypy|pt_main|pt_data|torchrun|ray::)")


@dataclass(frozen=True)
class ProcessFacts:
    """One process, as it was when looked at."""

    pid: int
    user: str
    is_own: bool
    """Whether it runs for the user who asks."""
    is_asking: bool
    """Whether it is this process or one that led to it."""
    command: str
    is_python: bool
    started: float
    """Seconds since the epoch."""
    status: str
    parent: int
    parent_name: str
    is_adopted: bool
    """Whether an init of the machine, the session or the container is its parent."""
    is_service: bool
    """Whether systemd started it and watches over it."""
    ignores_hangup: bool
    """Whether it was made to outlive its terminal, as ``nohup`` does."""
    launcher: str | None
    """Who starts such processes and should be its parent: ``torchrun``, ``DataLoader``, …"""
    holds_gpu: bool | None
    """Whether it has a GPU's device file open; None where that can't be seen."""


def look_at(pid: int) -> ProcessFacts | None:
    """Return the facts about a process; None where no process of that number is to be seen."""
    try:
        return _facts(psutil.Process(pid))
    except (psutil.Error, OSError):
        return None


def own_gpu_holders() -> list[ProcessFacts]:
    """Return this user's other processes that have a GPU's device file open."""
    numbers = [pid for pid in psutil.pids() if pid != os.getpid() and holds_gpu(pid)]
    found = [look_at(pid) for pid in numbers]
    return [facts for facts in found if facts is not None and facts.is_own]


def holds_gpu(pid: int) -> bool | None:
    """Return whether a process has a GPU's device file open; None where that can't be seen."""
    try:
        links = list((_PROC / str(pid) / "fd").iterdir())
    except OSError:
        return None
    return any(_DEVICE_FILE.match(_target(link)) for link in links)


def _facts(process: psutil.Process) -> ProcessFacts:
    started = process.create_time()
    is_own = _is_own(process)
    words = _told(process.cmdline, []) or [_told(process.name, "?")]
    command = one_line(" ".join(words))
    parent = _told(process.parent, None)
    parent_name = _told(parent.name, "") if parent is not None else ""
    thread = _read(process.pid, "comm").strip()
    program = words[0].rpartition("/")[2]
    return ProcessFacts(
        pid=process.pid,
        user=one_line(_told(process.username, "?")),
        is_own=is_own,
        is_asking=process.pid in _lineage(),
        command=command,
        is_python=bool(_PYTHON.match(program) or _PYTHON.match(thread)),
        started=started,
        status=_told(process.status, ""),
        parent=parent.pid if parent is not None else 0,
        parent_name=one_line(parent_name),
        is_adopted=parent is not None and _adopts(parent, parent_name),
        is_service=_is_service(_read(process.pid, "cgroup")),
        ignores_hangup=_ignores_hangup(_read(process.pid, "status")),
        launcher=_launcher(process, command, thread),
        holds_gpu=holds_gpu(process.pid),
    )


def _adopts(parent: psutil.Process, name: str) -> bool:
    """Whether it is an init; a Python that is a container's first process may be the launcher."""
    return (parent.pid == 1 or name in _INITS) and not _PYTHON.match(name)


def _launcher(process: psutil.Process, command: str, thread: str) -> str | None:
    if thread == _WORKER:
        return "DataLoader"
    for launcher, words in _COMMANDS:
        if words.search(command):
            return launcher
    environment: dict[str, str] = _told(process.environ, {})
    return "torchrun" if _TORCHRUN in environment else None


def _is_own(process: psutil.Process) -> bool:
    if not hasattr(os, "getuid"):
        return bool(_told(process.username, "") == _told(psutil.Process().username, "?"))
    real, effective, _ = process.uids()
    return bool(real == effective == os.getuid())


def _lineage() -> set[int]:
    """The process that asks, and those that led to it."""
    this = psutil.Process()
    parents: list[psutil.Process] = _told(this.parents, [])
    return {this.pid, *(parent.pid for parent in parents)}


def _is_service(groups: str) -> bool:
    """Whether the innermost unit in a process's control groups is a service of systemd."""
    units = [
        part
        for line in groups.splitlines()
        for part in line.rpartition(":")[2].split("/")
        if part.endswith((".service", ".scope"))
    ]
    return bool(units) and units[-1].endswith(".service") and not units[-1].startswith("user@")


def _ignores_hangup(status: str) -> bool:
    for line in status.splitlines():
        if line.startswith("SigIgn:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGHUP - 1) & 1)
    return False


def _read(pid: int, name: str) -> str:
    try:
        return (_PROC / str(pid) / name).read_text(errors="replace")
    except OSError:
        return ""


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""  # closed since


def _told(ask: Callable[[], T], otherwise: T) -> T:
    """What the system tells of a process; another user's tells little, an ended one nothing."""
    try:
        return ask()
    except (psutil.Error, OSError):
        return otherwise
