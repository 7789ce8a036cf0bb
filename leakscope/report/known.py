"""What a library is known for, in lines for a terminal."""

from __future__ import annotations

from leakscope.model.known import Recognised
from leakscope.model.printable import one_line
from leakscope.report import wording
from leakscope.report.paper import Paper


def known_lines(known: Recognised | None, paper: Paper, indent: str) -> list[str]:
    """Return what is known; the address stands alone, to be clicked or copied whole."""
    if known is None:
        return []
    return [
        paper.clip(f"{wording.known_words(known)}: {known.title}", indent),
        f"{indent}{one_line(known.link)}",
    ]
