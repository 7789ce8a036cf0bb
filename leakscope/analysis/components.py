"""Memory per component: baseline, parameters, gradients, optimizer state, …, unexplained."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.series import HOST
from leakscope.model import gauge
from leakscope.model.report import Component

BASELINE = "baseline"
"""What the process held before training beyond its components: interpreter, imports."""
NAMES = {
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


def find_components(case: Case) -> list[Component]:
    """Return what each component held at the first census, at its peak and at the last census."""
    if not case.table.censuses:
        return []
    devices = sorted({d for c in case.table.censuses for by in c.components.values() for d in by})
    ordered = [HOST] * (HOST in devices) + [d for d in devices if d != HOST]
    found = [component for device in ordered for component in _of_device(case, device)]
    return found + _outside(case, [c for c in found if c.device == HOST])


def _of_device(case: Case, device: str) -> list[Component]:
    roles = {role for c in case.table.censuses for role in c.components}
    known = [r for r in NAMES if r in roles] + sorted(roles - set(NAMES))
    return [
        component
        for role in known
        if (
            component := _component(
                case,
                NAMES.get(role, role),
                device,
                (c.components.get(role, {}).get(device, 0) for c in case.table.censuses),
            )
        ).peak_bytes
        > 0
    ]


def _outside(case: Case, named: list[Component]) -> list[Component]:
    """Return what no census sees: baseline, allocator slack, workers and the remainder."""
    resident = [case.nearest(case.host_metric, int(p)) for p in case.table.at]
    if any(value is None for value in resident):
        return []
    whole = np.array(resident, dtype=np.float64)
    seen = np.array(
        [sum(by.get(HOST, 0) for by in c.components.values()) for c in case.table.censuses],
        dtype=np.float64,
    )
    slack = _at_censuses(case, gauge.MALLOC_FREE)
    baseline = np.full_like(whole, max(float((whole - seen - slack)[0]), 0.0))
    own = _at_censuses(case, gauge.OWN_RESIDENT)
    left = np.maximum(whole - seen - slack - baseline - own, 0.0)
    workers = _at_censuses(case, gauge.CHILDREN_PSS)
    terms = {
        BASELINE: baseline,
        "allocator slack": slack,
        "workers": workers,
        "leakscope itself": own,
        "unexplained": left,
    }
    found = [_component(case, name, HOST, values) for name, values in terms.items()]
    return [c for c in found if c.peak_bytes > 0] if named or whole.any() else []


def _at_censuses(case: Case, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    readings = [case.nearest(name, int(p)) or 0.0 for p in case.table.at]
    return np.array(readings, dtype=np.float64)


def _component(case: Case, name: str, device: str, values: Iterable[float]) -> Component:
    sizes = [int(v) for v in values]
    by_phase: dict[str, int] = {}
    for position, size in zip(case.table.at.tolist(), sizes, strict=True):
        phase = case.track.boundaries[position].phase
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
