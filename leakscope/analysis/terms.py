"""What private memory is made of, each term measured by itself and judged by the growth model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.growers import Grower
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.exclusions import TERM_RULES
from leakscope.analysis.ledger import named_bytes
from leakscope.analysis.series import HOST, FloatArray, IntArray
from leakscope.model import gauge
from leakscope.model.trend import Reason, Trend

_RISING = frozenset({Reason.SHORT_RISE, Reason.SETTLING})
_FLOORS = {"slack": (policy.SLACK_BYTES, policy.SLACK_SHARE)}


@dataclass(frozen=True)
class Term:
    """One part of private memory."""

    kind: str
    """As in the ledger: ``slack``, ``garbage``, ``pinned``, ``unexplained``."""
    trend: Trend
    share: float
    """Part that it has in the growth of private memory, over its own tail."""
    excused_by: str = ""
    """The rule by which its growth is none."""

    @property
    def grows(self) -> bool:
        """Whether it goes on growing, by so much that a leak would be missed."""
        return self.trend.is_growing and self.is_much and not self.excused_by

    @property
    def may_grow(self) -> bool:
        """Whether nobody can say yet that it doesn't."""
        return self.trend.reason in _RISING and self.is_much and not self.excused_by

    @property
    def is_much(self) -> bool:
        """Whether a leak would be missed."""
        least, share = _FLOORS.get(self.kind, (policy.UNNAMED_BYTES, policy.UNNAMED_SHARE))
        return self.trend.net_bytes >= least and self.share >= share


def judge_terms(case: Case, growers: Sequence[Grower]) -> dict[str, Term]:
    """Return the terms of private memory that no name stands for, while it isn't bounded."""
    pool = case.pool
    case.decisions.add(
        "private memory", "growth", f"{pool.verdict.value}: {pool.reason.value}",
        figure=pool.net_bytes, threshold=policy.GAUGE_NOISE_BYTES,
    )  # fmt: skip
    if pool.is_bounded:
        return {}
    series = {
        "slack": case.gauge_series(gauge.MALLOC_FREE),
        "garbage": garbage_series(case),
        "pinned": case.gauge_series(gauge.PINNED_HOST),
        "unexplained": unexplained_series(case),
    }
    return {kind: _judged(case, _term(case, kind, *xy), growers) for kind, xy in series.items()}


def _judged(case: Case, term: Term, growers: Sequence[Grower]) -> Term:
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


def _term(case: Case, kind: str, x: FloatArray, y: FloatArray) -> Term:
    trend = case.trend_of(x, y)
    done, private = case.pool_series()
    grown = 0.0
    if len(done):
        since = private[done >= trend.tail_from]
        grown = float(since[-1] - since[0]) if len(since) else 0.0
    return Term(kind, trend, trend.net_bytes / grown if grown > 0 else 0.0)


def garbage_series(case: Case) -> tuple[FloatArray, FloatArray]:
    """Return units done and unreached bytes at the censuses of the whole heap."""
    weighed = _weighed(case)
    sizes = [float(case.table.censuses[n].garbage_bytes or 0) for n in weighed]
    return case.work_done[case.table.at[weighed]], np.array(sizes, dtype=np.float64)


def _weighed(case: Case) -> IntArray:
    """Return the censuses that weighed garbage, while the program was at work."""
    weighed = [n for n, c in enumerate(case.table.censuses) if c.garbage_bytes is not None]
    chosen = np.array(weighed, dtype=np.int64)
    return chosen[case.table.at[chosen] <= case.track.last_work]


def unexplained_series(case: Case) -> tuple[FloatArray, FloatArray]:
    """Return units done and private memory without all that is measured, at each census.

    Where no census was taken it is private memory itself.
    """
    table, private = case.table, case.private
    at = table.at[np.isin(table.at, case.working) & np.isfinite(private[table.at])]
    if len(at) < policy.FEWEST_READINGS or HOST not in table.retained:
        return case.pool_series()
    left = private[at] - np.interp(at, table.at, named_bytes(case, HOST))
    for name in (gauge.MALLOC_FREE, gauge.PINNED_HOST):
        known = case.track.known(name)
        if len(known):
            left = left - np.interp(at, known, case.track.gauge(name)[known])
    weighed = _weighed(case)
    if len(weighed):
        garbage = [float(table.censuses[n].garbage_bytes or 0) for n in weighed]
        left = left - np.interp(at, table.at[weighed], garbage)
    return case.work_done[at], left
