"""PyTorch-Ignite: handlers for a trainer and its evaluators, which are engines of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ignite.engine import Engine, Events

from leakscope.instrument.frameworks.optimizer_steps import OptimizerSteps
from leakscope.instrument.frameworks.training import (
    RecordingOptions,
    TellsTraining,
    Training,
    contained,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

TRAIN, VALIDATION = "train", "validation"
PHASES = {"val": VALIDATION, "valid": VALIDATION, "eval": VALIDATION, "test": "test"}


class LeakScope(TellsTraining):
    """Records the run of an engine: ``LeakScope().attach(trainer, evaluators={"val": evaluator})``.

    An iteration in which an optimizer stepped is a step. Where something records already it joins.
    Nothing is recorded outside the trainer's run otherwise.

    Args:
        options: as for :func:`leakscope.profile`.

    Raises:
        LeakscopeError: for options that make no sense.

    """

    def __init__(self, **options: Unpack[RecordingOptions]) -> None:
        self.training = Training(options)
        self._steps = OptimizerSteps()

    def attach(self, trainer: Engine, evaluators: Mapping[str, Engine] | None = None) -> LeakScope:
        """Add the handlers and return itself; keeps no engine.

        Args:
            trainer: the engine that trains.
            evaluators: engines that evaluate; ``val`` names the phase ``validation``, ``test`` the
                phase ``test``, any other name ``train`` the phase ``validation:train``.

        """
        for event, handler in (
            (Events.STARTED, self.run_starts),
            (Events.EPOCH_STARTED, self.epoch_starts),
            (Events.ITERATION_COMPLETED, self.iteration_ends),
            (Events.EPOCH_COMPLETED, self.epoch_ends),
            (Events.TERMINATE, self.run_is_terminated),
            (Events.COMPLETED, self.run_ends),
        ):
            trainer.add_event_handler(event, handler)
        trainer.add_event_handler(Events.EXCEPTION_RAISED, self._run_fails)
        for name, evaluator in (evaluators or {}).items():
            phase = PHASES.get(name, f"{VALIDATION}:{name}")
            evaluator.add_event_handler(Events.STARTED, self.evaluation_starts, trainer, phase)
            evaluator.add_event_handler(Events.ITERATION_COMPLETED, self.batch_ends)
            evaluator.add_event_handler(Events.COMPLETED, self.evaluation_ends, phase)
        return self

    @contained
    def run_starts(self, engine: Engine) -> None:
        """Begin to record, or join."""
        self.training.begin(step=engine.state.iteration, epoch=engine.state.epoch)
        self._steps.listen()

    @contained
    def epoch_starts(self, engine: Engine) -> None:
        """Begin a training phase."""
        self.training.leave(TRAIN)
        self.training.end_epoch()
        self.training.enter(TRAIN, engine.state.epoch_length)
        self._steps.since_last_asked()

    @contained
    def iteration_ends(self, engine: Engine) -> None:
        """An iteration is over, and a step with it if an optimizer stepped."""
        if self._steps.since_last_asked():
            self.training.step()
        else:
            self.training.batch()

    @contained
    def epoch_ends(self, engine: Engine) -> None:
        """End the training phase; evaluations that follow still belong to the epoch."""
        self.training.leave(TRAIN)

    @contained
    def run_is_terminated(self, engine: Engine) -> None:
        """Record no more where no further event comes."""
        if engine.should_terminate == "skip_completed":
            self._end()

    @contained
    def run_ends(self, engine: Engine) -> None:
        """Record no more, unless somebody else does."""
        self._end()

    @contained
    def run_has_failed(self, error: BaseException) -> None:
        """The run was ended by an exception."""
        self._end(error)

    @contained
    def evaluation_starts(self, engine: Engine, trainer: Engine, phase: str) -> None:
        """Begin the phase of an evaluator, after the training's if the epoch is complete."""
        if trainer.last_event_name == Events.EPOCH_COMPLETED:
            self.training.leave(TRAIN)
        self.training.enter(phase, engine.state.epoch_length)

    @contained
    def batch_ends(self, engine: Engine) -> None:
        """A batch of an evaluation is over."""
        self.training.batch()

    @contained
    def evaluation_ends(self, engine: Engine, phase: str) -> None:
        """End the phase of an evaluator."""
        self.training.leave(phase)

    def _run_fails(self, engine: Engine, error: BaseException) -> None:
        """Hear of an exception and raise it, as an engine does that nobody listens to.

        Where others listen too, they decide whether the run goes on.
        """
        if self._is_alone(engine):
            self.run_has_failed(error)
            raise error

    def _is_alone(self, engine: Engine) -> bool:
        try:
            listening = [handler for handler, *_ in engine._event_handlers[Events.EXCEPTION_RAISED]]
        except Exception:
            return True
        return all(getattr(h, "__func__", None) is LeakScope._run_fails for h in listening)

    def _end(self, error: BaseException | None = None) -> None:
        self._steps.close()
        try:
            self.training.leave_all()
            self.training.end_epoch()
        finally:
            self.training.end(error)
