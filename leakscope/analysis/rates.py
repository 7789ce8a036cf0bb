"""How fast whole gauges grow, and how much of that has a name."""

from __future__ import annotations

from leakscope.analysis.case import GAUGE_NOISE_BYTES, Case
from leakscope.analysis.growers import Grower
from leakscope.analysis.series import HOST
from leakscope.model import gauge
from leakscope.model.report import Growth

EXPLAINABLE_BYTES = 4 * GAUGE_NOISE_BYTES
"""Below this growth of a gauge, a share of it says nothing."""


def find_growth(case: Case, growers: list[Grower]) -> list[Growth]:
    """Return the rate of each gauge of memory over comparable boundaries."""
    devices = [
        f"{d}.{m}"
        for d in case.track.devices
        for m in (gauge.DEVICE_ALLOCATED, gauge.DEVICE_RESERVED)
    ]
    metrics = [gauge.RSS, gauge.PSS, gauge.CHILDREN_PSS, *devices]
    return [_growth(case, m, growers) for m in metrics if case.track.has_gauge(m)]


def _growth(case: Case, metric: str, growers: list[Grower]) -> Growth:
    trend = case.gauge_trend(metric)
    device = metric.rpartition(".")[0] or HOST
    gain = case.gauge_gain(metric)
    across = [g for g in growers if g.growth == "across" and g.device == device]
    named = sum(case.gain_of(g) for g in across)
    share = None
    if gain is not None and gain > EXPLAINABLE_BYTES and metric != gauge.CHILDREN_PSS:
        share = min(named / gain, 1.0)
    return Growth(
        metric=metric,
        unit=case.unit.name,
        bytes_per_unit=trend.bytes_per_unit,
        interval=trend.interval,
        explained_share=share,
    )
