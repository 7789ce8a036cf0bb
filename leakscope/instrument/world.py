"""The place of this process among those that train together, and what they have in common.

All of it is read from the environment that their launcher made, from the process tree, or from a
process group that exists already: nothing is sent to another rank and nobody waits for one.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import uuid
from dataclasses import dataclass, replace

from leakscope.model.interrupts import ours
from leakscope.model.record import HeaderRecord

BY_HAND_S = 600.0
"""Ranks that were started by hand may come so long after the first of them."""
_RUN_ID = "TORCHELASTIC_RUN_ID"


@dataclass(frozen=True)
class Launch:
    """What the ranks of one launch, and the attempts of a rank, have in common."""

    key: str = ""
    """The same in all of them; empty where a process trains alone, or nothing tells."""
    since: float = 0.0
    """No run of this launch was begun before that moment, in seconds since the epoch."""
    is_new: bool = False
    """Whether others may have had the same key within that time: then a rank that was recorded is
    another launch's."""
    is_shared: bool = True
    """Whether it is certain that others record the same run: a process that was started by
    ``multiprocessing`` may turn out to be a rank, or not."""
    began: float = 0.0
    """When it began, where all ranks know the same moment; 0 where machines may differ."""


@dataclass(frozen=True)
class World:
    """Which of how many processes this is."""

    rank: int = 0
    size: int = 1
    attempt: int = 0
    """How often the launcher had started all ranks before."""
    launch: Launch = Launch()

    @property
    def leads(self) -> bool:
        """Whether it is the one that tells how the run ended and writes the report."""
        return self.rank == 0


ALONE = World()
"""A process that trains by itself."""


def this_world() -> World:
    """Return this process's place, as far as it can be known by now; rank 0 of 1 otherwise."""
    size, rank = _number("WORLD_SIZE", 1), _number("RANK", 0)
    if size < 2 or "RANK" not in os.environ:
        rank, size = world_of_group() or (0, 1)
    if size < 2 and _RUN_ID not in os.environ:
        return World(launch=replace(_launch(1), is_shared=False)) if _spawner() else ALONE
    return World(rank, size, _number("TORCHELASTIC_RESTART_COUNT", 0), _launch(size))


def world_of_group() -> tuple[int, int] | None:
    """Return rank and size by torch's process group; None while there is none."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is None or not distributed.is_initialized():
            return None
        return int(distributed.get_rank()), int(distributed.get_world_size())
    except ours(Exception):
        return None


def _launch(size: int) -> Launch:
    run_id = os.environ.get(_RUN_ID)
    if run_id is not None:
        began = _begin_of(_launcher())
        since = 0.0 if _is_unique(run_id) else began
        many_machines = 0 < _number("LOCAL_WORLD_SIZE", 0) < size
        return Launch(f"torchrun {run_id}", since, began=0.0 if many_machines else began)
    parent = _spawner()
    if parent:
        began = _begin_of(parent)
        return Launch(f"spawned {socket.gethostname()} {parent} {began:.2f}", began=began)
    job, step = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_STEP_ID")
    if job and step and "SLURM_PROCID" in os.environ:
        again = os.environ.get("SLURM_RESTART_COUNT", "0")
        return Launch(f"slurm {job}.{step} {again}", is_new=True)
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    here = f"{socket.gethostname()} {os.getppid()}"
    key = f"{address}:{port}" if address and port else f"started by {here}"
    return Launch(key, _begin_of(os.getpid()) - BY_HAND_S, is_new=True)


def _is_unique(run_id: str) -> bool:
    """Whether a run id was made up for one launch, as ``torchrun --standalone`` does."""
    try:
        return str(uuid.UUID(run_id)) == run_id
    except ValueError:
        return False


def _launcher() -> int:
    """Return the process that gave its children a run id, a shell between them or not."""
    import psutil

    try:
        parents = psutil.Process().parents()
        return int(next(one.pid for one in parents if _RUN_ID not in one.environ()))
    except (psutil.Error, StopIteration):
        return os.getppid()


def _spawner() -> int:
    """Return the process that started this one by ``multiprocessing``; 0 if none did."""
    multiprocessing = sys.modules.get("multiprocessing")
    parent = multiprocessing.parent_process() if multiprocessing is not None else None
    return 0 if parent is None else int(parent.pid)


def _begin_of(pid: int) -> float:
    """Return when a process began, known to about a second."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return time.time()


def _number(variable: str, otherwise: int) -> int:
    try:
        return int(os.environ.get(variable, otherwise))
    except ValueError:
        return otherwise


def header_of(world: World) -> HeaderRecord:
    """Return what a recording of this process begins with."""
    return HeaderRecord(
        role="rank" if world.size > 1 else "main",
        rank=world.rank,
        world_size=world.size,
        attempt=world.attempt,
        pid=os.getpid(),
        host=socket.gethostname(),
        started=time.time(),
    )
