"""The stack of open phases, and passes over loaders with what earlier ones taught."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import Any

from leakscope.capture.sites import Site
from leakscope.model.boundary import BoundaryKind

TRAIN = "train"
TRAIN_ON = "train:2"
"""Training without a loader after that with one: no epoch of its own."""
NAMES_KEPT = 1024


@dataclass(slots=True, eq=False)
class Phase:
    """An open phase."""

    name: str
    occurrence: int
    _: KW_ONLY
    training: bool
    explicit: bool
    """Opened by the user's call, closed only by it."""
    owner: Pass | None = None
    """The pass whose batches count; the phase ends with it unless it is explicit."""
    manual: bool = False
    """Whether the user says where steps end."""
    loop: bool = False
    """Whether it was opened for a named loop of steps and ends with it."""
    batch: int = 0
    steps: int = 0
    micro: int = 0
    pending: int = 0
    in_hand: bool = False
    """Whether a forward pass was made that no boundary has ended."""
    expected: int | None = None
    plan: Any = None
    """The schedule's own notes about this phase."""

    @property
    def is_fed(self) -> bool:
        """Whether a pass over a loader feeds it that is not over."""
        return self.owner is not None and not self.owner.is_over


Emit = Callable[[BoundaryKind, "Phase | None", str], None]


class PhaseStack:
    """Open phases, outermost first. Only phases that nobody opened by hand are closed unasked."""

    def __init__(self, emit: Emit, flush: Callable[[Phase], None]) -> None:
        self.trainings = 0
        """Training phases begun so far, those without a loader after some with one left out."""
        self.top: Phase | None = None
        self._emit = emit
        self._flush = flush
        self._open: list[Phase] = []
        self._occurrences: dict[str, int] = {}

    def __contains__(self, phase: object) -> bool:
        return phase in self._open

    def __len__(self) -> int:
        return len(self._open)

    def inwards(self) -> Iterator[Phase]:
        """Iterate over the open phases, innermost first."""
        return reversed(self._open)

    @property
    def is_any_fed(self) -> bool:
        """Whether a loader is at work."""
        return any(phase.is_fed for phase in self._open)

    def live_training(self) -> Phase | None:
        """Return the innermost training that a loader feeds, or that the user opened."""
        live = (p for p in self.inwards() if p.training and (p.explicit or p.is_fed))
        return next(live, None)

    def target(self) -> Phase | None:
        """Return the phase to which a step belongs."""
        for phase in self.inwards():
            if phase.training or (phase.explicit and (phase.manual or phase.is_fed)):
                return phase
        return self.top if self.top is not None and self.top.explicit else None

    def begin(
        self,
        name: str,
        *,
        training: bool,
        explicit: bool = False,
        owner: Pass | None = None,
        expected: int | None = None,
    ) -> Phase:
        """Open a phase inside the innermost one and return it."""
        if name not in self._occurrences and len(self._occurrences) >= NAMES_KEPT:
            self._occurrences.clear()
        occurrence = self._occurrences.get(name, 0)
        self._occurrences[name] = occurrence + 1
        self.trainings += training and name == TRAIN
        phase = Phase(name, occurrence, training=training, explicit=explicit, expected=expected)
        if owner is not None:
            phase.owner, phase.expected, owner.phase = owner, owner.expected, phase
        self._open.append(phase)
        self.top = phase
        self._emit(BoundaryKind.PHASE_BEGIN, phase, "")
        return phase

    def pass_over(self, name: str, count: int) -> None:
        """Number the next phase of this name as if so many had been opened and closed."""
        if name in self._occurrences:
            self._occurrences[name] += count

    def end(self, phase: Phase) -> None:
        """Close a phase and what was left open inside it."""
        self.leave_to(phase)
        self._end(phase)

    def leave_to(self, phase: Phase | None) -> None:
        """Close the phases inside ``phase`` (None: all) up to one that the user opened."""
        while self.top is not None and self.top is not phase and not self.top.explicit:
            self._end(self.top)

    def leave_validation(self) -> None:
        """Close the innermost phases that neither train nor were opened by the user."""
        while self.top is not None and not (self.top.training or self.top.explicit):
            self._end(self.top)

    def _end(self, phase: Phase) -> None:
        try:
            self._flush(phase)
            self._emit(BoundaryKind.PHASE_END, phase, "")
        finally:  # even if an interrupt strikes in there
            phase.owner = phase.plan = None  # no cycles: the program may have switched the gc off
            rest = [other for other in self._open if other is not phase]
            self._open, self.top = rest, rest[-1] if rest else None


SITES_KEPT = 512
LOADERS_KEPT = 64
NO_BATCH = -1


class Verdict(str, Enum):
    """What a pass over a loader is for."""

    TRAINING = "train"
    VALIDATION = "validation"


@dataclass(slots=True, eq=False)
class Pass:
    """One iteration over a loader, from ``iter(loader)`` until it is exhausted or dropped."""

    token: int
    site: Site
    _: KW_ONLY
    route: int
    """The way through libraries to where it was made; 0 where the user's own code did."""
    loader: int
    expected: int | None
    born: int
    """How many passes had fetched a batch when this one was made."""
    first: int = 0
    """Index of the last pass over it, from 1 on; 0 before the first."""
    evaluating: bool = False
    validated: bool = False
    """Whether all modules in evaluation mode had their validation before it began."""
    grad: bool = True
    gradients: bool = False
    """Whether a backward pass has filled gradients in it."""
    is_over: bool = False
    verdict: Verdict | None = None
    phase: Phase | None = None
    requests: int = 0
    moment: int = 0
    """When one was last fetched: counts the fetches of all passes together."""
    seen: int = 0
    """``phase.batch`` when this pass last fetched one; ``NO_BATCH`` once it is over."""


class PassSites:
    """Remembers what the passes begun at each place turned out to be.

    A place is a line of the user's code and the way from there through libraries, plus mode, grad
    state and loader, from the particular to the general: loaders that are rebuilt are recognised.
    """

    def __init__(self) -> None:
        self.is_alive: Callable[[int], bool] = lambda loader: False
        self._learned: dict[tuple[object, ...], tuple[Verdict | None, int]] = {}
        """What a key stands for, None for several things, and the last loader that used it."""
        self._validations: dict[tuple[Site, int], int] = {}
        self._rounds: dict[Site, _Round] = {}

    def judge(self, run: Pass, *, optimizers: bool, stepped: bool) -> Verdict | None:
        """Return what a pass is for, or None while only its first step or batch can tell."""
        exact, *general = _keys(run)
        if exact in self._learned:
            return self._learned[exact][0]
        if not run.grad:
            return Verdict.VALIDATION
        for key in general:
            verdict, loader = self._learned.get(key, (None, 0))
            if verdict is Verdict.TRAINING and loader != run.loader and self.is_alive(loader):
                break  # a loader alongside that one may be for something else, none in its place
            if verdict is not None:
                return verdict
        if run.evaluating and run.validated and self.only_trained(run):
            return None  # an exception may have left the modules as they were
        if run.evaluating:
            return Verdict.VALIDATION if stepped or not optimizers else None
        return Verdict.TRAINING if optimizers and not stepped else None

    def learn(self, run: Pass, verdict: Verdict) -> None:
        """Remember what a pass turned out to be."""
        if len(self._learned) >= SITES_KEPT:
            self._learned.clear()
        for key in _keys(run):
            before, loader = self._learned.get(key, (verdict, run.loader))
            agree = before is verdict or (before is not None and loader == run.loader)
            self._learned[key] = (verdict if agree else None, run.loader)

    def only_trained(self, run: Pass) -> bool:
        """Return whether passes in the other mode trained at this place, and those in this too."""
        own = (run.site, run.route, run.evaluating, run.grad)
        other = (run.site, run.route, not run.evaluating, run.grad)
        known = [self._learned[key][0] for key in (other, own) if key in self._learned]
        return other in self._learned and set(known) == {Verdict.TRAINING}

    def validation_name(self, site: Site, loader: int = 0, trained: int = 0) -> str:
        """Return ``validation`` for the first place that validates, then ``validation:2``…"""
        key = (site, self._turn(site, loader, trained) if loader else 0)
        if key not in self._validations and len(self._validations) >= SITES_KEPT:
            key = next(iter(self._validations))
        number = self._validations.setdefault(key, len(self._validations) + 1)
        return "validation" if number == 1 else f"validation:{number}"

    def name_alike(self, site: Site, loader: int, other: Site, trained: int) -> None:
        """Give what a loader does at a place the name that another place without one got."""
        number = self._validations.get((other, 0))
        if number is not None:
            self._validations.setdefault((site, self._turn(site, loader, trained)), number)

    def _turn(self, site: Site, loader: int, trained: int) -> int:
        """Return the index of a loader among those that come to a place in a round, from 0 on.

        A round is over once training has gone on, once one of its loaders comes again, and once
        none of them exists any more.
        """
        if site not in self._rounds and len(self._rounds) >= SITES_KEPT:
            self._rounds.clear()
        turns = self._rounds.setdefault(site, _Round(trained))
        if not turns.goes_on(trained, loader) or not any(map(self.is_alive, turns.present)):
            turns.trained, turns.present = trained, {}
        return turns.number_of(loader)


class _Round:
    """The loaders that came to a place since training went on the last time."""

    def __init__(self, trained: int) -> None:
        self.trained = trained
        self.present: dict[int, int] = {}
        self._known: dict[int, int] = {}

    def goes_on(self, trained: int, loader: int) -> bool:
        alike = trained == self.trained and loader not in self.present
        return alike and len(self.present) < LOADERS_KEPT

    def number_of(self, loader: int) -> int:
        taken = set(self.present.values())
        number = self._known.get(loader, 0)
        if number in taken:
            number = min({*range(len(taken) + 1)} - taken)
        if len(self._known) >= LOADERS_KEPT:
            self._known.clear()
        self._known.setdefault(loader, number)
        self.present[loader] = number
        return number


def _keys(run: Pass) -> Iterator[tuple[object, ...]]:
    yield (run.site, run.route, run.evaluating, run.grad, run.loader)
    yield (run.site, run.route, run.evaluating, run.grad)
    yield (run.site, run.route, run.loader)
    yield (run.site, None, run.evaluating, run.grad, run.loader)
