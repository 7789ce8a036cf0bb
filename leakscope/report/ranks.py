"""The table of ranks, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leakscope.model.rank import RankMemory
from leakscope.report.sizes import humane_number, humane_rate
from leakscope.report.tables import Cell, cell_of


@dataclass(frozen=True)
class RankRow:
    """One rank's process."""

    name: str
    detail: str
    """Machine, process and how it ended."""
    steps: str
    first: Cell | None
    peak: Cell | None
    last: Cell | None
    rate: str
    grows: list[str]
    is_odd: bool


def rank_rows(ranks: Sequence[RankMemory], odd: int | None) -> list[RankRow]:
    """Return one row a rank; all bars share one scale."""
    top = max((rank.peak_bytes or 0 for rank in ranks), default=0)
    return [_row(rank, top, is_odd=rank.rank == odd) for rank in ranks]


def _row(rank: RankMemory, top: int, *, is_odd: bool) -> RankRow:
    cells = (rank.first_bytes, rank.peak_bytes, rank.last_bytes)
    first, peak, last = (None if size is None else cell_of(size, top, "peak") for size in cells)
    return RankRow(
        name=f"rank {rank.rank}",
        detail=f"{rank.host}, process {rank.pid}, {rank.ended}",
        steps=humane_number(rank.steps),
        first=first,
        peak=peak,
        last=last,
        rate=humane_rate(rank.bytes_per_unit, rank.unit) if rank.unit else "",
        grows=rank.grows,
        is_odd=is_odd,
    )
