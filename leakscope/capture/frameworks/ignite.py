"""PyTorch-Ignite: handlers for a trainer and its evaluators, which are engines of their own.

Exceptions of a trainer are caught where they leave ``Engine.run``: an engine whose event of them
has any handler raises none by itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from ignite.engine import Engine, Events

from leakscope.capture.frameworks.training import FrameworkCallback, contained
from leakscope.capture.torch_hooks.optimizers import OptimizerSteps
from leakscope.capture.torch_hooks.patching import LibraryPatches, surrounded
from leakscope.model.errors import ours as faults

TRAIN, VALIDATION = "train", "validation"
ACCUMULATION = "gradient_accumulation_steps"
PHASES = {"val": VALIDATION, "valid": VALIDATION, "eval": VALIDATION, "test": "test"}


class LeakScope(FrameworkCallback):
    """Records the run of an engine: ``LeakScope().attach(trainer, evaluators={"val": evaluator})``.

    An iteration in which an optimizer stepped is a step. Where something records already it joins.
    Nothing is recorded outside the trainer's run otherwise.

    An engine's checkpoint counts iterations alone. Saved alongside it, as in
    ``to_save={"trainer": trainer, "leakscope": scope}``, this tells how many of them were steps.

    Args:
        log_every: put memory, in MiB, into the trainer's metrics every so many steps, where its
            loggers and progress bars find it.
        cleanup_every: collect garbage and empty caches every so many steps, and tell at the end
            what that gained.
        options: as for :func:`leakscope.profile`.

    Raises:
        LeakscopeError: for options that make no sense.
        ValueError: for a number of steps below 1.

    """

    _trainer: weakref.ref[Engine] | None = None
    _iteration = _done = _skipped = 0
    _is_step = False

    def _prepare(self) -> None:
        self._steps = OptimizerSteps()

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process knows no trainer yet."""
        return {**self.__dict__, "_trainer": None}

    def state_dict(self) -> dict[str, int]:
        """Return the iterations that are done and how many of them were steps."""
        trainer = None if self._trainer is None else self._trainer()
        iteration, done = self._iteration, self._done
        if trainer is not None and trainer.state.iteration > iteration:
            # Asked between the end of an iteration and our hearing of it.
            iteration, done = trainer.state.iteration, done + self._steps.has_stepped
        return {"iteration": iteration, "steps": done}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on from what :meth:`state_dict` has returned."""
        self._iteration, self._done = int(state["iteration"]), int(state["steps"])

    def attach(self, trainer: Engine, evaluators: Mapping[str, Engine] | None = None) -> LeakScope:
        """Add the handlers and return itself; keeps no engine. Engines that have them are left.

        Args:
            trainer: the engine that trains.
            evaluators: engines that evaluate; ``val`` names the phase ``validation``, ``test`` the
                phase ``test``, any other name ``train`` the phase ``validation:train``. Of several
                names of one engine the first counts: what it is run on, it doesn't tell.

        """
        for event, handler in (
            (Events.STARTED, self.run_starts),
            (Events.EPOCH_STARTED, self.epoch_starts),
            (Events.ITERATION_COMPLETED, self.iteration_ends),
            (Events.EPOCH_COMPLETED, self.epoch_ends),
            (Events.TERMINATE, self.run_is_terminated),
            (Events.COMPLETED, self.run_ends),
        ):
            if not trainer.has_event_handler(handler, event):
                trainer.add_event_handler(event, handler)
        for name, evaluator in (evaluators or {}).items():
            if evaluator.has_event_handler(self.batch_ends):
                continue
            phase = PHASES.get(name, f"{VALIDATION}:{name}")
            evaluator.add_event_handler(Events.STARTED, self.evaluation_starts, trainer, phase)
            evaluator.add_event_handler(Events.ITERATION_COMPLETED, self.batch_ends)
            evaluator.add_event_handler(Events.COMPLETED, self.evaluation_ends, phase)
        return self

    @contained
    def run_starts(self, engine: Engine) -> None:
        """Begin to record, or join."""
        self._trainer = weakref.ref(engine)
        iteration = engine.state.iteration
        if iteration != self._iteration:
            self._iteration, self._done = iteration, iteration // accumulation_of(engine)
        self._skipped = batches_skipped(engine)
        self.training.begin(step=self._done, epoch=engine.state.epoch)
        self._steps.listen()
        self._upkeep.begin(engine.state.dataloader)

    @contained
    def epoch_starts(self, engine: Engine) -> None:
        """Begin a training phase."""
        self.training.leave(TRAIN)
        self.training.end_epoch()
        length, skipped, self._skipped = engine.state.epoch_length, self._skipped, 0
        self.training.enter(TRAIN, None if length is None else length - skipped)
        self._steps.stepped_since_last_query()

    @contained
    def iteration_ends(self, engine: Engine) -> None:
        """An iteration is over, and a step with it if an optimizer stepped."""
        self._report_iteration(engine)
        is_step, self._is_step = self._is_step, False
        if is_step:
            engine.state.metrics.update(self._upkeep.step(self._done))

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
        """``run()`` raised; where others listen to exceptions, they decide whether it does."""
        self._end(error)

    @contained
    def evaluation_starts(self, engine: Engine, trainer: Engine, phase: str) -> None:
        """Begin the phase of an evaluator, after the training's if the epoch is complete."""
        if trainer.last_event_name == Events.ITERATION_COMPLETED:
            self._report_iteration(trainer)  # who evaluates may have been added before us
        elif trainer.last_event_name == Events.EPOCH_COMPLETED:
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

    def _report_iteration(self, engine: Engine) -> None:
        if engine.state.iteration == self._iteration:
            return
        self._iteration = engine.state.iteration
        self._is_step = self._steps.stepped_since_last_query()
        self._done += self._is_step
        (self.training.step if self._is_step else self.training.batch)()

    def _end(self, error: BaseException | None = None) -> None:
        self._steps.close()
        try:
            self.training.leave_all()
            if error is None:  # an epoch that an error broke off is none
                self.training.end_epoch()
            self._upkeep.end()
        finally:
            self.training.end(error)


def _wrap_run(original: Callable[..., Any]) -> Callable[..., Any]:
    def end(engine: Engine, error: BaseException | None) -> None:
        if error is not None:
            for scope, _ in _handlers(engine, LeakScope.run_starts):
                scope.run_has_failed(error)
        # An evaluation that raises, or skips the event of its completion, is over all the same.
        for scope, arguments in _handlers(engine, LeakScope.evaluation_starts):
            scope.evaluation_ends(engine, arguments[-1])

    return surrounded(original, lambda engine, *args, **kwargs: engine, end)


def _handlers(engine: Engine, hook: Callable[..., None]) -> list[tuple[LeakScope, tuple[Any, ...]]]:
    """Return whose hook an engine calls when it starts, and the arguments with which it does."""
    try:
        return [
            (handler.__self__, arguments)
            for handler, arguments, _ in engine._event_handlers[Events.STARTED]
            if getattr(handler, "__func__", None) is hook
        ]
    except faults(Exception):
        return []


_methods = LibraryPatches(Engine, run=_wrap_run)
_methods.serve(LeakScope)


def accumulation_of(engine: Engine) -> int:
    """Return how many iterations a step takes where the engine is one of ignite's own; else 1."""
    update = engine._process_function
    names = getattr(getattr(update, "__code__", None), "co_freevars", ())
    if ACCUMULATION not in names:
        return 1
    steps = update.__closure__[names.index(ACCUMULATION)].cell_contents
    return steps if isinstance(steps, int) and steps > 0 else 1


def batches_skipped(engine: Engine) -> int:
    """Return how many batches of its first epoch a run that resumes doesn't take."""
    first = getattr(engine, "_init_iter", None)  # 0 after the end of a run that was terminated
    if first is not None or not engine.state.epoch_length:
        return int(first or 0)
    return int(engine.state.iteration % engine.state.epoch_length)
