"""Ranks and workers of two runs side by side: who is who."""

from __future__ import annotations

from collections.abc import Sequence

from leakscope.model.comparison import RankPair, WorkerPair
from leakscope.model.rank import RankMemory
from leakscope.model.worker import WorkerMemory


def rank_pairs(before: Sequence[RankMemory], after: Sequence[RankMemory]) -> list[RankPair]:
    """Return the ranks of both runs by number; a run without ranks is left out of the others."""
    first = {rank.rank: rank for rank in before}
    second = {rank.rank: rank for rank in after}
    return [
        RankPair(rank=rank, before=first.get(rank), after=second.get(rank))
        for rank in sorted({**first, **second})
    ]


def worker_pairs(before: Sequence[WorkerMemory], after: Sequence[WorkerMemory]) -> list[WorkerPair]:
    """Return the workers of both runs by loader and number.

    A loader that starts its workers anew has several processes in one place: the heaviest is told.
    """
    first, second = _heaviest(before), _heaviest(after)
    return [
        WorkerPair(
            rank=rank,
            loader=loader,
            worker=worker,
            before=first.get((rank, loader, worker)),
            after=second.get((rank, loader, worker)),
        )
        for rank, loader, worker in sorted({**first, **second})
    ]


def _heaviest(workers: Sequence[WorkerMemory]) -> dict[tuple[int, int, int], WorkerMemory]:
    found: dict[tuple[int, int, int], WorkerMemory] = {}
    for worker in workers:
        known = found.setdefault((worker.rank, worker.loader, worker.worker), worker)
        if _weight(worker) > _weight(known):
            found[worker.rank, worker.loader, worker.worker] = worker
    return found


def _weight(worker: WorkerMemory) -> int:
    return worker.pss_bytes or worker.private_last_bytes or 0
