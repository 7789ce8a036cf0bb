"""Keras 3 on the torch backend: a callback, ``fit()``, and what lists of callbacks report of it.

Keras steps optimizers of its own, so steps are counted from what the optimizer says when a training
begins.

All of it where no callback of ours reports it; else what callbacks of the program evaluate and
predict meanwhile, whose lists have none of ours.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import keras

from leakscope.capture.frameworks.training import (
    FrameworkCallback,
    Training,
    contained,
    ours_once,
)
from leakscope.capture.torch_hooks.optimizers import OptimizerSteps
from leakscope.capture.torch_hooks.patching import LibraryPatches, without_our_frame
from leakscope.model.errors import LeakscopeError
from leakscope.model.errors import ours as faults

TRAIN, VALIDATION, TEST = "train", "validation", "test"


class FitCourse:
    """Passes the events of one ``fit()`` after the other on to a training."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._torch_steps = OptimizerSteps()
        self._is_new = True
        self._batches = self._done = 0
        self._counts: bool | None = None
        self._is_epoch_over = False

    def begin(self) -> None:
        """A ``fit()`` begins."""
        self._is_new, self._counts, self._is_epoch_over = True, None, False
        self._batches = self._done = 0
        self._torch_steps.listen()

    def begin_epoch(self, model: Any, epoch: int, expected: int | None) -> None:
        """Begin a training phase; the first one goes on from where the optimizer is."""
        self._close_epoch()
        if self._is_new:
            self._is_new = False
            self._batches = iterations(model)
            self._done = self._batches // _accumulation(model)
            self._training.resume(step=self._done, epoch=epoch)
        self._training.enter(TRAIN, expected)
        self._torch_steps.stepped_since_last_query()

    def end_batch(self, model: Any) -> int | None:
        """A batch is over: return the number of its step, None if the optimizer made none."""
        if not self._has_stepped(model):
            self._training.batch()
            return None
        self._done += 1
        self._training.step()
        return self._done

    def end_epoch(self) -> None:
        """The epoch is over, but for what callbacks after this one evaluate."""
        self._training.leave(TRAIN)
        self._is_epoch_over = True

    def evaluate(self, event: str, *, after_training: bool = False) -> None:
        """Pass on an event of evaluating or predicting, named as the method of a callback.

        ``after_training`` where it comes after the batches of the epoch, not between them.
        """
        if event == "on_test_begin":
            if after_training:
                self._training.leave(TRAIN)
            self._training.enter(VALIDATION)
        elif event == "on_predict_begin":
            self._training.enter(TEST)
        elif event in ("on_test_batch_end", "on_predict_batch_end"):
            self._training.batch()
        elif event == "on_test_end":
            self._training.leave(VALIDATION)
        elif event == "on_predict_end":
            self._training.leave(TEST)

    def close(self) -> None:
        """The ``fit()`` is over: listen no more."""
        self._torch_steps.close()

    def end(self) -> None:
        """Close what is open; an epoch that is not over by now was broken off."""
        self._training.leave_all()
        self._close_epoch()

    def _close_epoch(self) -> None:
        if self._is_epoch_over:
            self._is_epoch_over = False
            self._training.end_epoch()

    def _has_stepped(self, model: Any) -> bool:
        """Return whether the batch was a step: of Keras's optimizer, or of one of torch's."""
        by_torch = self._torch_steps.stepped_since_last_query()
        if self._counts is None:
            # Asked once: on a device each answer would wait for all that is under way.
            self._counts = iterations(model) > self._batches
        self._batches += 1
        return by_torch or (self._counts and self._batches % _accumulation(model) == 0)


def iterations(model: Any) -> int:
    """Return the batches that the model's optimizer was given so far."""
    counted = getattr(_optimizer(model), "_iterations", None)
    return 0 if counted is None else int(counted)


def _accumulation(model: Any) -> int:
    return getattr(_optimizer(model), "gradient_accumulation_steps", None) or 1


def _optimizer(model: Any) -> Any:
    optimizer = getattr(model, "optimizer", None)
    return getattr(optimizer, "inner_optimizer", optimizer)


_listeners: list[LeakScopeCallback] = []


@contextmanager
def listening(callbacks: Sequence[LeakScopeCallback]) -> Iterator[None]:
    """Send these callbacks the evaluations and predictions of others in their ``fit()``."""
    _listeners.extend(callbacks)
    try:
        yield
    finally:
        del _listeners[len(_listeners) - len(callbacks) :]


def dispatch_nested(event: str, callbacks: Any) -> None:
    """A list of callbacks receives an event: pass it on where it has none of ours."""
    try:
        listeners = () if not _listeners or contains_ours(callbacks) else tuple(_listeners)
    except faults(Exception):
        return
    for callback in listeners:
        callback.dispatch_nested(event)


class JoinedFits(FrameworkCallback):
    """Tells the session that runs of one ``fit()`` after the other; it starts none itself.

    Of the lists of callbacks that are followed the first one is that of ``fit()``. The others are
    those of evaluations and predictions that the program's own callbacks make meanwhile.
    """

    def __init__(self) -> None:
        self.training = Training({})
        self._course = FitCourse(self.training)
        self._thread = 0
        self._list: weakref.ref[Any] | None = None

    @contained
    def begin(self) -> bool:
        """A ``fit()`` is called; return whether its events are passed on from now on."""
        self.training.begin(joins=True)
        if not self.training.leads:
            self.training.end()
            return False
        self._thread, self._list = get_ident(), None
        self._course.begin()
        return True

    @contained
    def end(self) -> None:
        """The ``fit()`` is over, with an error or without."""
        self._list = None
        self._course.close()
        try:
            self._course.end()
        finally:
            self.training.end()

    @contained
    def dispatch(self, event: str, callbacks: Any, *args: Any) -> None:
        """A list of callbacks receives an event of Keras's, named as its method."""
        if get_ident() != self._thread:
            return
        if self._list is None:
            self._list = weakref.ref(callbacks)
        is_own = self._list() is callbacks
        if event == "on_epoch_begin" and is_own:
            expected = (callbacks.params or {}).get("steps")
            self._course.begin_epoch(callbacks.model, args[0], expected)
        elif event == "on_train_batch_end" and is_own:
            self._course.end_batch(callbacks.model)
        elif event == "on_epoch_end" and is_own:
            self._course.end_epoch()
        else:
            self._course.evaluate(event, after_training=is_own)


def contains_ours(callbacks: Any) -> bool:
    """Return whether a callback of ours is among those that ``fit()`` is given."""
    return any(isinstance(callback, FrameworkCallback) for callback in _several(callbacks))


_NAMES = ("x", "y", "batch_size", "epochs", "verbose", "callbacks")


def _passed_on(event: str) -> Callable[..., None]:
    @contained
    def pass_on(callback: LeakScopeCallback, *args: Any, **kwargs: Any) -> None:
        callback._course.evaluate(event)

    return pass_on


class LeakScopeCallback(FrameworkCallback, keras.callbacks.Callback):  # type: ignore[misc]
    """Records a training of Keras on torch: ``model.fit(..., callbacks=[LeakScopeCallback()])``.

    Where something records already it joins. Nothing is recorded outside ``fit()`` otherwise.

    Args:
        log_every: put memory, in MiB, into the logs of a batch every so many steps, and into those
            of each epoch, where the callbacks after this one find it.
        cleanup_every: collect garbage and empty caches every so many steps, and tell at the end
            what that gained.
        options: as for :func:`leakscope.profile`.

    Raises:
        LeakscopeError: for options that make no sense, and for another backend than torch.
        ValueError: for a number of steps below 1.

    """

    _loaders: tuple[Any, ...] = ()

    def _prepare(self) -> None:
        if keras.config.backend() != "torch":
            raise LeakscopeError(
                f"Keras runs on {keras.config.backend()} here, and leakscope looks at torch alone: "
                "set KERAS_BACKEND=torch."
            )
        self._course = FitCourse(self.training)
        self._figures: dict[str, float] = {}

    # What fit() tells

    @contained
    def fit_is_called(self, arguments: dict[str, Any]) -> None:
        """``fit()`` was called with these arguments: it looks at a batch before its first event."""
        self._loaders = (arguments.get("x"), arguments.get("validation_data"))
        self.training.begin()

    @contained
    def dispatch_nested(self, event: str) -> None:
        """Another callback evaluates or predicts: this one receives no events of it."""
        self._course.evaluate(event)

    @contained
    def fit_has_failed(self, error: BaseException) -> None:
        """``fit()`` raised."""
        self._end(error)

    # Events

    @contained
    def on_train_begin(self, logs: Any = None) -> None:
        """Begin to record, or join."""
        loaders, self._loaders = self._loaders, ()
        if not self.training.leads:
            self.training.begin()
        self._course.begin()
        self._upkeep.begin(*loaders)

    @contained
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin a training phase; the first one goes on from where the optimizer is."""
        self._course.begin_epoch(self.model, epoch, (self.params or {}).get("steps"))

    @contained
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """A batch is over, and a step with it if the optimizer stepped: log where it is time."""
        step = self._course.end_batch(self.model)
        figures = {} if step is None else self._upkeep.step(step)
        if figures:
            self._figures = figures
            _add(logs, figures)

    @contained
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """The epoch is over, with the validation in it."""
        self._course.end_epoch()
        _add(logs, self._figures)

    @contained
    def on_test_begin(self, logs: Any = None) -> None:
        """An evaluation begins, after the batches of the epoch or by itself."""
        # fit() has put the model into evaluation mode
        self._course.evaluate("on_test_begin", after_training=not self.model.training)

    on_test_batch_end = _passed_on("on_test_batch_end")
    on_test_end = _passed_on("on_test_end")
    on_predict_begin = _passed_on("on_predict_begin")
    on_predict_batch_end = _passed_on("on_predict_batch_end")
    on_predict_end = _passed_on("on_predict_end")

    @contained
    def on_train_end(self, logs: Any = None) -> None:
        """Report what the cleanups gained; stop recording unless another owner goes on."""
        self._end()

    def _end(self, error: BaseException | None = None) -> None:
        self._course.close()
        self._loaders, self._figures = (), {}
        self._model = None  # Keras leaves it with every callback
        try:
            self._course.end()
            self._upkeep.end()
        finally:
            self.training.end(error)


def _add(logs: Any, figures: dict[str, float]) -> None:
    if isinstance(logs, dict):
        logs.update(figures)


def _wrap_fit(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = _without_duplicates(args, kwargs)
        ours = _ours(args, kwargs)
        try:
            with listening(ours):
                return original(model, *args, **kwargs)
        except BaseException as error:
            without_our_frame(error)
            for callback in ours:
                callback.fit_has_failed(error)
            raise

    return fit


def _ours(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[LeakScopeCallback]:
    try:
        arguments = {**dict(zip(_NAMES, args, strict=False)), **kwargs}
        callbacks = _several(arguments.get("callbacks"))
        ours = [callback for callback in callbacks if isinstance(callback, LeakScopeCallback)]
    except faults(Exception):
        return []
    for callback in ours:
        callback.fit_is_called(arguments)
    return ours


def _without_duplicates(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of ``fit()`` with each callback of ours in them once."""
    try:
        place = _NAMES.index("callbacks")
        callbacks = args[place] if len(args) > place else kwargs.get("callbacks")
        once = ours_once(_several(callbacks))
        if len(once) == len(_several(callbacks)):
            return args, kwargs
        if not isinstance(callbacks, (list, tuple)):
            callbacks.callbacks = once  # type: ignore[union-attr]
            return args, kwargs
        if len(args) > place:
            return (*args[:place], once, *args[place + 1 :]), kwargs
        return args, {**kwargs, "callbacks": once}
    except faults(Exception):
        return args, kwargs


def _several(callbacks: Any) -> list[Any]:
    inside = getattr(callbacks, "callbacks", callbacks)
    return [*inside] if isinstance(inside, (list, tuple)) else [inside]


_trainer = next((kind for kind in keras.Model.__mro__ if "fit" in vars(kind)), keras.Model)
_methods = LibraryPatches(_trainer, fit=_wrap_fit)

# From the import on: `model.fit(..., callbacks=[LeakScopeCallback()])` takes the method first.
_methods.serve(LeakScopeCallback)
