"""Batches that workers load ahead: much memory perhaps, and never more than the loader allows.

They wait in shared memory, in the queue to the parent, with its thread that pins memory, or out of
turn in the parent; torch asks for no more than ``prefetch_factor`` of them from each worker.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict

from leakscope.analysis.severity import MIB
from leakscope.analysis.workers.judged import Group, Worker, batch_bytes
from leakscope.model.report import Cleared
from leakscope.model.sizes import human_bytes, plural

WORTH_BYTES = 1 * MIB


def find_prefetched(workers: list[Worker]) -> list[Cleared]:
    """Return for each loader how much prefetching may hold, where that is worth a word."""
    groups: dict[Group, list[Worker]] = defaultdict(list)
    for worker in workers:
        groups[worker.group].append(worker)
    largest: dict[tuple[int, int], Cleared] = {}
    for (rank, loader, _), group in groups.items():
        told = _told(rank, loader, group)
        known = largest.get((rank, loader))
        if told.total_bytes >= max(WORTH_BYTES, known.total_bytes if known else 0):
            largest[rank, loader] = told
    return list(largest.values())


def _told(rank: int, loader: int, group: list[Worker]) -> Cleared:
    ahead = [worker.recording.header.prefetch for worker in group]
    each = [batch_bytes(worker) for worker in group]
    total = sum(count * size for count, size in zip(ahead, each, strict=True))
    name = f"batches prefetched by loader {loader}" + (f" of rank {rank}" if rank else "")
    return Cleared(
        name=name,
        path=name,
        reason=(
            f"bounded: {human_bytes(total)}, {plural(sum(ahead), 'batch')} of up to "
            f"{human_bytes(max(each))} (prefetch_factor={max(ahead)})"
        ),
        kind="bounded",
        total_bytes=total,
        signature=hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:12],
    )
