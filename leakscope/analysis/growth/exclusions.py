"""The ordered rules for what grows and yet is no leak.

Each rule has a name and a reason. It returns the figure that it went by and the threshold, and the
report records both with the outcome (``decisions`` in ``report.json``). The first rule that applies
decides. They are applied in this order:

1. ``moved``, to every path that grows across phases, before accumulation points are sought.
2. ``ROW_RULES``, to each path at its accumulation point: ``recreated``, ``follows_the_model``,
   ``rested_since``, ``as_many_items``, ``declares_a_bound``. What the second and the last stop is
   listed as filling, not as a leak.
3. ``TERM_RULES``, to each term of private memory that grows or may grow (``accounting.terms``):
   ``first_touch``, ``nothing_pins_it``, ``pinned_by_growth``; the last also where new objects
   without a name or sampled native blocks are what grows.
4. ``floor``, the only one that isn't here: too little to harm (``verdict.severity`` for paths,
   ``Term.is_much`` for terms).

What can't be seen isn't judged at all (``rows.Observations.columns``). A rule exists only where a
recorded program needs it: ``tests/zoo/ablation.py`` switches off each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec
import numpy as np

from leakscope.analysis.accounting.ledger import garbage_at
from leakscope.analysis.accounting.native import native_series
from leakscope.analysis.accounting.terms import Term, undecided
from leakscope.analysis.columns.series import HOST, INNER, FloatArray, RowTable
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.rows import FIXED_SIZE_KINDS, Grower, bytes_when_full
from leakscope.analysis.run_context import RunContext
from leakscope.model import gauge
from leakscope.model.census import CensusRow
from leakscope.model.registries import registry_of

PINNED = "pinned_by_growth"
"""The rule by which free memory lies between what grows."""


class Figure(NamedTuple):
    """What a rule went by."""

    value: float
    threshold: float


@dataclass(frozen=True)
class GrowthRule:
    """A reason why a path, or a term of private memory, that grows is no leak."""

    name: str
    reason: str
    applies: Callable[..., Figure | None]
    """Of a run and a path's grower; of a term of a run with all that grows by a name."""
    stops: bool = False
    """Whether growth is real and ends by itself: the report lists it as filling."""


def moved(case: RunContext, grower: Grower) -> Figure | None:
    """Return whether another path lost what this one gained: an alias that came or went."""
    table = case.table
    values = np.nan_to_num(table.retained[grower.device][:, grower.columns])
    gains = np.diff(grower.y)
    rise = gains[gains > 0].sum()
    lost = values[:, 0] - values[:, -1] >= policy.MAIN_SHARE * (grower.y[-1] - grower.y[0])
    suspects = np.flatnonzero(lost)
    if not len(suspects) or rise <= 0:
        return None
    shared = np.minimum(-np.diff(values[suspects], axis=1), gains).clip(min=0).sum(axis=1)
    kin = {*table.ancestors(grower.path), grower.path}

    def released(suspect: int) -> bool:
        """Return whether what it lost has left all that holds it, too."""
        above = table.ancestors(suspect)
        return suspect not in kin and grower.path not in above and lost[[*{*above} - kin]].all()

    shares = [
        share / rise for suspect, share in zip(suspects.tolist(), shared, strict=True)
        if share >= policy.MAIN_SHARE * rise and released(suspect)
    ]  # fmt: skip
    return Figure(max(shares), policy.MAIN_SHARE) if shares else None


def recreated(case: RunContext, grower: Grower) -> Figure | None:
    """Return whether it is a graph that was replaced between begin, middle and end of the run.

    Of a loss that accumulates, the oldest autograd node was made in the first step that it holds.
    Sequences that get longer make a graph larger, and it is freed with the next one.
    """
    table = case.table
    if table.latest[grower.path].kind != "graph":
        return None
    shown = grower.columns[np.isfinite(table.retained[grower.device][grower.path, grower.columns])]
    if len(shown) < policy.FEWEST_READINGS:
        return None
    done = case.work_done[table.at[shown]]
    halfway = int(np.argmin(np.abs(done[1:-1] - (done[0] + done[-1]) / 2))) + 1
    places = (0, halfway, -1)
    made = [table.row_at(grower.path, int(shown[place])).made for place in places]
    if not all(made):
        return None
    begin, middle, end = made
    is_younger = middle[0] > begin[1] and end[0] > middle[1]
    return Figure(float(end[0]), float(middle[1])) if is_younger else None


def follows_the_model(case: RunContext, grower: Grower) -> Figure | None:
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
    gained = gradients[-1] - gradients[0] >= policy.MAIN_SHARE * (grower.y[-1] - grower.y[0])
    follows = gained and gradients[-1] <= most and differs <= policy.ROW_NOISE_BYTES
    return Figure(float(gradients[-1]), most) if follows else None


def _bytes_of(table: RowTable, role: str, g: Grower) -> FloatArray:
    """Return what plays a role at the censuses that a grower was judged by, on all devices."""
    by_device = [table.censuses[column].components.get(role, {}) for column in g.columns]
    return np.array([sum(devices.values()) for devices in by_device], dtype=np.float64)


def rested_since(case: RunContext, grower: Grower) -> Figure | None:
    """Return whether memory in use rested since a path could be seen last, long before the end.

    What malloc holds free would take up growth unseen: without its account nothing is known. Nor is
    where memory fell by another amount than the path held: something else was released. What grows
    in steps may have none due yet.
    """
    if grower.growth != "across" or grower.device != HOST:
        return None
    last = int(case.table.at[grower.observed[-1]])
    figure, fell, fallen_at = _rest_from(case, grower, last)
    size = float(grower.y[-1])
    if figure is None and policy.MAIN_SHARE * size <= fell <= policy.ALIKE_FACTOR * size:
        figure, _, _ = _rest_from(case, grower, fallen_at)
    return figure


def _rest_from(case: RunContext, grower: Grower, begin: int) -> tuple[Figure | None, float, int]:
    """Return whether memory in use rested from a measurement to the end of the work, by how much it
    fell in between, and the measurement at which it had fallen.
    """
    (x, private), (read, free) = case.pool_series(), case.gauge_series(gauge.MALLOC_FREE)
    end = case.track.last_work
    if not len(x) or not len(read):
        return None, 0.0, begin
    seen, unseen = float(case.work_done[begin]), float(case.work_done[end] - case.work_done[begin])
    due = grower.per_boundary * float(case.track.work[end] - case.track.work[begin])
    columns, y, _ = case.observations.series(grower.path, grower.device)
    worked = np.diff(case.track.work[case.table.at[columns]])
    # By how much it rose at most beyond its line between two looks.
    step = float((np.diff(y) - grower.per_boundary * worked).max(initial=0.0))
    part = unseen / float(np.ptp(x))
    is_long = part > policy.CONSIDERABLE_SHARE and due >= max(policy.GAUGE_NOISE_BYTES, step)
    is_much = part > policy.LITTLE_SHARE and due >= policy.NOTED_BYTES + 2 * step
    if not (is_long or is_much):
        return None, 0.0, begin
    at = case.working[np.isfinite(case.private[case.working])]
    # What becomes garbage as the work ends was in use while it went on.
    with_garbage = private - np.interp(x, read, free)
    in_use_each = (with_garbage, with_garbage - garbage_at(case, at))
    gained = max(float(in_use[-1] - np.interp(seen, x, in_use)) for in_use in in_use_each)
    later = with_garbage[x >= seen]
    fallen_at = int(at[x >= seen][np.argmin(later)]) if len(later) else begin
    if x[-1] - read[-1] > policy.CONSIDERABLE_SHARE * unseen:  # it may be in use since
        gained += float(free[-1])
    mapped, shared = case.gauge_series(gauge.SHM)
    if len(mapped):  # tensors that processes send each other lie there, and are nobody's own
        gained += max(0.0, float(shared[-1] - np.interp(seen, mapped, shared)))
    share = gained / due
    is_fall = gained < -max(policy.LITTLE_BYTES, policy.CONSIDERABLE_SHARE * due)
    is_rest = not is_fall and share < policy.CONSIDERABLE_SHARE
    figure = Figure(share, policy.CONSIDERABLE_SHARE) if is_rest else None
    return figure, -gained if is_fall else 0.0, fallen_at


def as_many_items(case: RunContext, grower: Grower) -> Figure | None:
    """Return whether a container has as many items as before, of other sizes.

    One that is full takes out an item for each that it is given. By chance the latest are larger.
    What grows in its items is far more than that, or has a name of its own below it.
    """
    if grower.growth != "across" or len(grower.y) > policy.FEW_READINGS:
        return None
    table = case.table
    holder = table.number.get(table.paths[grower.path].removesuffix("[*]"), grower.path)
    lengths = table.length[holder][grower.observed]
    if len(lengths) != len(grower.y) or not (lengths == lengths[0]).all() or lengths[0] < 2:
        return None
    share = float(grower.y[-1] - grower.y[0]) / float(grower.y[-1])
    return Figure(share, policy.LITTLE_SHARE) if share < policy.LITTLE_SHARE else None


def another_object(case: RunContext, grower: Grower) -> Figure | None:
    """Return whether it is one object that doesn't grow: what is larger at its name is another one.

    A batch of sequences that get longer is. What is joined to ever more is as well, but then it is
    a good part of what memory gains.
    """
    table, device = case.table, grower.device
    count = table.count[grower.path][grower.observed]
    is_one = table.latest[grower.path].kind in FIXED_SIZE_KINDS and bool((count == 1).all())
    _, highest = table.highest(grower.path, device)
    whole = case.device_gain(device)
    if grower.growth != "across" or not is_one or whole is None or whole <= 0:
        return None
    share = case.gain_of(grower) / whole
    is_little = share < policy.CONSIDERABLE_SHARE and highest < policy.HARMLESS_BYTES
    return Figure(share, policy.CONSIDERABLE_SHARE) if is_little else None


def declares_a_bound(case: RunContext, grower: Grower) -> Figure | None:
    """Return whether a grower will stop by itself, at a bound that does no harm.

    A library's cache that has never answered a call only keeps what it was given; the user has
    neither chosen its bound nor anything of it. A method's cache that alone keeps the objects on
    which the method was called has no useful bound either: nobody can call it on them again.
    """
    return bound_of(case, grower.path, grower.device, float(grower.y[-1]))


def bound_of(case: RunContext, path: int, device: str, size: float) -> Figure | None:
    """Return what a container of some bytes comes to at the bound that it declares, if harmless."""
    row = case.table.latest[path]
    row = msgspec.structs.replace(row, capacity=capacity_of(row))
    full = bytes_when_full(row, size)
    if full is None or row.length is None:
        return None
    if row.hits == 0 and not row.user and row.length >= policy.UNANSWERED_CALLS:
        return None
    if _keeps_callers(case.table, path, device, size):
        return None
    limit = policy.CONSIDERABLE_SHARE * (case.limit_bytes or float("inf"))
    return Figure(full, limit) if full < limit else None


def capacity_of(row: CensusRow) -> int | None:
    """Return the bound that a container declares, or that is known of a library's registry."""
    if row.capacity is not None or row.user:
        return row.capacity
    registry = registry_of(row.path)
    return registry.capacity or None if registry is not None else None


def _keeps_callers(table: RowTable, path: int, device: str, size: float) -> bool:
    """Return whether a cached method's arguments, of which ``self`` is the first, are its bytes."""
    row = table.latest[path]
    callers = table.number.get(f"{row.path}[*][0]")
    is_method = row.kind == "lru_cache" and "." in row.path.partition("·")[2]
    if callers is None or not is_method or table.latest[callers].kind not in ("module", "object"):
        return False
    return table.highest(callers, device)[1] >= policy.MAIN_SHARE * size


def first_touch(case: RunContext, term: Term, growers: Sequence[Grower]) -> Figure | None:
    """Return whether pages may have become resident of what a name reached all along.

    A replay buffer of zeros takes no page until its rows are filled: the C heap then hands out
    nothing more, and nothing grows.
    """
    growth = term.trend.net_bytes
    in_use = case.gauge_gain(gauge.MALLOC_IN_USE)
    if term.kind != "unexplained" or in_use is None or not case.table.censuses:
        return None
    if term.is_handed_out:
        return None  # no page that is written later makes that more
    if case.table.censuses[0].payload_bytes.get(HOST, 0) < growth:
        return None
    share = in_use / growth
    return Figure(share, policy.MOST_SHARE) if share < policy.MOST_SHARE else None


def pinned_by_growth(case: RunContext, term: Term, growers: Sequence[Grower]) -> Figure | None:
    """Return whether free memory rises with what grows by a name: it lies between its parts.

    That is so where this is most of what the C heap has more in use. The free memory between small
    parts is many times their size: each keeps the free block below it.
    """
    if term.kind != "slack":
        return None
    begin = int(np.searchsorted(case.work_done, term.trend.tail_from))
    boundaries = float(case.track.work[case.track.last_work] - case.track.work[begin])
    across = [g for g in growers if g.growth == "across" and g.device == HOST]
    gained = sum(g.per_boundary * boundaries for g in across)
    whole = _gained_in_use(case, term.trend.tail_from)
    least = max(policy.GAUGE_NOISE_BYTES, policy.MOST_SHARE * whole)
    return Figure(gained, least) if gained >= least else None


def nothing_pins_it(case: RunContext, term: Term, growers: Sequence[Grower]) -> Figure | None:
    """Return whether free memory rises while what is in use doesn't: fragmentation that will end.

    Free memory that goes on growing lies between blocks that are kept. Where those don't become
    more, blocks of a bounded lifetime have split it, and it is used again once all have been
    replaced. What the C heap has in use is exact. Where the process itself grows as steadily,
    blocks too few to be seen may pin it.
    """
    if term.kind != "slack" or (term.trend.is_growing and term.is_pool_growing):
        return None
    trend = case.gauge_trend(gauge.MALLOC_IN_USE, policy.ELSEWHERE_NOISE_BYTES)
    return Figure(trend.net_bytes, policy.ELSEWHERE_NOISE_BYTES) if trend.is_bounded else None


MOVED = GrowthRule("moved", "another path lost what this one gained", moved)
ROW_RULES = (
    GrowthRule("recreated", "it is rebuilt, and nothing of it is kept", recreated),
    GrowthRule(
        "follows_the_model", "gradients and states come to parameters", follows_the_model, True
    ),
    GrowthRule("rested_since", "memory in use rested since it was seen last", rested_since),
    GrowthRule("as_many_items", "it has as many items as before, of other sizes", as_many_items),
    GrowthRule("another_object", "it is another, larger object each time", another_object),
    GrowthRule("declares_a_bound", "it stops at a bound of its own", declares_a_bound, True),
)
TERM_RULES = (
    GrowthRule("first_touch", "pages of what was allocated before are written", first_touch),
    GrowthRule("nothing_pins_it", "what the C heap has in use doesn't grow", nothing_pins_it),
    GrowthRule(PINNED, "it lies between the parts of what grows", pinned_by_growth),
)


def excludes(case: RunContext, rule: GrowthRule, grower: Grower) -> bool:
    """Return whether a rule says that what grows is no leak; the decision is recorded."""
    figure = rule.applies(case, grower)
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
    left: list[Grower] = []
    filling: list[Grower] = []
    for grower in growers:
        rule = next((r for r in ROW_RULES if excludes(case, r, grower)), None)
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
    """Return terms of private memory, by kind, with the first rule by which their growth is no
    leak. ``growers`` grow by a name, ``filling`` towards a bound.
    """
    named = [*growers, *filling]
    judged = {kind: _with_rule(case, term, named) for kind, term in terms.items()}
    judged["elsewhere"] = _filling(case, judged["elsewhere"], filling)
    slack = judged.get("slack")
    if slack is not None and slack.grows:
        # Larger batches leave holes, which ends when the largest was met.
        by_shapes = may_come_with_shapes(case, slack, case.gauge_series(gauge.MALLOC_FREE))
        judged["slack"] = undecided(slack, None) if by_shapes or _may_settle(case) else slack
    return _pinned_by_unnamed(case, judged)


def _may_settle(case: RunContext) -> bool:
    """Return whether what the C heap has in use rises by too little to harm.

    A few small blocks may pin much free memory. A heap that is merely split, by blocks that come
    and go, stops growing by itself.
    """
    trend = case.gauge_trend(gauge.MALLOC_IN_USE, policy.ELSEWHERE_NOISE_BYTES)
    gained = trend.net_bytes * policy.HORIZON
    if trend.points < policy.FEWEST_READINGS or gained >= policy.HARMLESS_BYTES:
        return False
    case.decisions.add(
        "slack", "may_settle", "what the C heap has in use rises by too little to harm",
        figure=gained, threshold=policy.HARMLESS_BYTES,
    )  # fmt: skip
    return True


def _filling(case: RunContext, unnamed: Term, filling: Sequence[Grower]) -> Term:
    """Return what is new without a name, which ends where most of it fills a library's bound."""
    gained = named_in_libraries(case, filling)
    least = policy.MOST_SHARE * unnamed.trend.net_bytes
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
    return named_in_libraries(case, growers) >= policy.MOST_SHARE * term.trend.net_bytes


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
    """Return the terms, without free memory where new objects or blocks without a name grow too.

    These lie between the free blocks: they are the leak, and free memory is what it costs beyond
    their size. A leak of a MiB of small objects may cost sixteen.
    """
    slack = terms.get("slack")
    if slack is None or not slack.grows:
        return terms
    for kind, least in (
        ("elsewhere", policy.GAUGE_NOISE_BYTES),
        ("unexplained", _sampled_between(case, slack)),
    ):
        between = terms[kind]
        gained = between.trend.net_bytes
        if between.trend.is_growing and not between.excluded_by and gained >= least:
            reason = "it lies between what has no name and grows"
            return terms | {
                "slack": _excluded(case, slack, PINNED, reason, Figure(gained, least)),
                kind: replace(between, pinned_bytes=slack.trend.net_bytes),
            }
    return terms


def _sampled_between(case: RunContext, slack: Term) -> float:
    """Return what must grow without a name to pin free memory, where sampled blocks of libraries
    are most of what the C heap has more in use; else more than anything grows by.
    """
    in_use = _gained_in_use(case, slack.trend.tail_from)
    at, sizes, _ = native_series(case)
    in_tail = sizes[case.work_done[at] >= slack.trend.tail_from]
    sampled = float(in_tail[-1] - in_tail[0]) if len(in_tail) else 0.0
    least = max(policy.GAUGE_NOISE_BYTES, policy.MOST_SHARE * in_use)
    return least if sampled >= least else math.inf


def _gained_in_use(case: RunContext, since: float) -> float:
    done, in_use = case.gauge_series(gauge.MALLOC_IN_USE)
    in_tail = in_use[done >= since]
    return float(in_tail[-1] - in_tail[0]) if len(in_tail) else 0.0


def may_come_with_shapes(
    case: RunContext, term: Term, series: tuple[FloatArray, FloatArray]
) -> bool:
    """Return whether growth of a term may come with new shapes of tensors alone.

    oneDNN compiles a kernel for each shape that it meets and caches it; larger batches need more at
    once. Both end by themselves. A leak goes on between new shapes as well. ``series`` has the
    term's readings: units done, and bytes.
    """
    known, (x, y) = case.track.known(gauge.SHAPES), series
    # Between phases the function that holds the batches may have returned: readings there are used
    # where there are few others.
    at, in_tail = np.searchsorted(case.work_done, x), x >= term.trend.tail_from
    inside = in_tail & np.isin(case.track.kind[at], INNER) & np.isin(at, known)
    if (np.ptp(x[inside]) if inside.any() else 0.0) < policy.MOST_SHARE * np.ptp(x[in_tail]):
        inside = in_tail
    x, kept = x[inside], np.minimum.accumulate(y[inside][::-1])[::-1]
    if len(known) < policy.FEWEST_READINGS or len(x) < policy.FEWEST_READINGS:
        return False
    seen = np.interp(x, case.work_done[known], case.track.gauge(gauge.SHAPES)[known])
    new_shapes = seen[-1] - seen[0]
    if new_shapes < policy.FEWEST_GROWING or seen[len(seen) * 2 // 3] > policy.SHAPE_CACHE_ENTRIES:
        return False
    is_rest, work = np.diff(seen) == 0, np.diff(x)
    if work.sum() <= 0:
        return False
    share = float(work[is_rest].sum() / work.sum())
    gained_at_rest = float(np.diff(kept)[is_rest].sum())
    due = share * float(kept[-1] - kept[0])
    return due < policy.GAUGE_NOISE_BYTES or gained_at_rest < policy.MOST_SHARE * due


def new_shapes(case: RunContext, term: Term) -> int:
    """Return how many shapes were met for the first time in the tail of a term."""
    known = case.track.known(gauge.SHAPES)
    known = known[case.work_done[known] >= term.trend.tail_from]
    seen = case.track.gauge(gauge.SHAPES)[known]
    return int(seen[-1] - seen[0]) if len(seen) else 0
