"""Hugging Face transformers: the callback, and two methods of its trainer that have no event.

An evaluation has no event where it begins, and a training none where it raises. So as long as a
callback of ours lives, ``Trainer.train`` and ``Trainer.evaluation_loop`` tell the callbacks of that
trainer; without one of ours among them they only pass on.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from transformers import Trainer, TrainerCallback
from transformers.integrations import MLflowCallback, TensorBoardCallback

from leakscope.capture.frameworks.training import FrameworkCallback, contained, ours_once
from leakscope.capture.torch_hooks.patching import LibraryPatches, surrounded
from leakscope.model.errors import ours as faults
from leakscope.model.text import plural

TRAIN, VALIDATION, TEST = "train", "validation", "test"
CHECKPOINT = "checkpoint"
CLOSING = (TensorBoardCallback, MLflowCallback)
"""What closes its writer, or ends its run, when a training is over."""
_NAMES = ("dataloader", "description", "prediction_loss_only", "ignore_keys", "metric_key_prefix")


class LeakScopeCallback(FrameworkCallback, TrainerCallback):  # type: ignore[misc]
    """Records a training of the Hugging Face trainer: ``callbacks=[LeakScopeCallback()]``.

    Where something records already (``leakscope run``, ``leakscope.profile()``) it joins, and says
    where steps, epochs, evaluations and checkpoints lie. Nothing is recorded outside ``train()``
    otherwise.

    Args:
        log_every: log memory, in MiB, every so many steps through the trainer's own log, so that
            its trackers draw it.
        cleanup_every: collect garbage and empty caches every so many steps, and tell at the end
            what that gained.
        options: as for :func:`leakscope.profile`.

    Raises:
        LeakscopeError: for options that make no sense.
        ValueError: for a number of steps below 1.

    """

    _trainer: weakref.ref[Trainer] | None = None
    _has_stepped = _is_step_reported = False

    def _prepare(self) -> None:
        _methods.serve(self)

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process knows no trainer yet."""
        return {**self.__dict__, "_trainer": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _methods.serve(self)

    # What the two methods tell

    @contained
    def training_is_called(self, trainer: Trainer) -> None:
        """``train()`` of this trainer was called."""
        self._trainer = weakref.ref(trainer)

    @contained
    def training_has_failed(self, error: BaseException) -> None:
        """``train()`` raised."""
        self._end(error)

    @contained
    def evaluation_is_called(self, arguments: dict[str, Any]) -> None:
        """``evaluation_loop()`` was called with these arguments."""
        self._end_evaluation()
        self._report_step_before_evaluating()
        self.training.enter(phase_of(arguments), length_of(arguments.get("dataloader")))
        if self.training.leads:  # the trainer makes the loader of an evaluation only for it
            self._upkeep.warn(arguments.get("dataloader"))

    @contained
    def evaluation_has_failed(self, error: BaseException) -> None:
        """``evaluation_loop()`` raised."""
        self._end_evaluation()

    # Events

    @contained
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin to record, or join; again where ``auto_find_batch_size`` restarts the training."""
        done = self.training.steps_reported
        self.training.begin(step=state.global_step, epoch=int(state.epoch or 0))
        if done and getattr(args, "auto_find_batch_size", False):
            self.training.note(
                "begun-anew",
                f"auto_find_batch_size restarted the training after {plural(done, 'step')}. Steps "
                "are counted on here, since what those left in memory may still be there; the "
                "trainer counts from 0 again.",
            )
        self._upkeep.begin(kwargs.get("train_dataloader"))

    @contained
    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin a training phase."""
        self._end_evaluation()
        self.training.end_epoch()
        self.training.enter(TRAIN, length_of(kwargs.get("train_dataloader")))

    @contained
    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An evaluation that reported no end is over."""
        self._end_evaluation()
        self._has_stepped = self._is_step_reported = False

    @contained
    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The optimizer has stepped; the gradients of that step are let go of after this."""
        self._has_stepped = True

    @contained
    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A batch is over whose gradients are gathered."""
        self.training.batch()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step is over: log and clean up where it is time for that."""
        figures, trainer = self._step_over(state) or ({}, None)
        if figures and trainer is not None:
            # Not contained: what is raised in there comes from the trainer or its callbacks.
            is_to_log = control.should_log
            trainer.log(figures)
            control.should_log = is_to_log

    @contained
    def _step_over(self, state: Any) -> tuple[dict[str, float], Trainer | None] | None:
        is_reported = self._is_step_reported
        self._has_stepped = self._is_step_reported = False
        if self.training.phase == TRAIN and not is_reported:
            self.training.step()
        figures = self._upkeep.step(state.global_step)
        return figures, None if self._trainer is None else self._trainer()

    @contained
    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A batch of an evaluation is over."""
        if self.training.phase in ("", TRAIN):  # a trainer with an evaluation loop of its own
            self._report_step_before_evaluating()
            self.training.enter(VALIDATION)
        self.training.batch()

    @contained
    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An evaluation or a prediction is over."""
        self._end_evaluation()

    on_predict = on_evaluate

    @contained
    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A checkpoint was written."""
        self._end_evaluation()
        self.training.mark(CHECKPOINT)

    @contained
    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the training phase; its evaluation, which may follow, still belongs to the epoch."""
        self._end_evaluation()
        self.training.leave(TRAIN)

    @contained
    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record no more, unless somebody else does."""
        try:
            self._end_evaluation()
            self.training.end_epoch()
        finally:
            self._end()

    def _report_step_before_evaluating(self) -> None:
        """A callback before this one may evaluate when a step is over."""
        if self._has_stepped and not self._is_step_reported and self.training.phase == TRAIN:
            self._is_step_reported = True
            self.training.step()

    def _end_evaluation(self) -> None:
        phase = self.training.phase
        if phase and phase != TRAIN:
            self.training.leave(phase)


def _wrap_train(original: Callable[..., Any]) -> Callable[..., Any]:
    def begin(trainer: Trainer, *args: Any, **kwargs: Any) -> Trainer:
        _notify(trainer, "training_is_called", trainer)
        return trainer

    return surrounded(original, begin, _end("training_has_failed"))


def _wrap_evaluation(original: Callable[..., Any]) -> Callable[..., Any]:
    def begin(trainer: Trainer, *args: Any, **kwargs: Any) -> Trainer:
        arguments = {**dict(zip(_NAMES, args, strict=False)), **kwargs}
        _notify(trainer, "evaluation_is_called", arguments)
        return trainer

    return surrounded(original, begin, _end("evaluation_has_failed"))


def _end(failure: str) -> Callable[[Trainer, BaseException | None], None]:
    def end(trainer: Trainer, error: BaseException | None) -> None:
        if error is not None:
            _notify(trainer, failure, error)

    return end


_methods = LibraryPatches(Trainer, train=_wrap_train, evaluation_loop=_wrap_evaluation)


def _notify(trainer: Trainer, event: str, detail: object) -> None:
    for callback in _arranged(getattr(trainer, "callback_handler", None)):
        if isinstance(callback, LeakScopeCallback):
            getattr(callback, event)(detail)


def _arranged(handler: Any) -> list[Any]:
    """Make a trainer's handler call each of ours once and in time; return its callbacks."""
    try:
        callbacks = _before_trackers_close(ours_once(handler.callbacks))
        if [*map(id, callbacks)] != [*map(id, handler.callbacks)]:
            # A list of its own: it may go through the other one just now.
            handler.callbacks = callbacks
    except faults(Exception):
        return []
    return callbacks


def _before_trackers_close(callbacks: list[Any]) -> list[Any]:
    """Return callbacks with ours before those that close a tracker when the training is over."""
    closing = [place for place, callback in enumerate(callbacks) if isinstance(callback, CLOSING)]
    if not closing:
        return callbacks
    before, rest = callbacks[: closing[0]], callbacks[closing[0] :]
    return before + sorted(rest, key=lambda callback: not isinstance(callback, LeakScopeCallback))


def phase_of(arguments: dict[str, Any]) -> str:
    """Return the phase of an evaluation by its arguments: ``validation``, ``test:NAME``, …"""
    is_prediction = arguments.get("description") == "Prediction"
    phase, usual = (TEST, "test") if is_prediction else (VALIDATION, "eval")
    data = str(arguments.get("metric_key_prefix") or usual).removeprefix(usual).lstrip("_")
    return f"{phase}:{data}" if data else phase


def length_of(loader: Any) -> int | None:
    """Return how many batches a loader has; the trainer asks it too, so this runs nothing new."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None
