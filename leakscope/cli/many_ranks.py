"""Analyses the recordings of many ranks in parallel, on this machine's cores.

A worker process reads one recording at a time and returns a summary of it, so that it needs the
memory of one recording however many there are. Where a worker dies another one goes on, and its
recording is left out of the report, which says so.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from leakscope.analysis import RankSummary, find_attempts, group_attempts, summarise_rank
from leakscope.analysis.processes.ranks import MANY
from leakscope.analysis.remedies.catalogue import Catalogue
from leakscope.model.errors import LeakscopeError
from leakscope.model.report import Problem
from leakscope.model.run import Damage, Recording, Run
from leakscope.recording import open_run
from leakscope.recording.directory import journals
from leakscope.recording.reader import Sketch, open_recording, sketch

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

RANKS_PER_JUDGE = 4
"""A judge that has fewer to judge doesn't pay: it takes half a second to start."""
PASSED_OVER = "passed over: a copy of another recording, or nothing in it can be read"
LEAST_LEADING_SHARE = 0.5
"""The rank whose recording stands for all has a journal of at least this part of the usual size."""
MOST_WORKERS = 32
"""Workers of DataLoaders whose recordings are read, the largest."""


@dataclass(frozen=True)
class ManyRanks:
    """A run whose leading recordings were read, and where those of the other ranks are."""

    run: Run
    others: dict[int, Path]
    """By rank."""

    def read(self, rank: int) -> Recording | None:
        """Return the recording of another rank; None where it can't be read any more."""
        try:
            return open_recording(self.others[rank])
        except (KeyError, LeakscopeError, OSError):
            return None


def open_leading(folder: Path) -> Run:
    """Return a run; of many ranks the first speaks for all."""
    many = open_many(folder)
    return open_run(folder) if many is None else many.run


def open_many(folder: Path) -> ManyRanks | None:
    """Return a run of more ranks than are read at once; None where there are fewer."""
    sketches = sketch(folder)
    groups = [
        [sketches[p] for p in group] for group in group_attempts([s.header for s in sketches])
    ]
    if max(len(_ranks(group)) for group in groups) <= MANY:
        return None
    leading_journals = [_leading_of(group) for group in groups]
    of_leading = open_run(folder, [leading.path for leading in leading_journals])
    judged = find_attempts(of_leading).judged if len(of_leading.recordings) == len(groups) else -1
    group, leading = groups[judged], leading_journals[judged]
    others = {
        journal.header.rank: journal.path for journal in _ranks(group) if journal is not leading
    }
    workers = sorted((s for s in group if not s.header.is_primary), key=lambda s: -s.bytes)
    kept = [journal.path for journal in (*leading_journals, *workers[:MOST_WORKERS])]
    run = open_run(folder, kept) if workers else of_leading
    run.unread = len(group) - len(kept) + len(leading_journals) - 1
    known = {journal.path for journal in sketches}
    run.damage += [
        Damage(j.name, 0, PASSED_OVER, is_gap=True) for j in journals(folder) if j not in known
    ]
    return ManyRanks(run, others)


def analyse_in_parallel(
    many: ManyRanks, processes: int | None = None, catalogue: Catalogue | None = None
) -> Iterator[RankSummary]:
    """Yield the summary of each of the other ranks as soon as it is there."""
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    count = processes or max(1, min(cores, len(many.others) // RANKS_PER_JUDGE))
    main = find_attempts(many.run).run.main
    main_recording = Recording(main.header, sources=main.sources, titles=main.titles)
    shared = Run(many.run.path, many.run.manifest, [main_recording], outcomes=many.run.outcomes)
    waiting = deque(many.others.values())
    judges = [_AnalysisWorker(shared, catalogue) for _ in range(count)]
    try:
        for judge in judges:
            judge.take_next(waiting)
        while busy := {judge.connection: judge for judge in judges if judge.at is not None}:
            for connection in wait(list(busy)):
                judge = busy[connection]  # type: ignore[index]
                summary = judge.summary()
                if summary is not None:
                    yield summary
                    judge.take_next(waiting)
    finally:
        for judge in judges:
            judge.dismiss()


def _ranks(group: Sequence[Sketch]) -> list[Sketch]:
    """Return the journals of ranks, one for each: the largest."""
    largest: dict[int, Sketch] = {}
    for journal in group:
        header = journal.header
        if header.is_primary and header.world_size > 1:
            known = largest.setdefault(header.rank, journal)
            if journal.bytes > known.bytes:
                largest[header.rank] = journal
    return [largest[rank] for rank in sorted(largest)]


def _leading_of(group: Sequence[Sketch]) -> Sketch:
    """Return the journal of the first rank of which there is as much as of others."""
    ranks = _ranks(group) or list(group)
    usual = median(rank.bytes for rank in ranks)
    return next(rank for rank in ranks if rank.bytes >= LEAST_LEADING_SHARE * usual)


class _AnalysisWorker:
    """A process that judges recordings, and what it is at."""

    connection: Connection[Any, Any]

    def __init__(self, run: Run, catalogue: Catalogue | None = None) -> None:
        self.at: Path | None = None
        self._is_second_try = False
        self._run = run
        self._catalogue = catalogue
        self._start()

    def take_next(self, waiting: deque[Path]) -> None:
        """Hand it the next recording, if there is one."""
        self.at = waiting.popleft() if waiting else None
        self._is_second_try = False
        self._hand_over()

    def summary(self) -> RankSummary | None:
        """Return what it concluded; None where it died and another one tries once more."""
        try:
            summary: RankSummary = self.connection.recv()
            return summary
        except (EOFError, OSError):
            self._process.join()
            how = f"the process that read it died twice (exit code {self._process.exitcode})"
            self._start()
            if self._is_second_try:
                return _lost(self.at, how)
            self._is_second_try = True
            self._hand_over()
            return None

    def _hand_over(self) -> None:
        if self.at is not None:
            with contextlib.suppress(OSError):  # died meanwhile: its connection says so
                self.connection.send(self.at)

    def dismiss(self) -> None:
        """Have it end."""
        self.connection.close()
        self._process.terminate()
        self._process.join()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, its_end = context.Pipe()
        self._process: SpawnProcess = context.Process(
            target=_judge_each, args=(its_end, self._run, self._catalogue), daemon=True
        )
        self._process.start()
        its_end.close()


def _judge_each(
    connection: Connection[Any, Any], run: Run, catalogue: Catalogue | None = None
) -> None:
    while True:
        try:
            path = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        connection.send(_judged(run, path, catalogue))


def _judged(run: Run, path: Path, catalogue: Catalogue | None = None) -> RankSummary:
    try:
        return summarise_rank(run, open_recording(path), catalogue)
    except LeakscopeError as fault:
        return _lost(path, str(fault))
    except Exception as fault:
        return _lost(path, f"{type(fault).__name__}: {fault}")


def _lost(path: Path | None, why: str) -> RankSummary:
    where = path.name if path is not None else "a rank"
    problem = Problem(where=where, message=f"This rank is left out: {why}.")
    return RankSummary(None, problems=[problem])
