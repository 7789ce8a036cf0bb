"""Amounts of memory before and after, in tables with bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leakscope.model.comparison import WORTH_A_WORD, ValueChange
from leakscope.report import wording
from leakscope.report.sizes import Size, humane_interval, humane_rate, signed_share, size_of
from leakscope.report.tables import Bar, bar_of


@dataclass(frozen=True)
class ValueRow:
    """One amount before and after, with its difference."""

    name: str
    device: str
    before: Size
    after: Size
    before_interval: str
    after_interval: str
    before_order: str
    after_order: str
    before_bar: Bar
    after_bar: Bar
    delta: Size
    delta_share: str
    direction: str
    order: str
    certain: str


def value_rows(changes: Sequence[ValueChange]) -> list[ValueRow]:
    """Return rows whose bars share one scale per device and unit."""
    tops: dict[tuple[str, str], float] = {}
    for change in changes:
        key = (change.device, change.unit)
        tops[key] = max(tops.get(key, 1.0), change.before_bytes or 0.0, change.after_bytes or 0.0)
    return [_value_row(change, tops[change.device, change.unit]) for change in changes]


def _value_row(change: ValueChange, top: float) -> ValueRow:
    before, after = change.before_bytes, change.after_bytes
    delta = None if before is None or after is None else after - before
    told = change.significant is not False and _is_worth_a_word(before, after)
    return ValueRow(
        name=wording.metric_words(change.name).replace("_", " "),
        device=change.device,
        before=_amount(before, change.unit),
        after=_amount(after, change.unit),
        before_interval=humane_interval(change.before_interval) if change.before_interval else "",
        after_interval=humane_interval(change.after_interval) if change.after_interval else "",
        before_order=str(before or 0),
        after_order=str(after or 0),
        before_bar=bar_of(before, top, "before"),
        after_bar=bar_of(after, top, "after"),
        delta=size_of(delta, signed=True),
        delta_share=signed_share(delta / before) if delta is not None and before else "",
        direction="" if not delta or not told else "down" if delta < 0 else "up",
        order=str(delta or 0),
        certain=wording.certainty(change),
    )


def _is_worth_a_word(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return False
    return abs(after - before) > WORTH_A_WORD * max(abs(before), abs(after))


def _amount(amount: float | None, unit: str) -> Size:
    size = size_of(amount)
    return Size(humane_rate(amount, unit), size.exact) if unit and amount is not None else size
