"""Workers of DataLoaders: what grows in them, by their own recordings.

Each worker is judged like a run of its own. What grows in several workers of one loader is one
culprit: its rate is that of one worker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from leakscope.analysis.columns.series import HOST, FloatArray
from leakscope.analysis.columns.units import WORKER_PHASE
from leakscope.analysis.growth import policy
from leakscope.analysis.processes.recordings import analyse_recording, grouped, with_rates
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.cleared import find_cleared, find_undecided
from leakscope.analysis.verdict.culprits import signature
from leakscope.analysis.verdict.severity import SEVERITY_ORDER, forecast
from leakscope.model import gauge
from leakscope.model.census import CensusRow
from leakscope.model.report import Cleared, Culprit, Finding, Remedy, Severity, WorkerMemory
from leakscope.model.run import Recording, Run
from leakscope.model.text import human_bytes, plural

MOST_LISTED = 64

Group = tuple[int, int, int]
"""Rank, loader and generation: workers of one group live at the same time."""


@dataclass(frozen=True)
class Worker:
    """One worker's recording, and what was concluded from it."""

    recording: Recording
    case: RunContext
    culprits: list[Culprit]
    gained: dict[str, float]
    """By a culprit's signature, what it came to by the worker's end at its rate."""
    cleared: list[Cleared]
    undecided: frozenset[str]
    """Names of what may leak."""

    @property
    def group(self) -> Group:
        """The workers that live at the same time for the same loader."""
        header = self.recording.header
        return header.rank, header.loader, header.generation


Found = list[tuple[Worker, Culprit]]
"""The workers in which the same grows, with what each says of it."""


def judge_workers(case: RunContext) -> list[Worker]:
    """Return the workers that measured most, each judged by itself.

    Those of a child process are its own; all others are the program's, of whichever rank.
    """
    run, own = case.run, case.recording.header
    children = {r.header.pid for r in run.recordings if r.header.child is not None}
    parents = {own.pid} if own.child is not None else None
    recordings = [
        r
        for r in run.recordings
        if r.header.worker is not None
        and r.measurements
        and (r.header.parent in parents if parents else r.header.parent not in children)
    ]
    recordings.sort(key=lambda r: -len(r.measurements))
    headers = (recording.header for recording in recordings)
    restarted = {(h.rank, h.loader) for h in headers if h.generation}
    judged = []
    for recording in recordings[: policy.WORKERS_JUDGED]:
        is_restarted = (recording.header.rank, recording.header.loader) in restarted
        worker, growth, culprits = analyse_recording(
            run, recording, case.catalogue, ends_with_pass=is_restarted
        )
        gained = {
            signature(worker.table.latest[g.path]): g.trend.bytes_per_unit * g.units
            for g in growth.growers
            if g.growth == "across"
        }
        undecided = find_undecided(worker, growth)
        cleared = find_cleared(worker, growth, undecided)
        names = frozenset(each.name for each in undecided)
        judged.append(Worker(recording, worker, culprits, gained, cleared, names))
    return judged


def at_one_time(weights: Iterable[tuple[Group, float]]) -> float:
    """Return what workers come to that live at the same time: of each loader one generation."""
    groups: dict[Group, float] = defaultdict(float)
    for group, weight in weights:
        groups[group] += weight
    loaders: dict[tuple[int, int], float] = defaultdict(float)
    for (rank, loader, _), weight in groups.items():
        loaders[rank, loader] = max(loaders[rank, loader], weight)
    return sum(loaders.values())


def gained_by_culprits(workers: list[Worker]) -> float:
    """Return what serious culprits came to in all workers that were judged."""
    return sum(
        max(worker.gained.get(culprit.signature, 0.0), float(culprit.total_bytes))
        for worker in workers
        for culprit in worker.culprits
        if culprit.severity is not Severity.NOTE
    )


def culprits_of(case: RunContext, workers: list[Worker]) -> list[Culprit]:
    """Return what grows in workers, each once, the worst first; ``case`` is their parent's."""
    ranks = ranks_of(case.run)
    merged = [_of_all(case, found, ranks) for found in _found(workers).values()]
    return sorted(merged, key=lambda c: (SEVERITY_ORDER[c.severity], -c.total_bytes * c.workers))


def worker_of_culprit(workers: list[Worker]) -> dict[str, RunContext]:
    """Return the worker of which each culprit is reported, by signature."""
    return {
        signature: _best(_by_loader(same)[0])[0].case for signature, same in _found(workers).items()
    }


def _found(workers: list[Worker]) -> dict[str, Found]:
    """Return the workers in which each culprit was found, by signature."""
    return grouped(
        (culprit.signature, (worker, culprit)) for worker in workers for culprit in worker.culprits
    )


def _of_all(case: RunContext, found: Found, ranks: list[int]) -> Culprit:
    """Return a culprit for all workers of all ranks, with when those of this machine fill it.

    It is reported for the loader whose workers gain most: a pass of another one may be
    ten times as long.
    """
    worst, *rest = _by_loader(found)
    others = [of for of in rest if of[0][1].unit == worst[0][1].unit]
    merged, host = _merged(case, worst, others), case.recording.header.host
    rate = sum(
        _rate(of) * _count(w for w, _ in of if w.recording.header.host == host)
        for of in (worst, *others)
    )
    merged = _with_forecast(case, merged, worst[0][0], rate or merged.bytes_per_unit)
    if len(ranks) < 2:
        return merged
    rates = grouped((w.recording.header.rank, culprit.bytes_per_unit) for w, culprit in worst)
    return with_rates(merged, {n: float(np.median(of)) for n, of in rates.items()}, ranks)


def _by_loader(found: Found) -> list[Found]:
    """Return what was found in workers of one loader together, the gravest first."""
    loaders = grouped((worker.recording.header.loader, (worker, c)) for worker, c in found)
    return sorted(loaders.values(), key=_weight, reverse=True)


def _best(found: Found) -> tuple[Worker, Culprit]:
    """Return the best known one, which represents all workers of a loader."""
    return max(found, key=lambda each: (-SEVERITY_ORDER[each[1].severity], len(each[1].chart)))


def _weight(found: Found) -> tuple[int, float]:
    """Return how grave a culprit is in workers of a loader, and what it came to in them."""
    gained = ((w.group, max(w.gained.get(c.signature, 0.0), c.total_bytes)) for w, c in found)
    return max(-SEVERITY_ORDER[culprit.severity] for _, culprit in found), at_one_time(gained)


def _rate(found: Found) -> float:
    return float(np.median([culprit.bytes_per_unit for _, culprit in found]))


def _count(workers: Iterable[Worker]) -> int:
    """Return how many of these workers live at the same time."""
    return int(at_one_time((worker.group, 1) for worker in workers))


def ranks_of(run: Run) -> list[int]:
    """Return the ranks whose workers count for a culprit; none where some were not read."""
    headers = [r.header for r in run.recordings if r.measurements and r.header.world_size > 1]
    ranks = sorted({header.rank for header in headers})
    is_whole = not run.unread or len(ranks) == max(h.world_size for h in headers)
    return ranks if ranks and is_whole else []


def _merged(case: RunContext, found: Found, others: list[Found]) -> Culprit:
    """Return a culprit for workers of a loader: the best known one represents all.

    ``case`` is their parent's; ``others`` are the workers of other loaders in which the same grows.
    """
    best, culprit = _best(found)
    by_rank = grouped((worker.recording.header.rank, worker) for worker, _ in found)
    count, rate = max(map(_count, by_rank.values())), _rate(found)
    where = "It grows in a DataLoader worker."
    if count > 1:
        where = (
            f"That is in one worker; it grows in each of {count} DataLoader workers, by "
            f"{human_bytes(rate * count)} per {culprit.unit} in all of them."
        )
    if others:
        number = sum(_count(worker for worker, _ in of) for of in others)
        where += f" It grows in {plural(number, 'worker')} of other loaders too."
    parts = (culprit.sentence, where, _last_look(best.case, culprit.unit))
    return msgspec.structs.replace(
        culprit,
        chart_s=_moments(case, best.case, culprit),
        workers=count,
        bytes_per_unit=rate,
        sentence=" ".join(filter(None, parts)),
    )


def _moments(case: RunContext, worker: RunContext, culprit: Culprit) -> list[float]:
    """Return the seconds, on the parent's clock, of the points of a culprit's chart; empty where
    they are unknown.
    """
    later = worker.recording.began_after(case.recording)
    when = {boundary.index: boundary.time_s for boundary in worker.track.boundaries}
    if later is None or any(point.boundary not in when for point in culprit.chart):
        return []
    return [round(max(0.0, when[point.boundary] + later), 3) for point in culprit.chart]


def _last_look(case: RunContext, unit: str) -> str:
    """Return the pass of a worker's last census, where that was before its end."""
    passes = case.track.occurrence[case.track.phase == case.track.phase_code(WORKER_PHASE)]
    if unit != WORKER_PHASE or not len(passes):
        return ""
    looked = case.track.occurrence[case.table.at]
    last, done = int(looked.max(initial=0)) + 1, int(passes.max()) + 1
    where = f"What it holds was last looked at in pass {last} of {done}"
    return f"{where}, a way through the loader each." if last < done else ""


def _with_forecast(case: RunContext, culprit: Culprit, worker: Worker, rate: float) -> Culprit:
    """Return the culprit with when workers reach the limit of all processes at a rate of all."""
    passed = worker.gained.get(culprit.signature, 0.0) / max(culprit.bytes_per_unit, 1.0)
    if culprit.growth != "across" or passed <= 0:
        return msgspec.structs.replace(culprit, forecast=None)
    ahead = forecast(
        limit_bytes=case.limit_bytes,
        used_bytes=_most(case.track.gauge(case.host_metric)) + _most(case.children_beyond),
        rate=rate,
        unit=culprit.unit,
        done=passed,
    )
    is_near = ahead is not None and ahead.units_left <= policy.HORIZON * passed
    if ahead is not None and (pace := _pace(worker.case, culprit.unit)):
        ahead = msgspec.structs.replace(ahead, seconds_left=ahead.units_left * pace)
    near = Severity.CRITICAL if is_near else Severity.WARNING
    grade = culprit.severity if culprit.severity is Severity.NOTE else near
    return msgspec.structs.replace(culprit, forecast=ahead, severity=grade)


def _pace(case: RunContext, unit: str) -> float:
    """Return the seconds that a unit of a worker's work took; 0 where unknown."""
    done, times = case.unit.done, case.track.time_s
    if case.unit.name != unit or case.unit.total <= 0:
        return 0.0
    last = int(np.argmax(done))
    return float(times[last] - times[0]) / case.unit.total


def _most(values: FloatArray) -> float:
    return max(map(float, _finite(values)), default=0.0)


def with_culprits_of_workers(own: list[Culprit], of_workers: list[Culprit]) -> list[Culprit]:
    """Return all culprits by size, with new ranks."""
    both, left = [], list(of_workers)
    for culprit in own:
        while left and _is_worse(left[0], culprit):
            both.append(left.pop(0))
        both.append(culprit)
    return [msgspec.structs.replace(c, rank=n) for n, c in enumerate([*both, *left], 1)]


def _is_worse(culprit: Culprit, other: Culprit) -> bool:
    if culprit.severity is not other.severity:
        return SEVERITY_ORDER[culprit.severity] < SEVERITY_ORDER[other.severity]
    gained, rival = _part_of_limit(culprit), _part_of_limit(other)
    if gained is not None and rival is not None:
        return gained > rival
    return culprit.total_bytes * max(culprit.workers, 1) > other.total_bytes * max(other.workers, 1)


def _part_of_limit(culprit: Culprit) -> float | None:
    """Return how far growth went towards the limit in the run; None without a forecast.

    A worker is looked at in its first passes, so that what was seen in it is less than it gained.
    """
    ahead = culprit.forecast
    if ahead is None or ahead.at is None or ahead.units_left <= 0:
        return None
    return (ahead.at - ahead.units_left) / ahead.units_left


def worker_rows(
    workers: list[Worker], copies: dict[tuple[int, int], list[str]]
) -> list[WorkerMemory]:
    """Return a row per worker, the heaviest first; ``copies`` are names by rank and process id.

    Ranks on two machines may have workers of the same number.
    """
    rows = [_row(worker, copies) for worker in workers]
    return sorted(rows, key=lambda row: -(row.pss_bytes or 0))[:MOST_LISTED]


def _row(worker: Worker, copies: dict[tuple[int, int], list[str]]) -> WorkerMemory:
    header, track = worker.recording.header, worker.case.track
    passes = np.unique(track.occurrence)
    private = list(_finite(track.gauge(gauge.PRIVATE)))
    written = list(_finite(track.gauge(gauge.PRIVATE_DIRTY)))
    return WorkerMemory(
        loader=header.loader,
        worker=header.worker or 0,
        rank=header.rank,
        pid=header.pid,
        generation=header.generation,
        start_method=header.start_method,
        batches=sum(int(track.batch[track.occurrence == o].max()) for o in passes),
        prefetch=header.prefetch,
        batch_bytes=batch_bytes(worker) or None,
        pss_bytes=peak_bytes(worker) or None,
        private_first_bytes=private[0] if private else None,
        private_last_bytes=private[-1] if private else None,
        written_last_bytes=written[-1] if written else None,
        grows=[c.name for c in worker.culprits if c.severity is not Severity.NOTE],
        copies=copies.get((header.rank, header.pid), []),
    )


def peak_bytes(worker: Worker) -> int:
    """Return a worker's memory at its highest, shared pages divided; 0 if it was never read."""
    return max(_finite(worker.case.track.gauge(gauge.PSS)), default=0)


def batch_bytes(worker: Worker) -> int:
    """Return the largest batch that a worker was seen to make; 0 if it reported none."""
    return max(_finite(worker.case.track.gauge(gauge.BATCH)), default=0)


def _finite(values: FloatArray) -> Iterator[int]:
    return (int(v) for v in values[np.isfinite(values)])


@dataclass(frozen=True)
class LastLook:
    """A container that a worker had come to hold when it was looked into last."""

    worker: Worker
    row: CensusRow
    time_s: float
    """Since the worker started."""
    grown: float
    """Bytes that it had more than at the first look."""
    gained: float
    """By how much the worker's own memory had grown."""


def with_last_look(findings: list[Finding], workers: list[Worker]) -> list[Finding]:
    """Return the findings; that of child processes which grow tells what was in one of them."""
    looks = [look for worker in workers if (look := last_look(worker)) is not None]
    most = max(looks, key=lambda look: look.grown, default=None)
    return [_with_last_look(f, most) if most and f.kind == "children" else f for f in findings]


def last_look(worker: Worker) -> LastLook | None:
    """Return what most of a worker's own growth was at the last look; None where nothing was."""
    track, table = worker.case.track, worker.case.table
    read = track.known(gauge.PRIVATE)
    if len(table.at) < 2 or len(read) < 2:
        return None
    private, looked = track.gauge(gauge.PRIVATE)[read], float(track.time_s[table.at[-1]])
    gained = float(np.interp(looked, track.time_s[read], private) - private[0])
    sizes = np.nan_to_num(table.retained[HOST]) if HOST in table.retained else np.zeros((0, 1))
    grown = sizes[:, -1] - sizes[:, 0]
    wanted = max(policy.NOTED_BYTES, policy.MOST_SHARE * gained)
    large = [n for n in np.flatnonzero(grown >= wanted).tolist() if table.latest[n].user]
    if not large:
        return None
    carries = [n for n in large if grown[n] >= policy.MAIN_SHARE * grown[large].max()]
    containers = [n for n in carries if table.latest[n].length is not None] or carries
    chosen = max(containers, key=lambda n: len(table.ancestors(n)))
    return LastLook(worker, table.latest[chosen], looked, float(grown[chosen]), gained)


def _with_last_look(found: Finding, look: LastLook) -> Finding:
    sources, row = look.worker.case.sources, look.row
    feeding = sources.feeding(row.owner, row, WORKER_PHASE) if row.owner is not None else []
    fed_at = dict.fromkeys(sources.location(line.file, line.line) for line in feeding)
    text = (
        f"{found.text} When one of them was looked into last, after {max(look.time_s, 1.0):.0f} s, "
        f"{row.name} held {human_bytes(look.grown)} more than at first, of "
        f"{human_bytes(max(look.gained, look.grown))} that it had gained."
    )
    return msgspec.structs.replace(
        found,
        text=text,
        fed_at=list(fed_at)[:3],
        remedy=Remedy(
            title=f"Look into {row.name}, in the workers",
            text="If it keeps what is never asked for again, bound or empty it: a worker with "
            "persistent_workers=True lives as long as its loader. Workers were looked into too "
            "seldom for a verdict: a longer run or a larger --budget has more looks.",
        ),
    )
