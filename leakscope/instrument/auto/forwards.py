"""Calls of outermost modules, listened to while the tracker wants them.

Every module is called through one method of ``nn.Module``: it is wrapped meanwhile, because a hook
would change tracebacks. Whether a call trains is read from the module's mode and the grad mode at
the call itself.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from threading import get_ident
from types import ModuleType
from typing import Any

from leakscope.instrument.auto.classes import PatchedMethod, without_our_frame
from leakscope.instrument.auto.compiler import compiles
from leakscope.instrument.auto.modes import ModeHooks
from leakscope.instrument.gate import Gate
from leakscope.instrument.phases import PhaseTracker
from leakscope.instrument.tracebacks import leave_hook
from leakscope.instrument.watch import Call
from leakscope.model.interrupts import ours

LOOK_EVERY = 16
"""Calls that train, of which one is looked at."""
KNOWN_METHOD = "unpatched_nn_module_call_impl"
AS_LARGE = 0.5
"""A batch of an evaluation has this share of the numbers of a batch of training, or more."""


class ForwardHooks:
    """Tells of calls of outermost modules: in evaluation mode, without gradients, or after such."""

    module = "torch"
    """All of it: the stand-in asks ``torch.compiler``."""

    def __init__(self, tracker: PhaseTracker, gate: Gate, modes: ModeHooks) -> None:
        self._tracker = tracker
        self._gate = gate
        self._modes = modes
        self._torch: ModuleType | None = None
        self._patch: PatchedMethod | None = None
        self._inside: set[int] = set()
        """Threads inside a module's call."""
        self._trained_calls = 0
        self._trained = 0
        """The size of what the last call that trains was given, of those looked at."""
        self._is_grad_enabled: Callable[[], bool] = lambda: True
        self.original: Callable[..., Any] | None = None
        """What the stand-in stands for."""
        tracker.on_listening = self.listen

    def install(self, module: ModuleType) -> None:
        """Listen if the tracker wants it."""
        self._torch, self._is_grad_enabled = module.nn, module.is_grad_enabled
        self.listen(self._tracker.listens)

    def uninstall(self) -> None:
        """Listen no more."""
        if self._patch is not None:
            self._patch.remove()
        self._torch = self._patch = None

    @property
    def stand_in(self) -> object:
        """What stands in for the method just now, if anything does."""
        if self._torch is None or self._patch is None:
            return None
        return vars(self._torch.Module).get("_call_impl")

    def listen(self, wanted: bool) -> None:
        """Begin or stop; not once torch compiles, which would compile everything once more."""
        if self._torch is None or wanted is (self._patch is not None) or compiles():
            return
        if self._patch is not None:
            self._patch.remove()
            self._patch = None
        else:
            self._patch = PatchedMethod(self._torch.Module, "_call_impl", self._wrap)

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the stand-in. The compiler looks into it and finds the original."""
        self.original = original
        compiler = sys.modules.get("torch.compiler")
        is_compiling = getattr(compiler, "is_dynamo_compiling", None) or (lambda: False)
        inside, called = self._inside, self._called

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
            elif self._is_heard():
                self._evaluates(module, args, mode=mode)
        except ours(Exception):
            return
        except BaseException as interrupt:
            leave_hook(interrupt)
            raise

    def _is_heard(self) -> bool:
        tracing = sys.modules["torch._C"]._get_tracing_state() is not None
        return self._tracker.listens and not self._gate.is_led and not tracing

    def _trains(self, module: Any, args: tuple[Any, ...]) -> None:
        self._trained_calls += 1
        if self._trained_calls % LOOK_EVERY == 1:
            self._trained = _size(args)
        if self._tracker.forwards.is_in_series and self._is_heard():
            call = Call(self._modes.number(module), evaluating=False, mode=False)
            self._gate.hear_found(self._tracker.forward, call)

    def _evaluates(self, module: Any, args: tuple[Any, ...], *, mode: bool) -> None:
        large = self._tracker.forwards.is_open or _size(args) >= AS_LARGE * self._trained
        call = Call(self._modes.number(module), mode=mode, large=large)
        if self._gate.thread in (0, get_ident()):
            self._gate.hear_found(self._tracker.forward, call)
        elif self._gate.thread not in self._inside:
            self._in_another_thread(call)

    def _in_another_thread(self, call: Call) -> None:
        """An engine may run in a thread of its own, requests be answered by many."""
        if self._tracker.is_idle or self._gate.is_left():
            self._gate.take_over()
            self._gate.hear_found(self._tracker.forward, call)
        else:
            self._tracker.forwards.called_elsewhere()


class CompilerHooks:
    """Has the compiler know the method of ``nn.Module`` that is no stand-in, to pass it over."""

    module = "torch._dynamo.utils"

    def __init__(self, forwards: ForwardHooks) -> None:
        self._forwards = forwards

    def install(self, module: ModuleType) -> None:
        """Look at what it took for the method when it was imported."""
        known = getattr(module, KNOWN_METHOD, None)
        if known is not None and known is self._forwards.stand_in:
            setattr(module, KNOWN_METHOD, self._forwards.original)

    def uninstall(self) -> None:
        """Nothing is left to take back."""


def _size(args: tuple[Any, ...]) -> int:
    """Return how many numbers the first argument has, if it is a plain tensor."""
    torch: Any = sys.modules["torch"]
    if not args or type(args[0]) is not torch.Tensor or torch._C._get_tracing_state() is not None:
        return 0
    with torch._C.DisableTorchFunction():
        return int(args[0].numel())
