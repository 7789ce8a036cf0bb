"""Evaluation without a loader: forward passes outside of training are its batches.

Told of are the calls of outermost modules, in evaluation mode or without gradients, while no pass
over a loader is under way. A series of them becomes a phase by these rules, the first that fits:

1. ``eval()`` was called since the last step: at once; before the first step of all, where it may
   have been that of a frozen part, after a few calls or once ``train()`` is called.
2. Nothing trains: no optimizer was made, no step done. The second call begins ``inference``.
3. The module is in evaluation mode and nothing was trained so far: after a few calls.
4. Calls without gradients come after some steps without any, and take as much as those of the
   training: the second call begins a phase. Calls in nearly every step are parts of it, as those of
   teachers and of agents that act, and so are those of an agent that acts on one state at a time.

A phase ends with ``train()``, a step, a pass over a loader, a call that trains, and ``eval()``
unless that is called before each call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from leakscope.instrument.iterations import Iterations
from leakscope.instrument.passes import Sites
from leakscope.instrument.sites import Site
from leakscope.instrument.stack import Phase, PhaseStack

INFERENCE = "inference"
"""The phase of forward passes where nothing trains."""
FEW = 4
"""Calls in a row before the first step that are no part of it: teachers are called once or twice,
with another view of the batch each time."""
PLAIN_STEPS = 8
"""Steps without a call outside of training, after which such calls are no parts of steps."""
OTHERS_CALLED = 8
"""Calls of another module since the last one of the first, after which its calls count."""


@dataclass(slots=True)
class Call:
    """A call of an outermost module."""

    module: int
    evaluating: bool = True
    """In evaluation mode or without gradients."""
    mode: bool = True
    """In evaluation mode."""
    large: bool = True
    """What it takes is no smaller than what the training's calls take."""


class ForwardPasses:
    """Opens and closes the phases of forward passes."""

    def __init__(self, stack: PhaseStack, iterations: Iterations, sites: Sites) -> None:
        self._stack = stack
        self._iterations = iterations
        self._sites = sites
        self._phase: Phase | None = None
        self._armed: tuple[int, Site] | None = None
        """The module last put into evaluation mode, and where."""
        self._leader = 0
        """The module whose calls count: the first of the series."""
        self._others: dict[int, int] = {}
        """Calls of the others since the last one of the first."""
        self._calls = 0
        self._since_mode = 0
        """Calls that count since ``eval()`` was called."""
        self._touched = False
        """Whether there was a call since the last step that is in no phase."""
        self._plain_steps = 0

    @property
    def is_open(self) -> bool:
        """Whether a phase of forward passes is under way."""
        return self._phase is not None and self._phase in self._stack

    @property
    def is_in_series(self) -> bool:
        """Whether there were calls that may become a phase, or are one."""
        return self._leader != 0

    @property
    def is_expected(self) -> bool:
        """Whether calls matter even while a loader is at work."""
        return self._armed is not None or self.is_open

    def owns(self, phase: Phase) -> bool:
        """Return whether a phase is the one of forward passes."""
        return phase is self._phase

    def evaluate(self, module: int, site: Site) -> None:
        """A module was put into evaluation mode."""
        if self._since_mode > 1:
            self.end()
        self._armed, self._since_mode = (module, site), 0

    def train(self, modules: set[int]) -> None:
        """Modules went back to training mode."""
        armed = 0 if self._armed is None else self._armed[0]
        if self.is_open and modules & {armed, self._leader}:
            self.end()
        elif armed in modules:
            if self._calls > 1:
                self._begin(trains=True, place=lambda: ("", 0))
            self.end()

    def called(
        self, call: Call, *, stepped: bool, optimizers: bool, place: Callable[[], Site]
    ) -> None:
        """A module is called: what was done with its last result is done."""
        if not call.evaluating:
            if call.module == self._leader:
                self.end()
            return
        self._touched = self._touched or self._phase is None
        if not self._counts(call.module):
            return
        self._calls += 1
        self._since_mode += 1
        if self._phase is not None and self.is_open:
            self._iterations.batch_ends(self._phase)
            self._phase.in_hand = True
        elif self._calls >= self._enough(call, stepped=stepped, optimizers=optimizers):
            self._begin(trains=stepped or optimizers, place=place)

    def called_elsewhere(self) -> None:
        """Another thread than the one that is heard calls a module, as those of a server do."""
        phase = self._phase
        if phase is not None and phase.name == INFERENCE:
            phase.batch += 1

    def hand_over(self) -> tuple[Phase, Site] | None:
        """Give up the innermost phase, if it is one of forward passes, with where it was begun."""
        phase, armed = self._phase, self._armed
        if phase is None or phase is not self._stack.top or armed is None:
            return None
        phase.in_hand = False
        self.forget()
        return phase, armed[1]

    def end(self) -> None:
        """The series is over, the last batch with it."""
        phase = self._phase
        self.forget()
        if phase is not None and phase in self._stack:
            phase.in_hand = False
            self._iterations.batch_ends(phase)
            self._stack.end(phase)

    def stepped(self) -> None:
        """An optimizer has stepped."""
        if not self._touched and self._armed is None and self._phase is None:
            self._plain_steps += 1
            return
        self._plain_steps = 0 if self._touched else self._plain_steps + 1
        self._touched = False
        self.forget()

    def disarm(self) -> None:
        """A loader comes before any call."""
        if not self.is_open:
            self.forget()

    def forget(self) -> None:
        """Leave the phase to somebody else; a new series is to begin."""
        self._phase = self._armed = None
        self._leader = self._calls = self._since_mode = 0
        self._others.clear()

    def _counts(self, module: int) -> bool:
        """Return whether a call is a batch: one of the first module, or of one that goes on alone.

        ``decode(encode(batch))`` is one batch.
        """
        if module == self._leader or not self._leader:
            self._leader = module
            self._others.clear()
            return True
        before = self._others[module] = self._others.get(module, 0) + 1
        if before <= OTHERS_CALLED:
            return False
        self._leader = module
        self._others.clear()
        self._calls += OTHERS_CALLED
        if self._phase is not None:
            self._phase.batch += OTHERS_CALLED
        return True

    def _enough(self, call: Call, *, stepped: bool, optimizers: bool) -> float:
        """Return how many calls make a phase."""
        if self._armed is not None:
            return 1 if stepped or not optimizers else FEW
        if not stepped and not optimizers:
            return 2
        if not stepped:
            return FEW if call.mode else inf
        return 2 if call.large and self._plain_steps >= PLAIN_STEPS else inf

    def _begin(self, *, trains: bool, place: Callable[[], Site]) -> None:
        top = self._stack.top
        if top is not None and top.training:
            self._iterations.flush(top)
        site = place() if self._armed is None else self._armed[1]
        name = self._sites.validation_name(site) if trains else INFERENCE
        self._phase = phase = self._stack.begin(name, training=False)
        phase.batch, phase.in_hand = self._calls - 1, True
        self._touched = False
