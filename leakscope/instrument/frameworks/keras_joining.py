"""A ``fit()`` of Keras's that no callback of ours tells of, heard from its list of callbacks."""

from __future__ import annotations

import weakref
from threading import get_ident
from typing import Any

from leakscope.instrument.frameworks.keras_course import FitCourse
from leakscope.instrument.frameworks.training import TellsTraining, Training, contained


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
        elif event == "on_test_begin":
            self._course.begin_test(after_training=is_own)
        elif event == "on_predict_begin":
            self._course.begin_predicting()
        elif event in ("on_test_batch_end", "on_predict_batch_end"):
            self._course.end_batch_without_training()
        elif event == "on_test_end":
            self._course.end_test()
        elif event == "on_predict_end":
            self._course.end_predicting()


def is_told_of(callbacks: Any) -> bool:
    """Return whether a callback of ours is among those that ``fit()`` is given."""
    inside = getattr(callbacks, "callbacks", callbacks)
    given = inside if isinstance(inside, (list, tuple)) else (inside,)
    return any(isinstance(callback, TellsTraining) for callback in given)
