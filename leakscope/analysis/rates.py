"""How fast whole gauges grow, and how much of that is explained."""

from __future__ import annotations

from leakscope.analysis.case import Case
from leakscope.analysis.growers import Grower
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.policy import GAUGE_NOISE_BYTES
from leakscope.analysis.series import HOST
from leakscope.model import gauge
from leakscope.model.report import Growth, Ledger

EXPLAINABLE_BYTES = 4 * GAUGE_NOISE_BYTES
"""Below this growth of a gauge, a share of it says nothing."""


_NAMELESS = {gauge.DEVICE_BY_TREE, gauge.CHILDREN_PSS, gauge.DEVICE_OUTSIDE, gauge.PINNED_HOST}
"""No name of the process stands for these bytes, or not for all of them."""
_UNKNOWN = {"unexplained", "unnamed"}
"""Terms of a ledger that say that nobody knows."""


def find_growth(case: Case, growers: list[Grower], ledgers: list[Ledger]) -> list[Growth]:
    """Return the rate of each gauge of memory over comparable boundaries."""
    devices = [
        f"{d}.{m}"
        for d in case.track.devices
        for m in (gauge.DEVICE_ALLOCATED, gauge.DEVICE_RESERVED, gauge.DEVICE_BY_TREE)
    ]
    outside = [f"{device}.{gauge.DEVICE_OUTSIDE}" for device in case.track.devices]
    metrics = [gauge.RSS, gauge.PSS, gauge.CHILDREN_PSS, *devices, *outside, gauge.PINNED_HOST]
    return [_growth(case, m, growers, ledgers) for m in metrics if _can_be_judged(case, m)]


def _can_be_judged(case: Case, metric: str) -> bool:
    """Return whether a gauge was read at so many places that a rate of it says something.

    Where even memory of the process itself was read at few, all rates are given as they are.
    """
    if not case.track.has_gauge(metric):
        return False
    read, places = (len(case.gauge_series(name)[1]) for name in (metric, case.host_metric))
    return read >= min(places, policy.FEWEST_GROWING)


def _growth(case: Case, metric: str, growers: list[Grower], ledgers: list[Ledger]) -> Growth:
    trend = case.gauge_trend(metric)
    gain = case.gauge_gain(metric)
    is_explainable = metric.rpartition(".")[2] not in _NAMELESS
    named = explained = None
    if gain is not None and gain > EXPLAINABLE_BYTES and is_explainable:
        device = metric.rpartition(".")[0] or HOST
        across = [g for g in growers if g.growth == "across" and g.device == device]
        named = min(sum(case.gain_of(g) for g in across) / gain, 1.0)
        explained = _explained(device, ledgers)
    return Growth(
        metric=metric,
        unit=case.unit.name,
        bytes_per_unit=trend.bytes_per_unit,
        interval=trend.interval,
        named_share=named,
        explained_share=explained,
    )


def _explained(device: str, ledgers: list[Ledger]) -> float | None:
    """Return how much of the growth the ledger's terms make up; too much counts as too little."""
    ledger = next((one for one in ledgers if _device_of(one) == device), None)
    if ledger is None or ledger.total_bytes <= 0:
        return None
    left = sum(entry.bytes for entry in ledger.entries if entry.kind in _UNKNOWN)
    return max(1.0 - abs(left) / ledger.total_bytes, 0.0)


def _device_of(ledger: Ledger) -> str:
    return ledger.metric.rpartition(".")[0] or HOST
