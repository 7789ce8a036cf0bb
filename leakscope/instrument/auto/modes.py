"""Training and evaluation mode, from ``nn.Module.train`` (which ``eval`` calls too).

A validation that uses no loader has its batches in the forward passes of the module that was put
into evaluation mode, or of its first part where its own methods are called; they are listened to
only while no loader is at work.
"""

from __future__ import annotations

import functools
import sys
import weakref
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
    """Tells which modules are put into evaluation mode, and of their calls while they matter."""

    module = "torch.nn.modules.module"

    def __init__(self, tracker: PhaseTracker, gate: Gate) -> None:
        self._tracker = tracker
        self._gate = gate
        self._torch: ModuleType | None = None
        self._patch: PatchedMethod | None = None
        self._inside = False
        self._modules = Numbers()
        self._training: set[int] = set()
        self._plain: dict[int, bool] = {}
        self._listening: PatchedMethod | None = None

    def install(self, module: ModuleType) -> None:
        """Wrap ``nn.Module.train``."""
        self._torch = module
        self._patch = PatchedMethod(module.Module, "train", self._wrap_train)

    def uninstall(self) -> None:
        """Put the method back and listen no more."""
        if self._patch is not None:
            self._patch.remove()
        self._patch = None
        self._unlisten()
        self._modules.clear()

    def stop_listening(self) -> None:
        """Listen no more to forward passes unless the tracker still wants them."""
        if self._listening is not None and self._tracker.watched is None:
            self._unlisten()

    def trains(self, module: Any) -> None:
        """A module is about to be trained, whatever its mode says: some trainers leave it."""
        if self._tracker.evaluated or self._tracker.watched is not None:
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
            self.stop_listening()
        elif not self._is_frozen_part(module):
            self._training.discard(key)
            self._tracker.evaluate(key, call_site())
            if self._tracker.watched == key:
                self._listen(module, key)

    def _is_frozen_part(self, module: Any) -> bool:
        """Whether it lies inside a module that was told to train: a backbone that is held still."""
        for number, other in self._modules.known():
            if number not in self._training or _unwrapped(other, module):
                continue
            if any(part is module for part in _parts(other)):
                return True
        return False

    def _listen(self, module: Any, key: int) -> None:
        self._unlisten()
        if self._torch is None or not self._is_plain(module, key):
            return
        gate, tracker = self._gate, self._tracker
        calls = _Calls(self._modules, module)

        def before_forward(called: Any) -> None:
            try:
                if tracker.watched is None:
                    self._unlisten()
                elif calls.stand_for(tracker.watched, called):
                    gate.hear_found(tracker.forward, tracker.watched)
            except BaseException as interrupt:
                leave_hook(interrupt)
                raise

        wrap = functools.partial(_wrap_call, before=before_forward)
        self._listening = PatchedMethod(self._torch.Module, "_call_impl", wrap)

    def _unlisten(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.remove()

    def _is_plain(self, module: Any, key: int) -> bool:
        """Whether a global hook leaves it as it is: compiled modules would be compiled anew."""
        plain = self._plain.get(key)
        if plain is None:
            plain = self._plain[key] = not any(map(_is_compiled, _parts(module)))
        return plain

    def _bound(self) -> None:
        if len(self._training) + len(self._plain) > MODULES_KEPT:
            self._training.clear()
            self._plain.clear()


def _wrap_call(original: Callable[..., Any], before: Callable[[Any], None]) -> Callable[..., Any]:
    """Wrap what every call of a module goes through; a hook would change its traceback.

    The compiler looks into it and finds the original.
    """
    compiler = sys.modules.get("torch.compiler")
    is_compiling = getattr(compiler, "is_compiling", None) or (lambda: False)

    @functools.wraps(original)
    def _call_impl(module: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(module, *args, **kwargs)
        before(module)
        try:
            return original(module, *args, **kwargs)
        except BaseException as error:
            without_our_frame(error)
            del module, args, kwargs  # whoever clears the traceback's frames doesn't find ours
            raise

    return _call_impl


class _Calls:
    """Tells which calls stand for forward passes of a module.

    Its own do; those of its first part that is called, where nobody calls the module itself:
    ``model.vocabulary(model.states(tokens))``.
    """

    def __init__(self, numbers: Numbers, module: Any) -> None:
        self._numbers = numbers
        self._module = weakref.ref(module)
        self._parts: set[int] | None = None
        """By address, looked up where another module is called first: there may be thousands."""
        self._first = 0

    def stand_for(self, key: int, called: Any) -> bool:
        """Return whether a call is one of the module with this number."""
        if self._numbers.find(called) == key:
            self._parts = set()
            return True
        if self._parts is None:
            self._parts = {id(part) for part in _parts(self._module())}
        if id(called) not in self._parts:
            return False
        self._first = self._first or id(called)
        return self._first == id(called)


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


def _is_compiled(module: Any) -> bool:
    names = {kind.__name__ for kind in type(module).__mro__}
    if names & {"OptimizedModule", "ScriptModule"}:
        return True
    return object.__getattribute__(module, "__dict__").get("_compiled_call_impl") is not None
