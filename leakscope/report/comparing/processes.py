"""Ranks and DataLoader workers of both runs, in tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leakscope.model.comparison import Comparison, RankPair, WorkerPair
from leakscope.model.rank import RankMemory
from leakscope.model.worker import WorkerMemory
from leakscope.report.sizes import Size, humane_rate, size_of
from leakscope.report.tables import Bar, bar_of

FEW = 16
"""Ranks of which each has a row at once; of more only those that changed most."""
MOST_ROWS = 512


@dataclass(frozen=True)
class ProcessRow:
    """One rank or worker in both runs."""

    name: str
    peaks: tuple[Size, Size]
    bars: tuple[Bar, Bar]
    delta: Size
    direction: str
    order: str
    grows: tuple[str, str]
    """How it grew, in words."""


@dataclass(frozen=True)
class ProcessTable:
    """The processes of one kind; ``others`` are shown on demand."""

    rows: list[ProcessRow]
    others: list[ProcessRow]
    sentences: list[str]
    left_out: str = ""


def rank_table(comparison: Comparison) -> ProcessTable | None:
    """Return the ranks, None where neither run had several."""
    pairs = comparison.ranks
    if not pairs:
        return None
    peaks = [(_peak(pair.before), _peak(pair.after)) for pair in pairs]
    top = max((peak or 0 for both in peaks for peak in both), default=0)
    rows = [_rank_row(pair, both, top) for pair, both in zip(pairs, peaks, strict=True)]
    sentences = [
        f"{side}: {odd.sentence}"
        for side, odd in (
            ("Before", comparison.before_odd_rank), ("After", comparison.after_odd_rank)
        )
        if odd is not None
    ]  # fmt: skip
    if len(rows) <= FEW:
        return ProcessTable(rows, [], sentences)
    moved = sorted(rows, key=lambda row: -abs(float(row.order)))[:FEW]
    left = len(rows) - MOST_ROWS
    return ProcessTable(
        moved, rows[:MOST_ROWS], sentences, f"{left:,} more, all in the JSON" if left > 0 else ""
    )


def worker_table(pairs: Sequence[WorkerPair]) -> ProcessTable | None:
    """Return the workers by their place, None where neither run had any."""
    if not pairs:
        return None
    shares = [
        tuple(None if one is None else one.pss_bytes for one in (pair.before, pair.after))
        for pair in pairs
    ]
    top = max((share or 0 for both in shares for share in both), default=0)
    rows = [
        _row(_worker_name(pair), both, top, (_worker_grows(pair.before), _worker_grows(pair.after)))
        for pair, both in zip(pairs, shares, strict=True)
    ]
    return ProcessTable(rows[:FEW], rows[FEW:MOST_ROWS], [])


def _rank_row(pair: RankPair, peaks: tuple[int | None, int | None], top: int) -> ProcessRow:
    return _row(
        f"rank {pair.rank}", peaks, top, (_rank_grows(pair.before), _rank_grows(pair.after))
    )


def _row(name: str, peaks: Sequence[int | None], top: int, grows: tuple[str, str]) -> ProcessRow:
    before, after = peaks
    delta = None if before is None or after is None else after - before
    return ProcessRow(
        name=name,
        peaks=(size_of(before), size_of(after)),
        bars=(bar_of(before, top, "before"), bar_of(after, top, "after")),
        delta=size_of(delta, signed=True),
        direction="" if not delta else "down" if delta < 0 else "up",
        order=str(delta or 0),
        grows=grows,
    )


def _peak(rank: RankMemory | None) -> int | None:
    return None if rank is None else rank.peak_bytes


def _rank_grows(rank: RankMemory | None) -> str:
    if rank is None:
        return "no such rank"
    rate = humane_rate(rank.bytes_per_unit, rank.unit) if rank.unit else ""
    return "; ".join(text for text in (rate, ", ".join(rank.grows)) if text) or "nothing grows"


def _worker_name(pair: WorkerPair) -> str:
    rank = f", rank {pair.rank}" if pair.rank else ""
    return f"worker {pair.worker} of loader {pair.loader}{rank}"


def _worker_grows(worker: WorkerMemory | None) -> str:
    if worker is None:
        return "no such worker"
    copied = [f"copies {name}" for name in worker.copies]
    return ", ".join([*worker.grows, *copied]) or "nothing grows"
