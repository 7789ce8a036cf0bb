"""The case: everything that is known about one run, gathered once for all who conclude from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from leakscope.analysis.across import Comparables
from leakscope.analysis.device_states import DeviceState, highest_states
from leakscope.analysis.growers import Grower
from leakscope.analysis.known import Catalogue, Found, Sighting, find_known, shipped
from leakscope.analysis.series import HOST, FloatArray, IntArray, RowTable, Track, tabulate
from leakscope.analysis.source import SourceIndex
from leakscope.analysis.trends import FEWEST_POINTS, goes_on_evenly, judge, theil_sen, warm_up
from leakscope.analysis.units import Places, Unit, epochs, in_part, is_training, unit_of_phase
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind, comparable_key
from leakscope.model.census import CensusRow
from leakscope.model.known import Recognised
from leakscope.model.run import Recording, Run
from leakscope.model.trend import Trend

GAUGE_NOISE_BYTES = float(1 << 20)
"""Resident memory moves by pages, arenas and stacks without any leak."""
READ_SHARE = 0.5
"""What is read seldom must have been read over so much of the work."""
FURTHER = 1.25
"""Steps are accounted between where they reach so many times as far as whole phases."""
WARM_SHARE = 0.1
"""The first steps of a run are warm-up: so much of what is looked at."""
_BY_TIME = frozenset({gauge.CHILDREN, gauge.CHILDREN_PSS})
ENDING_S, ENDING_SHARE = 10.0, 0.1
"""A process that ends gives back what it held: seconds that this may take, and part of its time."""


@dataclass(frozen=True)
class Window:
    """From the first comparable boundary after warm-up to the last, as measurement positions."""

    first: int
    last: int


class Case:
    """One recording with its columns, its table of rows and what may be compared in them."""

    def __init__(self, run: Run, recording: Recording, catalogue: Catalogue | None = None) -> None:
        self._catalogue = catalogue
        self.run = run
        self.recording = recording
        self.track = Track(recording)
        self.table: RowTable = tabulate(self.track)
        self.comparables = Comparables(self.track, self.table)
        self.places = Places(self.track, self.table)

    @cached_property
    def sources(self) -> SourceIndex:
        """The user's sources, as they were recorded."""
        root = self.run.manifest.project_root
        return SourceIndex(self.recording.sources, root, self.recording.titles)

    @property
    def catalogue(self) -> Catalogue:
        """The known culprits that are asked; read when something grows."""
        return shipped() if self._catalogue is None else self._catalogue

    def known_of(self, row: CensusRow, path: int, *, growth: str, device: str) -> Found | None:
        """Return the entry of the catalogue that speaks of a row which grows so, if one does."""
        above = [self.table.latest[one] for one in self.table.ancestors(path)]
        sighting = Sighting(row, above, growth, device)
        return find_known(sighting, self.catalogue, self.environment)

    def known_by(self, library: str) -> Recognised | None:
        """Return what a library is known to keep on the host that the last censuses showed."""
        for path, row in enumerate(self.table.latest):
            found = self.known_of(row, path, growth="across", device=HOST)
            if found is not None and library in found.known.libraries:
                return found.told
        return None

    @property
    def environment(self) -> dict[str, str]:
        """The versions that ran."""
        return self.run.manifest.environment

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
    def _alike(self) -> dict[tuple[str, str, str], list[int]]:
        """Positions of the boundaries inside the run by what makes them comparable."""
        groups: dict[tuple[str, str, str], list[int]] = {}
        for position, boundary in enumerate(self.track.boundaries):
            if boundary.kind not in {BoundaryKind.RUN_BEGIN, BoundaryKind.RUN_END}:
                groups.setdefault(comparable_key(boundary), []).append(position)
        return groups

    @cached_property
    def comparable(self) -> IntArray:
        """Positions of the comparable boundaries that were measured most often and evenly."""
        whole = [g for key, g in self._alike.items() if key[0] not in {"step", "batch"}]
        enough = [g for g in whole if len(g) >= FEWEST_POINTS]
        candidates = enough or list(self._alike.values())
        chosen = max(candidates, key=len, default=[])
        if self.is_watched and self._was_ending:
            chosen = self._before_the_end(chosen)
        return np.array(chosen, dtype=np.int64)

    def _before_the_end(self, readings: list[int]) -> list[int]:
        """Return readings without those at which the process may have given back what it held."""
        times = self.track.time_s[readings]
        if not len(times):
            return []
        spent = min(ENDING_S, ENDING_SHARE * float(times[-1] - times[0]))
        return [one for one in readings[:-1] if self.track.time_s[one] <= times[-1] - spent]

    @property
    def _was_ending(self) -> bool:
        """Whether the last readings from outside may be of a process that was already ending."""
        end = self.recording.end
        return end is None or end.status in {"ended", "exit"}

    @cached_property
    def window(self) -> Window | None:
        """The stretch over which growth is accounted for, None when nothing is comparable."""
        looked_at = self.comparable[np.isin(self.comparable, self.table.at)]
        chosen = looked_at if len(looked_at) >= 2 else self.comparable
        begin = warm_up(np.zeros(len(chosen))) if len(chosen) > FEWEST_POINTS else 0
        chosen, steps = chosen[begin:], self._steps_looked_at
        if len(steps) >= 2 and self._reach(steps) > FURTHER * self._reach(chosen):
            chosen = steps
        return Window(int(chosen[0]), int(chosen[-1])) if len(chosen) >= 2 else None

    @property
    def _steps_looked_at(self) -> IntArray:
        """Steps of one phase at whose end a census was taken, without the first of the run.

        Where validations follow each other quickly only the first of them are looked into, steps
        all along.
        """
        groups = (np.array(g) for key, g in self._alike.items() if key[0] == "step")
        looked_at = (g[np.isin(g, self.table.at)] for g in groups)
        steps = max(looked_at, key=self._reach, default=np.zeros(0, dtype=np.int64))
        if len(steps) < FEWEST_POINTS:
            return steps[:0]
        index = self.track.index[steps]
        is_warm = index >= index[0] + WARM_SHARE * float(index[-1] - index[0])
        return steps[np.flatnonzero(is_warm)]

    def _reach(self, positions: IntArray) -> int:
        """Return how many boundaries lie between the first and the last of some."""
        return int(np.ptp(self.track.index[positions])) if len(positions) else 0

    @property
    def is_watched(self) -> bool:
        """Whether the process was watched from outside: there are readings and nothing else."""
        return self.recording.header.role == "monitor"

    @cached_property
    def unit(self) -> Unit:
        """The unit for the growth of whole gauges: epochs when there are some, else steps; minutes
        of what was only watched.
        """
        if self.is_watched:
            return Unit("minute", "", self.track.time_s / 60)
        counted = epochs(self.track)
        if counted.total >= FEWEST_POINTS - 1 or not self.track.phases:
            return counted if counted.total else Unit("step", "", self.track.step.astype(float))
        training = [p for p in self.track.phases if is_training(p)]
        return unit_of_phase(self.track, (training or self.track.phases)[0])

    @cached_property
    def work_done(self) -> FloatArray:
        """Units done at each measurement, a running epoch in part: for what is read at censuses
        of the whole heap, which lie anywhere.
        """
        return in_part(self.track, self.unit)

    def gauge_series(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Return units done and readings of a gauge at comparable boundaries where it was read."""
        read = self._read_at(name)
        return self.unit.done[read], self.track.gauge(name)[read]

    def _read_at(self, name: str) -> IntArray:
        """Return the comparable boundaries at which a gauge was read.

        Child processes are read by time. Where that was elsewhere, others that are alike serve.
        """
        values = self.track.gauge(name)
        read = self.comparable[np.isfinite(values[self.comparable])]
        if name not in _BY_TIME or self._reach_through(read):
            return read
        alike = [np.array(group, dtype=np.int64) for group in self._alike.values()]
        others = [group[np.isfinite(values[group])] for group in alike]
        return max((o for o in others if self._reach_through(o)), key=len, default=read)

    def _reach_through(self, positions: IntArray) -> bool:
        """Return whether places suffice for a verdict and reach through most of the work."""
        if len(positions) < FEWEST_POINTS:
            return False
        done, all_done = self.unit.done[positions], self.unit.done[self.comparable]
        return bool(done[-1] - done[0] >= READ_SHARE * (all_done[-1] - all_done[0]))

    def is_read_throughout(self, name: str) -> bool:
        """Return whether readings of a gauge suffice for a verdict, and reach through most of the
        work that is compared: what grew in the first tenth may have rested ever since.
        """
        return self._reach_through(self._read_at(name))

    def rises_all_along(self, name: str) -> bool:
        """Return whether a gauge rose as good as linearly over all its readings during the work.

        Where few boundaries are comparable, readings elsewhere tell whether growth goes on between.
        """
        known = self.track.known(name)
        known = known[known <= self.track.last_work]
        return goes_on_evenly(self.work_done[known], self.track.gauge(name)[known])

    def gauge_trend(self, name: str, noise_bytes: float = GAUGE_NOISE_BYTES) -> Trend:
        """Return rate and shape of a gauge over comparable boundaries."""
        return self.trend_of(*self.gauge_series(name), noise_bytes)

    def trend_of(
        self, x: FloatArray, y: FloatArray, noise_bytes: float = GAUGE_NOISE_BYTES
    ) -> Trend:
        """Return rate and shape of a series over units done, of which jitter alone is no part."""
        return judge(x, y, unit=self.unit.name, noise_bytes=max(noise_bytes, 3 * _jitter(x, y)))

    def gauge_gain(self, name: str) -> float | None:
        """Return the change of a gauge over the window, None when it was not read there."""
        if self.window is None:
            return None
        before = self.nearest(name, self.window.first)
        after = self.nearest(name, self.window.last)
        return None if before is None or after is None else after - before

    def nearest(self, name: str, position: int) -> float | None:
        """Return the last reading of a gauge up to a position, else the first after it."""
        known = self.track.known(name)
        if not len(known):
            return None
        place = int(np.searchsorted(known, position, side="right")) - 1
        return float(self.track.gauge(name)[known[max(place, 0)]])

    def gain_of(self, grower: Grower) -> float:
        """Return what a path that grows across phases gained over the window, by its rate."""
        if self.window is None:
            return grower.gained
        span = self.track.index[self.window.last] - self.track.index[self.window.first]
        _, highest = self.table.highest(grower.path, grower.device)
        return min(grower.per_boundary * float(span), max(highest, grower.gained))

    def device_gain(self, device: str) -> float | None:
        """Return how much memory of a device grew over the window."""
        return self.gauge_gain(self.metric_of(device))

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

    def tree_gain(self) -> float | None:
        """Return by how much memory of this process and its children grew over the window.

        Shared pages count once, for it is proportional memory; None where there are no children or
        it was not read at both ends.
        """
        if self.window is None:
            return None
        ends = [self.window.first, self.window.last]
        children = self.track.gauge(gauge.CHILDREN_PSS)[ends]
        together = self.track.gauge(gauge.PSS)[ends] + children
        if not np.isfinite(together).all() or not children.any():
            return None
        return float(together[1] - together[0])

    def children_gain(self) -> float:
        """Return how much memory child processes gained over the window."""
        return self.gauge_gain(gauge.CHILDREN_PSS) or 0.0


def _jitter(x: FloatArray, y: FloatArray) -> float:
    """Return how far readings scatter about their own trend (median absolute deviation)."""
    if len(y) < FEWEST_POINTS:
        return 0.0
    left = y - theil_sen(x, y).rate * x
    return float(np.median(np.abs(left - np.median(left))))
