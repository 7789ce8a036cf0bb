"""What became of each culprit, as cards for what matters and rows for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leakscope.model.comparison import CulpritChange
from leakscope.model.report import Severity
from leakscope.model.sizes import plural
from leakscope.report import wording
from leakscope.report.comparing.axis import SharedAxis
from leakscope.report.comparing.overlays import SeriesView, series_view
from leakscope.report.culprit import KnownView, anchor_of, known_view
from leakscope.report.markdown import change_markdown
from leakscope.report.sizes import (
    Size,
    exact_bytes,
    humane_bytes,
    humane_interval,
    humane_rate,
    size_of,
)
from leakscope.report.tables import Bar, Fact, bar_of

MOST_CARDS = 24
FEW_RANKS = 8


@dataclass(frozen=True)
class RateCell:
    """A rate in one run: ``absent`` where the culprit isn't there."""

    text: str
    exact: str
    interval: str
    absent: bool
    bar: Bar
    reach: Bar
    """The interval, on the scale of the bars."""


@dataclass(frozen=True)
class ChangeView:
    """One culprit before and after."""

    anchor: str
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
    doubt: str
    place: str
    facts: list[Fact]
    sizes: tuple[Size, Size] | None
    """What it retained at its highest census in both runs."""
    series: SeriesView | None
    signature: str
    markdown: str
    known: KnownView | None


def change_views(
    changes: Sequence[CulpritChange], axis: SharedAxis | None = None
) -> list[ChangeView]:
    """Return every culprit, what is new or worse before the rest, else in the order of rank.

    Args:
        changes: what became of them.
        axis: what both runs lie along.

    """
    taken: set[str] = set()
    ordered = wording.worst_first(changes)
    return [_view(change, place, taken, axis) for place, change in enumerate(ordered)]


def cards(views: Sequence[ChangeView]) -> list[ChangeView]:
    """Return those that have a card each; notes have a row in the table of the rest."""
    return [view for view in views if view.severity != Severity.NOTE.value][:MOST_CARDS]


def _view(
    change: CulpritChange, place: int, taken: set[str], axis: SharedAxis | None
) -> ChangeView:
    sides = (
        (change.before_bytes_per_unit, change.before_interval),
        (change.after_bytes_per_unit, change.after_interval),
    )
    top = max((_highest(rate, interval) for rate, interval in sides), default=1.0)
    before, after = (_cell(change, rate, interval, top) for rate, interval in sides)
    is_grave = change.severity is not Severity.NOTE and place < MOST_CARDS
    return ChangeView(
        anchor=anchor_of("change", change.signature, taken),
        change=wording.change_style(change),
        label=wording.change_word(change),
        name=change.name,
        path=change.path,
        unit=change.unit,
        severity=change.severity.value,
        severity_label=wording.SEVERITIES[change.severity],
        before=before,
        after=after,
        certain=wording.certainty(change),
        text=change.text,
        doubt=change.doubt,
        place=change.place,
        facts=_facts(change),
        sizes=_sizes(change),
        series=series_view(change, f"change-series-{place}", axis) if is_grave else None,
        signature=change.signature,
        markdown=change_markdown(change),
        known=known_view(change.known),
    )


def _highest(rate: float | None, interval: tuple[float, float] | None) -> float:
    known = [x for x in (rate, *(interval or ())) if x is not None and abs(x) < float("inf")]
    return max(known, default=1.0)


def _cell(
    change: CulpritChange,
    rate: float | None,
    interval: tuple[float, float] | None,
    top: float,
) -> RateCell:
    nothing = bar_of(None, top, "")
    if rate is None:
        missing = wording.missing_rate(change)
        return RateCell(missing, "not among the culprits", "", True, nothing, nothing)
    return RateCell(
        text=humane_rate(rate, change.unit),
        exact=f"{exact_bytes(rate)} per {change.unit}",
        interval=humane_interval(interval) if interval else "",
        absent=False,
        bar=bar_of(rate, top, "rate"),
        reach=_reach(interval, top),
    )


def _reach(interval: tuple[float, float] | None, top: float) -> Bar:
    if interval is None or not top > 0:
        return bar_of(None, top, "")
    low, high = (min(max(edge / top, 0.0), 1.0) for edge in interval)
    if not low < high:
        return bar_of(None, top, "")
    return Bar(f"{100 * low:.2f}%", f"{100 * (high - low):.2f}%", "reach")


def _sizes(change: CulpritChange) -> tuple[Size, Size] | None:
    if change.before_total_bytes is None and change.after_total_bytes is None:
        return None
    return size_of(change.before_total_bytes), size_of(change.after_total_bytes)


def _facts(change: CulpritChange) -> list[Fact]:
    facts = [
        Fact("Device", "" if change.device == "host" else change.device),
        Fact("In DataLoader workers", _both(change.before_workers, change.after_workers)),
        Fact("In ranks", _ranks(change)),
    ]
    return [fact for fact in facts if fact.value]


def _both(before: int, after: int) -> str:
    return f"{before:,} before, {after:,} after" if before or after else ""


def _ranks(change: CulpritChange) -> str:
    """Return the rates of few ranks, or in how many of many it grows."""
    first, second = change.before_rates_by_rank, change.after_rates_by_rank
    ranks = sorted({**first, **second}, key=lambda rank: (len(rank), rank))
    if len(ranks) > FEW_RANKS:
        return f"grew in {plural(len(first), 'rank')} before, in {len(second):,} after"
    told = [f"{rank}: {_rate(first.get(rank))} → {_rate(second.get(rank))}" for rank in ranks]
    return "; ".join(told)


def _rate(rate: float | None) -> str:
    return "none" if rate is None else humane_bytes(rate)
