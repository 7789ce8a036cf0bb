"""Forecast: when memory runs out if growth goes on as it did."""

from __future__ import annotations

import math

from leakscope.model.report import Forecast
from leakscope.model.sizes import human_bytes, human_count


def forecast(
    *, limit_bytes: int | None, used_bytes: float, rate: float, unit: str, done: float
) -> Forecast | None:
    """Return when the limit is reached, None without a limit or growth.

    Args:
        limit_bytes: The limit.
        used_bytes: Memory at the end of the recording.
        rate: Bytes per unit of everything that grows.
        unit: The unit.
        done: The number the unit had reached at the end.

    """
    if not limit_bytes or rate <= 0 or not math.isfinite(rate):
        return None
    left = max(limit_bytes - used_bytes, 0.0) / rate
    at = math.ceil(done + left)
    return Forecast(
        limit_bytes=limit_bytes,
        unit=unit,
        units_left=left,
        at=float(at),
        text=f"reaches {human_bytes(limit_bytes)} in {unit} {human_count(at)}",
    )
