"""Which cells of a notebook displayed what its output history keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from leakscope.heap import anatomy
from leakscope.model.census import Content

MOST = 3
"""Cells that are named of each type, the heaviest first."""


def with_cells(
    holds: Sequence[Content], history: Any, kept: Sequence[tuple[int, object]]
) -> list[Content]:
    """Return what the history holds, with the numbers of the cells behind the heaviest of it.

    Args:
        holds: what it holds, by type.
        history: the dict of what cells displayed.
        kept: bytes and object of the heavier things in it.

    """
    if type(history) is not dict:
        return list(holds)
    numbers = {id(value): key for key, value in list(history.items()) if type(key) is int}
    cells: dict[str, list[str]] = defaultdict(list)
    for _, thing in sorted(kept, key=lambda one: -one[0]):
        number = numbers.get(id(thing))
        if number is not None:
            cells[anatomy.qualified_name(type(thing))].append(f"Out[{number}]")
    return [_told(content, cells.get(content.type, [])) for content in holds]


def _told(content: Content, cells: list[str]) -> Content:
    detail = ", ".join([*([content.detail] if content.detail else []), *cells[:MOST]])
    return msgspec.structs.replace(content, detail=detail)
