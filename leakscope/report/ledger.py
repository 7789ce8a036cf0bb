"""The ledger as a waterfall: what there was before, what came and went, what there was after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leakscope.model.report import Ledger, LedgerEntry
from leakscope.report.sizes import Size, clock, humane_bytes, humane_share, size_of
from leakscope.report.tables import Bar, percent_of
from leakscope.report.wording import metric_words

TELLING_BYTES = 1 << 20
"""A ledger of less than this has no shares."""
BEGINS_LATE = 0.3
"""Where growth is less than this part of what there was, the scale doesn't begin at zero."""
_GROUPS = {
    "by name": ("named", "graph"),
    "estimated": ("imputed",),
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
class Part:
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
    parts: list[Part]
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


def _parts(entries: Sequence[LedgerEntry]) -> list[Part]:
    """Return how well the growth is known, as a row of bars that fill the width."""
    amounts = dict.fromkeys(_GROUPS, 0)
    for entry in entries:
        amounts[_group(entry.kind)] += entry.bytes
    grown = {group: amount for group, amount in amounts.items() if amount > 0}
    whole, parts, so_far = sum(grown.values()), list[Part](), 0
    for group, amount in grown.items():
        bar = Bar(percent_of(so_far, whole), percent_of(amount, whole), _STYLES[group])
        parts.append(Part(group, humane_share(amount / whole), size_of(amount), bar))
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
