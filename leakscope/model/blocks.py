"""A device's blocks and storages as they are recorded: small, so that a run can hold many lists.

Blocks lie one after another in their segment, so that only the segment says where. Addresses serve
to find a storage among the blocks of the same moment; they mean nothing at another.
"""

from __future__ import annotations

import msgspec

from leakscope.model.numbers import Whole

FREE, LIVE, PENDING = 0, 1, 2
"""States of a block; a pending one is freed by the program and still in use on another stream."""


class BlockRow(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a segment."""

    size: Whole
    requested: Whole
    """What the program asked for; 0 of a free block."""
    state: Whole
    stack: Whole = -1
    """Index in the stacks of the list; -1 where none was recorded."""


class SegmentRow(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of device memory from the driver."""

    address: Whole
    size: Whole
    stream: Whole
    pool: tuple[Whole, Whole]
    is_small: bool
    is_expandable: bool
    blocks: list[BlockRow]


class FrameRow(msgspec.Struct, frozen=True, array_like=True):
    """One function on a stack."""

    file: str
    line: Whole
    name: str


class StorageRow(msgspec.Struct, frozen=True, array_like=True):
    """Memory of one tensor storage, which all its views share."""

    address: Whole
    bytes: Whole
    role: str
    """The component it belongs to, as in a census."""
    holder: Whole
    """Index in the holders; -1 where nothing with a name holds it."""


class Holder(msgspec.Struct, frozen=True, array_like=True):
    """What holds storages: the nearest object that a census would write down."""

    path: str
    name: str


class DeviceStorages(msgspec.Struct, frozen=True, kw_only=True):
    """The storages that a census met on one device."""

    device: str
    storages: list[StorageRow] = []
    holders: list[Holder] = []
    left_out: Whole = 0
    """Storages, the smallest, that were too many to be recorded."""
