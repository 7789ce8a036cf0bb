"""The sessions that trainings of a framework began: each is closed, told of its end or not.

A training that raises may be given up without a word to us. Its session is closed as soon as nobody
is left who could tell it anything; else the next training would find it running and join it.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from typing import TYPE_CHECKING

from leakscope.instrument.scope import Scope
from leakscope.instrument.session import Session, current_session

if TYPE_CHECKING:
    from leakscope.instrument.frameworks.training import Training

_begun: list[BegunSession] = []


class BegunSession:
    """A session and the trainings that tell it; keeps none of them.

    It is closed by the training that began it, when all of them are gone, or when the program ends.
    """

    def __init__(self, scope: Scope, session: Session) -> None:
        self.session = session
        self._scope = scope
        self._tellers: list[weakref.ref[Training]] = []
        _begun.append(self)
        atexit.register(self._end_at_exit)

    @property
    def is_lost(self) -> bool:
        """Whether nobody is left who tells it anything."""
        return not any(teller() is not None for teller in self._tellers)

    def is_told_by(self, training: Training) -> None:
        """Stay open as long as this training lives, too."""
        if not any(teller() is training for teller in self._tellers):
            self._tellers.append(weakref.ref(training, self._gone))

    def is_left_by(self, training: Training, error: BaseException | None) -> None:
        """The training tells it nothing more; the last one closes it."""
        before = len(self._tellers)
        self._tellers = [teller for teller in self._tellers if teller() is not training]
        if not self._tellers and before:
            self.end(error)

    def end(self, error: BaseException | None = None) -> None:
        """Close the session: the training ended, with an error or without."""
        self._let_go()
        self._scope.__exit__(None if error is None else type(error), error, None)

    def give_up(self) -> None:
        """Close the session of trainings that told no end. Raises nothing."""
        self._let_go()
        try:
            self._scope.give_up()
        except Exception:
            return

    def _gone(self, teller: weakref.ref[Training]) -> None:
        # In the middle of an event, or from another thread, the collector may run this as well;
        # the next training or the end of the program closes the session then.
        self._tellers = [one for one in self._tellers if one is not teller]
        if self.is_lost and self.session.gate.is_idle_here():
            self.give_up()

    def _end_at_exit(self) -> None:
        """Say how the program ended where no event of the framework's does."""
        try:
            self.end(getattr(sys, "last_value", None))
        except Exception:
            return

    def _let_go(self) -> None:
        self._tellers.clear()
        if self in _begun:
            _begun.remove(self)
        atexit.unregister(self._end_at_exit)


def running_session(training: Training) -> Session | None:
    """Return the session that a training joins, if one runs; what was given up is closed."""
    for one in [one for one in _begun if one.is_lost]:
        one.give_up()
    session = current_session()
    if session is None or not session.is_live:
        return None
    for one in _begun:
        if one.session is session:
            one.is_told_by(training)
    return session


def left_by(training: Training, error: BaseException | None) -> None:
    """Have no session wait for this training, which ended with an error or without."""
    for one in [*_begun]:
        one.is_left_by(training, error)
