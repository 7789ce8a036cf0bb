"""A recorded list of blocks as the segments that the analysis of snapshots works on."""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.analysis.cuda.figures import figures_of
from leakscope.model.allocator import Block, BlockState, Frame, Segment, Stack
from leakscope.model.blocks import FREE, LIVE, PENDING, BlockRow, SegmentRow
from leakscope.model.device import Figures
from leakscope.model.record import BlockListRecord
from leakscope.model.run import Recording

_STATES = {FREE: BlockState.FREE, LIVE: BlockState.ALLOCATED, PENDING: BlockState.PENDING}


@dataclass(frozen=True)
class DeviceState:
    """One device at the moment of a list."""

    record: BlockListRecord
    segments: list[Segment]
    figures: Figures


def highest_states(recording: Recording) -> dict[str, DeviceState]:
    """Return each device at the list with most live bytes; of equals the latest."""
    found: dict[str, DeviceState] = {}
    for record in recording.block_lists:
        state = state_of(record)
        known = found.get(record.device)
        if known is None or state.figures.active >= known.figures.active:
            found[record.device] = state
    return dict(sorted(found.items()))


def state_of(record: BlockListRecord) -> DeviceState:
    """Return a device at the moment of a list."""
    stacks = [Stack(tuple(Frame(f.file, f.line, f.name) for f in rows)) for rows in record.stacks]
    number = record.device.rpartition(":")[2]
    device = int(number) if number.isascii() and number.isdigit() else 0
    segments = [_segment(row, device, stacks) for row in record.segments]
    return DeviceState(record, segments, figures_of(segments))


def _segment(row: SegmentRow, device: int, stacks: list[Stack]) -> Segment:
    blocks, address = [], row.address
    for block in row.blocks:
        blocks.append(_block(block, address, stacks))
        address += block.size
    live = [block for block in blocks if block.state is not BlockState.FREE]
    return Segment(
        device=device,
        address=row.address,
        size=row.size,
        stream=row.stream,
        pool=row.pool,
        is_small=row.is_small,
        is_expandable=row.is_expandable,
        blocks=blocks,
        allocated=sum(b.size for b in live if b.state is BlockState.ALLOCATED),
        active=sum(b.size for b in live),
        requested=sum(b.requested for b in live),
    )


def _block(row: BlockRow, address: int, stacks: list[Stack]) -> Block:
    stack = stacks[row.stack] if 0 <= row.stack < len(stacks) else None
    state = _STATES.get(row.state, BlockState.ALLOCATED)
    return Block(address, row.size, row.requested, state, stack)
