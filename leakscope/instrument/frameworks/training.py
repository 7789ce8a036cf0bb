"""One training of a framework's, told by its events: a session of its own, or the one that runs.

Nothing in here raises into the framework: what calls its callbacks has no ``except`` of its own.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

from leakscope.cleanup.speaking import say
from leakscope.instrument.configured import chosen_trackers, configured_options
from leakscope.instrument.frameworks.begun import BegunSession, left_by, running_session
from leakscope.instrument.guard import describe
from leakscope.instrument.options import CudaHistory, Native, SessionOptions, Tracemalloc, Workers
from leakscope.instrument.rundirectory import project_of_caller
from leakscope.instrument.scope import Scope, is_off
from leakscope.instrument.session import Session, current_session
from leakscope.instrument.sites import call_site
from leakscope.instrument.stack import TRAIN, Phase
from leakscope.instrument.tracebacks import leave_hook
from leakscope.model.boundary import BoundaryKind
from leakscope.model.interrupts import is_interrupt

F = TypeVar("F", bound=Callable[..., Any])
PART = "framework"


class RecordingOptions(TypedDict, total=False):
    """How a training is recorded where nothing records yet, as :func:`leakscope.profile` has it."""

    out: str | Path | None
    budget: float
    tracemalloc: Tracemalloc
    cuda_history: CudaHistory
    native: Native
    native_interval: int
    workers: Workers
    report: bool
    force: bool
    label: str | None
    quiet: bool
    probe_cleanup: bool
    trackers: str | Sequence[str]


class Training:
    """Tells a session where a framework's training stands."""

    def __init__(self, options: RecordingOptions) -> None:
        self.is_allowed = not is_off()
        """Whether it tells anything: switched off by the environment, or by its own faults."""
        self._options = _session_options(options)
        self._scope = Scope(self._options)
        self._begun: BegunSession | None = None
        self._session: weakref.ref[Session] | None = None
        self._phases: list[Phase] = []
        self._leads = False
        self._is_in_epoch = False
        self._steps_told = 0

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process records for itself."""
        fresh: dict[str, Any] = {"_begun": None, "_session": None, "_phases": [], "_leads": False}
        return {**self.__dict__, **fresh, "_scope": Scope(self._options)}

    @property
    def session(self) -> Session | None:
        """The session that it tells; None while it tells none."""
        session = None if self._session is None else self._session()
        return session if session is not None and session.is_live else None

    @property
    def leads(self) -> bool:
        """Whether this training says where phases and steps lie."""
        return self._leads and self.session is not None

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is to be said while it trains."""
        return self._options.quiet

    @property
    def phase(self) -> str:
        """The innermost phase that it opened; empty outside."""
        return self._phases[-1].name if self._phases else ""

    @property
    def steps_told(self) -> int:
        """How many steps of the training that goes on just now were told."""
        return self._steps_told if self.leads else 0

    # A training's course

    def begin(
        self, *, lead: bool = True, joins: bool = False, step: int = 0, epoch: int = 0
    ) -> None:
        """Join the session that runs, or start one; a training that begins anew goes on in it.

        Args:
            lead: whether its events tell phases and steps, which are found otherwise.
            joins: whether it starts none itself.
            step: steps done before, where it resumes from a checkpoint.
            epoch: epochs done before.

        """
        if not self.is_allowed:
            return
        self._is_in_epoch = False
        self._steps_told = 0
        if self.leads:
            self.leave_all()
            self.resume(step=step, epoch=epoch)
            return
        if not self._join() and not joins:
            self._start()
        session = self.session
        if session is not None and lead and session.take_lead():
            self._leads = True
            self.resume(step=step, epoch=epoch)

    def resume(self, *, step: int, epoch: int) -> None:
        """Go on from a checkpoint, where it is read only after the beginning."""
        session = self.session
        if session is not None and self._leads:
            ahead = session.gate.hear(lambda: session.tracker.led.resume(step=step, epoch=epoch))
            session.trackers.ahead = ahead or 0

    def enter(self, name: str, expected: int | None = None) -> None:
        """Begin a phase; ``expected`` batches, where that is known."""
        if not self._phases and not self._leads:
            self._join()
        session = self.session
        if session is None or not self.is_allowed or (session.gate.is_led and not self._leads):
            return
        led = session.tracker.led
        self._is_in_epoch |= name == TRAIN
        session.gate.hear(lambda: self._phases.append(led.begin(name, expected)))

    def leave(self, name: str) -> None:
        """End the innermost phase of this name, with what is open inside it."""
        if any(phase.name == name for phase in self._phases):
            while self._leave_one() != name:
                pass

    def leave_all(self) -> None:
        """End every phase that it opened."""
        while self._phases:
            self._leave_one()

    def step(self) -> None:
        """A step of an optimizer, with all batches it took, is over."""
        self._steps_told += 1
        self._tell("step")

    def batch(self) -> None:
        """A batch without a step is over."""
        self._tell("batch")

    def end_epoch(self) -> None:
        """The epoch that a training phase began is over, with all that came after that phase."""
        if self._is_in_epoch:
            self._is_in_epoch = False
            self._reach(BoundaryKind.EPOCH_END)

    def mark(self, label: str) -> None:
        """Measure here, comparable with the other marks of this label."""
        self._reach(BoundaryKind.MARK, label)

    def end(self, error: BaseException | None = None) -> None:
        """The training is over, with an error or without: give back the lead, close what is ours.

        Joined, it leaves the session to whoever began it.
        """
        begun, self._begun = self._begun, None
        try:
            self._stop_leading()
        finally:
            self._session = None
            if begun is None:
                left_by(self, error)
            else:
                begun.end(error)

    # What else is to be told

    def draws_memory(self) -> None:
        """Memory is logged by the framework's own means: nobody else does it too."""
        session = self.session
        if session is not None:
            session.trackers.leaves_memory = True

    def note(self, slug: str, sentence: str) -> None:
        """Have the report mention something."""
        session = self.session
        if session is not None:
            session.note(slug, sentence)

    def say(self, sentence: str) -> None:
        """Log a sentence, or write it to stderr, unless it is to be quiet."""
        if not self.is_quiet:
            say(sentence)

    def fault(self, error: Exception) -> None:
        """Write down a fault of ours; after some of them phases and steps are found again."""
        session = self.session
        if not self.is_allowed:
            return
        if session is None:
            self.is_allowed = False
            say(f"nothing is recorded ({describe(error)}); the training goes on.")
        elif not session.fault(PART, error):
            self.is_allowed = False
            self._stop_leading()

    def _join(self) -> bool:
        running = running_session(self) if self.is_allowed else None
        if running is None:
            return False
        self._session = weakref.ref(running)
        return True

    def _start(self) -> None:
        if self._begun is not None:  # somebody else has closed that session
            self._begun.end()
        self._scope.__enter__()
        session = current_session()
        if session is not None:
            self._session = weakref.ref(session)
            self._begun = BegunSession(self._scope, session)
            self._begun.is_told_by(self)

    def _stop_leading(self) -> None:
        session, leads, self._leads = self.session, self._leads, False
        try:
            self.leave_all()
        finally:
            if session is not None and leads:
                session.give_lead_back()

    def _leave_one(self) -> str:
        phase = self._phases.pop()
        session = self.session
        if session is not None:
            session.gate.hear(session.tracker.led.end, phase)
        return phase.name

    def _tell(self, event: str) -> None:
        session = self.session
        if session is not None and self._phases:
            session.gate.hear(getattr(session.tracker.led, event), self._phases[-1])

    def _reach(self, kind: BoundaryKind, label: str = "") -> None:
        session = self.session
        if session is not None and self._leads:
            session.boundary(kind, label=label)


class TellsTraining:
    """What has a training to tell of; its hooks are :func:`contained`."""

    training: Training


def ours_once(callbacks: Iterable[Any]) -> list[Any]:
    """Return callbacks as they are, but each of ours at its first place only.

    One that was added twice would be told every event twice.
    """
    once: list[Any] = []
    for callback in callbacks:
        if not isinstance(callback, TellsTraining) or all(one is not callback for one in once):
            once.append(callback)
    return once


def contained(hook: F) -> F:
    """Return a hook that returns None where it fails.

    Interrupts pass, and what a signal's handler of the program's raises.
    """

    @functools.wraps(hook)
    def safe(self: TellsTraining, *args: Any, **kwargs: Any) -> Any:
        try:
            return hook(self, *args, **kwargs)
        except BaseException as error:
            if is_interrupt(error):
                leave_hook(error)
                raise
            _note(self.training, cast("Exception", error))
            return None

    return cast("F", safe)


def _note(training: Training, error: Exception) -> None:
    try:
        training.fault(error)
    except Exception:
        training.is_allowed = False


def _session_options(options: RecordingOptions) -> SessionOptions:
    if is_off():
        return SessionOptions()
    out = options.get("out")
    rest: dict[str, Any] = {name: value for name, value in options.items() if name != "out"}
    rest["trackers"] = chosen_trackers(rest.get("trackers"))
    return configured_options(
        say if current_session() is None else None,
        out=None if out is None else Path(out),
        project_root=project_of_caller(call_site()[0]),
        **rest,
    )
