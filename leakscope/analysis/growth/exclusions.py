"""The ordered rules for what grows and yet is no leak.

Each rule has a name and a reason. It returns the figure that it went by and the threshold, and the
report records both with the outcome (``decisions`` in ``report.json``). The first rule that applies
decides. They are applied in this order:

1. ``declares_a_bound``, to each path that grows, at its accumulation point: the report lists it as
   filling, not as a leak.
2. ``TERM_RULES``, to each term of private memory that grows or may grow (``accounting.terms``):
   ``first_touch``, ``nothing_pins_it``, ``pinned_by_growth``; the last also where new objects
   without a name are what grows.
3. ``floor``, the only one that isn't here: too little to harm (``verdict.severity`` for paths,
   ``Term.is_much`` for terms).

What can't be seen isn't judged at all (``rows.Observations.columns``). A rule exists only where a
recorded program needs it: ``tests/zoo/ablation.py`` switches off each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from leakscope.analysis.accounting.terms import Term, unexplained_series
from leakscope.analysis.columns.series import HOST, RowTable
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.rows import Grower, bytes_when_full
from leakscope.analysis.run_context import RunContext
from leakscope.model import gauge

SHAPE_CACHE_ENTRIES = 1024
"""Of oneDNN's cache of kernels, unless its user says otherwise: more shapes than these fill it."""


class Figure(NamedTuple):
    """What a rule went by."""

    value: float
    threshold: float


@dataclass(frozen=True)
class TermRule:
    """A reason why a term of private memory that grows is no leak."""

    name: str
    reason: str
    applies: Callable[[RunContext, Term, Sequence[Grower]], Figure | None]


def declares_a_bound(case: RunContext, grower: Grower) -> Figure | None:
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
    limit = policy.CONSIDERABLE_SHARE * (case.limit_bytes or float("inf"))
    return Figure(full, limit) if full < limit else None


def _keeps_callers(table: RowTable, grower: Grower) -> bool:
    """Return whether a cached method's arguments, of which ``self`` is the first, are its bytes."""
    row = table.latest[grower.path]
    callers = table.number.get(f"{row.path}[*][0]")
    is_method = row.kind == "lru_cache" and "." in row.path.partition("·")[2]
    if callers is None or not is_method or table.latest[callers].kind not in ("module", "object"):
        return False
    kept = float(np.nan_to_num(table.retained[grower.device][callers, grower.columns[-1]]))
    return kept >= policy.MAIN_SHARE * float(grower.y[-1])


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
    return Figure(share, policy.MOST_SHARE) if share < policy.MOST_SHARE else None


def pinned_by_growth(case: RunContext, term: Term, growers: Sequence[Grower]) -> Figure | None:
    """Return whether free memory rises with what grows by a name: it lies between its parts.

    That of small parts is many times their size: each keeps the free block below it.
    """
    if term.kind != "slack":
        return None
    begin = int(np.searchsorted(case.work_done, term.trend.tail_from))
    boundaries = float(case.track.work[case.track.last_work] - case.track.work[begin])
    across = [g for g in growers if g.growth == "across" and g.device == HOST]
    gained = sum(g.per_boundary * boundaries for g in across)
    return Figure(gained, policy.GAUGE_NOISE_BYTES) if gained >= policy.GAUGE_NOISE_BYTES else None


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


TERM_RULES = (
    TermRule("first_touch", "pages of what was allocated before are written", first_touch),
    TermRule("nothing_pins_it", "what the C heap has in use doesn't grow", nothing_pins_it),
    TermRule("pinned_by_growth", "it lies between the parts of what grows", pinned_by_growth),
)


def without_filling(case: RunContext, growers: list[Grower]) -> tuple[list[Grower], list[Grower]]:
    """Return what no rule excludes, and what grows towards a bound; decisions are recorded."""
    left: list[Grower] = []
    filling: list[Grower] = []
    for grower in growers:
        figure = declares_a_bound(case, grower)
        (left if figure is None else filling).append(grower)
        if figure is not None:
            row = case.table.latest[grower.path]
            case.decisions.add(
                row.name, "declares_a_bound", "it stops at a bound of its own",
                figure=figure.value, threshold=figure.threshold, path=row.path,
            )  # fmt: skip
    return left, filling


def with_rules_applied(
    case: RunContext, terms: Mapping[str, Term], growers: Sequence[Grower]
) -> dict[str, Term]:
    """Return terms of private memory with the first rule by which their growth is no leak.

    Args:
        case: The run.
        terms: The terms, by kind.
        growers: What grows by a name, towards a bound or not.

    """
    judged = {kind: _with_rule(case, term, growers) for kind, term in terms.items()}
    return _pinned_by_unnamed(case, judged)


def named_in_libraries(case: RunContext, growers: Iterable[Grower]) -> float:
    """Return the host bytes that libraries' paths gained across phases."""
    return sum(
        g.trend.bytes_per_unit * g.units
        for g in growers
        if g.growth == "across" and g.device == HOST and not case.table.latest[g.path].user
    )


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
    if not unnamed.trend.is_growing or gained < policy.GAUGE_NOISE_BYTES:
        return terms
    reason, figure = (
        "it lies between new objects without a name",
        Figure(gained, policy.GAUGE_NOISE_BYTES),
    )
    return terms | {
        "slack": _excluded(case, slack, "pinned_by_growth", reason, figure),
        "elsewhere": replace(unnamed, pinned_bytes=slack.trend.net_bytes),
    }


def may_come_with_shapes(case: RunContext, term: Term, growers: Sequence[Grower]) -> bool:
    """Return whether growth without a name may come with new shapes of tensors alone.

    oneDNN compiles a kernel for each shape that it meets and caches it; larger batches need more at
    once. Both end by themselves. A leak goes on between new shapes as well.
    """
    known = case.track.known(gauge.SHAPES)
    x, y = unexplained_series(case, growers)
    inside = x >= term.trend.tail_from
    x, kept = x[inside], np.minimum.accumulate(y[inside][::-1])[::-1]
    if len(known) < policy.FEWEST_READINGS or len(x) < policy.FEWEST_READINGS:
        return False
    seen = np.interp(x, case.work_done[known], case.track.gauge(gauge.SHAPES)[known])
    met = seen[-1] - seen[0]
    if met < policy.FEWEST_GROWING or seen[len(seen) * 2 // 3] > SHAPE_CACHE_ENTRIES:
        return False
    is_rest, work = np.diff(seen) == 0, np.diff(x)
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
