"""A ``fit()`` of Keras's that is heard from lists of callbacks.

All of it where no callback of ours tells of it; else what callbacks of the program evaluate and
predict meanwhile, whose lists have none of ours.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Protocol

from leakscope.instrument.frameworks.keras_course import FitCourse
from leakscope.instrument.frameworks.training import TellsTraining, Training, contained
from leakscope.model.interrupts import ours as faults


class HearsBeside(Protocol):
    """A callback of ours in a ``fit()`` that is under way."""

    def hear_beside(self, event: str) -> None:
        """Another list of callbacks is told of an event of Keras's, named as its method."""


_under_way: list[HearsBeside] = []


@contextmanager
def under_way(callbacks: Sequence[HearsBeside]) -> Iterator[None]:
    """Have these callbacks hear what others evaluate and predict in their ``fit()``."""
    _under_way.extend(callbacks)
    try:
        yield
    finally:
        del _under_way[len(_under_way) - len(callbacks) :]


def hear_beside(event: str, callbacks: Any) -> None:
    """A list of callbacks is told of an event: pass it on where it has none of ours."""
    try:
        told = () if not _under_way or is_told_of(callbacks) else tuple(_under_way)
    except faults(Exception):
        return
    for callback in told:
        callback.hear_beside(event)


class JoinedFits(TellsTraining):
    """Tells the session that runs of one ``fit()`` after the other; it starts none itself.

    Of the lists of callbacks that are heard the first one is that of ``fit()``. The others are
    those of evaluations and predictions that the program's own callbacks make meanwhile.
    """

    def __init__(self) -> None:
        self.training = Training({})
        self._course = FitCourse(self.training)
        self._thread = 0
        self._list: weakref.ref[Any] | None = None

    @contained
    def begin(self) -> bool:
        """A ``fit()`` is called; return whether it is told of from now on."""
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
    def hear(self, event: str, callbacks: Any, *args: Any) -> None:
        """A list of callbacks is told of an event of Keras's, named as its method."""
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


def is_told_of(callbacks: Any) -> bool:
    """Return whether a callback of ours is among those that ``fit()`` is given."""
    inside = getattr(callbacks, "callbacks", callbacks)
    given = inside if isinstance(inside, (list, tuple)) else (inside,)
    return any(isinstance(callback, TellsTraining) for callback in given)
