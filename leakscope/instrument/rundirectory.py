"""The directory of a run: named by the time and the script, and the same for all its ranks."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from leakscope.instrument.options import SessionOptions
from leakscope.instrument.program import Program
from leakscope.instrument.world import ALONE, World
from leakscope.model.errors import LeakscopeError, RunExistsError
from leakscope.model.record import RunManifest
from leakscope.model.version import __version__
from leakscope.recording.directory import MANIFEST, RunDirectory, read_manifest
from leakscope.recording.writer import JOURNAL_SUFFIX

RUNS = Path("leakscope-runs")
RUN_DIRECTORY = "LEAKSCOPE_RUN_DIR"
"""Names the run directory in the environment, where nobody says so in the code."""
MOST_OF_A_SECOND = 1000
CLOCK_SLACK_S = 2.0
"""Process start times are counted from a boot time that is known to the second."""
LOOKS = 5
PATIENCE_S = 10.0
"""So long another rank may take to replace a former run."""


def make_run_directory(
    options: SessionOptions, limit: int | None = None, world: World = ALONE
) -> Path:
    """Make the run directory that the options ask for and return its absolute path.

    Args:
        options: what was asked for.
        limit: the memory limit of the process that is recorded, where that isn't this one.
        world: the ranks that record into one directory.

    Raises:
        RunExistsError: ``out`` holds a run already and ``force`` is not set.
        UnwritableError: it can't be made.

    """
    manifest = _manifest(options)
    if limit is not None:
        manifest.memory_limit = limit
    path = None if options.out is None else options.out.absolute()
    found = claim(
        path,
        _stem(options),
        manifest,
        force=options.force,
        world=world,
        runs=options.runs or RUNS,
    )
    return found.path.absolute()


def claim(
    out: Path | None,
    stem: str,
    manifest: RunManifest,
    *,
    force: bool,
    world: World,
    runs: Path = RUNS,
) -> RunDirectory:
    """Return the directory of a run, made here or by another rank of the same launch.

    Whoever comes first makes it, and nobody waits for anybody: each rank goes through the same
    places in the same order, and only one can write a manifest into a place.

    Raises:
        RunExistsError: ``out`` holds another run, and ``force`` is not set.
        UnwritableError: it can't be made.

    """
    manifest.launch = world.launch.key
    if out is not None:
        try:
            return _join_or_make(out, manifest, force=force, world=world)
        except RunExistsError:
            if (world.leads and world.launch.is_shared) or not _is_of(out, world.launch.key):
                raise
            # A machine that joined late can't tell the run from an earlier one of the same name,
            # and a process that may turn out to be a rank doesn't know yet what it belongs to.
            out = out.with_name(f"{out.name}-rank{world.rank}" if world.rank else f"{out.name}-2")
    for path in _places(out or _named_place() or runs / _name(stem, world)):
        with suppress(RunExistsError):
            return _join_or_make(path, manifest, force=False, world=world)
    raise LeakscopeError(f"{runs} holds too many runs of this second.", slug="run-exists")


def _places(out: Path) -> Iterator[Path]:
    """Yield the places where a run may go, the same for all ranks of a launch."""
    for number in range(1, MOST_OF_A_SECOND):
        yield out if number == 1 else out.with_name(f"{out.name}-{number}")


def _named_place() -> Path | None:
    named = os.environ.get(RUN_DIRECTORY)
    return Path(named) if named else None


def _name(stem: str, world: World) -> str:
    """Name a run by the moment; where machines have no moment in common, by their launch."""
    launch = world.launch
    if launch.key and launch.is_shared and not launch.began:
        return f"{stem}-{hashlib.sha256(launch.key.encode()).hexdigest()[:8]}"
    moment = time.localtime((launch.is_shared and launch.began) or time.time())
    return f"{time.strftime('%Y%m%d-%H%M%S', moment)}-{stem}"


def _join_or_make(path: Path, manifest: RunManifest, *, force: bool, world: World) -> RunDirectory:
    if is_joinable(path, world):
        return RunDirectory(path)
    if force:
        return _replace(path, manifest, world)
    try:
        return RunDirectory.create(path, manifest)
    except RunExistsError:
        if is_joinable(path, world):  # made by another rank just now
            return RunDirectory(path)
        raise


def _replace(path: Path, manifest: RunManifest, world: World) -> RunDirectory:
    """Replace a former run; of several ranks one does, and what it made is not replaced again."""
    with _alone_at(path):
        if is_joinable(path, world):
            return RunDirectory(path)
        return RunDirectory.create(path, manifest, force=True)


@contextmanager
def _alone_at(path: Path) -> Iterator[None]:
    """Keep other ranks from replacing the same run; a lock that was left behind is passed over."""
    lock = path.with_name(f".{path.name}.replacing")
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        except OSError:  # what can't be written is refused with a better word by who makes the run
            break
    try:
        yield
    finally:
        with suppress(OSError):
            lock.unlink(missing_ok=True)


def is_joinable(path: Path, world: World) -> bool:
    """Return whether a place holds the run of this launch, and no earlier one."""
    launch = world.launch
    known = _manifest_at(path) if launch.key and launch.is_shared else None
    if known is None or known.launch != launch.key or known.created < launch.since - CLOCK_SLACK_S:
        return False
    return not launch.is_new or not any(path.glob(f"rank{world.rank}-*{JOURNAL_SUFFIX}"))


def _is_of(path: Path, key: str) -> bool:
    known = _manifest_at(path) if key else None
    return known is not None and known.launch == key


def _manifest_at(path: Path) -> RunManifest | None:
    """Return the manifest; without hard links it may just be being written, so look again."""
    for _ in range(LOOKS):
        known = read_manifest(path)
        if known is not None or not (path / MANIFEST).exists():
            return known
        time.sleep(PATIENCE_S / 200)
    return None


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


def _manifest(options: SessionOptions) -> RunManifest:
    from leakscope.configuration.known_culprits import own_libraries
    from leakscope.configuration.reading import read_configuration
    from leakscope.probes.cgroup import memory_limit
    from leakscope.probes.environment import environment

    total, limit = memory_limit()
    return RunManifest(
        leakscope_version=__version__,
        run_id=uuid.uuid4().hex,
        created=time.time(),
        command=list(options.command or _command()),
        script=options.script or _as_typed(_main_file() or ""),
        project_root=project_root_of(options),
        options=json.loads(options.to_json()),
        environment=environment(own_libraries(read_configuration().section)),
        memory_total=total,
        memory_limit=limit,
    )


def _main_file() -> str | None:
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return file if isinstance(file, str) else None


def _command() -> list[str]:
    """Return the words that started the program; of the interpreter its name says enough."""
    words = sys.orig_argv or sys.argv
    return [*(Path(word).name for word in words[:1]), *words[1:]]


def _as_typed(file: str) -> str:
    """Return a path as one would type it here: Python makes that of a script absolute."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _stem(options: SessionOptions) -> str:
    script = options.script or _main_file()
    name = "python" if script is None else Path(script).stem
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:60] or "run"
