"""The same as the picture in numbers: for who can't see it, and where there is no script."""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.analysis.retained.weights import grown, held
from leakscope.model.retained import NodeKind, Retained
from leakscope.report.icicle import words
from leakscope.report.icicle.subject import Mark, Subject
from leakscope.report.sizes import UNKNOWN, Size, size_of

TABLE_ROWS = 30


@dataclass(frozen=True)
class RowView:
    """A line of the table, with an amount for each of its columns."""

    name: str
    sizes: list[Size]
    mark: Mark | None


@dataclass(frozen=True)
class TableView:
    """What a process's memory held, in numbers: a row a name."""

    process: str
    columns: list[str]
    """Of its amounts."""
    rows: list[RowView]


def table_of(subject: Subject, change: str) -> TableView:
    """Return the names that hold most, with what they held at the moments of both pictures.

    ``change`` is what the picture of growth is called.
    """
    retained, moments = subject.retained, subject.moments
    shown = [moments[retained.shown]] if _is_apart(retained) else []
    columns = [*shown, *(moments[place] for place in subject.ends), change]
    return TableView(subject.process, columns, _rows(subject))


def _is_apart(retained: Retained) -> bool:
    """Return whether what is looked at first is not the end of the growth."""
    return retained.shown != retained.last


def _rows(subject: Subject) -> list[RowView]:
    retained, device = subject.retained, subject.device
    first, last = (held(retained, device, place).bytes for place in subject.ends)
    shown = held(retained, device, retained.shown).bytes
    change = grown(retained, device, *subject.ends)
    rows = [place for place, node in enumerate(retained.nodes) if node.kind is NodeKind.ROW]
    rows.sort(key=lambda p: (-max(shown[p] or 0, last[p] or 0, change.widths[p]), p))
    return [
        RowView(
            name=retained.nodes[place].name,
            sizes=[
                *([_held_size(shown[place])] if _is_apart(retained) else []),
                _held_size(first[place]),
                _held_size(last[place]),
                _change_size(first[place], last[place], change.bytes[place]),
            ],
            mark=subject.marks.get(place),
        )
        for place in rows[:TABLE_ROWS]
    ]


def _held_size(size: int | None) -> Size:
    return Size(UNKNOWN, words.ABSENT) if size == 0 else size_of(size)


def _change_size(first: int | None, last: int | None, change: int | None) -> Size:
    if first == last == 0:
        return Size(UNKNOWN, f"both times {words.ABSENT}")
    return size_of(change, signed=True)
