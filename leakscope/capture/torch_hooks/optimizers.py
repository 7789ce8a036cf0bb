"""Optimizer steps, and backward passes that fill gradients where no optimizer of torch's steps.

Whoever changes weights by hand, or by an optimizer of another library, trains all the same. Where
there is an optimizer they tell that a pass without a step is one of training.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from threading import RLock, get_ident
from types import ModuleType
from typing import Any

from leakscope.capture.dispatch import EventDispatcher, leave_hook
from leakscope.capture.phases import PhaseTracker
from leakscope.capture.torch_hooks.patching import (
    HookSource,
    PatchedMethod,
    compiler_callback,
    opaque,
    uncompiled,
    without_our_frame,
)
from leakscope.heap.pausing import is_in_backward

MOST_KNOWN_OPTIMIZERS = 256
"""Optimizers that are looked after: so many that live at once are no training's."""


class OptimizerHooks(HookSource):
    """Tells of every step of every ``torch.optim.Optimizer``."""

    module = "torch.optim.optimizer"

    def __init__(self, tracker: PhaseTracker, gate: EventDispatcher) -> None:
        self._tracker = tracker
        self._gate = gate
        self._handle: Any = None
        self._leads = False
        self._taking_over = RLock()
        self._stepping: object = None
        self._last: weakref.ref[object] | None = None
        self._known: dict[int, weakref.ref[object]] = {}

    def install(self, module: ModuleType) -> None:
        """Register the hook."""
        gate, dispatch = self._gate, self._gate.dispatch_found
        stepped = self._tracker.optimizer_step
        inside_compiled_code = compiler_callback(module)

        @opaque
        def after_step(optimizer: object, args: object, kwargs: object) -> None:
            try:
                if inside_compiled_code() is not None:
                    uncompiled(self._from_any_thread, id(optimizer))
                elif get_ident() == gate.thread:
                    self._leads, self._stepping = True, optimizer
                    if self._last is None or self._last() is not optimizer:
                        dispatch(self._meet, optimizer)
                    dispatch(stepped, id(optimizer))
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
        gone = {key for key, reference in self._known.items() if reference() is None}
        for key in gone:
            del self._known[key]
        if gone:
            self._tracker.forget(gone)
        if len(self._known) < MOST_KNOWN_OPTIMIZERS:
            self._known[id(optimizer)] = self._last

    def _from_any_thread(self, key: int) -> None:
        """Steps may be made by threads of a backward pass, by another one, or by several for
        themselves.
        """
        gate = self._gate
        if get_ident() == gate.thread:
            self._leads = True
            gate.dispatch_found(self._tracker.optimizer_step, key)
            return
        if gate.is_phase_control_claimed or not gate.is_open:
            return
        is_left = gate.is_left()
        belongs = is_in_backward() or not self._leads or is_left
        if belongs and gate.thread and not is_left and self._tracker.step_elsewhere():
            return
        if not self._leads or is_left:
            with self._taking_over:  # of threads that begin at the same time only one leads
                if not self._leads or gate.is_left():
                    if self._leads:
                        self._tracker.forget_optimizers()
                    gate.take_over()
                    self._leads = gate.thread == get_ident()
                    if self._leads:
                        gate.dispatch(self._tracker.optimizer_step, key)
                        return
        self._tracker.elsewhere.step(get_ident(), key)

    def uninstall(self) -> None:
        """Remove the hook."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()

    def steps_any(self, parameters: set[int]) -> bool:
        """Return whether the optimizer that steps just now has any of these, by address."""
        groups = getattr(self._stepping, "param_groups", None)
        if not isinstance(groups, list):
            return True  # not known
        return any(id(parameter) in parameters for group in groups for parameter in group["params"])

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


RUNS = "_engine_run_backward"
"""What ``backward()`` and ``grad()`` call, each by its own module's name for it."""
NO_OPTIMIZER = 0
"""The key of an optimizer that isn't seen."""


class BackwardHooks(HookSource):
    """Tells of backward passes: they are steps until the program makes an optimizer of torch's."""

    module = "torch.autograd"

    def __init__(
        self, tracker: PhaseTracker, gate: EventDispatcher, *, any_optimizer: Callable[[], bool]
    ) -> None:
        self._tracker = tracker
        self._gate = gate
        self._any_optimizer = any_optimizer
        self._has_optimizer = False

    def install(self, module: ModuleType) -> None:
        """Wrap torch's function, where this version has it."""
        if callable(vars(module).get(RUNS)):
            wrap = functools.partial(self._wrap, inside_compiled_code=compiler_callback(module))
            self._patches = (PatchedMethod(module, RUNS, wrap),)

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
                    gate.dispatch_found(passed)
                elif not self._has_optimizer:
                    uncompiled(gate.dispatch_found, passed)
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
            self._tracker.optimizer_step(NO_OPTIMIZER)


class OptimizerSteps:
    """Listens to every ``torch.optim.Optimizer`` of the process."""

    def __init__(self) -> None:
        self._handle: Any = None
        self.has_stepped = False
        """Whether any has since :meth:`stepped_since_last_query` was called."""

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process doesn't listen yet."""
        return {"_handle": None, "has_stepped": False}

    def listen(self) -> None:
        """Begin to listen."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        @opaque
        def after_step(optimizer: object, args: object, kwargs: object) -> None:
            self.has_stepped = True

        if self._handle is None:
            self.has_stepped = False
            self._handle = register_optimizer_step_post_hook(after_step)

    def stepped_since_last_query(self) -> bool:
        """Return whether any has stepped since the last call."""
        stepped, self.has_stepped = self.has_stepped, False
        return stepped

    def close(self) -> None:
        """Listen no more."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()
