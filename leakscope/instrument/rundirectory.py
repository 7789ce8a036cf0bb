"""Where ``leakscope.profile()`` records: a folder named after the time and the script."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import uuid
from pathlib import Path

import leakscope
from leakscope.instrument.options import SessionOptions
from leakscope.instrument.program import Program
from leakscope.model.errors import LeakscopeError, RunExistsError
from leakscope.model.record import RunManifest

RUNS = Path("leakscope-runs")
MOST_OF_A_SECOND = 1000


def make_run_directory(options: SessionOptions, limit: int | None = None) -> Path:
    """Make the run directory that the options ask for and return its absolute path.

    Args:
        options: what was asked for.
        limit: the memory limit of the process that is recorded, where that isn't this one.

    Raises:
        RunExistsError: ``out`` holds a run already and ``force`` is not set.
        UnwritableError: it can't be made.

    """
    from leakscope.recording import RunDirectory

    manifest = _manifest(options)
    if limit is not None:
        manifest.memory_limit = limit
    of_rank = f"-rank{rank()}" if rank() else ""
    if options.out is not None:
        path = options.out.absolute()
        path = path.with_name(path.name + of_rank)
        return RunDirectory.create(path, manifest, force=options.force).path
    stem = time.strftime("%Y%m%d-%H%M%S-") + _stem(options) + of_rank
    for number in range(1, MOST_OF_A_SECOND):
        name = stem if number == 1 else f"{stem}-{number}"
        try:
            return RunDirectory.create(RUNS.absolute() / name, manifest).path
        except RunExistsError:
            continue
    raise LeakscopeError(f"{RUNS} holds too many runs of this second.", slug="run-exists")


def project_root_of(options: SessionOptions) -> str:
    """Return the folder whose files are the user's own code."""
    if options.project_root is not None:
        return str(options.project_root.absolute())
    script = options.script or _main_file()
    if script is None or not Path(script).exists():
        return str(Path.cwd())
    return Program("script", script).project_root()


def project_of_caller(file: str) -> Path | None:
    """Return the project of the file that asked for profiling, where the program's doesn't hold it.

    A notebook, a test runner or a launcher is no part of the project that it runs.
    """
    path = Path(file)
    if not path.is_file() or {"site-packages", "dist-packages"}.intersection(path.parts):
        return None
    program = Path(project_root_of(SessionOptions())).resolve()
    if path.resolve().is_relative_to(program):
        return None
    return Path(Program("script", str(path)).project_root())


def rank() -> int:
    """Return the rank that ``torchrun`` gave this process; 0 without it."""
    return _number("RANK", 0) if world_size() > 1 else 0


def world_size() -> int:
    """Return how many processes train together."""
    return _number("WORLD_SIZE", 1)


def _number(variable: str, otherwise: int) -> int:
    try:
        return int(os.environ.get(variable, otherwise))
    except ValueError:
        return otherwise


def _manifest(options: SessionOptions) -> RunManifest:
    from leakscope.probes import environment, memory_limit

    total, limit = memory_limit()
    return RunManifest(
        leakscope_version=leakscope.__version__,
        run_id=uuid.uuid4().hex,
        created=time.time(),
        command=list(options.command or (sys.orig_argv or sys.argv)),
        script=options.script or _main_file() or "",
        project_root=project_root_of(options),
        options=json.loads(options.to_json()),
        environment=environment(),
        memory_total=total,
        memory_limit=limit,
    )


def _main_file() -> str | None:
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return file if isinstance(file, str) else None


def _stem(options: SessionOptions) -> str:
    script = options.script or _main_file()
    name = "python" if script is None else Path(script).stem
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:60] or "run"
