"""Training and evaluation mode, from ``nn.Module.train`` (which ``eval`` calls too)."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from leakscope.instrument.auto.classes import PatchedMethod, opaque, without_our_frame
from leakscope.instrument.gate import Gate
from leakscope.instrument.phases import PhaseTracker
from leakscope.instrument.sites import Numbers, call_site
from leakscope.instrument.tracebacks import leave_hook

MODULES_SEARCHED = 20_000
MODULES_KEPT = 256


class ModeHooks:
    """Tells which modules are put into evaluation mode and back."""

    module = "torch.nn.modules.module"

    def __init__(self, tracker: PhaseTracker, gate: Gate) -> None:
        self._tracker = tracker
        self._gate = gate
        self._patch: PatchedMethod | None = None
        self._inside = False
        self._modules = Numbers()
        self._training: set[int] = set()

    def install(self, module: ModuleType) -> None:
        """Wrap ``nn.Module.train``."""
        self._patch = PatchedMethod(module.Module, "train", self._wrap_train)

    def uninstall(self) -> None:
        """Put the method back."""
        if self._patch is not None:
            self._patch.remove()
        self._patch = None
        self._modules.clear()

    def number(self, module: Any) -> int:
        """Return the number by which the tracker knows a module."""
        return self._modules.of(module)

    def is_evaluating(self, module: Any) -> bool:
        """Return whether a module is in evaluation mode, or all that it wraps is."""
        while _is_training(module):
            children = _children(module) if self._tracker.evaluated else []
            if len(children) != 1 or children[0] is None:
                return False
            module = children[0]
        return True

    def trains(self, module: Any) -> None:
        """A module is about to be trained, whatever its mode says: some trainers leave it."""
        if self._tracker.evaluated or self._tracker.forwards.is_expected:
            self._changed(module, True)

    def still_evaluating(self, keys: set[int]) -> set[int]:
        """Return those modules that are in evaluation mode: some trainers set the mode unheard."""
        if not keys:
            return keys
        modules = dict(self._modules.known())
        return {key for key in keys if key in modules and not _is_training(modules[key])}

    def parameters(self, keys: set[int]) -> set[int]:
        """Return the addresses of all parameters of modules."""
        modules = [module for key, module in self._modules.known() if key in keys]
        return {
            id(parameter)
            for module in modules
            for part in _parts(module)
            for parameter in _held(part, "_parameters").values()
        }

    def _wrap_train(self, original: Callable[..., Any]) -> Callable[..., Any]:
        gate = self._gate

        @opaque
        @functools.wraps(original)
        def train(module: Any, mode: bool = True) -> Any:
            # A module's own recursion into its children is no change of mode of its own.
            if self._inside or not gate.is_training_thread():
                return original(module, mode)
            self._inside = True
            try:
                result = original(module, mode)
            except BaseException as error:
                without_our_frame(error)
                raise
            finally:
                self._inside = False
            try:
                gate.hear(self._changed, module, bool(mode))
            except BaseException as interrupt:
                leave_hook(interrupt)
                raise
            return result

        return train

    def _changed(self, module: Any, mode: bool) -> None:
        self._bound()
        key = self._modules.of(module)
        if mode:
            self._training.add(key)
            numbers = (self._modules.find(part) for part in _parts(module))
            keys = {number for number in numbers if number is not None}
            self._tracker.train(keys)
        elif not self._is_frozen_part(module):
            self._training.discard(key)
            self._tracker.evaluate(key, call_site())

    def _is_frozen_part(self, module: Any) -> bool:
        """Whether it lies inside a module that was told to train: a backbone that is held still."""
        for number, other in self._modules.known():
            if number not in self._training or _unwrapped(other, module):
                continue
            if any(part is module for part in _parts(other)):
                return True
        return False

    def _bound(self) -> None:
        if len(self._training) > MODULES_KEPT:
            self._training.clear()


def _parts(module: Any) -> Iterator[Any]:
    """Yield a module and all modules inside it, running nothing of the user's."""
    seen: set[int] = set()
    waiting = [module]
    while waiting and len(seen) < MODULES_SEARCHED:
        part = waiting.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        waiting += _children(part)


def _unwrapped(wrapper: Any, module: Any) -> bool:
    """Return whether a module is all that its wrappers wrap (DataParallel, a compiled module)."""
    while wrapper is not module:
        children = _children(wrapper)
        if len(children) != 1:
            return False
        wrapper = children[0]
    return True


def _children(module: Any) -> list[Any]:
    return list(_held(module, "_modules").values())


def _held(module: Any, name: str) -> Mapping[str, Any]:
    found = object.__getattribute__(module, "__dict__").get(name)
    return found if type(found) in _MAPPINGS else {}


def _is_training(module: Any) -> bool:
    return bool(object.__getattribute__(module, "__dict__").get("training"))


_MAPPINGS = (dict, OrderedDict)
