"""The run context: all that is known about one run, gathered once for all who conclude from it.

Every decision about a series is recorded with its rule, its figure and its threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from leakscope.analysis.allocator.segments import DeviceState, highest_states
from leakscope.analysis.columns.series import (
    HOST,
    BoundaryTable,
    FloatArray,
    IntArray,
    RowTable,
    code_of,
    tabulate,
    without_idle_time,
)
from leakscope.analysis.columns.units import (
    Places,
    WorkUnit,
    epochs,
    in_part,
    is_training,
    minutes,
    unit_of_phase,
)
from leakscope.analysis.growth import judge, policy
from leakscope.analysis.growth.rows import Grower, Observations
from leakscope.analysis.remedies.catalogue import (
    Catalogue,
    KnownMatch,
    Sighting,
    Symptom,
    find_known,
    find_known_of_finding,
    shipped,
)
from leakscope.analysis.source import SourceIndex
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind, comparable_key
from leakscope.model.census import CensusRow, Site
from leakscope.model.known import Recognised
from leakscope.model.record import NativeAllocationsRecord, NativeKind, NativeOwner, NativeSite
from leakscope.model.report import Decision
from leakscope.model.run import Recording, Run
from leakscope.model.trend import Trend

_OBJECT_OWNERS = frozenset({NativeOwner.INTERPRETER, NativeOwner.TENSOR, NativeOwner.ARRAY})
_ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")
MOST_DECISIONS = 400
"""Decisions that a report carries, the first ones: what came to most is decided first."""


@dataclass(frozen=True)
class MeasuredWindow:
    """The first and the last boundary of a stretch, as measurement positions."""

    first: int
    last: int

    @property
    def ends(self) -> IntArray:
        """Both as an array."""
        return np.array([self.first, self.last])


class RunContext:
    """One recording with its columns, its table of rows and what may be compared in them."""

    def __init__(self, run: Run, recording: Recording, catalogue: Catalogue | None = None) -> None:
        self._catalogue = catalogue
        self.run = run
        self.recording = recording = without_idle_time(
            recording, policy.MOST_SHARE, policy.FEWEST_READINGS
        )
        self.track = BoundaryTable(recording)
        self.table: RowTable = tabulate(self.track)
        self.observations = Observations(self.track, self.table)
        self.places = Places(self.track, self.table)
        self.decisions = Decisions()

    @cached_property
    def sources(self) -> SourceIndex:
        """The user's sources, as they were recorded."""
        root = self.run.manifest.project_root
        return SourceIndex(self.recording.sources, root, self.recording.titles)

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue of known culprits; read when something grows."""
        return shipped() if self._catalogue is None else self._catalogue

    def known_of(self, row: CensusRow, path: int, *, growth: str, device: str) -> KnownMatch | None:
        """Return the catalogue entry for a row that grows like this, if any."""
        above = [self.table.latest[each] for each in self.table.ancestors(path)]
        sighting = Sighting(row, above, growth, device)
        return find_known(sighting, self.catalogue, self.environment)

    def known_of_finding(
        self, kind: str, native: Callable[[], Mapping[str, float]]
    ) -> KnownMatch | None:
        """Return the catalogue entry for a finding of this run, if any; ``native`` returns what
        native memory grew by, by the function that allocated it.
        """

        def highest(name: str) -> float:
            return float(np.nanmax(self.track.gauge(name), initial=0.0))

        def share(name: str) -> float:
            gained = self.device_gain(HOST) or 0.0
            return (self.gauge_gain(name) or 0.0) / gained if gained > 0 else 0.0

        symptom = Symptom(kind, highest, share, native)
        return find_known_of_finding(symptom, self.catalogue, self.environment)

    def known_by(self, library: str) -> Recognised | None:
        """Return what a library is known to keep on the host that the last censuses showed."""
        for path, row in enumerate(self.table.latest):
            found = self.known_of(row, path, growth="across", device=HOST)
            if found is not None and library in found.known.libraries:
                return found.recognised
        return None

    @property
    def unnamed_lines(self) -> list[str]:
        """The user's lines below which most of what is new without a name was seen to be made."""
        return [self.sources.location(*site) for site in self.unnamed_sites]

    @cached_property
    def unnamed_sites(self) -> list[tuple[str, int]]:
        """The same as files and lines: what was there from the first on is no growth."""
        looks = [census.elsewhere_sites for census in self.table.censuses]
        at_first: dict[tuple[str, int], int] = {}
        found: dict[tuple[str, int], int] = {}
        for sites in filter(None, looks):
            now: dict[tuple[str, int], int] = {}
            for site in sites:
                now[site.file, site.line] = now.get((site.file, site.line), 0) + site.bytes
            at_first = at_first or now
            for place, size in now.items():
                found[place] = max(found.get(place, 0), size - at_first.get(place, 0))
        gained = {place: size for place, size in found.items() if size > 0}
        return _much_of(gained or at_first) or self.sampled_sites

    @property
    def sampled_lines(self) -> list[str]:
        """The user's lines below which most of what was sampled became more."""
        return [self.sources.location(*site) for site in self.sampled_sites]

    @cached_property
    def sampled_sites(self) -> list[tuple[str, int]]:
        """The same as files and lines."""
        return _much_of(_bytes_at(self.sampled_growth))

    @cached_property
    def small_object_lines(self) -> list[str]:
        """The user's lines that made most of the small objects of which there are ever more.

        By samples of Python's blocks; where there are none, by windows of tracing.
        """
        records = self._sampled_records
        if not any(record.small_sites for record in records):
            return self._traced_lines
        gained = self._gained([record.small_sites for record in records])
        return [self.sources.location(*site) for site in _much_of(_bytes_at(gained))]

    @property
    def _traced_lines(self) -> list[str]:
        """The user's lines that made a large part of the many objects that lived on in windows of
        tracing.

        Each counts by its slowest window: what is alive for a moment is as much in a long window as
        in a short one.
        """
        times = {boundary.index: boundary.time_s for boundary in self.track.boundaries}
        rates: list[dict[tuple[str, int], int]] = []
        for window in self.recording.allocations:
            begin, end = times.get(window.first_boundary), times.get(window.last_boundary)
            if not window.sites or begin is None or end is None or end <= begin:
                continue
            rates.append(
                {
                    (site.file, site.line): round(site.bytes / (end - begin))
                    for site in window.sites
                    if site.count >= policy.FEWEST_COUNTED and site.file in self.recording.sources
                }
            )
        slowest = {at: min(each.get(at, 0) for each in rates) for at in (rates or [{}])[0]}
        return [self.sources.location(*site) for site in _much_of(slowest) if slowest[site]]

    @cached_property
    def sampled_growth(self) -> list[Site]:
        """By how much blocks that Python, numpy and torch allocated below each line of the user's
        became more.

        Arenas are left out, for the line that takes the next is chance: what lies in them is
        sampled by itself. So is what came before the work began: imports allocate much.
        """
        return self._gained(
            [
                [
                    site
                    for site in record.sites
                    if site.kind is NativeKind.BLOCK and site.owner in _OBJECT_OWNERS
                ]
                + record.small_sites
                for record in self._sampled_records
            ]
        )

    @property
    def _sampled_records(self) -> list[NativeAllocationsRecord]:
        working = set(self.track.index[self.working].tolist())
        native = self.recording.native_allocations
        return [record for record in native if record.is_on and record.boundary in working]

    def _gained(self, records: Sequence[Sequence[NativeSite]]) -> list[Site]:
        """Return by how much lines had more in the last record than in the first, where that is
        beyond the scatter of sampling.
        """
        gained: dict[tuple[str, int], float] = {}
        spread: dict[tuple[str, int], float] = {}
        for sites, sign in zip(records[:: max(len(records) - 1, 1)], (-1, 1), strict=False):
            for site in sites:
                at = site.file, site.line
                gained[at] = gained.get(at, 0.0) + sign * site.bytes
                spread[at] = math.hypot(spread.get(at, 0.0), site.deviation_bytes)
        return [
            Site(file=at[0], line=at[1], bytes=round(size))
            for at, size in gained.items()
            if at[0] in self.recording.sources
            and size >= max(policy.GAUGE_NOISE_BYTES, policy.SAMPLED_DEVIATIONS * spread[at])
        ]

    @property
    def environment(self) -> dict[str, str]:
        """The versions that ran."""
        return self.run.manifest.environment

    @property
    def allocator(self) -> str:
        """The malloc of the process: ``glibc``, ``jemalloc``, ``tcmalloc`` or ``mimalloc``."""
        loaded = self.environment.get("allocator", "").split()
        return next((name for name in loaded if name in _ALLOCATORS), "glibc")

    @property
    def has_mimalloc_in_torch(self) -> bool:
        """Whether torch has an allocator of its own for tensors, as on AArch64."""
        is_arm = self.environment.get("platform", "").endswith("aarch64")
        return is_arm and "torch" in self.environment

    @cached_property
    def device_states(self) -> dict[str, DeviceState]:
        """Each device at the recorded list of blocks with most live bytes."""
        return highest_states(self.recording)

    @property
    def host_metric(self) -> str:
        """The gauge of host memory that was read most: resident or proportional memory."""
        return gauge.RSS if self.track.has_gauge(gauge.RSS) else gauge.PSS

    @property
    def limit_bytes(self) -> int | None:
        """The memory limit that would kill the run."""
        return self.run.manifest.memory_limit or self.run.manifest.memory_total

    @cached_property
    def working(self) -> IntArray:
        """Positions from the end of set-up to the end of the work.

        Of a process that was watched from outside, without those at which it may have been ending.
        """
        if self.is_watched:
            every, end = np.arange(len(self.track)), self.recording.end
            may_be_ending = end is None or end.status in {"ended", "exit"}
            return self._before_the_end(every) if may_be_ending else every
        is_timed = self.track.is_timed
        by_time = self.track.kind == code_of(BoundaryKind.TIME)
        begun = np.flatnonzero(by_time if is_timed else self.track.phase)
        return np.arange(int(begun[0]) if len(begun) else 0, self.track.last_work + 1)

    def _before_the_end(self, readings: IntArray) -> IntArray:
        """Return readings without those at which the process may have been releasing its memory."""
        times = self.track.time_s[readings]
        if not len(times):
            return readings
        spent = min(policy.ENDING_S, policy.LITTLE_SHARE * float(times[-1] - times[0]))
        chosen: IntArray = readings[:-1][times[:-1] <= times[-1] - spent]
        return chosen

    @cached_property
    def pool(self) -> Trend:
        """How private memory of the process grows over the work."""
        return self.trend_of(*self.pool_series())

    def pool_series(self) -> tuple[FloatArray, FloatArray]:
        """Return units done and the private memory of the process at every reading of it."""
        read = self.at_work(self.private)
        return self.work_done[read], self.private[read]

    def at_work(self, values: FloatArray) -> IntArray:
        """Return the positions during the work at which a series was read."""
        return self.working[np.isfinite(values[self.working])]

    @cached_property
    def private(self) -> FloatArray:
        """The program's own memory, by measurement: resident memory without pages of files, shared
        memory and what leakscope itself holds, with what the kernel has swapped out.
        """
        values = self.track.gauge(self.host_metric)
        if self.host_metric == gauge.RSS and self.track.has_gauge(gauge.MAPPED):
            values = values - self.track.gauge(gauge.MAPPED)
        return values + np.nan_to_num(self.track.gauge(gauge.SWAPPED)) - self.own

    @cached_property
    def own(self) -> FloatArray:
        """What leakscope itself held when memory was read, by measurement.

        It is counted after a census, and other gauges are read before.
        """
        known = self.track.known(gauge.OWN)
        if not len(known):
            return np.zeros(len(self.track))
        readings: FloatArray = np.concatenate([[0.0], self.track.gauge(gauge.OWN)[known]])
        last = np.searchsorted(known, np.arange(len(self.track)), side="left")
        return np.asarray(readings[last], dtype=np.float64)

    @cached_property
    def window(self) -> MeasuredWindow | None:
        """The stretch that is accounted for: the tail of private memory.

        Its ends are censuses at comparable boundaries where these reach through most of it, else
        such boundaries without a census: what a phase holds only while it runs is then there at
        both or at neither.
        """
        tail = self.tail
        if len(tail) < 2:
            return None
        looked_at, whole = tail[np.isin(tail, self.table.at)], self._reach(tail)
        if len(looked_at) >= 2 and self._reach(looked_at) >= policy.MAIN_SHARE * whole:
            candidates = [self._alike(looked_at), looked_at]
        else:
            candidates = [self._alike(looked_at), self._alike(tail), tail]
        *alike, otherwise = candidates
        enough = (c for c in alike if len(c) > 1 and self._reach(c) >= policy.MOST_SHARE * whole)
        chosen = next(enough, otherwise)
        return MeasuredWindow(int(chosen[0]), int(chosen[-1]))

    def _alike(self, positions: IntArray) -> IntArray:
        """Return those of some at comparable boundaries that reach furthest."""
        alike: dict[tuple[str, str, str], list[int]] = {}
        for position in positions.tolist():
            alike.setdefault(comparable_key(self.track.boundaries[position]), []).append(position)
        return np.array(max(alike.values(), key=self._reach, default=[]), dtype=np.int64)

    def _reach(self, positions: IntArray | list[int]) -> int:
        """Return how many boundaries lie between the first and the last of some."""
        return int(np.ptp(self.track.work[positions])) if len(positions) else 0

    @cached_property
    def tail(self) -> IntArray:
        """Positions in the tail of private memory."""
        read = self.at_work(self.private)
        tail: IntArray = read[self.work_done[read] >= self.pool.tail_from]
        return tail

    @property
    def is_watched(self) -> bool:
        """Whether the process was watched from outside: there are readings and nothing else."""
        return self.recording.header.role == "monitor"

    @cached_property
    def unit(self) -> WorkUnit:
        """The unit for the growth of whole gauges: epochs when there are some, else steps; minutes
        of what was only watched.
        """
        if self.is_watched or self.track.is_timed:
            return minutes(self.track)
        counted = epochs(self.track)
        if counted.total >= policy.FEWEST_READINGS or not self.track.phases:
            return counted if counted.total else WorkUnit("step", "", self.track.step.astype(float))
        training = [p for p in self.track.phases if is_training(p)]
        return unit_of_phase(self.track, (training or self.track.phases)[0])

    @cached_property
    def work_done(self) -> FloatArray:
        """Units done at each measurement, a running epoch in part: for what is read at censuses
        of the whole heap, which lie anywhere.
        """
        return in_part(self.track, self.unit)

    def gauge_series(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Return units done and readings of a gauge, from the end of set-up to the end of work.

        What leakscope itself has is no part of the process's memory or of what is in use in the
        C heap.
        """
        values = self.track.gauge(name)
        if name in {gauge.MALLOC_IN_USE, gauge.RSS, gauge.PSS}:
            values = values - self.own
        read = self.at_work(values)
        return self.work_done[read], values[read]

    def gauge_trend(self, name: str, noise: float | None = None) -> Trend:
        """Return whether a gauge grows over the work."""
        return self.trend_of(*self.gauge_series(name), noise)

    def trend_of(self, x: FloatArray, y: FloatArray, noise: float | None = None) -> Trend:
        """Return whether a series grows over units done; ``noise`` is a gauge's by default."""
        noise = policy.GAUGE_NOISE_BYTES if noise is None else noise
        return judge(x, y, unit=self.unit.name, noise=noise)

    def gauge_gain(self, name: str) -> float | None:
        """Return the change of a gauge over the window, None where it was not read.

        It is read seldom: between two readings it is taken to have changed evenly.
        """
        every = self.track.known(name)
        # After its work a program releases what it held.
        known = every[every <= self.working[-1]] if len(self.working) else every
        known = known if len(known) else every
        if self.window is None or not len(known):
            return None
        return self.change_over(self.window, known, self.track.gauge(name)[known])

    def change_over(self, window: MeasuredWindow, known: IntArray, values: FloatArray) -> float:
        """Return the change over a window of what was read at some measurements."""
        first, last = self.read_between(window.ends, known, values)
        return float(last - first)

    def read_between(
        self, at: IntArray, known: IntArray, values: FloatArray, before: float | None = None
    ) -> FloatArray:
        """Return what was there at some measurements, by the values at those where it was read, in
        order: between two evenly over boundaries, before the first as much as at the first unless
        ``before`` says otherwise.
        """
        return np.interp(self.track.work[at], self.track.work[known], values, left=before)

    def nearest(self, name: str, position: int) -> float | None:
        """Return the last reading of a gauge up to a position, else the first after it."""
        known = self.track.known(name)
        if not len(known):
            return None
        place = int(np.searchsorted(known, position, side="right")) - 1
        return float(self.track.gauge(name)[known[max(place, 0)]])

    def gain_of(self, grower: Grower) -> float:
        """Return what a path that grows across phases gained over the window, by its rate.

        It can't have gained more than it held when it was seen last, and came to since.
        """
        if self.window is None:
            return grower.gained
        work = self.track.work
        span = work[self.window.last] - work[self.window.first]
        _, highest = self.table.highest(grower.path, grower.device)
        seen = work[self.table.at[grower.observed[-1]]] if len(grower.observed) else work[-1]
        unseen = grower.per_boundary * max(float(work[self.window.last] - seen), 0.0)
        return min(grower.per_boundary * float(span), max(highest, grower.gained) + unseen)

    def device_gain(self, device: str) -> float | None:
        """Return how much memory of a device grew over the window, on the host less our own."""
        gained = self.gauge_gain(self.metric_of(device))
        if gained is None or self.window is None or device != HOST:
            return gained
        return gained - float(self.own[self.window.last] - self.own[self.window.first])

    def metric_of(self, device: str) -> str:
        """Return the gauge that measures a device's live memory."""
        return self.host_metric if device == HOST else f"{device}.{gauge.DEVICE_ALLOCATED}"

    def used_at_end(self) -> float:
        """Return host memory at the end: of the process and of its children."""
        own = self.nearest(self.host_metric, len(self.track) - 1) or 0.0
        beyond = self.children_beyond[np.isfinite(self.children_beyond)]
        return own + (float(beyond[-1]) if len(beyond) else 0.0)

    @cached_property
    def children_beyond(self) -> FloatArray:
        """Bytes that child processes add to this one's, by measurement; NaN where nothing tells.

        What a forked child shares with this process lies in resident memory of this one already:
        proportional memory of all together, less what is resident here.
        """
        children = self.track.gauge(gauge.CHILDREN_PSS)
        beyond = self.track.gauge(gauge.PSS) + children - self.track.gauge(gauge.RSS)
        if not np.isfinite(beyond[children > 0]).any():
            return children
        return np.where(children > 0, np.maximum(beyond, 0.0), children)

    @cached_property
    def unrecorded_children(self) -> FloatArray:
        """Bytes of child processes that recorded nothing, by measurement; NaN where not read.

        Recorded ones are taken at their proportional memory by their own clocks.
        """
        left = self.track.gauge(gauge.CHILDREN_PSS).copy()
        for recording in self.run.recordings:
            header = recording.header
            if header.is_primary or header.rank != self.recording.header.rank:
                continue
            later = recording.began_after(self.recording)
            times, sizes = proportional(recording)
            if later is None or not len(times):
                continue
            # It lived before its recording began, and a moment after the last reading.
            in_use = np.interp(self.track.time_s - later, times, sizes)
            end = recording.end.time_s if recording.end else float(times[-1])
            own_time = self.track.time_s - later
            lived = header.lived_s if header.child is not None else policy.ENDING_S
            is_there = (own_time >= -lived - policy.CLOCKS_S) & (own_time <= end + policy.ENDING_S)
            left -= np.where(is_there, in_use, 0.0)
        rest: FloatArray = np.maximum(left, 0.0)
        return rest

    def children_series(self) -> tuple[FloatArray, FloatArray]:
        """Return units done and memory of child processes, of unrecorded ones where others record.

        It ends before they do: what a parent shuts down at its end says nothing of growth.
        """
        has_recorded = any(
            r.header.child is not None and r.measurements for r in self.run.recordings
        )
        values = self.track.gauge(gauge.CHILDREN_PSS)
        values = self.unrecorded_children if has_recorded else values
        at = self.at_work(values)
        counts = self.track.gauge(gauge.CHILDREN)[at]
        counted = counts[len(counts) // 2 :]
        counted = counted[np.isfinite(counted)]
        usual = float(np.median(counted)) if len(counted) else 0.0
        there = np.flatnonzero(~(counts < usual))
        at = at[: int(there[-1]) + 1] if len(there) else at
        return self.work_done[at], values[at]

    def tree_gain(self) -> float | None:
        """Return the growth of this process's memory and its children's over the window.

        Shared pages count once, for it is proportional memory; None where there are no children or
        it was not read at both ends.
        """
        if self.window is None:
            return None
        ends = self.window.ends
        children = self.track.gauge(gauge.CHILDREN_PSS)[ends]
        times, sizes = proportional(self.recording)
        is_divided = self.track.has_gauge(gauge.PSS) and len(times) > 0
        if not (is_divided and np.isfinite(children).all() and children.any()):
            return None
        together = np.interp(self.track.time_s[ends], times, sizes) + children
        return float(together[1] - together[0])

    def children_gain(self) -> float:
        """Return how much memory child processes gained over the window."""
        return self.gauge_gain(gauge.CHILDREN_PSS) or 0.0


def proportional(recording: Recording) -> tuple[FloatArray, FloatArray]:
    """Return the seconds and readings of what a process has, shared pages divided.

    Where these were not divided it is resident memory less what dividing took off the last time:
    the kernel is slow to do that, so that it is read where others share pages, and at first.
    """
    read = [(m.boundary.time_s, m.gauges) for m in recording.measurements if gauge.RSS in m.gauges]
    times = np.array([time_s for time_s, _ in read], dtype=np.float64)
    resident = np.array([gauges[gauge.RSS] for _, gauges in read], dtype=np.float64)
    divided = np.array([gauges.get(gauge.PSS, np.nan) for _, gauges in read], dtype=np.float64)
    known = np.isfinite(divided)
    if not known.any():
        return times, resident
    last = np.maximum(np.cumsum(known) - 1, 0)
    shared = (resident - divided)[known][last]
    return times, np.where(known, divided, resident - shared)


class Decisions:
    """The decisions of one analysis, in their order; of one rule on one subject the last."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Decision] = {}

    def add(
        self,
        subject: str,
        rule: str,
        outcome: str,
        *,
        figure: float | None = None,
        threshold: float | None = None,
        path: str = "",
    ) -> None:
        """Note what a rule decided on a name, gauge or term: by which figure, held against which
        threshold. ``path`` is the path pattern, where the subject has one.
        """
        self._made[path or subject, rule] = Decision(
            subject=subject,
            path=path,
            rule=rule,
            figure=_as_written(figure),
            threshold=_as_written(threshold),
            outcome=outcome,
        )

    def listed(self) -> list[Decision]:
        """Return what was decided, at most so much as a report carries."""
        return list(self._made.values())[:MOST_DECISIONS]


def _bytes_at(sites: Iterable[Site]) -> dict[tuple[str, int], int]:
    return {(site.file, site.line): site.bytes for site in sites}


def _much_of(found: dict[tuple[str, int], int]) -> list[tuple[str, int]]:
    """Return the lines that made a large part of all, the largest first."""
    least = policy.CONSIDERABLE_SHARE * sum(found.values())
    return [site for site in sorted(found, key=lambda at: -found[at]) if found[site] >= least]


def _as_written(figure: float | None) -> float | None:
    """Return a figure as JSON can have it: none of numpy's, and none where there is no limit."""
    return float(figure) if figure is not None and math.isfinite(figure) else None
