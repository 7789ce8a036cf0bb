"""What text for a terminal is written on: how wide it is, and whether it shows colours."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from leakscope.model.printable import clipped, one_line

WIDEST = 120
"""Longer lines are hard to read, however wide the terminal."""
_NARROWEST = 20
_STYLES = {
    "leak": "1;31", "critical": "1;31", "worse": "1;31", "new": "1;31", "removed": "31",
    "out_of_memory": "1;31",
    "warning": "1;33", "inconclusive": "1;33", "unchanged": "1;33", "reduced": "33",
    "clean": "1;32", "fixed": "1;32", "added": "32", "note": "2", "muted": "2", "name": "1",
}  # fmt: skip


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
            max(_NARROWEST, self.width),
            initial_indent=indent,
            subsequent_indent=indent,
            max_lines=most or None,
            placeholder=" …",
        )

    def clip(self, text: str, indent: str = "") -> str:
        """Return one line that fits, its middle left out where it is too long."""
        return indent + clipped(text, self.width - len(indent))


def paper_of(width: int, color: bool) -> Paper:
    """Return the paper for a terminal of so many columns."""
    return Paper(min(width, WIDEST), color)


def spaced(lines: list[str]) -> list[str]:
    """Return lines set apart from those before them; nothing where there are none."""
    return ["", *lines] if lines else []
