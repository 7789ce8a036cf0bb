"""What a library is known for, in lines for a terminal."""

from __future__ import annotations

from leakscope.model.known import Recognised
from leakscope.model.printable import one_line
from leakscope.report import wording
from leakscope.report.paper import Paper

SHOWN_LINES = 3
"""Of a title: those that are shipped need two of them at most in 80 columns."""


def known_lines(
    known: Recognised | None, paper: Paper, indent: str, *, has_room: bool = True
) -> list[str]:
    """Return what is known; the address stands alone, to be clicked or copied whole.

    Where there is no room for all of it, the report is referred to.
    """
    if known is None:
        return []
    if not has_room:
        return [paper.clip(f"{wording.known_words(known)}: see report.html", indent)]
    return [
        *paper.wrap(f"{wording.known_words(known)}: {known.title}", indent, SHOWN_LINES),
        f"{indent}{one_line(known.link)}",
    ]
