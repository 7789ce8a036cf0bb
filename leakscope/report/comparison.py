"""The comparison page as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leakscope.model.comparison import Comparison, CulpritChange, ValueChange
from leakscope.model.report import Severity
from leakscope.report import wording
from leakscope.report.page import environment_facts, run_context
from leakscope.report.sizes import (
    Size,
    exact_bytes,
    humane_interval,
    humane_rate,
    humane_share,
    size_of,
)
from leakscope.report.tables import Bar, Fact, bar_of
from leakscope.report.timeline import TimelineView, overlay_data, overlay_view


@dataclass(frozen=True)
class RateCell:
    """A rate in one run: ``absent`` where the culprit isn't there."""

    text: str
    exact: str
    interval: str
    absent: bool
    bar: Bar


@dataclass(frozen=True)
class ChangeRow:
    """One culprit before and after."""

    change: str
    label: str
    name: str
    path: str
    unit: str
    severity: str
    severity_label: str
    before: RateCell
    after: RateCell
    certain: str
    text: str


@dataclass(frozen=True)
class ValueRow:
    """One amount before and after, with its difference."""

    name: str
    device: str
    before: Size
    after: Size
    before_bar: Bar
    after_bar: Bar
    delta: Size
    delta_share: str
    direction: str
    order: str
    certain: str


@dataclass(frozen=True)
class RunView:
    """One of the two runs."""

    role: str
    verdict: str
    verdict_label: str
    context: list[Fact]
    environment: list[Fact]


@dataclass(frozen=True)
class ComparisonPage:
    """Everything the comparison template shows."""

    title: str
    headline: str
    outcome: str
    outcome_label: str
    runs: list[RunView]
    counts: list[Fact]
    warnings: list[str]
    culprits: list[ChangeRow]
    timeline: TimelineView | None
    growth: list[ValueRow]
    components: list[ValueRow]
    peaks: list[ValueRow]
    terms: dict[str, str]
    data: dict[str, Any]


def comparison_page(comparison: Comparison) -> ComparisonPage:
    """Return the whole page for a comparison."""
    timeline = overlay_view(comparison.before_timeline, comparison.after_timeline)
    outcome, label = wording.outcome_of(comparison)
    return ComparisonPage(
        title=f"{label} · before and after",
        headline=comparison.headline,
        outcome=outcome,
        outcome_label=label,
        runs=_runs(comparison),
        counts=[
            Fact(wording.CHANGES[change], str(count), change.value)
            for change, count in wording.change_counts(comparison)
        ],
        warnings=[*comparison.work_differences],
        culprits=_change_rows(comparison.culprits),
        timeline=timeline,
        growth=value_rows(comparison.growth),
        components=value_rows(comparison.components),
        peaks=value_rows(comparison.peaks),
        terms=wording.TERMS,
        data={
            "charts": overlay_data(timeline, comparison.before_timeline, comparison.after_timeline),
            "copies": {},
        },
    )


def value_rows(changes: list[ValueChange]) -> list[ValueRow]:
    """Return rows whose bars share one scale per device and unit."""
    tops: dict[tuple[str, str], float] = {}
    for change in changes:
        key = (change.device, change.unit)
        tops[key] = max(tops.get(key, 1.0), change.before_bytes or 0.0, change.after_bytes or 0.0)
    return [_value_row(change, tops[change.device, change.unit]) for change in changes]


def _value_row(change: ValueChange, top: float) -> ValueRow:
    before, after = change.before_bytes, change.after_bytes
    delta = None if before is None or after is None else after - before
    return ValueRow(
        name=wording.metric_words(change.name).replace("_", " "),
        device=change.device,
        before=_amount(before, change.unit),
        after=_amount(after, change.unit),
        before_bar=bar_of(before, top, "before"),
        after_bar=bar_of(after, top, "after"),
        delta=size_of(delta, signed=True),
        delta_share=humane_share(delta / before) if delta is not None and before else "",
        direction="" if not delta else "down" if delta < 0 else "up",
        order=str(delta or 0),
        certain=_certainty(change.significant),
    )


def _amount(amount: float | None, unit: str) -> Size:
    size = size_of(amount)
    return Size(humane_rate(amount, unit), size.exact) if unit and amount is not None else size


def _certainty(significant: bool | None) -> str:
    if significant is None:
        return ""
    return "real" if significant else "within the noise"


def _change_rows(changes: list[CulpritChange]) -> list[ChangeRow]:
    rates = [r for c in changes for r in (c.before_bytes_per_unit, c.after_bytes_per_unit) if r]
    top = max(rates, default=1.0)
    return [_change_row(change, top) for change in sorted(changes, key=_weight)]


def _weight(change: CulpritChange) -> tuple[bool, int, float]:
    largest = max(change.before_bytes_per_unit or 0.0, change.after_bytes_per_unit or 0.0)
    return change.severity is Severity.NOTE, wording.WORST_FIRST.index(change.change), -largest


def _change_row(change: CulpritChange, top: float) -> ChangeRow:
    return ChangeRow(
        change=change.change.value,
        label=wording.CHANGES[change.change],
        name=change.name,
        path=change.path,
        unit=change.unit,
        severity=change.severity.value,
        severity_label=wording.SEVERITIES[change.severity],
        before=_rate_cell(change.before_bytes_per_unit, change.before_interval, change.unit, top),
        after=_rate_cell(change.after_bytes_per_unit, change.after_interval, change.unit, top),
        certain=_certainty(change.significant),
        text=change.text,
    )


def _rate_cell(
    rate: float | None, interval: tuple[float, float] | None, unit: str, top: float
) -> RateCell:
    kind = "rate"
    if rate is None:
        return RateCell("no growth", "not among the culprits", "", True, bar_of(None, top, kind))
    return RateCell(
        text=humane_rate(rate, unit),
        exact=f"{exact_bytes(rate)} per {unit}",
        interval=humane_interval(interval) if interval else "",
        absent=False,
        bar=bar_of(rate, top, kind),
    )


def _runs(comparison: Comparison) -> list[RunView]:
    sides = [
        ("Before", comparison.before, comparison.before_verdict),
        ("After", comparison.after, comparison.after_verdict),
    ]
    return [
        RunView(
            role=role,
            verdict=verdict.value,
            verdict_label=wording.VERDICTS[verdict],
            context=run_context(run),
            environment=environment_facts(run),
        )
        for role, run, verdict in sides
    ]
