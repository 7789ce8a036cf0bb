"""The ordered rules for what grows and yet is no leak.

Each rule has a name and a reason. It returns the figure that it went by and the threshold, and the
report records both with the outcome (``decisions`` in ``report.json``). The first rule that applies
decides. They are applied in this order:

1. ``moved``, to every path that grows across phases, before accumulation points are sought.
2. ``ROW_RULES``, to each path at its accumulation point: ``recreated``, ``follows_the_model``,
   ``rested_since``, ``declares_a_bound``. What ``follows_the_model`` or ``declares_a_bound`` stops
   is listed as filling, not as a leak.
3. ``part_of_owner``, to every path that climbs within a phase; then ``ROW_RULES`` to those that
   are left.
4. ``TERM_RULES``, to each term of private memory that grows or may grow (``accounting.terms``):
   ``first_touch``, ``new_shapes``, ``collector_will_come``, ``nothing_pins_it``,
   ``pinned_by_culprit``; then ``declares_a_bound``, to new objects without a name that fill such a
   path, ``pinned_by_filling``, to free memory in the C heap between the parts of one, and
   ``pinned_by_unnamed``, which needs the outcome for ``elsewhere``.
5. ``floor``, the only one that isn't here: too little to harm (``verdict.severity`` for paths,
   ``Term.is_much`` for terms).

What can't be seen isn't judged at all (``rows.Observations.columns``). A rule exists only where a
recorded program needs it: ``tests/zoo/ablation.py`` switches off each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

import numpy as np

from leakscope.analysis.accounting.terms import Term, next_collection
from leakscope.analysis.columns.series import (
    HOST,
    INNER,
    BoolArray,
    FloatArray,
    IntArray,
    RowTable,
)
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.rows import Grower, bytes_when_full
from leakscope.analysis.run_context import RunContext
from leakscope.model import gauge
from leakscope.model.trend import Reason


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
    """Takes the run, a path that grows, and the other paths that do and that no rule excluded."""
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
    """Return whether it is a graph that was replaced between begin, middle and end of the run.

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
    row, retained = table.latest[grower.path], float(grower.y[-1])
    if row.role == "optimizer_state":
        is_bounded = row.kind == "dict" and retained <= policy.STATES_PER_PARAMETER * most
        return Figure(retained, policy.STATES_PER_PARAMETER * most) if is_bounded else None
    gradients = _bytes_of(table, "gradients", grower)
    differs = np.abs(np.diff(gradients) - np.diff(grower.y)).max()
    gained = gradients[-1] - gradients[0] >= policy.GRADIENT_SHARE * (grower.y[-1] - grower.y[0])
    follows = gained and gradients[-1] <= most and differs <= policy.ROW_NOISE_BYTES
    return Figure(float(gradients[-1]), most) if follows else None


def _bytes_of(table: RowTable, role: str, g: Grower) -> FloatArray:
    """Return what plays a role at the censuses that a grower was judged by, on all devices."""
    by_device = [table.censuses[column].components.get(role, {}) for column in g.columns]
    return np.array([sum(devices.values()) for devices in by_device], dtype=np.float64)


def declares_a_bound(case: RunContext, grower: Grower, others: Sequence[Grower]) -> Figure | None:
    """Return whether a grower will stop by itself, at a bound that does no harm.

    A library's cache that has never answered a call only keeps what it was given; the user has
    neither chosen its bound nor anything of it. A method's cache that alone keeps the objects on
    which the method was called has no useful bound either: nobody can call it on them again.
    """
    row = case.table.latest[grower.path]
    full = bytes_when_full(row, grower)
    if full is None or row.length is None:
        return None
    if row.hits == 0 and not row.user and row.length >= policy.UNANSWERED_CALLS:
        return None
    if _keeps_callers(case.table, grower):
        return None
    limit = policy.CAPACITY_OF_LIMIT * (case.limit_bytes or float("inf"))
    return Figure(full, limit) if full < limit else None


def _keeps_callers(table: RowTable, grower: Grower) -> bool:
    """Return whether a cached method's arguments, of which ``self`` is the first, are its bytes."""
    row = table.latest[grower.path]
    callers = table.number.get(f"{row.path}[*][0]")
    is_method = row.kind == "lru_cache" and "." in row.path.partition("·")[2]
    if callers is None or not is_method or table.latest[callers].kind not in ("module", "object"):
        return False
    kept = float(np.nan_to_num(table.retained[grower.device][callers, grower.columns[-1]]))
    return kept >= policy.BIG_DROP_SHARE * float(grower.y[-1])


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
    index, end = case.track.work, case.track.last_work
    last = max(int(case.table.at[grower.observed[-1]]), _in_use_rests_from(case))
    free, known = case.track.gauge(gauge.MALLOC_FREE), case.track.known(gauge.MALLOC_FREE)
    known = known[known <= end]
    read = case.working[np.isfinite(case.private[case.working])]
    if not len(known) or not len(read):
        return None
    if known[-1] <= last:  # all that was free at that time may be in use since
        begin, free_bytes = int(known[-1]), np.array([free[known[-1]], 0.0])
    else:
        begin, end = last, int(known[-1])
        free_bytes = case.read_between(np.array([last, end]), known, free[known])
    span = float(index[end] - index[last])
    due, whole = grower.per_boundary * span, float(index[end] - index[case.working[0]])
    if span <= (1 - policy.REACHES) * whole or due < policy.LEAST_DUE_BYTES:
        return None
    ends = np.array([begin, end])
    private = case.read_between(ends, read, case.private[read])
    # Memory that was free and not resident is taken into use without a change of private memory,
    # and small objects lie in arenas that are none of the C heap's: the larger figure counts.
    in_use = case.read_between(ends, known, case.track.gauge(gauge.MALLOC_IN_USE)[known])
    gained = max(float(np.diff(private - free_bytes)[0]), float(np.nan_to_num(np.diff(in_use))[0]))
    gained -= _gained_by_others(case, grower, ends)
    share = gained / due
    return Figure(share, policy.RESTED_SHARE) if share < policy.RESTED_SHARE else None


def _gained_by_others(case: RunContext, grower: Grower, ends: IntArray) -> float:
    """Return what other names gained between two measurements, as far as censuses tell.

    A function that has returned takes its names with it, so that they count as nothing then.
    """
    table = case.table
    own = {grower.path, *table.ancestors(grower.path)}
    others = [
        path
        for path in range(len(table.paths))
        if path not in own and table.parent(path) is None and table.is_reached(path)
    ]
    retained = np.nan_to_num(table.retained[HOST][others])
    gains = [float(np.diff(case.read_between(ends, table.at, row))[0]) for row in retained]
    return sum(max(gain, 0.0) for gain in gains)


def _in_use_rests_from(case: RunContext) -> int:
    """Return where memory in use came to rest, -1 where it goes on or malloc's account is missing.

    Growth that was still seen by the last census may have ended between it and there.
    """
    free, known = case.track.gauge(gauge.MALLOC_FREE), case.track.known(gauge.MALLOC_FREE)
    read = case.working[np.isfinite(case.private[case.working])]
    if not len(known) or not len(read) or known[-1] < read[-1]:
        return -1
    in_use = case.private[read] - case.read_between(read, known, free[known])
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
    other, since = max(resident - left, 0.0), term.trend.tail_from
    is_by_shapes = growth_driver(case, left, other, since) is GrowthDriver.SHAPES
    return Figure(left, policy.SHAPE_CACHE_BYTES) if is_by_shapes else None


def pinned_by_culprit(case: RunContext, term: Term, growers: Sequence[Grower]) -> Figure | None:
    """Return whether free memory rises with a container that grows: it lies between its parts.

    That of small parts is many times their size: each keeps the free block below it.
    """
    if term.kind != "slack":
        return None
    gained = _gained_in_tail(case, term, growers)
    return Figure(gained, policy.PINNING_BYTES) if gained >= policy.PINNING_BYTES else None


def _gained_in_tail(case: RunContext, term: Term, growers: Sequence[Grower]) -> float:
    """Return the host bytes that growers gained across phases while a term grew, at their rates."""
    begin = int(np.searchsorted(case.work_done, term.trend.tail_from))
    boundaries = float(case.track.work[case.track.last_work] - case.track.work[begin])
    across = [g for g in growers if g.growth == "across" and g.device == HOST]
    return sum(g.per_boundary * boundaries for g in across)


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
PART_OF_OWNER = RowRule(
    "part_of_owner", "an owner that grows across phases is a culprit", part_of_owner
)
ROW_RULES = (
    RowRule("recreated", "it is rebuilt, and nothing of it is kept", recreated),
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


def excludes(
    case: RunContext, rule: RowRule, grower: Grower, others: Sequence[Grower] = ()
) -> bool:
    """Return whether a rule says that what grows is no leak; the decision is recorded."""
    figure = rule.applies(case, grower, others)
    if figure is None:
        return False
    row = case.table.latest[grower.path]
    case.decisions.add(
        row.name, rule.name, rule.reason,
        figure=figure.value, threshold=figure.threshold, path=row.path,
    )  # fmt: skip
    return True


def without_excluded(case: RunContext, growers: list[Grower]) -> tuple[list[Grower], list[Grower]]:
    """Return what no rule for rows excludes, and what grows towards a bound."""
    left, filling = [], []
    for grower in growers:
        rule = next((r for r in ROW_RULES if excludes(case, r, grower, growers)), None)
        if rule is None:
            left.append(grower)
        elif rule.stops:
            filling.append(grower)
    return left, filling


def with_rules_applied(
    case: RunContext,
    terms: Mapping[str, Term],
    growers: Sequence[Grower],
    filling: Sequence[Grower],
) -> dict[str, Term]:
    """Return terms of private memory with the first rule by which their growth is no leak.

    Args:
        case: The run.
        terms: The terms, by kind.
        growers: What grows by a name.
        filling: What grows towards a bound.

    """
    judged = {kind: _with_rule(case, term, growers) for kind, term in terms.items()}
    judged["elsewhere"] = _filling(case, judged["elsewhere"], filling)
    if "slack" in judged:
        judged["slack"] = _pinned_by_filling(case, judged["slack"], filling)
    return _pinned_by_unnamed(case, judged)


def _pinned_by_filling(case: RunContext, slack: Term, filling: Sequence[Grower]) -> Term:
    """Return free memory in the C heap, which ends with what fills a bound if that pins it."""
    if not (slack.grows or slack.may_grow) or not filling:
        return slack
    gained = _gained_in_tail(case, slack, filling)
    done, in_use = case.gauge_series(gauge.MALLOC_IN_USE)
    in_tail = in_use[done >= slack.trend.tail_from]
    most = float(in_tail[-1] - in_tail[0]) if len(in_tail) else 0.0
    least = max(policy.PINNING_BYTES, policy.CARRIED_SHARE * most)
    if gained < least:
        return slack
    reason = "it lies between the parts of what stops at a bound"
    return _excluded(case, slack, "pinned_by_filling", reason, Figure(gained, least))


def _filling(case: RunContext, unnamed: Term, filling: Sequence[Grower]) -> Term:
    """Return what is new without a name, which ends where most of it fills a library's bound."""
    gained = named_in_libraries(case, filling)
    least = policy.CARRIED_SHARE * unnamed.trend.net_bytes
    if not (unnamed.grows or unnamed.may_grow) or gained < max(least, 1.0):
        return unnamed
    reason = "most of it fills what stops at a bound of its own"
    return _excluded(case, unnamed, "declares_a_bound", reason, Figure(gained, least))


def named_in_libraries(case: RunContext, growers: Iterable[Grower]) -> float:
    """Return the host bytes that libraries' paths gained across phases."""
    return sum(
        g.trend.bytes_per_unit * g.units
        for g in growers
        if g.growth == "across" and g.device == HOST and not case.table.latest[g.path].user
    )


def is_named(case: RunContext, growers: Iterable[Grower], term: Term) -> bool:
    """Return whether culprits name most of what grows in libraries."""
    return named_in_libraries(case, growers) >= policy.CARRIED_SHARE * term.trend.net_bytes


def _with_rule(case: RunContext, term: Term, growers: Sequence[Grower]) -> Term:
    if not (term.grows or term.may_grow):
        return term
    for rule in TERM_RULES:
        if (figure := rule.applies(case, term, growers)) is not None:
            return _excluded(case, term, rule.name, rule.reason, figure)
    return term


def _excluded(case: RunContext, term: Term, rule: str, reason: str, figure: Figure) -> Term:
    case.decisions.add(term.kind, rule, reason, figure=figure.value, threshold=figure.threshold)
    return replace(term, excluded_by=rule)


def _pinned_by_unnamed(case: RunContext, terms: dict[str, Term]) -> dict[str, Term]:
    """Return the terms, without free memory where new objects without a name grow too.

    These lie between the free blocks: they are the leak, and free memory is what it costs beyond
    their size. A leak of a MiB of small objects may cost sixteen.
    """
    slack, unnamed = terms.get("slack"), terms["elsewhere"]
    if slack is None or not slack.grows or unnamed.excluded_by:
        return terms
    gained = unnamed.trend.net_bytes
    if not unnamed.trend.is_growing or gained < policy.PINNING_BYTES:
        return terms
    case.decisions.add(
        "slack", "pinned_by_unnamed", "it lies between new objects without a name",
        figure=gained, threshold=policy.PINNING_BYTES,
    )  # fmt: skip
    return terms | {
        "slack": replace(slack, excluded_by="pinned_by_unnamed"),
        "elsewhere": replace(unnamed, pinned_bytes=slack.trend.net_bytes),
    }


class GrowthDriver(Enum):
    """What growth without a name came with: work, or new shapes of tensors.

    oneDNN compiles a kernel for each shape that it meets and caches it; larger batches need more at
    once. Both end by themselves. A leak goes on between new shapes as well.
    """

    WORK = "work"
    """With work, whether shapes were new or not; or the shapes aren't known."""
    SHAPES = "shapes"
    """With new shapes alone."""
    EITHER = "either"
    """New shapes were met so often that nothing tells."""


def growth_driver(
    case: RunContext, left: float, explained: float, since: float | None = None
) -> GrowthDriver:
    """Return what growth of host memory came with.

    Args:
        case: The run.
        left: The growth in question, in bytes.
        explained: Further growth that is known to come with work, such as that of culprits.
        since: The units done from which on it grew; by default where the ledger begins.

    """
    at = _looked_at(case, since)
    seen = case.track.gauge(gauge.SHAPES)[at]
    if len(at) < policy.FEWEST_GROWING or seen[-1] - seen[0] < policy.FEWEST_GROWING or left <= 0:
        return GrowthDriver.WORK
    is_rest = _settled(np.diff(seen) == 0)
    work = np.diff(case.track.work[at])
    share = float(work[is_rest].sum() / max(work.sum(), 1))
    rises = np.diff(case.track.gauge(case.host_metric)[at])
    at_rest, due = _usual(work[is_rest], rises[is_rest]) - explained * share, left * share
    is_full = seen[len(seen) * 2 // 3] > policy.SHAPE_CACHE_ENTRIES
    if share < policy.REST_OF_SHAPES_SHARE or due < policy.GAUGE_NOISE_BYTES:
        goes_on = is_full or at_rest >= policy.DRIVEN_BY_WORK_SHARE * left
        return GrowthDriver.WORK if goes_on else GrowthDriver.EITHER
    if at_rest >= policy.DRIVEN_BY_WORK_SHARE * due:
        return GrowthDriver.WORK
    is_beyond_cache = is_full or left > policy.SHAPE_CACHE_BYTES
    return GrowthDriver.EITHER if is_beyond_cache else GrowthDriver.SHAPES


def new_shapes(case: RunContext) -> int:
    """Return how many shapes were met for the first time while growth was accounted for."""
    seen = case.track.gauge(gauge.SHAPES)[_looked_at(case)]
    return int(seen[-1] - seen[0]) if len(seen) else 0


def _looked_at(case: RunContext, since: float | None = None) -> IntArray:
    """Return the measurements of the growth in question that know both memory and shapes.

    Only in the midst of work: between phases the function that holds the batches may have returned.
    """
    if case.window is None:
        return np.empty(0, dtype=np.int64)
    known = np.intersect1d(case.track.known(gauge.SHAPES), case.track.known(case.host_metric))
    known = known[np.isin(case.track.kind[known], INNER)]
    first = case.window.first
    if since is not None:
        first = min(first, int(np.searchsorted(case.work_done, since)))
    return known[(known >= first) & (known <= case.window.last)]


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
    edges = np.interp(np.linspace(0.0, done[-1], policy.REST_PARTS + 1), done, grown)
    return float(np.median(np.diff(edges)) * policy.REST_PARTS)
