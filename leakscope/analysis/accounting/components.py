"""Memory per component: baseline, parameters, gradients, optimizer state, …, unexplained.

Over the run, and as one census says what was live and which names hold it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from leakscope.analysis.columns.series import HOST, FloatArray, own_bytes
from leakscope.analysis.run_context import RunContext
from leakscope.model import gauge
from leakscope.model.census import Census, CensusRow
from leakscope.model.device import LiveRow
from leakscope.model.report import Component
from leakscope.model.text import plural

BASELINE = "baseline"
"""What the process held before training beyond its components: interpreter, imports."""
COMPONENT_NAMES = {
    "parameters": "parameters",
    "buffers": "buffers",
    "gradients": "gradients",
    "optimizer_state": "optimizer state",
    "batch": "batches",
    "graph": "activations and graphs",
    "accumulation": "accumulations",
    "cache": "caches",
    "code": "code and libraries",
    "other": "other objects",
}


LIBRARIES = ("code", "other")
"""Roles of what libraries own, too: censuses of the whole heap see that, focused ones don't."""
MOST_ROWS = 10
LEAST_SHARE = 0.01
DESCENT_SHARE = 0.5
"""A name gives way to the names inside it that hold this part of what it holds."""
_UNDIVIDED_KINDS = ("module", "optimizer", "graph")
"""Nobody asks which part of these."""
UNNAMED_LABELS = {HOST: "interpreter, libraries and what no name reaches"}


def find_components(case: RunContext) -> list[Component]:
    """Return what each component held at the first census, at its peak and at the last census.

    The last is the last of a phase: after it functions return, and what they held is gone.
    """
    seen = _Seen(case)
    if not seen.censuses:
        return []
    devices = sorted({d for c in seen.censuses for by in c.components.values() for d in by})
    ordered = [HOST] * (HOST in devices) + [d for d in devices if d != HOST]
    found = [component for device in ordered for component in _of_device(seen, device)]
    return found + _outside(seen, [c for c in found if c.device == HOST])


class _Seen:
    """What the censuses up to the last one of a phase saw, as if all had looked equally far."""

    def __init__(self, case: RunContext) -> None:
        self.case = case
        phases = [case.track.boundaries[position].phase for position in case.table.at.tolist()]
        within = [n for n, phase in enumerate(phases, 1) if phase]
        last = within[-1] if within else len(phases)
        self.phases = phases[:last]
        self.at = case.table.at[:last]
        self.full = case.table.full[:last]
        self.censuses = case.table.censuses[:last]

    def roles(self) -> list[str]:
        """Return all roles that were seen, those with a name first."""
        seen = {role for census in self.censuses for role in census.components}
        return [role for role in COMPONENT_NAMES if role in seen] + sorted(
            seen - set(COMPONENT_NAMES)
        )

    def sizes(self, role: str, device: str) -> FloatArray:
        """Return by census what objects of a role hold on a device.

        What only censuses of the whole heap see of libraries counts from its first sight on.
        """
        sizes = np.array(
            [c.components.get(role, {}).get(device, 0) for c in self.censuses], dtype=np.float64
        )
        if role not in LIBRARIES or self.full.all() or not self.full.any():
            return sizes
        focused = np.interp(self.at, self.at[~self.full], sizes[~self.full])
        beyond = (sizes - focused)[self.full]
        latest = np.cumsum(self.full) - 1
        gained = np.where(latest >= 0, (beyond - beyond[0])[latest], 0.0)
        return np.maximum(focused + gained, 0.0)

    def gauge(self, name: str) -> FloatArray:
        """Return a gauge's readings nearest to the censuses, 0 where there are none."""
        readings = [self.case.nearest(name, int(p)) or 0.0 for p in self.at]
        return np.array(readings, dtype=np.float64)


def _of_device(seen: _Seen, device: str) -> list[Component]:
    found = [
        _component(seen, COMPONENT_NAMES.get(role, role), device, seen.sizes(role, device))
        for role in seen.roles()
    ]
    return [component for component in found if component.peak_bytes > 0]


def _outside(seen: _Seen, named: list[Component]) -> list[Component]:
    """Return what no census sees: baseline, allocator slack, workers and the remainder."""
    case = seen.case
    resident = [case.nearest(case.host_metric, int(p)) for p in seen.at]
    if any(value is None for value in resident):
        return []
    whole = np.array(resident, dtype=np.float64)
    known = np.sum([seen.sizes(role, HOST) for role in seen.roles()] or [np.zeros(1)], axis=0)
    slack = seen.gauge(gauge.MALLOC_FREE)
    baseline = np.full_like(whole, max(float((whole - known - slack)[0]), 0.0))
    own = seen.gauge(gauge.OWN_RESIDENT)
    left = np.maximum(whole - known - slack - baseline - own, 0.0)
    terms = {
        BASELINE: baseline,
        "allocator slack": slack,
        "workers": seen.gauge(gauge.CHILDREN_PSS),
        "leakscope itself": own,
        "unexplained": left,
    }
    found = [_component(seen, name, HOST, values) for name, values in terms.items()]
    return [c for c in found if c.peak_bytes > 0] if named or whole.any() else []


def _component(seen: _Seen, name: str, device: str, values: FloatArray) -> Component:
    sizes = [int(v) for v in values]
    by_phase: dict[str, int] = {}
    for phase, size in zip(seen.phases, sizes, strict=True):
        if phase:
            by_phase[phase] = max(size, by_phase.get(phase, 0))
    return Component(
        name=name,
        device=device,
        start_bytes=sizes[0],
        peak_bytes=max(sizes),
        end_bytes=sizes[-1],
        by_phase=by_phase,
    )


def live_by_component(census: Census, device: str, total: int) -> list[LiveRow]:
    """Return what was live for what on a device, the most first, the rest of ``total`` included."""
    sizes = {
        COMPONENT_NAMES.get(role, role): by_device.get(device, 0)
        for role, by_device in census.components.items()
    }
    sizes[UNNAMED_LABELS.get(device, "without a name")] = total - sum(sizes.values())
    rows = [_row(name, size, total) for name, size in sizes.items()]
    return _worth_saying(rows)


def live_by_name(census: Census, device: str, total: int) -> list[LiveRow]:
    """Return the names that held most on a device; none of them is part of another."""
    children: dict[str, list[CensusRow]] = defaultdict(list)
    paths = {row.path for row in census.rows}
    for row in census.rows:
        children[row.parent if row.parent in paths else ""].append(row)
    chosen = [row for top in children[""] for row in _descend(top, children, device)]
    return _worth_saying(
        [_row(r.name, reached_bytes(r, device), total, _detail(r)) for r in chosen]
    )


def reached_bytes(row: CensusRow, device: str) -> int:
    """Return what is reached through a row first, on one device."""
    own = own_bytes(row, device)
    return own + row.shared_bytes.get(device, 0)


def _descend(
    row: CensusRow, children: dict[str, list[CensusRow]], device: str
) -> Iterator[CensusRow]:
    inner = [
        child
        for child in children.get(row.path, ())
        if not child.path.startswith(f"{row.path}[*]") and child is not row
    ]
    inside = sum(reached_bytes(child, device) for child in inner)
    if (
        row.kind in _UNDIVIDED_KINDS
        or inside < DESCENT_SHARE * reached_bytes(row, device)
        or not inner
    ):
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
    large = [row for row in rows if row.bytes > 0 and row.share >= LEAST_SHARE]
    return sorted(large, key=lambda row: -row.bytes)[:MOST_ROWS]
