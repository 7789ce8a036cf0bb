"""The terms of private memory that no name of the program stands for, each judged by itself.

A term is a part of private memory that is measured, not a remainder, but for the last: new objects
held by libraries and native code (``elsewhere``), what has a name and doesn't grow by itself
(``named``), free memory in the C heap (``slack``), garbage awaiting the collector, page-locked
memory (``pinned``), and what is left (``unexplained``). Each is judged by the growth model here and
by the rules in ``growth.exclusions`` then. One that grows beyond its floor and that no rule
excludes is a leak without a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from leakscope.analysis.accounting.ledger import (
    collections_until,
    garbage_at,
    garbage_readings,
    named_bytes,
    named_bytes_at,
    unseen_growth,
    weighed_at,
)
from leakscope.analysis.columns.series import HOST, FloatArray, IntArray
from leakscope.analysis.growth import part_of, policy
from leakscope.analysis.growth.rows import Grower
from leakscope.analysis.run_context import RunContext
from leakscope.model import gauge
from leakscope.model.census import RootKind
from leakscope.model.trend import Reason, Trend, TrendVerdict

_OPEN_REASONS = frozenset({Reason.SHORT_RISE, Reason.SETTLING})
_WEIGHED_TERMS = frozenset({"elsewhere", "named"})
"""Terms that are weighed object by object: what isn't seen to end may go on."""


def floor_of(kind: str, *, is_in_loops: bool = False) -> tuple[float, float]:
    """Return what a term must have gained, and its share of what private memory did.

    Of ``elsewhere`` every object is weighed, so that it tells also where private memory rests. What
    is in loops through C++ is no library's cache: nothing ever frees it.
    """
    if kind == "slack":
        return policy.GROWTH_BYTES, policy.MOST_SHARE
    if is_in_loops:
        return policy.GAUGE_NOISE_BYTES, 0.0
    return policy.HARMLESS_BYTES, 0.0 if kind == "elsewhere" else policy.UNNAMED_SHARE


@dataclass(frozen=True)
class Term:
    """One part of private memory."""

    kind: str
    """As in the ledger: ``elsewhere``, ``named``, ``slack``, ``garbage``, ``pinned`` or
    ``unexplained``."""
    trend: Trend
    share: float
    """Part that it has in the growth of private memory, over its own tail."""
    is_open_pool: bool = False
    """Whether nobody can say that private memory as a whole goes on growing."""
    is_pool_bounded: bool = False
    is_pool_growing: bool = False
    excluded_by: str = ""
    """The rule by which its growth is none."""
    is_handed_out: bool = False
    """Whether it is what malloc has handed out, and not what is resident of that."""
    is_in_loops: bool = False
    """Whether most of it is in loops through C++, which nothing frees."""
    pinned_bytes: float = 0.0
    """What it costs beyond its size: free memory that lies between its parts and grew with it."""

    @property
    def grows(self) -> bool:
        """Whether it goes on growing, by so much that a leak would be missed."""
        return self.trend.is_growing and self.is_much and not self.excluded_by

    @property
    def may_grow(self) -> bool:
        """Whether nobody can say yet that it doesn't."""
        is_open = self.trend.reason in _OPEN_REASONS or (
            self.kind in _WEIGHED_TERMS and not self.trend.is_bounded and not self.is_pool_bounded
        )
        # Memory grows, and what the program's names hold is most of that.
        is_the_growth = self.kind == "named" and self.is_pool_growing
        is_the_growth &= self.share >= policy.MOST_SHARE
        is_the_growth &= self.trend.net_bytes >= policy.GAUGE_NOISE_BYTES
        # Malloc goes on handing out more, of which too little has come for a verdict.
        is_handed_out = self.is_handed_out and self.share >= floor_of(self.kind)[1]
        is_handed_out &= self.trend.net_bytes >= policy.LITTLE_BYTES
        is_enough = self.is_much or is_the_growth or is_handed_out
        is_doubtful = self.trend.is_growing and self._is_beyond(*self._floor)
        if self.kind == "unexplained":  # what else grew, and has ended, makes its share small
            is_doubtful |= self.trend.is_growing and self._is_beyond(policy.NOTEWORTHY_BYTES, 0.0)
            # Little in a run of seconds: what goes on so steadily is much in an hour.
            is_steady = self.is_pool_growing and self.trend.is_growing
            is_doubtful |= is_steady and self._is_beyond(policy.LITTLE_BYTES, policy.MOST_SHARE)
        return ((is_open and is_enough) or is_doubtful) and not (self.grows or self.excluded_by)

    @property
    def is_much(self) -> bool:
        """Whether a leak would be missed."""
        least, share = self._floor
        if self.is_open_pool and share > 0:
            least = max(least, policy.NOTEWORTHY_BYTES)
        return self._is_beyond(least, share)

    @property
    def _floor(self) -> tuple[float, float]:
        return floor_of(self.kind, is_in_loops=self.is_in_loops)

    def _is_beyond(self, least: float, share: float) -> bool:
        return self.trend.net_bytes + self.pinned_bytes >= least and self.share >= share


def judge_terms(
    case: RunContext,
    growers: Sequence[Grower],
    named: Sequence[Grower],
    trends: Mapping[int, Trend],
) -> dict[str, Term]:
    """Return the terms of private memory, judged by the growth model, by kind.

    Most of them tell only while private memory isn't bounded, or while malloc hands out more and
    more: what leaks can fill what was free in the C heap. ``named`` are the growers with what a
    rule excludes, and what took over what another name lost.
    """
    case.decisions.add(
        "private memory", "growth", f"{case.pool.verdict.value}: {case.pool.reason.value}",
        figure=case.pool.net_bytes, threshold=policy.GAUGE_NOISE_BYTES,
    )  # fmt: skip
    pool = _Pool.of(case)
    series = {"elsewhere": unnamed_series(case)}
    in_use = case.gauge_trend(gauge.MALLOC_IN_USE)
    if not (pool.trend.is_bounded and case.pool.is_bounded) or in_use.is_growing:
        series |= {
            "named": named_series(case, [*named, *growers], trends),
            "slack": case.gauge_series(gauge.MALLOC_FREE),
            "garbage": garbage_series(case),
            "pinned": case.gauge_series(gauge.PINNED_HOST),
            "unexplained": unexplained_series(case, growers),
        }
    terms = {kind: _term(case, pool, kind, *xy) for kind, xy in series.items()}
    terms["elsewhere"] = _going_with_memory(case, terms["elsewhere"])
    least = policy.MOST_SHARE * terms["elsewhere"].trend.net_bytes
    if _bytes_in_loops(case) >= max(least, policy.GAUGE_NOISE_BYTES):
        terms["elsewhere"] = replace(terms["elsewhere"], is_in_loops=True)
    if "slack" in terms:
        terms["slack"] = _inconclusive_if_pinned(case, terms["slack"])
        terms["garbage"] = _undecided_until_freed(case, terms["garbage"])
        unexplained = _counted_by_malloc(case, terms["unexplained"], growers)
        unexplained = _undecided_unless_looked_at(case, unexplained, terms["named"])
        terms["unexplained"] = _undecided_until_collected(case, unexplained)
    for term in terms.values():
        _record(case, term)
    return terms


def _bytes_in_loops(case: RunContext) -> float:
    """Return what loops through C++ held that were found more than once: one may be at work."""
    rows = [row for row in case.table.latest if row.loop and row.root is RootKind.NATIVE]
    return float(sum(row.host_bytes for row in rows if row.count >= policy.FEWEST_RISES))


def _record(case: RunContext, term: Term) -> None:
    """Record what the model concluded on a term, and whether it is too little to matter."""
    trend = term.trend
    outcome = f"{trend.verdict.value}: {trend.reason.value}"
    case.decisions.add(term.kind, "growth", outcome, figure=trend.net_bytes)
    if trend.is_growing and term.may_grow and not term.is_much:
        case.decisions.add(
            term.kind, "floor", "too little for a leak, too much to pass over",
            figure=trend.net_bytes, threshold=policy.NOTEWORTHY_BYTES,
        )  # fmt: skip
    if not (term.grows or term.may_grow or trend.is_bounded):
        floor, _ = floor_of(term.kind, is_in_loops=term.is_in_loops)
        case.decisions.add(
            term.kind, "floor", "too little", figure=trend.net_bytes, threshold=floor
        )


def judge_unnamed(case: RunContext) -> Term:
    """Return how what is new and has no name of the user's grows."""
    unnamed = _term(case, _Pool.of(case), "elsewhere", *unnamed_series(case))
    return _going_with_memory(case, unnamed)


def _going_with_memory(case: RunContext, unnamed: Term) -> Term:
    """Return what is new without a name by the trend of private memory, where it is most of that.

    Censuses may be too few to judge it by itself; the many readings of memory tell that the growth
    goes on.
    """
    pool = case.pool
    weighed, sizes = unnamed_readings(case)
    at = case.table.at[weighed]
    inside = at >= case.tail[0] if len(case.tail) else np.zeros(len(at), dtype=bool)
    at, sizes = at[inside], sizes[inside]
    if not (unnamed.trend.is_open and pool.is_growing) or len(at) < 2:
        return unnamed
    read = case.at_work(case.private)
    gained = float(sizes[-1] - sizes[0])
    whole = float(np.ptp(case.read_between(at[[0, -1]], read, case.private[read])))
    reaches = np.ptp(case.work_done[at]) >= policy.MAIN_SHARE * np.ptp(case.work_done[case.tail])
    falls = (np.diff(sizes) < -policy.ELSEWHERE_NOISE_BYTES).any()
    if falls or not reaches or gained < max(policy.MOST_SHARE * whole, policy.GAUGE_NOISE_BYTES):
        return unnamed
    share = min(gained / whole, 1.0) if whole > 0 else 1.0
    case.decisions.add(
        "elsewhere", "goes_with_memory", "private memory grows, and this is most of it",
        figure=gained, threshold=policy.MOST_SHARE * whole,
    )  # fmt: skip
    return replace(unnamed, trend=part_of(pool, share), share=share)


@dataclass(frozen=True)
class _Pool:
    """Private memory, without garbage that doesn't go on growing: the collector frees it."""

    done: FloatArray
    sizes: FloatArray
    trend: Trend

    @classmethod
    def of(cls, case: RunContext) -> _Pool:
        done, private = case.pool_series()
        awaiting = case.trend_of(*garbage_series(case))
        if awaiting.is_growing or awaiting.reason in {Reason.UNCHANGED, Reason.TOO_FEW}:
            return cls(done, private, case.pool)
        sizes = private - garbage_at(case, case.at_work(case.private))
        return cls(done, sizes, case.trend_of(done, sizes))

    def gained_since(self, work: float) -> float:
        """Return what it gained since so much work was done."""
        since = self.sizes[self.done >= work]
        return float(since[-1] - since[0]) if len(since) else 0.0


def _term(case: RunContext, pool: _Pool, kind: str, x: FloatArray, y: FloatArray) -> Term:
    noise = policy.ELSEWHERE_NOISE_BYTES if kind == "elsewhere" else policy.GAUGE_NOISE_BYTES
    trend = case.trend_of(x, y, noise)
    grown = pool.gained_since(trend.tail_from)
    share = trend.net_bytes / grown if grown > 0 else 0.0
    return Term(
        kind,
        trend,
        share,
        is_open_pool=pool.trend.is_open,
        is_pool_bounded=pool.trend.is_bounded,
        is_pool_growing=pool.trend.is_growing,
    )


def _counted_by_malloc(case: RunContext, unexplained: Term, growers: Sequence[Grower]) -> Term:
    """Return growth without a name by what the C heap has handed out, where that alone shows it.

    Resident memory scatters by what is free in the heap and by what the kernel takes back; malloc's
    own account of what is in use doesn't.
    """
    if unexplained.grows:
        return unexplained
    at = case.working[np.isin(case.working, case.track.known(gauge.MALLOC_IN_USE))]
    if HOST not in case.table.retained or not len(case.table.at) or not len(at):
        return unexplained
    in_use = case.track.gauge(gauge.MALLOC_IN_USE)[at]
    left = _without_known(case, at, in_use, growers)
    trend = case.trend_of(case.work_done[at], left, policy.GAUGE_NOISE_BYTES)
    if trend.is_open and case.trend_of(*garbage_series(case)).is_bounded:
        # How much garbage there was between two looks is an estimate, and what the collector frees
        # is no growth for the model.
        left = left + garbage_at(case, at)
        trend = case.trend_of(case.work_done[at], left, policy.GAUGE_NOISE_BYTES)
    handed_out = in_use[case.work_done[at] >= trend.tail_from]
    if not trend.is_growing or handed_out[-1] <= handed_out[0]:
        return unexplained
    share = trend.net_bytes / float(handed_out[-1] - handed_out[0])
    counted = replace(unexplained, trend=trend, share=share, is_open_pool=False, is_handed_out=True)
    if not counted.is_much:
        lacking = policy.HARMLESS_BYTES - trend.net_bytes
        counted = undecided(counted, max(lacking, 0.0) / trend.bytes_per_unit)
        return counted if counted.may_grow else unexplained
    case.decisions.add(
        "unexplained", "counted_by_malloc", "resident memory scatters, what malloc counts doesn't",
        figure=trend.net_bytes, threshold=floor_of("unexplained")[0],
    )  # fmt: skip
    return counted


def _inconclusive_if_pinned(case: RunContext, slack: Term) -> Term:
    """Return growth of free memory as undecided where that of what is in use is.

    It goes on growing only between blocks that are kept. So is growth that slows down: a cache that
    replaces parts of many sizes leaves holes until some of each size are there.
    """
    if slack.trend.reason is Reason.SLOWING:
        done, _ = case.gauge_series(gauge.MALLOC_FREE)
        return undecided(slack, float(done[-1]) - slack.trend.tail_from)
    in_use = case.gauge_trend(gauge.MALLOC_IN_USE, policy.ELSEWHERE_NOISE_BYTES)
    is_unread = not len(case.gauge_series(gauge.MALLOC_IN_USE)[0])
    if in_use.is_growing or in_use.is_bounded or is_unread:
        return slack
    return undecided(slack, in_use.more_work)


def _undecided_unless_looked_at(case: RunContext, unexplained: Term, named: Term) -> Term:
    """Return growth without a name as undecided where most of it came since the last census, and
    names may have gone on growing by as much.
    """
    at = case.table.at[case.table.at <= case.track.last_work]
    if not len(at) or named.trend.verdict is not TrendVerdict.INCONCLUSIVE:
        return unexplained
    done, private = case.pool_series()
    since = private[done >= case.work_done[at[-1]]]
    risen = float(since[-1] - since[0]) if len(since) else 0.0
    if risen <= policy.MOST_SHARE * unexplained.trend.net_bytes:
        return unexplained
    return undecided(unexplained, None)


def _undecided_until_collected(case: RunContext, unexplained: Term) -> Term:
    """Return growth without a name as undecided while as much garbage awaits the collector.

    Objects of native code may hang on it, and between two looks its bytes are not known.
    """
    following, (_, sizes) = next_collection(case), garbage_readings(case)
    if following is None or unexplained.trend.net_bytes > float(sizes.max()):
        return unexplained
    return undecided(unexplained, following.further_work)


def _undecided_until_freed(case: RunContext, garbage: Term) -> Term:
    """Return growth of garbage as undecided where the collector comes before it does harm.

    It has not yet been where the garbage is, so that nobody has seen whether it stays: unless it
    was there before, and freed as much garbage as comes now.
    """
    following = next_collection(case)
    if following is None or not following.is_harmless:
        return garbage
    if not _was_freed_before(case) or not garbage.trend.is_growing:
        return undecided(garbage, following.further_work)
    case.decisions.add("garbage", "freed_before", "a collection freed what came as fast before")
    trend = msgspec.structs.replace(
        garbage.trend, verdict=TrendVerdict.BOUNDED, reason=Reason.RELEASED
    )
    return replace(garbage, trend=trend)


def _was_freed_before(case: RunContext) -> bool:
    """Return whether a collection during the work freed most of garbage that rose until then as
    fast as since the last one.
    """
    at, sizes = garbage_readings(case)
    work, collected = case.track.work[at], collections_until(case)[at]
    begins = np.flatnonzero(np.diff(collected, prepend=-1.0) > 0)
    ends = np.append(begins[1:] - 1, len(at) - 1)
    gained = sizes[ends] - sizes[begins]
    worked = np.maximum(work[ends] - work[begins], 1.0)
    is_freed = sizes[begins[1:]] <= policy.MOST_SHARE * sizes[ends[:-1]]
    is_freed &= gained[:-1] >= policy.GAUGE_NOISE_BYTES
    is_as_fast = policy.ALIKE_FACTOR * gained[:-1] / worked[:-1] >= gained[-1] / worked[-1]
    return bool((is_freed & is_as_fast).any())


def undecided(term: Term, more_work: float | None) -> Term:
    """Return a term of which nobody can say yet whether it goes on growing."""
    if not term.trend.is_growing:
        return term
    verdict, reason = TrendVerdict.INCONCLUSIVE, Reason.SHORT_RISE
    trend = msgspec.structs.replace(term.trend, verdict=verdict, reason=reason, more_work=more_work)
    return replace(term, trend=trend)


@dataclass(frozen=True)
class NextCollection:
    """The next collection of all generations, as far as it can be foretold."""

    garbage_bytes: float
    """What it will find, if garbage goes on as it did."""
    is_harmless: bool
    """Whether it comes before garbage does harm."""
    further_work: float
    """How much more work is done until then."""


def next_collection(case: RunContext) -> NextCollection | None:
    """Return when the collector will visit the garbage; None where nothing tells.

    What came since the last collection lies in the youngest generation, and the next one visits it.
    What survived one is visited when all generations are collected: when the objects that became
    old since the last time are more than a fourth of those that survived it (CPython's
    ``gc_collect_generations``). Garbage is taken to grow with the objects that the collector counts
    as it did since it was least, or since that collection.
    """
    at, sizes = garbage_readings(case)
    if len(at) < policy.FEWEST_READINGS or not case.nearest(gauge.GC_ENABLED, int(at[-1])):
        return None
    least, missing = _until_young_are_visited(case, at, sizes)
    if missing is None:
        least = len(sizes) - 1 - int(np.argmin(sizes[::-1]))
        missing = _until_all_are_visited(case, int(at[least]), int(at[-1]))
    gained = float(sizes[-1] - sizes[least])
    if missing is None or gained <= 0:
        return None
    found = float(sizes[-1]) + missing * gained
    is_harmless = found < policy.CONSIDERABLE_SHARE * (case.limit_bytes or float("inf"))
    worked = float(case.work_done[at[-1]] - case.work_done[at[least]])
    return NextCollection(found, is_harmless, further_work=missing * worked)


def _until_young_are_visited(
    case: RunContext, at: IntArray, sizes: FloatArray
) -> tuple[int, float | None]:
    """Return the first look after the last collection, and how many more objects bring the next
    one, as a multiple of those made since; None where most of the garbage is older, or no
    collection is to come.
    """
    threshold = int(case.environment.get("gc_thresholds", "0").split()[0])
    counted = [case.nearest(gauge.GC_COLLECTIONS, int(each)) for each in at]
    first = counted.index(counted[-1])
    before, now = (case.nearest(gauge.GC_COUNT, int(at[n])) for n in (first, -1))
    is_young = sizes[first] <= policy.LITTLE_SHARE * sizes[-1]
    if not is_young or before is None or now is None or now <= before or threshold < now:
        return first, None
    return first, (threshold - now) / (now - before)


def _until_all_are_visited(case: RunContext, first: int, last: int) -> float | None:
    """Return how many more objects must become old until all are collected, as a multiple of those
    that did between two measurements; None where none did.
    """
    before, pending = (case.nearest(gauge.GC_PENDING, at) for at in (first, last))
    survived = case.nearest(gauge.GC_LONG_LIVED, last)
    if before is None or pending is None or not survived or pending <= before:
        return None
    return max(policy.COLLECTED_SHARE * survived - pending, 0.0) / (pending - before)


def unnamed_series(case: RunContext) -> tuple[FloatArray, FloatArray]:
    """Return units done and bytes of what is new and no name of the user's reaches."""
    weighed, sizes = unnamed_readings(case)
    return case.work_done[case.table.at[weighed]], sizes


def unnamed_readings(case: RunContext) -> tuple[IntArray, FloatArray]:
    """Return the censuses that weighed what is new outside the user's names, and its bytes.

    The one at the end of the run may be the only one of a short run's second half, but functions
    have returned there: what they shared with a library is the library's alone. It is among them
    where nothing had names before, and where growth goes on to it as it was.
    """
    sizes = [c.elsewhere_bytes for c in case.table.censuses]
    known, values = weighed_at(case, sizes, case.track.last_work)
    final = len(sizes) - 1
    if not len(known) or known[-1] == final or sizes[final] is None:
        return known, values
    last = float(sizes[final] or 0)
    gained = last - float(values[-1])
    all_known, all_values = np.append(known, final), np.append(values, last)
    if gained >= policy.GAUGE_NOISE_BYTES and not _had_names(case):
        return all_known, all_values
    if not _goes_on_to(case, known, values, final, gained):
        return known, values
    trend = case.trend_of(
        case.work_done[case.table.at[all_known]], all_values, policy.ELSEWHERE_NOISE_BYTES
    )
    return (all_known, all_values) if trend.is_growing else (known, values)


def has_stopped_by_the_end(case: RunContext, unnamed: Term) -> bool:
    """Return whether growth without a name has ended, as the last census of the run shows.

    It may show more than the ones before, of what functions shared with a library, until they
    returned. Where it shows less than those, what was released then is not known.
    """
    sizes = [c.elsewhere_bytes for c in case.table.censuses]
    known, values = unnamed_readings(case)
    if not len(known) or known[-1] == len(sizes) - 1 or sizes[-1] is None:
        return False
    done = case.work_done[case.table.at]
    expected = unnamed.trend.bytes_per_unit * float(done[-1] - done[known[-1]])
    return 0 <= float(sizes[-1]) - float(values[-1]) < policy.LITTLE_SHARE * expected


def _had_names(case: RunContext) -> bool:
    """Return whether the user's names led to so much that it matters who has it at the end."""
    named = named_bytes(case, HOST) if HOST in case.table.retained else np.zeros(1)
    return bool(named.max(initial=0.0) >= policy.GAUGE_NOISE_BYTES)


def _goes_on_to(
    case: RunContext, known: IntArray, values: FloatArray, final: int, gained: float
) -> bool:
    """Return whether a gain up to the last census is not steeper than what came before it."""
    if len(known) < policy.FEWEST_READINGS:
        return False
    done = case.work_done[case.table.at]
    since = float(done[final] - done[known[-1]])
    begin = max(float(done[known[-1]]) - since, float(done[known[0]]))
    before = float(values[-1] - np.interp(begin, done[known], values))
    worked = float(done[known[-1]]) - begin
    return 0 <= gained * worked <= policy.ALIKE_FACTOR * before * since


def unnamed_at(case: RunContext, columns: IntArray) -> FloatArray:
    """Return what was new and without a name of the user's at some censuses, between two evenly."""
    weighed, sizes = unnamed_readings(case)
    if not len(weighed):
        return np.zeros(len(columns))
    return case.read_between(case.table.at[columns], case.table.at[weighed], sizes, before=0.0)


def garbage_series(case: RunContext) -> tuple[FloatArray, FloatArray]:
    """Return units done and unreached bytes where they were weighed, or just collected."""
    at, sizes = garbage_readings(case)
    return case.work_done[at], sizes


def named_series(
    case: RunContext, growers: Sequence[Grower], trends: Mapping[int, Trend]
) -> tuple[FloatArray, FloatArray]:
    """Return units done and what has names of the user's, without what is judged by itself.

    That is what grows by a name of its own, and what is bounded by itself. The last census, at
    which functions may have returned, counts for what is there.
    """
    table = case.table
    if HOST not in table.retained or not len(table.at):
        return np.zeros(0), np.zeros(0)
    left = named_bytes(case, HOST)
    for settled in _settled_rows(case, trends):
        left = left - settled
    for g in {g.path: g for g in growers}.values():
        if g.growth == "across" and g.device == HOST and table.is_reached(g.path):
            retained = np.nan_to_num(table.retained[HOST][g.path, g.observed])
            left = left - case.read_between(table.at, table.at[g.observed], retained)
    inside = table.at >= case.working[0] if len(case.working) else table.at >= 0
    x, left = case.work_done[table.at[inside]], left[inside]
    released = np.flatnonzero(np.diff(left[:-1]) < -policy.GAUGE_NOISE_BYTES)
    if len(released) and left[-1] <= left[: released[-1] + 1].max() + policy.ROW_NOISE_BYTES:
        return x[:-1], left[:-1]  # as high as what was released: one more tooth
    return x, left


def _settled_rows(case: RunContext, trends: Mapping[int, Trend]) -> list[FloatArray]:
    """Return the bytes of the outermost rows that are bounded by themselves, by census.

    Those that came during the run are left out where they are several: each is bounded, and the
    next one may follow.
    """
    table = case.table
    there: list[FloatArray] = []
    arrived: list[FloatArray] = []
    begin = int(case.working[0]) if len(case.working) else 0
    for path, trend in trends.items():
        above = table.ancestors(path)
        columns = case.observations.columns(path)
        if not trend.is_bounded or not len(columns) or not table.is_reached(path):
            continue
        if any(trends[each].is_bounded for each in above if each in trends):
            continue
        retained = np.nan_to_num(table.retained[HOST][path, columns])
        bytes_at = case.read_between(table.at, table.at[columns], retained, before=0.0)
        is_new = table.at[columns[0]] > begin and retained[0] > policy.ROW_NOISE_BYTES
        (arrived if is_new else there).append(bytes_at)
    return there + (arrived if len(arrived) < policy.FEWEST_RISES else [])


def unexplained_series(
    case: RunContext, growers: Sequence[Grower] = ()
) -> tuple[FloatArray, FloatArray]:
    """Return units done and private memory without all that is measured.

    It is taken at censuses, those left out where free memory in the C heap is not known; where
    these don't reach to the end of the work where that was read. What grows by a name is taken to
    have gone on at its rate since it was seen last.
    """
    table, private = case.table, case.private
    read = case.at_work(private)
    if HOST not in table.retained or not len(table.at) or not len(read):
        return case.pool_series()
    least = policy.MAIN_SHARE * np.ptp(case.track.work[read])
    places = (_with_known_slack(case, table.at), table.at, case.track.known(gauge.MALLOC_FREE))
    looked_at = (read[np.isin(read, place)] for place in places)
    enough = (at for at in looked_at if len(at) >= policy.FEW_READINGS)
    at = next((at for at in enough if np.ptp(case.track.work[at]) >= least), read)
    left = _without_known(case, at, private[at], growers)
    for name in (gauge.MALLOC_FREE, gauge.PINNED_HOST):
        known = case.track.known(name)
        known = known[known <= case.track.last_work]  # later it releases what it held
        if len(known):
            left = left - case.read_between(at, known, case.track.gauge(name)[known])
            since = np.clip(case.work_done[at] - case.work_done[known[-1]], 0, None)
            trend = case.gauge_trend(name)
            left = left - since * (trend.bytes_per_unit if trend.is_growing else 0.0)
    return case.work_done[at], left


def _with_known_slack(case: RunContext, at: IntArray) -> IntArray:
    """Return the measurements between readings of free memory in the C heap that are much alike."""
    known = case.track.known(gauge.MALLOC_FREE)
    if not len(known):
        return at
    free = case.track.gauge(gauge.MALLOC_FREE)[known]
    after = np.searchsorted(known, at).clip(max=len(known) - 1)
    before = (np.searchsorted(known, at, side="right") - 1).clip(min=0)
    is_alike = np.abs(free[after] - free[before]) < policy.NOTEWORTHY_BYTES
    return at[np.flatnonzero(is_alike)]


def _without_known(
    case: RunContext, at: IntArray, memory: FloatArray, growers: Sequence[Grower]
) -> FloatArray:
    """Return memory at some measurements without all that was weighed object by object."""
    table = case.table
    left = memory - named_bytes_at(case, HOST, at)
    for g in growers:
        if g.growth == "across" and g.device == HOST:
            left = left - unseen_growth(case, g, at)
    weighed, unnamed = unnamed_readings(case)
    if len(weighed):
        left = left - case.read_between(at, table.at[weighed], unnamed)
    return left - garbage_at(case, at)
