"""Optimizers that step within a validation: some tune at test time, some train what comes next."""

from __future__ import annotations

from collections.abc import Callable

from leakscope.instrument.evaluated import Evaluated
from leakscope.instrument.passes import Pass, Sites

TRAINS_AFTER_BATCHES = 2
"""One that still steps so many batches after its first trains; inner loops make theirs anew."""


class Tuning:
    """Tells whether an optimizer that steps within a validation belongs to it."""

    def __init__(self, evaluated: Evaluated, sites: Sites) -> None:
        self.tunes: Callable[[set[int]], bool] = lambda keys: True
        """Tells whether the optimizer that steps just now has parameters of these modules."""
        self._evaluated = evaluated
        self._sites = sites
        self._newcomer: tuple[int, Pass] | None = None
        self._since = 0

    def is_tuning(self, optimizer: int, run: Pass | None) -> bool:
        """Return whether an optimizer that never trained belongs to a validation.

        Args:
            optimizer: which one steps.
            run: the pass over a loader that the validation is, if it is one.

        """
        if run is None and not self.tunes(self._evaluated.keys):
            return False  # a student trains beside a teacher's forward passes
        if not self._evaluated:
            return run is not None and not run.grad
        return run is None or not self._trains(optimizer, run)

    def forget(self, gone: set[int]) -> None:
        """Optimizers are no more: another may be known by the same number."""
        if self._newcomer is not None and self._newcomer[0] in gone:
            self._newcomer = None

    def _trains(self, optimizer: int, run: Pass) -> bool:
        """Return whether a pass was taken for a validation for modules that were left behind.

        An exception that ends a trial in its validation, and is kept, keeps the model in evaluation
        mode with it. The next trial passes over a loader where nothing but training ever was, with
        an optimizer of other parameters, at every batch.
        """
        if not self._sites.only_trained(run) or self.tunes(self._evaluated.keys):
            return False
        if self._newcomer != (optimizer, run):
            self._newcomer, self._since = (optimizer, run), run.asked
        return run.asked >= self._since + TRAINS_AFTER_BATCHES
