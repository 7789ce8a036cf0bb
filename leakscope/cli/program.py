"""The user's program as a child process: where its command line begins, whether it can be found,
how it ends.

The parent forwards signals, waits, and ends as the program ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from leakscope.capture.run_directory import STDIN, Program, ProgramKind, interpreter_options
from leakscope.model.errors import LeakscopeError
from leakscope.model.run import REQUESTS_TO_END
from leakscope.probes.cgroup import memory_events
from leakscope.probes.process import catches

FORWARDED_SIGNALS = frozenset({
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT,
    signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU,
})  # fmt: skip
"""Signals that mean the program when they are sent to us. Those of job control aren't among them:
the terminal sends them to every process of the group."""

OPTIONAL_SIGNALS = frozenset({signal.SIGUSR1, signal.SIGUSR2})
"""Signals that programs take as requests, so only one that has a handler gets them from us. It may
not have it yet, or no longer, and then the request would be the death of it."""

_WITNESS_PATIENCE_S = 0.1
_HAS_SIGWAITINFO = hasattr(signal, "sigwaitinfo")


@dataclass(frozen=True)
class ProgramEnding:
    """How the program ended: by exit code or by signal."""

    exit_code: int
    """``128 + signal`` where a signal ended it, as shells have it."""
    signal: int | None = None
    oom_kills: int = 0
    """Processes of our control group that the kernel has killed for memory meanwhile."""
    limit_hits: int = 0
    """How often the group stood at its limit meanwhile."""

    @staticmethod
    def of(code: int, oom_kills: int = 0, limit_hits: int = 0) -> ProgramEnding:
        """Return the ending of a code as ``subprocess`` has it: a signal is below 0."""
        if code >= 0:
            return ProgramEnding(code, None, oom_kills, limit_hits)
        return ProgramEnding(128 - code, -code, oom_kills, limit_hits)

    @property
    def is_oom_killed(self) -> bool:
        """Whether the kernel killed the program for memory: by ``SIGKILL``, and it says so."""
        return self.signal == signal.SIGKILL and self.oom_kills > 0

    @property
    def is_killed(self) -> bool:
        """Whether a signal ended it that is no request to end."""
        return self.signal is not None and self.signal not in REQUESTS_TO_END

    def outcome(self) -> dict[str, str | int]:
        """Return what a run directory keeps of it."""
        counts = {
            "signal": self.signal or 0,
            "oom_killed": int(self.is_oom_killed),
            "oom_kills": self.oom_kills,
            "limit_hits": self.limit_hits,
        }
        return {"exit_code": self.exit_code, **{name: n for name, n in counts.items() if n}}


def supervise(command: list[str], on_start: Callable[[int], None] | None = None) -> ProgramEnding:
    """Run a command in our own process group and terminal until it ends.

    ``on_start`` is called with its number; signals are blocked there and in threads begun there.
    """
    before = memory_events()
    status = _run(command, on_start)
    after = memory_events()
    kills = _more(before.oom_kills, after.oom_kills)
    hits = _more(before.limit_hits, after.limit_hits)
    return ProgramEnding.of(os.waitstatus_to_exitcode(status), kills, hits)


def end_as(ending: ProgramEnding) -> NoReturn:
    """End this process by the same signal or exit code, without a core dump of ours."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    if ending.signal is None:
        os._exit(ending.exit_code)
    # One byte: too little for any core file, and the kernel's sign not to start a core handler.
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (min(1, hard) if hard >= 0 else 1, hard))
    if ending.signal not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(ending.signal, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {ending.signal})
    os.kill(os.getpid(), ending.signal)
    os._exit(ending.exit_code)


def _more(before: int | None, after: int | None) -> int:
    return 0 if before is None or after is None else max(0, after - before)


def _run(command: list[str], on_start: Callable[[int], None] | None) -> int:
    """Return the wait status. Signals are taken one by one, so that none is lost or races."""
    watched = {*FORWARDED_SIGNALS, signal.SIGCHLD}
    # A blocked signal whose default is to be ignored waits on Linux; elsewhere it may be dropped.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL if _HAS_SIGWAITINFO else _take_note)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        with SignalWitness() as witness:
            child = os.posix_spawn(command[0], command, os.environ, setsigmask=mask)
            if on_start is not None:
                on_start(child)
            return _wait(child, witness, watched)
    finally:
        while signal.sigpending() & watched:
            signal.sigwait(watched)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _wait(child: int, witness: SignalWitness, watched: set[signal.Signals]) -> int:
    while True:
        number, is_from_a_process = _next_signal(watched)
        if number == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
        elif (
            is_from_a_process
            and not witness.was_hit()
            and (number not in OPTIONAL_SIGNALS or catches(child, number) is not False)
        ):
            os.kill(child, number)


def _next_signal(watched: set[signal.Signals]) -> tuple[int, bool]:
    """Return the next signal, and whether a process may have sent it.

    A positive code means the kernel: the terminal, which tells the child itself. Where no code is
    to be had (macOS), the witness alone tells, whom the terminal tells too.
    """
    if not _HAS_SIGWAITINFO:
        return signal.sigwait(watched), True
    info = signal.sigwaitinfo(watched)
    return info.si_signo, info.si_code <= 0


def _take_note(_: int, __: FrameType | None) -> None:
    """Do nothing: that there is a handler keeps the signal from being dropped."""


class SignalWitness:
    """An idle process of our group, which dies of any signal that was sent to the whole group.

    A signal sent to us alone must be forwarded; one sent to the group has reached the program
    already, and a second Ctrl-C would break into its cleaning up. The kernel doesn't say which it
    was.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._read_end, self._write_end = os.pipe()

    def __enter__(self) -> SignalWitness:
        self._station()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write_end)
        os.close(self._read_end)
        os.waitpid(self._pid, 0)

    def was_hit(self) -> bool:
        """Return whether it died of a signal just now; if so, another takes its place."""
        deadline = time.monotonic() + _WITNESS_PATIENCE_S
        while time.monotonic() < deadline:
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                self._station()
                return True
            time.sleep(0.002)
        return False

    def _station(self) -> None:
        self._pid = os.fork()
        if self._pid:
            return
        try:
            os.close(self._write_end)
            for number in FORWARDED_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED_SIGNALS)
            for descriptor in {0, 1, 2} - {self._read_end}:
                os.close(descriptor)
            os.read(self._read_end, 1)
        finally:
            os._exit(0)


@dataclass(frozen=True)
class Lengthening:
    """The number that makes a program run for longer: of epochs, of steps, of requests."""

    name: str
    """Of a placeholder in the program's arguments, or of a variable of its environment."""
    number: int
    is_variable: bool = False

    @property
    def doubled(self) -> Lengthening:
        """The same with twice the number."""
        return replace(self, number=2 * self.number)

    @property
    def text(self) -> str:
        """How a person would say it: ``epochs=4``."""
        return f"{self.name}={self.number}"

    def applied(self, program: Program) -> Program:
        """Return the program with this number among its arguments, or in its environment.

        Raises:
            click.UsageError: the program has no way to get the number.

        """
        if program.kind == "stdin":
            raise click.UsageError(
                "--until-verdict can't run twice what comes on stdin; give a script."
            )
        if self.is_variable:
            os.environ[self.name] = str(self.number)
            return program
        holder = f"{{{self.name}}}"
        if not any(holder in word for word in program.args):
            raise click.UsageError(
                f"--until-verdict has no way to run {program.title} for longer: write {holder} "
                f"where its arguments have that number (--{self.name} {holder}), or name a "
                f"variable that it reads (env:{self.name.upper()}={self.number}). A program that "
                "takes no such number can't be lengthened."
            )
        args = tuple(word.replace(holder, str(self.number)) for word in program.args)
        return replace(program, args=args)


_LENGTHENING = re.compile(r"(env:)?([A-Za-z_]\w*)=(\d+)", re.ASCII)


def to_lengthening(text: str) -> Lengthening:
    """Return what is written ``epochs=4`` or ``env:EPOCHS=4``."""
    found = _LENGTHENING.fullmatch(text)
    if found is None or int(found[3]) < 1:
        raise click.BadParameter(
            f"{text!r} is no number to double; write epochs=4 and {{epochs}} among the program's "
            "arguments, or env:EPOCHS=4."
        )
    return Lengthening(found[2], int(found[3]), found[1] is not None)


def start_again(own: Sequence[str], program: Program, out: Path | None) -> NoReturn:
    """Become `leakscope run` with a program once more: nothing of the first run stays in memory.

    ``own`` are our options of the first run.
    """
    kept = _without(own, "--until-verdict")
    if out is not None:
        kept = [*_without(kept, "--out"), "--out", str(out)]
    is_module = Path(sys.argv[0]).name == "__main__.py"
    command = ["-m", "leakscope"] if is_module else [sys.argv[0]]
    words = [*interpreter_options(), *command, "run", *kept, "--", *program.arguments]
    os.execv(sys.executable, [sys.executable, *words])  # noqa: S606


def _without(own: Sequence[str], option: str) -> list[str]:
    """Return words without an option that takes a value."""
    kept: list[str] = []
    words = iter(own)
    for word in words:
        if word == option:
            next(words, None)
        elif not word.startswith(f"{option}="):
            kept.append(word)
    return kept


OWN_WORDS = "leakscope.own_words"
"""In a context's ``meta``: the words before the program."""
_PROGRAM_OPTIONS: dict[str, ProgramKind] = {"-m": "module", "-c": "code"}


class ProgramCommand(click.Command):
    """A command whose options come before a program; what follows the program is the program's.

    ``ctx.obj`` is the :class:`Program`.
    """

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the usage line as Python's own help words it."""
        return ["[OPTIONS]", "SCRIPT | -m MODULE | -c CODE | -", "[ARGS]..."]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse our options and put the program into the context."""
        options = [p for p in self.params if isinstance(p, click.Option) and not p.is_flag]
        with_value = {name for option in options for name in option.opts}
        own, ctx.obj = split_command_line(args, with_value)
        ctx.meta[OWN_WORDS] = own
        rest = super().parse_args(ctx, own)
        if ctx.obj is None:
            raise click.UsageError("Name a script to run, or -m MODULE, or -c CODE.", ctx)
        return rest


def split_command_line(
    args: Sequence[str], with_value: Collection[str]
) -> tuple[list[str], Program | None]:
    """Return our own arguments and the program; None where no program is named.

    The program begins at the first word that is no option of ours, as with ``python`` itself.
    """
    own: list[str] = []
    words = list(args)
    while words:
        word = words.pop(0)
        if word == "--":
            return own, _program(words)
        if word[:2] in _PROGRAM_OPTIONS or not word.startswith("-") or word == "-":
            return own, _program([word, *words])
        own.append(word)
        if word in with_value and words:
            own.append(words.pop(0))
    return own, None


def _program(words: list[str]) -> Program | None:
    if not words:
        return None
    first, *rest = words
    kind = _PROGRAM_OPTIONS.get(first[:2])
    if kind is None:
        return Program("stdin" if first == STDIN else "script", first, tuple(rest))
    if first[2:]:
        return Program(kind, first[2:], tuple(rest))
    if not rest:
        raise click.UsageError(f"Argument expected for the {first} option.")
    return Program(kind, rest[0], tuple(rest[1:]))


def as_python_runs_it(program: Program) -> Program:
    """Return the program behind a command such as ``gunicorn``, which stands on ``PATH``.

    A file of that name in the working folder comes first, as with ``python`` itself.

    Raises:
        NotOfThisPythonError: the command is no program of this interpreter.

    """
    name = program.target
    if program.kind != "script":
        return program
    if os.path.lexists(name):
        is_python = _PYTHON.fullmatch(Path(name).name) and os.access(name, os.X_OK)
        found = name if is_python and Path(name).is_file() else None
    else:
        found = None if os.path.dirname(name) else shutil.which(name)  # noqa: PTH120
    if found is None:
        return program
    if _is_this_python(found):
        return _behind_python(program)
    instead = _behind_leakscope([name, *program.args])
    interpreter = _interpreter_of(found)
    if _PYTHON.fullmatch(Path(found).name):
        why = "is another Python. With leakscope installed there:"
    elif interpreter is None:
        why = "is no Python program. Put leakscope where it starts one:"
    elif _is_this_python(interpreter):
        return replace(program, target=found)
    else:
        why = f"belongs to another Python, {interpreter}. With leakscope installed there:"
        instead = [interpreter, *_RUN, name, *program.args]
    raise NotOfThisPythonError(f"{name} {why} {_shown(instead)}")


class NotOfThisPythonError(LeakscopeError):
    """A command that leakscope can't run; the message has what can be run instead."""


_RUN = ("-m", "leakscope", "run")


def _behind_python(program: Program) -> Program:
    """Return what ``python train.py`` runs."""
    words = program.args
    if words and (words[0] in _PROGRAM_OPTIONS or not words[0].startswith("-")):
        behind = _program(list(words))
        if behind is not None:
            return behind
    rest = _behind_leakscope([program.target, *words])
    raise NotOfThisPythonError("Put Python's own options before leakscope: " + _shown(rest))


def _behind_leakscope(words: list[str]) -> list[str]:
    """Return a command line in which leakscope stands behind the interpreter that it names."""
    at = next((n for n, w in enumerate(words) if _PYTHON.fullmatch(Path(w).name)), None)
    if at is None:
        return [*words[:1], "…", "python", *_RUN, "…"]
    options = len(interpreter_options(words[at:]))
    return [*words[: at + 1 + options], *_RUN, *words[at + 1 + options :]]


_PYTHON = re.compile(r"python[\d.]*")


def _is_this_python(path: str) -> bool:
    """Return whether a path is this interpreter, with the packages that this one has."""
    own = sys.executable
    return os.path.realpath(path) == os.path.realpath(own) and os.path.realpath(
        Path(path).parent
    ) == os.path.realpath(Path(own).parent)


def _interpreter_of(script: str) -> str | None:
    """Return the Python that runs a script, by its first line; None where it is no such script.

    Where the path to it is too long for a first line, pip writes a script of the shell that
    has it in the second.
    """
    try:
        with Path(script).open("rb") as stream:
            start = stream.read(2048)
    except OSError:  # it may be run, and not be read
        return None
    if not start.startswith(b"#!"):
        return None
    words = " ".join(start[2:].decode(errors="replace").split("\n")[:2]).replace('"', "").split()
    path = next((word for word in words if _PYTHON.fullmatch(Path(word).name)), None)
    return None if path is None else shutil.which(path)


def _shown(words: Sequence[str]) -> str:
    return " ".join(word if word == "…" else shlex.quote(word) for word in words)


_FINDS_OTHERWISE = (b"__path__", b"meta_path", b"path_hooks", b"sys.modules")
"""Words in a package's source that has modules elsewhere than in its folder."""


def is_missing_module(module: str) -> bool:
    """Return whether Python will not find a module, or a package's ``__main__``.

    Where a package may look for its modules in a way of its own, only running it would show: such
    modules count as found.
    """
    before = [*sys.path]
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path.insert(0, str(Path.cwd()))
    try:
        return _is_missing(module)
    except Exception:
        # Finders are anybody's; Python will say itself what is wrong.
        return False
    finally:
        sys.path[:] = before


def _is_missing(module: str) -> bool:
    top, *below = module.split(".")
    name, spec = top, find_spec(top)
    for part in below:
        if spec is None or _may_find_otherwise(spec):
            break
        name = f"{name}.{part}"
        spec = _below(name, spec)
    if spec is None:
        return True
    if spec.submodule_search_locations is None or _may_find_otherwise(spec):
        return False
    return _below(f"{name}.__main__", spec) is None


def _below(name: str, package: ModuleSpec) -> ModuleSpec | None:
    """Return the spec of a module of a package, as the import system finds it."""
    places: Sequence[str] | None = package.submodule_search_locations
    if places is None:
        return None
    found = (finder.find_spec(name, places) for finder in sys.meta_path)
    return next((spec for spec in found if spec is not None), None)


def _may_find_otherwise(package: ModuleSpec) -> bool:
    """Return whether nobody but the package, once it runs, knows where its modules lie."""
    if package.loader is None:  # a namespace package has no code
        return False
    if package.origin is None or not package.origin.endswith(".py"):
        return package.submodule_search_locations is not None or package.origin is None
    source = Path(package.origin).read_bytes()
    return any(word in source for word in _FINDS_OTHERWISE)
