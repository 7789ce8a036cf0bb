"""The section on a run that ended for want of memory, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leakscope.model.shortage import Advice, LiveRow, OutOfMemory
from leakscope.report.sizes import humane_share, size_of
from leakscope.report.tables import Cell, Fact, cell_of


@dataclass(frozen=True)
class LiveView:
    """A part of what was live."""

    name: str
    cell: Cell
    share: str
    detail: str


@dataclass(frozen=True)
class LiveTable:
    """What was live, by component or by name."""

    title: str
    rows: list[LiveView]
    has_details: bool


@dataclass(frozen=True)
class ShortageView:
    """Why memory ran out and what would have made it fit."""

    sentence: str
    evidence: str
    error: str
    facts: list[Fact]
    ways: list[Advice]
    first_ways: str
    """What would have helped, in a line."""
    tables: list[LiveTable]


def shortage_view(ended: OutOfMemory | None) -> ShortageView | None:
    """Return the section; None where memory didn't end the run."""
    if ended is None:
        return None
    tables = [
        _table("Held by, by name", ended.names, has_details=True),
        _table("Live, by what it is for", ended.components, has_details=False),
    ]
    return ShortageView(
        sentence=ended.sentence,
        evidence=ended.evidence,
        error=ended.error,
        facts=_facts(ended),
        ways=ended.fits_if,
        first_ways=" · ".join(way.title for way in ended.fits_if if way.helps),
        tables=[table for table in tables if table.rows],
    )


def _facts(ended: OutOfMemory) -> list[Fact]:
    on_device = ended.device != "host"
    sizes = [
        ("Asked for", ended.requested_bytes),
        ("Left", ended.free_bytes),
        ("In live tensors" if on_device else "Resident", ended.live_bytes),
        ("Held by torch's allocator", ended.reserved_bytes),
        ("Limit", ended.limit_bytes),
    ]
    told = [(label, size_of(size)) for label, size in sizes if size is not None]
    facts = [Fact(label, size.text, size.exact) for label, size in told]
    return [*facts, Fact("Kind of shortage", ended.shortage)] if ended.shortage else facts


def _table(title: str, rows: Sequence[LiveRow], *, has_details: bool) -> LiveTable:
    top = max((row.bytes for row in rows), default=1)
    views = [
        LiveView(row.name, cell_of(row.bytes, top), humane_share(row.share), row.detail)
        for row in rows
    ]
    return LiveTable(title, views, has_details)
