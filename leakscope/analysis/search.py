"""The search for growth: from the table of rows to growers at their accumulation points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from leakscope.analysis.accumulation import accumulation_points
from leakscope.analysis.across import find_across, grower_of, in_units
from leakscope.analysis.case import Case
from leakscope.analysis.growers import Grower
from leakscope.analysis.growth import policy, theil_sen
from leakscope.analysis.growth.exclusions import MOVED, PART_OF_OWNER, ROW_RULES, RowRule
from leakscope.analysis.growth.policy import ROW_NOISE_BYTES
from leakscope.analysis.series import HOST, FloatArray, IntArray, RowTable
from leakscope.analysis.terms import (
    Term,
    elsewhere_at,
    elsewhere_readings,
    judge_elsewhere,
    judge_terms,
)
from leakscope.analysis.within import find_within
from leakscope.model.trend import Trend

NOTED_BYTES = float(1 << 20)
MOST_NOTED = 100
"""Paths of which the model's word is noted."""


@dataclass(frozen=True)
class Growth:
    """What grows, and what was looked at."""

    growers: list[Grower]
    filling: list[Grower]
    """What grows towards a bound that it declares, or that the model's size sets."""
    trends: dict[int, Trend]
    """Of each path large enough to be judged across phases."""
    owners: list[Grower] = field(default_factory=list)
    """All that grows, at its accumulation point or above: across phases by the boundary."""
    terms: dict[str, Term] = field(default_factory=dict)
    """What private memory is made of without a name, by kind; empty where it is bounded."""


def search_growth(case: Case) -> Growth:
    """Return what grows across and within phases, each once, at its accumulation point."""
    table = case.table
    grown, trends = find_across(case.observations)
    carriers = find_carriers(case, trends)
    grown |= carriers
    grown = {k: g for k, g in grown.items() if not is_excused(case, MOVED, g, ())}
    _note_trends(case, trends)
    across: list[Grower] = []
    for device in table.retained:
        mine = {path: g for (path, on), g in grown.items() if on == device}
        points = [mine[path] for path in accumulation_points(table, mine)]
        across += [
            in_units(case.observations, case.places, _at_the_rate_of(case, g, carriers))
            for g in points
        ]
    told = _one_device_each(across)
    across, filling = _without_excused(case, told)
    across = [share_named(table, g) for g in across]
    climbing = _climbing(case, {path for path, _ in grown}, [*across, *filling])
    found = [kept[path] for kept in climbing for path in accumulation_points(table, kept)]
    within, _ = _without_excused(case, _one_device_each(found))
    owners = [*grown.values(), *(g for kept in climbing for g in kept.values())]
    growers = across + within
    return Growth(growers, filling, trends, owners, judge_terms(case, growers, told, trends))


def is_excused(case: Case, rule: RowRule, grower: Grower, others: Sequence[Grower]) -> bool:
    """Return whether a rule says that what grows is no leak, and note it if it does."""
    figure = rule.applies(case, grower, others)
    if figure is None:
        return False
    row = case.table.latest[grower.path]
    case.decisions.add(
        row.name, rule.name, rule.reason,
        figure=figure.value, threshold=figure.threshold, path=row.path,
    )  # fmt: skip
    return True


def _without_excused(case: Case, growers: list[Grower]) -> tuple[list[Grower], list[Grower]]:
    """Return what grows by no rule's leave, and what will stop by itself."""
    left, filling = [], []
    for grower in growers:
        rule = next((r for r in ROW_RULES if is_excused(case, r, grower, growers)), None)
        if rule is None:
            left.append(grower)
        elif rule.stops:
            filling.append(grower)
    return left, filling


def _note_trends(case: Case, trends: dict[int, Trend]) -> None:
    """Note what the model said of each path that is worth a word, the largest first."""
    worth = [
        (case.table.highest(path, HOST)[1], path)
        for path, trend in trends.items()
        if trend.is_growing or abs(trend.net_bytes) + trend.gained_before >= NOTED_BYTES
    ]
    for _, path in sorted(worth, reverse=True)[:MOST_NOTED]:
        trend, row = trends[path], case.table.latest[path]
        case.decisions.add(
            row.name, "growth", f"{trend.verdict.value}: {trend.reason.value}",
            figure=trend.net_bytes, threshold=policy.ROW_NOISE_BYTES, path=row.path,
        )  # fmt: skip


def find_carriers(case: Case, trends: dict[int, Trend]) -> dict[tuple[int, str], Grower]:
    """Return the paths that make up most of what memory goes on to gain.

    Where they were looked at too seldom to be judged by themselves, the many readings of private
    memory tell that the growth goes on; of what libraries hold, all that is new outside the user's
    names does, which every census weighs.
    """
    found: dict[tuple[int, str], Grower] = {}
    pool, elsewhere = case.pool, judge_elsewhere(case)
    at, private = case.table.at, case.private
    read = case.working[np.isfinite(private[case.working])]
    for path, trend in trends.items():
        is_user = case.table.latest[path].user
        if not trend.is_open or not (_goes_on(pool) if is_user else elsewhere.grows):
            continue
        columns, y, _ = case.observations.series(path, HOST)
        if is_user:
            inside = at[columns] >= case.tail[0]
            inside[:-1] |= inside[1:]  # from the last look before the tail on
            columns, y = columns[inside], y[inside]
        else:  # where it was too small to be written it was no nothing
            shown = np.isfinite(case.table.retained[HOST][path, columns])
            columns, y = columns[shown], y[shown]
        rises = np.diff(y)
        if not len(rises) or (rises < -ROW_NOISE_BYTES).any():
            continue
        if is_user and _jumps(rises, np.diff(case.track.index[at[columns]])):
            continue  # it may have got another name
        if is_user:
            whole = np.interp(at[columns], read, private[read])
        else:
            whole = elsewhere_at(case, columns)
        least = max(policy.CARRIED_SHARE * float(whole[-1] - whole[0]), policy.CARRIED_BYTES)
        if y[-1] - y[0] < least:
            continue
        observed = case.observations.columns(path)
        grower = grower_of(case.observations, path, HOST, trend, observed, columns)
        found[path, HOST] = grower
    return found


def _jumps(rises: FloatArray, work: IntArray) -> bool:
    """Return whether one rise is larger than all others together, and steeper by far."""
    largest = int(np.argmax(rises / work))
    others = float(np.delete(rises, largest).sum())
    usual = others / max(int(np.delete(work, largest).sum()), 1)
    is_steep = rises[largest] / work[largest] > policy.JUMP_STEEPNESS * usual
    return bool(is_steep and rises[largest] > others)


def _at_the_rate_of(case: Case, grower: Grower, carriers: dict[tuple[int, str], Grower]) -> Grower:
    """Return a path of a library's with the readings of all that is new outside the user's names.

    It is most of that, where it was seen at the few walks of the whole heap alone.
    """
    is_user = case.table.latest[grower.path].user
    if is_user or (grower.path, grower.device) not in carriers:
        return grower
    columns, y = elsewhere_readings(case)
    x = case.track.index[case.table.at[columns]].astype(np.float64)
    slope, units = theil_sen(x, y), float(x[-1] - x[0])
    trend = msgspec.structs.replace(
        grower.trend, bytes_per_unit=slope.rate, interval=(slope.low, slope.high), points=len(x)
    )
    return replace(
        grower, trend=trend, columns=columns, x=x, y=y, observed=columns, observed_x=x,
        gained=slope.rate * units, units=units, per_boundary=slope.rate,
    )  # fmt: skip


def _goes_on(pool: Trend) -> bool:
    return pool.is_growing and pool.net_bytes >= policy.CARRIED_BYTES


def _climbing(case: Case, grown: set[int], across: list[Grower]) -> list[dict[int, Grower]]:
    """Return by device and phase what climbs, without what grows across phases or lies in that.

    Args:
        case: The run.
        grown: All paths that grow across phases.
        across: Those of them that are told.

    """
    return [
        {
            path: g
            for path, g in climbing.items()
            if path not in grown and not is_excused(case, PART_OF_OWNER, g, across)
        }
        for device in case.table.retained
        for climbing in find_within(case.track, case.table, device).values()
    ]


def _one_device_each(growers: list[Grower]) -> list[Grower]:
    """Return each path once, on the device on which it grows most."""
    best: dict[tuple[int, str], Grower] = {}
    for g in growers:
        key = (g.path, g.phase if g.growth == "within" else "")
        if key not in best or g.gained > best[key].gained:
            best[key] = g
    return list(best.values())


def share_named(table: RowTable, g: Grower) -> Grower:
    """Return the grower under the name of the container in which its growth can be seen.

    Two containers that share their contents retain nothing alone: only their common owner grows.
    Then the one whose length grows is named, with the owner's bytes.
    """
    if table.latest[g.path].length is not None:
        return g
    below = [p for p in range(len(table.paths)) if g.path in table.ancestors(p)]
    longer = [(growth, p) for p in below if (growth := _gained_items(table, p, g)) > 0]
    if not longer:
        return g
    most = max(growth for growth, _ in longer)
    alike = [p for growth, p in longer if growth >= 0.5 * most]
    named = min(alike, key=lambda p: (len(table.paths[p]), table.paths[p]))
    return replace(g, path=named, y=g.y)


def _gained_items(table: RowTable, path: int, g: Grower) -> float:
    """Return how many items a single container gained where it gained them steadily."""
    length = table.length[path, g.columns]
    gains = np.diff(length[np.isfinite(length)])
    if table.count[path, g.columns[-1]] > 1 or (gains < 0).any():
        return 0.0
    late = gains[len(gains) // 2 :].sum() >= policy.GROWING_SHARE * gains.sum()
    return float(gains.sum()) if late and (gains > 0).sum() >= policy.FEWEST_RISES else 0.0
