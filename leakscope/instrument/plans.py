"""Where censuses lie inside a phase: at the same places in each occurrence of it."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf

from leakscope.instrument import policy
from leakscope.instrument.stack import Phase


class Plan:
    """Where censuses lie inside one occurrence of a phase."""

    __slots__ = ("_marks", "begun", "floor", "mark")

    def __init__(self, phase: Phase, now: float) -> None:
        self.begun = now
        self.floor = phase.occurrence < policy.FLOOR_OCCURRENCES
        self._marks = _marks(phase.expected, dense=phase.occurrence == 0)
        self.mark = next(self._marks, inf)

    def advance(self, batch: int) -> None:
        """Pass the marks up to ``batch``."""
        while self.mark <= batch:
            self.mark = next(self._marks, inf)


def _marks(expected: int | None, *, dense: bool) -> Iterator[int]:
    """Yield the batches of a phase after which a census lies, ascending."""
    evenly = [] if expected is None else [ceil(expected * part) for part in policy.FRACTIONS]
    if expected is not None and not dense:
        yield from sorted(set(evenly))
        return
    mark = 1
    is_endless = expected is None and dense
    while expected is None or mark <= expected:
        yield from sorted({at for at in evenly if at <= mark} | {mark})
        evenly = [at for at in evenly if at > mark]
        factor = (
            4.0
            if expected is not None
            else 2.0
            if not is_endless
            else 1.5
            if mark < policy.EARLY_MARKS
            else 1.35
        )
        mark = max(mark + 1, int(mark * factor))
    yield from evenly
