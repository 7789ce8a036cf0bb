"""``leakscope run``: a small parent that starts the program, waits, and writes the report.

The program is a child process that behaves as ``python`` would have (``capture.launch``). The
parent imports no torch while it waits, ends as the program ended, and concludes from the recording
alone; so a program that dies, for want of memory or otherwise, still gets its report.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from leakscope.capture.launch import Launch
from leakscope.capture.options import (
    Children,
    CudaHistory,
    Native,
    SessionOptions,
    SnapshotSignal,
    Tracemalloc,
    Workers,
    chosen_trackers,
    configured_options,
)
from leakscope.capture.run_directory import (
    RUNS,
    Program,
    World,
    claim,
    interpreter_options,
    this_world,
)
from leakscope.cli.output import explain, say
from leakscope.cli.program import (
    OWN_WORDS,
    Lengthening,
    ProgramCommand,
    ProgramEnding,
    end_as,
    is_missing_module,
    start_again,
    supervise,
    to_lengthening,
)
from leakscope.cli.report import conclude, print_summary, write_reports
from leakscope.configuration.settings import UnreadableError, to_milliseconds, to_size
from leakscope.model import __version__
from leakscope.model.errors import LeakscopeError, UnwritableError
from leakscope.model.record import RunManifest
from leakscope.recording import RunDirectory
from leakscope.recording.directory import journals

if TYPE_CHECKING:
    from leakscope.model.report import Report

_OFF = {"off", "0", "false", "no"}
_NO_PROGRAM = 2
"""As Python has it for a file that it can't open."""

_EPILOG = """\b
Options of leakscope come before the program; all that follows belongs to the program:
  leakscope run train.py --epochs 10
  leakscope run --out runs/before --budget 1% -m package.train --lr 0.1
  torchrun --nproc-per-node 2 -m leakscope run train.py    all ranks record into one directory
  leakscope run --until-verdict epochs=4 train.py --epochs {epochs}    4 epochs, 8 if those show
                                                                       nothing
  leakscope run --until-verdict env:EPOCHS=4 train.py    the same by a variable that train.py reads

\b
What isn't given is taken from LEAKSCOPE_* and from [tool.leakscope] in pyproject.toml;
`leakscope doctor` tells what is in force. Only there: `boundaries` (auto or manual).

\b
LEAKSCOPE=off runs the program plainly, as if leakscope weren't there; so it runs, after one
sentence that says why, where no recording can be written.

\b
Exit codes: the program's own; where a signal ended it, leakscope ends by the same signal.
  1  --out holds a run already; nothing was started
  2  no such script, or a command line that makes no sense; nothing was started
With --until-verdict a second run's own code counts.
"""


def to_share(_: click.Context | None, __: click.Parameter | None, text: str | None) -> float | None:
    """Return a share of wall time, written ``2%`` or ``0.02``: above 0 and at most 1."""
    if text is None:
        return None
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (1 if number == text.strip() else 100)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise click.BadParameter(f"{text!r} is no share of wall time; write 2% or 0.02.")
    return share


def to_pause(_: click.Context | None, __: click.Parameter | None, text: str | None) -> float | None:
    """Return milliseconds, written ``100`` or ``100ms``: above 0."""
    try:
        return None if text is None else to_milliseconds(text)
    except UnreadableError as fault:
        raise click.BadParameter(f"{text!r} is not {fault}.") from None


def to_interval(
    _: click.Context | None, __: click.Parameter | None, text: str | None
) -> int | None:
    """Return bytes, written ``524288`` or ``512KiB``: 1 KiB or more."""
    try:
        return None if text is None else to_size(text)
    except UnreadableError as fault:
        raise click.BadParameter(f"{text!r} is not {fault}.") from None


@click.command(cls=ProgramCommand, epilog=_EPILOG)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Run directory to make [default: leakscope-runs/<time>-<script>].",
)
@click.option("--force", is_flag=True, help="Replace a run that --out holds already.")
@click.option(
    "--budget",
    callback=to_share,
    metavar="SHARE",
    default=None,
    help="Share of wall time that measuring may cost [default: 2%].",
)
@click.option(
    "--max-pause",
    callback=to_pause,
    metavar="MS",
    default=None,
    help="Milliseconds that a census may hold the program up, the first and the last apart "
    "[default: 100].",
)
@click.option(
    "--tracemalloc",
    type=click.Choice(["off", "window", "always"]),
    default=None,
    help="When to learn which lines allocate [default: window].",
)
@click.option(
    "--cuda-history",
    type=click.Choice(["off", "window"]),
    default=None,
    help="When to learn which lines allocate on CUDA; a recording of the program's goes "
    "on [default: off].",
)
@click.option(
    "--native",
    type=click.Choice(["off", "auto"]),
    default=None,
    help="Whether native allocations are sampled, where they can be [default: auto].",
)
@click.option(
    "--native-interval",
    callback=to_interval,
    metavar="SIZE",
    default=None,
    help="Mean number of bytes from one sample to the next [default: 512KiB].",
)
@click.option(
    "--workers",
    type=click.Choice(["on", "off"]),
    default=None,
    help="Whether workers of DataLoaders record themselves [default: on].",
)
@click.option(
    "--children",
    type=click.Choice(["auto", "off"]),
    default=None,
    help="Whether other child processes that run Python record themselves [default: auto].",
)
@click.option(
    "--probe-cleanup",
    is_flag=True,
    default=None,
    help="Try gc.collect(), empty_cache() and malloc_trim(0) at the end of a few phases and report "
    "what each really freed. It changes when garbage is collected.",
)
@click.option(
    "--snapshot-signal",
    type=click.Choice(["off", "USR1", "USR2"]),
    default=None,
    help="Signal on which a census is taken now, as `leakscope snapshot PID` sends it. Choose one "
    "that the program doesn't use [default: off].",
)
@click.option(
    "--tracker",
    "trackers",
    multiple=True,
    type=click.Choice(["auto", "off", "tensorboard", "wandb", "mlflow"]),
    help="Tracker of the program's in which memory is drawn, more than once for several; auto "
    "takes those whose run stays on this machine [default: auto].",
)
@click.option(
    "--until-verdict",
    "lengthening",
    callback=to_lengthening,
    metavar="NAME=NUMBER",
    default=None,
    help="Run once more with twice the number if the first run is inconclusive. It stands where "
    "the program's arguments have {NAME}, or in the environment: env:NAME=NUMBER.",
)
@click.option("--report/--no-report", default=None, help="Whether to write the report at the end.")
@click.option("--quiet", "-q", is_flag=True, default=None, help="Print no summary.")
@click.option("--label", metavar="TEXT", help="A name for the run, shown in its report.")
@click.pass_obj
def run(
    program: Program,
    *,
    out: Path | None,
    force: bool,
    budget: float | None,
    max_pause: float | None,
    tracemalloc: Tracemalloc | None,
    cuda_history: CudaHistory | None,
    native: Native | None,
    native_interval: int | None,
    workers: Workers | None,
    children: Children | None,
    probe_cleanup: bool | None,
    snapshot_signal: SnapshotSignal | None,
    trackers: tuple[str, ...],
    lengthening: Lengthening | None,
    report: bool | None,
    quiet: bool | None,
    label: str | None,
) -> NoReturn:
    """Run a Python program and record its memory.

    It runs as with `python`: same arguments, output, exceptions and exit code.
    """
    _require_program(program)
    bare = program
    program = program if lengthening is None else lengthening.applied(program)
    python = [sys.executable, *interpreter_options()]
    if _is_not_recorded(program):
        _run_plainly(program, python)
    world = this_world()
    options = configured_options(
        say if world.leads else None,
        out=out,
        force=force,
        budget=budget,
        max_pause=max_pause,
        tracemalloc=tracemalloc,
        cuda_history=cuda_history,
        native=native,
        native_interval=native_interval,
        workers=workers,
        children=children,
        report=report,
        quiet=quiet,
        label=label,
        project_root=Path(program.project_root()),
        script=program.target,
        probe_cleanup=probe_cleanup,
        snapshot_signal=snapshot_signal,
        trackers=chosen_trackers(trackers or None),
    )
    if lengthening is not None:
        _require_second_run(options, world)
    directory = _destination(program, options, world)
    if directory is None:
        _run_plainly(program, python)
    launch = Launch(program, str(directory.path.absolute()), options.to_json(), os.getpid())
    ending = supervise(launch.command(python))
    if world.leads:
        with _never_in_the_way(directory.path):
            leave_outcome(directory, world, ending)
            concluded = _finish(directory.path, report=options.report, quiet=options.quiet)
            if lengthening is not None and concluded is not None:
                _run_again_if_open(concluded, ending, lengthening, bare, options.out)
    else:
        with suppress(Exception):
            leave_outcome(directory, world, ending)
    end_as(ending)


def leave_outcome(directory: RunDirectory, world: World, ending: ProgramEnding) -> None:
    """Write down how the program ended; of other ranks than the first only that it was killed.

    Nothing else would tell of that: a kill leaves no closing record. A signal by which the launcher
    has a rank end is none.
    """
    seen = ending.outcome() | _attempt_of(world)
    if world.leads:
        directory.write_outcome(seen)
    elif ending.is_killed:
        directory.write_outcome(seen, rank=world.rank)


def _attempt_of(world: World) -> dict[str, str | int]:
    return {"attempt": world.attempt} if world.attempt else {}


def _is_not_recorded(program: Program) -> bool:
    """Return whether there is nothing to record, or it was asked not to."""
    if os.environ.get("LEAKSCOPE", "").lower() in _OFF:
        return True
    if program.kind == "stdin" and sys.stdin is not None and sys.stdin.isatty():
        say("what is typed in is not recorded; give a script, or send it to stdin.")
        return True
    # Of a module that is missing Python's own words are the best.
    return program.kind == "module" and is_missing_module(program.target)


def _destination(program: Program, options: SessionOptions, world: World) -> RunDirectory | None:
    """Return the run directory; None, after one sentence, where none can be written."""
    try:
        return prepare(program, options, world)
    except UnwritableError as fault:
        if world.leads:
            say(f"{str(fault).removesuffix('.')}; the program runs without a recording.")
        return None


def _run_plainly(program: Program, python: list[str]) -> NoReturn:
    """Become Python with this program: nothing of ours is left."""
    os.execv(sys.executable, [*python, *program.arguments])  # noqa: S606


def _require_program(program: Program) -> None:
    if program.kind != "script":
        return
    name = program.filename
    if not os.access(name, os.R_OK):
        number = errno.EACCES if os.path.lexists(name) else errno.ENOENT
        say(f"can't open file {name!r}: [Errno {number}] {os.strerror(number)}")
        sys.exit(_NO_PROGRAM)
    if Path(name).is_dir() and not Path(name, "__main__.py").exists():
        say(f"can't find '__main__' module in {name!r}")
        sys.exit(1)


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
        say("inconclusive, and not run again: the program didn't end well.")
        return
    longer = lengthening.doubled
    say(f"inconclusive with {lengthening.text}; runs once more with {longer.text}.")
    second = None if out is None else out.with_name(f"{out.name}-longer")
    start_again(click.get_current_context().meta[OWN_WORDS], longer.applied(program), second)


def _finish(path: Path, *, report: bool, quiet: bool) -> Report | None:
    """Write the report and print the summary; return the report where it was written."""
    written = [journal.stat().st_size for journal in journals(path)]
    if written and not any(written):
        return None  # there was no room for its first record, as the program's process has said
    if report:
        concluded = conclude(path)
        try:
            page = write_reports(path, concluded)
        except Exception:
            if not quiet:
                print_summary(concluded, path, None)
            raise
        if not quiet:
            print_summary(concluded, path, page)
        return concluded
    if not quiet:
        say(f"recorded in {path}; next: leakscope report {path}")
    return None


@contextmanager
def _never_in_the_way(path: Path) -> Iterator[None]:
    """Have whatever goes wrong with the report cost the report only, not the exit status."""
    again = f"`leakscope report {path}` writes it from the recording."
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        say(f"stopped before the report was written; {again}")
    except LeakscopeError as fault:
        say(f"no report: {fault}")
    except Exception as fault:
        say(f"no report: {explain(fault)} {again}")


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
    from leakscope.configuration import own_libraries, read_configuration
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
