"""Boundaries that are found by themselves: torch tells of loaders, optimizers and modes.

So do the loaders of Accelerate and the trainer of Keras. Nothing here imports torch. What the
program has imported is hooked at once, the rest when the program imports it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Protocol

from leakscope.instrument.auto.ahead import AheadHooks, OuterPasses
from leakscope.instrument.auto.backward import BackwardHooks
from leakscope.instrument.auto.forwards import CompilerHooks, ForwardHooks
from leakscope.instrument.auto.imports import ImportWatch
from leakscope.instrument.auto.keras import KerasHooks
from leakscope.instrument.auto.loaders import LoaderHooks
from leakscope.instrument.auto.modes import ModeHooks
from leakscope.instrument.auto.optimizers import OptimizerHooks
from leakscope.instrument.gate import Gate
from leakscope.instrument.phases import PhaseTracker


class Source(Protocol):
    """A part of a library that tells of boundaries."""

    module: str
    """The module that has to be there first."""

    def install(self, module: ModuleType) -> None:
        """Begin to listen."""

    def uninstall(self) -> None:
        """Leave the library as it was found."""


class AutoBoundaries:
    """Feeds a tracker with what torch does in this process."""

    def __init__(self, tracker: PhaseTracker, gate: Gate) -> None:
        optimizers = OptimizerHooks(tracker, gate)
        modes = ModeHooks(tracker, gate)
        forwards = ForwardHooks(tracker, gate, modes)
        loaders = LoaderHooks(tracker, gate)
        self._sources: list[Source] = [
            optimizers,
            modes,
            forwards,
            CompilerHooks(forwards),
            loaders,
            AheadHooks(OuterPasses(loaders, gate)),
            BackwardHooks(tracker, gate, any_optimizer=optimizers.any_made),
            KerasHooks(gate, trains=modes.trains),
        ]
        self._watch = ImportWatch({source.module: source.install for source in self._sources})
        tracker.evaluated.still = modes.still_evaluating
        tracker.tuning.tunes = lambda keys: optimizers.steps_any(modes.parameters(keys))
        tracker.surroundings = lambda: (grad_enabled(), optimizers.any_made())

    def install(self) -> None:
        """Hook what is imported and wait for the rest."""
        for source in self._sources:
            module = sys.modules.get(source.module)
            if module is not None and not _is_being_imported(module):
                self._watch.arrived(source.module)
                source.install(module)
        self._watch.start()

    def uninstall(self) -> None:
        """Take back every hook."""
        self._watch.stop()
        for source in self._sources:
            source.uninstall()


def grad_enabled() -> bool:
    """Return whether gradients are recorded just now; False in inference mode too."""
    torch = sys.modules.get("torch")
    if torch is None:
        return True
    return bool(torch.is_grad_enabled())


def _is_being_imported(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
