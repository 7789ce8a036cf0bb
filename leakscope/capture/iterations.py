"""Steps and batches: counted from optimizers and loaders, from forward passes, or reported by a
framework.

Forward passes are the calls of outermost modules, in evaluation mode or without gradients, while no
pass over a loader is under way. A series of them becomes a phase by these rules, the first that
fits:

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
from threading import Lock

from leakscope.capture.phase_stack import NO_BATCH, TRAIN, Emit, Pass, PassSites, Phase, PhaseStack
from leakscope.capture.sites import Site
from leakscope.model.boundary import BoundaryKind

MOST_ACCUMULATION = 32
PRIMARY_LOST_AFTER = 32
"""Another optimizer takes the lead after so many steps without the first one."""
ALONE_FOR = 64
"""One that comes when another has led for so many steps alone is that of a next training."""
NEXT_TRAINING_AFTER = 4
"""It takes the lead after so many steps without the first one: fewer are a game of two."""
TRAINED_FOR = 8
"""One that led for so many steps may have been a whole training."""


class Iterations:
    """Ends steps and batches of phases, unless the user alone says where they end."""

    def __init__(self, emit: Emit) -> None:
        self.steps = 0
        self.accumulation = 0
        """The most batches without a step that lay between two steps."""
        self.by_hand = False
        self._emit = emit
        self._primary: int | None = None
        self._since_primary = 0
        self._primary_steps = 0
        self._companions: set[int] = set()
        self._secondary: dict[int, None] = {}
        """Optimizers that stepped while another led, the last to come at the end."""
        self._made = self._made_before_primary = 0
        """Steps of all optimizers: so far, and before the leading one took the lead."""
        self._made_at: dict[int, int] = {}
        """How many had been made at the last one of each that stepped before the last."""
        self._last, self._in_a_row = 0, 0
        """The optimizer that stepped last, and how often without another in between."""
        self._newcomer = 0
        self._longest_game = 0
        """The most steps of others between two of one optimizer."""

    def silent(self, phase: Phase) -> bool:
        """Return whether the user alone says where this phase's steps end."""
        return phase.manual or (self.by_hand and phase.training)

    def step_ends(self, phase: Phase) -> None:
        """End an iteration in which an optimizer stepped."""
        self.steps += 1
        phase.steps += 1
        self.accumulation = max(self.accumulation, min(phase.micro, MOST_ACCUMULATION))
        phase.micro = phase.pending = 0
        phase.batch += 1
        self._emit(BoundaryKind.STEP, phase, "")

    def batch_ends(self, phase: Phase) -> None:
        """End a batch without a step."""
        phase.batch += 1
        self._emit(BoundaryKind.BATCH, phase, "")

    def leads(self, optimizer: int) -> bool:
        """Return whether this optimizer's steps are the ones that count, without a loader."""
        self._since_primary += 1
        self._made += 1
        if optimizer == self._last:
            self._in_a_row += 1
        else:
            self._meet(optimizer)
        if optimizer != self._primary and not self._becomes_primary(optimizer):
            if len(self._secondary) < ALONE_FOR:
                self._secondary[optimizer] = None
            return False
        self._since_primary = 0
        self._primary_steps += 1
        return True

    def _becomes_primary(self, optimizer: int) -> bool:
        patience = self._patience_with(optimizer)
        if self._primary is not None and self._since_primary <= patience:
            return False
        self._primary_steps = self._in_a_row - 1 if patience < PRIMARY_LOST_AFTER else 0
        self.steps += self._primary_steps
        self._primary, self._made_before_primary = optimizer, self._made - self._in_a_row
        self._companions.clear()
        return True

    def _meet(self, optimizer: int) -> None:
        """Another optimizer steps than before: note how long others did since its last step."""
        self._made_at[self._last] = self._made - 1
        before = self._made_at.pop(optimizer, None)
        if before is None:
            self._newcomer = optimizer
        else:
            self._longest_game = max(self._longest_game, self._made - 1 - before)
        self._last, self._in_a_row = optimizer, 1
        if len(self._made_at) > ALONE_FOR:
            del self._made_at[next(iter(self._made_at))]

    def forget(self, gone: set[int]) -> None:
        """Optimizers are gone: another leads at once, first one that stepped alongside them."""
        for known in (self._secondary, self._made_at):
            for optimizer in gone & known.keys():
                del known[optimizer]
        self._last = 0 if self._last in gone else self._last
        if self._primary in gone:
            others = (o for o in reversed(self._secondary) if self._stepped_since_primary(o))
            self._primary, self._since_primary, self._primary_steps = next(others, None), 0, 0
            self._companions.clear()

    def _stepped_since_primary(self, optimizer: int) -> bool:
        made_at = self._made if optimizer == self._last else self._made_at.get(optimizer, 0)
        return made_at > self._made_before_primary

    def _patience_with(self, optimizer: int) -> int:
        """Return after how many steps without the leading one another takes the lead.

        Trials of a search, folds and clients make an optimizer each, and those before may live on:
        one that was never met leads soon, unless it is a part of a game with those met before.
        """
        if optimizer == self._newcomer and self._primary_steps >= TRAINED_FOR:
            return max(NEXT_TRAINING_AFTER, self._longest_game)
        if self._primary_steps < ALONE_FOR and len(self._companions) < ALONE_FOR:
            self._companions.add(optimizer)
        return PRIMARY_LOST_AFTER if optimizer in self._companions else NEXT_TRAINING_AFTER

    def patience(self, run: Pass, *, stepped: bool) -> int:
        """Return after how many batches without a step a pass is none of training.

        Libraries may ask ahead for all batches of a step before they switch to training mode.
        """
        ahead = run.route and run.evaluating and not stepped
        return MOST_ACCUMULATION if ahead else self.accumulation

    def batch_requested(self, run: Pass, phase: Phase) -> None:
        """A pass fetches its next batch: end what its last one was used for."""
        if self.silent(phase):
            phase.pending = 0
        elif phase.pending and (phase.training or phase.explicit):
            self.step_ends(phase)
        elif phase.owner is run and phase.batch == run.seen:
            phase.micro += 1
            self.batch_ends(phase)

    def left(self, run: Pass, phase: Phase, *, dropped: bool) -> None:
        """A pass is over: end what was not ended by asking."""
        if not self.silent(phase):
            if phase.pending and (phase.training or phase.explicit):
                self.step_ends(phase)
            elif dropped and run.requests and not phase.training:
                self.batch_ends(phase)
        run.seen = NO_BATCH

    def flush(self, phase: Phase) -> None:
        """End what is under way in a phase that is interrupted or about to be closed.

        A loop that was left without notice has used the batch in hand: it counts, with no boundary.
        """
        if self.silent(phase):
            return
        run = phase.owner
        if phase.pending:
            self.step_ends(phase)
        elif phase.in_hand:
            phase.in_hand = False
            phase.batch += 1
        elif run is not None and run.requests and run.seen == phase.batch and not phase.training:
            phase.batch += 1


class OtherThreads:
    """Counts the steps of threads that train each for itself: they reach no boundary."""

    def __init__(self) -> None:
        self.steps = 0
        self._threads: dict[int, Iterations] = {}
        self._lock = Lock()

    def step(self, thread: int, optimizer: int) -> None:
        """An optimizer has stepped in a thread."""
        with self._lock:
            if thread not in self._threads and len(self._threads) >= ALONE_FOR:
                self._threads.clear()
            iterations = self._threads.setdefault(thread, Iterations(_nowhere))
            before = iterations.steps
            counts = iterations.leads(optimizer)
            iterations.steps += counts
            self.steps += iterations.steps - before


def _nowhere(kind: BoundaryKind, phase: Phase | None, label: str) -> None:
    """Receive boundaries and reach none."""


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
    large: bool = True
    """What it takes is no smaller than what the training's calls take."""


class ForwardPasses:
    """Opens and closes the phases of forward passes."""

    def __init__(self, stack: PhaseStack, iterations: Iterations, sites: PassSites) -> None:
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

    def called_elsewhere(self, module: int) -> None:
        """Another thread than the one that is followed calls a module, as those of a server do."""
        phase = self._phase
        is_counted = not self._leader or module == self._leader
        if is_counted and phase is not None and phase.name == INFERENCE:
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
        """Return whether a call is a batch: of the first module, or of one that goes on alone."""
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


class ExternalPhases:
    """What a framework's own events do to the open phases. Not re-entrant, as the tracker."""

    def __init__(self, stack: PhaseStack, iterations: Iterations) -> None:
        self._stack = stack
        self._iterations = iterations

    def resume(self, *, step: int, epoch: int) -> int:
        """Go on from a checkpoint; where others went before, counts go on instead.

        Return how many steps more are counted than those of the training.
        """
        if not self._iterations.steps and not self._stack.trainings:
            self._iterations.steps, self._stack.trainings = step, epoch
        return self._iterations.steps - step

    def begin(self, name: str, expected: int | None = None) -> Phase:
        """Open a phase that only :meth:`end` closes; ``expected`` batches, where that is known."""
        is_training = name == TRAIN
        phase = self._stack.begin(name, training=is_training, explicit=True, expected=expected)
        phase.manual = True
        return phase

    def step(self, phase: Phase) -> None:
        """An iteration of training in which an optimizer stepped has ended."""
        if phase in self._stack:
            self._iterations.step_ends(phase)

    def batch(self, phase: Phase) -> None:
        """A batch that stepped no optimizer has ended."""
        if phase in self._stack:
            self._iterations.batch_ends(phase)

    def end(self, phase: Phase) -> None:
        """Close a phase."""
        if phase in self._stack:
            self._stack.end(phase)


class NamedPhases:
    """What the program's own calls do to the open phases, alongside what is found."""

    def __init__(
        self,
        stack: PhaseStack,
        iterations: Iterations,
        forwards: ForwardPasses,
        settle: Callable[[], None],
    ) -> None:
        self._stack = stack
        self._iterations = iterations
        self._forwards = forwards
        self._settle = settle

    def phase_begin(self, name: str) -> Phase:
        """Open a phase that only :meth:`phase_end` closes."""
        self._forwards.end()
        top = self._stack.top
        if name == TRAIN and top is not None and top.training and not top.explicit:
            self._stack.end(top)
        phase = self._stack.begin(name, training=name == TRAIN, explicit=True)
        self._settle()
        return phase

    def phase_end(self, phase: Phase) -> None:
        """Close a phase that the user opened."""
        if phase in self._stack:
            self._stack.end(phase)
            self._settle()

    def step_over(self) -> None:
        """The user says that an iteration has ended: from now on nobody else does."""
        self._iterations.by_hand = True
        self._iterations.step_ends(self._stack.target() or self._stack.begin(TRAIN, training=True))
        self._settle()

    def steps_begin(self, expected: int | None = None) -> Phase:
        """The user names a loop of steps: return the phase they belong to, a new one if need be."""
        top = self._stack.top
        if top is not None and top.explicit and not top.manual:
            phase = top
        else:
            phase = self.phase_begin(TRAIN)
            phase.loop = True
        phase.manual, phase.expected = True, expected
        self._settle()
        return phase

    def steps_next(self, phase: Phase) -> None:
        """An iteration of the user's named loop has ended."""
        if phase not in self._stack:
            return
        self._stack.leave_to(phase)
        if phase.training or phase.pending:
            self._iterations.step_ends(phase)
        else:
            self._iterations.batch_ends(phase)
        self._settle()

    def steps_end(self, phase: Phase) -> None:
        """The user's named loop is over, or was left in the middle of an iteration."""
        if phase.pending:
            self.steps_next(phase)
        phase.manual = False
        if phase.loop:
            self.phase_end(phase)
