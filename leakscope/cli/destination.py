"""Where ``leakscope run`` records: one directory, made by whichever rank comes first."""

from __future__ import annotations

import json
import re
import time
import uuid
from typing import Any

from leakscope.cli.faults import say
from leakscope.instrument.options import SessionOptions
from leakscope.instrument.program import Program, interpreter_options
from leakscope.instrument.rundirectory import RUNS, claim
from leakscope.instrument.world import World
from leakscope.model.record import RunManifest
from leakscope.model.version import __version__
from leakscope.recording import RunDirectory

LONGEST_NAME = 60


def prepare(program: Program, options: SessionOptions, world: World) -> RunDirectory:
    """Return the run directory, made here or by another rank of the same launch.

    Raises:
        RunExistsError: ``out`` holds another run already.
        UnwritableError: it can't be made.

    """
    stem = re.sub(r"[^\w.-]+", "-", program.label).strip("-.")[:LONGEST_NAME] or "run"
    out = options.out
    directory = claim(
        out,
        stem,
        _manifest(program, json.loads(options.to_json())),
        force=options.force,
        world=world,
        runs=options.runs or RUNS,
    )
    if out is not None and directory.path.name != out.name:
        say(f"{out} holds another run; rank {world.rank} is recorded in {directory.path}.")
    return directory


def _manifest(program: Program, options: dict[str, Any]) -> RunManifest:
    from leakscope.configuration.known_culprits import own_libraries
    from leakscope.configuration.reading import read_configuration
    from leakscope.probes.cgroup import memory_limit
    from leakscope.probes.environment import environment

    total, limit = memory_limit()
    return RunManifest(
        leakscope_version=__version__,
        run_id=uuid.uuid4().hex,
        created=time.time(),
        command=["python", *interpreter_options(), *program.arguments],
        script=program.title,
        project_root=program.project_root(),
        options=options,
        environment=environment(own_libraries(read_configuration().section)),
        memory_total=total,
        memory_limit=limit,
    )
