"""Ranks, attempts, DataLoader workers and child processes as the forms of a report show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median, quantiles
from types import SimpleNamespace

from leakscope.model.report import (
    Culprit,
    ProcessMemory,
    RankCourse,
    RankMemory,
    Report,
    Severity,
    WorkerMemory,
)
from leakscope.model.text import human_bytes, plural
from leakscope.report.charts import NARROW, WIDE, draw_ranks, finite
from leakscope.report.tables import Cell, cell_of
from leakscope.report.text import (
    humane_bytes,
    humane_duration,
    humane_number,
    humane_rate,
    sparkline,
)
from leakscope.report.timeline import chart_data, compact, line_entry

FEW = 16
"""Ranks of which each has a row at once."""
COLUMNS = 4
"""Ranks that have a column each in the table of what grows."""
SPREAD = ["grows in", "least", "half below", "most", "in rank"]
"""The columns of that table for more of them."""
MOST_ROWS = 1024
MOST_CULPRITS = 12
EXTREME = 3
DONE = "completed"


def ranks_view(
    report: Report, places: Mapping[tuple[int, int], str] | None = None
) -> SimpleNamespace | None:
    """Return what the page says of ranks, None where a process trained alone.

    ``places`` are where on the page the memory of a process is shown, by rank and process id.
    """
    ranks = report.ranks
    if not ranks:
        return None
    is_few, known = len(ranks) <= FEW, places or {}
    odd = report.odd_rank.rank if report.odd_rank else None
    top = max((rank.peak_bytes or 0 for rank in ranks), default=0)
    badges = {} if is_few else _standing_out(ranks)
    badges |= {odd: "differs first"} if odd is not None else {}
    rows = [
        _rank_row(rank, top, badges.get(rank.rank, ""), known.get((rank.rank, rank.pid), ""))
        for rank in sorted(ranks, key=lambda item: (item.rank != odd, item.rank))
        if is_few or rank.rank in badges
    ]
    left = 0 if is_few else len(ranks) - MOST_ROWS
    return SimpleNamespace(
        count=humane_number(len(ranks)),
        sentence=report.odd_rank.sentence if report.odd_rank else "",
        chart=_chart(report.rank_courses),
        rows=rows if is_few else [*_middle(ranks, top), *rows],
        others=[] if is_few else [_rank_row(rank, top, "") for rank in ranks[:MOST_ROWS]],
        left_out=f"{left:,} more, all in report.json" if left > 0 else "",
        columns=[f"rank {rank.rank}" for rank in ranks] if len(ranks) <= COLUMNS else SPREAD,
        culprits=[_rates(c, ranks) for c in report.culprits if c.rates_by_rank][:MOST_CULPRITS],
    )


def _standing_out(ranks: Sequence[RankMemory]) -> dict[int, str]:
    """Return the ranks to look at first, and why; of each kind a few."""
    known = sorted((r for r in ranks if r.last_bytes is not None), key=lambda r: r.last_bytes or 0)
    steps = median(rank.steps for rank in ranks)
    kinds = {
        "least memory": known[:1],
        "most memory": known[::-1][:EXTREME],
        "fewer steps": [r for r in sorted(ranks, key=lambda r: r.steps) if r.steps < 0.9 * steps],
        "came late": [r for r in sorted(ranks, key=lambda r: -r.late_s) if r.late_s],
        "not completed": [rank for rank in ranks if rank.ended != DONE],
    }
    return {rank.rank: why for why, found in kinds.items() for rank in found[:EXTREME]}


def _middle(ranks: Sequence[RankMemory], top: int) -> list[SimpleNamespace]:
    """Return rows for the middle of many ranks and for the tenths at both ends."""
    places = {"nine tenths have less": 8, "half have less": 4, "a tenth has less": 0}

    def at(sizes: list[int], place: int) -> Cell | None:
        return cell_of(int(quantiles(sizes, n=10)[place]), top, "peak") if len(sizes) > 1 else None

    columns = [
        [size for rank in ranks if (size := getattr(rank, name)) is not None]
        for name in ("first_bytes", "peak_bytes", "last_bytes")
    ]
    rates = [rank.bytes_per_unit for rank in ranks]
    steps = [rank.steps for rank in ranks]
    unit = ranks[0].unit if len({rank.unit for rank in ranks}) == 1 else ""
    return [
        SimpleNamespace(
            name=name,
            detail=f"of {len(ranks):,} ranks, in each column",
            steps=humane_number(int(quantiles(steps, n=10)[place])),
            cells=[at(column, place) for column in columns],
            rate=humane_rate(quantiles(rates, n=10)[place], unit) if unit else "",
            grows=[],
            badge="",
            memory="",
        )
        for name, place in places.items()
    ]


def _rank_row(rank: RankMemory, top: int, badge: str, memory: str = "") -> SimpleNamespace:
    sizes = (rank.first_bytes, rank.peak_bytes, rank.last_bytes)
    late = f", began {humane_duration(rank.late_s)} after the first" if rank.late_s else ""
    return SimpleNamespace(
        name=f"rank {rank.rank}",
        detail=f"{rank.host}, process {rank.pid}, {rank.ended}{late}",
        steps=humane_number(rank.steps),
        cells=[None if size is None else cell_of(size, top, "peak") for size in sizes],
        rate=humane_rate(rank.bytes_per_unit, rank.unit) if rank.unit else "",
        grows=rank.grows,
        badge=badge,
        memory=memory,
    )


def _chart(courses: Sequence[RankCourse]) -> SimpleNamespace | None:
    points = [course.points for course in courses]
    if not any(finite(point) for point in points):
        return None
    wide, narrow = (
        draw_ranks(points, "ranks-wide", WIDE),
        draw_ranks(points, "ranks-narrow", NARROW),
    )
    entries = [line_entry(n, course.label, course.points) for n, course in enumerate(courses)]
    lines = [
        {"label": e.label, "shade": e.shade, "dash": e.dash, "points": compact(course)}
        for e, course in zip(entries, points, strict=True)
    ]
    data = chart_data("step", lines, wide=wide, narrow=narrow)
    return SimpleNamespace(wide=wide, narrow=narrow, lines=entries, data=data, key="ranks")


def _rates(culprit: Culprit, ranks: Sequence[RankMemory]) -> SimpleNamespace:
    rates = culprit.rates_by_rank
    name = f"{culprit.name} per {culprit.unit}"
    if len(ranks) <= COLUMNS:
        parts = [humane_bytes(rates.get(str(rank.rank))) for rank in ranks]
        return SimpleNamespace(name=name, rates=parts)
    values = list(rates.values())
    least, middle, most = (humane_bytes(v) for v in (min(values), median(values), max(values)))
    at = max(rates, key=lambda rank: rates[rank])
    count = f"{len(rates):,} of {plural(len(ranks), 'rank')}"
    return SimpleNamespace(name=name, rates=[count, least, middle, most, at])


_STARTED = {"fork": "forked", "spawn": "spawned", "forkserver": "forked by a server"}


def named_in_workers(culprits: Sequence[Culprit]) -> str:
    """Return what grows in workers by name, at the rate of all of them; empty where nothing does.

    It makes up growth of child processes; no ledger of this process can measure how much.
    """
    parts = [
        f"{c.name} by {humane_rate(c.bytes_per_unit * c.workers, c.unit)}"
        f" in {plural(c.workers, 'worker')}"
        for c in culprits
        if c.workers and c.severity is not Severity.NOTE and c.growth == "across"
    ]
    return f"in DataLoader workers: {', '.join(parts)}" if parts else ""


def worker_rows(
    workers: Sequence[WorkerMemory], places: Mapping[tuple[int, int], str] | None = None
) -> list[SimpleNamespace]:
    """Return one row a worker; all bars share one scale.

    ``places`` are where on the page the memory of a process is shown, by rank and process id.
    """
    sizes = (s for w in workers for s in (w.pss_bytes, w.private_first_bytes, w.private_last_bytes))
    top = max((size for size in sizes if size), default=0)
    return [
        SimpleNamespace(
            worker=worker,
            name=f"{f'rank {worker.rank}, ' if worker.rank else ''}loader {worker.loader}, "
            f"worker {worker.worker}",
            detail=_worker_detail(worker),
            top=top,
            memory=(places or {}).get((worker.rank, worker.pid), ""),
        )
        for worker in workers
    ]


def _worker_detail(worker: WorkerMemory) -> str:
    started = _STARTED.get(worker.start_method, "started")
    again = f" in its loader's pass {worker.generation + 1}" if worker.generation else ""
    ahead = ""
    if worker.prefetch and worker.batch_bytes:
        batches = plural(worker.prefetch, "batch")
        ahead = f", {batches} of {human_bytes(worker.batch_bytes)} ahead at most"
    return f"{started}{again}, process {worker.pid}{ahead}"


COURSE = 24
"""Characters of the course of a process."""
FLAT_BYTES = 16 << 20
"""Height of a course at least."""
_VERDICTS = {
    "leak": "leak",
    "clean": "no leak",
    "inconclusive": "inconclusive",
    "out_of_memory": "out of memory",
}
RESTS = "little happened in it"
SUPERVISES = "supervises only"
"""Label of a process that only waits for its children."""


def processes_view(report: Report) -> SimpleNamespace | None:
    """Return the view of processes; None where no child recorded itself."""
    if not report.processes:
        return None
    recorded = sum(process.is_recorded for process in report.processes)
    return SimpleNamespace(
        count=humane_number(recorded),
        sentence=report.odd_process,
        rows=report.processes,
        top=max(process.peak_bytes or 0 for process in report.processes),
    )


def process_detail(process: ProcessMemory) -> str:
    """Return what a process runs, which it is, and how it began and ended."""
    number = f"process {process.pid}" if process.pid else ""
    parts = [process.name, process.runs, number, process.start_method]
    if process.began_s >= 1:
        parts.append(f"recorded from {humane_duration(process.began_s)} on")
    return ", ".join(dict.fromkeys(filter(None, [*parts, process.ended])))


def process_verdict(process: ProcessMemory) -> str:
    """Return the verdict of a process in words; of one that decides nothing, why."""
    if not process.is_recorded:
        return "not recorded"
    if process.supervises:
        return SUPERVISES
    if not process.verdict:
        return "not judged"
    return _VERDICTS[process.verdict] if process.decides else RESTS


def process_course(process: ProcessMemory, width: int = COURSE) -> str:
    """Return the memory of a process as a line of blocks, which is flat where little changes."""
    values = [size for _, size in process.course]
    if len(values) < 2:
        return ""
    least = min(values)
    return sparkline(values, width, (least, max(*values, least + FLAT_BYTES)))
