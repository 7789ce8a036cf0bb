"""Amounts of memory before and after: growth of gauges, peaks of components and of phases."""

from __future__ import annotations

from collections.abc import Sequence

from leakscope.analysis.comparing.changes import differs
from leakscope.model.comparison import ValueChange
from leakscope.model.report import Growth, PhaseMemory, Report


def growth_changes(before: Sequence[Growth], after: Sequence[Growth]) -> list[ValueChange]:
    """Return how fast each gauge grew, and whether the difference is real."""
    first = {(g.metric, g.unit): g for g in before}
    second = {(g.metric, g.unit): g for g in after}
    return [_growth_change(first.get(key), second.get(key)) for key in {**first, **second}]


def _growth_change(before: Growth | None, after: Growth | None) -> ValueChange:
    known = before or after
    assert known is not None
    significant = None
    if before is not None and after is not None:
        significant = differs(
            before.bytes_per_unit, before.interval, after.bytes_per_unit, after.interval
        )
    return ValueChange(
        name=known.metric,
        device=_device(known.metric),
        unit=known.unit,
        before_bytes=before.bytes_per_unit if before else None,
        after_bytes=after.bytes_per_unit if after else None,
        before_interval=before.interval if before else None,
        after_interval=after.interval if after else None,
        significant=significant,
    )


def component_changes(before: Report, after: Report) -> list[ValueChange]:
    """Return the peak of each component on each device."""
    first = {(c.name, c.device): float(c.peak_bytes) for c in before.components}
    second = {(c.name, c.device): float(c.peak_bytes) for c in after.components}
    return _values(first, second)


def peak_changes(before: Report, after: Report) -> list[ValueChange]:
    """Return the peak of each phase on each device: the highest of all its occurrences.

    Where memory grows, it is the last that no longer fits. Where one of the two reports, an older
    one, doesn't tell the highest, medians are compared.
    """
    phases = [*before.phases, *after.phases]
    first, second = (
        {(p.phase, _device(p.metric)): float(_height(p, phases)) for p in report.phases}
        for report in (before, after)
    )
    return _values(first, second)


def _height(phase: PhaseMemory, compared: Sequence[PhaseMemory]) -> int:
    is_told = all(one.most_bytes is not None for one in compared)
    return phase.most_bytes or 0 if is_told else phase.peak_bytes


def _values(
    before: dict[tuple[str, str], float], after: dict[tuple[str, str], float]
) -> list[ValueChange]:
    return [
        ValueChange(
            name=key[0],
            device=key[1],
            before_bytes=before.get(key),
            after_bytes=after.get(key),
        )
        for key in {**before, **after}
    ]


def _device(metric: str) -> str:
    return metric.rpartition(".")[0] or "host"
