"""Keeps our own faults away from the training: contained, counted, written down."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from leakscope.model.interrupts import is_interrupt

P = ParamSpec("P")
T = TypeVar("T")

FAULTS_ALLOWED = 3
"""After so many faults a part is switched off for the rest of the run."""

FaultSink = Callable[[str, str, bool], None]


class Guard:
    """Runs parts of ours so that none of their exceptions reach the user's program.

    ``Exception`` is contained (``MemoryError`` too); ``KeyboardInterrupt``, ``SystemExit`` and what
    a signal's handler of the program's raises pass. With ``LEAKSCOPE_STRICT=1`` everything passes,
    for our own tests.
    """

    def __init__(self, report: FaultSink | None = None) -> None:
        self.report = report
        self.strict = os.environ.get("LEAKSCOPE_STRICT") == "1"
        self._faults: dict[str, int] = {}

    def allows(self, part: str) -> bool:
        """Return whether a part is still switched on."""
        return self._faults.get(part, 0) < FAULTS_ALLOWED

    def call(
        self, part: str, default: T, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return what ``function`` returns, or ``default`` if it fails or is switched off."""
        if not self.allows(part):
            return default
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if self.passes(error):
                raise
            self.fault(part, error)
            return default

    def passes(self, error: Exception) -> bool:
        """Return whether to raise it again: what is not ours, in strict mode anything.

        Whoever asks raises without naming it: a frame that names an exception which left it is
        held by that exception's traceback, and the two live on with all that the program's own
        frames keep until the collector runs.
        """
        return self.strict or is_interrupt(error)

    def fault(self, part: str, error: Exception) -> None:
        """Count a fault and report it."""
        count = self._faults[part] = self._faults.get(part, 0) + 1
        if self.report is None:
            return
        try:
            self.report(part, describe(error), count >= FAULTS_ALLOWED)
        except Exception:
            self.report = None


def describe(error: BaseException) -> str:
    """Return type, message and innermost line of an exception, without holding its frames."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    traceback = error.__traceback__
    if traceback is None:
        return text[:500]
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    return f"{text[:500]} ({os.path.basename(code.co_filename)}:{traceback.tb_lineno})"  # noqa: PTH119
