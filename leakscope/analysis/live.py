"""What one census says was live: by component, and by the names that hold it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from leakscope.analysis.components import NAMES
from leakscope.analysis.series import HOST
from leakscope.model.census import Census, CensusRow
from leakscope.model.shortage import LiveRow
from leakscope.model.sizes import plural

MOST_ROWS = 10
LEAST_SHARE = 0.01
SPEAKS_FOR = 0.5
"""A name gives way to the names inside it that hold this part of what it holds."""
_WHOLE = ("module", "optimizer", "graph")
"""Nobody asks which part of these."""
UNNAMED = {HOST: "interpreter, libraries and what no name reaches"}


def live_by_component(census: Census, device: str, total: int) -> list[LiveRow]:
    """Return what was live for what on a device, the most first, the rest of ``total`` included."""
    sizes = {
        NAMES.get(role, role): by_device.get(device, 0)
        for role, by_device in census.components.items()
    }
    sizes[UNNAMED.get(device, "without a name")] = total - sum(sizes.values())
    rows = [_row(name, size, total) for name, size in sizes.items()]
    return _worth_saying(rows)


def live_by_name(census: Census, device: str, total: int) -> list[LiveRow]:
    """Return the names that held most on a device; none of them is part of another."""
    children: dict[str, list[CensusRow]] = defaultdict(list)
    paths = {row.path for row in census.rows}
    for row in census.rows:
        children[row.parent if row.parent in paths else ""].append(row)
    chosen = [row for top in children[""] for row in _descend(top, children, device)]
    return _worth_saying([_row(r.name, held(r, device), total, _detail(r)) for r in chosen])


def held(row: CensusRow, device: str) -> int:
    """Return what is reached through a row first, on one device."""
    own = row.host_bytes if device == HOST else row.device_bytes.get(device, 0)
    return own + row.shared_bytes.get(device, 0)


def _descend(
    row: CensusRow, children: dict[str, list[CensusRow]], device: str
) -> Iterator[CensusRow]:
    inner = [
        child
        for child in children.get(row.path, ())
        if not child.path.startswith(f"{row.path}[*]") and child is not row
    ]
    inside = sum(held(child, device) for child in inner)
    if row.kind in _WHOLE or inside < SPEAKS_FOR * held(row, device) or not inner:
        yield row
        return
    for child in inner:
        yield from _descend(child, children, device)


def _detail(row: CensusRow) -> str:
    kind = "keeps an autograd graph" if row.kind == "graph" else row.type
    return kind if row.length is None else f"{kind}, {plural(row.length, 'item')}"


def _row(name: str, size: int, total: int, detail: str = "") -> LiveRow:
    return LiveRow(name=name, bytes=size, share=size / total if total else 0.0, detail=detail)


def _worth_saying(rows: list[LiveRow]) -> list[LiveRow]:
    told = [row for row in rows if row.bytes > 0 and row.share >= LEAST_SHARE]
    return sorted(told, key=lambda row: -row.bytes)[:MOST_ROWS]
