"""``leakscope run``: a small parent that starts the program, waits, and writes the report.

The program is a child process that behaves as ``python`` would have (``capture.launch``). The
parent imports no torch while it waits, ends as the program ended, and concludes from the recording
alone; so a program that dies, for lack of memory or otherwise, still gets its report.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from leakscope.capture.launch import Launch
from leakscope.capture.options import SessionOptions, configured_options
from leakscope.capture.run_directory import (
    RUNS,
    Program,
    World,
    claim,
    interpreter_options,
    this_world,
)
from leakscope.cli.output import explain, notify, run_directory_options, setting_options
from leakscope.cli.program import (
    OWN_WORDS,
    Lengthening,
    NotOfThisPythonError,
    ProgramCommand,
    ProgramEnding,
    as_python_runs_it,
    end_as,
    is_missing_module,
    start_again,
    supervise,
    to_lengthening,
)
from leakscope.cli.report import finish
from leakscope.configuration import is_off
from leakscope.model import __version__
from leakscope.model.errors import EXIT_LEAK, LeakscopeError, UnwritableError
from leakscope.model.record import RunManifest
from leakscope.recording import RunDirectory

if TYPE_CHECKING:
    from leakscope.model.documents import LiveLeak
    from leakscope.model.report import Report

_NO_PROGRAM = 2
"""As Python has it for a file that it can't open."""

_EPILOG = """\b
Options of leakscope come before the program; everything after it belongs to the program:
  leakscope run train.py --epochs 10
  leakscope run --out runs/before --budget 1% -m package.train --lr 0.1
  leakscope run gunicorn -w 2 app:app      a command of the same Python
  torchrun --nproc-per-node 2 -m leakscope run train.py    all ranks record into one directory
  leakscope run --until-verdict epochs=4 train.py --epochs {epochs}    4 epochs, 8 if those show
                                                                       nothing
  leakscope run --until-verdict env:EPOCHS=4 train.py    the same by a variable that train.py reads

\b
What isn't given is taken from LEAKSCOPE_* and from [tool.leakscope] in pyproject.toml;
`leakscope doctor` shows what is in force. `boundaries` (auto or manual) can only be set there.

\b
LEAKSCOPE=off runs the program as if leakscope weren't there. Where no recording can be written the
program runs so, too, after one sentence that says why.

\b
Exit codes: the program's own; if a signal ended it, leakscope ends by the same signal.
  1  --out holds a run already; nothing was started
  2  no such script, or an invalid command line; nothing was started
  3  with --until-leak: a leak was found
With --until-verdict the code of the second run counts.
"""


_SETTINGS = (
    "budget", "max-pause", "max-recording", "tracemalloc", "cuda-history", "native",
    "native-interval", "workers", "children", "probe-cleanup", "snapshot-signal", "trackers",
)  # fmt: skip


@click.command(cls=ProgramCommand, epilog=_EPILOG)
@run_directory_options()
@setting_options(*_SETTINGS)
@click.option(
    "--until-verdict",
    "lengthening",
    type=to_lengthening,
    metavar="NAME=NUMBER",
    help="Run once more with twice NUMBER if the first run is inconclusive. NUMBER replaces {NAME} "
    "in the program's arguments; env:NAME=NUMBER sets an environment variable instead.",
)
@click.option(
    "--until-leak",
    is_flag=True,
    help="End the program (SIGTERM) as soon as two verdicts find the same leak, the second "
    "after at least half as much time again. Exit code 3 then, or if the run ends with a leak.",
)
@setting_options("report", "quiet", "label")
@click.pass_obj
def run(
    program: Program,
    /,
    *,
    lengthening: Lengthening | None,
    until_leak: bool,
    **chosen: Any,
) -> NoReturn:
    """Run a Python program and record its memory.

    It runs as with `python`: same arguments, output, exceptions and exit code.
    """
    program = _found(program)
    bare = program
    program = program if lengthening is None else lengthening.applied(program)
    python = [sys.executable, *interpreter_options()]
    if _is_not_recorded(program):
        _run_plainly(program, python)
    world = this_world()
    options = configured_options(
        notify if world.leads else None,
        project_root=Path(program.project_root()),
        script=program.target,
        **chosen,
    )
    if lengthening is not None:
        _require_second_run(options, world)
    if until_leak and (world.size > 1 or lengthening is not None or not options.report):
        raise click.UsageError(
            "--until-leak watches one program by its report: not one of several ranks, not with "
            "--until-verdict, and not with --no-report."
        )
    directory = _destination(program, options, world)
    if directory is None:
        _run_plainly(program, python)
    launch = Launch(program, str(directory.path.absolute()), options.to_json(), os.getpid())
    is_watched = until_leak or (world.size == 1 and options.report and not options.quiet)
    watch = LeakWatch(directory.path, ends=until_leak) if is_watched else None
    ending = supervise(launch.command(python), watch.follow if watch is not None else None)
    if watch is not None:
        watch.end()
    if world.leads:
        with _contained_failure(directory.path):
            leave_outcome(directory, world, ending)
            concluded = finish(directory.path, report=options.report, quiet=options.quiet)
            if lengthening is not None and concluded is not None:
                _run_again_if_open(concluded, ending, lengthening, bare, options.out)
            leaks = concluded is not None and concluded.verdict.value == LEAK
            if until_leak and (leaks or (watch is not None and watch.found)):
                ending = ProgramEnding(EXIT_LEAK)
    else:
        with suppress(Exception):
            leave_outcome(directory, world, ending)
    end_as(ending)


def leave_outcome(directory: RunDirectory, world: World, ending: ProgramEnding) -> None:
    """Record how the program ended; for other ranks than the first only that it was killed.

    Nothing else would show that: a kill leaves no closing record. A signal with which the launcher
    ends a rank is no kill.
    """
    seen = ending.outcome() | ({"attempt": world.attempt} if world.attempt else {})
    if world.leads:
        directory.write_outcome(seen)
    elif ending.is_killed:
        directory.write_outcome(seen, rank=world.rank)


def _is_not_recorded(program: Program) -> bool:
    """Return whether there is nothing to record, or recording is switched off."""
    if is_off():
        return True
    if program.kind == "stdin" and sys.stdin is not None and sys.stdin.isatty():
        notify("what is typed in is not recorded; give a script, or send it to stdin.")
        return True
    # Of a module that is missing Python's own words are the best.
    return program.kind == "module" and is_missing_module(program.target)


def _destination(program: Program, options: SessionOptions, world: World) -> RunDirectory | None:
    """Return the run directory; None, after one sentence, where none can be written."""
    try:
        return prepare(program, options, world)
    except UnwritableError as fault:
        if world.leads:
            notify(f"{str(fault).removesuffix('.')}; the program runs without a recording.")
        return None


def _run_plainly(program: Program, python: list[str]) -> NoReturn:
    """Become Python with this program: nothing of ours is left."""
    os.execv(sys.executable, [*python, *program.arguments])  # noqa: S606


def _found(program: Program) -> Program:
    """Return the program as it is run; end here where there is none."""
    try:
        program = as_python_runs_it(program)
    except NotOfThisPythonError as fault:
        notify(str(fault))
        sys.exit(_NO_PROGRAM)
    if program.kind == "script":
        name = program.filename
        if not os.access(name, os.R_OK):
            number = errno.EACCES if os.path.lexists(name) else errno.ENOENT
            notify(f"can't open file {name!r}: [Errno {number}] {os.strerror(number)}")
            sys.exit(_NO_PROGRAM)
        if Path(name).is_dir() and not Path(name, "__main__.py").exists():
            notify(f"can't find '__main__' module in {name!r}")
            sys.exit(1)
    return program


def _require_second_run(options: SessionOptions, world: World) -> None:
    """Refuse to lengthen what can't be run again from here, or what nobody concludes from."""
    if world.size > 1:
        raise click.UsageError(
            "--until-verdict can't start all ranks again: only their launcher can. Lengthen the "
            "command yourself."
        )
    if not options.report:
        raise click.UsageError("--until-verdict goes by the report: leave --no-report out.")


def _run_again_if_open(
    concluded: Report,
    ending: ProgramEnding,
    lengthening: Lengthening,
    program: Program,
    out: Path | None,
) -> None:
    """Run a program for longer where nothing could be concluded and it ended well."""
    if concluded.verdict.value != "inconclusive":
        return
    if ending.exit_code:
        notify("inconclusive, and not run again: the program didn't end well.")
        return
    longer = lengthening.doubled
    notify(f"inconclusive with {lengthening.text}; runs once more with {longer.text}.")
    second = None if out is None else out.with_name(f"{out.name}-longer")
    start_again(click.get_current_context().meta[OWN_WORDS], longer.applied(program), second)


@contextmanager
def _contained_failure(path: Path) -> Iterator[None]:
    """Have whatever goes wrong with the report cost the report only, not the exit status."""
    again = f"`leakscope report {path}` writes it from the recording."
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        notify(f"stopped before the report was written; {again}")
    except LeakscopeError as fault:
        notify(f"no report: {fault}")
    except Exception as fault:
        notify(f"no report: {explain(fault)} {again}")


LEAK = "leak"


@dataclass(frozen=True)
class WatchPace:
    """How often a run that goes on is judged."""

    first_s: float
    """Seconds until the first verdict."""
    share: float
    """Further ones come after this part of the time so far, …"""
    cost: float
    """… and take no more than this part of it on a core; on a busy machine they take longer."""


UNTIL_LEAK = WatchPace(first_s=10.0, share=0.1, cost=0.05)
ALONGSIDE = WatchPace(first_s=30.0, share=0.25, cost=0.03)
WATCH_LEAST_SECONDS = 1.0
HOLDS_AFTER = 1.5
"""A leak is one where a verdict after so many times as long names the same."""
GRACE_SECONDS = 30.0
"""A program has so long to end after SIGTERM, as a server that closes its connections."""
_JUDGE = (
    "import os, sys; os.nice(10); del sys.path[0]; sys.path.append(sys.argv[2]); "
    "from leakscope.cli.runs import note_leak; note_leak(sys.argv[1])"
)


class LeakWatch:
    """Has a recording judged while its program runs: says what leaks, and may end the program.

    A process of its own judges, so that the memory it takes is released.
    """

    def __init__(self, path: Path, *, ends: bool) -> None:
        self.found = False
        self._path, self._ends = path, ends
        self._pace = UNTIL_LEAK if ends else ALONGSIDE
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._judge: subprocess.Popen[bytes] | None = None

    def follow(self, number: int) -> None:
        """Watch the program that was started with this process number."""
        self._thread = threading.Thread(target=self._watch, args=(number,), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Judge no more: the program has ended."""
        self._over.set()
        judge = self._judge
        if judge is not None:
            judge.kill()
        if self._thread is not None:
            self._thread.join()
        RunDirectory(self._path).write_live(None)

    def _watch(self, number: int) -> None:
        began, wait = time.monotonic(), self._pace.first_s
        first, first_at = "", 0.0
        while not self._over.wait(wait):
            at = time.monotonic() - began
            spent = _seconds_of_children()
            leak = self._leak_by_now()
            took = _seconds_of_children() - spent
            if leak is None or leak.signature != first:
                first, first_at = ("", at) if leak is None else (leak.signature, at)
                self.found = False
            elif at >= HOLDS_AFTER * first_at and not self.found:
                self.found = True
                ends = " The program is ended (--until-leak)." if self._ends else ""
                notify(f"{leak.when or 'by now'}: {leak.headline}{ends}")
                if self._ends:
                    self._end(number)
                    return
            wait = max(WATCH_LEAST_SECONDS, self._pace.share * at, took / self._pace.cost)

    def _leak_by_now(self) -> LiveLeak | None:
        """Return what leaks most by now; None of no leak."""
        from leakscope.recording.directory import read_live

        with suppress(Exception):
            package = str(Path(__file__).parents[2])
            self._judge = subprocess.Popen(
                [sys.executable, "-c", _JUDGE, str(self._path.absolute()), package],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            if self._over.is_set():
                self._judge.kill()
            if self._judge.wait() == 0:
                return read_live(self._path)
        return None

    def _end(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGTERM)
            if not self._over.wait(GRACE_SECONDS):
                os.kill(number, signal.SIGKILL)


def _seconds_of_children() -> float:
    """Return what processes that have ended took of a core."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
        notify(f"{out} holds another run; rank {world.rank} is recorded in {directory.path}.")
    return directory


def _manifest(program: Program, options: dict[str, Any]) -> RunManifest:
    from leakscope.configuration.project import own_libraries, read_configuration
    from leakscope.probes.cgroup import memory_limit
    from leakscope.probes.environment import environment

    total, limit = memory_limit()
    project = program.project_root()
    return RunManifest(
        leakscope_version=__version__,
        run_id=uuid.uuid4().hex,
        created=time.time(),
        command=["python", *interpreter_options(), *program.arguments],
        script=program.title,
        project_root=project,
        options=options,
        environment=environment(own_libraries(read_configuration().section), project),
        memory_total=total,
        memory_limit=limit,
    )
