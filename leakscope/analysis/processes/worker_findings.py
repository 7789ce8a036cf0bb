"""Findings about worker processes: they copy what they inherited, die, or pile up."""

from __future__ import annotations

import math
import signal
from collections import defaultdict
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from leakscope.analysis.columns.series import HOST, FloatArray
from leakscope.analysis.growth import part_of, policy
from leakscope.analysis.processes.worker_culprits import (
    Group,
    Worker,
    at_one_time,
    gained_by_culprits,
)
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.severity import MIB
from leakscope.analysis.verdict.wording import to_finding
from leakscope.model import gauge
from leakscope.model.census import CensusRow
from leakscope.model.known import Recognised
from leakscope.model.record import ProcessEndRecord
from leakscope.model.report import Culprit, Finding, Remedy, Severity
from leakscope.model.run import REQUESTS_TO_END, Recording, Run
from leakscope.model.text import human_bytes, human_count, human_share, plural
from leakscope.model.trend import Trend

FORK = "fork"
COPIED_KINDS = ("list", "dict", "tuple", "set", "deque", "array")
ALIKE = 0.9
"""Contents have a name where so many of them are of one type."""

REMEDY = Remedy(
    title="Hold it as arrays",
    text=(
        "Looking at a Python object writes its reference count, and so copies its page into every "
        "worker. Hold the table as numpy arrays, tensors or a pyarrow table (strings as one array "
        "of bytes and one of offsets): workers then share it. Fewer workers, or shared memory, "
        "help as well."
    ),
)
OWN_COPY = Remedy(
    title="Send less to each worker",
    text=(
        "A process that isn't forked gets its own copy of the dataset, lists and arrays alike. "
        "Tensors go through shared memory and are held once, and so is a file that each worker "
        "maps (numpy.memmap, a pyarrow table). Fewer workers hold fewer copies."
    ),
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


def copied_findings(case: RunContext, copied: list[Copied]) -> list[Finding]:
    """Return a finding for each structure that workers copy."""
    same: dict[str, list[Copied]] = defaultdict(list)
    for part in copied:
        same[part.row.path].append(part)
    return [_copy_finding(case, found) for found in same.values()]


def own_copies(workers: list[Worker]) -> list[Finding]:
    """Return a note for each large structure that spawned workers hold a copy of, each its own."""
    by_path: dict[str, dict[Group, list[CensusRow]]] = defaultdict(lambda: defaultdict(list))
    for worker in workers:
        if worker.recording.header.start_method not in {FORK, ""}:
            for row in _sent_along(worker):
                by_path[row.path][worker.group].append(row)
    at_once = [max(groups.values(), key=_host_bytes) for groups in by_path.values()]
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
    looks: dict[str, list[tuple[int, CensusRow]]] = defaultdict(list)
    table = worker.case.table
    for position, census in zip(map(int, table.at), table.censuses, strict=True):
        for row in census.rows:
            if row.copied_share is not None:
                looks[row.path].append((position, row))
    return [
        Copied(worker, last, first.copied_share or 0.0, _last_share(worker, at, last), began)
        for (began, first), (at, last) in ((found[0], found[-1]) for found in looks.values())
        if last.host_bytes <= policy.INHERITED_FACTOR * first.host_bytes
    ]


def _last_share(worker: Worker, at: int, row: CensusRow) -> float:
    """Return what the last look at a structure's pages saw, also one without a census after it."""
    track, name = worker.case.track, gauge.copied(row.path)
    later = [place for place in map(int, track.known(name)) if place > at]
    return float(track.gauge(name)[later[-1]]) / 1000 if later else row.copied_share or 0.0


def _copy_finding(case: RunContext, found: list[Copied]) -> Finding:
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
        f"{row.name} ({_with_items(row)}) takes "
        f"{human_bytes(row.host_bytes)} in each of {plural(count, 'worker')}, "
        f"{human_bytes(together)} together: they were not forked, so each got a copy of its own "
        "when it started. It doesn't grow.",
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
        text=(
            "The kernel ends a process with SIGKILL when memory runs out: dmesg and memory.events "
            "of the control group tell. Fewer workers, a smaller prefetch_factor or smaller "
            "batches need less."
        ),
    ),
    "SIGBUS": Remedy(
        title="Give shared memory more room",
        text=(
            "A bus error in a worker mostly means that /dev/shm is full: containers get 64 MB "
            "unless they are started with --shm-size or --ipc=host."
        ),
    ),
    "SIGSEGV": Remedy(
        title="Find the crash",
        text=(
            "Native code crashed. PYTHONFAULTHANDLER=1 shows the line; libraries with threads or "
            "CUDA that were used before the fork are a common cause: try the start method 'spawn'."
        ),
    ),
}
KILLED_CHILDREN = Remedy(
    title="Look for what killed them",
    text=(
        "The kernel ends a process with SIGKILL when memory runs out: dmesg and memory.events "
        "of the control group tell. Fewer processes, or less in each, need less."
    ),
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
    groups: dict[tuple[str, int], list[ProcessEndRecord]] = defaultdict(list)
    for end in ended:
        who = f"worker of loader {end.loader}" if end.loader else end.name or "child process"
        groups[who, end.exit_code].append(end)
    worst = max(groups.values(), key=len)
    sentences = [_describe_deaths(case, label, ends) for (label, _), ends in groups.items()]
    is_killed = any(end.exit_code < 0 for end in ended)
    return [
        to_finding(
            "workers_died",
            f"{plural(len(ended), 'process')} died",
            f"{'; '.join(sentences)}. {_memory_at_death(case, ended)}{_killed_for_memory(case.run)}"
            "What they held ended with them and counts as no growth.",
            _remedy_for(worst),
            severity=Severity.WARNING if is_killed else Severity.NOTE,
            subject=",".join(sorted({label for label, _ in groups})),
            growth="constant",
        )
    ]


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
    pids = {end.pid for end in ended}
    rank = case.recording.header.rank
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


def _killed_for_memory(run: Run) -> str:
    kills = int(run.outcome.get("oom_kills", 0))
    if not kills:
        return ""
    many = plural(kills, "process")
    return f"The kernel killed {many} of this control group for lack of memory meanwhile. "


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
    text=(
        "A loader keeps its workers as long as it or its iterator lives. Make it once and iterate "
        "over it in every epoch (persistent_workers=True then saves starting them), or let go of "
        "loaders and iterators that are done."
    ),
)
ONE_POOL = Remedy(
    title="Make one pool, or close each",
    text=(
        "Make the pool once outside the loop, or use it in a `with` block (of multiprocessing: "
        "close() and join() it) so that its processes end."
    ),
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
        owners = [n for n in [*table.ancestors(path), path] if _gains(table.length[n])]
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
        if several is not None and _gains(table.count[path]):
            counts = table.count[path][np.isfinite(table.count[path])]
            found.append((path, several, int(counts[-1])))
    return found


def _gains(counts: FloatArray) -> bool:
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
    title, text, falsifier, remedy = _explain_keeper(keeper)
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


def _explain_keeper(keeper: Keeper | None) -> tuple[str, str, str, Remedy]:
    if keeper is not None:
        place = f" ({keeper.fed_at[0]})" if keeper.fed_at else ""
        return (
            f"Worker processes pile up: {keeper.name} keeps them alive",
            f"{keeper.name}{place} gathers {keeper.plural}, which keep their processes alive.",
            f"If {keeper.name} lets go of them, their processes end.",
            ONE_LOADER if "DataLoader" in keeper.plural else ONE_POOL,
        )
    return (
        "Worker processes pile up",
        "No census shows what keeps their loaders alive.",
        "If as many ended as are started, memory would stay.",
        ONE_LOADER,
    )
