"""How fast whole gauges grow, and how much of that has a name."""

from __future__ import annotations

from leakscope.analysis.case import GAUGE_NOISE_BYTES, Case
from leakscope.analysis.growers import Grower
from leakscope.analysis.series import HOST
from leakscope.model import gauge
from leakscope.model.report import Growth

EXPLAINABLE_BYTES = 4 * GAUGE_NOISE_BYTES
"""Below this growth of a gauge, a share of it says nothing."""


_NAMELESS = {gauge.CHILDREN_PSS, gauge.DEVICE_OUTSIDE, gauge.PINNED_HOST}
"""No name of the process stands for these bytes, or not for all of them."""


def find_growth(case: Case, growers: list[Grower]) -> list[Growth]:
    """Return the rate of each gauge of memory over comparable boundaries."""
    devices = [
        f"{d}.{m}"
        for d in case.track.devices
        for m in (gauge.DEVICE_ALLOCATED, gauge.DEVICE_RESERVED)
    ]
    outside = [f"{device}.{gauge.DEVICE_OUTSIDE}" for device in case.track.devices]
    metrics = [gauge.RSS, gauge.PSS, gauge.CHILDREN_PSS, *devices, *outside, gauge.PINNED_HOST]
    return [_growth(case, m, growers) for m in metrics if case.track.has_gauge(m)]


def _growth(case: Case, metric: str, growers: list[Grower]) -> Growth:
    trend = case.gauge_trend(metric)
    device = metric.rpartition(".")[0] or HOST
    gain = case.gauge_gain(metric)
    across = [g for g in growers if g.growth == "across" and g.device == device]
    named = sum(case.gain_of(g) for g in across)
    share = None
    can_be_named = metric.rpartition(".")[2] not in _NAMELESS
    if gain is not None and gain > EXPLAINABLE_BYTES and can_be_named:
        share = min(named / gain, 1.0)
    return Growth(
        metric=metric,
        unit=case.unit.name,
        bytes_per_unit=trend.bytes_per_unit,
        interval=trend.interval,
        explained_share=share,
    )
