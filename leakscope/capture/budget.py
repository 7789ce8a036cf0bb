"""The budget: what measuring has cost and will cost, how long it may pause the program, and the
floor that a short run gets.

A look at the heap of one rank stalls all that train with it, so ranks should stall together. Each
decides by its own clock how far apart its looks must be; taken at multiples of the next power of
two only, they fall on those of a rank whose looks are farther apart too.

Workers that live for one epoch would otherwise each measure again what their dataset costs, at the
cost of a census.
"""

from __future__ import annotations

import mmap
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from math import ceil, inf
from statistics import median_low

from leakscope.capture import policy
from leakscope.capture.phase_stack import Phase
from leakscope.capture.policy import MOST_SLOWED


class Due(IntEnum):
    """What a boundary is worth, each value including the ones before it."""

    NOTHING = 0
    RECORD = 1
    FOCUSED = 2
    """A census of what the user's names reach."""
    FULL = 3
    """A full one that goes on from what an earlier one has sealed."""
    WHOLE = 4
    """A full one that walks every object, and seals."""
    CHECK = 5
    """A full one, and a whole one at the same moment to hold it against."""


class Costs:
    """Seconds spent so far by activity, and what a boundary of each kind is expected to cost."""

    slowed: float = 1.0
    """How many times longer measuring takes than it works: others use the processors meanwhile."""
    is_sealed: bool = False

    def __init__(self, blocks: Callable[[], int] = sys.getallocatedblocks) -> None:
        self.seconds: dict[str, float] = {}
        self.total = 0.0
        self._blocks = blocks
        self._expected: dict[Due, float] = {}
        self._latest: deque[float] = deque(maxlen=3)
        self._focused = 0
        self._faded: dict[Due, float] = {}
        self._taken = self._worked = 0.0

    def spend(self, activity: str, seconds: float) -> None:
        """Charge time to an activity."""
        self.seconds[activity] = self.seconds.get(activity, 0.0) + seconds
        self.total += seconds

    def note(self, activity: str, seconds: float) -> None:
        """Note time that the user requested, or that nobody waited for: no budget pays it."""
        self.seconds[activity] = self.seconds.get(activity, 0.0) + seconds

    def sample(self, due: Due, seconds: float, objects: int | None = None) -> None:
        """Learn what a boundary of this kind has just cost as a whole.

        The first census of the user's names includes work that is done once: the next one is
        estimated from the number of objects. One after imports is no measure either: the median of
        three counts.
        """
        if due is Due.CHECK:
            due, seconds = Due.WHOLE, max(0.0, seconds - self.expect(Due.FULL))
        before = self._expected.get(due, seconds)
        if due is Due.FOCUSED and self._focused < 2:
            if self._focused == 0 and objects is not None:
                walk = policy.FOCUSED_SECONDS + policy.SECONDS_PER_BLOCK * objects
                seconds = min(seconds, walk * self._waits)
            before = seconds
            self._focused += 1
        if due is Due.FOCUSED:
            self._latest.append(seconds)
            seconds = median_low(self._latest)
        self._expected[due] = before + policy.RECENT * (seconds - before)
        self._faded.pop(due, None)

    def forget_names(self) -> None:
        """Forget what censuses of the user's names took while a program was set up and imported."""
        self._focused = 0
        self._latest.clear()
        self._expected.pop(Due.FOCUSED, None)
        self._faded.pop(Due.FOCUSED, None)

    def fade(self, due: Due) -> None:
        """Expect a little less of what was too much, so that it is tried again."""
        part = self._faded.get(due, 1.0) * policy.PAUSE_FADES
        self._faded[due] = max(part, policy.PAUSE_LEAST_PART)

    def learn_pace(self, seconds: float, worked: float) -> None:
        """Learn from a census that took ``seconds``, in which the processor ``worked`` for it."""
        self._taken = policy.PACE_LASTING * self._taken + seconds
        self._worked = policy.PACE_LASTING * self._worked + worked
        self.slowed = min(self._waits, MOST_SLOWED)

    def knows(self, due: Due) -> bool:
        """Return whether a boundary of this kind was ever measured, here or in a process alike."""
        return due in self._expected

    @property
    def knows_usual_focused(self) -> bool:
        """Whether a focused census was measured after the first, which costs more than others."""
        return self._focused >= 2

    @property
    def has_measured(self) -> bool:
        """Whether a census of any kind was ever measured."""
        return any(due >= Due.FOCUSED for due in self._expected)

    @property
    def full(self) -> Due:
        """What a full census would be now."""
        return Due.FULL if self.is_sealed else Due.WHOLE

    def expect(self, due: Due) -> float:
        """Return the seconds that the next boundary of this kind will probably cost."""
        known = self._expected.get(due)
        expected = self._foretell(due) if known is None else known
        return expected * self._faded.get(due, 1.0)

    def expect_alone(self, due: Due) -> float:
        """Return the same on a machine that has nothing else to do."""
        return self.expect(due) / self._waits

    @property
    def _waits(self) -> float:
        """How many times longer measuring takes than it works, however long that is."""
        return max(self._taken / max(self._worked, 1e-6), 1.0) if self._taken else 1.0

    def _foretell(self, due: Due) -> float:
        """Guess by the size of the heap, or by a kind that was measured, what never was."""
        if due is Due.CHECK:
            return self.expect(Due.FULL) + self.expect(Due.WHOLE)
        if due is Due.WHOLE:
            return policy.WHOLE_SECONDS_PER_BLOCK * self._blocks() * self._waits
        if due is Due.FULL:
            return policy.RESUMED_PART * self.expect(Due.WHOLE)
        if due is Due.FOCUSED:
            beyond = self._blocks() - policy.LIBRARY_BLOCKS
            return max(policy.FOCUSED_SECONDS, policy.SECONDS_PER_BLOCK * beyond) * self._waits
        return policy.RECORD_SECONDS


@dataclass(frozen=True)
class Floor:
    """What a run gets at once, whatever the budget says.

    Seconds are those of a machine that has nothing else to do: on a busy one all takes longer, the
    program too, and a run of the same work gets as many censuses.
    """

    share: float = policy.FLOOR_SHARE
    seconds: float = policy.FLOOR_SECONDS
    exempt: int = policy.EXEMPT_AT_KEY
    """Censuses of each kind beyond the limit that ``share`` and ``seconds`` set."""
    cheap_exempt: int = policy.EXEMPT_AT_KEY
    """The same where they take no longer than ``cheap``."""
    cheap: float = 0.0
    expensive: float = inf
    """If one takes more seconds, only the first is exempt; ``share`` limits the others."""
    has_full: bool = True
    """Whether the whole heap is walked at all."""
    at_end: bool = True
    """Whether the end of the run gets a census."""
    at_end_within: float = inf
    """Seconds that it may take. With a limit it is one of the user's names alone."""
    records: int = policy.FLOOR_RECORDS
    """Boundaries that are all recorded; later ones are spaced by their part of the budget."""


MAIN_FLOOR = Floor()
CHILD_FLOOR = Floor(at_end_within=policy.CHILD_END_SECONDS)
WORKER_FLOOR = Floor(
    share=policy.WORKER_FLOOR_SHARE,
    seconds=policy.WORKER_FLOOR_SECONDS,
    cheap_exempt=policy.WORKER_CHEAP_EXEMPT,
    cheap=policy.WORKER_CHEAP_SECONDS,
    expensive=policy.WORKER_EXPENSIVE_SECONDS,
    has_full=False,
    at_end=False,
    records=policy.WORKER_RECORDS,
)


class Pauses:
    """Holds what a census is expected to take against the pause that the user allows.

    The first census, the first whole walk and the last census are exempt: without the first two
    there is nothing to go on from, and the last holds nothing up. So are the first few where
    training passes begin, without which there is no verdict.
    """

    def __init__(self, most_seconds: float, costs: Costs) -> None:
        self._most = most_seconds
        self.costs = costs
        self.postponed = 0
        self.left_out = 0
        """Censuses that were not taken because each would have taken too long."""
        self.made_cheaper = 0
        """Censuses that looked at less for the same reason."""

    def allows(self, kind: Due) -> bool:
        """Return whether a census of this kind may be taken here."""
        costs = self.costs
        is_first = not costs.has_measured or (kind is Due.WHOLE and not costs.knows(Due.WHOLE))
        # What a census that goes on from a seal takes is a rough guess until one was taken.
        is_guess = kind is Due.FULL and not costs.knows(Due.FULL)
        most = self._most * (policy.PAUSE_GUESS if is_guess else 1.0)
        return is_first or costs.expect(kind) / costs.slowed <= most

    @property
    def usual(self) -> Due:
        """The fullest census that is had without a whole walk and within the pause."""
        costs = self.costs
        if not costs.is_sealed:
            return Due.FOCUSED
        is_least = costs.expect(Due.FULL) <= costs.expect(Due.FOCUSED)
        return Due.FULL if is_least or self.allows(Due.FULL) else Due.FOCUSED

    def pass_by(self, kind: Due, *, is_needed: bool = False) -> Due:
        """Return the census that is taken where ``kind`` is due, none if it takes too long."""
        if not is_needed and not self.allows(kind):
            self.costs.fade(kind)
            self.left_out += 1
            return Due.NOTHING
        if kind is Due.FOCUSED and self.costs.is_sealed and not self.allows(Due.FULL):
            self.costs.fade(Due.FULL)
            self.made_cheaper += 1
        return kind


MOST_DOUBLINGS = 40


def is_common(number: int, spacing_s: float, period_s: float) -> bool:
    """Return whether occurrence ``number`` of a kind is one at which other ranks look too.

    Looks are ``spacing_s`` apart at least, occurrences ``period_s``.
    """
    return number % stride(spacing_s, period_s) == 0


def stride(spacing_s: float, period_s: float) -> int:
    """Return how many occurrences share one census: a power of two."""
    if spacing_s <= period_s or period_s <= 0:
        return 1
    apart = min(ceil(spacing_s / period_s), 1 << MOST_DOUBLINGS)
    return 1 << (apart - 1).bit_length()


class CensusPlan:
    """Where censuses lie inside one occurrence of a phase."""

    __slots__ = ("_is_endless", "_marks", "begun", "floor", "late", "mark")

    def __init__(self, phase: Phase, now: float) -> None:
        self.begun = now
        self.late = inf
        """When the next mark is late, as its steps take longer than those before."""
        self._is_endless = phase.expected is None
        self.floor = phase.occurrence < policy.FLOOR_OCCURRENCES
        self._marks = _marks(phase.expected, dense=phase.occurrence == 0)
        self.mark = next(self._marks, inf)

    def advance(self, batch: int, now: float) -> None:
        """Pass the marks up to ``batch``, which was reached ``now``."""
        while self.mark <= batch:
            self.mark = next(self._marks, inf)
        if self._is_endless:
            self.late = self.begun + policy.LATE_MARK * (now - self.begun)


def _marks(expected: int | None, *, dense: bool) -> Iterator[int]:
    evenly = [] if expected is None else [ceil(expected * part) for part in policy.FRACTIONS]
    if expected is not None and not dense:
        yield from sorted(set(evenly))
        return
    mark = 1
    while expected is None or mark <= expected:
        yield from sorted({at for at in evenly if at <= mark} | {mark})
        evenly = [at for at in evenly if at > mark]
        if expected is not None:
            factor = 4.0
        elif dense:
            factor = 1.5 if mark < policy.EARLY_MARKS else 1.35
        else:
            factor = 2.0
        mark = max(mark + 1, int(mark * factor))
    yield from evenly


_SECONDS = struct.Struct("d")


class CensusCost:
    """Seconds in a page that forked workers write to and the process that forked them reads.

    They are those of a machine that has nothing else to do.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE)

    @property
    def seconds(self) -> float:
        """What the latest workers found; 0 before any did."""
        seconds: float = _SECONDS.unpack_from(self._page)[0]
        return seconds

    def publish(self, costs: Costs) -> None:
        """Pass on what this worker measured to those that come after it."""
        if costs.knows(Due.FOCUSED):
            _SECONDS.pack_into(self._page, 0, costs.expect_alone(Due.FOCUSED))


def costs_with(seconds: float) -> Costs:
    """Return the account of a worker to which so many seconds were handed on; 0: none."""
    costs = Costs()
    if seconds > 0:
        costs.sample(Due.FOCUSED, seconds)
    return costs
