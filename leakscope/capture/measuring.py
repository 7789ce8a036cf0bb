"""What happens at a boundary that is worth it: gauges, a census, and all of it recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from leakscope.capture import policy
from leakscope.capture.budget import Due, Pauses
from leakscope.capture.dispatch import Guard
from leakscope.capture.gauges import LOOP, OwnMemory, Reader, SlowGauges
from leakscope.capture.profiles import HistoryWindows
from leakscope.capture.schedule import INSIDE
from leakscope.capture.sites import SourceTexts
from leakscope.capture.tracing import AllocationWindows
from leakscope.heap.pausing import can_stand_still
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, CensusScope
from leakscope.model.record import (
    CENSUS_SKIPPED,
    BlockListRecord,
    BoundaryRecord,
    CensusRecord,
    CleaningCall,
    CleaningCallsRecord,
    DeviceSnapshotRecord,
    NoteRecord,
    OutOfMemoryRecord,
    OverheadRecord,
    ProcessEndRecord,
    RegistryEntriesRecord,
    SnapshotRecord,
)
from leakscope.probes.interpreter import RegistriesProbe
from leakscope.recording import redact_text

if TYPE_CHECKING:
    from leakscope.heap import CensusTaker
    from leakscope.recording import RecordingWriter

Devices = Callable[..., "Iterable[DeviceSnapshotRecord | BlockListRecord]"]
"""Returns sums of each device's blocks, and the blocks themselves ``with_blocks``."""


BYTES_PER_OBJECT = 120
"""What a walk needs for each object meanwhile, by `benchmarks/heap`, rounded up."""
SPARE_MEMORY = 3
"""No census unless this many times what the one before needed is available."""
SPARE_UNKNOWN = 1.5
"""And before the first: so many times what it would need if it met all that Python has allocated,
which no walk does."""
OVERHEAD_EVERY_SECONDS = 2.0
BLOCKS_EVERY_SECONDS = 2.0
BLOCKS_EVERY_SHARE = 0.1
"""Lists of blocks are large: their number grows with the logarithm of time."""
_AFFECTED = frozenset({"process", "gc"})
"""Probes whose readings a collection changes."""
PATIENCE_SECONDS = 10.0
"""A failed program is kept waiting for its census no longer than this."""


class Measuring:
    """Measures at boundaries, and keeps account of what that costs."""

    def __init__(
        self,
        *,
        writer: RecordingWriter,
        taker: CensusTaker,
        probes: Iterable[Reader],
        devices: Devices,
        windows: AllocationWindows,
        history: HistoryWindows,
        pauses: Pauses,
        guard: Guard,
        budget: float,
        clock: Callable[[], float],
        cost_clock: Callable[[], float],
        in_child: bool = False,
        put_off: Mapping[str, int] | None = None,
    ) -> None:
        readers = list(probes)
        self.windows = windows
        self._history = history
        self._by_time = [probe for probe in readers if probe.name == LOOP]
        self._fast = [probe for probe in readers if not probe.slow and probe not in self._by_time]
        slow = (probe for probe in readers if probe.slow)
        self._slow = SlowGauges(slow, cost_clock, guard, budget, in_child=in_child)
        self._clock, self._cost_clock = clock, cost_clock
        self._writer = writer
        self._taker = taker
        self._devices = devices
        self._costs = pauses.costs
        self._pauses = pauses
        self._guard = guard
        self._put_off: Mapping[str, int] = {} if put_off is None else put_off
        self._sources = SourceTexts()
        self._objects: dict[Due, int] = {}
        self.sampling_bytes: Callable[[], int] = int
        self.events: Callable[[], dict[str, int]] = dict
        self.collections: Callable[[], dict[str, int]] = dict
        self.cleaning: Callable[[], list[CleaningCall]] = list
        self._cleaned: list[CleaningCall] = []
        self._registries = [probe for probe in readers if isinstance(probe, RegistriesProbe)]
        self._entries: dict[str, list[str]] = {}
        self.unwound: Sequence[FrameType] = ()
        """Frames that a traceback keeps, outermost first: a census looks at them too."""
        self.resident = 0
        self.gauges: dict[str, int] = {}
        self._next_overhead = 0.0
        self._next_blocks = 0.0
        self._censuses = 0
        self._recorded = 0
        self._own_peak = 0
        self._own_memory = OwnMemory(readers)
        self._poor = False
        self._knows_threads = False
        self._headroom = Headroom()

    def at(self, boundary: Boundary, due: Due) -> Due:
        """Measure at a boundary; return what was done in the end.

        Where memory is running out a census is taken whatever the budget says, and waits for the
        disk: it may be the last.
        """
        closing = self.windows.closes_at(boundary)
        ends_history = self._history.closes_at(boundary)
        if ends_history:
            self._next_blocks = 0.0  # the blocks tell who allocated them
        if (closing or ends_history) and due < Due.FOCUSED:
            due = max(due, self._pauses.pass_by(self._pauses.usual))
        rises_unnamed = closing and self.windows.growth.is_unnamed
        if rises_unnamed and self._costs.is_sealed and self._pauses.allows(Due.FULL):
            due = max(due, Due.FULL)  # with rows of libraries, and the lines that fill them
        gauges = self._read_gauges(boundary, due)
        is_last_chance = self._headroom.is_running_out(self.resident)
        if is_last_chance:
            self._headroom.reported(self.resident)
            full = self._costs.is_sealed and self._fits(Due.FULL, self._left)
            due = max(due, Due.FULL if full else Due.FOCUSED)
        if due >= Due.FOCUSED:
            gauges[gauge.OWN_RESIDENT] = self._own_memory.resident
        if not self._recorded:  # what was there before the first census is no growth
            gauges[gauge.OWN] = self._own_bytes()
        events = self._guard.call("events", {}, self.events)
        census = self._take_census(boundary, due, gauges) if due >= Due.FOCUSED else None
        before = gauges.get(gauge.GC_COLLECTIONS)
        if census is not None and before is not None and census.collections not in (None, before):
            self._read_again(boundary, gauges)
        with self._charged("recording"):
            self._recorded += 1
            self._writer.write(
                BoundaryRecord(boundary=boundary, gauges=gauges, events=events),
                sync=boundary.kind is BoundaryKind.RUN_END or is_last_chance,
            )
        if is_last_chance:
            self._note_headroom(boundary, has_census=census is not None)
        self._guard.call("tracemalloc", None, self._trace, boundary, census, gauges, closing)
        self._guard.call("history", None, self._keep_history, boundary, gauges, ends_history)
        if census is not None:
            self._keep_sources()
            self._keep_account(boundary)
            with self._charged("gauges"):
                self._guard.call("own memory", None, self._own_memory.charge, gauges)
        return Due.RECORD if census is None else _done(census)

    def spare(self, *, reads_ahead: bool) -> None:
        """Take less of the program's time; with ``reads_ahead`` our thread reads some gauges."""
        self._slow.part, self._slow.reads_ahead = policy.SERVED_SLOW_PART, reads_ahead

    def read_ahead(self, now: float) -> None:
        """Read what is slow to read for the next boundary, while the program goes on."""
        self._costs.note("gauges", self._slow.read_ahead(now))

    def uncounted_seconds(self, done: Due) -> float:
        """Return the seconds that say nothing of the next time: slow gauges are read at few."""
        return self._slow.last_seconds if done is Due.RECORD else 0.0

    def note(self, slug: str, message: str, boundary: int) -> None:
        """Write something that the report should mention."""
        self._writer.write(NoteRecord(slug=slug, message=message, boundary=boundary))

    def census_of_failure(
        self, available: int | None, unwound: Sequence[FrameType] = ()
    ) -> Census | None:
        """Return a census for an out-of-memory error, as full as there is room for; else None."""
        for scope in self._bearable(available):
            with self._charged("census"):
                census = self._guard.call("census", None, self._taker.take, scope, unwound)
            if census is not None:
                self._censuses += 1
                self._keep_seal(census)
                return census
        return None

    def snapshot(self, boundary: Boundary, *, at_once: bool) -> None:
        """Take a census that the user requested: outside all series, and not out of the budget."""
        began = self._clock()
        gauges = self._read((*self._fast, *self._slow.probes))
        gauges.update(self._own_memory.peak(gauges))
        headroom = Headroom()
        headroom.learn(gauges, gauges.get(gauge.RSS, 0))
        taken = (
            self._guard.call("census", None, self._taker.take_aside, scope)
            for scope in self._bearable(headroom.left(gauges.get(gauge.RSS, 0)))
            if can_stand_still()
        )
        census = next((each for each in taken if each is not None), None)
        self._keep_seal(census)
        record = SnapshotRecord(
            boundary=boundary,
            gauges=gauges,
            census=census,
            no_census="" if census else "there was no room or no time for one",
            at_once=at_once,
            seconds=self._clock() - began,
        )
        self._writer.write(record, sync=True)
        self._keep_sources()
        self._guard.call("own memory", None, self._own_memory.charge, gauges)
        self._costs.note("on request", self._clock() - began)

    def keep_failure(self, record: OutOfMemoryRecord) -> None:
        """Write down that memory ran out, and wait for the disk."""
        with self._charged("recording"):
            self._writer.write(record, sync=True)
        if record.census is not None:
            self._keep_sources()

    def abandon(self, boundary: Boundary) -> None:
        """Trace nothing any more: nothing can be written down."""
        self._guard.call("tracemalloc", None, self.windows.end, boundary)
        if self._history.is_open:
            self._guard.call("history", None, self._history.close)

    def finish(self, boundary: Boundary) -> None:
        """Write what is only known at the end."""
        self._guard.call("history", None, self._history.close)
        with self._charged("tracemalloc"):
            whole = self._guard.call("tracemalloc", None, self.windows.end, boundary)
        if whole is not None:
            self._writer.write(whole)
        self._next_overhead = 0.0
        self._keep_account(boundary)

    def _bearable(self, available: int | None) -> list[CensusScope]:
        return [
            _scope(due)
            for due in (self._costs.full, Due.FOCUSED)
            if self._costs.expect(due) <= PATIENCE_SECONDS and self._fits(due, available)
        ]

    # Gauges

    def _read_gauges(self, boundary: Boundary, due: Due) -> dict[str, int]:
        """Read every gauge that is quick to read, and others whose turn it is; at the end every
        one.
        """
        gauges: dict[str, int] = {}
        between = boundary.kind not in INSIDE
        everything = boundary.kind is BoundaryKind.RUN_END
        with self._charged("gauges"):
            gauges.update(self._guard.call("collections", {}, self.collections))
            by_time = self._by_time if boundary.kind is BoundaryKind.TIME else ()
            gauges.update(self._read((*self._fast, *by_time)))
            self.resident = gauges.get(gauge.RSS, self.resident)
            gauges.update(self._own_memory.peak(gauges))
            everything = everything or self._headroom.is_running_out(self.resident)
            slow = self._slow.read(boundary.time_s, everything=everything, between=between)
            gauges.update(slow)
        self._headroom.learn(gauges, self.resident)
        self.gauges = gauges
        return gauges

    def _read(self, probes: Iterable[Reader]) -> dict[str, int]:
        gauges: dict[str, int] = {}
        for probe in probes:
            gauges.update(self._guard.call(f"probe {probe.name}", {}, probe.gauges))
        return gauges

    def _read_again(self, boundary: Boundary, gauges: dict[str, int]) -> None:
        """Replace what was read of memory before the collector freed what the census misses."""
        with self._charged("gauges"):
            gauges.update(self._read(probe for probe in self._fast if probe.name in _AFFECTED))
            gauges.update(self._slow.read_again(boundary.time_s))
            self.resident = gauges.get(gauge.RSS, self.resident)
            gauges.update(self._own_memory.peak(gauges))

    # Census

    @property
    def _left(self) -> int | None:
        return self._headroom.left(self.resident)

    def _keep_seal(self, census: Census | None) -> None:
        if census is not None and census.scope is CensusScope.FULL:
            self._costs.is_sealed = census.sealed > 0

    def objects_of(self, due: Due) -> int:
        """Return how many objects the latest census of a kind met, 0 where there was none."""
        return self._objects.get(min(due, Due.WHOLE), 0)

    def _fits(self, due: Due, available: int | None) -> bool:
        objects = self._objects.get(min(due, Due.WHOLE))
        if objects is None:
            needed = SPARE_UNKNOWN * sys.getallocatedblocks() * BYTES_PER_OBJECT
        else:
            needed = SPARE_MEMORY * objects * BYTES_PER_OBJECT
        return available is None or available >= needed

    def _is_paused(self, boundary: Boundary) -> bool:
        """Say whether no other thread goes on while a census looks at its objects."""
        if can_stand_still():
            return True
        if not self._knows_threads:
            self._knows_threads = True
            self.note(
                CENSUS_SKIPPED,
                "Without the native walker the program's threads go on while leakscope's looks at "
                "their objects: at boundaries by time no census was taken.",
                boundary.index,
            )
        return False

    def _has_room(self, boundary: Boundary, due: Due) -> bool:
        if self._fits(due, self._left):
            return True
        if not self._poor:
            self._poor = True
            self.note(
                "census-skipped-memory",
                f"Only {_mib(self._left)} of memory were left: censuses were left out there.",
                boundary.index,
            )
        return False

    def _note_headroom(self, boundary: Boundary, *, has_census: bool) -> None:
        text = f"Only {_mib(self._left)} of memory were left after {boundary.time_s:.1f} s"
        taken = "a census was taken there, in case the kernel ends the program."
        none = "too little for a census, in case the kernel ends the program."
        self.note("memory-low", f"{text}: {taken if has_census else none}", boundary.index)

    def _take_census(self, boundary: Boundary, due: Due, gauges: dict[str, int]) -> Census | None:
        if not self._is_paused(boundary) or not self._has_room(boundary, due):
            return None
        with self._charged("census"):
            if due is Due.CHECK and not self.unwound:
                census = self._guard.call("census", None, self._taker.take_checked)
            else:
                take = self._taker.take
                census = self._guard.call("census", None, take, _scope(due), self.unwound)
        if census is None:
            return None
        self._censuses += 1
        self._objects[min(_done(census), Due.WHOLE)] = census.objects
        self._keep_seal(census)
        own = gauges[gauge.OWN] = self._own_bytes()
        self._own_peak = max(self._own_peak, own)
        with self._charged("recording"):
            self._writer.write(CensusRecord(boundary=boundary.index, census=census))
        self._guard.call("devices", None, self._record_devices, boundary)
        return census

    def _record_devices(self, boundary: Boundary) -> None:
        """Write down the devices' blocks; one by one, with their storages, now and then and at the
        end.
        """
        is_due = boundary.time_s >= self._next_blocks or boundary.kind is BoundaryKind.RUN_END
        with self._charged("gauges"):
            records = list(self._devices(with_blocks=is_due))
            if is_due and records:
                self._next_blocks = boundary.time_s + max(
                    BLOCKS_EVERY_SECONDS, BLOCKS_EVERY_SHARE * boundary.time_s
                )
            found = self._taker.device_storages()
            storages = {of_device.device: of_device for of_device in found}
            for record in records:
                if isinstance(record, BlockListRecord):
                    record.storages = storages.get(record.device)
                record.boundary = boundary.index
                self._writer.write(record)

    def _keep_sources(self) -> None:
        with self._charged("recording"):
            named = self._sources.new(self._guard.call("sources", set(), self._taker.source_files))
            for record in (*named, *self._guard.call("sources", (), self._sources.new_cells)):
                self._writer.write(record)

    # Allocations

    def _trace(
        self, boundary: Boundary, census: Census | None, gauges: dict[str, int], closing: bool
    ) -> None:
        if closing:
            with self._charged("tracemalloc"):
                record = self.windows.close(boundary)
            self._writer.write(record)
        elif census is not None:
            self.windows.learn(boundary, census, gauges)
        with self._charged("tracemalloc"):
            self.windows.open_here(boundary)

    def _keep_history(self, boundary: Boundary, gauges: dict[str, int], ends: bool) -> None:
        with self._charged("gauges"):
            if ends:
                self._history.close()
            self._history.learn(boundary, gauges)
            self._history.open_here(boundary)

    # Our own account

    def _own_bytes(self) -> int:
        taker = self._guard.call("census", 0, lambda: self._taker.own_bytes)
        watch = self.windows.growth.own_bytes
        return taker + watch + self.sampling_bytes() + _FIXED_BYTES

    def _keep_account(self, boundary: Boundary) -> None:
        if boundary.time_s < self._next_overhead:
            return
        # Each record replaces the one before, so a few per octave of the run are enough.
        self._next_overhead = boundary.time_s + max(OVERHEAD_EVERY_SECONDS, boundary.time_s / 50)
        self._writer.write(
            OverheadRecord(
                boundary=boundary.index,
                seconds=dict(self._costs.seconds),
                censuses=self._censuses,
                boundaries=boundary.index + 1,
                recorded_boundaries=self._recorded,
                own_bytes=self._own_bytes(),
                own_peak_bytes=self._own_peak,
                put_off=dict(self._put_off),
                postponed_by_budget=self._pauses.postponed,
                left_out_by_pause=self._pauses.left_out,
                made_cheaper_by_pause=self._pauses.made_cheaper,
            )
        )
        calls = self._guard.call("collections", self._cleaned, self.cleaning)
        if calls != self._cleaned:
            self._cleaned = calls
            self._writer.write(CleaningCallsRecord(boundary=boundary.index, calls=calls))
        for registries in self._registries:
            latest = self._guard.call("registries", self._entries, registries.latest)
            entries = {name: [*map(redact_text, names)] for name, names in latest.items()}
            if entries != self._entries:
                self._entries = entries
                record = RegistryEntriesRecord(boundary=boundary.index, entries=entries)
                self._writer.write(record)

    @contextmanager
    def _charged(self, activity: str) -> Iterator[None]:
        began = self._cost_clock()
        try:
            yield
        finally:
            self._costs.spend(activity, self._cost_clock() - began)


_FIXED_BYTES = 200_000
"""Schedule, phases, probes and writer: bounded tables of some hundred entries."""


def _mib(size: int | None) -> str:
    return f"{(size or 0) >> 20} MiB"


def _scope(due: Due) -> CensusScope:
    return CensusScope.FOCUSED if due is Due.FOCUSED else CensusScope.FULL


def _done(census: Census) -> Due:
    if census.scope is CensusScope.FOCUSED:
        return Due.FOCUSED
    if census.drift_bytes is not None:
        return Due.CHECK
    return Due.WHOLE if census.whole else Due.FULL


class WorkerFollower(Protocol):
    """What :class:`leakscope.capture.workers.WorkerHooks` offers."""

    def install(self) -> None:
        """Begin to follow the program's other processes."""

    def uninstall(self) -> None:
        """Follow them no more."""

    def follow(self, session: Any) -> None:
        """Have later workers record in the directory of this session."""

    def ended(self) -> list[ProcessEndRecord]:
        """Return the processes that have ended by themselves since the last time."""

    def unrecorded(self) -> str:
        """Return that other processes did the program's work, if they did, in a sentence."""


LOW_SHARE = 0.1
"""Headroom is low when less is left than this part of what the process has, or of all that it
could have where it has little yet."""
MOST_FLOOR = 256 << 20


class Headroom:
    """Tells what is left of memory, and when a census may be the last one there is room for.

    Limits are read only now and then; in between, resident memory tells how much has gone.
    """

    def __init__(self) -> None:
        self._reported_at = inf
        self._left: dict[str, tuple[int, int]] = {}

    def learn(self, gauges: dict[str, int], resident: int) -> None:
        """Take note of what the limits leave, as far as it was read, and of resident bytes then."""
        if gauge.SYSTEM_AVAILABLE in gauges:
            self._left["machine"] = gauges[gauge.SYSTEM_AVAILABLE], resident
        if gauge.CGROUP_LIMIT in gauges and gauge.CGROUP_USED in gauges:
            left = gauges[gauge.CGROUP_LIMIT] - gauges[gauge.CGROUP_USED]
            self._left["cgroup"] = left, resident

    def left(self, resident: int) -> int | None:
        """Return the bytes that the tightest limit leaves now; None if nothing is known."""
        known = (left - max(0, resident - before) for left, before in self._left.values())
        least = min(known, default=None)
        return None if least is None else max(0, least)

    def is_running_out(self, resident: int) -> bool:
        """Return whether headroom is under the threshold now, or has halved since last reported."""
        left = self.left(resident)
        if left is None:
            return False
        return left < threshold(left, resident) and 2 * left <= self._reported_at

    def reported(self, resident: int) -> None:
        """Remember the warning: one per halving, so some twenty in a run at most."""
        self._reported_at = max(1, self.left(resident) or 0)


def threshold(available: int, resident: int) -> float:
    """Return the bytes under which headroom is low."""
    return LOW_SHARE * max(resident, min(MOST_FLOOR / LOW_SHARE, resident + available))
