"""What may be measured at a boundary: a floor that even a short run gets, then a budget.

The floor gives each kind of boundary its first censuses at once, so that a run of a few epochs of
a few seconds still allows a verdict. After it, measuring costs at most the budgeted share of the
wall time, the time spent on the floor included, spread over the run and over the kinds; half of
that while nothing grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil, inf

from leakscope.instrument.common_places import is_common
from leakscope.instrument.costs import Costs, Due
from leakscope.instrument.floor import FLOOR_AT_KEY, MAIN_FLOOR, Floor
from leakscope.instrument.growth import GrowthWatch
from leakscope.instrument.stack import Phase
from leakscope.model.boundary import BoundaryKind

LATE_AT_KEY = 3
"""So many more where training phases begin, at every second, then fourth, … of them, if they are
cheap or memory rises: what begins or ends after the first six must be seen in a run of seconds
too, and on a busy machine no census is cheap."""
LATE_RISE_BYTES = 2 << 20
FULL_AT_KEY = 5
SETTLED_AFTER = 6
GROWTH_BYTES = 8 << 20
"""A walk of the whole heap is dear: at once only where resident memory has risen by this much since
so many censuses were taken, or what rises has no name of the user's; otherwise it waits until the
budget pays for it."""
FLOOR_OCCURRENCES = 3
"""Occurrences of a phase that get censuses inside at once."""
EXEMPT_CENSUSES = 48
CHEAP_SECONDS = 0.03
"""Beyond the floor's limit a kind still gets its first two censuses, cheap ones all of the floor:
a run of a second deserves a verdict too."""
EXEMPT_BEGINNINGS = 4
BEGINNING_SECONDS = 1.0
"""No verdict takes fewer comparable censuses than four: where training passes begin, that many are
taken at once if none is dearer than this."""
FLOOR_FULL = 0.5
"""Walks of the whole heap have so much beside the floor, not of it: one that took longer than was
foretold must not cost the others theirs."""
FULL_UNNAMED = 2
UNNAMED_SHARE = 0.25
UNNAMED_SECONDS = 10.0
"""Where what rises has no name of the user's only they can tell what it is: so many are taken
beyond that, for one tells no growth, if one is no dearer than the floor or this part of the time
so far, and than so many seconds."""
FLOOR_INSIDE = 0.6
"""Part of the floor that censuses inside phases may use."""
FULL_INSIDE_AFTER = 1.0
"""A first occurrence that lasts so many seconds may be all there is: full censuses inside it."""
LONG_PASS = 1000
"""Batches of a first pass whose end is looked at as a whole, where what rises has no name."""
FRACTIONS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where in a phase of known length censuses lie: the same places each time."""
EARLY_MARKS = 100
"""Batches of a phase without an end after which censuses lie closer, in proportion: its last part
must be seen often enough to tell what goes on growing from what has filled up."""
RECORD_SHARE = 0.25
INSIDE_SHARE = 0.5
"""Parts of the budget for recording batches and for censuses between them."""
RECORDS_PER_OCTAVE = 2000
CENSUSES_PER_OCTAVE = 64
"""After so many, the spacing doubles: recordings of long runs grow with the logarithm of time."""
KEYS_KEPT = 256
PATIENCE = 3
"""How often a kind gives way to those that were refused before it."""
SPARSE_SECONDS = 60.0
CALM_SHARE = 0.5
"""Part of the budget that is spent while nothing grows."""

Note = Callable[[str, str], None]
_Name = tuple[BoundaryKind, str, str]


class _Key:
    """What one kind of comparable boundary has had."""

    __slots__ = ("begins_training", "censuses", "fulls", "gave_way", "number", "resident", "seen")

    def __init__(self, number: int) -> None:
        self.number = number
        self.begins_training = False
        self.seen = 0
        self.censuses = 0
        self.fulls = 0
        self.gave_way = 0
        self.resident = 0
        """Resident bytes at the latest of them."""


class _Plan:
    """Where censuses lie inside one occurrence of a phase."""

    __slots__ = ("_full_from", "_marks", "begun", "floor", "mark")

    def __init__(self, phase: Phase, now: float, *, full: bool) -> None:
        self.begun = now
        self.floor = phase.occurrence < FLOOR_OCCURRENCES
        first = phase.occurrence == 0
        endless = phase.training and phase.expected is None and phase.owner is None
        self._marks = _marks(phase.expected, dense=first)
        self._full_from = now + FULL_INSIDE_AFTER * (not endless) if first and full else inf
        self.mark = next(self._marks, inf)

    def advance(self, batch: int, now: float) -> Due:
        """Pass the marks up to ``batch``; return the census wanted here."""
        while self.mark <= batch:
            self.mark = next(self._marks, inf)
        if now < self._full_from:
            return Due.FOCUSED
        return Due.FULL


class Schedule:
    """Decides boundary by boundary; told afterwards what its decision has cost."""

    def __init__(
        self,
        budget: float,
        costs: Costs,
        note: Note,
        growth: GrowthWatch,
        floor: Floor = MAIN_FLOOR,
    ) -> None:
        self._floor = floor
        self._ceiling = budget
        self._costs = costs
        self._note = note
        self._growth = growth
        self._keys: dict[_Name, _Key] = {}
        self._waiting: dict[_Name, None] = {}
        self._granted: tuple[_Key, bool, bool] | None = None
        self._resident = 0
        self._resident_settled = 0
        self._censuses = 0
        self._floor_spent = 0.0
        self._floor_full = 0.0
        self._floor_inside = 0.0
        self._inside_spent = 0.0
        self._exempt = 0
        self._inside_censuses = 0
        self._records = 0
        self._next_record = 0.0
        self._next_inside = SPARSE_SECONDS / 30
        self._last_paid = 0.0
        self._trained = False
        self._told = False
        self._is_aligned = False
        self._record_spacing = 0.0

    def align(self) -> None:
        """Measure from now on where other ranks do, though each decides by its own clock."""
        self._is_aligned = True

    def due(self, kind: BoundaryKind, phase: Phase | None, label: str, now: float) -> Due:
        """Return what a boundary is worth ``now``, in seconds since the recording began."""
        if phase is not None and (kind is BoundaryKind.STEP or kind is BoundaryKind.BATCH):
            plan = phase.plan
            if phase.batch < plan.mark and now < self._next_record and now < self._next_inside:
                return Due.NOTHING
            return self._inside(kind, phase, plan, now)
        return self._between(kind, phase, label, now)

    @property
    def _budget(self) -> float:
        """The share of wall time that may be spent now."""
        return self._ceiling * (CALM_SHARE if self._growth.is_calm else 1.0)

    def recorded(self, due: Due, seconds: float, now: float, resident: int = 0) -> None:
        """Learn what the boundary that was just measured has cost, and the resident bytes there."""
        self._costs.sample(due, seconds)
        self._resident = resident
        if due >= Due.FOCUSED and self._censuses < SETTLED_AFTER:
            self._censuses += 1
            self._resident_settled = resident
        self._records += 1
        if self._records >= self._floor.records:
            octave = 2.0 ** (self._records // RECORDS_PER_OCTAVE)
            cost = self._costs.expect(Due.RECORD)
            self._record_spacing = octave * cost / (self._budget * RECORD_SHARE)
            self._next_record = now + self._record_spacing
        granted, self._granted = self._granted, None
        if due < Due.FOCUSED or granted is None:
            return
        key, floor, inside = granted
        key.censuses += 1
        key.fulls += due is Due.FULL
        key.resident = resident
        if floor and due is Due.FULL:
            self._floor_full += seconds
        elif floor:
            self._floor_spent += seconds
            self._floor_inside += seconds * inside
        else:
            self._last_paid = now
        if inside:
            self._inside_spent += seconds
            self._inside_censuses += 1
            self._next_inside = now + self._spacing(Due.FOCUSED, now)

    # Boundaries between phases

    def _between(self, kind: BoundaryKind, phase: Phase | None, label: str, now: float) -> Due:
        name = self._folded((kind, "" if phase is None else phase.name, label))
        key = self._key(name)
        key.seen += 1
        if kind is BoundaryKind.PHASE_BEGIN and phase is not None:
            self._trained = self._trained or phase.training
            key.begins_training = phase.training
            full = self._floor.has_full and (phase.training or not self._trained)
            phase.plan = _Plan(phase, now, full=full)
        if kind is BoundaryKind.RUN_BEGIN:
            return Due.RECORD
        if kind is BoundaryKind.RUN_END and not self._floor.at_end:
            return Due.RECORD
        tier = self._tier(kind, phase, key)
        granted = Due.NOTHING
        if kind is BoundaryKind.RUN_END or key.censuses < FLOOR_AT_KEY:
            granted = self._grant_floor(key, self._at_once(tier), now, inside=False)
        elif tier is Due.FULL and key.fulls < FULL_AT_KEY and self._growth.is_unnamed:
            granted = self._grant_floor(key, tier, now, inside=False)
        elif self._is_late_look(kind, phase, key):
            granted = self._grant_floor(key, Due.FOCUSED, now, inside=False)
        is_place = key.seen % _stride(key.censuses, CENSUSES_PER_OCTAVE) == 0
        if not granted and is_place and self._is_common_to_ranks(key, now):
            granted = self._grant_paid(name, key, tier, now)
        if granted:
            return granted
        return Due.RECORD if key.seen % _stride(key.seen, RECORDS_PER_OCTAVE) == 0 else Due.NOTHING

    def _at_once(self, tier: Due) -> Due:
        """Return what a kind gets whatever it costs: the whole heap only where memory rises."""
        settled = self._censuses >= SETTLED_AFTER
        rises = settled and self._resident - self._resident_settled >= GROWTH_BYTES
        return tier if rises or self._growth.is_unnamed else min(tier, Due.FOCUSED)

    def _is_late_look(self, kind: BoundaryKind, phase: Phase | None, key: _Key) -> bool:
        """Return whether a phase of training begins whose kind was last looked at long ago."""
        if kind is not BoundaryKind.PHASE_BEGIN or phase is None or not phase.training:
            return False
        cheap = self._costs.expect(Due.FOCUSED) <= CHEAP_SECONDS * self._costs.slowed
        rises = self._resident - key.resident >= LATE_RISE_BYTES
        stride: int = 2 ** (1 + (key.censuses - FLOOR_AT_KEY) // LATE_AT_KEY)
        return (cheap or rises) and key.seen % stride == 0

    def _tier(self, kind: BoundaryKind, phase: Phase | None, key: _Key) -> Due:
        if self._trained and phase is not None and kind is BoundaryKind.PHASE_END:
            place = phase.occurrence == 0 and phase.batch >= LONG_PASS
        elif self._trained:
            place = kind is BoundaryKind.PHASE_BEGIN and phase is not None and phase.training
        else:
            place = kind is not BoundaryKind.PHASE_BEGIN
        enough = key.fulls >= FULL_AT_KEY and key.censuses % 4 != 0
        enough = enough or not self._floor.has_full
        return Due.FULL if place and not enough else Due.FOCUSED

    # Boundaries inside phases

    def _inside(self, kind: BoundaryKind, phase: Phase, plan: _Plan, now: float) -> Due:
        name = self._folded((kind, phase.name, ""))
        granted = Due.NOTHING
        if phase.batch >= plan.mark:
            tier = plan.advance(phase.batch, now)
            if plan.floor:
                key = self._key(name)
                granted = self._grant_floor(key, self._at_once(tier), now, inside=True)
            if not granted and self._is_measured(phase):
                granted = self._grant_inside(name, now)
        elif now >= self._next_inside and self._is_common_batch(
            phase, self._spacing(Due.FOCUSED, now), now
        ):
            granted = self._grant_inside(name, now)
        if granted:
            return granted
        if now >= self._next_record and self._is_common_batch(phase, self._record_spacing, now):
            return Due.RECORD
        return Due.NOTHING

    # Ranks

    def _is_common_to_ranks(self, key: _Key, now: float) -> bool:
        """Whether an end of a phase is one at which other ranks look too."""
        if not self._is_aligned:
            return True
        spacing = self._costs.expect(Due.FOCUSED) / self._budget * len(self._keys)
        return is_common(key.seen + key.number, spacing, now / key.seen)

    def _is_common_batch(self, phase: Phase, spacing: float, now: float) -> bool:
        if not self._is_aligned:
            return True
        return is_common(phase.batch, spacing, (now - phase.plan.begun) / max(phase.batch, 1))

    def _grant_inside(self, name: _Name, now: float) -> Due:
        expected = self._costs.expect(Due.FOCUSED)
        spends_too_much = self._inside_spent + expected > INSIDE_SHARE * self._budget * now
        if spends_too_much or not self._affords(Due.FOCUSED, now):
            self._next_inside = now + self._spacing(Due.FOCUSED, now)
            return Due.NOTHING
        self._granted = (self._key(name), False, True)
        return Due.FOCUSED

    def _is_measured(self, phase: Phase) -> bool:
        return phase.occurrence % _stride(self._inside_censuses, CENSUSES_PER_OCTAVE) == 0

    def _spacing(self, tier: Due, now: float) -> float:
        octave = 2.0 ** (self._inside_censuses // CENSUSES_PER_OCTAVE)
        evenly = self._costs.expect(tier) / (self._budget * INSIDE_SHARE)
        return max(octave * evenly, now / 200)

    # Grants

    def _grant_floor(self, key: _Key, tier: Due, now: float, *, inside: bool) -> Due:
        expected = self._costs.expect(Due.FOCUSED)
        at_once = 0.0 if self._is_dear(expected) else self._floor.seconds * self._costs.slowed
        allowed = self._floor.share * now + at_once
        if tier is Due.FULL and self._may_look_at_all(key, allowed, now):
            self._granted = (key, True, inside)
            return tier
        fits = not inside or self._floor_inside + expected <= FLOOR_INSIDE * allowed
        if fits and self._floor_spent + expected <= allowed:
            self._granted = (key, True, inside)
            return Due.FOCUSED
        exempt = self._exempt_at(key, expected, inside=inside)
        if key.censuses < exempt and self._exempt < EXEMPT_CENSUSES:
            self._exempt += 1
            self._granted = (key, True, inside)
            return Due.FOCUSED
        return Due.NOTHING

    def _exempt_at(self, key: _Key, expected: float, *, inside: bool) -> int:
        """Return how many censuses a kind gets beyond the limit, given what one will cost."""
        slowed = self._costs.slowed
        if self._is_dear(expected):
            return 0 if self._costs.knows(Due.FOCUSED) else 1
        if expected <= CHEAP_SECONDS * slowed and not inside:
            return self._floor.cheap_exempt
        first = key.begins_training and expected <= BEGINNING_SECONDS * slowed
        return EXEMPT_BEGINNINGS if first else self._floor.exempt

    def _is_dear(self, expected: float) -> bool:
        return expected > self._floor.dear * self._costs.slowed

    def _may_look_at_all(self, key: _Key, allowed: float, now: float) -> bool:
        """Whether the floor bears a walk of the whole heap."""
        expected = self._costs.expect(Due.FULL)
        if self._floor_full + expected <= FLOOR_FULL * allowed:
            return True
        if not self._growth.is_unnamed or key.fulls >= FULL_UNNAMED:
            return False
        most = max(self._floor.seconds * self._costs.slowed, UNNAMED_SHARE * now)
        return expected <= min(most, UNNAMED_SECONDS)

    def _grant_paid(self, name: _Name, key: _Key, tier: Due, now: float) -> Due:
        for cheaper in (tier, Due.FOCUSED):
            if self._affords(cheaper, now):
                if not self._is_aligned and not self._has_turn(name, key):
                    return Due.NOTHING
                self._granted = (key, False, False)
                return cheaper
        self._waiting[name] = None
        return Due.NOTHING

    def _affords(self, tier: Due, now: float) -> bool:
        expected = self._costs.expect(tier)
        if not self._is_aligned and now - self._last_paid < expected / self._budget / 2:
            return False
        affords = self._costs.total + expected <= self._budget * now
        if not affords and expected > self._ceiling * SPARSE_SECONDS and not self._told:
            self._told = True
            self._note(
                "census-sparse",
                f"A census takes {expected:.1f} s in this program; to stay within the budget of "
                f"{self._ceiling:.1%} they are at least {expected / self._ceiling:.0f} s apart.",
            )
        return affords

    def _has_turn(self, name: _Name, key: _Key) -> bool:
        """Whether no kind that was refused earlier comes first."""
        if name not in self._waiting and self._waiting and key.gave_way < PATIENCE:
            key.gave_way += 1
            self._waiting[name] = None
            return False
        self._waiting.pop(name, None)
        key.gave_way = 0
        return True

    def _folded(self, name: _Name) -> _Name:
        """Return the name under which a kind is kept: a program may make up any number."""
        if name in self._keys or len(self._keys) < KEYS_KEPT:
            return name
        return (name[0], "", "")

    def _key(self, name: _Name) -> _Key:
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = _Key(len(self._keys))
        return key


def _stride(count: int, octave: int) -> int:
    """Return how many to pass over for one: twice as many after each octave's worth."""
    return 1 << min(count // octave, 30)


def _marks(expected: int | None, *, dense: bool) -> Iterator[int]:
    """Yield the batches of a phase after which a census lies, ascending."""
    evenly = [] if expected is None else [ceil(expected * part) for part in FRACTIONS]
    if expected is not None and not dense:
        yield from sorted(set(evenly))
        return
    mark = 1
    is_endless = expected is None and dense
    while expected is None or mark <= expected:
        yield from sorted({at for at in evenly if at <= mark} | {mark})
        evenly = [at for at in evenly if at > mark]
        factor = 2.0 if not is_endless else 1.5 if mark < EARLY_MARKS else 1.35
        mark = max(mark + 1, int(mark * factor))
    yield from evenly
