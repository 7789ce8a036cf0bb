"""A device's history played back: what was live at any entry of its trace, exactly.

The trace is a ring that may begin in the middle of the run, so the state before its first entry
comes from undoing all of it on the state at the end. Also: what the program was doing at each
entry, and live and reserved bytes along the trace, thinned without losing a peak.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from leakscope.analysis.allocator.classes import kind_of
from leakscope.analysis.allocator.segments import sums_of
from leakscope.model.device import (
    DEFAULT_POOL,
    UNKNOWN_POOL,
    AllocatorSnapshot,
    Annotation,
    Block,
    BlockState,
    HistoryEntry,
    Segment,
    Stack,
)
from leakscope.model.explanation import BlockClass, DeviceCourse, DevicePhaseRow, Fault
from leakscope.model.report import PhaseSpan

ALLOC = "alloc"
FREE_REQUESTED = "free_requested"
FREE_COMPLETED = "free_completed"
SEGMENT_ALLOC = "segment_alloc"
SEGMENT_FREE = "segment_free"
SEGMENT_MAP = "segment_map"
SEGMENT_UNMAP = "segment_unmap"
OOM = "oom"
SNAPSHOT = "snapshot"
GAINS = frozenset({SEGMENT_ALLOC, SEGMENT_MAP})
LOSSES = frozenset({SEGMENT_FREE, SEGMENT_UNMAP})
ACTIONS = GAINS | LOSSES | {ALLOC, FREE_REQUESTED, FREE_COMPLETED, OOM, SNAPSHOT}


@dataclass
class Replay:
    """The history of one device."""

    device: int
    entries: list[HistoryEntry]
    final: list[Segment]
    start: dict[int, LiveAllocation] = field(default_factory=dict)
    """What was live before the first entry, by address."""
    conflicts: int = 0
    """Entries that contradict the state: none in a file that torch wrote."""
    live: list[int] = field(default_factory=list)
    """Requested bytes live after each entry, pending ones left out."""
    reserved: list[int] = field(default_factory=list)
    """Bytes held from the driver after each entry."""
    births: dict[int, int] = field(default_factory=dict)
    """The entry that allocated what is live at the end, by address."""

    @property
    def start_live(self) -> int:
        """Requested bytes live before the first entry."""
        return sum(h.requested for h in self.start.values() if h.state is BlockState.ALLOCATED)

    @property
    def peak(self) -> int | None:
        """The entry after which most was live; None where the trace allocates nothing."""
        if not any(entry.action == ALLOC for entry in self.entries):
            return None
        return max(range(len(self.live)), key=self.live.__getitem__)

    @property
    def frees_at_once(self) -> bool:
        """Whether the trace tells of frees alone, and not of requests to free."""
        return not any(entry.action == FREE_REQUESTED for entry in self.entries)

    def state_after(self, index: int) -> list[Segment]:
        """Return the segments with their blocks as they stood after an entry; -1 is the start."""
        live = {address: replace(was) for address, was in self.start.items()}
        memory = MapOfMemory(self.device, self.final)
        for entry in reversed(self.entries):
            memory.apply(entry, LOSSES, GAINS)
        frees_at_once = self.frees_at_once
        for number, entry in enumerate(self.entries[: index + 1]):
            _apply(entry, number, live, frees_at_once)
            memory.apply(entry, GAINS, LOSSES)
        return memory.segments(live)


def replay(snapshot: AllocatorSnapshot, device: int) -> Replay:
    """Return a device's history, undone once and played once; sets when each live block was born.

    Takes time in proportion to the trace; a state at a moment costs as much again.
    """
    final = [segment for segment in snapshot.segments if segment.device == device]
    played = Replay(device, snapshot.traces.get(device, []), final)
    _undo(played)
    _play(played)
    for segment in final:
        for block in segment.blocks:
            if block.state is not BlockState.FREE:
                block.born = played.births.get(block.address)
    return played


def _undo(played: Replay) -> None:
    live = {
        block.address: LiveAllocation(block.requested, block.state, block.stack, block.size)
        for segment in played.final
        for block in segment.blocks
        if block.state is not BlockState.FREE
    }
    frees_at_once = played.frees_at_once
    for entry in reversed(played.entries):
        address = entry.address
        if entry.action == ALLOC:
            if live.pop(address, None) is None:
                played.conflicts += 1
        elif entry.action == FREE_COMPLETED:
            played.conflicts += address in live
            state = BlockState.ALLOCATED if frees_at_once else BlockState.PENDING
            live[address] = LiveAllocation(entry.size, state, None)
        elif entry.action == FREE_REQUESTED:
            was = live.get(address)
            if was is None or was.state is not BlockState.PENDING:
                played.conflicts += 1
                was = live[address] = LiveAllocation(entry.size, BlockState.ALLOCATED, None)
            was.state = BlockState.ALLOCATED
    played.start = live


def _play(played: Replay) -> None:
    live = played.start_live
    reserved = sum(segment.size for segment in played.final) - sum(
        entry.size if entry.action in GAINS else -entry.size
        for entry in played.entries
        if entry.action in GAINS or entry.action in LOSSES
    )
    births = played.births
    gone = FREE_COMPLETED if played.frees_at_once else FREE_REQUESTED
    for number, entry in enumerate(played.entries):
        action = entry.action
        if action == ALLOC:
            live += entry.size
            births[entry.address] = number
        elif action == gone:
            live -= entry.size
            births.pop(entry.address, None)
        elif action in GAINS:
            reserved += entry.size
        elif action in LOSSES:
            reserved -= entry.size
        played.live.append(live)
        played.reserved.append(reserved)


def _apply(
    entry: HistoryEntry, number: int, live: dict[int, LiveAllocation], frees_at_once: bool
) -> None:
    if entry.action == ALLOC:
        live[entry.address] = LiveAllocation(
            entry.size, BlockState.ALLOCATED, entry.stack, born=number
        )
    elif entry.action == FREE_COMPLETED:
        live.pop(entry.address, None)
    elif entry.action == FREE_REQUESTED and not frees_at_once:
        was = live.get(entry.address)
        if was is not None:
            was.state = BlockState.PENDING


ROUNDING = 512
"""Blocks are multiples of it."""
UNSPLIT = 1 << 20
"""In a segment of large blocks, a rest of up to this stays part of the block before it."""
SMALL_SEGMENT = 2 << 20
_EXPANDING = ("segment_map", "segment_unmap")


@dataclass(slots=True)
class LiveAllocation:
    """An allocation that is live at a moment: ``size`` is its block's where that is known."""

    requested: int
    state: BlockState
    stack: Stack | None
    size: int = 0
    born: int | None = None

    @property
    def least_size(self) -> int:
        """What its block has at least."""
        return self.size or max(ROUNDING, -(-self.requested // ROUNDING) * ROUNDING)

    def to_block(self, address: int, size: int) -> Block:
        """Return the block that it takes."""
        return Block(address, size, self.requested, self.state, self.stack, self.born)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Whose memory a stretch is: only its own kind is ever taken from it."""

    stream: int
    pool: tuple[int, int]
    is_small: bool
    is_expandable: bool


@dataclass(frozen=True, slots=True)
class _Region:
    start: int
    end: int
    kind: _Kind


class MapOfMemory:
    """Which stretches of address space a device holds from the driver."""

    def __init__(self, device: int, segments: Collection[Segment]) -> None:
        self.device = device
        self._regions: dict[int, _Region] = {}
        self._starts_by_end: dict[int, int] = {}
        for segment in segments:
            kind = _Kind(segment.stream, segment.pool, segment.is_small, segment.is_expandable)
            self._keep(_Region(segment.address, segment.address + segment.size, kind))
        self._kinds = sorted(self._regions.values(), key=lambda region: region.start)
        self._starts = [region.start for region in self._kinds]

    def apply(self, entry: HistoryEntry, gains: Collection[str], losses: Collection[str]) -> None:
        """Take in what an entry gains or loses; the undoing of an entry swaps the two."""
        if entry.action in gains:
            self._add(entry)
        elif entry.action in losses:
            self._remove(entry.address, entry.address + entry.size)

    def segments(self, live: Mapping[int, LiveAllocation]) -> list[Segment]:
        """Return the segments with the live blocks and the holes between them."""
        regions = sorted(self._regions.values(), key=lambda region: region.start)
        starts = [region.start for region in regions]
        inside: list[list[int]] = [[] for _ in regions]
        astray: list[int] = []
        for address in sorted(live):
            place = bisect_right(starts, address) - 1
            fits = place >= 0 and address < regions[place].end
            (inside[place] if fits else astray).append(address)
        found = [
            self._segment(region, addresses, live)
            for region, addresses in zip(regions, inside, strict=True)
        ]
        # Only a damaged history has live blocks outside of any segment.
        return found + [self._stray(address, live[address]) for address in astray]

    def _add(self, entry: HistoryEntry) -> None:
        start, end = entry.address, entry.address + entry.size
        kind = self._kind_at(entry)
        if kind.is_expandable:
            before = self._regions.get(self._starts_by_end.get(start, -1))
            after = self._regions.get(end)
            if before is not None and before.kind == kind and before.end == start:
                start = before.start
            if after is not None and after.kind == kind:
                del self._regions[after.start]
                end = after.end
        self._keep(_Region(start, end, kind))

    def _remove(self, start: int, end: int) -> None:
        known = self._regions.get(start)
        if known is not None and known.end == end:
            del self._regions[start]
            return
        for region in [r for r in self._regions.values() if r.start < end and start < r.end]:
            del self._regions[region.start]
            if region.start < start:
                self._keep(replace(region, end=start))
            if end < region.end:
                self._keep(replace(region, start=end))

    def _keep(self, region: _Region) -> None:
        self._regions[region.start] = region
        self._starts_by_end[region.end] = region.start

    def _kind_at(self, entry: HistoryEntry) -> _Kind:
        expandable = entry.action in _EXPANDING
        place = bisect_right(self._starts, entry.address) - 1
        at_the_end = self._kinds[place] if place >= 0 else None
        if at_the_end is not None and entry.address < at_the_end.end:
            kind = at_the_end.kind
            if (kind.stream, kind.is_expandable) == (entry.stream, expandable):
                return kind
        # Expandable segments grow in steps of 2 MiB for small and 20 MiB for large blocks.
        is_small = entry.size == SMALL_SEGMENT
        return _Kind(entry.stream, entry.pool or DEFAULT_POOL, is_small, expandable)

    def _segment(
        self, region: _Region, addresses: list[int], live: Mapping[int, LiveAllocation]
    ) -> Segment:
        blocks: list[Block] = []
        end = region.start
        for place, address in enumerate(addresses):
            if address > end:
                blocks.append(Block(end, address - end, 0, BlockState.FREE))
            beyond = addresses[place + 1] if place + 1 < len(addresses) else region.end
            blocks.append(_block(address, live[address], beyond, region.kind))
            end = address + blocks[-1].size
        if end < region.end:
            blocks.append(Block(end, region.end - end, 0, BlockState.FREE))
        return _totalled(self.device, region, blocks)

    def _stray(self, address: int, allocation: LiveAllocation) -> Segment:
        kind = _Kind(0, UNKNOWN_POOL, False, False)
        block = allocation.to_block(address, allocation.least_size)
        return _totalled(self.device, _Region(address, address, kind), [block])


def _block(address: int, allocation: LiveAllocation, beyond: int, kind: _Kind) -> Block:
    size = allocation.least_size
    rest = beyond - address - size
    keeps_rest = not allocation.size and not kind.is_small and not kind.is_expandable
    if rest < 0 or (keeps_rest and rest <= UNSPLIT):
        size += rest
    return allocation.to_block(address, size)


def _totalled(device: int, region: _Region, blocks: list[Block]) -> Segment:
    size, kind = region.end - region.start, region.kind
    where = (device, region.start, size, kind.stream, kind.pool)
    return Segment(*where, kind.is_small, kind.is_expandable, blocks, *sums_of(blocks))


STEP = "Optimizer.step"
_MARKS = (
    (STEP, "optimizer"),
    ("Optimizer.zero_grad", "zero_grad"),
    ("enumerate(DataLoader)", "data loading"),
)
_COMPILING = ("(dynamo_timed)", "CachingAutotuner", "pad_mm_benchmark")
_TELLING = {
    BlockClass.ACTIVATIONS: "forward",
    BlockClass.BACKWARD: "backward",
    BlockClass.OPTIMIZER: "optimizer",
}
OTHER = "other"
DEEPEST = 500
"""Marks nested deeper are left out: a file may begin what it never ends."""
_BY_NEED = {ALLOC, SEGMENT_ALLOC, SEGMENT_MAP}
"""Entries whose stack is of the code that runs; a free may come from anywhere."""


@dataclass(frozen=True)
class PhaseStretch:
    """Neighbouring entries of one phase: from the first up to, not with, the last."""

    phase: str
    first: int
    last: int


def stretches_of(played: Replay, annotations: Sequence[Annotation]) -> list[PhaseStretch]:
    """Return the phases of a trace, in order; they cover it without a gap."""
    marked = _Marked(annotations)
    stretches: list[PhaseStretch] = []
    phase = OTHER
    for number, entry in enumerate(played.entries):
        kind = kind_of(entry.stack) if entry.action in _BY_NEED else None
        now = marked.phase_at(entry) or (_TELLING.get(kind) if kind else None) or phase
        if not stretches or now != phase:
            stretches.append(PhaseStretch(now, number, number + 1))
        else:
            stretches[-1] = PhaseStretch(now, stretches[-1].first, number + 1)
        phase = now
    return stretches


def phase_rows(played: Replay, stretches: Sequence[PhaseStretch]) -> list[DevicePhaseRow]:
    """Return memory per phase, in the order in which the phases first began."""
    return [
        _row(played, phase, [s for s in stretches if s.phase == phase])
        for phase in dict.fromkeys(stretch.phase for stretch in stretches)
    ]


def phase_at(stretches: Sequence[PhaseStretch], entry: int) -> str:
    """Return the phase of an entry."""
    return next((s.phase for s in stretches if s.first <= entry < s.last), "")


def ends_of_steps(
    played: Replay, stretches: Sequence[PhaseStretch], annotations: Sequence[Annotation]
) -> list[int]:
    """Return the last entry of each optimizer step, found by marks or else by stacks."""
    ends = [m.time_us for m in annotations if m.name.startswith(STEP) and not m.is_start]
    times = [entry.time_us for entry in played.entries]
    if not ends or None in times:
        return [s.last - 1 for s in stretches if s.phase == "optimizer"]
    known = [time for time in times if time is not None]
    return [bisect_right(known, end) - 1 for end in ends if known and known[0] <= end]


class _Marked:
    """Which marked stretch a moment lies in; the innermost that is known wins."""

    def __init__(self, annotations: Sequence[Annotation]) -> None:
        self._times: list[int] = []
        self._phases: list[str] = []
        open_names: list[str] = []
        for mark in annotations:
            if mark.is_start and mark.name and len(open_names) < DEEPEST:
                open_names.append(mark.name)
            elif mark.name in open_names:
                del open_names[len(open_names) - 1 - open_names[::-1].index(mark.name)]
            self._times.append(mark.time_us)
            phases = map(_phase_of_mark, reversed(open_names))
            self._phases.append(next(filter(None, phases), ""))

    def phase_at(self, entry: HistoryEntry) -> str:
        if entry.time_us is None or not self._times:
            return ""
        place = bisect_right(self._times, entry.time_us) - 1
        return self._phases[place] if place >= 0 else ""


def _phase_of_mark(name: str) -> str:
    if any(part in name for part in _COMPILING):
        return "compilation"
    return next((phase for start, phase in _MARKS if name.startswith(start)), name)


def _row(played: Replay, phase: str, inside: Sequence[PhaseStretch]) -> DevicePhaseRow:
    entries, live = played.entries, played.live
    times = [_seconds(entries, stretch) for stretch in inside]
    known = [seconds for seconds in times if seconds is not None]
    return DevicePhaseRow(
        phase=phase,
        stretches=len(inside),
        allocated_bytes=sum(
            e.size for s in inside for e in entries[s.first : s.last] if e.action == ALLOC
        ),
        peak_bytes=max(max(live[s.first : s.last]) for s in inside),
        kept_bytes=sum(
            live[s.last - 1] - (played.live[s.first - 1] if s.first else played.start_live)
            for s in inside
        ),
        seconds=sum(known) if len(known) == len(times) else None,
    )


def _seconds(entries: Sequence[HistoryEntry], stretch: PhaseStretch) -> float | None:
    begin = entries[stretch.first].time_us
    end = entries[min(stretch.last, len(entries) - 1)].time_us
    return None if begin is None or end is None else max(0, end - begin) / 1e6


MOST_POINTS = 700
SECONDS, ENTRIES = "s", "entry"
SHORTEST_SPAN = 1 / 400
"""Phases that take less of the picture than this aren't shaded."""


def course_of(
    played: Replay, stretches: Sequence[PhaseStretch], fault: Fault | None
) -> DeviceCourse | None:
    """Return the course of a trace; None where there is nothing to draw."""
    if len(played.live) < 2:
        return None
    places = _trace_seconds(played)
    peak = played.peak
    return DeviceCourse(
        unit=SECONDS if _has_times(played) else ENTRIES,
        live=_thinned(places, played.live),
        reserved=_thinned(places, played.reserved),
        spans=_spans(places, stretches),
        peak=None if peak is None else (places[peak], played.live[peak]),
        fault=_fault(played, places, fault),
        thinned_from=len(places) if len(places) > MOST_POINTS else None,
    )


def seconds_at(played: Replay, entry: int) -> float | None:
    """Return when an entry was written, from the first on; None without times."""
    return _trace_seconds(played)[entry] if _has_times(played) else None


def _has_times(played: Replay) -> bool:
    return bool(played.entries) and all(e.time_us is not None for e in played.entries)


def _trace_seconds(played: Replay) -> list[float]:
    times = [entry.time_us for entry in played.entries if entry.time_us is not None]
    if len(times) < len(played.entries) or not times:
        return [float(number) for number in range(len(played.entries))]
    return [(time - times[0]) / 1e6 for time in times]


def _thinned(places: Sequence[float], values: Sequence[int]) -> list[tuple[float, int]]:
    """Keep the first, the highest and the last of each of so many stretches."""
    if len(values) <= MOST_POINTS:
        return list(zip(places, values, strict=True))
    kept: set[int] = {0, len(values) - 1}
    count = MOST_POINTS // 3
    for part in range(count):
        first, last = part * len(values) // count, (part + 1) * len(values) // count
        kept |= {first, last - 1, max(range(first, last), key=values.__getitem__)}
    return [(places[number], values[number]) for number in sorted(kept)]


def _spans(places: Sequence[float], stretches: Sequence[PhaseStretch]) -> list[PhaseSpan]:
    whole = places[-1] - places[0]
    seen: dict[str, int] = {}
    spans = []
    for stretch in stretches:
        phase, begin = stretch.phase, places[stretch.first]
        end = places[min(stretch.last, len(places) - 1)]
        seen[phase] = occurrence = seen.get(phase, 0) + 1
        if phase != OTHER and end - begin >= SHORTEST_SPAN * whole:
            span = PhaseSpan(phase=phase, occurrence=occurrence, epoch=0, start_s=begin, end_s=end)
            spans.append(span)
    return spans


def _fault(
    played: Replay, places: Sequence[float], fault: Fault | None
) -> tuple[float, int] | None:
    if fault is None or fault.entry is None or fault.request is None:
        return None
    return places[fault.entry], played.live[fault.entry] + fault.request
