"""The page of several snapshots as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from leakscope.model.explanation import DeviceComparison, Growth, SnapshotComparison
from leakscope.model.version import __version__
from leakscope.report.cuda import words
from leakscope.report.cuda.page import parts_of
from leakscope.report.sizes import Size, humane_bytes, humane_number, size_of
from leakscope.report.tables import Bar


@dataclass(frozen=True)
class NamedSnapshot:
    """One of the snapshots and what is said of it alone."""

    number: int
    name: str
    headline: str
    label: str


@dataclass(frozen=True)
class SumsRow:
    """The sums of a device in one snapshot."""

    number: int
    name: str
    parts: list[Bar]
    sizes: list[Size]


@dataclass(frozen=True)
class GrowthRow:
    """One class, line or size in each snapshot."""

    name: str
    size: str
    label: str
    amounts: list[Size]
    counts: str
    change: Size
    direction: str
    order: str


@dataclass(frozen=True)
class ComparedDevice:
    """One device in each snapshot."""

    anchor: str
    name: str
    sentence: str
    sums: list[SumsRow]
    tables: list[tuple[str, list[GrowthRow]]]


@dataclass(frozen=True)
class SnapshotsPage:
    """Everything that the page of several snapshots shows."""

    title: str
    verdict: str
    verdict_label: str
    headline: str
    snapshots: list[NamedSnapshot]
    ranked: list[str]
    devices: list[ComparedDevice]
    notes: list[str]
    terms: dict[str, str]
    version: str
    data: dict[str, Any]


COLUMNS = ("Reserved", "Live", "Cache", "Stuck in holes", "Largest free block", "Peak")


def snapshots_page(comparison: SnapshotComparison) -> SnapshotsPage:
    """Return the whole page for several snapshots."""
    verdict, label = words.comparison_verdict(comparison)
    names = comparison.names
    return SnapshotsPage(
        title=f"{label} · {len(names)} snapshots",
        verdict=verdict,
        verdict_label=label,
        headline=comparison.headline,
        snapshots=[
            NamedSnapshot(n + 1, name, comparison.headlines[n], words.SLACKS[comparison.slack[n]])
            for n, name in enumerate(names)
        ],
        ranked=[names[number] for number in comparison.by_stuck],
        devices=[_device(device, names) for device in comparison.devices],
        notes=comparison.notes,
        terms=words.TERMS,
        version=__version__,
        data={"charts": {}, "copies": {}},
    )


def _device(device: DeviceComparison, names: Sequence[str]) -> ComparedDevice:
    top = max((figures.reserved for figures in device.figures), default=0)
    sums = [
        SumsRow(
            number=number + 1,
            name=name,
            parts=parts_of(figures, top),
            sizes=[
                size_of(amount)
                for amount in (
                    figures.reserved,
                    figures.active,
                    figures.cached + figures.releasable,
                    figures.stuck - figures.releasable,
                    figures.largest_hole,
                    device.peaks[number],
                )
            ],
        )
        for number, (name, figures) in enumerate(zip(names, device.figures, strict=True))
    ]
    tables = [
        ("By what it is for", device.classes),
        ("By the line that allocated it", device.sites),
        ("By size of block", device.sizes),
    ]
    return ComparedDevice(
        anchor=f"cuda-{device.device}",
        name=f"cuda:{device.device}",
        sentence=device.sentence,
        sums=sums,
        tables=[
            (title, [_row(row, is_class=rows is device.classes) for row in rows])
            for title, rows in tables
            if rows
        ],
    )


def _row(row: Growth, *, is_class: bool) -> GrowthRow:
    label = words.CLASSES[row.kind]
    return GrowthRow(
        name=label if is_class else row.name,
        size=humane_bytes(row.size) if row.size is not None else "",
        label="" if is_class else label,
        amounts=[size_of(amount) for amount in row.bytes],
        counts=" → ".join(humane_number(count) for count in row.counts),
        change=size_of(row.change, signed=True),
        direction="" if not row.change else "down" if row.change < 0 else "up",
        order=str(row.change),
    )
