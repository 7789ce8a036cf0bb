"""What private memory is made of, each term measured by itself and judged by the growth model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.growth import policy
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

    @property
    def grows(self) -> bool:
        """Whether it goes on growing, by so much that a leak would be missed."""
        return self.trend.is_growing and self._is_much

    @property
    def may_grow(self) -> bool:
        """Whether nobody can say yet that it doesn't."""
        return self.trend.reason in _RISING and self._is_much

    @property
    def _is_much(self) -> bool:
        least, share = _FLOORS.get(self.kind, (policy.UNNAMED_BYTES, policy.UNNAMED_SHARE))
        return self.trend.net_bytes >= least and self.share >= share


def host_terms(case: Case) -> dict[str, Term]:
    """Return the terms of private memory that no name stands for, while it isn't bounded."""
    if case.pool.is_bounded:
        return {}
    series = {
        "slack": case.gauge_series(gauge.MALLOC_FREE),
        "garbage": garbage_series(case),
        "pinned": case.gauge_series(gauge.PINNED_HOST),
        "unexplained": unexplained_series(case),
    }
    return {kind: _term(case, kind, *xy) for kind, xy in series.items()}


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
