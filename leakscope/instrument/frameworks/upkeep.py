"""What a trainer's integration does beside recording: memory logged, cleanups, words on workers."""

from __future__ import annotations

from typing import Any

from leakscope.cleanup import cleanup_every as repeated_cleanup
from leakscope.cleanup.speaking import nobody
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
        for name, steps in (("log_every", log_every), ("cleanup_every", cleanup_every)):
            if steps is not None and steps < 1:
                raise ValueError(f"{name} needs a number of steps from 1 on.")
        self._training = training
        self._log_every, self._cleanup_every = log_every, cleanup_every
        self._said: set[str] = set()
        self._cleanup: repeated_cleanup | None = None
        self._is_begun = False

    def begin(self, *loaders: Any) -> None:
        """The training begins, or begins anew before its end was told.

        Say what its loaders should not keep beside workers.
        """
        if not self._training.is_allowed:
            return
        self._is_begun = True
        if self._cleanup_every is not None and self._cleanup is None:
            logger = nobody() if self._training.is_quiet else None
            self._cleanup = repeated_cleanup(self._cleanup_every, logger=logger)
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
        if not self._is_begun or self._log_every is None or number % self._log_every:
            return {}
        return memory_figures()

    def end(self) -> None:
        """The training is over, with an error or without: tell what its cleanups gained."""
        cleanup, self._cleanup, self._is_begun = self._cleanup, None, False
        if cleanup is not None and cleanup.report().steps:
            told = str(cleanup.report())
            self._training.say(told)
            self._training.note("cleanup", told)
