"""Answers in a notebook: HTML that loads nothing and takes its colours from the page around it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from leakscope.heap.snapshots.printing import Cell, Column, Page, Table
from leakscope.model.printable import one_line

_NUMBER = "text-align:right;white-space:nowrap"
_TEXT = "text-align:left;overflow-wrap:anywhere"
_INDENT_EM = 1.4


def as_html(page: Page) -> str:
    """Return a page as HTML; nothing from the user's program passes unescaped."""
    parts = [f"<p><strong>{_text(page.title)}</strong></p>", *_paragraphs(page.lines)]
    parts += [_table(table) for table in page.tables]
    parts += _paragraphs(page.notes)
    return f'<div class="leakscope">{"".join(parts)}</div>'


def _paragraphs(lines: Sequence[str]) -> list[str]:
    return ["<p>" + "<br>".join(map(_text, lines)) + "</p>"] if lines else []


def _table(table: Table) -> str:
    caption = f"<p>{_text(table.caption)}</p>" if table.caption else ""
    head = "".join(
        f'<th scope="col" style="{_style(column)}">{_text(column.title)}</th>'
        for column in table.columns
    )
    body = "".join(f"<tr>{_row(table.columns, row)}</tr>" for row in table.rows)
    return f"{caption}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(columns: Sequence[Column], row: Sequence[Cell]) -> str:
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
