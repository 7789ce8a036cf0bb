"""Runs the user's program as ``__main__`` under a session: the child of ``leakscope run``.

The program should not be able to tell that it wasn't started by ``python`` itself, so this follows
CPython's ``Modules/main.c`` and ``Python/pythonrun.c`` step by step: ``__main__``, ``sys.path[0]``,
the order of flushing, and who prints the last traceback. The interpreter itself ends the process:
its threads are joined, the session closes, then the program's own exit handlers run.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any

from leakscope.capture.run_directory import Program
from leakscope.model.errors import UnwritableError, is_interrupt

if TYPE_CHECKING:
    from leakscope.capture.session import Session

_PR_SET_PDEATHSIG = 1
_INTERRUPTED = 128 + signal.SIGINT
_BOOT = """\
import sys; loaded = set(sys.modules)
if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)): del sys.path[0]
sys.path.append({root!r})
from leakscope.capture.launch import main
main(loaded)"""


@dataclass(frozen=True)
class Launch:
    """What the supervisor tells the child."""

    program: Program
    run_path: str
    options: str
    supervisor: int
    """Process id of the supervisor, without which the child must not go on."""

    def command(self, interpreter: list[str]) -> list[str]:
        """Return the child's command line, ``interpreter`` being Python and its options."""
        boot = _BOOT.format(root=str(Path(__file__).parents[2]))
        startup = json.dumps([self.program.kind, self.run_path, self.options, self.supervisor])
        return [*interpreter, "-c", boot, startup, self.program.target, *self.program.args]

    @classmethod
    def from_words(cls, words: list[str]) -> Launch:
        """Return the launch that :meth:`command` wrote after the boot code."""
        startup, target, *args = words
        kind, run_path, options, supervisor = json.loads(startup)
        return cls(Program(kind, target, tuple(args)), run_path, options, supervisor)


def main(loaded: Collection[str]) -> None:
    """Become the program described on the command line; ``loaded`` are the modules Python had."""
    launch = Launch.from_words(sys.argv[1:])
    _die_with(launch.supervisor)
    _disguise(launch.program)
    try:
        session = _start_session(launch)
    except KeyboardInterrupt as error:
        _show_traceback(error, None)
        raise
    folder = _first_path(launch.program)
    if folder is not None:
        sys.path.insert(0, folder)
        _forget_shadowed(Path(folder), loaded)
    _run(launch.program, Closing(session))


class Closing:
    """Closes the session once the program has ended, its threads included."""

    def __init__(self, session: Session | None) -> None:
        self._session = session
        self._pid = os.getpid()
        self._stop_watching: Callable[[], None] = lambda: None

    def failed(self, error: BaseException) -> None:
        """Take the last census before anything of the program is released."""
        if self._session is not None and os.getpid() == self._pid:
            try:
                self._session.failed(error)
            except BaseException as fault:
                if not is_interrupt(fault):
                    raise

    def watch_returns(self) -> None:
        """Conclude the session as the program's last work returns, its variables alive."""
        session = self._session
        if session is not None:
            from leakscope.capture import returning

            self._stop_watching = returning.stop
            returning.watch(session.conclude, globals())

    def left(self, error: BaseException) -> None:
        """Conclude the session while a traceback keeps the program's variables alive."""
        if self._session is None or os.getpid() != self._pid:
            return
        try:
            from leakscope.capture import returning

            frames = returning.frames_left_by(error)
            if returning.is_alone() and any(f.f_code.co_filename != __file__ for f in frames):
                self._session.conclude(frames)
        except BaseException as fault:
            if not isinstance(fault, Exception) and not is_interrupt(fault):
                raise

    def arrange(self, status: str, exit_code: int = 0, exception: str = "") -> None:
        """Close the session at the interpreter's exit, before the program's own handlers.

        They run in reverse order, after threads are joined: the last one sees all that these did.
        """
        self._stop_watching()
        atexit.register(self._close, status, exit_code, exception)

    def _close(self, status: str, exit_code: int, exception: str) -> None:
        session, self._session = self._session, None
        if session is None or os.getpid() != self._pid:
            return
        try:
            session.close(status=status, exit_code=exit_code, exception=exception, for_good=True)
            if session.options.report and session.world.leads and session.trackers.has_places:
                from leakscope.capture.scope import report_of

                report_of(session, quiet=True)  # before the trackers end, whose run is open still
            if session.trouble and not session.options.quiet:
                _complain(session.trouble)
        except BaseException as fault:
            # The program is over: without us its handler would have met nobody.
            if not is_interrupt(fault):
                _complain(f"the recording could not be closed ({type(fault).__name__}: {fault})")


def _run(program: Program, closing: Closing) -> None:
    try:
        closing.watch_returns()
        _runner(program)()
    except SystemExit as error:
        closing.left(error)
        closing.arrange("exit", _exit_code(error))
        raise
    except BaseException as error:
        closing.failed(error)
        closing.left(error)
        _show_traceback(error, _without_our_frames(error))
        if isinstance(error, KeyboardInterrupt):
            closing.arrange("interrupted", _INTERRUPTED, "KeyboardInterrupt")
        else:
            closing.arrange("exception", 1, _describe(error))
        raise
    closing.arrange("completed")


def _runner(program: Program) -> Callable[[], None]:
    if program.kind == "module":
        return lambda: _run_module(program.target, alter_argv=True)
    if program.kind == "code":
        return lambda: _run_code(program.target)
    if program.kind == "stdin":
        return _run_stdin
    if _is_importable_place(program.filename):
        return lambda: _run_module("__main__", alter_argv=False)
    return lambda: _run_script(program.filename)


def _run_module(name: str, *, alter_argv: bool) -> None:
    """Run a module as the interpreter does: its ``-m`` calls this very function."""
    import runpy

    runpy._run_module_as_main(name, alter_argv)  # type: ignore[attr-defined]


def _run_code(source: str) -> None:
    code = compile(source, "<string>", "exec", dont_inherit=True)
    if sys.version_info >= (3, 13):
        _show_source_of(code, source)
    exec(code, _main_namespace())  # noqa: S102


def _show_source_of(code: CodeType, source: str) -> None:
    """Make tracebacks show the lines of ``-c`` instead of the boot code's."""
    import linecache

    linecache._register_code(code, source, "<string>")  # type: ignore[attr-defined]
    if "<string>" in linecache.cache:
        lines = source.splitlines(keepends=True)
        linecache.cache["<string>"] = (len(source), None, lines, "<string>")


def _run_stdin() -> None:
    """Run what comes on stdin as Python does: all of it is read before any of it runs."""
    namespace = _main_namespace()
    namespace.update(__file__="<stdin>", __cached__=None)
    try:
        source = b"" if sys.stdin is None else sys.stdin.buffer.read()
        exec(compile(source, "<stdin>", "exec", dont_inherit=True), namespace)  # noqa: S102
    finally:
        _leave(namespace)


def _run_script(filename: str) -> None:
    from importlib.machinery import SourceFileLoader, SourcelessFileLoader

    namespace = _main_namespace()
    compiled = filename.endswith(".pyc")
    loader = (SourcelessFileLoader if compiled else SourceFileLoader)("__main__", filename)
    namespace.update(__file__=filename, __cached__=None, __loader__=loader)
    try:
        code = loader.get_code("__main__") if compiled else _compile_script(filename)
        assert code is not None
        exec(code, namespace)  # noqa: S102
    finally:
        _leave(namespace)


def _compile_script(filename: str) -> CodeType:
    try:
        source = Path(filename).read_bytes()
    except OSError as error:
        reason = f"[Errno {error.errno}] {error.strerror}"
        sys.stderr.write(f"{sys.executable}: can't open file {filename!r}: {reason}\n")
        raise SystemExit(2) from None
    return compile(source, filename, "exec", dont_inherit=True)


def _leave(namespace: dict[str, Any]) -> None:
    """Python takes the names away at once; the session's last census still reads them."""
    for name in ("__file__", "__cached__"):
        atexit.register(namespace.pop, name, None)
    for stream in (sys.stderr, sys.stdout):
        with contextlib.suppress(Exception):
            stream.flush()


def _main_namespace() -> dict[str, Any]:
    return sys.modules["__main__"].__dict__


def _disguise(program: Program) -> None:
    """Leave no trace of the launch in ``sys`` and ``__main__``."""
    sys.path.pop()
    boot_words = len(sys.argv) + 1
    sys.orig_argv = [*sys.orig_argv[:-boot_words], *program.arguments]
    sys.argv = program.argv
    namespace = _main_namespace()
    for name in ("sys", "loaded", "main"):
        namespace.pop(name, None)


def _first_path(program: Program) -> str | None:
    """Return ``sys.path[0]`` as Python would set it; None where it sets none."""
    if program.kind == "script" and _is_importable_place(program.filename):
        return program.filename
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
        return None
    if program.kind == "script":
        try:
            return str(Path(program.filename).resolve(strict=True).parent)
        except OSError:  # a pipe under a name in /dev/fd, whose link leads to no file
            return str(Path(program.filename).parent)
    return str(Path.cwd()) if program.kind == "module" else ""


def _is_importable_place(filename: str) -> bool:
    """Return whether Python would look for ``__main__`` inside: a folder or a zip archive."""
    import pkgutil

    return pkgutil.get_importer(filename) is not None


def _forget_shadowed(folder: Path, loaded: Collection[str]) -> None:
    """Unload what only we have imported under a name that the program's folder defines itself."""
    try:
        own = {
            entry.stem
            for entry in folder.iterdir()
            if entry.suffix == ".py" or (entry / "__init__.py").is_file()
        }
    except OSError:
        return
    for name in [*sys.modules]:
        top = name.partition(".")[0]
        if top in own and top not in loaded and top != "leakscope":
            del sys.modules[name]


def _start_session(launch: Launch) -> Session | None:
    """Return a running session; None, after one sentence, where there can't be one."""
    try:
        from leakscope.capture.options import SessionOptions
        from leakscope.capture.workers import start_session

        return start_session(SessionOptions.from_json(launch.options), Path(launch.run_path))
    except UnwritableError as fault:
        _complain(f"{str(fault).removesuffix('.')}; the program goes on without a recording.")
        return None
    except Exception as fault:
        if os.environ.get("LEAKSCOPE_DEBUG"):
            raise
        _complain(f"nothing is recorded ({type(fault).__name__}: {fault}); the program goes on")
        return None


def _die_with(supervisor: int) -> None:
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return
    if os.getppid() != supervisor:
        os.kill(os.getpid(), signal.SIGKILL)


def _without_our_frames(error: BaseException) -> TracebackType | None:
    """Return a traceback without what started the program, or broke into it while ours ran."""
    if isinstance(error, KeyboardInterrupt):
        with contextlib.suppress(ImportError, KeyboardInterrupt):
            from leakscope.capture.dispatch import without_our_frames

            return without_our_frames(error.__traceback__)
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


def _show_traceback(error: BaseException, traceback: TracebackType | None) -> None:
    """Make the interpreter print this traceback for the exception."""
    hook = getattr(sys, "excepthook", None)

    def print_as_if_alone(
        kind: type[BaseException], value: BaseException, _: TracebackType | None
    ) -> None:
        if hook is None:
            del sys.excepthook
        else:
            sys.excepthook = hook
        sys.last_traceback = value.__traceback__ = traceback
        _print_as_python(hook, kind, value, traceback)

    sys.excepthook = print_as_if_alone


def _print_as_python(
    hook: Callable[..., Any] | None,
    kind: type[BaseException],
    value: BaseException,
    traceback: TracebackType | None,
) -> None:
    if hook is None:
        sys.stderr.write("sys.excepthook is missing\n")
        sys.__excepthook__(kind, value, traceback)
        return
    try:
        hook(kind, value, traceback)
    except SystemExit:
        raise
    except BaseException as fault:
        fault.__traceback__ = fault.__traceback__ and fault.__traceback__.tb_next
        sys.stderr.write("Error in sys.excepthook:\n")
        sys.__excepthook__(type(fault), fault, fault.__traceback__)
        sys.stderr.write("\nOriginal exception was:\n")
        sys.__excepthook__(kind, value, traceback)


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def _describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _complain(message: str) -> None:
    with contextlib.suppress(Exception):
        sys.stderr.write(f"leakscope: {message}\n")
