"""Keras 3 on the torch backend: a callback, and ``fit``, which has no event where it raises."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras

from leakscope.instrument.auto.classes import PatchedMethod, without_our_frame
from leakscope.instrument.frameworks.keras_course import FitCourse
from leakscope.instrument.frameworks.keras_joining import under_way
from leakscope.instrument.frameworks.served import ServedMethods
from leakscope.instrument.frameworks.training import (
    RecordingOptions,
    TellsTraining,
    Training,
    contained,
    ours_once,
)
from leakscope.instrument.frameworks.upkeep import Upkeep
from leakscope.model.errors import LeakscopeError
from leakscope.model.interrupts import ours as faults

if TYPE_CHECKING:
    from typing_extensions import Unpack

_NAMES = ("x", "y", "batch_size", "epochs", "verbose", "callbacks")
"""Of the first arguments of ``fit``."""


class LeakScopeCallback(keras.callbacks.Callback, TellsTraining):  # type: ignore[misc]
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

    def __init__(
        self,
        *,
        log_every: int | None = None,
        cleanup_every: int | None = None,
        **options: Unpack[RecordingOptions],
    ) -> None:
        super().__init__()
        if keras.config.backend() != "torch":
            raise LeakscopeError(
                f"Keras runs on {keras.config.backend()} here, and leakscope looks at torch alone: "
                "set KERAS_BACKEND=torch."
            )
        self.training = Training(options)
        self._course = FitCourse(self.training)
        self._upkeep = Upkeep(self.training, log_every=log_every, cleanup_every=cleanup_every)
        self._loaders: tuple[Any, ...] = ()
        self._figures: dict[str, float] = {}

    # What fit() tells

    @contained
    def fit_is_called(self, given: dict[str, Any]) -> None:
        """``fit()`` was called with these arguments: it looks at a batch before its first event."""
        self._loaders = (given.get("x"), given.get("validation_data"))
        self.training.begin()

    @contained
    def hear_beside(self, event: str) -> None:
        """Another callback evaluates or predicts: this one is not among those that are told."""
        self._course.evaluate(event, after_training=False)

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
        self._course.begin_test(after_training=not self.model.training)

    @contained
    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """A batch of an evaluation is over."""
        self._course.end_batch_without_training()

    @contained
    def on_test_end(self, logs: Any = None) -> None:
        """The evaluation is over."""
        self._course.end_test()

    @contained
    def on_predict_begin(self, logs: Any = None) -> None:
        """Predictions begin."""
        self._course.begin_predicting()

    @contained
    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        """A batch of predictions is over."""
        self._course.end_batch_without_training()

    @contained
    def on_predict_end(self, logs: Any = None) -> None:
        """Predictions are over."""
        self._course.end_predicting()

    @contained
    def on_train_end(self, logs: Any = None) -> None:
        """Tell what the cleanups gained; record no more, unless somebody else does."""
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


def _telling_fit(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = _told_once(args, kwargs)
        ours = _ours(args, kwargs)
        try:
            with under_way(ours):
                return original(model, *args, **kwargs)
        except BaseException as error:
            without_our_frame(error)
            for callback in ours:
                callback.fit_has_failed(error)
            raise

    return fit


def _ours(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[LeakScopeCallback]:
    """Tell the callbacks of ours that ``fit()`` was called with these arguments; return them."""
    try:
        given = {**dict(zip(_NAMES, args, strict=False)), **kwargs}
        ours = [one for one in _several(given.get("callbacks")) if _is_ours(one)]
    except faults(Exception):
        return []
    for callback in ours:
        callback.fit_is_called(given)
    return ours


def _told_once(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of ``fit()`` with each callback of ours in them once."""
    try:
        place = _NAMES.index("callbacks")
        given = args[place] if len(args) > place else kwargs.get("callbacks")
        once = ours_once(_several(given))
        if len(once) == len(_several(given)):
            return args, kwargs
        if not isinstance(given, (list, tuple)):
            given.callbacks = once  # type: ignore[union-attr]
            return args, kwargs
        if len(args) > place:
            return (*args[:place], once, *args[place + 1 :]), kwargs
        return args, {**kwargs, "callbacks": once}
    except faults(Exception):
        return args, kwargs


def _several(callbacks: Any) -> list[Any]:
    inside = getattr(callbacks, "callbacks", callbacks)
    return [*inside] if isinstance(inside, (list, tuple)) else [inside]


def _is_ours(callback: Any) -> bool:
    return isinstance(callback, LeakScopeCallback)


def _wrapped() -> list[PatchedMethod]:
    owners = [kind for kind in keras.Model.__mro__ if "fit" in vars(kind)]
    return [PatchedMethod(owner, "fit", _telling_fit) for owner in owners[:1]]


_methods = ServedMethods(_wrapped)

# From the import on: `model.fit(..., callbacks=[LeakScopeCallback()])` takes the method first.
_methods.serve(LeakScopeCallback)
