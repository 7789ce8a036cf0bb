"""What the workers of DataLoaders add to a report: their own leaks, what they copy, a table."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import msgspec
import numpy as np

from leakscope.analysis.accounting.ledger import host_ledger
from leakscope.analysis.columns.series import HOST
from leakscope.analysis.growth import policy
from leakscope.analysis.processes.children import ranked
from leakscope.analysis.processes.worker_culprits import (
    Group,
    Worker,
    at_one_time,
    batch_bytes,
    culprits_of,
    gained_by_culprits,
    judge_workers,
    peak_bytes,
    with_culprits_of_workers,
    with_last_look,
    worker_of_culprit,
    worker_rows,
)
from leakscope.analysis.processes.worker_findings import (
    REPLACES,
    copied_findings,
    find_copied,
    find_died,
    find_piling,
    own_copies,
)
from leakscope.analysis.remedies.cleanup_calls import host_advice
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.wording import short_hash
from leakscope.model import gauge
from leakscope.model.report import (
    Cleared,
    Culprit,
    Finding,
    Ledger,
    LedgerEntry,
    RankMemory,
    Severity,
    WorkerMemory,
)
from leakscope.model.text import human_bytes, plural


@dataclass(frozen=True)
class Workers:
    """A report's culprits and findings with those of workers among them, and a row per worker."""

    culprits: list[Culprit]
    findings: list[Finding]
    rows: list[WorkerMemory]
    cleared: list[Cleared]
    """What has filled up in them, and what their loaders may hold ahead."""
    ledgers: list[Ledger]
    tellers: dict[str, RunContext] = field(default_factory=dict)
    """By a culprit's signature, the worker of which it is reported."""
    heaviest: list[RunContext] = field(default_factory=list)
    """Those that were judged, the heaviest first."""


def conclude_workers(
    case: RunContext, culprits: list[Culprit], findings: list[Finding], ledgers: list[Ledger]
) -> Workers:
    """Return what was concluded of the run's process, with what its workers' recordings say."""
    piling = find_piling(case, culprits)
    if piling:
        findings = [*piling, *(f for f in findings if f.kind not in REPLACES)]
    findings = [*findings, *find_died(case)]
    workers = judge_workers(case)
    if not workers:
        return Workers(culprits, ranked(findings), [], [], ledgers)
    theirs, copied = culprits_of(case, workers), find_copied(case, workers)
    own = [w for w in workers if w.recording.header.rank == case.recording.header.rank]
    copied_here = [part for part in copied if part.worker in own]
    explained = at_one_time((w.group, gained_by_culprits([w])) for w in own)
    explained += at_one_time((part.worker.group, part.bytes) for part in copied_here)
    gained = case.gauge_trend(gauge.CHILDREN_PSS).net_bytes
    kept = [f for f in findings if f.kind != "children" or explained < policy.MOST_SHARE * gained]
    kept = with_last_look(kept, own)
    kept += [*copied_findings(case, copied), *own_copies(workers)]
    names: dict[tuple[int, int], list[str]] = defaultdict(list)
    for part in copied:
        header = part.worker.recording.header
        names[header.rank, header.pid].append(part.row.name)
    return Workers(
        with_culprits_of_workers(culprits, theirs),
        ranked(kept),
        worker_rows(workers, names),
        [*find_bounded(workers), *find_prefetched(workers)],
        with_workers(case, ledgers, workers),
        worker_of_culprit(workers),
        [worker.case for worker in sorted(workers, key=peak_bytes, reverse=True)],
    )


def rank_with_worst_workers(case: RunContext, culprits: list[Culprit]) -> int | None:
    """Return the rank in whose workers the worst culprit grows; None where it grows here too."""
    worst = culprits[0] if culprits else None
    if worst is None or not worst.workers or worst.severity is Severity.NOTE:
        return None
    rates = {int(rank): rate for rank, rate in worst.rates_by_rank.items()}
    if not rates or case.recording.header.rank in rates:
        return None
    return max(rates, key=lambda rank: rates[rank])


def with_growth_in_workers(rows: list[RankMemory], culprits: list[Culprit]) -> list[RankMemory]:
    """Return the rows of ranks with the names of what grows in their workers."""
    names: dict[str, list[str]] = defaultdict(list)
    for culprit in culprits:
        if culprit.workers and culprit.severity is not Severity.NOTE:
            for rank in culprit.rates_by_rank:
                names[rank].append(culprit.name)
    return [
        msgspec.structs.replace(row, grows=list(dict.fromkeys([*row.grows, *names[str(row.rank)]])))
        for row in rows
    ]


def with_workers(case: RunContext, ledgers: list[Ledger], workers: list[Worker]) -> list[Ledger]:
    """Return the ledgers with what workers' culprits gained taken out of the child processes' term.

    No more than the term has, which is measured: what they gained is as of their censuses.
    """
    host = host_ledger(ledgers)
    children = next((e for e in host.entries if e.kind == "children"), None) if host else None
    if host is None or children is None:
        return ledgers
    left, named = children.bytes, []
    for name, gains in sorted(_gains(case, host, workers).items(), key=lambda item: -sum(item[1])):
        moved = min(round(sum(gains)), left)
        if moved > 0:
            left -= moved
            label = f"{name} in {plural(len(gains), 'worker')}"
            named.append(LedgerEntry(label=label, bytes=moved, kind="named"))
    if not named:
        return ledgers
    at = host.entries.index(children)
    rest = [msgspec.structs.replace(children, bytes=left)] if left else []
    entries = [*host.entries[:at], *named, *rest, *host.entries[at + 1 :]]
    advice = host_advice(host.total_bytes, entries)
    corrected = msgspec.structs.replace(host, entries=entries, advice=advice)
    return [corrected if ledger is host else ledger for ledger in ledgers]


def _gains(case: RunContext, host: Ledger, workers: list[Worker]) -> dict[str, list[float]]:
    """Return what serious culprits gained in each worker over the window, by name."""
    own = case.recording.header
    if host.from_s is None or host.to_s is None:
        return {}
    found: dict[str, list[float]] = defaultdict(list)
    for worker in workers:
        if worker.recording.header.rank != own.rank:
            continue
        ahead = worker.recording.began_after(case.recording) or 0.0
        for culprit in worker.culprits:
            if culprit.severity is Severity.NOTE or culprit.device != HOST:
                continue
            ends = (host.from_s - ahead, host.to_s - ahead)
            first, last = (_retained_at(worker, culprit, time_s) for time_s in ends)
            if last > first:
                found[culprit.name].append(last - first)
    return found


def _retained_at(worker: Worker, culprit: Culprit, time_s: float) -> float:
    """Return what a culprit held in a worker at a time of its own; 0 before it began and after it
    ended, and what its last census says after that one.
    """
    track, table = worker.case.track, worker.case.table
    path = table.number.get(culprit.path)
    is_gone = worker.recording.end is not None and time_s > float(track.time_s[-1])
    if path is None or time_s < 0 or is_gone:
        return 0.0
    known = table.covered(path)
    if not known.any():
        return 0.0
    sizes = np.nan_to_num(table.retained[HOST][path][known])
    return float(np.interp(time_s, track.time_s[table.at[known]], sizes))


MOST = 8


def find_bounded(workers: list[Worker]) -> list[Cleared]:
    """Return what is bounded in every worker in which it was judged, the largest first."""
    open_names = {name for worker in workers for name in worker.undecided}
    open_names |= {culprit.name for worker in workers for culprit in worker.culprits}
    same: dict[str, list[tuple[Worker, Cleared]]] = defaultdict(list)
    for worker in workers:
        for cleared in worker.cleared:
            if cleared.kind == "bounded" and cleared.name not in open_names:
                same[cleared.signature].append((worker, cleared))
    bounded = [_bounded_to_cleared(found) for found in same.values()]
    return sorted(bounded, key=lambda cleared: -cleared.total_bytes)[:MOST]


def _bounded_to_cleared(found: list[tuple[Worker, Cleared]]) -> Cleared:
    """Return it as the worker has it that holds most, with how many hold it at the same time."""
    sizes: dict[Group, list[int]] = defaultdict(list)
    for worker, cleared in found:
        sizes[worker.group].append(cleared.total_bytes)
    together = max(sizes.values(), key=sum)
    largest = max((cleared for _, cleared in found), key=lambda cleared: cleared.total_bytes)
    where = "in a DataLoader worker"
    if len(together) > 1:
        total = human_bytes(sum(together))
        where = f"in each of {len(together)} DataLoader workers, {total} in all of them"
    return msgspec.structs.replace(
        largest, reason=f"{largest.reason}, {where}", total_bytes=sum(together)
    )


def find_prefetched(workers: list[Worker]) -> list[Cleared]:
    """Return how much prefetching may hold for each loader, where that is much."""
    groups: dict[Group, list[Worker]] = defaultdict(list)
    for worker in workers:
        groups[worker.group].append(worker)
    largest: dict[tuple[int, int], Cleared] = {}
    for (rank, loader, _), group in groups.items():
        cleared = _prefetched_to_cleared(rank, loader, group)
        known = largest.get((rank, loader))
        if cleared.total_bytes >= max(policy.GAUGE_NOISE_BYTES, known.total_bytes if known else 0):
            largest[rank, loader] = cleared
    return list(largest.values())


def _prefetched_to_cleared(rank: int, loader: int, group: list[Worker]) -> Cleared:
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
        signature=short_hash(name),
    )
