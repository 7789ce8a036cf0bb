"""What is concluded where memory ran out: what was live, who held it, what would have fitted."""

from __future__ import annotations

import msgspec


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Something to change: whether it would have helped here, and how that is known."""

    title: str
    helps: bool
    evidence: str
    bytes: int | None = None


class LiveRow(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what was live, of one component or under one name."""

    name: str
    bytes: int
    share: float
    """Of all that was live."""
    detail: str = ""


class OutOfMemory(msgspec.Struct, frozen=True, kw_only=True):
    """How memory ran out at the end of the run, and what would have made it fit."""

    device: str
    cause: str
    """``exception``, ``killed`` (by the kernel) or ``worker_killed``."""
    shortage: str = ""
    """``capacity`` or ``fragmentation``; empty for the host, where there is no such difference."""
    sentence: str
    evidence: str
    """When and how it was looked at."""
    error: str = ""
    """Type and message of the exception."""
    requested_bytes: int | None = None
    live_bytes: int | None = None
    """In tensors; on the host resident memory."""
    reserved_bytes: int | None = None
    free_bytes: int | None = None
    limit_bytes: int | None = None
    components: list[LiveRow] = []
    names: list[LiveRow] = []
    """What held it, the most first; no byte is counted twice."""
    fits_if: list[Advice] = []
    """What to do, the best first."""
