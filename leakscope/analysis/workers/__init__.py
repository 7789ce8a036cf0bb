"""What the workers of DataLoaders add to a report: their own leaks, what they copy, a table."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import msgspec

from leakscope.analysis.case import Case
from leakscope.analysis.culprits import ORDER
from leakscope.analysis.workers.accounted import with_workers
from leakscope.analysis.workers.bounded import find_bounded
from leakscope.analysis.workers.copied import copied_findings, find_copied, own_copies
from leakscope.analysis.workers.died import find_died
from leakscope.analysis.workers.judged import (
    at_one_time,
    culprits_of,
    gained_by_culprits,
    judge_workers,
    peak_bytes,
    tell_workers,
    tellers,
    with_culprits_of_workers,
)
from leakscope.analysis.workers.last_look import with_last_look
from leakscope.analysis.workers.piling import REPLACES, find_piling
from leakscope.analysis.workers.prefetched import find_prefetched
from leakscope.model import gauge
from leakscope.model.rank import RankMemory
from leakscope.model.report import Cleared, Culprit, Finding, Ledger, Severity
from leakscope.model.worker import WorkerMemory

COVERS = 0.5
"""Of the growth of all children, what workers tell of must make up so much to be its reason."""


@dataclass(frozen=True)
class Workers:
    """A report's culprits and findings with those of workers among them, and a row per worker."""

    culprits: list[Culprit]
    findings: list[Finding]
    rows: list[WorkerMemory]
    cleared: list[Cleared]
    """What has filled up in them, and what their loaders may hold ahead."""
    ledgers: list[Ledger]
    tellers: dict[str, Case] = field(default_factory=dict)
    """By a culprit's signature the worker as which it is told."""
    heaviest: list[Case] = field(default_factory=list)
    """Those that were judged, the heaviest first."""


def conclude_workers(
    case: Case, culprits: list[Culprit], findings: list[Finding], ledgers: list[Ledger]
) -> Workers:
    """Return what was concluded of the run's process, with what its workers' recordings say."""
    piling = find_piling(case, culprits)
    if piling:
        findings = [*piling, *(f for f in findings if f.kind not in REPLACES)]
    findings = [*findings, *find_died(case)]
    workers = judge_workers(case.run, case.catalogue)
    if not workers:
        return Workers(culprits, _ranked(findings), [], [], ledgers)
    theirs, copied = culprits_of(case, workers), find_copied(case, workers)
    own = [one for one in workers if one.recording.header.rank == case.recording.header.rank]
    told = at_one_time((one.group, gained_by_culprits([one])) for one in own)
    told += at_one_time((one.worker.group, one.bytes) for one in copied if one.worker in own)
    gained = case.gauge_trend(gauge.CHILDREN_PSS).net_bytes
    kept = [f for f in findings if f.kind != "children" or told < COVERS * gained]
    kept = with_last_look(kept, own)
    kept += [*copied_findings(case, copied), *own_copies(workers)]
    names: dict[tuple[int, int], list[str]] = defaultdict(list)
    for one in copied:
        header = one.worker.recording.header
        names[header.rank, header.pid].append(one.row.name)
    return Workers(
        with_culprits_of_workers(culprits, theirs),
        _ranked(kept),
        tell_workers(workers, names),
        [*find_bounded(workers), *find_prefetched(workers)],
        with_workers(case, ledgers, workers),
        tellers(workers),
        [worker.case for worker in sorted(workers, key=peak_bytes, reverse=True)],
    )


def rank_elsewhere(case: Case, culprits: list[Culprit]) -> int | None:
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


def _ranked(findings: list[Finding]) -> list[Finding]:
    worst_first = sorted(findings, key=lambda f: ORDER[f.severity])
    return [msgspec.structs.replace(f, rank=rank) for rank, f in enumerate(worst_first, 1)]
