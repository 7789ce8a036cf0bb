"""Backward passes that fill gradients: the steps of programs that have no optimizer of torch's.

Whoever changes weights by hand, or by an optimizer of another library, trains all the same. Where
there is an optimizer they tell that a pass without a step is one of training.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from leakscope.instrument.auto.classes import opaque, without_our_frame
from leakscope.instrument.auto.compiler import compiler_callback, uncompiled
from leakscope.instrument.autograd import is_in_backward
from leakscope.instrument.gate import Gate
from leakscope.instrument.phases import PhaseTracker

RUNS = "_engine_run_backward"
"""What ``backward()`` and ``grad()`` call, each by its own module's name for it."""
NOBODY = 0
"""The key of an optimizer that isn't seen."""


class BackwardHooks:
    """Tells of backward passes: they are steps until the program makes an optimizer of torch's."""

    module = "torch.autograd"

    def __init__(
        self, tracker: PhaseTracker, gate: Gate, *, any_optimizer: Callable[[], bool]
    ) -> None:
        self._tracker = tracker
        self._gate = gate
        self._any_optimizer = any_optimizer
        self._has_optimizer = False
        self._module: ModuleType | None = None
        self._original: Callable[..., Any] | None = None
        self._ours: Callable[..., Any] | None = None

    def install(self, module: ModuleType) -> None:
        """Wrap torch's function, where this version has it."""
        original = vars(module).get(RUNS)
        if callable(original):
            self._module, self._original = module, original
            self._ours = self._wrap(original, compiler_callback(module))
            setattr(module, RUNS, self._ours)

    def uninstall(self) -> None:
        """Put the function back, unless somebody has wrapped ours since."""
        module, ours, self._ours = self._module, self._ours, None
        if module is not None and ours is not None and vars(module).get(RUNS) is ours:
            setattr(module, RUNS, self._original)
        self._module = self._original = None

    def _wrap(
        self, original: Callable[..., Any], inside_compiled_code: Callable[[], object]
    ) -> Callable[..., Any]:
        gate, passed = self._gate, self._passed

        @opaque
        @functools.wraps(original)
        def run_backward(*args: Any, **kwargs: Any) -> Any:
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                without_our_frame(error)
                raise
            if kwargs.get("accumulate_grad"):
                if inside_compiled_code() is None:
                    gate.hear_found(passed)
                elif not self._has_optimizer:
                    uncompiled(gate.hear_found, passed)
            return result

        return run_backward

    def _passed(self) -> None:
        """Gradients were filled; in evaluation mode it is those of what the model is given."""
        if is_in_backward():  # recomputes what a checkpoint dropped
            return
        self._has_optimizer = self._has_optimizer or self._any_optimizer()
        if self._has_optimizer:
            self._tracker.gradients()
            return
        evaluated = self._tracker.evaluated
        evaluated.look_again()
        if not evaluated:
            self._tracker.optimizer_step(NOBODY)
