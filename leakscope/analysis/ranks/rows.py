"""Rows of ranks beside each other: when each began, after the first of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from leakscope.model.rank import RankMemory

LATE_S = 5.0
"""Launchers and file systems make this much difference between ranks that begin together."""


def with_beginnings(rows: Sequence[RankMemory]) -> list[RankMemory]:
    """Return the rows with how much later than the first rank each began its work."""
    first = min((row.began for row in rows if row.began > 0), default=0.0)
    return [msgspec.structs.replace(row, late_s=_late(row.began - first)) for row in rows]


def _late(seconds: float) -> float:
    return round(seconds, 1) if seconds > LATE_S else 0.0
