"""Phases and steps as somebody tells them who knows, while nothing is found by itself."""

from __future__ import annotations

from leakscope.instrument.iterations import Iterations
from leakscope.instrument.stack import TRAIN, Phase, PhaseStack


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
