"""The tables of the page with their bars: phases, components, growth, cleared items; and the
ledger as a waterfall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, TypeVar

from leakscope.model.report import (
    Component,
    Ledger,
    LedgerEntry,
    MappingTerm,
    PeakMemory,
    PhaseMemory,
)
from leakscope.model.trend import TrendVerdict
from leakscope.report.text import Size, clock, humane_bytes, humane_rate, humane_share, size_of
from leakscope.report.words import metric_words

_MOST_PHASES = 4
"""Columns that a table of components has for phases."""


@dataclass(frozen=True)
class Fact:
    """A label and a value; ``exact`` is revealed on hover."""

    label: str
    value: str
    exact: str = ""


def size_facts(amounts: Iterable[tuple[str, float | None]]) -> list[Fact]:
    """Return amounts of bytes with their labels."""
    sizes = [(label, size_of(amount)) for label, amount in amounts]
    return [Fact(label, size.text, size.exact) for label, size in sizes]


@dataclass(frozen=True)
class Bar:
    """A bar inside a cell: where it begins and how wide it is, as CSS lengths."""

    left: str
    width: str
    kind: str = ""
    """The style; ``none`` draws nothing."""


NO_BAR = Bar("0%", "0%", "none")


@dataclass(frozen=True)
class Cell:
    """An amount and its bar."""

    size: Size
    bar: Bar
    order: str


Row = TypeVar("Row", PhaseMemory, Component)


def with_scale(rows: Sequence[Row], scale: str, *amounts: str) -> list[tuple[Row, int]]:
    """Return rows, each with the amount that fills a bar: of those with the same ``scale``, the
    largest of the ``amounts``.
    """
    tops: dict[str, int] = {}
    for row in rows:
        key = getattr(row, scale)
        tops[key] = max(tops.get(key, 1), *(getattr(row, name) for name in amounts))
    return [(row, tops[getattr(row, scale)]) for row in rows]


def raised_words(phase: PhaseMemory) -> str:
    """Return how much a phase raised a device's peak; the host's rises by imports, too."""
    is_device = "." in phase.metric
    return humane_bytes(phase.raised_bytes, signed=True) if is_device and phase.raised_bytes else ""


def component_phases(components: Sequence[Component]) -> list[str]:
    """Return the phases that have a column of their own, in the order of training."""
    named = dict.fromkeys(phase for c in components for phase in c.by_phase)
    return list(named)[:_MOST_PHASES] if len(named) > 1 else []


def cell_of(amount: float | None, top: float, kind: str = "") -> Cell:
    """Return an amount with its bar; what wasn't measured is unknown, and sorted as nothing."""
    return Cell(size_of(amount), bar_of(amount, top, kind), str(amount or 0))


def bar_of(amount: float | None, top: float, kind: str) -> Bar:
    """Return a bar from the left edge; nothing is drawn for what isn't there."""
    if amount is None or not amount > 0 or not top > 0:
        return NO_BAR
    return Bar("0%", percent_of(amount, top), kind)


def most_bytes(rows: Iterable[Any], name: str = "bytes") -> int:
    """Return the amount that fills a bar: the largest of some rows."""
    return max((getattr(row, name) for row in rows), default=1)


def direction_of(change: float | None) -> str:
    """Return the style of a difference."""
    return "" if not change else "down" if change < 0 else "up"


def percent_of(part: float, whole: float = 1.0) -> str:
    """Return a part of a whole as a CSS length between 0 and 100 %."""
    share = part / whole if whole and part == part else 0.0
    return f"{100 * min(1.0, max(0.0, share)):.2f}%"


TELLING_BYTES = 1 << 20
"""A ledger of less than this has no shares."""
UNEXPLAINED = ("unexplained", "unnamed")
"""Terms of a ledger that say that nobody knows."""
BEGINS_LATE = 0.3
"""Where growth is less than this part of what there was, the scale doesn't begin at zero."""
_GROUPS = {
    "by name": ("named", "graph"),
    "estimated": ("imputed", "native"),
    "measured otherwise": ("other",),
    "leakscope itself": ("own",),
    "unexplained": ("unexplained",),
}
"""Kinds of entries by how well they are known, the one whose style they have first; what none
lists was measured otherwise.
"""
_GROUP_OF = {kind: group for group, kinds in _GROUPS.items() for kind in kinds}


@dataclass(frozen=True)
class LedgerRow:
    """One term: its amount and its step of the waterfall."""

    label: str
    kind: str
    note: str
    size: Size
    share: str
    bar: Bar


def ledger_view(ledger: Ledger, in_workers: str = "") -> SimpleNamespace:
    """Return the waterfall: each term begins where the one before ended.

    ``in_workers`` is what grows by name in child processes.
    """
    ends = [*accumulate((entry.bytes for entry in ledger.entries), initial=0)]
    low, high = _scale(ledger, ends)
    bar = _bars(low, high)
    rows = [
        LedgerRow(
            label=entry.label,
            kind=entry.kind,
            note=entry.note or (in_workers if entry.kind == "children" else ""),
            size=size_of(entry.bytes, signed=True),
            share=_part(entry.bytes, ledger.total_bytes),
            bar=bar(start, start + entry.bytes, entry.kind),
        )
        for entry, start in zip(ledger.entries, ends, strict=False)
    ]
    before = ledger.before_bytes
    begins_late = before is not None and low > -before

    def end(label: str, boundary: int, seconds: float | None, change: int) -> LedgerRow | None:
        if before is None:
            return None
        moment = _moment(boundary, seconds, ledger.recorded_s)
        picture = bar(low, change, "total torn" if begins_late else "total")
        return LedgerRow(label, "total", moment, size_of(before + change), "", picture)

    return SimpleNamespace(
        metric=metric_words(ledger.metric),
        total=size_of(abs(ledger.total_bytes)),
        change="fell by" if ledger.total_bytes < 0 else "grew by",
        total_bar=bar(0, ledger.total_bytes, "total"),
        before=end("Before", ledger.from_boundary, ledger.from_s, 0),
        rows=rows,
        after=end("After", ledger.to_boundary, ledger.to_s, ledger.total_bytes),
        parts=_parts(ledger.entries) if ledger.total_bytes >= TELLING_BYTES else [],
        scale=f"The bars begin at {humane_bytes((before or 0) + low)}." if begins_late else "",
        advice=ledger.advice,
        unexplained=_part(abs(unexplained_of(ledger)), ledger.total_bytes),
    )


def mapping_words(term: MappingTerm) -> str:
    """Return whether a kind of mapping goes on growing."""
    rests = {TrendVerdict.BOUNDED: "rests", TrendVerdict.INCONCLUSIVE: "more work would tell"}
    rate = humane_rate(term.bytes_per_unit, term.unit)
    return rests.get(term.verdict, f"grows, {rate}")


def peak_moment(peak: PeakMemory) -> str:
    """Return when memory was highest: the step, of a program without steps the time."""
    return f"step {peak.step:,}" if peak.step else f"at {clock(peak.time_s)}"


def peak_title(peak: PeakMemory) -> str:
    """Return the heading of the composition of the peak."""
    return (
        f"What was live when the process was largest: {peak_moment(peak)}, "
        f"{humane_bytes(peak.private_bytes)} of its own"
    )


def peak_note(peak: PeakMemory) -> str:
    """Return how the composition of the peak is known, and what it misses."""
    below = peak.highest_bytes - peak.private_bytes
    missed = f" The highest reading was {humane_bytes(below)} higher." if below > 0 else ""
    return (
        "Estimates from sampled allocations since the recording began, "
        f"{humane_bytes(peak.sampled_bytes)} together.{missed}"
    )


def ledger_words(ledger: Ledger, most: int) -> str:
    """Return the largest terms in a line, and what is unexplained however small."""
    left = sum(entry.bytes for entry in ledger.entries if entry.kind in UNEXPLAINED)
    known = [entry for entry in ledger.entries if entry.kind not in UNEXPLAINED and entry.bytes]
    largest = sorted(known, key=lambda entry: -abs(entry.bytes))[:most]
    terms = [f"{entry.label} {humane_bytes(entry.bytes, signed=True)}" for entry in largest]
    whole = ledger.total_bytes
    share = f" ({humane_share(abs(left) / whole)})" if whole > 0 and abs(left) <= whole else ""
    terms.append(f"unexplained {humane_bytes(left, signed=True)}{share}")
    name = metric_words(ledger.metric)
    return f"{name} {humane_bytes(whole, signed=True)}: {', '.join(terms)}"


def unexplained_of(ledger: Ledger) -> int:
    """Return the bytes for which no term was found."""
    return sum(entry.bytes for entry in ledger.entries if entry.kind == "unexplained")


def _scale(ledger: Ledger, ends: Sequence[int]) -> tuple[float, float]:
    """Return the ends of the scale, counted from what there was before."""
    low, high = min(0, ledger.total_bytes, *ends), max(0, ledger.total_bytes, *ends)
    before = ledger.before_bytes
    if before is None:
        return low, high
    reach = high - low
    if reach >= BEGINS_LATE * (before + high):
        return -before, high
    return max(-before, low - 0.3 * reach), high


def _bars(low: float, high: float) -> Callable[[float, float, str], Bar]:
    span = (high - low) or 1

    def bar(start: float, stop: float, kind: str) -> Bar:
        left = percent_of(min(start, stop) - low, span)
        return Bar(left, percent_of(abs(stop - start), span), kind)

    return bar


def _moment(boundary: int, seconds: float | None, recorded: float | None) -> str:
    """Return when a boundary was: growth is accounted for over a part of the run."""
    place = f"boundary {boundary:,}"
    if seconds is None or recorded is None:
        return place
    return f"{place}, {clock(seconds)} of {clock(recorded)}"


def _parts(entries: Sequence[LedgerEntry]) -> list[SimpleNamespace]:
    """Return how well the growth is known, as a row of bars that fill the width."""
    amounts = dict.fromkeys(_GROUPS, 0)
    for entry in entries:
        amounts[_GROUP_OF.get(entry.kind, "measured otherwise")] += entry.bytes
    grown = {group: amount for group, amount in amounts.items() if amount > 0}
    whole, parts, so_far = sum(grown.values()), list[SimpleNamespace](), 0
    for group, amount in grown.items():
        bar = Bar(percent_of(so_far, whole), percent_of(amount, whole), _GROUPS[group][0])
        share = humane_share(amount / whole)
        parts.append(SimpleNamespace(label=group, share=share, size=size_of(amount), bar=bar))
        so_far += amount
    return parts


def _part(part: int, whole: int) -> str:
    """Return a share in words; shares of next to nothing are left out, for they confuse."""
    return humane_share(part / whole) if whole >= TELLING_BYTES else ""
