"""What fills up in workers and then stays: a cache with a bound, a shuffle buffer."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from leakscope.analysis.workers.judged import Group, Worker
from leakscope.model.report import Cleared
from leakscope.model.sizes import human_bytes

BOUNDED = "bounded"
MOST = 8


def find_bounded(workers: list[Worker]) -> list[Cleared]:
    """Return what is bounded in every worker in which it was judged, the largest first."""
    open_names = {name for worker in workers for name in worker.undecided}
    open_names |= {culprit.name for worker in workers for culprit in worker.culprits}
    same: dict[str, list[tuple[Worker, Cleared]]] = defaultdict(list)
    for worker in workers:
        for one in worker.cleared:
            if one.kind == BOUNDED and one.name not in open_names:
                same[one.signature].append((worker, one))
    told = [_told(found) for found in same.values()]
    return sorted(told, key=lambda one: -one.total_bytes)[:MOST]


def _told(found: list[tuple[Worker, Cleared]]) -> Cleared:
    """Return it as the worker has it that holds most, with how many hold it at the same time."""
    sizes: dict[Group, list[int]] = defaultdict(list)
    for worker, one in found:
        sizes[worker.group].append(one.total_bytes)
    together = max(sizes.values(), key=sum)
    largest = max((one for _, one in found), key=lambda one: one.total_bytes)
    where = "in a DataLoader worker"
    if len(together) > 1:
        total = human_bytes(sum(together))
        where = f"in each of {len(together)} DataLoader workers, {total} in all of them"
    return msgspec.structs.replace(
        largest, reason=f"{largest.reason}, {where}", total_bytes=sum(together)
    )
