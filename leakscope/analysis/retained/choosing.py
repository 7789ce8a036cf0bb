"""Which censuses are kept to be looked at: of very many a choice, spread over the run, and none
that matters lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from leakscope.analysis.case import Case
from leakscope.model.boundary import Boundary, BoundaryKind, comparable_key
from leakscope.model.census import Census, CensusScope
from leakscope.model.report import Culprit

MOST_CENSUSES = 300
_CULPRITS = 3
"""So many culprits are sure to be seen at their height."""
RAN_OUT = "memory ran out"
_OUTSIDE = {BoundaryKind.RUN_BEGIN, BoundaryKind.RUN_END}


@dataclass(frozen=True)
class Look:
    """A census and the boundary at which it was taken."""

    boundary: Boundary
    census: Census


def looks_of(case: Case) -> list[Look]:
    """Return all censuses in the order of time; those before and after the work only where there
    are no others.
    """
    measured = case.track.measurements
    found = [Look(m.boundary, m.census) for m in measured if m.census is not None]
    shortage = next((s for s in reversed(case.recording.shortages) if s.census is not None), None)
    if shortage is not None and shortage.census is not None:
        boundary = Boundary(
            index=shortage.boundary,
            kind=BoundaryKind.MARK,
            label=RAN_OUT,
            time_s=shortage.time_s,
            phase=shortage.phase,
            epoch=shortage.epoch,
            step=shortage.step,
            batch=shortage.batch,
        )
        found.append(Look(boundary, shortage.census))
    inside = [look for look in found if look.boundary.kind not in _OUTSIDE]
    return sorted(inside or found, key=lambda look: look.boundary.time_s)


def choose(
    case: Case, looks: Sequence[Look], culprits: Iterable[Culprit], most: int = MOST_CENSUSES
) -> list[int]:
    """Return places of so many censuses to keep at most, in the order of time."""
    most = min(most, MOST_CENSUSES)
    wanted = dict.fromkeys(place for place in _wanted(case, looks, culprits) if place is not None)
    return _spread([*wanted][:most], len(looks), most)


def like_pair(case: Case, looks: Sequence[Look]) -> tuple[int, int]:
    """Return places of the two censuses between which growth is told best: of one scope, at
    comparable boundaries, far apart; where there are no two such, the first and the last.
    """
    window = _window(case, looks)
    if window is not None and kind_of(looks[window[0]]) == kind_of(looks[window[1]]):
        return window
    groups: dict[object, list[int]] = {}
    for place, look in enumerate(looks):
        groups.setdefault(kind_of(look), []).append(place)
        groups.setdefault(look.census.scope, []).append(place)
    alike = [g for key, g in groups.items() if not isinstance(key, CensusScope) and len(g) > 1]
    seen = [g for key, g in groups.items() if isinstance(key, CensusScope) and len(g) > 1]
    best = max(alike or seen, key=lambda g: g[-1] - g[0], default=[0, len(looks) - 1])
    return best[0], best[-1]


def last_at_work(case: Case, looks: Sequence[Look]) -> int:
    """Return the last census, or the one before the program was ending if more was held there:
    functions that have returned hold nothing any more.
    """
    last = len(looks) - 1
    if looks[last].boundary.label == RAN_OUT:
        return last
    work = case.track.index[case.track.last_work]
    at_work = [p for p, look in enumerate(looks) if look.boundary.index <= work]
    before = at_work[-1] if at_work else last
    return max(last, before, key=lambda place: _named_bytes(looks[place].census))


def kind_of(look: Look) -> tuple[CensusScope, tuple[str, str, str]]:
    """Return under what a census may be compared with others."""
    return look.census.scope, comparable_key(look.boundary)


def seen_bytes(census: Census, device: str = "host") -> int:
    """Return all bytes that a census saw on a device."""
    payload = census.payload_bytes
    if device != "host":
        return payload.get(device, 0)
    return census.heap_bytes + payload.get("host", 0) + payload.get("shared", 0)


def _wanted(case: Case, looks: Sequence[Look], culprits: Iterable[Culprit]) -> list[int | None]:
    """Return what must not be missing, the most important first."""
    largest = max(range(len(looks)), key=lambda p: _named_bytes(looks[p].census))
    full = [p for p, look in enumerate(looks) if look.census.scope is CensusScope.FULL]
    return [
        last_at_work(case, looks),
        len(looks) - 1,
        0,
        *like_pair(case, looks),
        largest,
        _begin_of_phase(looks, largest),
        *full[-1:],
        *full[:1],
        *(_height(case, looks, culprit) for culprit in [*culprits][:_CULPRITS]),
    ]


def _named_bytes(census: Census) -> int:
    """Return what is held under the user's own names, which censuses of both scopes see alike."""
    return sum(
        row.host_bytes + sum(row.device_bytes.values()) + sum(row.shared_bytes.values())
        for row in census.rows
        if row.user and not row.parent
    )


def _begin_of_phase(looks: Sequence[Look], place: int) -> int:
    """Return the first census of the same occurrence of a phase."""
    at = looks[place].boundary
    return next(
        p
        for p, look in enumerate(looks)
        if (look.boundary.phase, look.boundary.occurrence) == (at.phase, at.occurrence)
    )


def _height(case: Case, looks: Sequence[Look], culprit: Culprit) -> int | None:
    """Return the census at which a culprit held most, None where it is of another process."""
    number = case.table.number.get(culprit.path)
    if number is None:
        return None
    column, _ = case.table.highest(number, culprit.device)
    return _place(looks, case.track.boundaries[int(case.table.at[column])])


def _window(case: Case, looks: Sequence[Look]) -> tuple[int, int] | None:
    if case.window is None:
        return None
    first = _place(looks, case.track.boundaries[case.window.first])
    last = _place(looks, case.track.boundaries[case.window.last])
    return None if first is None or last is None or first == last else (first, last)


def _place(looks: Sequence[Look], boundary: Boundary) -> int | None:
    return next((p for p, look in enumerate(looks) if look.boundary is boundary), None)


def _spread(wanted: Sequence[int], count: int, most: int) -> list[int]:
    """Return the wanted places and others, each the farthest from all that were chosen."""
    chosen, places = [*wanted], np.arange(count)
    distance = np.min([abs(places - place) for place in chosen], axis=0)
    while len(chosen) < min(most, count):
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, abs(places - chosen[-1]))
    return sorted(chosen)
