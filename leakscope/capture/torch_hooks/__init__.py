"""Boundaries that are found by themselves: torch reports loaders, optimizers and modes, Keras of
its trainings. Nothing here imports torch or Keras.

Its lists of callbacks are listened to as they are: a callback more would have Keras call those of
the program in another way. Loops around ``train_on_batch()`` are found as any, once it reports that
they train: Keras leaves a model in evaluation mode after ``evaluate()`` and ``predict()``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from leakscope.capture.dispatch import EventDispatcher, leave_hook
from leakscope.capture.phases import PhaseTracker
from leakscope.capture.torch_hooks.loaders import LoaderHooks, OuterPasses
from leakscope.capture.torch_hooks.models import CompilerHooks, ForwardHooks, ModeHooks
from leakscope.capture.torch_hooks.optimizers import BackwardHooks, OptimizerHooks
from leakscope.capture.torch_hooks.patching import (
    HookSource,
    ImportWatch,
    PatchedMethod,
    opaque,
    surrounded,
    without_our_frame,
)
from leakscope.model.errors import ours

BEGINNINGS = ("on_train_begin", "on_epoch_begin", "on_test_begin", "on_predict_begin")
ENDINGS = (
    "on_train_batch_end", "on_epoch_end", "on_test_batch_end", "on_test_end",
    "on_predict_batch_end", "on_predict_end",
)  # fmt: skip
JOINING = "leakscope.capture.frameworks.keras"
"""Imported by name, and late: it tells a session, which begins with what is here."""
CALLBACKS = 5
"""The place of ``callbacks`` among the arguments of ``fit``."""


class KerasHooks(HookSource):
    """Wraps ``fit`` and ``train_on_batch`` of the trainer, and the events of lists of callbacks."""

    module = "keras.src.backend.torch.trainer"
    """Imported on the torch backend alone."""

    def __init__(self, gate: EventDispatcher, *, trains: Callable[[Any], None]) -> None:
        self._gate = gate
        self._trains = trains
        self._fits: Any = None
        self._is_joined = False
        self._callbacks: type | None = None

    def install(self, module: ModuleType) -> None:
        """Wrap the methods, unless this version of Keras has others."""
        trainer = getattr(module, "TorchTrainer", None)
        callbacks = getattr(getattr(module, "callbacks_module", None), "CallbackList", None)
        if not isinstance(trainer, type) or not isinstance(callbacks, type):
            return
        if "fit" not in vars(trainer) or not vars(callbacks).keys() >= {*BEGINNINGS, *ENDINGS}:
            return
        self._callbacks = callbacks
        patches = [PatchedMethod(trainer, "fit", self._wrap_fit)]
        if "train_on_batch" in vars(trainer):
            patches.append(PatchedMethod(trainer, "train_on_batch", self._wrap_batch))
        events = (PatchedMethod(callbacks, n, self._wrapper_of(n)) for n in BEGINNINGS + ENDINGS)
        self._patches = (*patches, *events)

    def uninstall(self) -> None:
        """Put the methods back."""
        super().uninstall()
        self._fits = None

    def _wrap_fit(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(model: Any, *args: Any, **kwargs: Any) -> Any:
            return self._join(args, kwargs)

        def end(fits: Any, error: BaseException | None) -> None:
            if fits is not None:
                self._is_joined = False
                fits.end()

        return opaque(surrounded(original, begin, end))

    def _wrap_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        gate, trains = self._gate, self._trains

        @opaque
        @functools.wraps(original)
        def train_on_batch(model: Any, *args: Any, **kwargs: Any) -> Any:
            if gate.is_training_thread():
                try:
                    gate.dispatch(trains, model)
                except BaseException as interrupt:
                    leave_hook(interrupt)
                    raise
            try:
                return original(model, *args, **kwargs)
            except BaseException as error:
                without_our_frame(error)
                raise

        return train_on_batch

    def _wrapper_of(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        is_beginning = name in BEGINNINGS

        def begin(callbacks: Any, *args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
            if is_beginning:
                self._dispatch(name, callbacks, args)
            return callbacks, args

        def end(begun: tuple[Any, tuple[Any, ...]], error: BaseException | None) -> None:
            if not is_beginning and error is None:
                self._dispatch(name, *begun)

        return lambda original: surrounded(original, begin, end)

    def _join(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the ``JoinedFits`` that follows a ``fit()`` with these arguments, if any does.

        A list of callbacks of a class of its own may keep events to itself.
        """
        try:
            if self._is_joined or not self._gate.is_training_thread():
                return None
            joining = import_module(JOINING)
            callbacks = args[CALLBACKS] if len(args) > CALLBACKS else kwargs.get("callbacks")
            kind = self._callbacks
            if kind and isinstance(callbacks, kind) and type(callbacks) is not kind:
                return None
            if joining.contains_ours(callbacks):
                return None
            if self._fits is None:
                self._fits = joining.JoinedFits()
            self._is_joined = bool(self._fits.begin())
            return self._fits if self._is_joined else None
        except ours(Exception):
            return None

    def _dispatch(self, name: str, callbacks: Any, args: tuple[Any, ...]) -> None:
        if self._is_joined and self._fits is not None:
            self._fits.dispatch(name, callbacks, *args)
        elif (joining := sys.modules.get(JOINING)) is not None:
            joining.dispatch_nested(name, callbacks)


class AutoBoundaries:
    """Feeds a tracker with what torch does in this process."""

    def __init__(self, tracker: PhaseTracker, gate: EventDispatcher) -> None:
        optimizers = OptimizerHooks(tracker, gate)
        modes = ModeHooks(tracker, gate)
        forwards = ForwardHooks(tracker, gate, modes)
        loaders = LoaderHooks(tracker, gate)
        self._sources: list[HookSource] = [
            optimizers,
            modes,
            forwards,
            CompilerHooks(forwards),
            loaders,
            OuterPasses(loaders, gate),
            BackwardHooks(tracker, gate, any_optimizer=optimizers.any_made),
            KerasHooks(gate, trains=modes.trains),
        ]
        self._watch = ImportWatch({source.module: source.install for source in self._sources})
        tracker.evaluated.still = modes.still_evaluating
        tracker.tuning.tunes = lambda keys: optimizers.steps_any(modes.parameters(keys))
        tracker.surroundings = lambda: (grad_enabled(), optimizers.any_made())

    def install(self) -> None:
        """Hook what is imported and wait for the rest."""
        self._watch.start()

    def uninstall(self) -> None:
        """Take back every hook."""
        self._watch.stop()
        for source in self._sources:
            source.uninstall()


def grad_enabled() -> bool:
    """Return whether gradients are recorded just now; False in inference mode too."""
    torch = sys.modules.get("torch")
    return torch is None or bool(torch.is_grad_enabled())
