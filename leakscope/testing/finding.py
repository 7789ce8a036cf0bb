"""From the censuses between rounds to what grows with every call: who holds it, which line feeds
it.

Judged is what is most exact: the items of a container, else the number of objects at a path, else
their bytes. It must have grown in every round by about as much per call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from leakscope.analysis.columns.series import (
    HOST,
    BoundaryTable,
    FloatArray,
    IntArray,
    RowTable,
    tabulate,
)
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.rows import Grower, spread_of
from leakscope.analysis.growth.search import accumulation_points, share_named
from leakscope.analysis.source import SourceIndex
from leakscope.analysis.verdict.culprits import find_origins
from leakscope.heap.contents import CONTAINERS
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, CensusRow, RootKind
from leakscope.model.documents import Growth
from leakscope.model.errors import ours
from leakscope.model.record import HeaderRecord
from leakscope.model.run import Measurement, Recording
from leakscope.model.text import plural
from leakscope.model.trend import Reason, Trend, TrendVerdict
from leakscope.testing import registries
from leakscope.testing.heap_sampler import Rounds, ScenarioCode
from leakscope.testing.registries import with_classes_once, with_threads_once

_MOST_NAMED = 3


def find(rounds: Rounds) -> list[Growth]:
    """Return what grew beyond what is allowed, with the lines that feed it, the fastest first."""
    courses = RoundSeriesTable(rounds.censuses, rounds.plan.ignore)
    class_paths = rounds.looker.class_paths
    growers = with_threads_once(courses.table, courses.growers())
    growers = [
        grower
        for grower in with_classes_once(courses.table, growers, class_paths)
        if grower.trend.bytes_per_unit > rounds.plan.allow_bytes
    ]
    if not growers:
        return []
    growers = _without_twins(courses.table, growers)
    sources = SourceIndex(_texts(rounds.looker.source_files), rounds.looker.project_root)
    reach = rounds.looker.reach
    found = [_growth(courses.table, sources, grower, reach) for grower in growers]
    return [registries.as_class_growth(g) if g.path in class_paths else g for g in found]


def _without_twins(table: RowTable, growers: list[Grower]) -> list[Grower]:
    """Leave out ``atexit`` where what only native code holds is named: it may hold that."""
    rows = {grower.path: table.latest[grower.path] for grower in growers}
    if not any(row.root is RootKind.NATIVE for row in rows.values()):
        return growers
    return [grower for grower in growers if rows[grower.path].path != registries.ATEXIT_PATH]


def _growth(table: RowTable, sources: SourceIndex, grower: Grower, reach: ScenarioCode) -> Growth:
    row = table.latest[grower.path]
    origins = find_origins(sources, table, grower, row, likeliest_first=reach.likeliest_first)
    count = table.count[grower.path, grower.columns]
    objects = grower.items_per_unit or max(0.0, float(count[-1] - count[0])) / grower.units
    # What feeds a library's container are the lines of the stacks that made its items.
    making = origins.fed_at if row.allocated_at and not row.user else origins.allocated_at
    return Growth(
        path=row.path,
        holder=_holder(row),
        type=row.type,
        kind=row.kind,
        bytes_per_call=grower.trend.bytes_per_unit,
        objects_per_call=objects,
        device=grower.device,
        fed_by=_likeliest(origins.fed_at, making),
        feeding=origins.fed_at or origins.allocated_at,
        defined_at=origins.defined_at or "",
        holds=[" ".join(filter(None, (content.type, content.detail))) for content in row.holds],
        advice=_advice(row, origins.remedy.title),
        diff=origins.remedy.diff or "",
        excerpts=origins.excerpts,
    )


def _likeliest(feeding: list[str], making: list[str]) -> str:
    """Return the line that feeds: by the source, and of several by where items were made.

    Where that doesn't decide, all are named: others than the scenario may feed the container.
    """
    seen = [line for line in making if line in feeding]
    if not seen and len(feeding) > _MOST_NAMED:
        left = plural(len(feeding) - _MOST_NAMED, "more line")
        return f"{', '.join(feeding[:_MOST_NAMED])} or {left}"
    return " or ".join(seen[:1] or feeding or making[:1])


def _holder(row: CensusRow) -> str:
    if row.root is RootKind.NATIVE:
        return f"What native code holds ({row.type})"
    if row.path == registries.THREADS_PATH:
        return registries.THREADS_HOLDER
    return row.name


def _advice(row: CensusRow, title: str) -> str:
    if registries.is_namespace(row):
        return registries.NAMESPACE_REMEDY
    otherwise = title if row.root is not RootKind.NATIVE else ""
    return registries.REMEDIES.get(row.path, otherwise)


def _texts(files: set[str]) -> dict[str, str]:
    texts = {file: _path_text(file) for file in sorted(files)}
    return {file: text for file, text in texts.items() if text}


def _path_text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except ours(OSError):
        return ""


_MIN_MEAN_FRACTION = 0.5
"""A round brings at least this part of what a call brings on average."""
_MIN_LAST_FRACTION = 0.8
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
class RoundSeries:
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
        enough = bool((self.gain >= _MIN_MEAN_FRACTION * mean).all())
        return enough and bool(self.gain[-1] >= _MIN_LAST_FRACTION * before)


class RoundSeriesTable:
    """The censuses between rounds as a table, and which of its paths grow with the calls."""

    def __init__(self, censuses: Sequence[tuple[int, Census]], ignore: Sequence[str]) -> None:
        self.table = tabulate(BoundaryTable(_recording(censuses)))
        self.calls = np.array([calls for calls, _ in censuses], dtype=np.float64)
        every = range(len(self.table.paths))
        ignored = {path for path in every if self._is_called(path, ignore)}
        below = {path for path in every if ignored.intersection(self.table.ancestors(path))}
        self._excused = ignored | below | {path for path in every if self._stops(path)}

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
        ends = columns[[0, -1]]
        first, last = table.length[path, ends]
        has_items = table.latest[path].kind in CONTAINERS and np.isfinite([first, last]).all()
        items = float(last - first) if has_items else 0.0
        gained = float(y[-1] - y[0])
        if device == HOST:
            gained = max(gained, _BYTES_PER_ITEM * items)
        if gained <= 0 or (course.is_of_bytes and gained < _BYTES_PER_ITEM * calls):
            return None
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
            # Of items in room that a container had to spare the bytes don't tell.
            y=np.array([y[0], y[0] + gained]),
            spread=spread_of(table.count[path, columns], y),
            items_per_unit=items / calls if items > 0 else None,
        )

    def _course(self, path: int, device: str) -> RoundSeries | None:
        """Return the course of what says most about a path; None where it was seen too seldom."""
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

    def _course_of(self, values: FloatArray, columns: IntArray) -> RoundSeries:
        x = self.calls[columns]
        return RoundSeries(columns, x, np.diff(values) / np.diff(x))

    def _stops(self, path: int) -> bool:
        """Return whether growth of a path is none, as it has a bound."""
        row = self.table.latest[path]
        if not row.user and self._is_called(path, _STOPPING):
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
        has_more_objects = spread_of(self.table.count[path, columns], items) >= policy.MOST_SHARE
        return not has_more_objects and not self._course_of(items, columns).is_steady

    def _is_called(self, path: int, patterns: Sequence[str]) -> bool:
        """Return whether a pattern fits the name of a path, or the path as it is written."""
        row = self.table.latest[path]
        shown = (row.name, row.path, row.path.replace("·", "."))
        return any(fnmatchcase(name, pattern) for pattern in patterns for name in shown)

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
