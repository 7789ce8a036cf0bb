"""The directory of a run, named by time and script, the program that it is of, and the place of
this process among the ranks that share it.

All of it is read from the environment that their launcher made, from the process tree, or from a
process group that exists already: nothing is sent to another rank and nobody waits for one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import site
import socket
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from leakscope.capture.options import SessionOptions
from leakscope.configuration import DEFAULTS
from leakscope.model import __version__
from leakscope.model.census import is_installed
from leakscope.model.errors import LeakscopeError, RunExistsError, ours
from leakscope.model.record import HeaderRecord, RunManifest
from leakscope.recording.directory import MANIFEST, RunDirectory, read_manifest
from leakscope.recording.writer import JOURNAL_SUFFIX

BY_HAND_S = 600.0
"""Ranks that were started by hand may come so long after the first of them."""
_RUN_ID = "TORCHELASTIC_RUN_ID"


@dataclass(frozen=True)
class RankLaunch:
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
    launch: RankLaunch = RankLaunch()

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


def _launch(size: int) -> RankLaunch:
    run_id = os.environ.get(_RUN_ID)
    if run_id is not None:
        began = begin_of(_launcher())
        since = 0.0 if _is_unique(run_id) else began
        many_machines = 0 < _number("LOCAL_WORLD_SIZE", 0) < size
        return RankLaunch(f"torchrun {run_id}", since, began=0.0 if many_machines else began)
    parent = _spawner()
    if parent:
        began = begin_of(parent)
        return RankLaunch(f"spawned {socket.gethostname()} {parent} {began:.2f}", began=began)
    job, step = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_STEP_ID")
    if job and step and "SLURM_PROCID" in os.environ:
        again = os.environ.get("SLURM_RESTART_COUNT", "0")
        return RankLaunch(f"slurm {job}.{step} {again}", is_new=True)
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    here = f"{socket.gethostname()} {os.getppid()}"
    key = f"{address}:{port}" if address and port else f"started by {here}"
    return RankLaunch(key, begin_of(os.getpid()) - BY_HAND_S, is_new=True)


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
        return int(next(parent.pid for parent in parents if _RUN_ID not in parent.environ()))
    except (psutil.Error, StopIteration):
        return os.getppid()


def _spawner() -> int:
    """Return the process that started this one by ``multiprocessing``; 0 if none did."""
    multiprocessing = sys.modules.get("multiprocessing")
    parent = multiprocessing.parent_process() if multiprocessing is not None else None
    return 0 if parent is None else int(parent.pid)


def begin_of(pid: int) -> float:
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


def header_of(world: World, *, role: str = "", **facts: Any) -> HeaderRecord:
    """Return what a recording of this process begins with."""
    return HeaderRecord(
        role=role or ("rank" if world.size > 1 else "main"),
        rank=world.rank,
        world_size=world.size,
        attempt=world.attempt,
        pid=os.getpid(),
        host=socket.gethostname(),
        started=time.time(),
        **facts,
    )


RUNS: Path = DEFAULTS["runs"]
RUN_DIRECTORY = "LEAKSCOPE_RUN_DIR"
"""Names the run directory in the environment, where nobody says so in the code."""
MOST_OF_A_SECOND = 1000
CLOCK_SLACK_S = 2.0
"""Process start times are counted from a boot time that is known to the second."""
LOOKS = 5
PATIENCE_S = 10.0
"""So long another rank may take to replace a former run."""


def make_run_directory(
    options: SessionOptions,
    limit: int | None = None,
    world: World = ALONE,
    *,
    numbered: bool = False,
) -> Path:
    """Make the run directory that the options ask for and return its absolute path.

    A run that is in the way is left alone where ``numbered``, and this one made alongside it.
    ``limit`` is the memory limit of the process that is recorded, where that isn't this one. Raises
    as :func:`claim`.
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
        numbered=numbered,
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
    numbered: bool = False,
) -> RunDirectory:
    """Return the directory of a run, made here or by another rank of the same launch.

    Nobody waits for anybody: each rank goes through the same places in the same order, ``out-2``, …
    among them where ``numbered``, and only one can write a manifest into a place. Raises
    RunExistsError where ``out`` holds another run, and UnwritableError.
    """
    manifest.launch = world.launch.key
    if out is not None and not (numbered and not force):
        try:
            return _join_or_make(out, manifest, force=force, world=world)
        except RunExistsError:
            if (world.leads and world.launch.is_shared) or not _is_of(out, world.launch.key):
                raise
            # A machine that joined late can't tell the run from an earlier one of the same name,
            # and a process that may turn out to be a rank doesn't know yet what it belongs to.
            out = out.with_name(f"{out.name}-rank{world.rank}" if world.rank else f"{out.name}-2")
    named = os.environ.get(RUN_DIRECTORY)
    for path in _places(out or (Path(named) if named else runs / _name(stem, world))):
        with suppress(RunExistsError):
            return _join_or_make(path, manifest, force=False, world=world)
    raise LeakscopeError(f"{runs} holds too many runs of this second.", slug="run-exists")


def _places(out: Path) -> Iterator[Path]:
    for number in range(1, MOST_OF_A_SECOND):
        yield out if number == 1 else out.with_name(f"{out.name}-{number}")


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
        with _alone_at(path):  # of several ranks one replaces it, and what it made stays
            if is_joinable(path, world):
                return RunDirectory(path)
            return RunDirectory.create(path, manifest, force=True)
    try:
        return RunDirectory.create(path, manifest)
    except RunExistsError:
        if is_joinable(path, world):  # made by another rank just now
            return RunDirectory(path)
        raise


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
    """Return the project of the file that started profiling, unless it is in the program's."""
    path = Path(file)
    if not path.is_file() or is_installed(file):
        return None
    program = Path(project_root_of(SessionOptions())).resolve()
    if path.resolve().is_relative_to(program):
        return None
    return Path(Program("script", str(path)).project_root())


def _manifest(options: SessionOptions) -> RunManifest:
    from leakscope.configuration.project import own_libraries, read_configuration
    from leakscope.probes.cgroup import memory_limit
    from leakscope.probes.environment import environment

    total, limit = memory_limit()
    project, words = project_root_of(options), sys.orig_argv or sys.argv
    return RunManifest(
        leakscope_version=__version__,
        run_id=uuid.uuid4().hex,
        created=time.time(),
        # Of the interpreter its name says enough.
        command=[*options.command] or [*(Path(word).name for word in words[:1]), *words[1:]],
        script=options.script or _as_typed(_main_file() or ""),
        project_root=project,
        options=json.loads(options.to_json()),
        environment=environment(own_libraries(read_configuration().section), project),
        memory_total=total,
        memory_limit=limit,
    )


def _main_file() -> str | None:
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return file if isinstance(file, str) else None


def _as_typed(file: str) -> str:
    """Return a path as one would type it here: Python makes that of a script absolute."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _stem(options: SessionOptions) -> str:
    script = options.script or _main_file()
    name = "python" if script is None else Path(script).stem
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:60] or "run"


ProgramKind = Literal["script", "module", "code", "stdin"]

STDIN = "-"
_OPTION_OF: dict[ProgramKind, tuple[str, ...]] = {
    "script": (),
    "module": ("-m",),
    "code": ("-c",),
    "stdin": (),
}
_PROJECT_MARKS = ("pyproject.toml", "setup.py", ".git")


@dataclass(frozen=True)
class Program:
    """What to run as ``__main__`` and the arguments that belong to it."""

    kind: ProgramKind
    target: str
    """Path of a script, folder or zip; name of a module; source code; or ``-``."""
    args: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """What follows ``python`` and its own options on the command line."""
        return [*_OPTION_OF[self.kind], self.target, *self.args]

    @property
    def argv(self) -> list[str]:
        """``sys.argv`` when the program starts (``-m`` puts the module's path there itself)."""
        return [*(_OPTION_OF[self.kind] or (self.target,)), *self.args]

    @property
    def filename(self) -> str:
        """The script's ``__file__``: made absolute as Python does, without tidying the path."""
        return self.target if Path(self.target).is_absolute() else f"{Path.cwd()}/{self.target}"

    @property
    def label(self) -> str:
        """A short name for people and for file names: ``train``, ``package.module``, ``code``."""
        if self.kind in ("code", "stdin"):
            return self.kind
        return self.target if self.kind == "module" else Path(self.filename).stem

    @property
    def title(self) -> str:
        """What a report calls it: ``train.py``, ``-m package.module``, ``-c``, ``-``."""
        if self._is_command:
            return Path(self.target).name
        return f"-m {self.target}" if self.kind == "module" else self.argv[0]

    @property
    def _is_command(self) -> bool:
        """Whether it was installed: beside the interpreter, for the user, or by ``--target``."""
        if self.kind != "script":
            return False
        folder = Path(os.path.realpath(Path(self.target).parent))
        if folder == Path(os.path.realpath(Path(sys.executable).parent)):
            return True
        if folder.name not in {"bin", "Scripts"}:
            return False
        is_of_user = folder.parent == Path(os.path.realpath(site.getuserbase()))
        return is_of_user or any(folder.parent.glob("*.dist-info"))

    def project_root(self) -> str:
        """Return the folder whose files are the user's own code.

        The nearest folder above the script that has a project's marks, else the script's own; the
        working directory for what is no script, for installed commands and for pipes.
        """
        script = Path(os.path.realpath(self.target))
        if self.kind != "script" or not (script.is_file() or script.is_dir()) or self._is_command:
            return str(Path.cwd())
        folder = script if script.is_dir() else script.parent
        for candidate in (folder, *folder.parents):
            if any((candidate / mark).exists() for mark in _PROJECT_MARKS):
                return str(candidate)
        return str(folder)


def interpreter_options(original: Sequence[str] | None = None) -> list[str]:
    """Return the options that this interpreter was started with, e.g. ``["-u", "-W", "error"]``."""
    words = list(sys.orig_argv if original is None else original)[1:]
    options: list[str] = []
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        if word.startswith("--"):
            options += [word, *words[:1]]
            del words[:1]
            continue
        kept, ends, takes_next = _split_short_options(word)
        if kept != "-":
            options.append(kept)
        if takes_next:
            options += words[:1]
            del words[:1]
        if ends:
            break
    return options


def _split_short_options(word: str) -> tuple[str, bool, bool]:
    """Return the options before ``-c`` or ``-m``, whether those end them, and whether a value
    follows.
    """
    for index, letter in enumerate(word[1:], start=1):
        if letter in "cm":
            return word[:index], True, False
        if letter in "WX":
            return word, False, index == len(word) - 1
    return word, False, False
