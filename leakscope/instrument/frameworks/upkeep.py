"""What a trainer's integration does beside recording: memory logged, cleanups, words on workers."""

from __future__ import annotations

from typing import Any

from leakscope.cleanup import cleanup_every as repeated_cleanup
from leakscope.instrument.frameworks.figures import memory_figures
from leakscope.instrument.frameworks.loader_workers import worker_warnings
from leakscope.instrument.frameworks.training import Training


class Upkeep:
    """Done every so many steps of one training, where that was asked for.

    Raises:
        ValueError: for a number of steps below 1.

    """

    def __init__(
        self, training: Training, *, log_every: int | None = None, cleanup_every: int | None = None
    ) -> None:
        if log_every is not None and log_every < 1:
            raise ValueError("log_every needs a number of steps from 1 on.")
        self._training = training
        self._log_every = log_every
        self._said: set[str] = set()
        self._cleanup = None if cleanup_every is None else repeated_cleanup(cleanup_every)

    def begin(self, *loaders: Any) -> None:
        """The training begins: say what its loaders should not keep beside workers."""
        if self._log_every is not None:
            self._training.draws_memory()
        if self._training.leads:
            self.warn(*loaders)

    def warn(self, *loaders: Any) -> None:
        """Say once what loaders should not keep beside workers."""
        for sentence in (sentence for one in loaders for sentence in worker_warnings(one)):
            if sentence not in self._said:
                self._said.add(sentence)
                self._training.say(sentence)
                self._training.note("workers", sentence)

    def step(self, number: int) -> dict[str, float]:
        """A step is over: clean up if it is time; return memory in MiB if it is to be logged."""
        if self._cleanup is not None:
            self._cleanup.step()
        if self._log_every is None or number % self._log_every:
            return {}
        return memory_figures()

    def end(self) -> None:
        """The training is over: tell what the cleanups gained."""
        if self._cleanup is not None:
            told = str(self._cleanup.report())
            self._training.say(told)
            self._training.note("cleanup", told)
