"""Validation without a loader: between ``eval()`` and ``train()`` forward passes are batches."""

from __future__ import annotations

from leakscope.instrument.iterations import Iterations
from leakscope.instrument.passes import Sites
from leakscope.instrument.sites import Site
from leakscope.instrument.stack import Phase, PhaseStack


class ForwardWatch:
    """Opens a phase with the first call of the module that was put into evaluation mode."""

    def __init__(self, stack: PhaseStack, iterations: Iterations, sites: Sites) -> None:
        self.module: int | None = None
        """The module whose calls matter just now."""
        self._stack = stack
        self._iterations = iterations
        self._sites = sites
        self._site: Site = ("", 0)
        self._calls = 0
        self._phase: Phase | None = None

    @property
    def is_open(self) -> bool:
        """Whether a validation without a loader is under way."""
        return self._phase is not None and self._phase in self._stack

    def begin(self, module: int, site: Site) -> None:
        """Watch a module from now on, instead of any other."""
        self.module, self._site, self._calls, self._phase = module, site, 0, None

    def disarm(self) -> None:
        """Forget a module that was not called so far."""
        if self._phase is None:
            self.module = None

    def called(self, *, certain: bool) -> None:
        """The module is called: what was done with its last result is done.

        Unless ``certain`` a single call tells nothing: it may be a frozen part of a training.
        """
        self._calls += 1
        if self._phase is not None and self._phase in self._stack:
            self._iterations.batch_ends(self._phase)
        elif certain or self._calls > 1:
            name, top = self._sites.validation_name(self._site), self._stack.top
            if top is not None and top.training:
                self._iterations.flush(top)
            self._phase = self._stack.begin(name, training=False)

    def hand_over(self) -> tuple[Phase, Site] | None:
        """Give up the innermost phase, if it is one of forward passes, with where it was begun."""
        phase = self._phase
        if phase is None or phase is not self._stack.top:
            return None
        self.forget()
        return phase, self._site

    def end(self) -> None:
        """The module goes back to training, or a loader takes over: end batch and phase."""
        phase, self.module, self._phase = self._phase, None, None
        if phase is not None and phase in self._stack:
            self._iterations.batch_ends(phase)
            self._stack.end(phase)

    def forget(self) -> None:
        """Watch no more; somebody else closes the phase."""
        self.module = self._phase = None
