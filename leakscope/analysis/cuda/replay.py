"""A device's history played back: what was live at any entry of its trace, exactly.

The trace is a ring that may begin in the middle of the run, so the state before its first entry
comes from undoing all of it on the state at the end. From there it is played forwards. Blocks are
counted by what was requested, which the trace tells; where blocks lie in their segments, and thus
every hole, follows from their addresses.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from leakscope.analysis.cuda.regions import Held, MapOfMemory
from leakscope.model.allocator import BlockState, Entry, Segment, Snapshot

ALLOC = "alloc"
FREE_REQUESTED = "free_requested"
FREE_COMPLETED = "free_completed"
SEGMENT_ALLOC = "segment_alloc"
SEGMENT_FREE = "segment_free"
SEGMENT_MAP = "segment_map"
SEGMENT_UNMAP = "segment_unmap"
OOM = "oom"
SNAPSHOT = "snapshot"
ACTIONS = frozenset(
    {ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP}
    | {OOM, SNAPSHOT}
)
_GAINS = {SEGMENT_ALLOC, SEGMENT_MAP}
_LOSSES = {SEGMENT_FREE, SEGMENT_UNMAP}


@dataclass
class Replay:
    """The history of one device."""

    device: int
    entries: list[Entry]
    final: list[Segment]
    start: dict[int, Held] = field(default_factory=dict)
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

    def state_after(self, index: int) -> list[Segment]:
        """Return the segments with their blocks as they stood after an entry; -1 is the start."""
        held = {address: _copy(was) for address, was in self.start.items()}
        memory = self._memory_at_start()
        frees_at_once = not _has(self.entries, FREE_REQUESTED)
        for number, entry in enumerate(self.entries[: index + 1]):
            _apply(entry, number, held, frees_at_once)
            memory.apply(entry, _GAINS, _LOSSES)
        return memory.segments(held)

    def _memory_at_start(self) -> MapOfMemory:
        memory = MapOfMemory(self.device, self.final)
        for entry in reversed(self.entries):
            memory.apply(entry, _LOSSES, _GAINS)
        return memory


def replay(snapshot: Snapshot, device: int) -> Replay:
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
    held = {
        block.address: Held(block.requested, block.state, block.stack, block.size)
        for segment in played.final
        for block in segment.blocks
        if block.state is not BlockState.FREE
    }
    frees_at_once = not _has(played.entries, FREE_REQUESTED)
    for entry in reversed(played.entries):
        address = entry.address
        if entry.action == ALLOC:
            if held.pop(address, None) is None:
                played.conflicts += 1
        elif entry.action == FREE_COMPLETED:
            played.conflicts += address in held
            state = BlockState.ALLOCATED if frees_at_once else BlockState.PENDING
            held[address] = Held(entry.size, state, None)
        elif entry.action == FREE_REQUESTED:
            was = held.get(address)
            if was is None or was.state is not BlockState.PENDING:
                played.conflicts += 1
                was = held[address] = Held(entry.size, BlockState.ALLOCATED, None)
            was.state = BlockState.ALLOCATED
    played.start = held


def _play(played: Replay) -> None:
    live = played.start_live
    reserved = sum(segment.size for segment in played.final) - sum(
        entry.size if entry.action in _GAINS else -entry.size
        for entry in played.entries
        if entry.action in _GAINS or entry.action in _LOSSES
    )
    births = played.births
    gone = FREE_REQUESTED if _has(played.entries, FREE_REQUESTED) else FREE_COMPLETED
    for number, entry in enumerate(played.entries):
        action = entry.action
        if action == ALLOC:
            live += entry.size
            births[entry.address] = number
        elif action == gone:
            live -= entry.size
            births.pop(entry.address, None)
        elif action in _GAINS:
            reserved += entry.size
        elif action in _LOSSES:
            reserved -= entry.size
        played.live.append(live)
        played.reserved.append(reserved)


def _apply(entry: Entry, number: int, held: dict[int, Held], frees_at_once: bool) -> None:
    if entry.action == ALLOC:
        held[entry.address] = Held(entry.size, BlockState.ALLOCATED, entry.stack, born=number)
    elif entry.action == FREE_COMPLETED:
        held.pop(entry.address, None)
    elif entry.action == FREE_REQUESTED and not frees_at_once:
        was = held.get(entry.address)
        if was is not None:
            was.state = BlockState.PENDING


def _copy(held: Held) -> Held:
    return Held(held.requested, held.state, held.stack, held.size, held.born)


def _has(entries: list[Entry], action: str) -> bool:
    return any(entry.action == action for entry in entries)
