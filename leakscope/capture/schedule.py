"""What may be measured at a boundary: a floor that even a short run gets, then a budget, more
where something grows.

The floor gives each kind of boundary its first censuses at once, so that a run of a few epochs of
a few seconds still allows a verdict. After it, measuring costs at most the budgeted share of the
wall time, the time spent on the floor included, spread over the run and over the kinds; half of
that while nothing grows.

Every census is a full one as soon as the run bears the first whole walk, from which the others go
on; until then, and where there is nothing to go on from, it looks at what the user's names reach.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, log1p
from typing import NamedTuple

from leakscope.capture import policy
from leakscope.capture.budget import MAIN_FLOOR, CensusPlan, Due, Floor, Pauses, is_common
from leakscope.capture.phase_stack import Phase
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind, comparable_key
from leakscope.model.census import Census, CensusScope

Note = Callable[[str, str], None]
_Name = tuple[BoundaryKind, str, str]
_BY_TIME: _Name = (BoundaryKind.TIME, "", "")


@dataclass(slots=True, eq=False)
class _Key:
    number: int
    begins_training: bool = False
    seen: int = 0
    censuses: int = 0
    fulls: int = 0
    deferrals: int = 0
    resident: int = 0


class Schedule:
    """Decides boundary by boundary; learns afterwards what its decision has cost."""

    def __init__(
        self,
        budget: float,
        pauses: Pauses,
        note: Note,
        growth: GrowthWatch,
        floor: Floor = MAIN_FLOOR,
    ) -> None:
        self._floor = floor
        self._pauses = pauses
        self._ceiling = budget
        self._costs = pauses.costs
        self._note = note
        self._growth = growth
        self._keys: dict[_Name, _Key] = {}
        self._waiting: dict[_Name, None] = {}
        self._granted: tuple[_Key, bool, bool] | None = None
        self._resident = self._wholes = self._resumed = 0
        self._is_too_long = False
        self._whole_spent = self._checks_spent = self._floor_spent = 0.0
        self._timed_spent = 0.0
        """Seconds of that at boundaries by time alone, before the program reached one itself."""
        self._has_begun = False
        """Whether a phase has begun: what came before was set-up."""
        self._floor_full = self._floor_inside = self._late_spent = 0.0
        self._inside_since: float | None = None
        """When the first census inside a phase without an end was due."""
        self._inside_spent = 0.0
        self._exempt = self._inside_censuses = self._records = 0
        self._next_record = 0.0
        self._next_inside = 2.0
        self._next_by_time = self._next_between_answers = 0.0
        self._next_rare = policy.RARE_FROM_SECONDS
        """When the budget may pay for a census that takes longer than a pause may."""
        self._last_paid = 0.0
        self._trained = self._has_reported = self._has_census = self._is_aligned = False
        self._record_spacing = 0.0
        self._now = 0.0
        self.serves = False
        """Whether the program is a server, whose answers somebody waits for."""

    def align(self) -> None:
        """Measure from now on where other ranks do, though each decides by its own clock."""
        self._is_aligned = True

    def due(self, kind: BoundaryKind, phase: Phase | None, label: str, now: float) -> Due:
        """Return what a boundary is worth ``now``, in seconds since the recording began."""
        self._now = now
        if phase is not None and (kind is BoundaryKind.STEP or kind is BoundaryKind.BATCH):
            if self.serves and not self._trained and phase.expected is None:
                return self._between_answers(now)
            plan = phase.plan
            is_before = now < plan.late and now < self._next_record and now < self._next_inside
            if phase.batch < plan.mark and is_before:
                return Due.NOTHING
            self._is_too_long = False
            return self._inside(kind, phase, plan, now)
        self._is_too_long = False
        if kind is BoundaryKind.TIME:
            return self._by_time(now)
        if kind is BoundaryKind.PHASE_BEGIN and self._timed_spent:
            # Looks at a program that was being set up are not to take those of its training.
            self._floor_spent -= self._timed_spent
            self._floor_inside -= self._timed_spent
            self._timed_spent = 0.0
            if not self._has_begun:
                self._costs.forget_names()
        self._has_begun = self._has_begun or kind is BoundaryKind.PHASE_BEGIN
        return self._between(kind, phase, label, now)

    @property
    def _budget(self) -> float:
        """The share of wall time that may be spent now."""
        share = self._ceiling * (policy.CALM_SHARE if self._growth.is_calm else 1.0)
        further = self._now - policy.SERVED_AFTER_SECONDS
        if not self.serves or further <= 0:
            return share
        before = share * policy.SERVED_AFTER_SECONDS
        return (before + min(share, policy.SERVED_SHARE) * further) / self._now

    def recorded(
        self, due: Due, seconds: float, now: float, resident: int = 0, objects: int | None = None
    ) -> None:
        """Learn what a boundary has cost; ``objects`` are those that its census met, if known."""
        self._costs.sample(due, seconds, objects)
        self._resident = resident
        self._count_walks(due, seconds)
        self._records += 1
        if self._records >= self._floor.records:
            octave = 2.0 ** (self._records // policy.RECORDS_PER_OCTAVE)
            cost = self._costs.expect(Due.RECORD)
            self._record_spacing = octave * cost / (self._budget * policy.RECORD_SHARE)
            self._next_record = now + self._record_spacing
        granted, self._granted = self._granted, None
        if due < Due.FOCUSED or granted is None:
            return
        key, floor, inside = granted
        key.censuses += 1
        key.fulls += due > Due.FOCUSED
        key.resident = resident
        is_first, self._has_census = not self._has_census, True
        if due is Due.FOCUSED:  # one that takes in what was imported is no measure of the others
            seconds = min(seconds, policy.FULL_CHEAP * self._costs.expect(due))
        if not floor:
            self._last_paid = now
        elif is_first:
            pass  # it learns of the program what it learns once, and says nothing of later ones
        elif due is Due.FULL and seconds > policy.FULL_CHEAP * self._costs.expect(Due.FOCUSED):
            self._floor_full += seconds
        elif due <= Due.FULL:
            self._floor_spent += seconds
            self._floor_inside += seconds * inside
            if key is self._keys.get(_BY_TIME):
                self._timed_spent += seconds
        if inside:
            self._inside_spent += seconds
            self._inside_censuses += 1
            self._next_inside = now + self._spacing(now)

    def _count_walks(self, due: Due, seconds: float) -> None:
        if due is Due.FULL:
            self._resumed += 1
        elif due is Due.WHOLE:
            self._wholes += 1
            self._whole_spent += seconds
            self._resumed = 0
        elif due is Due.CHECK:
            self._checks_spent += seconds
            self._resumed = 0

    # What kind of census

    def _kind(self, now: float, *, disturbs: bool = True) -> Due:
        """Return what a census looks at now; ``disturbs`` says whether anyone waits meanwhile."""
        if not self._floor.has_full or (disturbs and self._spares_answers):
            return Due.FOCUSED
        if self._costs.is_sealed:
            checks = self._checks(now, policy.CHECK_AFTER) and self._pauses.allows(Due.CHECK)
            return Due.CHECK if checks else self._usual
        if self._pauses.allows(Due.WHOLE) and self._affords_whole(now):
            return Due.WHOLE
        return Due.FOCUSED

    def _affords_whole(self, now: float) -> bool:
        """Whether the run is long enough for a whole walk; one that seals nothing is paid for."""
        is_unnamed = self._growth.is_unnamed
        expected = self._costs.expect(Due.WHOLE)
        if self._wholes < (policy.FULL_AT_KEY if is_unnamed else 1):
            share = policy.WHOLE_SHARE_UNNAMED if is_unnamed else policy.WHOLE_SHARE
            if self._whole_spent + expected <= share * now:
                return True
        if self._wholes == 0 and self._costs.knows_usual_focused:
            # A heap that is the user's for the most part: what goes on from a seal is cheaper.
            saves = self._costs.expect(Due.FOCUSED) > self._costs.expect(Due.FULL)
            if saves and expected <= policy.WHOLE_SHARE_SAVING * now:
                return True
        return self._affords(Due.WHOLE, now)

    def _checks(self, now: float, after: int) -> bool:
        if self._resumed < after:
            return False
        spent = self._checks_spent + self._costs.expect(Due.WHOLE)
        return spent <= policy.CHECK_SHARE * self._budget * now

    @property
    def _spares_answers(self) -> bool:
        """Whether a census is to be short, as many requests would wait for a longer one."""
        if not self.serves or self._growth.is_unnamed:
            return False
        longest = policy.FULL_CHEAP * self._costs.expect(Due.FOCUSED)
        return self._costs.expect(self._costs.full) > longest

    @property
    def _usual(self) -> Due:
        """What most censuses are, whole walks and checks apart."""
        if not self._floor.has_full or self._spares_answers:
            return Due.FOCUSED
        return self._pauses.usual

    def _expected(self) -> float:
        return self._costs.expect(self._usual)

    # Boundaries between phases

    def _between(self, kind: BoundaryKind, phase: Phase | None, label: str, now: float) -> Due:
        name = self._folded((kind, "" if phase is None else phase.name, label))
        key = self._key(name)
        key.seen += 1
        if kind is BoundaryKind.PHASE_BEGIN and phase is not None:
            self._trained = self._trained or phase.training
            key.begins_training = phase.training
            phase.plan = CensusPlan(phase, now)
        if kind is BoundaryKind.RUN_BEGIN:
            return Due.RECORD
        if kind is BoundaryKind.RUN_END:
            return self._at_end(now)
        granted = Due.NOTHING
        if key.censuses < policy.FLOOR_AT_KEY or key.fulls < policy.FULL_AT_KEY:
            granted = self._grant_floor(key, now)
        if not granted and not self._is_too_long and self._is_late_look(kind, phase, key):
            granted = self._grant_late(key, now)
        is_place = key.seen % _stride(key.censuses, policy.CENSUSES_PER_OCTAVE) == 0
        is_place = is_place and not self._is_too_long
        if not granted and is_place and self._is_common_to_ranks(key, now):
            granted = self._grant_paid(name, key, now)
        if granted:
            return granted
        is_recorded = key.seen % _stride(key.seen, policy.RECORDS_PER_OCTAVE) == 0
        return Due.RECORD if is_recorded else Due.NOTHING

    def _between_answers(self, now: float) -> Due:
        """Return what a pass of a server's model is worth: time says when, as without a model."""
        if now < self._next_between_answers:
            return Due.NOTHING
        spacing = max(policy.SERVED_SPACING_SECONDS, policy.TIME_SPACING_SHARE * now)
        self._next_between_answers = now + spacing
        self._is_too_long = False
        return self._by_time(now)

    def _by_time(self, now: float) -> Due:
        """Return what to do at a boundary made by time: censuses get ever rarer."""
        if self._is_aligned or now < self._next_by_time:
            return Due.RECORD  # other ranks don't look at the same time
        key = self._key(_BY_TIME)
        key.seen += 1
        granted = Due.NOTHING
        if key.censuses < policy.TIME_FLOOR:
            granted = self._grant_floor(key, now, inside=True)
        granted = granted or self._grant_paid(_BY_TIME, key, now)
        if granted:
            further = policy.SERVED_FURTHER if self.serves else policy.TIME_FURTHER
            self._next_by_time = now * further
        return granted or Due.RECORD

    def _at_end(self, now: float) -> Due:
        """Return what the end of the run gets, where a pause disturbs nobody."""
        if not self._floor.at_end:
            return Due.RECORD
        if self._floor.at_end_within < inf:
            is_short = self._costs.expect(Due.FOCUSED) <= self._floor.at_end_within
            return Due.FOCUSED if is_short else Due.RECORD
        if self._costs.is_sealed and self._checks(now, policy.CHECK_AFTER_AT_END):
            return Due.CHECK
        kind = self._kind(now, disturbs=False)
        rises = self._growth.is_unnamed or self._growth.has_much_unexplained
        if kind is Due.FOCUSED and rises and self._floor.has_full:
            kind = self._costs.full  # nothing else tells a short run what rose
        share = (policy.WHOLE_SHARE_AT_END if rises else policy.WHOLE_SHARE_UNNAMED) * now
        most = policy.BEGINNING_SECONDS * self._costs.slowed  # however short the run was
        return kind if self._costs.expect(kind) <= max(share, most) else Due.FOCUSED

    def _is_late_look(self, kind: BoundaryKind, phase: Phase | None, key: _Key) -> bool:
        """Whether a phase of the program's work was last looked at long ago: of training, one named
        by hand, or any where nothing is trained.
        """
        if kind is not BoundaryKind.PHASE_BEGIN or phase is None:
            return False
        if not (phase.training or phase.explicit) and (self._trained or self.serves):
            return False
        cheap = self._expected() <= policy.LATE_CHEAP_SECONDS * self._costs.slowed
        rises = self._resident - key.resident >= policy.LATE_RISE_BYTES
        if key.censuses < policy.FLOOR_AT_KEY:
            return rises
        stride: int = 2 ** (1 + (key.censuses - policy.FLOOR_AT_KEY) // policy.LATE_AT_KEY)
        return (cheap or rises) and key.seen % stride == 0

    # Boundaries inside phases

    def _inside(self, kind: BoundaryKind, phase: Phase, plan: CensusPlan, now: float) -> Due:
        name = self._folded((kind, phase.name, ""))
        granted = Due.NOTHING
        if phase.batch >= plan.mark or now >= plan.late:
            plan.advance(phase.batch, now)
            if plan.floor:
                is_endless = phase.expected is None  # else its ends are better compared
                granted = self._grant_floor(
                    self._key(name), now, inside=True, full=is_endless, is_endless=is_endless
                )
            is_place = not self._is_too_long and self._is_measured(phase)
            if not granted and is_place and self._is_common_batch(phase, self._spacing(now), now):
                granted = self._grant_inside(name, now)
        elif now >= self._next_inside and self._is_common_batch(phase, self._spacing(now), now):
            granted = self._grant_inside(name, now)
        if granted:
            return granted
        if now >= self._next_record and self._is_common_batch(phase, self._record_spacing, now):
            return Due.RECORD
        return Due.NOTHING

    # Ranks

    def _is_common_to_ranks(self, key: _Key, now: float) -> bool:
        if not self._is_aligned:
            return True
        spacing = self._expected() / self._budget * len(self._keys)
        return is_common(key.seen + key.number, spacing, now / key.seen)

    def _is_common_batch(self, phase: Phase, spacing: float, now: float) -> bool:
        if not self._is_aligned:
            return True
        return is_common(phase.batch, spacing, (now - phase.plan.begun) / max(phase.batch, 1))

    def _grant_inside(self, name: _Name, now: float) -> Due:
        expected = self._expected()
        spends_too_much = self._inside_spent + expected > policy.INSIDE_SHARE * self._budget * now
        # What is between phases comes along seldom: it finds its part of the budget there.
        waiting = 0 if self._is_aligned else len(self._waiting)
        kept = expected * min(waiting, policy.RESERVED)
        is_kept = self._costs.total + expected + kept > self._budget * now
        if spends_too_much or is_kept or not self._affords(self._usual, now):
            self._next_inside = now + self._spacing(now)
            return Due.NOTHING
        return self._grant(self._key(name), self._usual, now, floor=False, inside=True)

    def _is_measured(self, phase: Phase) -> bool:
        return phase.occurrence % _stride(self._inside_censuses, policy.CENSUSES_PER_OCTAVE) == 0

    def _spacing(self, now: float) -> float:
        octave = 2.0 ** (self._inside_censuses // policy.CENSUSES_PER_OCTAVE)
        evenly = self._expected() / (self._budget * policy.INSIDE_SHARE)
        return max(octave * evenly, now / 200)

    # Grants

    def _grant(self, key: _Key, kind: Due, now: float, *, floor: bool, inside: bool) -> Due:
        """Return what is taken of a census that time is there for, given the pause it makes."""
        is_needed = key.begins_training and key.censuses < policy.EXEMPT_BEGINNINGS
        is_rare = not floor and now >= self._next_rare
        if is_rare and not self._pauses.allows(kind):
            self._next_rare = policy.RARE_FURTHER * now
        taken = self._pauses.pass_by(kind, is_needed=is_needed or is_rare)
        if taken < Due.FOCUSED:
            self._is_too_long = True
            self._next_inside = max(self._next_inside, now + self._spacing(now))
            return Due.NOTHING
        self._granted = (key, floor, inside)
        return taken

    def _grant_late(self, key: _Key, now: float) -> Due:
        expected = self._costs.expect(Due.FOCUSED)
        if self._late_spent + expected > policy.LATE_SHARE * now:
            return Due.NOTHING
        self._late_spent += expected
        kind = self._usual
        if self._costs.expect(kind) > policy.FULL_CHEAP * expected:
            kind = Due.FOCUSED
        return self._grant(key, kind, now, floor=True, inside=False)

    def _grant_floor(
        self,
        key: _Key,
        now: float,
        *,
        inside: bool = False,
        full: bool = True,
        is_endless: bool = False,
    ) -> Due:
        kind = self._kind(now)
        if kind > Due.FULL:
            return self._grant(key, kind, now, floor=True, inside=inside)
        expected = self._costs.expect(Due.FOCUSED)
        at_once = 0.0 if self._is_dear(expected) else self._floor.seconds * self._costs.slowed
        allowed = self._floor.share * now + at_once
        if kind is Due.FULL:
            expected_full = self._costs.expect(Due.FULL)
            if expected_full <= policy.FULL_CHEAP * expected:
                expected = expected_full
            elif full and self._affords_full(key, expected_full, allowed, now):
                return self._grant(key, kind, now, floor=True, inside=inside)
            else:
                kind = Due.FOCUSED
        if key.censuses >= policy.FLOOR_AT_KEY and not inside:
            return Due.NOTHING
        if inside and self._inside_since is None:
            self._inside_since = now
        part = self._part_at_once(now) if is_endless else 1.0
        within = policy.FLOOR_INSIDE * (self._floor.share * now + part * at_once)
        fits = not inside or self._floor_inside + expected <= within
        if fits and self._floor_spent + expected <= allowed:
            return self._grant(key, kind, now, floor=True, inside=inside)
        exempt = self._exempt_at(key, expected, inside=inside)
        if key.censuses < exempt and self._exempt < policy.EXEMPT_CENSUSES:
            self._exempt += 1
            return self._grant(key, kind, now, floor=True, inside=inside)
        return Due.NOTHING

    def _part_at_once(self, now: float) -> float:
        first = policy.FLOOR_AT_FIRST_SECONDS
        since = now if self._inside_since is None else self._inside_since
        passed = log1p((now - since) / first)
        return min(passed / log1p(policy.FLOOR_WHOLE_SECONDS / first), 1.0)

    def _affords_full(self, key: _Key, expected: float, allowed: float, now: float) -> bool:
        is_unnamed = self._floor.has_full and self._growth.is_unnamed
        if is_unnamed and key.fulls < policy.FULL_AT_KEY:  # they are needed soon
            allowed = policy.WHOLE_SHARE_UNNAMED * now
        return self._floor_full + expected <= policy.FLOOR_FULL * allowed

    def _exempt_at(self, key: _Key, expected: float, *, inside: bool) -> int:
        slowed = self._costs.slowed
        if self._is_dear(expected):
            return 0 if self._costs.knows(Due.FOCUSED) else 1
        if expected <= self._floor.cheap * slowed and not inside:
            return self._floor.cheap_exempt
        first = key.begins_training and expected <= policy.BEGINNING_SECONDS * slowed
        return policy.EXEMPT_BEGINNINGS if first else self._floor.exempt

    def _is_dear(self, expected: float) -> bool:
        return expected > self._floor.expensive * self._costs.slowed

    def _grant_paid(self, name: _Name, key: _Key, now: float) -> Due:
        kind = self._kind(now)
        if self._affords(self._usual, now):
            if not self._is_aligned and not self._has_turn(name, key):
                return Due.NOTHING
            return self._grant(key, kind, now, floor=False, inside=False)
        self._pauses.postponed += name not in self._waiting
        self._waiting[name] = None
        return Due.NOTHING

    def _affords(self, kind: Due, now: float) -> bool:
        expected = self._costs.expect(kind)
        if not self._is_aligned and now - self._last_paid < expected / self._budget / 2:
            return False
        affords = self._costs.total + expected <= self._budget * now
        is_sparse = kind is self._usual and expected > self._ceiling * policy.SPARSE_SECONDS
        if not affords and is_sparse and not self._has_reported:
            self._has_reported = True
            self._note(
                "census-sparse",
                f"A census takes {expected:.1f} s in this program; to stay within the budget of "
                f"{self._ceiling:.1%} they are at least {expected / self._ceiling:.0f} s apart.",
            )
        return affords

    def _has_turn(self, name: _Name, key: _Key) -> bool:
        """Whether no kind refused earlier is due first; one that never comes is dropped."""
        first = next(iter(self._waiting), name)
        if first != name:
            if key.deferrals < policy.PATIENCE:
                key.deferrals += 1
                self._waiting[name] = None
                return False
            del self._waiting[first]
        self._waiting.pop(name, None)
        key.deferrals = 0
        return True

    def _folded(self, name: _Name) -> _Name:
        """Return the name under which a kind is kept; kinds beyond the limit share one."""
        if name in self._keys or len(self._keys) < policy.KEYS_KEPT:
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


RISES = 3
"""Rises in a row, at comparable boundaries, that count as growth."""
LEAST_RISE = 4096
LEAST_RSS_RISE = 1 << 20
LEAST_UNNAMED_RISE = 256 << 10
MUCH_UNNAMED = 4 << 20
"""Bytes. What libraries cache while a healthy program runs comes to less."""
MUCH_GARBAGE = 16 << 20
"""Bytes: of less that awaits the collector no report tells."""
KEYS_KEPT = 48
ROWS_KEPT = 400
CALM_AFTER = 12
"""Censuses in a row in which nothing was seen to grow."""
_RESIDENT = ""
_IN_USE = (gauge.MALLOC_IN_USE, gauge.RSS)
"""What is in use, as near as a boundary tells."""
INSIDE = (BoundaryKind.STEP, BoundaryKind.BATCH)


class GrowthWatch:
    """Compares each census with the one before it at a comparable boundary."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], dict[str, tuple[int, int]]] = {}
        self._unnamed: dict[tuple[str, str, str, str], _Unnamed] = {}
        self._calm = 0
        self._free = 0
        self._elsewhere: int | None = None
        """What hung outside of the user's names when that last became more or less."""
        self._steps = 0
        self._garbage = 0

    @property
    def own_bytes(self) -> int:
        """Rough bytes that the watch keeps."""
        return 300 * sum(len(rows) for rows in self._known.values())

    @property
    def is_calm(self) -> bool:
        """Whether nothing has grown for a while: then fewer measurements will do."""
        return self._calm >= CALM_AFTER

    @property
    def is_unnamed(self) -> bool:
        """Whether memory outside the user's names rose at each of the latest censuses."""
        if self._elsewhere is not None:
            return self._steps >= RISES
        rises = max((known.rises for known in self._unnamed.values()), default=0)
        return rises >= RISES

    @property
    def has_much_unexplained(self) -> bool:
        """Whether much is garbage, or came outside the user's names: a whole walk names it."""
        return (self._elsewhere or 0) >= MUCH_UNNAMED or self._garbage >= MUCH_GARBAGE

    def growing(self) -> tuple[object, dict[str, int]]:
        """Return where the latest look was taken, and by path the bytes of what rises there."""
        place = next(reversed(self._known), None)
        rows = {} if place is None else self._known[place]
        grown = {path: size for path, (size, rises) in rows.items() if path and rises >= RISES}
        return place, grown

    def learn(self, boundary: Boundary, census: Census, gauges: Mapping[str, int]) -> bool:
        """Take note of a census; return whether something has risen each time of late."""
        key = comparable_key(boundary)
        self._learn_unnamed(key, census, gauges)
        before = self._known.pop(key, {})
        if len(self._known) >= KEYS_KEPT:
            del self._known[next(iter(self._known))]
        self._free = gauges.get(gauge.MALLOC_FREE, self._free)
        resident = gauges.get(gauge.RSS, 0) - self._free
        now = {_RESIDENT: _rise(before.get(_RESIDENT), resident, LEAST_RSS_RISE)}
        for row in census.rows[:ROWS_KEPT]:
            if row.user:
                others = (*row.device_bytes.values(), *row.shared_bytes.values())
                size = row.host_bytes + sum(others)
                now[row.path] = _rise(before.get(row.path), size, LEAST_RISE)
        self._known[key] = now
        grows = any(rises >= RISES for _, rises in now.values())
        self._calm = 0 if grows else self._calm + 1
        return grows

    def _learn_unnamed(
        self, key: tuple[str, str, str], census: Census, gauges: Mapping[str, int]
    ) -> None:
        name = next((name for name in _IN_USE if name in gauges), None)
        if name is None:
            return
        known = (*key, name)
        if known not in self._unnamed and len(self._unnamed) >= KEYS_KEPT:
            return
        used, before = gauges[name], self._unnamed.get(known)
        left = used - census.heap_bytes - census.payload_bytes.get("host", 0)
        rises = 0 if before is None else before.rises
        if census.scope is CensusScope.FULL and before is not None:
            left = before.left + used - before.used  # it reaches what others leave
            rises = rises if used >= before.used + LEAST_UNNAMED_RISE else 0
        elif before is not None:
            rises = rises + 1 if left >= before.left + LEAST_UNNAMED_RISE else 0
        self._unnamed[known] = _Unnamed(used, left, rises)

    def learn_elsewhere(self, census: Census) -> None:
        """Count the steps by which what the user's names don't reach rises, and note garbage."""
        self._garbage = census.garbage_bytes or 0
        size = census.elsewhere_bytes
        if size is None:
            return
        before = self._elsewhere
        risen = None if before is None else size - before
        if risen is not None and risen >= LEAST_UNNAMED_RISE:
            self._steps += 1
        if risen is None or abs(risen) >= LEAST_UNNAMED_RISE:
            self._steps = 0 if risen is not None and risen < 0 else self._steps
            self._elsewhere = size


class _Unnamed(NamedTuple):
    """What was in use, what of it the user's names didn't reach, and how often that has risen."""

    used: int
    left: int
    rises: int


def _rise(before: tuple[int, int] | None, size: int, least: int) -> tuple[int, int]:
    if before is None or size < before[0] + least:
        return (size, 0)
    return (size, before[1] + 1)


def place_of_growth(boundary: Boundary) -> str:
    """Return the phase in which growth seen at a boundary may be caught; empty for any."""
    return boundary.phase if boundary.kind in (*INSIDE, BoundaryKind.PHASE_END) else ""
