"""The cells of a notebook as one program: what one defines another uses."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from typing import NamedTuple

NOTEBOOK = "notebook"
"""The path under which all cells are known as one text."""


class Span(NamedTuple):
    """Where a cell lies in the text of all."""

    first: int
    path: str


class Cells:
    """The cells that were recorded, in the order in which they were run last.

    Args:
        sources: Text of each cell by the path of its code.
        titles: What each is called: ``In [5]``.

    """

    def __init__(self, sources: dict[str, str], titles: dict[str, str]) -> None:
        self.titles = titles
        self._spans: list[Span] = []
        lines: list[str] = []
        for path, of_cell in _still_meant(sources, titles).items():
            self._spans.append(Span(len(lines) + 1, path))
            lines += of_cell
        self.text = "".join(f"{line}\n" for line in lines)
        self._end = len(lines)
        self._firsts = {span.path: span.first for span in self._spans}

    def line_in_all(self, path: str, line: int) -> int:
        """Return the line of the whole text at which a line of a cell lies; others as they are."""
        return line + self._firsts.get(path, 1) - 1

    def place(self, line: int) -> tuple[str, int]:
        """Return the cell in which a line of the whole text lies, and its line there."""
        span = self._spans[max(0, bisect_right(self._spans, Span(line, chr(0x10FFFF))) - 1)]
        return span.path, line - span.first + 1

    def bounds(self, line: int) -> tuple[int, int]:
        """Return the first and last line, in the whole text, of the cell that a line lies in."""
        at = max(0, bisect_right(self._spans, Span(line, chr(0x10FFFF))) - 1)
        later = self._spans[at + 1].first - 1 if at + 1 < len(self._spans) else self._end
        return self._spans[at].first, later


def _still_meant(sources: dict[str, str], titles: dict[str, str]) -> dict[str, list[str]]:
    """Return the lines of the cells; empty where a later cell defines the same anew."""
    ordered = sorted(sources, key=lambda path: (_number(titles.get(path, "")), path))
    found: dict[str, list[str]] = {}
    defined: set[str] = set()
    for path in reversed(ordered):
        lines = sources[path].splitlines()
        tree = _parsed(sources[path])
        if tree is None:
            found[path] = [""] * len(lines)
            continue
        definitions = [one for one in tree.body if isinstance(one, _DEFINITIONS)]
        for one in definitions:
            if one.name in defined:
                first = min([one.lineno, *(d.lineno for d in one.decorator_list)])
                last = one.end_lineno or one.lineno
                lines[first - 1 : last] = [""] * (last - first + 1)
        defined |= {one.name for one in definitions}
        found[path] = lines
    return {path: found[path] for path in ordered}


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _number(title: str) -> int:
    digits = re.search(r"\d+", title)
    return int(digits.group()) if digits else 0
