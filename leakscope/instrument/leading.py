"""Phases and steps as somebody tells them who knows: a framework, or the program's own calls."""

from __future__ import annotations

from collections.abc import Callable

from leakscope.instrument.iterations import Iterations
from leakscope.instrument.stack import TRAIN, Phase, PhaseStack
from leakscope.instrument.watch import ForwardPasses


class LedPhases:
    """What a framework's own events do to the open phases. Not re-entrant, as the tracker."""

    def __init__(self, stack: PhaseStack, iterations: Iterations) -> None:
        self._stack = stack
        self._iterations = iterations

    def resume(self, *, step: int, epoch: int) -> int:
        """A training goes on from a checkpoint; where others went before, counts go on instead.

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
    """What the program's own calls do to the open phases, beside what is found."""

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
