"""What the workers of DataLoaders add to a report: their own leaks, what they copy, a table.

And how worker processes fare: they copy what they inherited, die, or pile up.
"""

from __future__ import annotations

import math
import signal
from collections import defaultdict
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from leakscope.analysis.accounting.ledger import host_ledger
from leakscope.analysis.columns.series import HOST, FloatArray
from leakscope.analysis.growth import part_of, policy
from leakscope.analysis.processes.children import ranked
from leakscope.analysis.processes.recordings import grouped
from leakscope.analysis.processes.worker_culprits import (
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
from leakscope.analysis.remedies.cleanup_calls import host_advice
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.severity import MIB
from leakscope.analysis.verdict.wording import short_hash, to_finding
from leakscope.model import gauge
from leakscope.model.census import CensusRow
from leakscope.model.known import Recognised
from leakscope.model.record import ProcessEndRecord
from leakscope.model.report import (
    Cleared,
    Culprit,
    Finding,
    Ledger,
    LedgerEntry,
    RankMemory,
    Remedy,
    Severity,
    WorkerMemory,
)
from leakscope.model.run import REQUESTS_TO_END, Recording
from leakscope.model.text import human_bytes, human_count, human_share, plural
from leakscope.model.trend import Trend


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
    same = grouped((part.row.path, part) for part in copied)
    kept += [_copy_finding(case, parts) for parts in same.values()]
    kept += own_copies(workers)
    copies = ((part.worker.recording.header, part.row.name) for part in copied)
    names = grouped(((header.rank, header.pid), name) for header, name in copies)
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
    names = grouped(
        (rank, culprit.name)
        for culprit in culprits
        if culprit.workers and culprit.severity is not Severity.NOTE
        for rank in culprit.rates_by_rank
    )
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
    same = grouped(
        (cleared.signature, (worker, cleared))
        for worker in workers
        for cleared in worker.cleared
        if cleared.kind == "bounded" and cleared.name not in open_names
    )
    bounded = [_bounded_to_cleared(found) for found in same.values()]
    return sorted(bounded, key=lambda cleared: -cleared.total_bytes)[:MOST]


def _bounded_to_cleared(found: list[tuple[Worker, Cleared]]) -> Cleared:
    """Return it as the worker has it that holds most, with how many hold it at the same time."""
    sizes = grouped((worker.group, cleared.total_bytes) for worker, cleared in found)
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
    groups = grouped((worker.group, worker) for worker in workers)
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
        reason=f"bounded: {human_bytes(total)}, {plural(sum(ahead), 'batch')} of up to "
        f"{human_bytes(max(each))} (prefetch_factor={max(ahead)})",
        kind="bounded",
        total_bytes=total,
        signature=short_hash(name),
    )


FORK = "fork"
COPIED_KINDS = ("list", "dict", "tuple", "set", "deque", "array")
ALIKE = 0.9
"""Contents have a name where so many of them are of one type."""

REMEDY = Remedy(
    title="Hold it as arrays",
    text="Looking at a Python object writes its reference count, and so copies its page into "
    "every worker. Hold the table as numpy arrays, tensors or a pyarrow table (strings as one "
    "array of bytes and one of offsets): workers then share it. Fewer workers, or shared memory, "
    "help as well.",
)
OWN_COPY = Remedy(
    title="Send less to each worker",
    text="A process that isn't forked gets its own copy of the dataset, lists and arrays alike. "
    "Tensors go through shared memory and are held once, and so is a file that each worker maps "
    "(numpy.memmap, a pyarrow table). Fewer workers hold fewer copies.",
)


@dataclass(frozen=True)
class Copied:
    """A structure that one worker inherited and copies."""

    worker: Worker
    row: CensusRow
    first: float
    last: float
    """Parts of its sampled objects that lay in the worker's own memory."""
    began: int
    """The measurement at which it was looked at first."""
    measured: float | None = None
    """Its part of what the worker's own memory came to by it; None where that was not read."""

    @property
    def at_once(self) -> bool:
        """Whether that was done before the first look."""
        return self.first > policy.MOST_SHARE

    @property
    def sampled(self) -> float:
        """How much was copied if all of the structure went as the sampled objects did."""
        return (self.last - self.first * (not self.at_once)) * self.row.host_bytes

    @property
    def in_all(self) -> float:
        """How much was copied, as far as it is known."""
        return self.sampled if self.measured is None else min(self.measured, self.row.host_bytes)

    @property
    def bytes(self) -> float:
        """How much was copied while the worker was recorded."""
        seen = (self.last - self.first) * self.row.host_bytes
        return min(seen, self.in_all) if self.at_once else self.in_all

    @property
    def left(self) -> float:
        """How much may still be shared."""
        unseen = (1.0 - self.last) * self.row.host_bytes
        return unseen if self.measured is None else max(unseen, self.row.host_bytes - self.in_all)


def find_copied(case: RunContext, workers: list[Worker]) -> list[Copied]:
    """Return what forked workers copied, of each worker the structures and not their owners.

    ``case`` is that of their parent.
    """
    inherited = {row.name: row.host_bytes for row in case.table.latest}
    return [
        copied
        for worker in workers
        if worker.recording.header.start_method == FORK
        for copied in _of_worker(worker, inherited)
    ]


def own_copies(workers: list[Worker]) -> list[Finding]:
    """Return a note for each large structure that spawned workers hold a copy of, each its own."""
    by_path = grouped(
        (row.path, (worker.group, row))
        for worker in workers
        if worker.recording.header.start_method not in {FORK, ""}
        for row in _sent_along(worker)
    )
    at_once = [max(grouped(rows).values(), key=_host_bytes) for rows in by_path.values()]
    return [
        _copies_note(rows)
        for rows in at_once
        if len(rows) > 1 and _host_bytes(rows) >= policy.COSTLY_BYTES
    ]


def _host_bytes(rows: list[CensusRow]) -> int:
    return sum(row.host_bytes for row in rows)


def _sent_along(worker: Worker) -> list[CensusRow]:
    """Return what a worker held from its first census on without growth: the outermost of it.

    Tensors are left out: torch sends them through shared memory.
    """
    grown = {culprit.path for culprit in worker.culprits}
    censuses = worker.case.table.censuses
    first = {row.path: row for row in censuses[0].rows} if censuses else {}
    found = [
        row
        for row in worker.case.table.latest
        if row.path in first
        and row.path not in grown
        and (row.length or 0) >= policy.INHERITED_ITEMS
        and row.kind in COPIED_KINDS
        and row.host_bytes <= policy.INHERITED_FACTOR * first[row.path].host_bytes
    ]
    paths = {row.path for row in found}
    return [row for row in found if not any(_is_inside(row.path, path) for path in paths)]


def _of_worker(worker: Worker, inherited: dict[str, int]) -> list[Copied]:
    """Return what a worker copied of its parent's rows, ``inherited`` by name."""
    found = [
        c
        for c in _looked_at(worker)
        if c.sampled >= policy.NOTED_BYTES and (not c.at_once or _is_as_in(inherited, c.row))
    ]
    outermost = [c for c in found if not any(_is_inside(o.row.path, c.row.path) for o in found)]
    return [c for c in _measured(worker, outermost) if c.in_all >= policy.NOTED_BYTES]


def _measured(worker: Worker, found: list[Copied]) -> list[Copied]:
    """Return structures with their part of the memory that the worker came to have of its own.

    What grows in it is left out, and pages of files that it alone maps: a copy is a page that was
    written to. Several structures have their parts by their sampled objects.
    """
    private = worker.case.track.gauge(gauge.PRIVATE_DIRTY)
    read = np.flatnonzero(np.isfinite(private))
    together, grown = sum(copied.sampled for copied in found), gained_by_culprits([worker])

    def of(copied: Copied) -> Copied:
        before = read[read <= copied.began]
        if not len(before) or (read[-1] <= copied.began and not copied.at_once):
            return copied
        first = 0.0 if copied.at_once else float(private[before[-1]])
        gained = max(float(private[read[-1]]) - first - grown, 0.0)
        return replace(copied, measured=gained * copied.sampled / together)

    return [of(copied) for copied in found]


def _is_as_in(inherited: dict[str, int], row: CensusRow) -> bool:
    """Return whether the parent holds the same, under the same name."""
    less, more = sorted((row.host_bytes, inherited.get(row.name, 0)))
    return more <= policy.INHERITED_FACTOR * less


def _is_inside(path: str, owner: str) -> bool:
    return path != owner and path.startswith(owner)


def _looked_at(worker: Worker) -> list[Copied]:
    """Return steady containers whose pages were looked at, as the first and last look had them."""
    track, table = worker.case.track, worker.case.table
    looks = grouped(
        (row.path, (position, row))
        for position, census in zip(map(int, table.at), table.censuses, strict=True)
        for row in census.rows
        if row.copied_share is not None
    )
    found = []
    for (began, first), *_, (at, last) in ([*seen, seen[-1]] for seen in looks.values()):
        if last.host_bytes <= policy.INHERITED_FACTOR * first.host_bytes:
            name = gauge.copied(last.path)  # of looks without a census after them too
            later = [place for place in track.known(name).tolist() if place > at]
            share = float(track.gauge(name)[later[-1]]) / 1000 if later else last.copied_share
            found.append(Copied(worker, last, first.copied_share or 0.0, share or 0.0, began))
    return found


def _copy_finding(case: RunContext, found: list[Copied]) -> Finding:
    """Return the finding of a structure that workers copy."""
    most = max(found, key=lambda copied: copied.in_all)
    row, count = most.row, int(at_one_time((copied.worker.group, 1) for copied in found))
    together = at_one_time((copied.worker.group, copied.in_all) for copied in found)
    to_come = count * most.left
    limit = case.limit_bytes or math.inf
    threatens = case.used_at_end() + to_come >= policy.PEAK_OF_LIMIT * limit
    text = (
        f"{row.name} ({_with_items(row)}) holds {human_bytes(row.host_bytes)} in the parent. "
        f"{plural(count, 'forked worker')} copied up to {human_bytes(most.in_all)} of it "
        f"({human_share(most.in_all / row.host_bytes)}) by looking at it"
    )
    if most.at_once:
        text += ", or the garbage collector did, which looks at all objects"
    if count > 1:
        text += f", {human_bytes(together)} in all of them"
    text += f"; {human_bytes(to_come)} more may follow." if to_come >= MIB else ", all there is."
    seen = (
        f"Of sampled items {human_share(most.first)} lay in the worker's own pages at the first "
        f"look, {human_share(most.last)} at the last."
    )
    return to_finding(
        "copy_on_write",
        f"Workers copy {row.name} by looking at it",
        text,
        REMEDY,
        severity=Severity.WARNING if threatens else Severity.NOTE,
        total_bytes=together,
        falsifier=("If it were a leak, it would go on when all is copied.", seen),
        subject=row.path,
        growth="constant",
    )


def _copies_note(rows: list[CensusRow]) -> Finding:
    row, count = max(rows, key=lambda candidate: candidate.host_bytes), len(rows)
    together = _host_bytes(rows)
    return to_finding(
        "worker_copies",
        f"Each worker has a copy of {row.name}",
        f"{row.name} ({_with_items(row)}) takes {human_bytes(row.host_bytes)} in each of "
        f"{plural(count, 'worker')}, {human_bytes(together)} together: they were not forked, so "
        "each got a copy of its own when it started. It doesn't grow.",
        OWN_COPY,
        severity=Severity.NOTE,
        total_bytes=float(together),
        falsifier=("With fewer workers as much less is held.", None),
        subject=row.path,
        growth="constant",
    )


def _with_items(row: CensusRow) -> str:
    """Return ``list of 600,000 dicts``; ``items`` where they are of several types or unknown."""
    if not row.length:
        return row.type
    most = max(row.holds, key=lambda content: content.count, default=None)
    if most is None or most.count < ALIKE * row.length:
        return f"{row.type} of {plural(row.length, 'item')}"
    noun = most.type.rpartition(".")[2]
    return f"{row.type} of {plural(row.length, 'string' if noun == 'str' else noun)}"


REMEDIES = {
    "SIGKILL": Remedy(
        title="Look for what killed them",
        text="The kernel ends a process with SIGKILL when memory runs out: dmesg and "
        "memory.events of the control group tell. Fewer workers, a smaller prefetch_factor or "
        "smaller batches need less.",
    ),
    "SIGBUS": Remedy(
        title="Give shared memory more room",
        text="A bus error in a worker mostly means that /dev/shm is full: containers get 64 MB "
        "unless they are started with --shm-size or --ipc=host.",
    ),
    "SIGSEGV": Remedy(
        title="Find the crash",
        text="Native code crashed. PYTHONFAULTHANDLER=1 shows the line; libraries with threads or "
        "CUDA that were used before the fork are a common cause: try the start method 'spawn'.",
    ),
}
KILLED_CHILDREN = Remedy(
    title="Look for what killed them",
    text="The kernel ends a process with SIGKILL when memory runs out: dmesg and memory.events of "
    "the control group tell. Fewer processes, or less in each, need less.",
)
OTHERWISE = Remedy(
    title="Find out why they ended",
    text="With num_workers=0 the work is done in the main process, where the traceback is seen.",
)
OTHERWISE_OF_CHILDREN = Remedy(
    title="Find out why they ended",
    text="With their work done in the main process the traceback is seen.",
)


def find_died(case: RunContext) -> list[Finding]:
    """Return one finding of all processes that ended by themselves; empty without any."""
    # Loaders send no signal that terminates.
    ended = [
        end
        for end in case.recording.process_ends
        if end.loader or -end.exit_code not in REQUESTS_TO_END
    ]
    if not ended:
        return []
    groups = grouped(((_label_of(end), end.exit_code), end) for end in ended)
    worst = max(groups.values(), key=len)
    sentences = [_describe_deaths(case, label, ends) for (label, _), ends in groups.items()]
    is_killed = any(end.exit_code < 0 for end in ended)
    killed = ""
    if kills := int(case.run.outcome.get("oom_kills", 0)):
        many = plural(kills, "process")
        killed = f"The kernel killed {many} of this control group for lack of memory meanwhile. "
    return [
        to_finding(
            "workers_died",
            f"{plural(len(ended), 'process')} died",
            f"{'; '.join(sentences)}. {_memory_at_death(case, ended)}{killed}"
            "What they held ended with them and counts as no growth.",
            _remedy_for(worst),
            severity=Severity.WARNING if is_killed else Severity.NOTE,
            subject=",".join(sorted({label for label, _ in groups})),
            growth="constant",
        )
    ]


def _label_of(end: ProcessEndRecord) -> str:
    return f"worker of loader {end.loader}" if end.loader else end.name or "child process"


def _remedy_for(ended: list[ProcessEndRecord]) -> Remedy:
    of_loaders = any(end.loader for end in ended)
    if _signal(ended[0].exit_code) == "SIGKILL" and not of_loaders:
        return KILLED_CHILDREN
    otherwise = OTHERWISE if of_loaders else OTHERWISE_OF_CHILDREN
    return REMEDIES.get(_signal(ended[0].exit_code), otherwise)


def _describe_deaths(case: RunContext, label: str, ends: list[ProcessEndRecord]) -> str:
    count, code = len(ends), ends[0].exit_code
    noun, of, loader = label.partition(" of loader ")
    many = plural(count, noun) + of + loader
    was = "was" if count == 1 else "were"
    how = f"{was} ended by {_signal(code)}" if code < 0 else f"left with exit code {code}"
    return f"{many} {how}{_when(case, ends)}"


def _when(case: RunContext, ends: list[ProcessEndRecord]) -> str:
    if not len(case.track):
        return ""
    at = np.searchsorted(case.track.index, [end.boundary for end in ends], side="right") - 1
    steps = case.track.step[np.maximum(at, 0)]
    first, last = int(steps.min()), int(steps.max())
    where = f"near step {first}" if first == last else f"between steps {first} and {last}"
    return f" {where}" if last else ""


def _memory_at_death(case: RunContext, ended: list[ProcessEndRecord]) -> str:
    """Return how much the heaviest of them held, of those that were recorded.

    Resident memory alone, which is read oftener, has all that a forked worker shares.
    """
    pids, rank = {end.pid for end in ended}, case.recording.header.rank
    readings = [
        _last_reading(recording, gauge.PSS) or _last_reading(recording, gauge.RSS)
        for recording in case.run.recordings
        if not recording.header.is_primary
        and recording.header.rank == rank
        and recording.header.pid in pids
    ]
    most = max(readings, default=0)
    return f"The heaviest held {human_bytes(most)} at its last reading. " if most else ""


def _last_reading(recording: Recording, name: str) -> int:
    read = (m.gauges[name] for m in reversed(recording.measurements) if name in m.gauges)
    return next(read, 0)


def _signal(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


REPLACES = frozenset({"children", "processes"})
"""Kinds of findings that say less of the same."""
KEEPERS = {
    "torch.utils.data.dataloader._MultiProcessingDataLoaderIter": "iterators of DataLoaders",
    "torch.utils.data.dataloader.DataLoader": "DataLoaders",
    "multiprocessing.pool.Pool": "pools",
    "concurrent.futures.process.ProcessPoolExecutor": "executors",
}
"""Types that keep processes alive, and what several are called."""

ONE_LOADER = Remedy(
    title="Make one DataLoader before the loop",
    text="A loader keeps its workers as long as it or its iterator lives. Make it once and "
    "iterate over it in every epoch (persistent_workers=True then saves starting them), or let go "
    "of loaders and iterators that are done.",
)
ONE_POOL = Remedy(
    title="Make one pool, or close each",
    text="Make the pool once outside the loop, or use it in a `with` block (of multiprocessing: "
    "close() and join() it) so that its processes end.",
)


@dataclass(frozen=True)
class Keeper:
    """What gathers what keeps processes alive."""

    name: str
    path: str
    fed_at: list[str]
    known: Recognised | None
    plural: str
    count: int
    """How many of them had a row at last: the heavier ones."""


def find_piling(case: RunContext, culprits: list[Culprit]) -> list[Finding]:
    """Return a finding when the number of processes grows, with what keeps them if it is known."""
    trend = case.gauge_trend(gauge.CHILDREN, policy.COUNT_NOISE)
    if not trend.is_growing or trend.net_bytes < policy.EVEN_READINGS:
        return []
    memory = case.gauge_trend(gauge.CHILDREN_PSS, noise=policy.HARMLESS_BYTES)
    keeper = _keeper(case, culprits) or _small_keeper(case)
    # Loaders started them, and there is so much to them that a name is missed.
    has_workers = any(r.header.worker is not None for r in case.run.recordings)
    is_much = memory.is_growing and memory.net_bytes >= policy.GROWTH_BYTES
    is_leak = keeper is not None or (has_workers and is_much)
    return [_piling_finding(case, trend, memory, keeper)] if is_leak else []


def _keeper(case: RunContext, culprits: list[Culprit]) -> Keeper | None:
    """Return the culprit through which most objects are named that keep processes alive."""
    found = [
        Keeper(culprit.name, culprit.path, culprit.fed_at, culprit.known, several, count)
        for path, several, count in _gathered(case)
        for culprit in culprits
        if culprit.growth == "across" and case.table.latest[path].path.startswith(culprit.path)
    ]
    return max(found, key=lambda keeper: (keeper.count, -len(keeper.path)), default=None)


def _small_keeper(case: RunContext) -> Keeper | None:
    """Return the nearest container that gains items, of kilobytes and so no culprit."""
    table, found = case.table, []
    for path, several, count in _gathered(case):
        owners = [n for n in [*table.ancestors(path), path] if _rises(table.length[n])]
        if not owners or count < policy.EVEN_READINGS:
            continue
        row = table.latest[owners[-1]]
        lines = case.sources.feeding(row.owner, row) if row.owner is not None else []
        fed = dict.fromkeys(case.sources.location(line.file, line.line) for line in lines)
        found.append(Keeper(row.name, row.path, list(fed), None, several, count))
    return max(found, key=lambda keeper: (keeper.count, -len(keeper.path)), default=None)


def _gathered(case: RunContext) -> list[tuple[int, str, int]]:
    """Return the rows of what keeps processes alive and has become more: what several are called,
    and how many had a row at last.
    """
    table, found = case.table, []
    for path, row in enumerate(table.latest):
        several = KEEPERS.get(row.type)
        if several is not None and _rises(table.count[path]):
            counts = table.count[path][np.isfinite(table.count[path])]
            found.append((path, several, int(counts[-1])))
    return found


def _rises(counts: FloatArray) -> bool:
    known = counts[np.isfinite(counts)]
    return len(known) > 1 and bool(known[-1] > known[0])


def _piling_finding(
    case: RunContext, count: Trend, memory: Trend, keeper: Keeper | None
) -> Finding:
    processes = float(np.nanmax(case.track.gauge(gauge.CHILDREN)))
    most = float(np.nanmax(case.track.gauge(gauge.CHILDREN_PSS)))
    each = most / max(processes, 1.0)
    gained = max(memory.net_bytes, count.net_bytes * each)
    fatal = case.used_at_end() + policy.HORIZON * gained >= (case.limit_bytes or math.inf)
    serious = Severity.CRITICAL if fatal else Severity.WARNING
    title, remedy = "Worker processes pile up", ONE_LOADER
    text = "No census shows what keeps their loaders alive."
    falsifier = "If as many ended as are started, memory would stay."
    if keeper is not None:
        place = f" ({keeper.fed_at[0]})" if keeper.fed_at else ""
        title += f": {keeper.name} keeps them alive"
        text = f"{keeper.name}{place} gathers {keeper.plural}, which keep their processes alive."
        falsifier = f"If {keeper.name} lets go of them, their processes end."
        remedy = ONE_LOADER if "DataLoader" in keeper.plural else ONE_POOL
    return to_finding(
        "worker_processes",
        title,
        f"{human_count(processes)} child processes at last, {human_count(count.bytes_per_unit)} "
        f"more per {count.unit}; each takes {human_bytes(each)} (shared pages divided), all "
        f"together {human_bytes(most)}. {text}",
        remedy,
        severity=serious if gained >= policy.GROWTH_BYTES else Severity.NOTE,
        trend=msgspec.structs.replace(part_of(count, each), net_bytes=gained),
        total_bytes=most,
        device=HOST,
        known=keeper.known if keeper else None,
        fed_at=keeper.fed_at if keeper else [],
        falsifier=(falsifier, None),
        subject=keeper.path if keeper else "",
    )
