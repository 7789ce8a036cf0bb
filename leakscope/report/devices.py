"""The section on device memory, as plain values: the map, who holds it, what is unused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leakscope.model.device import DeviceMemory, DeviceOwner, UnexplainedBlocks
from leakscope.model.shortage import Advice
from leakscope.report.cuda.memory_map import SHADES, MapView, free_entries, map_entry, map_view
from leakscope.report.cuda.page import PoolView, figure_facts, parts_of, pool_views
from leakscope.report.device_words import owner_words, role_words
from leakscope.report.sizes import Size, humane_number, humane_share, size_of
from leakscope.report.tables import Bar, Cell, Fact, cell_of

SHOWN = 12
"""Owners shown at once; the others are folded away."""


@dataclass(frozen=True)
class OwnerView:
    """Live memory under one name."""

    name: str
    is_code: bool
    label: str
    shade: str
    cell: Cell
    share: str
    count: str
    places: list[str]


@dataclass(frozen=True)
class UnexplainedView:
    """Blocks of one size that nothing holds."""

    size: Size
    count: str
    bytes: Size
    place: str


@dataclass(frozen=True)
class DeviceView:
    """One device."""

    anchor: str
    name: str
    moment: str
    facts: list[Fact]
    bars: list[Bar]
    memory_map: MapView
    owners: list[OwnerView]
    others: list[OwnerView]
    explained: str
    unexplained: list[UnexplainedView]
    remarks: list[str]
    slack: str
    settings: list[Advice]
    pools: list[PoolView]


def device_views(devices: Sequence[DeviceMemory]) -> list[DeviceView]:
    """Return one view a device, in the order given."""
    return [_device(device, f"device-{place}") for place, device in enumerate(devices)]


def _device(device: DeviceMemory, anchor: str) -> DeviceView:
    top = max((row.bytes for row in device.owners), default=1)
    owners = [_owner(row, top) for row in device.owners]
    return DeviceView(
        anchor=anchor,
        name=device.device,
        moment=device.moment,
        facts=[*figure_facts(device.figures), *_facts(device)],
        bars=parts_of(device.figures, device.figures.reserved),
        memory_map=_map(device, anchor),
        owners=owners[:SHOWN],
        others=owners[SHOWN:],
        explained=humane_share(device.explained_share),
        unexplained=[_unexplained(row) for row in device.unexplained],
        remarks=_remarks(device),
        slack=device.slack_sentence,
        settings=device.settings,
        pools=pool_views(device.pools),
    )


def _facts(device: DeviceMemory) -> list[Fact]:
    sizes = [
        ("torch's own peak", device.peak_bytes),
        ("Outside the allocator", device.outside_bytes),
        ("Page-locked on the host", device.pinned_bytes),
    ]
    told = [(label, size_of(amount)) for label, amount in sizes if amount]
    return [Fact(label, size.text, size.exact) for label, size in told]


def _map(device: DeviceMemory, anchor: str) -> MapView:
    legend = [map_entry(role_words(row.role), _kind(row.role), row.bytes) for row in device.roles]
    legend += free_entries(device.figures)
    return map_view(device.memory_map, f"{anchor}-blocks", legend, role_words)


def shade_of(role: str) -> str:
    """Return the CSS variable of a role; a role ``cache`` is no cache of the allocator's."""
    return SHADES.get(_kind(role), "map-other")


def _kind(role: str) -> str:
    return "caches" if role == "cache" else role


def _owner(row: DeviceOwner, top: int) -> OwnerView:
    return OwnerView(
        name=owner_words(row),
        is_code=bool(row.name),
        label=role_words(row.role),
        shade=shade_of(row.role),
        cell=cell_of(row.bytes, top),
        share=humane_share(row.share),
        count=humane_number(row.count),
        places=row.allocated_at,
    )


def _unexplained(row: UnexplainedBlocks) -> UnexplainedView:
    return UnexplainedView(
        size=size_of(row.size),
        count=humane_number(row.count),
        bytes=size_of(row.bytes),
        place=row.allocated_at,
    )


def _remarks(device: DeviceMemory) -> list[str]:
    remarks = []
    if device.left_out_blocks:
        remarks.append(
            f"{humane_number(device.left_out_blocks)} blocks were too many to be recorded."
        )
    if not device.sees_libraries and device.explained_share < 1.0:
        remarks.append(
            "The census looked only at what your own names reach: what libraries hold is among the "
            "unexplained."
        )
    if device.astray_bytes:
        size = size_of(device.astray_bytes).text
        remarks.append(
            f"{size} of tensors lie in no block of torch's allocator: memory of another process, "
            "of a library, or freed while it was looked at."
        )
    return remarks
