"""The tables of the page with their bars: phases, components, growth, cleared items; and the
ledger as a waterfall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from leakscope.model.gauge import CHILDREN_PSS
from leakscope.model.report import (
    Cleared,
    Component,
    Ledger,
    LedgerEntry,
    MappingTerm,
    MetricGrowth,
    PeakMemory,
    PhaseMemory,
)
from leakscope.model.trend import TrendVerdict
from leakscope.report.text import (
    Size,
    clock,
    exact_bytes,
    exact_interval,
    humane_bytes,
    humane_interval,
    humane_rate,
    humane_share,
    size_of,
)
from leakscope.report.words import bookkeeper_words, event_words, metric_words

_MOST_PHASES = 4
"""Columns that a table of components has for phases."""


@dataclass(frozen=True)
class Fact:
    """A label and a value; ``exact`` is revealed on hover."""

    label: str
    value: str
    exact: str = ""


@dataclass(frozen=True)
class Bar:
    """A bar inside a cell: where it begins and how wide it is, as CSS lengths."""

    left: str
    width: str
    kind: str = ""
    """The style; ``none`` draws nothing."""


@dataclass(frozen=True)
class Cell:
    """An amount and its bar."""

    size: Size
    bar: Bar
    order: str


@dataclass(frozen=True)
class PhaseRow:
    """Memory before, at the peak of and after a phase."""

    phase: str
    metric: str
    occurrences: str
    before: Cell
    peak: Cell
    after: Cell
    kept: Size
    kept_order: str
    highest: Size | None
    """What the phase raised the peak to between boundaries; None where it isn't worth telling."""
    raised: str
    """By how much it raised a device's; empty for the host."""


@dataclass(frozen=True)
class ComponentRow:
    """Memory of one component over the run."""

    name: str
    device: str
    start: Cell
    peak: Cell
    end: Cell
    phases: list[Cell]
    """Its highest in each of :func:`component_phases`."""


@dataclass(frozen=True)
class GrowthRow:
    """How fast a gauge grows and how much of that has a name."""

    metric: str
    raw: str
    rate: str
    exact: str
    interval: str
    exact_interval: str
    named: str
    explained: str
    explained_bar: Bar | None
    note: str = ""
    """What is known of it by name all the same."""


@dataclass(frozen=True)
class ClearedRow:
    """Something that was looked at and is fine."""

    name: str
    path: str
    reason: str
    kind: str
    size: Size


def phase_rows(phases: Sequence[PhaseMemory]) -> list[PhaseRow]:
    """Return one row a phase; bars share one scale per gauge."""
    tops = _tops((p.metric, max(p.before_bytes, p.peak_bytes, p.after_bytes)) for p in phases)
    return [
        PhaseRow(
            phase=phase.phase,
            metric=metric_words(phase.metric),
            occurrences=f"{phase.occurrences:,}",
            before=cell_of(phase.before_bytes, tops[phase.metric]),
            peak=cell_of(phase.peak_bytes, tops[phase.metric], "peak"),
            after=cell_of(phase.after_bytes, tops[phase.metric]),
            kept=size_of(phase.kept_bytes, signed=True),
            kept_order=str(phase.kept_bytes),
            highest=None if phase.highest_bytes is None else size_of(phase.highest_bytes),
            raised=_raised(phase),
        )
        for phase in phases
    ]


def _raised(phase: PhaseMemory) -> str:
    """Return how much a phase raised a device's peak; the host's rises by imports, too."""
    is_device = "." in phase.metric
    return humane_bytes(phase.raised_bytes, signed=True) if is_device and phase.raised_bytes else ""


def component_rows(components: Sequence[Component]) -> list[ComponentRow]:
    """Return one row a component and device; bars share one scale per device."""
    tops = _tops((c.device, max(c.start_bytes, c.peak_bytes, c.end_bytes)) for c in components)
    shown = component_phases(components)
    return [
        ComponentRow(
            name=component.name.replace("_", " "),
            device=component.device,
            start=cell_of(component.start_bytes, tops[component.device]),
            phases=[
                cell_of(component.by_phase.get(phase), tops[component.device], "peak")
                for phase in shown
            ],
            peak=cell_of(component.peak_bytes, tops[component.device], "peak"),
            end=cell_of(component.end_bytes, tops[component.device]),
        )
        for component in components
    ]


def component_phases(components: Sequence[Component]) -> list[str]:
    """Return the phases that have a column of their own, in the order of training."""
    named = dict.fromkeys(phase for c in components for phase in c.by_phase)
    return list(named)[:_MOST_PHASES] if len(named) > 1 else []


def growth_rows(growth: Sequence[MetricGrowth], in_workers: str = "") -> list[GrowthRow]:
    """Return the rates of the gauges; ``in_workers`` is what grows by name in child processes."""
    return [
        GrowthRow(
            metric=metric_words(g.metric),
            raw=g.metric,
            rate=humane_rate(g.bytes_per_unit, g.unit),
            exact=f"{exact_bytes(g.bytes_per_unit)} per {g.unit}",
            interval=humane_interval(g.interval),
            exact_interval=f"{exact_interval(g.interval)} per {g.unit}",
            named=humane_share(g.named_share),
            explained=humane_share(g.explained_share),
            explained_bar=_share_bar(g.explained_share),
            note=in_workers if g.metric == CHILDREN_PSS else event_words(g),
        )
        for g in growth
    ]


def cleared_rows(cleared: Sequence[Cleared]) -> list[ClearedRow]:
    """Return what was looked at and is fine."""
    return [ClearedRow(c.name, c.path, c.reason, c.kind, size_of(c.total_bytes)) for c in cleared]


def _share_bar(share: float | None) -> Bar | None:
    return None if share is None else bar_of(share, 1.0, "named")


def _tops(amounts: Iterable[tuple[str, int]]) -> dict[str, int]:
    tops: dict[str, int] = {}
    for key, amount in amounts:
        tops[key] = max(tops.get(key, 1), amount)
    return tops


def cell_of(amount: int | None, top: int, kind: str = "") -> Cell:
    """Return an amount with its bar; what wasn't measured is unknown, and sorted as nothing."""
    return Cell(size_of(amount), bar_of(amount, top, kind), str(amount or 0))


def bar_of(amount: float | None, top: float, kind: str) -> Bar:
    """Return a bar from the left edge; nothing is drawn for what isn't there."""
    if amount is None or not amount > 0 or not top > 0:
        return Bar("0%", "0%", "none")
    return Bar("0%", percent_of(amount, top), kind)


def percent_of(part: float, whole: float) -> str:
    """Return a part of a whole as a CSS length, at most all of it."""
    return f"{100 * min(1.0, part / whole):.2f}%" if whole and part == part else "0.00%"


TELLING_BYTES = 1 << 20
"""A ledger of less than this has no shares."""
UNEXPLAINED = ("unexplained", "unnamed")
"""Terms of a ledger that say that nobody knows."""
BEGINS_LATE = 0.3
"""Where growth is less than this part of what there was, the scale doesn't begin at zero."""
_GROUPS = {
    "by name": ("named", "graph"),
    "estimated": ("imputed", "native"),
    "measured otherwise": (),
    "leakscope itself": ("own",),
    "unexplained": ("unexplained",),
}
"""Kinds of entries by how well they are known; what none lists was measured otherwise."""
_STYLES = {
    "by name": "named",
    "estimated": "imputed",
    "measured otherwise": "other",
    "leakscope itself": "own",
    "unexplained": "unexplained",
}


@dataclass(frozen=True)
class LedgerRow:
    """One term: its amount and its step of the waterfall."""

    label: str
    kind: str
    note: str
    size: Size
    share: str
    bar: Bar


@dataclass(frozen=True)
class LedgerPart:
    """How much of the growth is known in one way."""

    label: str
    share: str
    size: Size
    bar: Bar


@dataclass(frozen=True)
class LedgerView:
    """Where the growth of one kind of memory went."""

    metric: str
    total: Size
    change: str
    total_bar: Bar
    before: LedgerRow | None
    rows: list[LedgerRow]
    after: LedgerRow | None
    parts: list[LedgerPart]
    scale: str
    """Where the scale begins, if not at zero."""
    advice: str
    unexplained: str


def ledger_view(ledger: Ledger, in_workers: str = "") -> LedgerView:
    """Return the waterfall: each term begins where the one before ended.

    Args:
        ledger: The account.
        in_workers: What grows by name in child processes.

    """
    ends = _running(ledger.entries)
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
    return LedgerView(
        metric=metric_words(ledger.metric),
        total=size_of(abs(ledger.total_bytes)),
        change="fell by" if ledger.total_bytes < 0 else "grew by",
        total_bar=bar(0, ledger.total_bytes, "total"),
        before=_end(
            "Before",
            _moment(ledger.from_boundary, ledger.from_s, ledger.recorded_s),
            before,
            bar(low, 0, _torn(begins_late)),
        ),
        rows=rows,
        after=_end(
            "After",
            _moment(ledger.to_boundary, ledger.to_s, ledger.recorded_s),
            None if before is None else before + ledger.total_bytes,
            bar(low, ledger.total_bytes, _torn(begins_late)),
        ),
        parts=_parts(ledger.entries) if ledger.total_bytes >= TELLING_BYTES else [],
        scale=f"The bars begin at {humane_bytes(before + low)}."
        if before is not None and begins_late
        else "",
        advice=ledger.advice,
        unexplained=_part(abs(unexplained_of(ledger)), ledger.total_bytes),
    )


@dataclass(frozen=True)
class MappingRow:
    """One kind of mapping: what it gained and holds, and whether it goes on."""

    label: str
    gained: Size
    total: Size
    verdict: str


def mapping_rows(terms: Sequence[MappingTerm]) -> list[MappingRow]:
    """Return kinds of mappings with what came of each."""
    return [
        MappingRow(
            label=term.label,
            gained=size_of(term.bytes, signed=True),
            total=size_of(term.held_bytes),
            verdict=f"grows, {humane_rate(term.bytes_per_unit, term.unit)}"
            if term.verdict is TrendVerdict.GROWING
            else _MAPPING_VERDICTS[term.verdict],
        )
        for term in terms
    ]


@dataclass(frozen=True)
class PeakRow:
    """What was live for one line when the process was largest."""

    place: str
    function: str
    owner: str
    size: Size
    interval: str


@dataclass(frozen=True)
class PeakComposition:
    """The composition of the peak."""

    title: str
    note: str
    rows: list[PeakRow]


def peak_moment(peak: PeakMemory) -> str:
    """Return when memory was highest: the step, of a program without steps the time."""
    return f"step {peak.step:,}" if peak.step else f"at {clock(peak.time_s)}"


def peak_view(peak: PeakMemory | None) -> PeakComposition | None:
    """Return what was live when the process was largest."""
    if peak is None:
        return None
    below = peak.highest_bytes - peak.private_bytes
    missed = f" The highest reading was {humane_bytes(below)} higher." if below > 0 else ""
    return PeakComposition(
        title=f"What was live when the process was largest: {peak_moment(peak)}, "
        f"{humane_bytes(peak.private_bytes)} of its own",
        note="Estimates from sampled allocations since the recording began, "
        f"{humane_bytes(peak.sampled_bytes)} together.{missed}",
        rows=[
            PeakRow(
                place=site.location or "no line of the program's",
                function=f"{site.library} · {site.function}" if site.function else site.library,
                owner=bookkeeper_words(site),
                size=size_of(site.bytes),
                interval=humane_interval(site.interval),
            )
            for site in peak.sites
        ],
    )


_MAPPING_VERDICTS = {
    TrendVerdict.BOUNDED: "rests",
    TrendVerdict.INCONCLUSIVE: "more work would tell",
}


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
        return Bar(
            percent_of(min(start, stop) - low, span), percent_of(abs(stop - start), span), kind
        )

    return bar


def _torn(begins_late: bool) -> str:
    return "total torn" if begins_late else "total"


def _end(label: str, moment: str, amount: int | None, bar: Bar) -> LedgerRow | None:
    if amount is None:
        return None
    return LedgerRow(label, "total", moment, size_of(amount), "", bar)


def _moment(boundary: int, seconds: float | None, recorded: float | None) -> str:
    """Return when a boundary was: growth is accounted for over a part of the run."""
    place = f"boundary {boundary:,}"
    if seconds is None or recorded is None:
        return place
    return f"{place}, {clock(seconds)} of {clock(recorded)}"


def _parts(entries: Sequence[LedgerEntry]) -> list[LedgerPart]:
    """Return how well the growth is known, as a row of bars that fill the width."""
    amounts = dict.fromkeys(_GROUPS, 0)
    for entry in entries:
        amounts[_group(entry.kind)] += entry.bytes
    grown = {group: amount for group, amount in amounts.items() if amount > 0}
    whole, parts, so_far = sum(grown.values()), list[LedgerPart](), 0
    for group, amount in grown.items():
        bar = Bar(percent_of(so_far, whole), percent_of(amount, whole), _STYLES[group])
        parts.append(LedgerPart(group, humane_share(amount / whole), size_of(amount), bar))
        so_far += amount
    return parts


def _group(kind: str) -> str:
    return next((g for g, kinds in _GROUPS.items() if kind in kinds), "measured otherwise")


def _running(entries: Sequence[LedgerEntry]) -> list[int]:
    ends = [0]
    for entry in entries:
        ends.append(ends[-1] + entry.bytes)
    return ends


def _part(part: int, whole: int) -> str:
    """Return a share in words; shares of next to nothing are left out, for they confuse."""
    return humane_share(part / whole) if whole >= TELLING_BYTES else ""
