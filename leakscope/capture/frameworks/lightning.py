"""Lightning: a callback for ``lightning.pytorch`` and one for ``pytorch_lightning``.

Both packages hold the same code under two names, and each trainer takes callbacks of its own alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leakscope.capture.frameworks.training import FrameworkCallback, Training, contained, ours_once

TRAIN, VALIDATION, TEST, PREDICT, SANITY = "train", "validation", "test", "predict", "sanity"
CHECKPOINT = "checkpoint"
SEVERAL = 2


def _of_evaluation(name: str) -> tuple[Callable[..., None], ...]:
    """Return what is called where an evaluation starts, a batch of it starts, and it ends."""

    @contained
    def start(hooks: LightningHooks, trainer: Any, module: Any) -> None:
        """An evaluation comes: each of its loaders has a phase of its own."""
        if not trainer.sanity_checking:
            hooks.training.enter(name, batches_of(trainer, name, 0))

    @contained
    def start_batch(
        hooks: LightningHooks, trainer: Any, module: Any, batch: Any, index: int, loader: int = 0
    ) -> None:
        """Begin the next loader's phase with its first batch."""
        phase = name if not loader else f"{name}:{loader + 1}"
        if not trainer.sanity_checking and hooks.training.phase != phase:
            leave(hooks.training)
            hooks.training.enter(phase, batches_of(trainer, name, loader))

    @contained
    def end(hooks: LightningHooks, trainer: Any, module: Any) -> None:
        """The evaluation is over, what the module does at its end included."""
        leave(hooks.training)

    def leave(training: Training) -> None:
        phase = training.phase
        if phase.partition(":")[0] == name:
            training.leave(phase)

    return start, start_batch, end


class LightningHooks(FrameworkCallback):
    """Tells of a Lightning trainer: sanity check, steps, validations inside epochs, each loader.

    Where something records already it joins. Nothing is recorded outside ``fit()`` otherwise.

    Args:
        log_every: log memory, in MiB, every so many steps through the loggers of the trainer.
        cleanup_every: collect garbage and empty caches every so many steps, and tell at the end
            what that gained.
        options: as for :func:`leakscope.profile`.

    Raises:
        LeakscopeError: for options that make no sense.
        ValueError: for a number of steps below 1.

    """

    _steps = _done = 0

    @contained
    def setup(self, trainer: Any, module: Any, stage: str) -> None:
        """Keep one copy among the trainer's callbacks; this is the first hook."""
        callbacks = ours_once(trainer.callbacks)
        if len(callbacks) < len(trainer.callbacks):
            # A list of its own: the trainer goes through the other one just now.
            trainer.callbacks = callbacks

    @contained
    def on_fit_start(self, trainer: Any, module: Any) -> None:
        """Begin to record, or join. A checkpoint is restored only after that."""
        self.training.begin()

    @contained
    def on_sanity_check_start(self, trainer: Any, module: Any) -> None:
        """Begin the phase of the batches that are tried before the training."""
        self.training.enter(SANITY)

    @contained
    def on_sanity_check_end(self, trainer: Any, module: Any) -> None:
        """End it."""
        self.training.leave(SANITY)

    @contained
    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Go on from a checkpoint's step."""
        self._steps, self._done = int(trainer.global_step), steps_done(trainer)
        self.training.resume(step=self._done, epoch=int(trainer.current_epoch))
        self._upkeep.begin(trainer.train_dataloader, *as_list(trainer.val_dataloaders))

    @contained
    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        """Begin a training phase."""
        self.training.enter(TRAIN, whole(trainer.num_training_batches))

    @contained
    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
        """Begin the training phase of an epoch that a checkpoint broke off: it has no start."""
        if self.training.leads and not self.training.phase:
            batches = whole(trainer.num_training_batches)
            self.training.enter(TRAIN, None if batches is None else batches - index)

    def on_train_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int
    ) -> None:
        """A batch is over, and a step with it if an optimizer stepped: log where it is time."""
        figures, number = self._batch_over(trainer) or ({}, 0)
        if figures:
            # Not contained: what is raised in there comes from the trainer's loggers.
            for logger in trainer.loggers:
                logger.log_metrics(dict(figures), step=number)

    @contained
    def _batch_over(self, trainer: Any) -> tuple[dict[str, float], int] | None:
        steps, self._steps = self._steps, int(trainer.global_step)
        if self._steps == steps:
            self.training.batch()
            return None
        self._done += 1
        self.training.step()
        return self._upkeep.step(self._done), step_of_logs(trainer)

    @contained
    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        """End the training phase."""
        self.training.leave(TRAIN)
        self.training.end_epoch()

    on_validation_start, on_validation_batch_start, on_validation_end = _of_evaluation(VALIDATION)
    on_test_start, on_test_batch_start, on_test_end = _of_evaluation(TEST)

    @contained
    def on_validation_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int, loader: int = 0
    ) -> None:
        """A batch is over."""
        self.training.batch()

    on_test_batch_end = on_predict_batch_end = on_validation_batch_end

    @contained
    def on_predict_start(self, trainer: Any, module: Any) -> None:
        """Predictions come."""
        self.training.enter(PREDICT)

    @contained
    def on_predict_end(self, trainer: Any, module: Any) -> None:
        """Predictions are over."""
        self.training.leave(PREDICT)

    @contained
    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        """A checkpoint is gathered, to be written at once."""
        self.training.mark(CHECKPOINT)

    @contained
    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """The training has failed, or was interrupted."""
        self._end(exception)

    @contained
    def teardown(self, trainer: Any, module: Any, stage: str) -> None:
        """All is over: record no more, unless somebody else does."""
        self._end()


def batches_of(trainer: Any, name: str, loader: int) -> int | None:
    """Return how many batches the trainer takes from a loader of an evaluation."""
    batches = trainer.num_val_batches if name == VALIDATION else trainer.num_test_batches
    if not isinstance(batches, list):
        return whole(batches)
    return whole(batches[loader]) if loader < len(batches) else None


def step_of_logs(trainer: Any) -> int:
    """Return the number under which the trainer logs what belongs to the batch just now."""
    loop = trainer.fit_loop.epoch_loop
    return int(getattr(loop, "_batches_that_stepped", trainer.global_step))


def steps_done(trainer: Any) -> int:
    """Return the number of batches in which an optimizer has stepped, from a checkpoint."""
    steps = int(trainer.global_step)
    if len(trainer.optimizers) < SEVERAL:
        return steps
    return min(steps, int(trainer.fit_loop.epoch_loop.batch_progress.total.processed))


def as_list(loaders: Any) -> list[Any]:
    """Return one or several loaders, in whatever the user put them, as a list."""
    if isinstance(loaders, dict):
        return list(loaders.values())
    return list(loaders) if isinstance(loaders, (list, tuple)) else [loaders]


def whole(batches: float) -> int | None:
    """Return a number of batches; None for the infinity of a loader without a length."""
    return int(batches) if batches != float("inf") else None
