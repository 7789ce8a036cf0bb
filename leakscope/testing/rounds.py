"""Rounds of calls with looks at the heap between them: few where nothing grows, more where it does.

A clean scenario costs two cheap counts. Only where there comes to be more of something, twice, the
heap is named and the rounds are doubled: what one call leaves behind must grow with the calls, so
that what a round leaves, whatever its length, isn't taken for a leak.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from operator import index
from typing import ClassVar, SupportsIndex

from leakscope.model.census import Census
from leakscope.model.errors import LeakscopeError
from leakscope.model.sizes import to_bytes
from leakscope.testing.allocating import traced
from leakscope.testing.looking import Count, Looker

STEPS = 20
WARMUP = 3
ALLOW = "0 B"
DOUBLINGS = (1, 2, 4)
"""How many times the steps each named round is long."""

_ALIKE = 0.4
"""What one counted round brings of what the other does: tables grow in jumps."""


@dataclass(frozen=True)
class Plan:
    """How often a scenario is called, and what it may leave behind."""

    steps: int
    """Calls of a round; of the last one four times as many."""
    warmup: int
    """Calls before the first look."""
    allow_bytes: float
    """Growth per call that is no fault."""
    ignore: tuple[str, ...]
    """Patterns of names or paths that may grow."""


def _is_alike(gained: int, before: int) -> bool:
    """Return whether two rounds of the same length brought about as much of a kind."""
    return min(gained, before) >= _ALIKE * max(gained, before)


def to_plan(
    steps: SupportsIndex = STEPS,
    warmup: SupportsIndex = WARMUP,
    allow: str | float = ALLOW,
    ignore: str | Iterable[str] = (),
) -> Plan:
    """Return a plan.

    Raises:
        LeakscopeError: a number is out of its range, or ``allow`` is no size.

    """
    calls = _whole(steps, "steps", least=1)
    warm = _whole(warmup, "warmup", least=0)
    allowed = _bytes(allow)
    if allowed is None or not 0 <= allowed < float("inf"):
        raise LeakscopeError(
            f"allow is a size such as '0 B' or '4 KB', not {allow!r}.", slug="no-size"
        )
    return Plan(calls, warm, allowed, _patterns(ignore))


def _patterns(ignore: object) -> tuple[str, ...]:
    patterns = tuple(ignore) if isinstance(ignore, Iterable) else (None,)
    if not all(isinstance(pattern, str) for pattern in patterns):
        raise LeakscopeError(f"ignore is a list of names, not {ignore!r}.", slug="no-pattern")
    return (ignore,) if isinstance(ignore, str) else patterns


def _bytes(allow: object) -> float | None:
    if isinstance(allow, str):
        return to_bytes(allow)
    is_number = isinstance(allow, (int, float)) and not isinstance(allow, bool)
    return float(allow) if is_number else None  # type: ignore[arg-type]


def _whole(value: SupportsIndex, name: str, *, least: int) -> int:
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise LeakscopeError(
            f"{name} is a whole number from {least} on, not {value!r}.", slug="no-number"
        )
    return number


@dataclass
class Rounds:
    """Calls of one scenario, and what was seen between them."""

    looker: Looker
    plan: Plan
    _has_looked: ClassVar[bool] = False
    calls: int = 0
    """Calls begun so far."""
    censuses: list[tuple[int, Census]] = field(default_factory=list)
    """Censuses by the number of calls before them; none where nothing was worth naming."""
    is_over: bool = False
    _last: Count = field(default_factory=lambda: Count({}))
    _grown: dict[str, int] = field(default_factory=dict)
    """How much more there was after the last round of what grew in each so far, by about as
    much."""
    _gained: int = 0
    """Bytes by which everything together grew in the last counted round."""

    def __iter__(self) -> Generator[int, None, None]:
        """Yield the number of each call while there is something to find out."""
        self.looker.keeps = [self]
        yield from self._round(self.plan.warmup)
        if (yield from self._grows_twice()):
            self._take_census()
            for times in DOUBLINGS[:-1]:
                yield from self._round(times * self.plan.steps)
                self._take_census()
            with traced():
                self.looker.begin_sites()
                yield from self._round(DOUBLINGS[-1] * self.plan.steps)
                self.looker.learn_sites()
            self._take_census()
        self.is_over = True

    def forget(self) -> None:
        """Let go of all that was seen."""
        self.censuses.clear()
        self.looker.forget()
        self._last = Count({})

    def _grows_twice(self) -> Generator[int, None, bool]:
        """Return whether there is more of some kind after a round, and after another again."""
        if not Rounds._has_looked:
            # The first look of a process imports, and fills caches of ours.
            Rounds._has_looked = True
            self.looker.count()
        # Each count is taken inside of the loop, or what the loop itself needs would have grown.
        for turn in range(3):
            if turn:
                yield from self._round(self.plan.steps)
            self._count(is_first=not turn)
            if turn and not self._grown:
                return False
        return True

    def _count(self, *, is_first: bool) -> None:
        before, self._last = self._last, self.looker.count()
        self._gained = self._last.bytes - before.bytes
        more = self._last.grown_since(before)
        earlier, self._grown = self._grown, {} if is_first else more
        if earlier:
            self._grown = {k: n for k, n in more.items() if _is_alike(n, earlier.get(k, 0))}

    def _round(self, calls: int) -> Iterator[int]:
        for _ in range(calls):
            self.calls += 1
            yield self.calls

    def _take_census(self) -> None:
        self.censuses.append((self.calls, self.looker.census(self._gained)))
