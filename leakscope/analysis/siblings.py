"""Entries of one container that one statement feeds are one culprit: their container.

``self.sides[side].append(features)`` fills ``sides['real']`` and ``sides['fake']`` alike, and what
to change is one line. Entries that different statements fill are culprits of their own, and so is
one that carries most of the growth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from leakscope.analysis.accumulation import CONTAINERS
from leakscope.analysis.across import in_units
from leakscope.analysis.case import Case
from leakscope.analysis.growers import Grower
from leakscope.analysis.search import Growth
from leakscope.analysis.source.path import Steps, parse_steps

WHOLE = 0.9
"""Entries make up their container's growth where they come to this part of it."""
BIG_DROP = 0.7
"""An entry with this part of the growth is where it lies: Eclipse MAT's rule."""


def with_siblings_joined(case: Case, growth: Growth) -> Growth:
    """Return growth in which entries that one statement feeds are told as their container."""
    growers = growth.growers
    nearest_first = sorted(growth.owners, key=lambda g: -len(case.table.ancestors(g.path)))
    for owner in nearest_first:
        entries = [g for g in growers if _lies_in(case, g, owner)]
        if len(entries) < 2 or not _are_siblings(case, entries, owner):
            continue
        counted = _counted(case, owner)
        if _make_up(entries, counted) and _are_fed_by_one_line(case, [*entries, counted]):
            growers = [*(g for g in growers if g not in entries), counted]
    return replace(growth, growers=growers)


def _lies_in(case: Case, g: Grower, owner: Grower) -> bool:
    is_alike = (g.growth, g.device) == (owner.growth, owner.device)
    is_of_phase = g.growth == "across" or g.phase == owner.phase
    return is_alike and is_of_phase and owner.path in case.table.ancestors(g.path)


def _are_siblings(case: Case, entries: Sequence[Grower], owner: Grower) -> bool:
    """Return whether they lie in their container by the same way, but for the key."""
    if case.table.latest[owner.path].kind not in CONTAINERS:
        return False
    above = case.table.paths[owner.path]
    ways = [parse_steps(case.table.paths[g.path].removeprefix(above)) for g in entries]
    return all(way and way[0].is_item for way in ways) and _are_one(way[1:] for way in ways)


def _are_one(ways: Iterable[Steps]) -> bool:
    return len(set(ways)) == 1


def _counted(case: Case, owner: Grower) -> Grower:
    return in_units(case.observations, case.places, owner) if owner.growth == "across" else owner


def _make_up(entries: Sequence[Grower], whole: Grower) -> bool:
    """Return whether they are the container's growth, and none of them is most of it."""
    gains = [g.gained for g in entries]
    units = {(g.unit, g.phase) for g in (*entries, whole)}
    return (
        len(units) == 1
        and sum(gains) >= WHOLE * whole.gained
        and max(gains) < BIG_DROP * sum(gains)
    )


def _are_fed_by_one_line(case: Case, growers: Sequence[Grower]) -> bool:
    lines = {_feeding_line(case, g) for g in growers}
    return len(lines) == 1 and None not in lines


def _feeding_line(case: Case, g: Grower) -> tuple[str, int] | None:
    row = case.table.latest[g.path]
    if row.owner is None:
        return None
    feeding = case.sources.feeding(row.owner, row, g.phase)
    return (feeding[0].file, feeding[0].line) if feeding and feeding[0].is_direct else None
