"""Where a run is recorded: one directory, made by the one process or by the first of several ranks.

Under ``torchrun`` every rank is a ``leakscope run`` of its own. Rank 0 makes the directory and
writes the report; the others add their recordings.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leakscope import __version__
from leakscope.cli.faults import say
from leakscope.instrument.program import Program, interpreter_options
from leakscope.model.errors import LeakscopeError, RunExistsError
from leakscope.model.record import RunManifest
from leakscope.recording import RunDirectory

RUNS = Path("leakscope-runs")
_MOST_OF_A_SECOND = 1000
_PATIENCE_S = 20.0
_CLOCK_SLACK_S = 2.0
"""Process start times are counted from a boot time that is known to the second."""


@dataclass(frozen=True)
class Rank:
    """The place of a process among those that train together."""

    number: int
    world_size: int
    restarts: int
    started: float
    """When the launcher of the ranks started: the same for all ranks of a machine."""

    @property
    def leads(self) -> bool:
        """Whether it makes the directory and writes the report."""
        return self.number == 0


def this_rank() -> Rank:
    """Return what ``torchrun`` says in the environment; rank 0 of 1 without it."""
    size = _number("WORLD_SIZE", 1)
    if size < 2:
        return Rank(0, 1, 0, time.time())
    import psutil

    started = psutil.Process(os.getppid()).create_time()
    return Rank(_number("RANK", 0), size, _number("TORCHELASTIC_RESTART_COUNT", 0), started)


def prepare(
    program: Program, *, out: Path | None, force: bool, options: dict[str, Any], rank: Rank
) -> RunDirectory:
    """Return the run directory, made here or by rank 0.

    Raises:
        RunExistsError: ``out`` holds a run already.
        UnwritableError: it can't be made.

    """
    path = _path(program, out, rank)
    if not rank.leads:
        if _appears(path / "run.json", rank.started - _CLOCK_SLACK_S):
            return RunDirectory(path)
        path = path.with_name(f"{path.name}-rank{rank.number}")
        say(f"rank 0 made no run directory; rank {rank.number} is recorded in {path}.")
    manifest = _manifest(program, options)
    if out is not None or rank.world_size > 1:
        return RunDirectory.create(path, manifest, force=force)
    return _create_unused(path, manifest)


def _path(program: Program, out: Path | None, rank: Rank) -> Path:
    path = out
    if path is None:
        moment = time.strftime("%Y%m%d-%H%M%S", time.localtime(rank.started))
        name = re.sub(r"[^\w.-]+", "-", program.label).strip("-.") or "run"
        path = RUNS / f"{moment}-{name[:60]}"
    # Restarted ranks would find the directory of their first attempt.
    return path.with_name(f"{path.name}-restart{rank.restarts}") if rank.restarts else path


def _create_unused(path: Path, manifest: RunManifest) -> RunDirectory:
    for attempt in range(1, _MOST_OF_A_SECOND):
        name = path.name if attempt == 1 else f"{path.name}-{attempt}"
        try:
            return RunDirectory.create(path.with_name(name), manifest)
        except RunExistsError:
            continue
    raise LeakscopeError(f"{path.parent} holds too many runs of this second.", slug="run-exists")


def _appears(manifest: Path, not_before: float) -> bool:
    """Wait for rank 0's manifest; one of an older run in the same place doesn't count."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if manifest.stat().st_mtime >= not_before:
                return True
        except OSError:
            pass
        time.sleep(0.05)
    return False


def _manifest(program: Program, options: dict[str, Any]) -> RunManifest:
    from leakscope.probes import environment, memory_limit

    total, limit = memory_limit()
    return RunManifest(
        leakscope_version=__version__,
        run_id=uuid.uuid4().hex,
        created=time.time(),
        command=["python", *interpreter_options(), *program.arguments],
        script=program.target if program.kind == "script" else f"-{program.kind[0]}",
        project_root=program.project_root(),
        options=options,
        environment=environment(),
        memory_total=total,
        memory_limit=limit,
    )


def _number(name: str, otherwise: int) -> int:
    try:
        return int(os.environ.get(name, otherwise))
    except ValueError:
        return otherwise
