"""Growers that will stop by themselves: at a bound that they declare, or with the model's size."""

from __future__ import annotations

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.growers import Grower
from leakscope.analysis.growth.policy import ROW_NOISE_BYTES
from leakscope.analysis.series import FloatArray, RowTable

CAPACITY_OF_LIMIT = 0.25
"""A container that declares a bound is accused only if, full, it would fill this part of memory."""
MOSTLY = 0.9
"""What follows the gradients grows by no more than they do: small growth would pass for noise."""
STATES = 3
"""Most optimizers keep at most so many tensors of a parameter's size for it: Adam two or three."""


def nears_capacity(case: Case, g: Grower) -> bool:
    """Return whether a grower will stop by itself, at a bound that does no harm."""
    row = case.table.latest[g.path]
    if row.capacity is None or not row.length:
        return False
    full = g.y[-1] / row.length * row.capacity * max(row.count, 1)
    return case.limit_bytes is None or full < CAPACITY_OF_LIMIT * case.limit_bytes


def follows_the_model(table: RowTable, g: Grower) -> bool:
    """Return whether a grower is gradients or optimizer state coming to parameters there already.

    Layers that are unfrozen, or first used late, get theirs one after the other. Each parameter has
    one gradient and few states, so that this ends; where parameters grow too it need not.
    """
    parameters = _bytes_of(table, "parameters", g)
    most = float(parameters[-1])
    if not 0 < most <= parameters[0] + ROW_NOISE_BYTES:
        return False
    row = table.latest[g.path]
    if row.role == "optimizer_state":
        return row.kind == "dict" and bool(g.y[-1] <= STATES * most)
    gradients = _bytes_of(table, "gradients", g)
    differs = np.abs(np.diff(gradients) - np.diff(g.y)).max()
    gained = gradients[-1] - gradients[0] >= MOSTLY * (g.y[-1] - g.y[0])
    return bool(gained and gradients[-1] <= most and differs <= ROW_NOISE_BYTES)


def _bytes_of(table: RowTable, role: str, g: Grower) -> FloatArray:
    """Return what plays a role at the censuses that a grower was judged by, on all devices."""
    told = [table.censuses[column].components.get(role, {}) for column in g.columns]
    return np.array([sum(devices.values()) for devices in told], dtype=np.float64)
