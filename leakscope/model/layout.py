"""Layout of plain text: wrapped lines, tables that fit a width, and pages of both.

:class:`Paper` lays out lines for a terminal, with or without colours; :func:`table_lines` fits
a table, whose flexible columns give way first; an :class:`AnswerPage` prints as text in a
terminal and as tables in a notebook.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from leakscope.model.text import clipped, human_bytes, one_line

_NARROWEST = 40
_FALLBACK = (100, 24)
_GAP = "  "
WIDEST = 120
"""Longer lines are hard to read, however wide the terminal."""
_NARROWEST_WRAP = 20
_STYLES = {
    "leak": "1;31", "critical": "1;31", "worse": "1;31", "new": "1;31", "removed": "31",
    "out_of_memory": "1;31",
    "warning": "1;33", "inconclusive": "1;33", "unchanged": "1;33", "reduced": "33",
    "clean": "1;32", "fixed": "1;32", "added": "32", "note": "2", "muted": "2", "name": "1",
}  # fmt: skip
"""By style, the parameters of the terminal's escape for its colour."""


@dataclass(frozen=True)
class Paper:
    """How wide the terminal is and whether it shows colours."""

    width: int
    color: bool

    def paint(self, text: str, style: str) -> str:
        """Return text in the style's colour where there are colours."""
        code = _STYLES.get(style, "") if self.color else ""
        return f"\x1b[{code}m{text}\x1b[0m" if code else text

    def wrap(self, text: str, indent: str = "", most: int = 0) -> list[str]:
        """Return running text broken to the width; no line is wider, and no more than ``most``."""
        return textwrap.wrap(
            one_line(text),
            max(_NARROWEST_WRAP, self.width),
            initial_indent=indent,
            subsequent_indent=indent,
            max_lines=most or None,
            placeholder=" …",
        )

    def titled(self, label: str, style: str, text: str) -> list[str]:
        """Return running text behind a label in its style's colour."""
        first, *rest = self.wrap(f"{label} · {text}")
        return [first.replace(label, self.paint(label, style), 1), *rest]

    def clip(self, text: str, indent: str = "") -> str:
        """Return one line that fits, its middle left out where it is too long."""
        return indent + clipped(text, self.width - len(indent))


def paper_of(width: int, color: bool) -> Paper:
    """Return the paper for a terminal of so many columns."""
    return Paper(min(width, WIDEST), color)


def spaced(lines: list[str]) -> list[str]:
    """Return lines after an empty one; nothing where there are none."""
    return ["", *lines] if lines else []


@dataclass(frozen=True)
class AnswerCell:
    """What stands in a table: the text, how far it is indented, and the exact figure behind it."""

    text: str
    exact: str = ""
    indent: int = 0


@dataclass(frozen=True)
class Column:
    """A column: numbers stand at the right; a flexible one gives way where space is short."""

    title: str
    number: bool = True
    flexible: bool = False
    least: int = 12
    """Characters that a flexible column is given before optional ones are left out."""
    width: int = 0
    """Characters that a column takes at least, so that several tables have it at one place."""
    repeats: bool = False
    """Says what another says too: left out of a terminal that is too narrow for all columns."""
    optional: int = False
    """Left out where the terminal is too narrow even without what repeats: the highest number
    first, of equal ones the last."""


@dataclass(frozen=True)
class Table:
    """Rows under columns, with a caption where there are several tables on a page."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[AnswerCell]]
    caption: str = ""


@dataclass(frozen=True)
class AnswerPage:
    """One answer: its first line, further lines, tables, and lines that follow them."""

    title: str
    lines: Sequence[str] = ()
    tables: Sequence[Table] = field(default=())
    notes: Sequence[str] = ()


class Printed(ABC):
    """An answer that prints itself: as text in a terminal, as a table in a notebook."""

    @abstractmethod
    def page(self) -> AnswerPage:
        """Return what is printed."""

    def __repr__(self) -> str:
        return as_text(self.page(), shutil.get_terminal_size(_FALLBACK).columns)

    def _repr_html_(self) -> str:
        return as_html(self.page())


def size(amount: int, *, signed: bool = False) -> AnswerCell:
    """Return a cell with bytes as a person reads them, every digit behind it."""
    sign = "+" if signed and amount > 0 else ""
    return AnswerCell(sign + human_bytes(amount), f"{sign}{amount:,} bytes".replace("-", "−"))


def count(number: int | None, *, signed: bool = False) -> AnswerCell:
    """Return a cell with a count; an empty one where there is none."""
    if number is None:
        return AnswerCell("")
    return AnswerCell(f"{number:+,}".replace("-", "−") if signed and number else f"{number:,}")


def as_text(page: AnswerPage, width: int) -> str:
    """Return a page as lines of at most ``width`` characters, without colours."""
    width = max(width, _NARROWEST)
    blocks = ["\n".join(_wrapped([page.title, *page.lines], width))]
    for table in page.tables:
        caption = [clipped(table.caption, width)] if table.caption else []
        blocks.append("\n".join([*caption, *table_lines(table, width)]))
    if page.notes:
        blocks.append("\n".join(_wrapped(page.notes, width)))
    return "\n\n".join(blocks)


def table_lines(table: Table, width: int) -> list[str]:
    """Return a table as lines, its headings first, a line for each row.

    Where it is wider than ``width``, columns that repeat others are left out, then optional ones,
    and flexible ones are clipped.
    """
    lines = _lines(table, sys.maxsize)
    if max(map(len, lines)) > width:
        table = _without(table, [i for i, column in enumerate(table.columns) if column.repeats])
        while _least_width(table) > width:
            spare = [i for i, column in enumerate(table.columns) if column.optional]
            if not spare:
                break
            last = max(spare, key=lambda i: (table.columns[i].optional, i))
            table = _without(table, [last])
        lines = _lines(table, width)
    return lines


def _wrapped(lines: Sequence[str], width: int) -> list[str]:
    return [
        part
        for line in lines
        for part in textwrap.wrap(one_line(line), width, subsequent_indent=_GAP) or [""]
    ]


def _without(table: Table, dropped: Sequence[int]) -> Table:
    kept = [i for i in range(len(table.columns)) if i not in dropped]
    rows = [[row[i] for i in kept] for row in table.rows]
    return Table([table.columns[i] for i in kept], rows, table.caption)


def _least_width(table: Table) -> int:
    widths = [
        min(column.least, width) if column.flexible else width
        for column, width in zip(table.columns, _natural_widths(table), strict=True)
    ]
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _natural_widths(table: Table) -> list[int]:
    cells = [[column.title for column in table.columns]]
    cells += [[_GAP * cell.indent + one_line(cell.text) for cell in row] for row in table.rows]
    longest = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [max(c.width, width) for c, width in zip(table.columns, longest, strict=True)]


def _lines(table: Table, width: int) -> list[str]:
    shown = [
        [AnswerCell(column.title) for column in table.columns],
        *([AnswerCell(_GAP * c.indent + one_line(c.text)) for c in row] for row in table.rows),
    ]
    widths = _fitted(table.columns, _natural_widths(table), width)
    return [_line(table.columns, row, widths) for row in shown]


def _fitted(columns: Sequence[Column], natural: list[int], width: int) -> list[int]:
    """Give flexible columns what the others leave: the shorter ones first, as much as they need."""
    widths = list(natural)
    flexible = sorted((i for i, c in enumerate(columns) if c.flexible), key=lambda i: natural[i])
    fixed = sum(n for n, c in zip(natural, columns, strict=True) if not c.flexible)
    left = width - fixed - len(_GAP) * (len(columns) - 1)
    for waiting, i in enumerate(flexible):
        room = max(columns[i].least, left // (len(flexible) - waiting))
        widths[i] = min(natural[i], room)
        left -= widths[i]
    return widths


def _line(columns: Sequence[Column], row: Sequence[AnswerCell], widths: list[int]) -> str:
    parts = []
    for column, cell, width in zip(columns, row, widths, strict=True):
        text = clipped(cell.text, width)
        parts.append(text.rjust(width) if column.number else text.ljust(width))
    return _GAP.join(parts).rstrip()


_NUMBER = "text-align:right;white-space:nowrap"
_TEXT = "text-align:left;overflow-wrap:anywhere"
_INDENT_EM = 1.4


def as_html(page: AnswerPage) -> str:
    """Return a page as HTML; nothing from the user's program passes unescaped."""
    parts = [f"<p><strong>{_text(page.title)}</strong></p>", *_paragraphs(page.lines)]
    parts += [_html_table(table) for table in page.tables]
    parts += _paragraphs(page.notes)
    return f'<div class="leakscope">{"".join(parts)}</div>'


def _paragraphs(lines: Sequence[str]) -> list[str]:
    return ["<p>" + "<br>".join(map(_text, lines)) + "</p>"] if lines else []


def _html_table(table: Table) -> str:
    caption = f"<p>{_text(table.caption)}</p>" if table.caption else ""
    head = "".join(
        f'<th scope="col" style="{_style(column)}">{_text(column.title)}</th>'
        for column in table.columns
    )
    body = "".join(f"<tr>{_html_row(table.columns, row)}</tr>" for row in table.rows)
    return f"{caption}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html_row(columns: Sequence[Column], row: Sequence[AnswerCell]) -> str:
    cells = []
    for column, cell in zip(columns, row, strict=True):
        title = f' title="{_text(cell.exact)}"' if cell.exact else ""
        indent = f";padding-left:{cell.indent * _INDENT_EM + 0.5:g}em" if cell.indent else ""
        cells.append(f'<td style="{_style(column)}{indent}"{title}>{_text(cell.text)}</td>')
    return "".join(cells)


def _style(column: Column) -> str:
    return _NUMBER if column.number else _TEXT


def _text(text: str) -> str:
    return escape(one_line(text), quote=True)
