"""One pass over a loader, and what earlier passes taught about its place in the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING

from leakscope.instrument.sites import Site

if TYPE_CHECKING:
    from leakscope.instrument.stack import Phase

SITES_KEPT = 512
LOADERS_KEPT = 64
NO_BATCH = -1


class Verdict(str, Enum):
    """What a pass over a loader is for."""

    TRAINING = "train"
    VALIDATION = "validation"


class Pass:
    """One iteration over a loader, from ``iter(loader)`` until it is exhausted or dropped."""

    __slots__ = (
        "asked",
        "born",
        "evaluating",
        "expected",
        "first",
        "grad",
        "gradients",
        "is_over",
        "loader",
        "moment",
        "phase",
        "route",
        "seen",
        "site",
        "token",
        "validated",
        "verdict",
    )

    def __init__(
        self,
        token: int,
        site: Site,
        *,
        route: int,
        loader: int,
        expected: int | None,
        born: int,
    ) -> None:
        self.token = token
        self.site = site
        self.route = route
        """The way through libraries to where it was made; 0 where the user's own code did."""
        self.loader = loader
        self.expected = expected
        self.born = born
        """How many passes had been asked for a batch when this one was made."""
        self.first = 0
        """The how-manieth pass it was to be asked; 0 before."""
        self.evaluating = False
        self.validated = False
        """Whether all modules in evaluation mode had their validation before it began."""
        self.grad = True
        self.gradients = False
        """Whether a backward pass has filled gradients in it."""
        self.is_over = False
        self.verdict: Verdict | None = None
        self.phase: Phase | None = None
        self.asked = 0
        """How often a batch was asked for."""
        self.moment = 0
        """When one was last asked for: counts what all passes together were asked for."""
        self.seen = 0
        """``phase.batch`` when this pass was last asked; ``NO_BATCH`` once it is over."""


class Sites:
    """Remembers what the passes begun at each place turned out to be.

    A place is a line of the user's code and the way from there through libraries, plus mode, grad
    state and loader, from the particular to the general, so that loaders which are rebuilt every
    epoch are still recognised and a function that trains and validates on the same line is told
    apart.
    """

    def __init__(self) -> None:
        self.is_alive: Callable[[int], bool] = lambda loader: False
        """Tells whether a loader still exists."""
        self._learned: dict[tuple[object, ...], tuple[Verdict | None, int]] = {}
        """What a key stands for, None for several things, and the last loader that told."""
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
                break  # a loader beside that one may be for something else, none in its place
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
        """Return ``validation`` for the first place that validates, then ``validation:2``…

        Of the loaders that come to one place in one round of evaluations each has a name of its
        own. ``trained`` tells rounds apart: it changes whenever training has gone on.
        """
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
        """Return as the how-manieth in its round a loader comes to a place, from 0 on.

        A round is over once training has gone on, once one of its loaders comes again, and once
        none of them exists any more: then they are made anew each time. A loader keeps its number
        where no other has it in this round.
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
        """Return whether a loader may belong to it still."""
        alike = trained == self.trained and loader not in self.present
        return alike and len(self.present) < LOADERS_KEPT

    def number_of(self, loader: int) -> int:
        """Return the number that a loader has in this round."""
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
