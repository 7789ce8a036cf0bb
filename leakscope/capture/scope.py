"""``leakscope.profile()``: what a user writes around their own code."""

from __future__ import annotations

import functools
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast, overload

from leakscope.capture.children import begin_pending, give_up_pending
from leakscope.capture.dispatch import EventDispatcher
from leakscope.capture.options import SessionOptions, configured_options
from leakscope.capture.phase_stack import Phase
from leakscope.capture.phases import PhaseTracker
from leakscope.capture.run_directory import project_of_caller
from leakscope.capture.session import Session, current_session
from leakscope.capture.torch_hooks.loaders import passes_of
from leakscope.configuration import (
    Boundaries,
    Children,
    CudaHistory,
    Native,
    SnapshotSignal,
    Tracemalloc,
    Workers,
    is_off,
)
from leakscope.model.boundary import BoundaryKind
from leakscope.model.errors import LeakscopeError, UnwritableError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

REPORT_SECONDS = 120
_REPORTING = """\
import sys
sys.path[:] = [folder for folder in sys.path if folder] + [sys.argv.pop(1)]
from leakscope.cli import main
main()"""
"""As ``-m leakscope``, but a file of the user's named like a library of ours is not imported."""


class Scope:
    """The session around some code, and where its boundaries lie if one wants to say so exactly.

    A context manager and a decorator. Every call does nothing while nothing is recorded.
    """

    def __init__(self, options: SessionOptions | None) -> None:
        self._options = options
        self._session: Session | None = None
        self._owns = False
        self._uses = 0

    @property
    def run_path(self) -> Path | None:
        """The run directory; None while nothing is recorded."""
        return None if self._session is None else self._session.run_path

    @property
    def enabled(self) -> bool:
        """Whether anything is being recorded."""
        return self._session is not None and self._session.is_live

    # Boundaries that the user names

    def epochs(self, iterable: Iterable[T]) -> Iterator[T]:
        """Return an iterator over ``iterable``; after each item an epoch has ended."""
        session = self._session
        return iter(iterable) if session is None else _epochs(session, iterable)

    def steps(self, iterable: Iterable[T]) -> Iterator[T]:
        """Return an iterator over a loader, say; after each item a training step has ended."""
        session = self._session
        return iter(iterable) if session is None else _steps(session, iterable)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Name a ``with`` block: ``train``, ``validation``, ``test`` or a name of one's own.

        An exception of the block ends the phase and goes on.
        """
        session = self._session
        if session is None:
            yield
            return
        gate, tracker = session.gate, session.tracker
        opened: list[Phase] = []
        try:
            gate.dispatch(_open, opened, tracker, tracker.phase_begin, name)
            yield
        finally:
            try:
                _close(opened, gate, tracker.phase_end)
            finally:
                _close(opened, gate, tracker.phase_end)

    def step(self) -> None:
        """Report the end of a training iteration; from now on only this call does."""
        session = self._session
        if session is not None:
            session.gate.dispatch(session.tracker.step_over)

    def mark(self, name: str) -> None:
        """Measure here. Marks of one name are compared with each other."""
        session = self._session
        if session is not None:
            session.boundary(BoundaryKind.MARK, label=name)

    # Context manager and decorator

    def __enter__(self) -> Scope:
        options = self._options
        if options is None:
            return self
        if options.out is None:
            begin_pending()
        else:
            give_up_pending()
        running = current_session()
        if running is not None and running.is_live:
            self._join(running, options)
        else:
            self._session = _start(self._fresh(options))
            self._owns = self._session is not None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        session = self._left()
        if session is None:
            return
        if error is not None:
            session.failed(error)
        self._close(session, *_ending(error))

    def give_up(self) -> None:
        """Close what it began where nobody knows how the code went on."""
        session = self._left()
        if session is not None:
            self._close(session, "detached", 0, "")

    def _left(self) -> Session | None:
        session, self._session = self._session, None
        owns, self._owns = self._owns, False
        return session if owns and session is not None and session.is_live else None

    def _close(self, session: Session, status: str, exit_code: int, text: str) -> None:
        session.close(status=status, exit_code=exit_code, exception=text)
        if session.trouble and not session.options.quiet:
            _warn(session.trouble)
        if session.options.report and session.world.leads:
            report_of(session)

    def __call__(self, function: F) -> F:
        """Record each call of ``function``, no generator's, into a run directory of its own."""
        if self._options is None:
            return function
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise LeakscopeError(
                f"profile() can't decorate the generator {function.__qualname__}(): use "
                "`with leakscope.profile():` around the loop that consumes it.",
                slug="bad-option",
            )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def profiled(*args: Any, **kwargs: Any) -> Any:
                with self._again():
                    return await function(*args, **kwargs)
        else:

            @functools.wraps(function)
            def profiled(*args: Any, **kwargs: Any) -> Any:
                with self._again():
                    return function(*args, **kwargs)

        return cast("F", profiled)

    def _again(self) -> Scope:
        return Scope(None if self._options is None else self._fresh(self._options))

    def _fresh(self, options: SessionOptions) -> SessionOptions:
        """A scope that is used again records alongside what it recorded before, not over it."""
        self._uses += 1
        if options.out is None or self._uses == 1:
            return options
        return replace(options, out=options.out.with_name(f"{options.out.name}-{self._uses}"))

    def _join(self, running: Session, options: SessionOptions) -> None:
        self._session = running
        is_child = running.header is not None and running.header.child is not None
        if not options.quiet and not is_child:
            _warn_once(f"already recording into {running.run_path}; this profile() adds to it.")


@overload
def profile(out: F) -> F: ...


@overload
def profile(
    out: str | os.PathLike[str] | None = None,
    *,
    budget: float | str | None = None,
    max_pause: float | None = None,
    max_recording: int | str | None = None,
    boundaries: Boundaries | None = None,
    tracemalloc: Tracemalloc | None = None,
    cuda_history: CudaHistory | None = None,
    native: Native | None = None,
    native_interval: int | None = None,
    workers: Workers | None = None,
    children: Children | None = None,
    report: bool | None = None,
    force: bool = False,
    label: str | None = None,
    enabled: bool | None = None,
    quiet: bool | None = None,
    probe_cleanup: bool | None = None,
    snapshot_signal: SnapshotSignal | None = None,
    trackers: str | Sequence[str] | None = None,
) -> Scope: ...


def profile(
    out: Any = None,
    *,
    budget: float | str | None = None,
    max_pause: float | None = None,
    max_recording: int | str | None = None,
    boundaries: Boundaries | None = None,
    tracemalloc: Tracemalloc | None = None,
    cuda_history: CudaHistory | None = None,
    native: Native | None = None,
    native_interval: int | None = None,
    workers: Workers | None = None,
    children: Children | None = None,
    report: bool | None = None,
    force: bool = False,
    label: str | None = None,
    enabled: bool | None = None,
    quiet: bool | None = None,
    probe_cleanup: bool | None = None,
    snapshot_signal: SnapshotSignal | None = None,
    trackers: str | Sequence[str] | None = None,
) -> Any:
    """Record the memory of the code in a ``with`` block, or of a decorated function.

    Returns a :class:`Scope`, or the decorated function; both add to a run that goes on. What isn't
    given is from ``LEAKSCOPE_*`` or ``[tool.leakscope]``. Bad options raise ``LeakscopeError``.

    Args:
        out: Run directory; by default ``leakscope-runs/<time>-<script>``.
        budget: Share of wall time that measuring may cost: ``0.02`` or ``"2%"``.
        max_pause: Milliseconds that a census may pause the program, except first and last.
        max_recording: Bytes on disk, ``"200 MB"``, after which readings are left out, evenly.
        boundaries: ``auto`` finds epochs, steps and validation; ``manual`` leaves them to calls.
        tracemalloc: ``window`` traces allocating lines for short stretches once something grows;
            ``auto`` does so only where they can't be sampled.
        cuda_history: ``window`` does that on CUDA, unless the program records a history itself.
        native: ``auto`` samples native allocations where it can, ``off`` never.
        native_interval: Mean number of bytes from one sample of them to the next.
        workers: ``on`` has the workers of DataLoaders record themselves too.
        children: ``auto`` has other child processes that run Python record themselves too.
        report: Whether to write the report at the end.
        force: Replace a run that ``out`` holds already; else this one goes into ``out-2``.
        label: A name for the run, shown in its report.
        enabled: False does nothing at all; None asks the environment (``LEAKSCOPE=off``).
        quiet: Print no summary.
        probe_cleanup: Try the popular cleaning calls now and then; it changes when garbage goes.
        snapshot_signal: Have ``USR1`` or ``USR2`` take a census now (``leakscope snapshot PID``).
        trackers: Where memory is drawn alongside the loss: names, ``auto`` or ``off``.

    Raises:
        LeakscopeError: options make no sense; never later.

    """
    options = dict(locals())  # the arguments have the names of the options
    del options["enabled"]
    if enabled is False or (enabled is None and is_off()):
        return out if callable(out) else _OFF
    options["out"] = None if out is None or callable(out) else Path(out)
    options["project_root"] = project_of_caller(sys._getframe(1).f_code.co_filename)
    # Where a session runs already, it has reported any problem.
    on_remark = _warn_once if current_session() is None else None
    scope = Scope(configured_options(on_remark, **options))
    return scope(out) if callable(out) else scope


def report_of(session: Session, *, quiet: bool | None = None) -> None:
    """Write the report of a session, in another process, as charts need memory; print its summary
    unless quiet, and store it in the trackers.
    """
    path, is_quiet = session.run_path, session.options.quiet if quiet is None else quiet
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", _REPORTING, root, "report", str(path)]
    try:
        subprocess.run(
            command if is_quiet else [*command, "--summary"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            timeout=REPORT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as fault:
        again = f"leakscope report {path}"
        _warn(f"the report could not be written ({type(fault).__name__}); {again}")
    if session.trackers.has_places or (path / "report.json").exists():
        for sentence in session.trackers.keep(path):
            if not session.options.quiet:
                _warn(sentence)


def _start(options: SessionOptions) -> Session | None:
    try:
        from leakscope.capture.workers import start_session

        session = start_session(options)
        path = session.run_path
        if options.out is not None and path.name != options.out.name:
            _warn(f"{options.out} already holds a run; this one is recorded into {path}.")
        return session
    except UnwritableError as fault:
        _warn(f"{str(fault).removesuffix('.')}; the program goes on without a recording.")
        return None
    except LeakscopeError:
        raise
    except Exception as fault:
        if os.environ.get("LEAKSCOPE_STRICT") == "1":
            raise
        _warn(f"nothing is recorded ({type(fault).__name__}: {fault}); the program goes on.")
        return None


def _epochs(session: Session, iterable: Iterable[T]) -> Iterator[T]:
    for item in iterable:
        yield item
        session.boundary(BoundaryKind.EPOCH_END)


def _steps(session: Session, iterable: Iterable[T]) -> Iterator[T]:
    gate, tracker = session.gate, session.tracker
    iterator = gate.muted(iter, iterable)
    opened: list[Phase] = []
    try:
        gate.dispatch(_open, opened, tracker, tracker.steps_begin, passes_of(iterable))
        while True:
            try:
                # Not kept in a variable here: the user alone decides how long a batch lives.
                yield gate.muted(next, iterator)
            except StopIteration:
                return
            for phase in opened:
                gate.dispatch(tracker.steps_next, phase)
    finally:
        try:
            _close(opened, gate, tracker.steps_end)
        finally:
            _close(opened, gate, tracker.steps_end)


def _open(
    opened: list[Phase], tracker: PhaseTracker, begin: Callable[..., Phase], *args: Any
) -> None:
    """Keep the phase that is begun where it is found even if an interrupt strikes meanwhile."""
    before = list(tracker.open_phases())
    try:
        opened.append(begin(*args))
    except BaseException:
        opened += [p for p in tracker.open_phases() if p.explicit and p not in before]
        raise


def _close(opened: list[Phase], gate: EventDispatcher, end: Callable[[Phase], None]) -> None:
    """End the phases that are still open; called twice, as an interrupt may strike in one."""
    while opened:
        gate.dispatch(end, opened[-1])
        opened.pop()


def _ending(error: BaseException | None) -> tuple[str, int, str]:
    if error is None:
        return ("completed", 0, "")
    name = type(error).__name__
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        return ("exit", code, "")
    if isinstance(error, KeyboardInterrupt):
        return ("interrupted", 130, name)
    try:
        return ("exception", 1, f"{name}: {error}")
    except Exception:
        return ("exception", 1, name)


_warned: set[str] = set()


def _warn_once(sentence: str) -> None:
    if sentence not in _warned:
        _warned.add(sentence)
        _warn(sentence)


def _warn(sentence: str) -> None:
    with suppress(Exception):
        sys.stderr.write(f"leakscope: {sentence}\n")


_OFF = Scope(None)
