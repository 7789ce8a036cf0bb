"""A line of the user's that feeds a container."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FeedingLine:
    """The first line of a statement that puts something into a container."""

    file: str
    line: int
    text: str
    """The statement's first line, without its indentation."""
    form: str
    """How: ``append``, ``setitem``, ``augmented``, ``assign``, ``put``, ``setattr``, ``link``,
    ``read``, ``call``, …"""
    is_direct: bool = True
    """Whether the statement itself puts it there: not what it calls, nor by making the container
    anew."""
