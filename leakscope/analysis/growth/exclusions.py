"""The rules beside the growth model, in the order in which they are asked, and the terms of memory.

Each rule is a predicate with a name and a reason: what grows, and yet is no leak. It returns the
figure that it went by and the threshold, which the report records with its outcome. A term is a
part of private memory that is measured by itself and judged by the growth model and these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import numpy as np

from leakscope.analysis.accounting.ledger import named_bytes, unseen_growth
from leakscope.analysis.columns.series import (
    HOST,
    INNER,
    BoolArray,
    FloatArray,
    IntArray,
    RowTable,
)
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.policy import FEWEST_GROWING, GAUGE_NOISE_BYTES
from leakscope.analysis.growth.rows import Grower
from leakscope.analysis.run_context import RunContext
from leakscope.model import gauge
from leakscope.model.trend import Reason, Trend, TrendVerdict


class Figure(NamedTuple):
    """What a rule went by."""

    value: float
    threshold: float


@dataclass(frozen=True)
class RowRule:
    """A reason why a path that grows is no leak."""

    name: str
    reason: str
    applies: Callable[[RunContext, Grower, Sequence[Grower]], Figure | None]
    """Of the run, a path that grows, and all others that do and are told."""
    stops: bool = False
    """Whether growth is real and ends by itself: the report lists it as filling."""


@dataclass(frozen=True)
class TermRule:
    """A reason why a term of private memory that grows is no leak."""

    name: str
    reason: str
    applies: Callable[[RunContext, Term, Sequence[Grower]], Figure | None]


def moved(case: RunContext, grower: Grower, others: Sequence[Grower]) -> Figure | None:
    """Return whether another path lost what this one gained: an alias that came or went."""
    table = case.table
    values = np.nan_to_num(table.retained[grower.device][:, grower.columns])
    gains = np.diff(grower.y)
    rise = gains[gains > 0].sum()
    lost = values[:, 0] - values[:, -1] >= policy.MOVED_SHARE * (grower.y[-1] - grower.y[0])
    suspects = np.flatnonzero(lost)
    if not len(suspects) or rise <= 0:
        return None
    shared = np.minimum(-np.diff(values[suspects], axis=1), gains).clip(min=0).sum(axis=1)
    kin = {*table.ancestors(grower.path), grower.path}

    def gave(suspect: int) -> bool:
        """Return whether what it lost has left all that holds it, too."""
        above = table.ancestors(suspect)
        return suspect not in kin and grower.path not in above and lost[[*{*above} - kin]].all()

    shares = [
        share / rise for suspect, share in zip(suspects.tolist(), shared, strict=True)
        if share >= policy.MOVED_SHARE * rise and gave(suspect)
    ]  # fmt: skip
    return Figure(max(shares), policy.MOVED_SHARE) if shares else None


def recreated(case: RunContext, grower: Grower, others: Sequence[Grower]) -> Figure | None:
    """Return whether it is a graph of which nothing was kept from begin to middle to end.

    Of a loss that accumulates, the oldest autograd node was made in the first step that it holds.
    Sequences that get longer make a graph larger, and it is freed with the next one.
    """
    table = case.table
    if table.latest[grower.path].kind != "graph":
        return None
    places = (0, len(grower.columns) // 2, -1)
    made = [table.row_at(grower.path, int(grower.columns[place])).made for place in places]
    if not all(made):
        return None
    begin, middle, end = made
    is_younger = middle[0] > begin[1] and end[0] > middle[1]
    return Figure(float(end[0]), float(middle[1])) if is_younger else None


def follows_the_model(case: RunContext, grower: Grower, others: Sequence[Grower]) -> Figure | None:
    """Return whether a grower is gradients or optimizer state coming to parameters there already.

    Layers that are unfrozen, or first used late, get theirs one after the other. Each parameter has
    one gradient and few states, so that this ends; where parameters grow too it need not.
    """
    table = case.table
    parameters = _bytes_of(table, "parameters", grower)
    most = float(parameters[-1])
    if not 0 < most <= parameters[0] + policy.ROW_NOISE_BYTES:
        return None
    row, held = table.latest[grower.path], float(grower.y[-1])
    if row.role == "optimizer_state":
        is_bounded = row.kind == "dict" and held <= policy.STATES_PER_PARAMETER * most
        return Figure(held, policy.STATES_PER_PARAMETER * most) if is_bounded else None
    gradients = _bytes_of(table, "gradients", grower)
    differs = np.abs(np.diff(gradients) - np.diff(grower.y)).max()
    gained = gradients[-1] - gradients[0] >= policy.GRADIENT_SHARE * (grower.y[-1] - grower.y[0])
    follows = gained and gradients[-1] <= most and differs <= policy.ROW_NOISE_BYTES
    return Figure(float(gradients[-1]), most) if follows else None


def _bytes_of(table: RowTable, role: str, g: Grower) -> FloatArray:
    """Return what plays a role at the censuses that a grower was judged by, on all devices."""
    told = [table.censuses[column].components.get(role, {}) for column in g.columns]
    return np.array([sum(devices.values()) for devices in told], dtype=np.float64)


def declares_a_bound(case: RunContext, grower: Grower, others: Sequence[Grower]) -> Figure | None:
    """Return whether a grower will stop by itself, at a bound that does no harm."""
    row = case.table.latest[grower.path]
    if row.capacity is None or not row.length:
        return None
    full = float(grower.y[-1] / row.length * row.capacity * max(row.count, 1))
    limit = policy.CAPACITY_OF_LIMIT * (case.limit_bytes or float("inf"))
    return Figure(full, limit) if full < limit else None


def part_of_owner(case: RunContext, grower: Grower, others: Sequence[Grower]) -> Figure | None:
    """Return whether what climbs in a phase lies in an owner that gains enough across phases.

    A trainer that gains some kilobytes an epoch is not why its predictions climb to megabytes.
    """
    if grower.growth != "within":
        return None
    owners = set(case.table.ancestors(grower.path))
    gains = [
        o.gained / grower.gained
        for o in others
        if o.growth == "across" and o.device == grower.device and o.path in owners
    ]
    most = max(gains, default=0.0)
    return Figure(most, policy.OWNER_SHARE) if most >= policy.OWNER_SHARE else None


def rested_since(case: RunContext, grower: Grower, others: Sequence[Grower]) -> Figure | None:
    """Return whether memory in use rested since a path could be seen last, long before the end.

    In a short or a slow run the censuses are over before its end, and a warm-up in their time looks
    like a leak. What malloc holds free would take up growth unseen: without it nothing is known.
    """
    if grower.growth != "across" or grower.device != HOST:
        return None
    index, end = case.track.index, case.track.last_work
    last = max(int(case.table.at[grower.observed[-1]]), _in_use_rests_from(case))
    free, known = case.track.gauge(gauge.MALLOC_FREE), case.track.known(gauge.MALLOC_FREE)
    known = known[known <= end]
    read = case.working[np.isfinite(case.private[case.working])]
    if not len(known) or not len(read):
        return None
    if known[-1] <= last:  # all that was free at that time may be in use since
        begin, held = int(known[-1]), np.array([free[known[-1]], 0.0])
    else:
        begin, end = last, int(known[-1])
        held = np.interp([last, end], known, free[known])
    span = float(index[end] - index[last])
    due, whole = grower.per_boundary * span, float(index[end] - index[case.working[0]])
    if span <= (1 - policy.REACHES) * whole or due < policy.LEAST_DUE_BYTES:
        return None
    private = np.interp([begin, end], read, case.private[read])
    # Memory that was free and not resident is taken into use without a change of private memory,
    # and small objects lie in arenas that are none of the C heap's: the larger figure counts.
    in_use = np.interp([begin, end], known, case.track.gauge(gauge.MALLOC_IN_USE)[known])
    gained = max(float(np.diff(private - held)[0]), float(np.diff(in_use)[0]))
    gained -= _gained_by_others(case, grower, begin)
    share = gained / due
    return Figure(share, policy.RESTED_SHARE) if share < policy.RESTED_SHARE else None


def _gained_by_others(case: RunContext, grower: Grower, begin: int) -> float:
    """Return what other names gained from a boundary to the last census, as far as it tells.

    A function that has returned takes its names with it, so that they count as nothing there.
    """
    table = case.table
    own = {grower.path, *table.ancestors(grower.path)}
    others = [
        path
        for path in range(len(table.paths))
        if path not in own and table.parent(path) is None and table.is_reached(path)
    ]
    held = np.nan_to_num(table.retained[HOST][others])
    first = np.searchsorted(table.at, begin, side="right") - 1
    gains = held[:, -1] - held[:, max(int(first), 0)]
    return float(gains.clip(min=0).sum())


def _in_use_rests_from(case: RunContext) -> int:
    """Return where memory in use came to rest, -1 where it goes on or malloc's account is missing.

    Growth that was still seen by the last census may have ended between it and there.
    """
    free, known = case.track.gauge(gauge.MALLOC_FREE), case.track.known(gauge.MALLOC_FREE)
    read = case.working[np.isfinite(case.private[case.working])]
    if not len(known) or not len(read) or known[-1] < read[-1]:
        return -1
    in_use = case.private[read] - np.interp(read, known, free[known])
    trend = case.trend_of(case.work_done[read], in_use)
    if trend.reason is not Reason.STOPPED:
        return -1
    return int(read[np.searchsorted(case.work_done[read], trend.tail_from)])


def first_touch(case: RunContext, term: Term, growers: Sequence[Grower]) -> Figure | None:
    """Return whether pages may have become resident of what a name reached all along.

    A replay buffer of zeros takes no page until its rows are filled: the C heap then hands out
    nothing more, and nothing grows.
    """
    growth = term.trend.net_bytes
    in_use = case.gauge_gain(gauge.MALLOC_IN_USE)
    if term.kind != "unexplained" or in_use is None or not case.table.censuses:
        return None
    if case.table.censuses[0].payload_bytes.get(HOST, 0) < growth:
        return None
    share = in_use / growth
    return Figure(share, policy.HANDED_OUT_SHARE) if share < policy.HANDED_OUT_SHARE else None


def new_shapes_only(case: RunContext, term: Term, growers: Sequence[Grower]) -> Figure | None:
    """Return whether growth came with new shapes of tensors alone: libraries keep some of each."""
    resident = case.gauge_gain(case.host_metric) or 0.0
    left = term.trend.net_bytes
    told = growth_driver(case, left, max(resident - left, 0.0)) is GrowthDriver.SHAPES
    return Figure(left, policy.SHAPE_CACHE_BYTES) if told else None


def pinned_by_culprit(case: RunContext, term: Term, growers: Sequence[Grower]) -> Figure | None:
    """Return whether free memory rises beside a container that grows: it lies between its parts."""
    if term.kind != "slack":
        return None
    begin = int(np.searchsorted(case.work_done, term.trend.tail_from))
    boundaries = float(case.track.index[case.track.last_work] - case.track.index[begin])
    memory = term.trend.net_bytes / max(term.share, policy.PINNING_SHARE)
    across = [g for g in growers if g.growth == "across" and g.device == HOST]
    gains = (g.per_boundary * boundaries for g in across if g.gained >= policy.PINNING_BYTES)
    share = sum(gains) / memory
    return Figure(share, policy.PINNING_SHARE) if share >= policy.PINNING_SHARE else None


@dataclass(frozen=True)
class NextCollection:
    """The next collection of all generations, as far as it can be foretold."""

    garbage_bytes: float
    """What it will find, if garbage goes on as it did."""
    limit_bytes: float
    """More than this is far beyond what was seen, or does harm."""
    further_work: float
    """How much more work is done until then."""

    @property
    def comes_soon(self) -> bool:
        """Whether it comes before garbage does harm."""
        return self.garbage_bytes < self.limit_bytes


def next_collection(case: RunContext) -> NextCollection | None:
    """Return when the collector will visit all objects; None where nothing tells.

    It does when the objects that became old since the last time are more than a fourth of those
    that survived it (CPython's ``gc_collect_generations``). Garbage is taken to grow with the
    former as it did since it was least.
    """
    at, sizes = garbage_readings(case)
    if len(at) < policy.FEWEST_READINGS or not case.nearest(gauge.GC_ENABLED, int(at[-1])):
        return None
    least = len(sizes) - 1 - int(np.argmin(sizes[::-1]))
    before, pending = (case.nearest(gauge.GC_PENDING, int(at[n])) for n in (least, -1))
    survived = case.nearest(gauge.GC_LONG_LIVED, int(at[-1]))
    if before is None or pending is None or not survived:
        return None
    aged, gained = pending - before, float(sizes[-1] - sizes[least])
    if aged <= 0 or gained <= 0:
        return None
    missing = max(policy.COLLECTED_SHARE * survived - pending, 0.0) / aged
    most = policy.CAPACITY_OF_LIMIT * (case.limit_bytes or float("inf"))
    worked = float(case.work_done[at[-1]] - case.work_done[at[least]])
    return NextCollection(
        garbage_bytes=float(sizes[-1]) + missing * gained,
        limit_bytes=min(most, policy.COLLECTED_SOON * float(sizes.max())),
        further_work=missing * worked,
    )


def collector_will_come(case: RunContext, term: Term, growers: Sequence[Grower]) -> Figure | None:
    """Return whether garbage grows only until the next collection of all generations."""
    following = next_collection(case) if term.kind == "garbage" else None
    if following is None or not following.comes_soon:
        return None
    return Figure(following.garbage_bytes, following.limit_bytes)


def nothing_pins_it(case: RunContext, term: Term, growers: Sequence[Grower]) -> Figure | None:
    """Return whether free memory rises while what is in use doesn't: fragmentation that will end.

    Free memory that goes on growing lies between blocks that are kept. Where those don't become
    more, blocks of a bounded lifetime have split it, and it is used again once all have been
    replaced. What the C heap has in use is exact.
    """
    if term.kind != "slack":
        return None
    trend = case.gauge_trend(gauge.MALLOC_IN_USE, policy.ELSEWHERE_NOISE_BYTES)
    return Figure(trend.net_bytes, policy.ELSEWHERE_NOISE_BYTES) if trend.is_bounded else None


MOVED = RowRule("moved", "another path lost what this one gained", moved)
PART_OF_OWNER = RowRule("part_of_owner", "an owner that grows across phases is told", part_of_owner)
ROW_RULES = (
    RowRule("recreated", "it is made anew, and nothing of it is kept", recreated),
    RowRule(
        "follows_the_model", "gradients and states come to parameters", follows_the_model, True
    ),
    RowRule("rested_since", "memory in use rested since it was seen last", rested_since),
    RowRule("declares_a_bound", "it stops at a bound of its own", declares_a_bound, True),
)
TERM_RULES = (
    TermRule("first_touch", "pages of what was allocated before are written", first_touch),
    TermRule("new_shapes", "it came with new shapes of tensors alone", new_shapes_only),
    TermRule("collector_will_come", "the collector comes before it matters", collector_will_come),
    TermRule("nothing_pins_it", "what the C heap has in use doesn't grow", nothing_pins_it),
    TermRule("pinned_by_culprit", "it lies between the parts of what grows", pinned_by_culprit),
)


GOES_ON = 0.5
"""A leak brings between new shapes this part of what falls to the work there, or more."""
PARTS = 9
"""Work between new shapes is divided so; half of the parts must show a leak. One jump, as when the
C heap is enlarged, is in one of them."""
REST_SHARE = 0.1
"""Less of all work than this, done between new shapes, tells nothing; nor does any to which less
growth falls than resident memory moves by itself."""
CACHE_ENTRIES = 1024
"""The entries of oneDNN's cache, unless its user says otherwise: more shapes than these fill it."""


class GrowthDriver(Enum):
    """What growth without a name came with."""

    WORK = "work"
    """With work, whether shapes were new or not; or the shapes aren't known."""
    SHAPES = "shapes"
    """With new shapes alone."""
    EITHER = "either"
    """New shapes were met so often that nothing tells."""


def growth_driver(case: RunContext, left: float, beside: float) -> GrowthDriver:
    """Return what growth of host memory came with.

    Args:
        case: The run.
        left: The bytes of it that are asked about.
        beside: The bytes beside these that grow with work, such as those of culprits.

    """
    at = _looked_at(case)
    seen = case.track.gauge(gauge.SHAPES)[at]
    if len(at) < FEWEST_GROWING or seen[-1] - seen[0] < FEWEST_GROWING or left <= 0:
        return GrowthDriver.WORK
    is_rest = _settled(np.diff(seen) == 0)
    work = np.diff(case.track.index[at])
    share = float(work[is_rest].sum() / max(work.sum(), 1))
    rises = np.diff(case.track.gauge(case.host_metric)[at])
    at_rest, due = _usual(work[is_rest], rises[is_rest]) - beside * share, left * share
    is_full = seen[len(seen) * 2 // 3] > CACHE_ENTRIES
    if share >= REST_SHARE and due >= GAUGE_NOISE_BYTES:
        if at_rest >= GOES_ON * due:
            return GrowthDriver.WORK
        return (
            GrowthDriver.EITHER
            if is_full or left > policy.SHAPE_CACHE_BYTES
            else GrowthDriver.SHAPES
        )
    return GrowthDriver.WORK if is_full or at_rest >= GOES_ON * left else GrowthDriver.EITHER


def new_shapes(case: RunContext) -> int:
    """Return how many shapes were met for the first time while growth was accounted for."""
    seen = case.track.gauge(gauge.SHAPES)[_looked_at(case)]
    return int(seen[-1] - seen[0]) if len(seen) else 0


def _looked_at(case: RunContext) -> IntArray:
    """Return the measurements of the window that know both memory and shapes.

    Only in the midst of work: between phases the function that holds the batches may have returned.
    """
    if case.window is None:
        return np.empty(0, dtype=np.int64)
    known = np.intersect1d(case.track.known(gauge.SHAPES), case.track.known(case.host_metric))
    known = known[np.isin(case.track.kind[known], INNER)]
    return known[(known >= case.window.first) & (known <= case.window.last)]


def _settled(same: BoolArray) -> BoolArray:
    """Return which stretches met no new shape, nor did the one before.

    A batch's shape is seen as it is fetched; its backward pass and the last batch of its epoch cost
    kernels afterwards.
    """
    settled = same.copy()
    settled[:1] = False
    settled[1:] &= same[:-1]
    return settled


def _usual(work: IntArray, rises: FloatArray) -> float:
    """Return the growth of some stretches together, if all had grown at the usual rate."""
    if not len(work):
        return 0.0
    done, grown = (np.concatenate([[0.0], np.cumsum(each)]) for each in (work, rises))
    edges = np.interp(np.linspace(0.0, done[-1], PARTS + 1), done, grown)
    return float(np.median(np.diff(edges)) * PARTS)


_RISING = frozenset({Reason.SHORT_RISE, Reason.SETTLING})
_EXACT = frozenset({"elsewhere", "named"})
"""Terms that are weighed object by object: what isn't seen to end may go on."""
_FLOORS = {
    "slack": (policy.SLACK_BYTES, policy.SLACK_SHARE),
    "elsewhere": (policy.UNNAMED_BYTES, 0.0),
}
"""What a term must have gained, and its share of what private memory did; of ``elsewhere`` every
object is weighed, so that it tells also where private memory rests."""


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
    excused_by: str = ""
    """The rule by which its growth is none."""

    @property
    def grows(self) -> bool:
        """Whether it goes on growing, by so much that a leak would be missed."""
        return self.trend.is_growing and self.is_much and not self.excused_by

    @property
    def may_grow(self) -> bool:
        """Whether nobody can say yet that it doesn't."""
        is_open = self.trend.reason in _RISING or (
            self.kind in _EXACT and not self.trend.is_bounded and not self.is_pool_bounded
        )
        return is_open and self.is_much and not self.excused_by

    @property
    def is_much(self) -> bool:
        """Whether a leak would be missed."""
        least, share = _FLOORS.get(self.kind, (policy.UNNAMED_BYTES, policy.UNNAMED_SHARE))
        if self.is_open_pool and share > 0:
            least = max(least, policy.OPEN_POOL_BYTES)
        return self.trend.net_bytes >= least and self.share >= share


def judge_terms(
    case: RunContext,
    growers: Sequence[Grower],
    told: Sequence[Grower] = (),
    trends: Mapping[int, Trend] = MappingProxyType({}),
) -> dict[str, Term]:
    """Return the terms of private memory that no name of the user's stands for.

    Most of them tell only while private memory isn't bounded.

    Args:
        case: The run.
        growers: What grows by a name.
        told: The same with what a rule excuses.
        trends: Of each path that was judged by itself.

    """
    pool = case.pool
    case.decisions.add(
        "private memory", "growth", f"{pool.verdict.value}: {pool.reason.value}",
        figure=pool.net_bytes, threshold=policy.GAUGE_NOISE_BYTES,
    )  # fmt: skip
    series = {"elsewhere": unnamed_series(case)}
    if pool.is_open or pool.is_growing:
        series |= {
            "named": named_series(case, [*told, *growers], trends),
            "slack": case.gauge_series(gauge.MALLOC_FREE),
            "garbage": garbage_series(case),
            "pinned": case.gauge_series(gauge.PINNED_HOST),
            "unexplained": unexplained_series(case, growers),
        }
    terms = {kind: _term(case, kind, *xy) for kind, xy in series.items()}
    if "slack" in terms:
        terms["slack"] = _undecided_by_what_pins_it(case, terms["slack"])
    if "unexplained" in terms:
        terms["unexplained"] = _undecided_until_collected(case, terms["unexplained"])
    judged = {kind: _judged(case, term, growers) for kind, term in terms.items()}
    return _pinned_by_unnamed(case, judged)


def _pinned_by_unnamed(case: RunContext, terms: dict[str, Term]) -> dict[str, Term]:
    """Return terms of which free memory is none by itself beside new objects without a name.

    They lie between it: they are the leak, and what it costs beyond their size is free memory.
    """
    slack = terms.get("slack")
    if slack is None or not slack.grows or not terms["elsewhere"].grows:
        return terms
    gained = terms["elsewhere"].trend.net_bytes
    case.decisions.add(
        "slack", "pinned_by_unnamed", "it lies between new objects without a name",
        figure=gained, threshold=policy.UNNAMED_BYTES,
    )  # fmt: skip
    return terms | {"slack": replace(slack, excused_by="pinned_by_unnamed")}


def _undecided_by_what_pins_it(case: RunContext, slack: Term) -> Term:
    """Return growth of free memory as undecided where that of what is in use is.

    It goes on growing only between blocks that are kept.
    """
    in_use = case.gauge_trend(gauge.MALLOC_IN_USE, policy.ELSEWHERE_NOISE_BYTES)
    is_unread = not len(case.gauge_series(gauge.MALLOC_IN_USE)[0])
    if in_use.is_growing or in_use.is_bounded or is_unread:
        return slack
    return _undecided(slack, in_use.more_work)


def _undecided_until_collected(case: RunContext, unexplained: Term) -> Term:
    """Return growth without a name as undecided while as much garbage awaits the collector.

    Objects of native code may hang on it, and between two looks its bytes are not known.
    """
    following = next_collection(case)
    if following is None:
        return unexplained
    _, sizes = garbage_readings(case)
    if unexplained.trend.net_bytes > float(sizes.max()):
        return unexplained
    return _undecided(unexplained, following.further_work)


def _undecided(term: Term, more_work: float | None) -> Term:
    if not term.trend.is_growing:
        return term
    trend = msgspec.structs.replace(
        term.trend,
        verdict=TrendVerdict.INCONCLUSIVE,
        reason=Reason.SHORT_RISE,
        more_work=more_work,
    )
    return replace(term, trend=trend)


def judge_unnamed(case: RunContext) -> Term:
    """Return how what is new and has no name of the user's grows."""
    return _term(case, "elsewhere", *unnamed_series(case))


def _judged(case: RunContext, term: Term, growers: Sequence[Grower]) -> Term:
    """Return a term with the first rule by which its growth is none, if there is one."""
    trend, decisions = term.trend, case.decisions
    outcome = f"{trend.verdict.value}: {trend.reason.value}"
    decisions.add(term.kind, "growth", outcome, figure=trend.net_bytes)
    if not (term.grows or term.may_grow):
        floor, _ = _FLOORS.get(term.kind, (policy.UNNAMED_BYTES, 0.0))
        if not trend.is_bounded:
            decisions.add(term.kind, "floor", "too little", figure=trend.net_bytes, threshold=floor)
        return term
    for rule in TERM_RULES:
        if (figure := rule.applies(case, term, growers)) is not None:
            decisions.add(
                term.kind, rule.name, rule.reason, figure=figure.value, threshold=figure.threshold
            )
            return replace(term, excused_by=rule.name)
    return term


def _term(case: RunContext, kind: str, x: FloatArray, y: FloatArray) -> Term:
    noise = policy.ELSEWHERE_NOISE_BYTES if kind == "elsewhere" else policy.GAUGE_NOISE_BYTES
    trend = case.trend_of(x, y, noise)
    done, private = case.pool_series()
    grown = 0.0
    if len(done):
        since = private[done >= trend.tail_from]
        grown = float(since[-1] - since[0]) if len(since) else 0.0
    share = trend.net_bytes / grown if grown > 0 else 0.0
    return Term(
        kind, trend, share, is_open_pool=case.pool.is_open, is_pool_bounded=case.pool.is_bounded
    )


def garbage_series(case: RunContext) -> tuple[FloatArray, FloatArray]:
    """Return units done and unreached bytes where they were weighed, or just collected."""
    at, sizes = garbage_readings(case)
    return case.work_done[at], sizes


def unnamed_series(case: RunContext) -> tuple[FloatArray, FloatArray]:
    """Return units done and bytes of what is new and no name of the user's reaches."""
    weighed, sizes = unnamed_readings(case)
    return case.work_done[case.table.at[weighed]], sizes


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
    everywhere = np.arange(len(table.at))
    for g in {g.path: g for g in growers}.values():
        if g.growth == "across" and g.device == HOST and table.is_reached(g.path):
            held = np.nan_to_num(table.retained[HOST][g.path, g.observed])
            left = left - np.interp(everywhere, g.observed, held)
    inside = table.at >= case.working[0] if len(case.working) else table.at >= 0
    x, left = case.work_done[table.at[inside]], left[inside]
    released = np.flatnonzero(np.diff(left[:-1]) < -policy.GAUGE_NOISE_BYTES)
    if len(released) and left[-1] <= left[: released[-1] + 1].max() + policy.ROW_NOISE_BYTES:
        return x[:-1], left[:-1]  # as high as what was given back: one more tooth
    return x, left


def _settled_rows(case: RunContext, trends: Mapping[int, Trend]) -> list[FloatArray]:
    """Return by census the bytes of the outermost rows that are bounded by themselves.

    Those that came during the run are left out where they are several: each is bounded, and the
    next one may follow.
    """
    table, everywhere = case.table, np.arange(len(case.table.at))
    there: list[FloatArray] = []
    came: list[FloatArray] = []
    begin = int(case.working[0]) if len(case.working) else 0
    for path, trend in trends.items():
        above = table.ancestors(path)
        columns = case.observations.columns(path)
        if not trend.is_bounded or not len(columns) or not table.is_reached(path):
            continue
        if any(trends[each].is_bounded for each in above if each in trends):
            continue
        held = np.nan_to_num(table.retained[HOST][path, columns])
        bytes_at = np.interp(everywhere, columns, held, left=0.0)
        is_new = table.at[columns[0]] > begin and held[0] > policy.ROW_NOISE_BYTES
        (came if is_new else there).append(bytes_at)
    return there + (came if len(came) < policy.FEWEST_RISES else [])


def garbage_readings(case: RunContext) -> tuple[IntArray, FloatArray]:
    """Return the measurements at which garbage was weighed, and its bytes.

    The first look after the work is among them where there is more: it awaited the collector
    before. So is each collection of all generations in between, which leaves nothing.
    """
    track, sizes = case.track, [c.garbage_bytes for c in case.table.censuses]
    after = [
        int(at)
        for at, size in zip(case.table.at, sizes, strict=True)
        if at > track.last_work and size is not None
    ]
    weighed, values = _weighed(case, sizes, min(after, default=track.last_work))
    if after and len(values) > 1 and values[-1] < values[-2]:
        weighed, values = weighed[:-1], values[:-1]
    at = case.table.at[weighed]
    survived = track.gauge(gauge.GC_LONG_LIVED)
    known = track.known(gauge.GC_LONG_LIVED)
    collected = known[1:][np.diff(survived[known]) != 0]
    if not len(at):
        return at, values
    collected = collected[(collected > at[0]) & (collected < at[-1]) & ~np.isin(collected, at)]
    order = np.argsort(np.append(at, collected), kind="stable")
    return (
        np.append(at, collected)[order],
        np.append(values, np.zeros(len(collected)))[order],
    )


def unnamed_readings(case: RunContext) -> tuple[IntArray, FloatArray]:
    """Return the censuses that weighed what is new outside the user's names, and its bytes.

    The one at the end of the run is among them where growth goes on to it as it was. In a short run
    it may be the only one of a whole half; but functions have returned there, and what they shared
    with a library is the library's alone.
    """
    sizes = [c.elsewhere_bytes for c in case.table.censuses]
    known, values = _weighed(case, sizes, case.track.last_work)
    final = len(sizes) - 1
    if len(known) < policy.FEWEST_READINGS or known[-1] == final or sizes[final] is None:
        return known, values
    done = case.work_done[case.table.at]
    since = float(done[final] - done[known[-1]])
    gained = float(sizes[final] or 0) - float(values[-1])
    begin = max(float(done[known[-1]]) - since, float(done[known[0]]))
    before = float(values[-1] - np.interp(begin, done[known], values))
    worked = float(done[known[-1]]) - begin
    if not 0 <= gained * worked <= policy.ALIKE_FACTOR * before * since:
        return known, values
    all_known, all_values = np.append(known, final), np.append(values, float(sizes[final] or 0))
    trend = case.trend_of(done[all_known], all_values, policy.ELSEWHERE_NOISE_BYTES)
    return (all_known, all_values) if trend.is_growing else (known, values)


def _weighed(
    case: RunContext, sizes: Sequence[int | None], last: int
) -> tuple[IntArray, FloatArray]:
    """Return the censuses that weighed something up to a measurement, and what."""
    places = zip(range(len(sizes)), case.table.at.tolist(), strict=True)
    known = [n for n, at in places if sizes[n] is not None and at <= last]
    values = [float(sizes[n] or 0) for n in known]
    return np.array(known, dtype=np.int64), np.array(values, dtype=np.float64)


def unexplained_series(
    case: RunContext, growers: Sequence[Grower] = ()
) -> tuple[FloatArray, FloatArray]:
    """Return units done and private memory without all that is measured.

    It is taken at censuses; where these don't reach to the end of the work where free memory in
    the C heap was read. What grows by a name is taken to have gone on at its rate since it was seen
    last.
    """
    table, private = case.table, case.private
    read = case.working[np.isfinite(private[case.working])]
    if HOST not in table.retained or not len(table.at) or not len(read):
        return case.pool_series()
    least = policy.REACHES * np.ptp(case.track.index[read])
    looked_at = (read[np.isin(read, p)] for p in (table.at, case.track.known(gauge.MALLOC_FREE)))
    enough = (at for at in looked_at if len(at) >= policy.FEW_READINGS)
    at = next((at for at in enough if np.ptp(case.track.index[at]) >= least), read)
    left = private[at] - np.interp(at, table.at, named_bytes(case, HOST))
    for g in growers:
        if g.growth == "across" and g.device == HOST:
            left = left - unseen_growth(case, g, at)
    for name in (gauge.MALLOC_FREE, gauge.PINNED_HOST):
        known = case.track.known(name)
        known = known[known <= case.track.last_work]  # later it gives back what it held
        if len(known):
            left = left - np.interp(at, known, case.track.gauge(name)[known])
            since = np.clip(case.work_done[at] - case.work_done[known[-1]], 0, None)
            trend = case.gauge_trend(name)
            left = left - since * (trend.bytes_per_unit if trend.is_growing else 0.0)
    weighed, unnamed = unnamed_readings(case)
    for read_at, sizes in (garbage_readings(case), (table.at[weighed], unnamed)):
        if len(read_at):
            left = left - np.interp(at, read_at, sizes)
    return case.work_done[at], left


def unnamed_at(case: RunContext, columns: IntArray) -> FloatArray:
    """Return what was new and without a name of the user's at some censuses, between two evenly."""
    weighed, sizes = unnamed_readings(case)
    if not len(weighed):
        return np.zeros(len(columns))
    return np.interp(case.table.at[columns], case.table.at[weighed], sizes, left=0.0)
