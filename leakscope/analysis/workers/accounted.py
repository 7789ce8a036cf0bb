"""Which part of the ledger's child processes is what grows in workers by name."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np

from leakscope.analysis.advice import host_advice
from leakscope.analysis.case import Case
from leakscope.analysis.ledger import host_ledger
from leakscope.analysis.series import HOST
from leakscope.analysis.workers.judged import Worker
from leakscope.model.report import Culprit, Ledger, LedgerEntry, Severity
from leakscope.model.sizes import plural

CHILDREN = "children"


def with_workers(case: Case, ledgers: list[Ledger], workers: list[Worker]) -> list[Ledger]:
    """Return the ledgers with what workers' culprits gained taken out of the child processes' term.

    No more than the term has, which is measured: what they gained is as of their censuses.
    """
    host = host_ledger(ledgers)
    children = next((e for e in host.entries if e.kind == CHILDREN), None) if host else None
    if host is None or children is None:
        return ledgers
    left, named = children.bytes, []
    for name, gains in sorted(_gains(case, host, workers).items(), key=lambda one: -sum(one[1])):
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
    told = msgspec.structs.replace(
        host, entries=entries, advice=host_advice(host.total_bytes, entries)
    )
    return [told if ledger is host else ledger for ledger in ledgers]


def _gains(case: Case, host: Ledger, workers: list[Worker]) -> dict[str, list[float]]:
    """Return by name what serious culprits gained in each worker of the process over the window."""
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
            first, last = (_held(worker, culprit, t - ahead) for t in (host.from_s, host.to_s))
            if last > first:
                found[culprit.name].append(last - first)
    return found


def _held(worker: Worker, culprit: Culprit, time_s: float) -> float:
    """Return what a culprit held in a worker at a time of its own; 0 before it began and after it
    ended, and what its last census says after that one.
    """
    track, table = worker.case.track, worker.case.table
    path = next((n for n, row in enumerate(table.latest) if row.path == culprit.path), None)
    is_gone = worker.recording.end is not None and time_s > float(track.time_s[-1])
    if path is None or time_s < 0 or is_gone:
        return 0.0
    known = table.covered(path)
    if not known.any():
        return 0.0
    sizes = np.nan_to_num(table.retained[HOST][path][known])
    return float(np.interp(time_s, track.time_s[table.at[known]], sizes))
