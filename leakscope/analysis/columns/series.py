"""A recording as columns: where training stood, what the gauges read, what each path retained."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from operator import attrgetter

import msgspec
import numpy as np
import numpy.typing as npt

from leakscope.analysis.growth import policy
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, CensusRow, CensusScope, Site
from leakscope.model.run import Measurement, Recording

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

HOST = "host"
NOWHERE = ""
"""The place of a stretch outside every phase."""

MOST_PHASES = 200
"""Distinct names of phases; a program that names each pass differently is judged by the first."""
MOST_DEVICES = 64
MOST_CELLS = 4_000_000
"""Paths times censuses, ten times what a long run has; the smallest paths beyond are left out."""

_KINDS = {kind: code for code, kind in enumerate(BoundaryKind)}
_STEPS_BEGIN = ".[(⟨"
"""What a step of a path begins with."""
INNER = (_KINDS[BoundaryKind.STEP], _KINDS[BoundaryKind.BATCH])


def code_of(kind: BoundaryKind) -> int:
    """Return the number that stands for a kind of boundary in the columns."""
    return _KINDS[kind]


def own_bytes(row: CensusRow, device: str) -> int:
    """Return what a row alone keeps alive on a device."""
    return row.host_bytes if device == HOST else row.device_bytes.get(device, 0)


def without_idle_time(recording: Recording, share: float, fewest: int) -> Recording:
    """Return a recording without the boundaries that time made, where there are better ones.

    What time saw while a training was set up, or in the middle of a long step, is comparable with
    nothing else. It stays where the program reached no other boundary for most of its time (such a
    ``share`` of it from the first boundary of work on), if that was looked at often enough to tell
    anything (at least ``fewest`` times).
    """
    boundaries = [measurement.boundary for measurement in recording.measurements]
    first = next((b.time_s for b in boundaries if b.kind in _WORK), None)
    if first is None or all(b.kind is not BoundaryKind.TIME for b in boundaries):
        return recording
    gaps = [
        after.time_s - max(before.time_s, first)
        for before, after in pairwise(boundaries)
        if after.kind is BoundaryKind.TIME and after.time_s > first
    ]
    if len(gaps) >= fewest and sum(gaps) >= share * (boundaries[-1].time_s - first):
        return recording
    return replace(recording, measurements=[*_without_times(recording.measurements)])


_SUMS = frozenset({*gauge.GC_TIMES, gauge.GC_EXPLICIT, gauge.GC_EXPLICIT_TIME})
"""Gauges that are recorded only where they have changed."""


def _without_times(measurements: Iterable[Measurement]) -> Iterator[Measurement]:
    """Yield measurements without those by time; what sums had come to there is not lost."""
    carried: dict[str, int] = {}
    for measurement in measurements:
        if measurement.boundary.kind is BoundaryKind.TIME:
            carried |= {n: sum_ for n, sum_ in measurement.gauges.items() if n in _SUMS}
        elif carried:
            yield replace(measurement, gauges=carried | measurement.gauges)
            carried = {}
        else:
            yield measurement


_WORK = frozenset(
    {BoundaryKind.STEP, BoundaryKind.BATCH, BoundaryKind.EPOCH_END, BoundaryKind.MARK}
)


@dataclass(frozen=True)
class Loop:
    """A loop of a program without steps."""

    gauge: str
    place: tuple[str, int]
    """The file and the line where it begins."""
    passes: FloatArray
    """How often it was gone through, at each measurement, less a constant."""


class BoundaryTable:
    """The boundaries of one recording as columns, one entry per measurement."""

    def __init__(self, recording: Recording) -> None:
        self.measurements: list[Measurement] = recording.measurements
        self.boundaries: list[Boundary] = [m.boundary for m in recording.measurements]
        self.index = self._column("index")
        self.occurrence = self._column("occurrence")
        self.epoch = self._column("epoch")
        self.step = self._column("step")
        self.batch = self._column("batch")
        self.time_s = np.array([b.time_s for b in self.boundaries], dtype=np.float64)
        self.kind = np.array([_KINDS[b.kind] for b in self.boundaries], dtype=np.int64)
        self.is_timed = bool((self.kind == code_of(BoundaryKind.TIME)).any())
        """Whether nothing better than time tells how far the program has come."""
        self._codes: dict[str, int] = {NOWHERE: 0}
        self.phase = np.array([self._code(b.phase) for b in self.boundaries], dtype=np.int64)
        self.before, self.after = self._places()
        self._gauges: dict[str, FloatArray] = {}
        self._known: dict[str, IntArray] = {}
        self.loop = self._outermost_loop() if self.is_timed else None
        """The loop whose passes tell how far a program without steps has come, if there is one."""
        self.work = self._done_by_time() if self.is_timed else self.index
        """How far the program has come: boundaries, or hundredths of a second at its mean pace."""

    def __len__(self) -> int:
        return len(self.boundaries)

    @property
    def phases(self) -> list[str]:
        """Names of the phases, in the order of their first appearance."""
        return [name for name in self._codes if name]

    def phase_code(self, name: str) -> int:
        """Return the number of a phase in the columns; −1 for a phase that never was."""
        return self._codes.get(name, -1)

    def gauge(self, name: str) -> FloatArray:
        """Return a gauge's readings, NaN where it was not read; some follow from others."""
        if name not in self._gauges:
            is_derived = name.rpartition(".")[2] in gauge.DERIVED
            self._gauges[name] = self._derived(name) if is_derived else self._read(name)
        return self._gauges[name]

    def known(self, name: str) -> IntArray:
        """Return the positions at which a gauge was read."""
        if name not in self._known:
            self._known[name] = np.flatnonzero(np.isfinite(self.gauge(name)))
        return self._known[name]

    def events(self, name: str) -> FloatArray:
        """Return how often an event had happened at each measurement."""
        counts = [measurement.events.get(name, 0) for measurement in self.measurements]
        return np.array(counts, dtype=np.float64)

    @property
    def counts_events(self) -> bool:
        """Whether any was counted: older recordings count none."""
        return bool(self.measurements) and bool(self.measurements[-1].events)

    def has_event(self, name: str) -> bool:
        """Return whether an event has ever happened; counts never fall."""
        return bool(self.measurements) and name in self.measurements[-1].events

    def _read(self, name: str) -> FloatArray:
        values = np.full(len(self), np.nan)
        positions, readings = self._readings.get(name, ([], []))
        values[positions] = readings
        return values

    @cached_property
    def _readings(self) -> dict[str, tuple[list[int], list[int]]]:
        """Positions and readings by gauge: most gauges are read at few boundaries."""
        found: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for position, measurement in enumerate(self.measurements):
            for name, reading in measurement.gauges.items():
                positions, readings = found[name]
                positions.append(position)
                readings.append(reading)
        return found

    def _derived(self, name: str) -> FloatArray:
        device, _, short = name.rpartition(".")
        whole, part = (self.gauge(f"{device}.{each}") for each in gauge.DERIVED[short])
        return whole - part

    def has_gauge(self, name: str) -> bool:
        """Return whether the gauge was ever read."""
        return len(self.known(name)) > 0

    @cached_property
    def gauge_names(self) -> list[str]:
        """Names of all gauges that were read at some boundary of a sample of the run."""
        stride = max(1, len(self) // 500)
        sample = self.measurements[::stride] + self.measurements[-1:]
        return list(dict.fromkeys(name for m in sample for name in m.gauges))

    @cached_property
    def devices(self) -> list[str]:
        """Devices other than the host that have gauges."""
        found = sorted({name.rpartition(".")[0] for name in self.gauge_names if "." in name})
        return found[:MOST_DEVICES]

    def _done_by_time(self) -> IntArray:
        """Return what was done in hundredths of a second: by a loop's passes at their mean pace,
        where they are known, else by time, without that for which censuses held the program up.
        """
        done = self._seconds_at_work()
        if self.loop is not None:
            known = self.known(self.loop.gauge)
            passes = self.loop.passes
            pace = np.ptp(passes[known]) / np.ptp(done[known])
            done = done[known[0]] + (passes - passes[known[0]]) / pace
        return np.asarray(done * 100, dtype=np.int64)

    def _seconds_at_work(self) -> FloatArray:
        pauses = [m.census.pause_s if m.census is not None else 0.0 for m in self.measurements]
        seconds: FloatArray = self.time_s - np.concatenate([[0.0], np.cumsum(pauses)[:-1]])
        return seconds

    def _outermost_loop(self) -> Loop | None:
        """Return the loop that was read longest, unless it hardly moved or ran for a small part.

        One that waits for threads makes its few passes at the end. Before the first reading and
        after the last, as at the end of the run, its mean pace tells.
        """
        seconds = self._seconds_at_work()
        timed = seconds[self.kind == code_of(BoundaryKind.TIME)]
        names = [name for name in self._readings if gauge.place_of_loop(name)]
        name = max(names, key=lambda each: np.ptp(seconds[self.known(each)]), default="")
        known, place = self.known(name), gauge.place_of_loop(name)
        if place is None or len(known) <= policy.FEWEST_READINGS:
            return None
        at, done = seconds[known], self.gauge(name)[known]
        rises, lasted = np.diff(done), float(np.ptp(at))
        if (rises < 0).any() or np.mean(rises > 0) < policy.MAIN_SHARE:
            return None
        if lasted < policy.MOST_SHARE * float(np.ptp(timed)):
            return None
        outside = np.minimum(seconds - at[0], 0.0) + np.maximum(seconds - at[-1], 0.0)
        passes = np.interp(seconds, at, done) + outside * float(np.ptp(done)) / lasted
        return Loop(name, place, passes)

    @cached_property
    def last_work(self) -> int:
        """The last measurement at which the program was still at work: what is gone after it went
        because functions returned, not because the program let go of it.
        """
        kinds = (*INNER, code_of(BoundaryKind.PHASE_BEGIN), code_of(BoundaryKind.TIME))
        working = np.flatnonzero(np.isin(self.kind, kinds))
        return int(working[-1]) if len(working) else len(self) - 1

    def completed(self, phase: str) -> IntArray:
        """Return how many occurrences of a phase had ended at each measurement."""
        mine = self.phase == self.phase_code(phase)
        ended = self.occurrence + (self.kind == code_of(BoundaryKind.PHASE_END))
        counts: IntArray = np.maximum.accumulate(np.where(mine, ended, 0))
        return counts

    def begun(self, phase: str) -> int:
        """Return how many occurrences of a phase began."""
        mine = self.phase == self.phase_code(phase)
        return int(self.occurrence[mine].max()) + 1 if mine.any() else 0

    def batches_per_occurrence(self, phase: str) -> float:
        """Return the usual number of batches of a phase, 0 when none ended."""
        mine = self.phase == self.phase_code(phase)
        most = [
            int(self.batch[mine & (self.occurrence == o)].max())
            for o in np.unique(self.occurrence[mine])[:50]
        ]
        return float(np.median([m for m in most if m > 0])) if any(most) else 0.0

    def _column(self, name: str) -> IntArray:
        values = map(attrgetter(name), self.boundaries)
        return np.fromiter(values, np.int64, len(self.boundaries))

    def _code(self, phase: str) -> int:
        if len(self._codes) > MOST_PHASES:
            return self._codes.get(phase, self._codes[NOWHERE])
        return self._codes.setdefault(phase, len(self._codes))

    def _places(self) -> tuple[IntArray, IntArray]:
        """Return the phase of the stretch before and after each measurement.

        Phases may nest (a validation inside an endless training phase), and their ends may be
        missing (a loop left by ``break``), so a stack is kept that forgives.
        """
        begin, end = code_of(BoundaryKind.PHASE_BEGIN), code_of(BoundaryKind.PHASE_END)
        stack = [0]
        before, after = [], []
        for kind, phase in zip(self.kind.tolist(), self.phase.tolist(), strict=True):
            if kind == begin:
                _leave(stack, phase)
                before.append(stack[-1])
                stack.append(phase)
            elif kind == end:
                before.append(phase)
                _leave(stack, phase)
            else:
                if kind in INNER and stack[-1] != phase:
                    _enter(stack, phase)
                before.append(stack[-1])
            after.append(stack[-1])
        return np.array(before, dtype=np.int64), np.array(after, dtype=np.int64)


def _leave(stack: list[int], phase: int) -> None:
    if phase in stack[1:]:
        del stack[stack.index(phase, 1) :]


def _enter(stack: list[int], phase: int) -> None:
    if phase in stack[1:]:
        del stack[stack.index(phase, 1) + 1 :]
    else:
        stack.append(phase)


def _call_of(path: str) -> str:
    """Return the running function with whose variable a path begins; empty for other roots."""
    called, variable, _ = path.partition("()·")
    return called if variable else ""


@dataclass
class RowTable:
    """What each path retained at each census: paths down, censuses across, NaN where absent.

    What several names keep alive counts for the first of them (``CensusRow.shared_bytes``): neither
    retains it alone, and yet it grows.
    """

    at: IntArray
    """Positions of the censuses among the measurements."""
    censuses: list[Census]
    paths: list[str]
    latest: list[CensusRow]
    """The row of each path in the last census that has it."""
    retained: dict[str, FloatArray]
    """By device; NaN also where more is kept than was counted."""
    length: FloatArray
    count: FloatArray
    nodes: FloatArray
    full: BoolArray
    """Which censuses walked the whole heap."""
    truncated: BoolArray
    """Which censuses met more autograd nodes than they count."""
    number: dict[str, int] = field(default_factory=dict)
    """Path to its place in ``paths``."""
    sites: dict[int, list[Site]] = field(default_factory=dict)
    """Where the contents of a path were allocated, from the last census that knew."""
    inserted_at: dict[int, list[Site]] = field(default_factory=dict)
    """Where something was put into a path, by how often that was seen in all censuses."""
    items_made_at: dict[int, list[Site]] = field(default_factory=dict)
    """Where the latest items of a path were made, in the same way."""
    has_beginning: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """Of which paths, of libraries, the first census shows what they retained, though it walked the
    user's names alone: a later one showed what came since."""
    entries: dict[int, CensusRow] = field(default_factory=dict)
    """Of a container in whose entries the same attribute grows, that attribute."""
    _running_at: dict[str, BoolArray] = field(default_factory=dict)

    def covered(self, path: int) -> BoolArray:
        """Return the censuses that would show the path if it were there, and all that it keeps.

        A census of the user's names also looks into the functions of libraries that they call just
        now: what such a function holds is judged by these while there are more of them than of the
        whole heap, which sees other holders too.
        """
        shown = np.ones(len(self.at), dtype=bool) if self.latest[path].user else self.full
        if not self.latest[path].user and (called := _call_of(self.paths[path])):
            focused = self._running(called) & ~self.full
            shown = focused if focused.sum() > self.full.sum() else self.full
        shown = shown & ~self._left_out(path)
        return shown & ~self.truncated if self.keeps_graphs[path] else shown

    def _left_out(self, path: int) -> BoolArray:
        """Return the censuses that have no row of a path though what it kept is still there, or one
        of a part of its objects.

        A census writes the largest rows. What is left out of these hangs on the row above without
        one of its own; what was released doesn't.
        """
        kept, above = self._total[path], self.parent(path)
        absent = np.isnan(kept)
        left_out = np.zeros(len(self.at), dtype=bool)
        if above is None or absent.all():
            return left_out
        fell = np.fmax.accumulate(kept) > kept
        absent |= (self.count[path] == policy.SIBLINGS_SHOWN) & fell
        if not absent.any():
            return left_out
        before = np.maximum.accumulate(np.where(absent, -1, np.arange(len(kept))))
        was_there = absent & (before >= 0)
        rise = self._rest[above] - self._rest[above][before]
        missing = kept[before] - np.nan_to_num(kept)
        left_out[was_there] = (rise >= policy.MOST_SHARE * missing)[was_there]
        gone_above = was_there & np.isnan(self._total[above])
        if gone_above.any():
            left_out[gone_above] = self._left_out(above)[gone_above]
        return left_out

    @cached_property
    def _total(self) -> FloatArray:
        parts = np.array([*self.retained.values()])
        total: FloatArray = np.where(
            np.isfinite(parts).any(axis=0), np.nansum(parts, axis=0), np.nan
        )
        return total

    @cached_property
    def _rest(self) -> FloatArray:
        """What each path retained beside what the rows right below it have."""
        rest = self._total.copy()
        for path in range(len(self.paths)):
            above = self.parent(path)
            if above is not None:
                rest[above] -= np.nan_to_num(self._total[path])
        return rest

    def _running(self, called: str) -> BoolArray:
        """Return the censuses that show anything that a call of a library's function holds."""
        if called not in self._running_at:
            own = [n for n, path in enumerate(self.paths) if _call_of(path) == called]
            shown = np.isfinite(self.count[own]).any(axis=0)
            self._running_at[called] = np.asarray(shown, dtype=bool)
        return self._running_at[called]

    def alive(self, path: int) -> BoolArray:
        """Return the censuses at which the running function that holds a path was seen to run."""
        called = _call_of(self.paths[path])
        return self._running(called) if called else np.ones(len(self.at), dtype=bool)

    def is_reached(self, path: int) -> bool:
        """Return whether the user's names or a running call of a library reach it: what every
        census shows, and does not count as new elsewhere.
        """
        return self.latest[path].user or bool(_call_of(self.paths[path]))

    @cached_property
    def keeps_graphs(self) -> BoolArray:
        """Which paths keep autograd graphs at some census."""
        return np.asarray((np.nan_to_num(self.nodes) > 0).any(axis=1), dtype=bool)

    def parent(self, path: int) -> int | None:
        """Return the nearest row through which a path is named, None under a root.

        Of libraries not every row is written: then it is the nearest that is.
        """
        parent = self.latest[path].parent
        above = self.number.get(parent)
        if above is None and parent:
            root = parent.find("·") + 1
            ends = (i for i in range(len(parent) - 1, root, -1) if parent[i] in _STEPS_BEGIN)
            above = next(
                (n for end in ends if (n := self.number.get(parent[:end])) is not None), None
            )
        return None if above == path else above

    def ancestors(self, path: int) -> list[int]:
        """Return the rows on the way from the root, outermost first, the path itself excluded."""
        found: list[int] = []
        above = self.parent(path)
        while above is not None and above not in found:
            found.append(above)
            above = self.parent(above)
        return found[::-1]

    def children(self) -> dict[int, list[int]]:
        """Return the rows that it retains directly, by path."""
        found: dict[int, list[int]] = defaultdict(list)
        for path in range(len(self.paths)):
            above = self.parent(path)
            if above is not None:
                found[above].append(path)
        return found

    def descendants(self, path: int) -> list[int]:
        """Return the rows that are named through a path, the nearest first."""
        children = self.children()
        found = [path]
        for above in found:
            found += children.get(above, ())
        return found[1:]

    def row_at(self, path: int, column: int) -> CensusRow:
        """Return the row of a path at one census, or the nearest known one; of a container that is
        named by its entries, theirs.
        """
        if path in self.entries:
            return self.entries[path]
        rows = (row for row in self.censuses[column].rows if row.path == self.paths[path])
        return next(rows, self.latest[path])

    def highest(self, path: int, device: str) -> tuple[int, float]:
        """Return the census at which a path retained most, and how much."""
        values = self.retained[device][path]
        if not np.isfinite(values).any():
            return 0, 0.0
        column = int(np.nanargmax(values))
        return column, float(values[column])


def tabulate(track: BoundaryTable) -> RowTable:
    """Return the censuses of a recording as one table."""
    at = [i for i, m in enumerate(track.measurements) if m.census is not None]
    censuses = [c for i in at if (c := track.measurements[i].census) is not None]
    number: dict[str, int] = {}
    latest: list[CensusRow] = []
    for census in censuses:
        for row in census.rows:
            place = number.setdefault(row.path, len(latest))
            if place == len(latest):
                latest.append(row)
                continue
            above = row.parent or latest[place].parent
            if above != row.parent and row.path.startswith(above):  # that has no row this time
                latest[place] = msgspec.structs.replace(row, parent=above)
            else:
                latest[place] = row
    number, latest = _largest(number, latest, MOST_CELLS // max(1, len(at)))
    table = RowTable(
        at=np.array(at, dtype=np.int64),
        censuses=censuses,
        paths=list(number),
        latest=latest,
        retained={HOST: _blank(latest, at)},
        length=_blank(latest, at),
        count=_blank(latest, at),
        nodes=_blank(latest, at),
        full=np.array([c.scope is CensusScope.FULL for c in censuses], dtype=bool),
        truncated=np.array([c.graph_truncated for c in censuses], dtype=bool),
        number=number,
        has_beginning=np.zeros(len(latest), dtype=bool),
    )
    for column, census in enumerate(censuses):
        _fill(table, column, census)
        if column and census.whole:
            _fill_beginning(table, census)
    present = np.isfinite(table.retained[HOST])
    for values in table.retained.values():
        values[present & np.isnan(values)] = 0.0
        values[np.ix_(table.keeps_graphs, table.truncated)] = np.nan
    return table


def _largest(
    number: dict[str, int], latest: list[CensusRow], most: int
) -> tuple[dict[str, int], list[CensusRow]]:
    """Return at most so many paths, those that retained most when they were last seen."""
    if len(latest) <= most:
        return number, latest
    by_size = sorted(latest, key=lambda row: row.host_bytes, reverse=True)[:most]
    return {row.path: place for place, row in enumerate(by_size)}, by_size


def _blank(rows: list[CensusRow], at: list[int]) -> FloatArray:
    return np.full((len(rows), len(at)), np.nan)


def _added(known: list[Site], seen: list[Site]) -> list[Site]:
    """Return the sites of both, those first that were seen most often."""
    counts: Counter[tuple[str, int]] = Counter()
    for site in (*known, *seen):
        counts[site.file, site.line] += site.count
    return [Site(file=file, line=line, count=n) for (file, line), n in counts.most_common()]


def _fill(table: RowTable, column: int, census: Census) -> None:
    rows = [row for row in census.rows if row.path in table.number]
    places = np.array([table.number[row.path] for row in rows], dtype=np.int64)
    sizes = [row.host_bytes + row.shared_bytes.get(HOST, 0) for row in rows]
    table.retained[HOST][places, column] = sizes
    table.count[places, column] = [row.count for row in rows]
    table.nodes[places, column] = [row.graph_nodes for row in rows]
    table.length[places, column] = [np.nan if row.length is None else row.length for row in rows]
    for place, row in zip(places.tolist(), rows, strict=True):
        if row.allocated_at:
            table.sites[place] = row.allocated_at
        if row.inserted_at:
            table.inserted_at[place] = _added(table.inserted_at.get(place, []), row.inserted_at)
        if row.items_made_at:
            made = _added(table.items_made_at.get(place, []), row.items_made_at)
            table.items_made_at[place] = made
        for device in (row.device_bytes.keys() | row.shared_bytes.keys()) - {HOST}:
            if device not in table.retained:
                if len(table.retained) > MOST_DEVICES:
                    continue
                table.retained[device] = np.full_like(table.retained[HOST], np.nan)
            size = row.device_bytes.get(device, 0) + row.shared_bytes.get(device, 0)
            table.retained[device][place, column] = size


def _fill_beginning(table: RowTable, census: Census) -> None:
    """Fill in what libraries had at the first census: less than in a whole walk by what is new."""
    for row in census.rows:
        place = table.number.get(row.path)
        if place is None or row.recent_bytes is None or np.isfinite(table.count[place, 0]):
            continue
        before = row.host_bytes + row.shared_bytes.get(HOST, 0) - row.recent_bytes
        table.retained[HOST][place, 0] = float(max(before, 0))
        if row.count == 1 and before > 0:
            table.count[place, 0] = 1  # it was there, and less was in it
        table.has_beginning[place] = True
