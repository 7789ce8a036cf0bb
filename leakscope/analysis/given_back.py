"""What is higher each time and yet no growth: it is given back in between."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from leakscope.analysis.growers import Grower
from leakscope.analysis.series import INNER, FloatArray, IntArray, RowTable

if TYPE_CHECKING:
    from leakscope.analysis.across import Comparables

FREED = 0.9
"""A path of which so much is gone has been given back."""
FEWEST_FALLS = 3
"""Passages in which that has to be seen."""
HELD = 0.7
"""A path that gains so much of what another loses may hold it now."""
SOURCE = 0.5
"""What an object makes anew grows with what the object keeps, where that gains so much of it."""


def given_back(
    comparables: Comparables,
    growers: Mapping[tuple[int, str], Grower],
    judged_by: Mapping[tuple[int, str], IntArray],
) -> list[tuple[int, str]]:
    """Return those of the growers, by path and device, that are given back in between.

    Their parts are, too. What an object makes anew each time from what it keeps is not: it is as
    much larger each time as that grows, like a metric's last value beside the batches it is of.
    """
    table = comparables.table
    freed = {
        (path, device): growers[path, device]
        for (path, device), columns in judged_by.items()
        if _falls_later(comparables, path, device, columns)
        or _falls_each_time(table, path, device, columns)
    }
    kept = {key: g for key, g in growers.items() if key not in freed}
    gone = {key for key, g in freed.items() if not _made_of_what_is_kept(table, g, kept)}
    parts = {
        (path, device)
        for path, device in growers
        if any((above, device) in gone for above in table.ancestors(path))
    }
    return sorted(gone | parts)


def _made_of_what_is_kept(
    table: RowTable, g: Grower, kept: Mapping[tuple[int, str], Grower]
) -> bool:
    """Return whether its holder keeps something that grows with it."""
    holder = table.parent(g.path)
    return holder is not None and any(
        device == g.device and table.parent(path) == holder and other.gained >= SOURCE * g.gained
        for (path, device), other in kept.items()
    )


def _falls_later(comparables: Comparables, path: int, device: str, columns: IntArray) -> bool:
    """Return whether what grew inside the only passage through a phase was gone after it."""
    track, table = comparables.track, comparables.table
    if track.kind[table.at[columns[-1]]] not in INNER:
        return False
    later = np.arange(columns[-1] + 1, len(table.at))
    later = later[table.covered(path)[later] & (table.at[later] <= track.last_work)]
    values = np.nan_to_num(table.retained[device][path])
    left, grown = values[later], values[columns[-1]] - values[columns[0]]
    return bool(len(left) and left.max() < 0.5 * grown)


def _falls_each_time(table: RowTable, path: int, device: str, columns: IntArray) -> bool:
    """Return whether what is higher at each of the censuses is gone in between, every time.

    A list that an epoch's function makes anew is no leak because each epoch is longer. The last one
    may live on to the end of the run: nothing has taken its place yet.
    """
    values = np.nan_to_num(table.retained[device])
    covered = table.covered(path)
    ends = np.append(columns, len(table.at))
    seen = 0
    for first, last in pairwise(ends.tolist()):
        between = np.arange(first + 1, last)[covered[first + 1 : last]]
        if not len(between):
            continue
        lowest = between[np.argmin(values[path, between])]
        lost = values[path, first] - values[path, lowest]
        if lost >= FREED * values[path, first] and not _held_elsewhere(
            table, values, path, first, lowest
        ):
            seen += 1
        elif last < len(table.at):
            return False
    return seen >= FEWEST_FALLS


def _held_elsewhere(
    table: RowTable, values: FloatArray, path: int, before: int, after: int
) -> bool:
    """Return whether another path holds at one census what a path held at another.

    Where only one of the two looked at a path, it tells nothing of what that gained.
    """
    gained = values[:, after] - values[:, before]
    lost = values[path, before] - values[path, after]
    kin = {*table.ancestors(path), path}
    return any(
        other not in kin
        and path not in table.ancestors(other)
        and table.covered(other)[[before, after]].all()
        for other in np.flatnonzero(gained >= HELD * lost).tolist()
    )
