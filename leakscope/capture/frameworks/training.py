"""One training of a framework: its events go to a session, its own or the one that runs.

Nothing in here raises into the framework: what calls its callbacks has no ``except`` of its own.

A training that raises may be given up without a word to us. Its session is closed as soon as nobody
is left that could send it events; else the next training would find it running and join it.

A worker's copy of an image that was opened and never loaded decodes its pixels for itself and keeps
them; forked copies of an open file share one position. Looks at a bounded number of objects and
runs nothing of the user's.
"""

from __future__ import annotations

import atexit
import functools
import io
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from leakscope.capture.dispatch import describe, leave_hook
from leakscope.capture.options import RecordingOptions, SessionOptions, configured_options
from leakscope.capture.phase_stack import TRAIN, Phase
from leakscope.capture.run_directory import project_of_caller
from leakscope.capture.scope import Scope
from leakscope.capture.session import Session, current_session
from leakscope.capture.sites import call_site
from leakscope.capture.trackers import memory_figures
from leakscope.capture.workers import start_method
from leakscope.cleanup import cleanup_every as repeated_cleanup
from leakscope.cleanup.statistics import log_text, silent_logger
from leakscope.configuration import is_off
from leakscope.model.boundary import BoundaryKind
from leakscope.model.errors import is_interrupt
from leakscope.model.text import plural

if TYPE_CHECKING:
    from typing_extensions import Unpack

F = TypeVar("F", bound=Callable[..., Any])
PART = "framework"


class Training:
    """Tells a session where a framework's training stands."""

    def __init__(self, options: RecordingOptions) -> None:
        self.is_allowed = not is_off()
        """Whether it tells anything: switched off by the environment, or by its own faults."""
        self._options = _session_options(options)
        self._scope = Scope(self._options)
        self._begun: SharedSession | None = None
        self._session: weakref.ref[Session] | None = None
        self._phases: list[Phase] = []
        self._leads = False
        self._is_in_epoch = False
        self._steps_reported = 0

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
        """Whether nothing is printed while it trains."""
        return self._options.quiet

    @property
    def phase(self) -> str:
        """The innermost phase that it opened; empty outside."""
        return self._phases[-1].name if self._phases else ""

    @property
    def steps_reported(self) -> int:
        """How many steps of the current training were reported."""
        return self._steps_reported if self.leads else 0

    # A training's course

    def begin(
        self, *, claims_control: bool = True, joins: bool = False, step: int = 0, epoch: int = 0
    ) -> None:
        """Join the session that runs, or start one unless it only ``joins``.

        It ``claims_control`` where its events tell phases and steps. ``step`` and ``epoch`` were
        done before, where it resumes from a checkpoint. A training that begins again goes on in it.
        """
        if not self.is_allowed:
            return
        self._is_in_epoch = False
        self._steps_reported = 0
        if self.leads:
            self.leave_all()
            self.resume(step=step, epoch=epoch)
            return
        if not self._join() and not joins:
            self._start()
        session = self.session
        if session is not None and claims_control and session.claim_phase_control():
            self._leads = True
            self.resume(step=step, epoch=epoch)

    def resume(self, *, step: int, epoch: int) -> None:
        """Go on from a checkpoint, where it is read only after the beginning."""
        session = self.session
        if session is not None and self._leads:
            resume = session.tracker.external.resume
            ahead = session.gate.dispatch(lambda: resume(step=step, epoch=epoch))
            session.trackers.ahead = ahead or 0

    def enter(self, name: str, expected: int | None = None) -> None:
        """Begin a phase; ``expected`` batches, where that is known."""
        if not self._phases and not self._leads:
            self._join()
        session = self.session
        is_led_by_another = (
            session is not None and session.gate.is_phase_control_claimed and not self._leads
        )
        if session is None or not self.is_allowed or is_led_by_another:
            return
        external = session.tracker.external
        self._is_in_epoch |= name == TRAIN
        session.gate.dispatch(lambda: self._phases.append(external.begin(name, expected)))

    def leave(self, name: str) -> None:
        """End the innermost phase of this name, with what is open inside it."""
        if any(phase.name == name for phase in self._phases):
            while self._leave_innermost() != name:
                pass

    def leave_all(self) -> None:
        """End every phase that it opened."""
        while self._phases:
            self._leave_innermost()

    def step(self) -> None:
        """A step of an optimizer, with all batches it took, is over."""
        self._steps_reported += 1
        self._dispatch("step")

    def batch(self) -> None:
        """A batch without a step is over."""
        self._dispatch("batch")

    def end_epoch(self) -> None:
        """The epoch that a training phase began is over, with all that came after that phase."""
        if self._is_in_epoch:
            self._is_in_epoch = False
            self._reach(BoundaryKind.EPOCH_END)

    def mark(self, label: str) -> None:
        """Measure here, comparable with the other marks of this label."""
        self._reach(BoundaryKind.MARK, label)

    def end(self, error: BaseException | None = None) -> None:
        """The training is over: give back the lead, and close the session if it is ours."""
        begun, self._begun = self._begun, None
        try:
            self._stop_leading()
        finally:
            self._session = None
            if begun is None:
                for shared in [*_shared_sessions]:
                    shared.detach(self, error)
            else:
                begun.end(error)

    # What else is reported

    def draws_memory(self) -> None:
        """Memory is logged by the framework's own means: nobody else does it too."""
        session = self.session
        if session is not None:
            session.trackers.leaves_memory = True

    def note(self, slug: str, sentence: str) -> None:
        """Add a note to the report."""
        session = self.session
        if session is not None:
            session.note(slug, sentence)

    def log_text(self, sentence: str) -> None:
        """Log a sentence, or write it to stderr, unless it is to be quiet."""
        if not self.is_quiet:
            log_text(sentence)

    def fault(self, error: Exception) -> None:
        """Write down a fault of ours; after some of them phases and steps are found again."""
        session = self.session
        if not self.is_allowed:
            return
        if session is None:
            self.is_allowed = False
            log_text(f"nothing is recorded ({describe(error)}); the training goes on.")
        elif not session.fault(PART, error):
            self.is_allowed = False
            self._stop_leading()

    def _join(self) -> bool:
        """Join the session that runs, if one does; those that were given up are closed."""
        if not self.is_allowed:
            return False
        for shared in [lost for lost in _shared_sessions if lost.is_lost]:
            shared.give_up()
        session = current_session()
        if session is None or not session.is_live:
            return False
        for shared in _shared_sessions:
            if shared.session is session:
                shared.attach(self)
        self._session = weakref.ref(session)
        return True

    def _start(self) -> None:
        if self._begun is not None:  # somebody else has closed that session
            self._begun.end()
        self._scope.__enter__()
        session = current_session()
        if session is not None:
            self._session = weakref.ref(session)
            self._begun = SharedSession(self._scope, session)
            self._begun.attach(self)

    def _stop_leading(self) -> None:
        session, leads, self._leads = self.session, self._leads, False
        try:
            self.leave_all()
        finally:
            if session is not None and leads:
                session.release_phase_control()

    def _leave_innermost(self) -> str:
        phase = self._phases.pop()
        session = self.session
        if session is not None:
            session.gate.dispatch(session.tracker.external.end, phase)
        return phase.name

    def _dispatch(self, event: str) -> None:
        session = self.session
        if session is not None and self._phases:
            session.gate.dispatch(getattr(session.tracker.external, event), self._phases[-1])

    def _reach(self, kind: BoundaryKind, label: str = "") -> None:
        session = self.session
        if session is not None and self._leads:
            session.boundary(kind, label=label)


class FrameworkCallback:
    """What reports a training; its hooks are :func:`contained`."""

    def __init__(
        self,
        *,
        log_every: int | None = None,
        cleanup_every: int | None = None,
        **options: Unpack[RecordingOptions],
    ) -> None:
        super().__init__()
        self.training = Training(options)
        self._upkeep = Upkeep(self.training, log_every=log_every, cleanup_every=cleanup_every)
        self._prepare()

    def _prepare(self) -> None:
        """Make what the callback of one framework needs besides."""

    def _end(self, error: BaseException | None = None) -> None:
        try:
            self._upkeep.end()
        finally:
            self.training.end(error)


def ours_once(callbacks: Iterable[Any]) -> list[Any]:
    """Return callbacks, each of ours at its first place only: it would receive events twice."""
    once: list[Any] = []
    for callback in callbacks:
        is_known = any(known is callback for known in once)
        if not (is_known and isinstance(callback, FrameworkCallback)):
            once.append(callback)
    return once


def contained(hook: F) -> F:
    """Return a hook that returns None where it fails; interrupts of the program's pass."""

    @functools.wraps(hook)
    def safe(self: FrameworkCallback, *args: Any, **kwargs: Any) -> Any:
        try:
            return hook(self, *args, **kwargs)
        except BaseException as error:
            if is_interrupt(error):
                leave_hook(error)
                raise
            try:
                self.training.fault(cast("Exception", error))
            except Exception:
                self.training.is_allowed = False
            return None

    return cast("F", safe)


def _session_options(options: RecordingOptions) -> SessionOptions:
    if is_off():
        return SessionOptions()
    out = options.get("out")
    chosen: dict[str, Any] = {**options, "out": None if out is None else Path(out)}
    on_remark = log_text if current_session() is None else None
    return configured_options(on_remark, project_root=project_of_caller(call_site()[0]), **chosen)


_shared_sessions: list[SharedSession] = []


class SharedSession:
    """A session and the trainings that tell it; keeps none of them.

    Closed by the training that began it, when all are gone, or when the program ends.
    """

    def __init__(self, scope: Scope, session: Session) -> None:
        self.session = session
        self._scope = scope
        self._tellers: list[weakref.ref[Training]] = []
        _shared_sessions.append(self)
        atexit.register(self._end_at_exit)

    @property
    def is_lost(self) -> bool:
        """Whether no source of events is left."""
        return not any(teller() is not None for teller in self._tellers)

    def attach(self, training: Training) -> None:
        """Stay open as long as this training lives, too."""
        if not any(teller() is training for teller in self._tellers):
            self._tellers.append(weakref.ref(training, self._gone))

    def detach(self, training: Training, error: BaseException | None) -> None:
        """The training tells it nothing more; the last one closes it."""
        before = len(self._tellers)
        self._tellers = [teller for teller in self._tellers if teller() is not training]
        if not self._tellers and before:
            self.end(error)

    def end(self, error: BaseException | None = None) -> None:
        """Close the session: the training ended, with an error or without."""
        self._let_go()
        self._scope.__exit__(None if error is None else type(error), error, None)

    def give_up(self) -> None:
        """Close the session of trainings that reported no end. Raises nothing."""
        self._let_go()
        with suppress(Exception):
            self._scope.give_up()

    def _gone(self, teller: weakref.ref[Training]) -> None:
        # In the middle of an event, or from another thread, the collector may run this as well;
        # the next training or the end of the program closes the session then.
        self._tellers = [known for known in self._tellers if known is not teller]
        if self.is_lost and self.session.gate.is_idle_here():
            self.give_up()

    def _end_at_exit(self) -> None:
        """Report how the program ended where no event of the framework does."""
        with suppress(Exception):
            self.end(getattr(sys, "last_value", None))

    def _let_go(self) -> None:
        self._tellers.clear()
        if self in _shared_sessions:
            _shared_sessions.remove(self)
        atexit.unregister(self._end_at_exit)


class Upkeep:
    """Done every so many steps of one training, where that was requested, from 1 on."""

    def __init__(
        self, training: Training, *, log_every: int | None = None, cleanup_every: int | None = None
    ) -> None:
        for name, steps in (("log_every", log_every), ("cleanup_every", cleanup_every)):
            if steps is not None and steps < 1:
                raise ValueError(f"{name} needs a number of steps from 1 on.")
        self._training = training
        self._log_every, self._cleanup_every = log_every, cleanup_every
        self._warned: set[str] = set()
        self._cleanup: repeated_cleanup | None = None
        self._is_begun = False

    def begin(self, *loaders: Any) -> None:
        """The training begins: warn of what its loaders should not keep when they have workers."""
        if not self._training.is_allowed:
            return
        self._is_begun = True
        if self._cleanup_every is not None and self._cleanup is None:
            logger = silent_logger() if self._training.is_quiet else None
            self._cleanup = repeated_cleanup(self._cleanup_every, logger=logger)
        if self._log_every is not None:
            self._training.draws_memory()
        if self._training.leads:
            self.warn(*loaders)

    def warn(self, *loaders: Any) -> None:
        """Warn once about what loaders shouldn't keep when they have workers."""
        for sentence in (sentence for loader in loaders for sentence in worker_warnings(loader)):
            if sentence not in self._warned:
                self._warned.add(sentence)
                self._training.log_text(sentence)
                self._training.note("workers", sentence)

    def step(self, number: int) -> dict[str, float]:
        """A step is over: clean up if it is time; return memory in MiB if it is to be logged."""
        if self._cleanup is not None:
            self._cleanup.step()
        if not self._is_begun or self._log_every is None or number % self._log_every:
            return {}
        return memory_figures()

    def end(self) -> None:
        """The training is over, with an error or without: tell what its cleanups gained."""
        cleanup, self._cleanup, self._is_begun = self._cleanup, None, False
        if cleanup is not None and cleanup.report().steps:
            summary = str(cleanup.report())
            self._training.log_text(summary)
            self._training.note("cleanup", summary)


LOOKED_AT = 2000
ITEMS_LOOKED_AT = 32
DEEPEST = 8
"""So far inside a data set; one that wraps others is not counted. A picture in a message of a chat
lies seven deep: samples, sample, messages, message, content, part, picture."""
OPEN_IMAGES = "open PIL images"
LOADED_IMAGES = "PIL images"
OPEN_FILES = "open files"
GARBLED = "forked workers share one position in each file, which garbles what they read, and "
FILES = (io.BufferedReader, io.FileIO, io.TextIOWrapper, io.BufferedRandom)


@dataclass(frozen=True)
class DatasetAttribute:
    """Something that a dataset keeps: ``images`` of a class ``Photos`` is ``Photos.images``."""

    name: str
    what: str
    is_in_file: bool = False
    """Whether an image reads from an open file, not from memory."""


def worker_warnings(loader: Any) -> list[str]:
    """Return a sentence for each thing that a loader's dataset should not keep with workers."""
    workers = getattr(loader, "num_workers", 0)
    dataset = getattr(loader, "dataset", None)
    if not workers or dataset is None:
        return []
    is_forked = start_method(loader) == "fork"
    kept = dict.fromkeys(find_kept(dataset))
    sentences = (_sentence(found, workers, is_forked=is_forked) for found in kept)
    return [sentence for sentence in sentences if sentence]


def _sentence(kept: DatasetAttribute, workers: int, *, is_forked: bool) -> str:
    problem = f"{kept.name} keeps {kept.what} beside {plural(workers, 'DataLoader worker')}"
    if kept.what == OPEN_IMAGES:
        why = GARBLED if kept.is_in_file and is_forked else ""
        return (
            f"{problem}: {why}each worker decodes its own copy of the pixels and keeps them. Keep "
            "paths and open images in __getitem__, or call load() before the workers start."
        )
    if kept.what == LOADED_IMAGES:
        copies = f"{problem}: each worker that isn't forked gets a copy of all pixels. Keep paths."
        return "" if is_forked else copies
    if not is_forked:
        return ""
    return f"{problem}: forked workers share one position in each file. Open them in the workers."


def find_kept(dataset: object) -> Iterator[DatasetAttribute]:
    """Yield what a dataset keeps of images and files; the same thing may come several times."""
    is_plain = type(dataset).__module__ == "builtins"
    waiting = deque([(dataset, "The data set" if is_plain else type(dataset).__name__, 0)])
    seen: set[int] = set()
    while waiting and len(seen) < LOOKED_AT:
        thing, name, depth = waiting.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        what = _what(thing)
        if what:
            is_in_file = what == OPEN_IMAGES and type(_state(thing).get("fp")) in FILES
            yield DatasetAttribute(name, what, is_in_file=is_in_file)
        elif depth < DEEPEST:
            deeper = 0 if _is_dataset(thing) else depth
            waiting.extend((inner, to, deeper + 1) for inner, to in _inside(thing, name))


def _what(thing: object) -> str:
    if any(kind.__module__ == "PIL.Image" for kind in type(thing).__mro__[:-1]):
        state = _state(thing)
        if "_im" not in state and "im" not in state:
            return ""
        is_loaded = (state.get("_im") or state.get("im")) is not None
        return LOADED_IMAGES if is_loaded else OPEN_IMAGES
    if type(thing) in FILES:
        return "" if thing.closed else OPEN_FILES  # type: ignore[attr-defined]
    return ""


def _is_dataset(thing: object) -> bool:
    return any(
        kind.__name__ == "Dataset" and kind.__module__ == "torch.utils.data.dataset"
        for kind in type(thing).__mro__
    )


def _inside(thing: object, name: str) -> Iterator[tuple[object, str]]:
    # By the methods of the built-in types: those of a subclass would be the user's.
    kind = type(thing)
    if issubclass(kind, (list, tuple)):
        base: Any = list if issubclass(kind, list) else tuple
        for item in base.__getitem__(thing, slice(ITEMS_LOOKED_AT)):
            yield item, name
    elif issubclass(kind, dict):
        values: Any = dict.values(thing)  # type: ignore[arg-type]
        for _, item in zip(range(ITEMS_LOOKED_AT), values, strict=False):
            yield item, name
    for attribute, value in list(_state(thing).items())[:ITEMS_LOOKED_AT]:
        if not isinstance(value, (int, str, float)):
            yield value, f"{kind.__name__}.{attribute}"


def _state(thing: object) -> dict[str, Any]:
    """Return the attributes of an object, those in slots included."""
    try:
        state = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        state = {}
    return {**_slots(thing), **(state if type(state) is dict else {})}


def _slots(thing: object) -> dict[str, Any]:
    slots = {
        name: slot
        for kind in type(thing).__mro__
        if "__slots__" in vars(kind)
        for name, slot in vars(kind).items()
        if type(slot) is MemberDescriptorType
    }
    found = {}
    for name, slot in slots.items():
        with suppress(AttributeError):  # nothing was put into it
            found[name] = slot.__get__(thing)
    return found
