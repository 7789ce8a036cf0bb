"""From censuses between rounds to what grows with every call: each leak once, where it piles up.

Judged is what tells most exactly: the items of a container, else the number of objects at a path,
else their bytes. It must have grown in every round by about as much per call. What stops by itself
is taken out first, also of what holds it: a container that declares its bound, a cache of the
standard library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np

from leakscope.analysis.accumulation import SPREAD, accumulation_points
from leakscope.analysis.across import spread_of
from leakscope.analysis.growers import Grower
from leakscope.analysis.search import share_named
from leakscope.analysis.series import HOST, FloatArray, IntArray, Track, tabulate
from leakscope.heap.kinds import CONTAINERS
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census
from leakscope.model.record import HeaderRecord
from leakscope.model.run import Measurement, Recording
from leakscope.model.trend import Reason, Trend, TrendVerdict

_LEAST_OF_MEAN = 0.5
"""A round brings at least this part of what a call brings on average."""
_LAST_OF_FIRST = 0.8
"""The last round brings at least this part of what a call brought before: a cache that fills while
it is watched brings less."""
_FEWEST_ROUNDS = 2
_BYTES_PER_ITEM = 8
"""What an item takes where the container had room to spare for it: the least that a call can leave
behind."""
_STOPPING = (
    "re._cache*",
    "re.*._cache*",
    "_strptime._regex_cache*",
    "linecache.cache*",
    "logging._handlerList*",  # follows the handlers, wherever these are held
    "functools.*cache*",
    "typing.*cache*",
    "tracemalloc.*",
    "encodings._cache*",
    "torch.multiprocessing.reductions.shared_cache*",
)
"""Names in libraries that don't leak: caches that end at a bound without declaring it, and lists
that follow what is held elsewhere."""


@dataclass(frozen=True)
class Course:
    """What a path or a device did between the censuses it was seen in."""

    columns: IntArray
    x: FloatArray
    """Calls before each census."""
    gain: FloatArray
    """By round, what it gained per call, of whatever was judged."""
    is_of_bytes: bool = False
    """Whether nothing could be judged but bytes, which may shift from one holder to another."""

    @property
    def is_steady(self) -> bool:
        """Whether it grew in every round by about as much per call."""
        calls = np.diff(self.x)
        if len(calls) < _FEWEST_ROUNDS or not (self.gain > 0).all():
            return False
        before = float((self.gain[:-1] * calls[:-1]).sum() / calls[:-1].sum())
        mean = float((self.gain * calls).sum() / calls.sum())
        enough = bool((self.gain >= _LEAST_OF_MEAN * mean).all())
        return enough and bool(self.gain[-1] >= _LAST_OF_FIRST * before)


class Courses:
    """The censuses between rounds as a table, and which of its paths grow with the calls."""

    def __init__(self, censuses: Sequence[tuple[int, Census]], ignore: Sequence[str]) -> None:
        self.table = tabulate(Track(_recording(censuses)))
        self.calls = np.array([calls for calls, _ in censuses], dtype=np.float64)
        self._ignore = ignore
        self._excused = {p for p in range(len(self.table.paths)) if self._stops(p)}

    def growers(self) -> list[Grower]:
        """Return what grows with every call, at its accumulation points."""
        found: list[Grower] = []
        for device in self.table.retained:
            self._take_out(device)
            grown = {
                path: grower
                for path in range(len(self.table.paths))
                if path not in self._excused and (grower := self._grower(path, device)) is not None
            }
            points = accumulation_points(self.table, grown)
            found += [share_named(self.table, grown[path]) for path in points]
        return _each_once(found)

    def _grower(self, path: int, device: str) -> Grower | None:
        course = self._course(path, device)
        if course is None or not course.is_steady:
            return None
        table, columns = self.table, course.columns
        y = np.nan_to_num(table.retained[device][path, columns])
        calls = float(course.x[-1] - course.x[0])
        items = 0.0
        if table.latest[path].kind in CONTAINERS:
            items = _last_less_first(table.length[path, columns])
        gained = float(y[-1] - y[0])
        if device == HOST:
            gained = max(gained, _BYTES_PER_ITEM * items)
        if gained <= 0 or (course.is_of_bytes and gained < _BYTES_PER_ITEM * calls):
            return None
        ends = columns[[0, -1]]
        rate = gained / calls
        return Grower(
            path=path,
            device=device,
            growth="across",
            unit="call",
            phase="",
            trend=Trend(
                verdict=TrendVerdict.GROWING,
                bytes_per_unit=rate,
                interval=(rate, rate),
                unit="call",
                points=len(columns),
                net_bytes=gained,
                reason=Reason.STEADY,
            ),
            gained=gained,
            units=calls,
            columns=ends,
            x=course.x[[0, -1]],
            observed=columns,
            observed_x=course.x,
            # Of items in room that a container had to spare the bytes don't tell.
            y=np.array([y[0], y[0] + gained]),
            spread=spread_of(table.count[path, columns], y),
            items_per_unit=items / calls if items > 0 else None,
        )

    def _course(self, path: int, device: str) -> Course | None:
        """Return the course of what tells most about a path; None where it was seen too seldom."""
        table = self.table
        retained = table.retained[device][path]
        columns = _since_first(retained)
        if len(columns) <= _FEWEST_ROUNDS:
            return None
        for counted in (table.length[path, columns], table.count[path, columns]):
            values = np.nan_to_num(counted)
            if np.isfinite(counted).all() and values[-1] > values[0]:
                return self._course_of(values, columns)
        return replace(self._course_of(np.nan_to_num(retained[columns]), columns), is_of_bytes=True)

    def _course_of(self, values: FloatArray, columns: IntArray) -> Course:
        x = self.calls[columns]
        return Course(columns, x, np.diff(values) / np.diff(x))

    def _stops(self, path: int) -> bool:
        """Return whether growth of a path is none: it has a bound, or the user ignores it."""
        row = self.table.latest[path]
        patterns = (*_STOPPING, *self._ignore) if not row.user else self._ignore
        spoken = (row.name, row.path, row.path.replace("·", "."))
        if any(fnmatchcase(name, pattern) for pattern in patterns for name in spoken):
            return True
        columns = _since_first(self.table.length[path])
        if len(columns) <= _FEWEST_ROUNDS:
            return False
        items = self.table.length[path, columns]
        if items[-1] <= items[0]:
            return False
        if row.capacity is not None:
            return True
        # Of the links of a chain only the first have names, which says nothing of the others.
        has_more_objects = spread_of(self.table.count[path, columns], items) >= SPREAD
        return not has_more_objects and not self._course_of(items, columns).is_steady

    def _take_out(self, device: str) -> None:
        """Subtract what will stop by itself from all that hold it."""
        values = self.table.retained[device]
        for path in sorted(self._excused):
            above = self.table.ancestors(path)
            if not self._excused.intersection(above):
                values[above] -= np.nan_to_num(values[path])


def _since_first(values: FloatArray) -> IntArray:
    """Return the censuses from the first that shows a path; none where it was gone again."""
    shown = np.flatnonzero(np.isfinite(values))
    if not len(shown) or len(shown) < len(values) - shown[0]:
        return shown[:0]
    return shown


def _last_less_first(values: FloatArray) -> float:
    return float(values[-1] - values[0]) if np.isfinite(values[[0, -1]]).all() else 0.0


def _each_once(growers: Sequence[Grower]) -> list[Grower]:
    """Return each path on the device on which it grows most, what grows most first."""
    best: dict[int, Grower] = {}
    for grower in growers:
        if grower.path not in best or grower.gained > best[grower.path].gained:
            best[grower.path] = grower
    return sorted(best.values(), key=lambda g: (-g.trend.bytes_per_unit, g.path))


def _recording(censuses: Sequence[tuple[int, Census]]) -> Recording:
    """Return the censuses as a recording whose boundaries are the ends of rounds."""
    boundaries = [
        Boundary(index=calls, kind=BoundaryKind.MARK, time_s=0.0, label="round")
        for calls, _ in censuses
    ]
    return Recording(
        HeaderRecord(),
        [Measurement(b, {}, census) for b, (_, census) in zip(boundaries, censuses, strict=True)],
    )
