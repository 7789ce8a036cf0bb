"""What private memory is made of, each term measured by itself and judged by the growth model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import msgspec
import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.growers import Grower
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.exclusions import TERM_RULES
from leakscope.analysis.ledger import named_bytes, unseen_growth
from leakscope.analysis.series import HOST, FloatArray, IntArray
from leakscope.model import gauge
from leakscope.model.trend import Reason, Trend, TrendVerdict

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
    case: Case,
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
    series = {"elsewhere": elsewhere_series(case)}
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
        terms["slack"] = _undecided_like_what_pins_it(case, terms["slack"])
    return {kind: _judged(case, term, growers) for kind, term in terms.items()}


def _undecided_like_what_pins_it(case: Case, slack: Term) -> Term:
    """Return growth of free memory as undecided where that of what is in use is.

    It goes on growing only between blocks that are kept.
    """
    in_use = case.gauge_trend(gauge.MALLOC_IN_USE, policy.ELSEWHERE_NOISE_BYTES)
    is_unread = not len(case.gauge_series(gauge.MALLOC_IN_USE)[0])
    if not slack.trend.is_growing or in_use.is_growing or in_use.is_bounded or is_unread:
        return slack
    trend = msgspec.structs.replace(
        slack.trend,
        verdict=TrendVerdict.INCONCLUSIVE,
        reason=Reason.SHORT_RISE,
        more_work=in_use.more_work,
    )
    return replace(slack, trend=trend)


def judge_elsewhere(case: Case) -> Term:
    """Return how what is new and has no name of the user's grows."""
    return _term(case, "elsewhere", *elsewhere_series(case))


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


def garbage_series(case: Case) -> tuple[FloatArray, FloatArray]:
    """Return units done and unreached bytes at the censuses that weighed them."""
    weighed, sizes = _garbage(case)
    return case.work_done[case.table.at[weighed]], sizes


def elsewhere_series(case: Case) -> tuple[FloatArray, FloatArray]:
    """Return units done and bytes of what is new and no name of the user's reaches."""
    weighed, sizes = elsewhere_readings(case)
    return case.work_done[case.table.at[weighed]], sizes


def named_series(
    case: Case, growers: Sequence[Grower], trends: Mapping[int, Trend]
) -> tuple[FloatArray, FloatArray]:
    """Return units done and what has names of the user's, without what is judged by itself.

    That is what grows by a name of its own, and what is bounded by itself. The last census, at
    which functions may have returned, counts for what is there.
    """
    table = case.table
    if HOST not in table.retained or not len(table.at):
        return np.zeros(0), np.zeros(0)
    bounded = {path for path, trend in trends.items() if trend.is_bounded}
    left = named_bytes(case, HOST, without=bounded)
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


def _garbage(case: Case) -> tuple[IntArray, FloatArray]:
    return _weighed(case, [c.garbage_bytes for c in case.table.censuses])


def elsewhere_readings(case: Case) -> tuple[IntArray, FloatArray]:
    """Return the censuses that weighed what is new outside the user's names, and its bytes.

    The one at the end of the run is among them where growth goes on to it as it was. In a short run
    it may be the only one of a whole half; but functions have returned there, and what they shared
    with a library is the library's alone.
    """
    sizes = [c.elsewhere_bytes for c in case.table.censuses]
    known, values = _weighed(case, sizes)
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


def _weighed(case: Case, sizes: Sequence[int | None]) -> tuple[IntArray, FloatArray]:
    """Return the censuses that weighed something while the program was at work, and what."""
    last = case.track.last_work
    places = zip(range(len(sizes)), case.table.at.tolist(), strict=True)
    known = [n for n, at in places if sizes[n] is not None and at <= last]
    values = [float(sizes[n] or 0) for n in known]
    return np.array(known, dtype=np.int64), np.array(values, dtype=np.float64)


def unexplained_series(case: Case, growers: Sequence[Grower] = ()) -> tuple[FloatArray, FloatArray]:
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
    for weighed, sizes in (_garbage(case), elsewhere_readings(case)):
        if len(weighed):
            left = left - np.interp(at, table.at[weighed], sizes)
    return case.work_done[at], left


def elsewhere_at(case: Case, columns: IntArray) -> FloatArray:
    """Return what was new and without a name of the user's at some censuses, between two evenly."""
    weighed, sizes = elsewhere_readings(case)
    if not len(weighed):
        return np.zeros(len(columns))
    return np.interp(case.table.at[columns], case.table.at[weighed], sizes, left=0.0)
