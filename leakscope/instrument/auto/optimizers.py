"""Optimizer steps, from torch's own hook for every optimizer."""

from __future__ import annotations

import sys
import weakref
from threading import get_ident
from types import ModuleType
from typing import Any

from leakscope.instrument.auto.classes import opaque
from leakscope.instrument.auto.compiler import compiler_callback, uncompiled
from leakscope.instrument.autograd import is_in_backward
from leakscope.instrument.gate import Gate
from leakscope.instrument.phases import PhaseTracker
from leakscope.instrument.tracebacks import leave_hook

MOST_MET = 256
"""Optimizers that are looked after: so many that live at once are no training's."""


class OptimizerHooks:
    """Tells of every step of every ``torch.optim.Optimizer``."""

    module = "torch.optim.optimizer"

    def __init__(self, tracker: PhaseTracker, gate: Gate) -> None:
        self._tracker = tracker
        self._gate = gate
        self._handle: Any = None
        self._leads = False
        self._stepping: object = None
        self._last: weakref.ref[object] | None = None
        self._met: dict[int, weakref.ref[object]] = {}

    def install(self, module: ModuleType) -> None:
        """Register the hook."""
        gate, hear, stepped = self._gate, self._gate.hear_found, self._tracker.optimizer_step
        inside_compiled_code = compiler_callback(module)

        @opaque
        def after_step(optimizer: object, args: object, kwargs: object) -> None:
            try:
                if inside_compiled_code() is not None:
                    uncompiled(self._from_any_thread, id(optimizer))
                elif get_ident() == gate.thread:
                    self._leads, self._stepping = True, optimizer
                    if self._last is None or self._last() is not optimizer:
                        hear(self._meet, optimizer)
                    hear(stepped, id(optimizer))
                else:
                    self._from_any_thread(id(optimizer))
            except BaseException as interrupt:
                leave_hook(interrupt)
                raise
            finally:
                self._stepping = None

        self._handle = module.register_optimizer_step_post_hook(after_step)

    def _meet(self, optimizer: object) -> None:
        """Another optimizer steps than before: whoever is gone by now leads no more."""
        self._last = weakref.ref(optimizer)
        gone = {key for key, met in self._met.items() if met() is None}
        for key in gone:
            del self._met[key]
        if gone:
            self._tracker.forget(gone)
        if len(self._met) < MOST_MET:
            self._met[id(optimizer)] = self._last

    def _from_any_thread(self, key: int) -> None:
        """Steps may be made by the threads of a backward pass, by one thread for the one that is
        heard, or by several that train each for itself.
        """
        gate = self._gate
        if get_ident() == gate.thread:
            self._leads = True
            gate.hear_found(self._tracker.optimizer_step, key)
            return
        if gate.is_led or not gate.is_open:
            return
        is_left = gate.is_left()
        self._leads = self._leads and not is_left
        belongs = is_in_backward() or not self._leads
        if belongs and gate.thread and not is_left and self._tracker.step_elsewhere():
            return
        if self._leads:
            self._tracker.elsewhere.step(get_ident(), key)
        else:
            gate.take_over()
            self._leads = gate.thread == get_ident()
            gate.hear(self._tracker.optimizer_step, key)

    def uninstall(self) -> None:
        """Remove the hook."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()

    def steps_any(self, parameters: set[int]) -> bool:
        """Return whether the optimizer that steps just now has any of these, told by address."""
        groups = getattr(self._stepping, "param_groups", None)
        if not isinstance(groups, list):
            return True  # not known
        return any(id(one) in parameters for group in groups for one in group["params"])

    def any_made(self) -> bool:
        """Return whether the program has made an optimizer: torch marks its class then."""
        module = sys.modules.get(self.module)
        waiting = [] if module is None else [module.Optimizer]
        while waiting:
            kind = waiting.pop()
            if getattr(kind.__dict__.get("step"), "hooked", False):
                return True
            waiting += type.__subclasses__(kind)
        return False
