"""What a ``fit()`` of Keras's tells: epochs, batches, steps and the evaluations inside them.

Keras steps optimizers of its own, so steps are counted from what the optimizer says when a training
begins.
"""

from __future__ import annotations

from typing import Any

from leakscope.instrument.frameworks.optimizer_steps import OptimizerSteps
from leakscope.instrument.frameworks.training import Training

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
        self._torch_steps.since_last_asked()

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

    def begin_test(self, *, after_training: bool) -> None:
        """An evaluation begins: after the batches of the epoch, or between them."""
        if after_training:
            self._training.leave(TRAIN)
        self._training.enter(VALIDATION)

    def end_test(self) -> None:
        """The evaluation is over."""
        self._training.leave(VALIDATION)

    def begin_predicting(self) -> None:
        """Predictions begin."""
        self._training.enter(TEST)

    def end_predicting(self) -> None:
        """Predictions are over."""
        self._training.leave(TEST)

    def end_batch_without_training(self) -> None:
        """A batch of an evaluation or of predictions is over."""
        self._training.batch()

    def evaluate(self, event: str, *, after_training: bool) -> None:
        """Tell of an event of evaluating or predicting, named as the method of a callback."""
        if event == "on_test_begin":
            self.begin_test(after_training=after_training)
        elif event == "on_predict_begin":
            self.begin_predicting()
        elif event in ("on_test_batch_end", "on_predict_batch_end"):
            self.end_batch_without_training()
        elif event == "on_test_end":
            self.end_test()
        elif event == "on_predict_end":
            self.end_predicting()

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
        by_torch = self._torch_steps.since_last_asked()
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
