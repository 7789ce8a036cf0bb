"""Calls of ``nn.Module``: training and evaluation mode, and forward passes of outermost modules.

Every module is called through one method of ``nn.Module``: it is wrapped meanwhile, because a hook
would change tracebacks. Whether a call trains is read from the module's mode and the grad mode at
the call itself.
"""

from __future__ import annotations

import functools
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from threading import get_ident
from types import ModuleType
from typing import Any

from leakscope.capture.dispatch import EventDispatcher, leave_hook
from leakscope.capture.iterations import Call
from leakscope.capture.phases import PhaseTracker
from leakscope.capture.sites import WeakNumbering, call_site
from leakscope.capture.torch_hooks.patching import (
    HookSource,
    PatchedMethod,
    compiles,
    opaque,
    passed_over,
    without_our_frame,
)
from leakscope.model.errors import ours

MODULES_SEARCHED = 20_000
MODULES_KEPT = 256


class ModeHooks(HookSource):
    """Tells which modules are put into evaluation mode and back."""

    module = "torch.nn.modules.module"

    def __init__(self, tracker: PhaseTracker, gate: EventDispatcher) -> None:
        self._tracker = tracker
        self._gate = gate
        self._inside = False
        self._modules = WeakNumbering()
        self._training: set[int] = set()

    def install(self, module: ModuleType) -> None:
        """Wrap ``nn.Module.train``."""
        self._patches = (PatchedMethod(module.Module, "train", self._wrap_train),)

    def uninstall(self) -> None:
        """Put the method back."""
        super().uninstall()
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
            for parameter in _values_of(part, "_parameters").values()
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
                gate.dispatch(self._changed, module, bool(mode))
            except BaseException as interrupt:
                leave_hook(interrupt)
                raise
            return result

        return train

    def _changed(self, module: Any, mode: bool) -> None:
        if len(self._training) > MODULES_KEPT:
            self._training.clear()
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
        """Whether it is inside a module in training mode: a frozen backbone."""
        return any(
            any(part is module for part in _parts(other))
            for number, other in self._modules.known()
            if number in self._training and not _unwrapped(other, module)
        )


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
    return list(_values_of(module, "_modules").values())


def _values_of(module: Any, name: str) -> Mapping[str, Any]:
    found = object.__getattribute__(module, "__dict__").get(name)
    return found if type(found) in (dict, OrderedDict) else {}


def _is_training(module: Any) -> bool:
    return bool(object.__getattribute__(module, "__dict__").get("training"))


MOST_APART = 4096
"""Threads that are remembered; a server may have one for each request."""
LOOK_EVERY = 16
"""Calls that train, of which one is looked at."""
KNOWN_METHOD = "unpatched_nn_module_call_impl"
AS_LARGE = 0.5
"""A batch of an evaluation has this share of the numbers of a batch of training, or more."""


class ForwardHooks(HookSource):
    """Tells of calls of outermost modules: in evaluation mode, without gradients, or after such."""

    module = "torch"
    """All of it: the stand-in asks ``torch.compiler``."""

    def __init__(self, tracker: PhaseTracker, gate: EventDispatcher, modes: ModeHooks) -> None:
        self._tracker = tracker
        self._gate = gate
        self._modes = modes
        self._torch: ModuleType | None = None
        self._inside: set[int] = set()
        self._apart: set[int] = set()
        """Threads seen to call modules while the one that is followed was in no call: what they
        call later is no part of its call, as that of DataParallel's threads is."""
        self._trained_calls = 0
        self._trained = 0
        """The size of what the last call that trains was given, of those looked at."""
        self._is_grad_enabled: Callable[[], bool] = lambda: True
        self.original: Callable[..., Any] | None = None
        tracker.on_listening = self.listen

    def install(self, module: ModuleType) -> None:
        """Listen if the tracker wants it."""
        self._torch, self._is_grad_enabled = module.nn, module.is_grad_enabled
        self.listen(self._tracker.listens)

    def uninstall(self) -> None:
        """Listen no more."""
        super().uninstall()
        self._torch = None

    @property
    def stand_in(self) -> object:
        """What stands in for the method just now, if anything does."""
        if self._torch is None or not self._patches:
            return None
        return vars(self._torch.Module).get("_call_impl")

    def listen(self, wanted: bool) -> None:
        """Begin or stop; not once torch compiles, which would compile everything once more."""
        if self._torch is None or wanted is bool(self._patches) or compiles():
            return
        if wanted:
            self._patches = (PatchedMethod(self._torch.Module, "_call_impl", self._wrap),)
        else:
            super().uninstall()

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the stand-in. The compiler looks into it and finds the original."""
        self.original = original
        compiler = sys.modules.get("torch.compiler")
        is_compiling = getattr(compiler, "is_dynamo_compiling", None) or (lambda: False)
        inside, called = self._inside, self._called

        @passed_over
        @functools.wraps(original)
        def _call_impl(module: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(module, *args, **kwargs)
            thread = get_ident()
            is_outermost = thread not in inside
            try:
                if is_outermost:
                    inside.add(thread)
                    called(module, args)
                return original(module, *args, **kwargs)
            except BaseException as error:
                without_our_frame(error)
                del module, args, kwargs  # whoever clears the traceback's frames doesn't find ours
                raise
            finally:
                if is_outermost:
                    inside.discard(thread)

        return _call_impl

    def _called(self, module: Any, args: tuple[Any, ...]) -> None:
        try:
            mode = self._modes.is_evaluating(module)
            if not mode and self._is_grad_enabled():
                self._trains(module, args)
            elif self._is_observed():
                self._evaluates(module, args, mode=mode)
        except ours(Exception):
            return
        except BaseException as interrupt:
            leave_hook(interrupt)
            raise

    def _is_observed(self) -> bool:
        tracing = sys.modules["torch._C"]._get_tracing_state() is not None
        return self._tracker.listens and not self._gate.is_phase_control_claimed and not tracing

    def _trains(self, module: Any, args: tuple[Any, ...]) -> None:
        self._trained_calls += 1
        if self._trained_calls % LOOK_EVERY == 1:
            self._trained = _size(args)
        if self._tracker.forwards.is_in_series and self._is_observed():
            call = Call(self._modes.number(module), evaluating=False, mode=False)
            self._gate.dispatch_found(self._tracker.forward, call)

    def _evaluates(self, module: Any, args: tuple[Any, ...], *, mode: bool) -> None:
        large = self._tracker.forwards.is_open or _size(args) >= AS_LARGE * self._trained
        call = Call(self._modes.number(module), mode=mode, large=large)
        me = get_ident()
        if self._gate.thread in (0, me):
            self._gate.dispatch_found(self._tracker.forward, call)
        elif self._gate.thread not in self._inside:
            if len(self._apart) >= MOST_APART:
                self._apart.clear()
            self._apart.add(me)
            self._in_another_thread(call)
        elif me in self._apart:
            self._tracker.forwards.called_elsewhere(call.module)

    def _in_another_thread(self, call: Call) -> None:
        """An engine may run in a thread of its own, requests be answered by many."""
        is_free = self._tracker.is_idle and not self._tracker.trained
        if is_free or self._gate.is_left():
            self._gate.take_over()
            self._gate.dispatch_found(self._tracker.forward, call)
        else:
            self._tracker.forwards.called_elsewhere(call.module)


class CompilerHooks(HookSource):
    """Has the compiler know the method of ``nn.Module`` that is no stand-in, to pass it over."""

    module = "torch._dynamo.utils"

    def __init__(self, forwards: ForwardHooks) -> None:
        self._forwards = forwards

    def install(self, module: ModuleType) -> None:
        """Restore the original method in a module that imported the stand-in."""
        known = getattr(module, KNOWN_METHOD, None)
        if known is not None and known is self._forwards.stand_in:
            setattr(module, KNOWN_METHOD, self._forwards.original)


def _size(args: tuple[Any, ...]) -> int:
    """Return how many numbers the first argument has, if it is a plain tensor."""
    torch: Any = sys.modules["torch"]
    if not args or type(args[0]) is not torch.Tensor or torch._C._get_tracing_state() is not None:
        return 0
    with torch._C.DisableTorchFunction():
        return int(args[0].numel())
