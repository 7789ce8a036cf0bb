"""Ranks that train together: culprits with the rate of each rank, and the rank that differs first.

Every rank is judged by its own recording, as if it had trained alone; what ranks have in common is
matched by signature. Nothing was exchanged between them while they trained.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from leakscope.analysis.case import Case
from leakscope.analysis.ending import OOM_KILLED
from leakscope.analysis.killed import killed_notes, named_ranks
from leakscope.analysis.ranks.courses import odd_one_out
from leakscope.analysis.ranks.drawn import shown_courses
from leakscope.analysis.ranks.merged import MergedCulprits
from leakscope.analysis.ranks.rows import with_beginnings
from leakscope.analysis.ranks.summary import RankSummary, summarise, summarise_rank
from leakscope.analysis.ranks.worst import Chosen, choose, told_of, worst_here
from leakscope.model.rank import OddRank, RankCourse, RankMemory
from leakscope.model.report import Culprit, Problem
from leakscope.model.run import Recording, Run

MANY = 8
"""Of more ranks each is read and judged by itself."""
MOST_PROBLEMS = 200
RANKS = "ranks"
"""Where it is that ranks are missing."""

__all__ = [
    "RankSummary",
    "Ranks",
    "conclude_ranks",
    "is_many",
    "ranks_here",
    "recording_of_rank",
    "summarise_rank",
]


@dataclass(frozen=True)
class Ranks:
    """A report's culprits with the rates of all ranks, a row per rank, and the odd one out."""

    culprits: list[Culprit]
    rows: list[RankMemory]
    odd: OddRank | None = None
    problems: tuple[Problem, ...] = ()
    """Of recordings that were read elsewhere."""
    courses: list[RankCourse] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    """What ranks have met with that the whole report should mention."""
    worst: Recording | None = None
    """Of the rank whose memory ran out, or else of that in which the worst culprit grows, where
    that is another one and it is here."""
    chosen: Chosen | None = None
    """The same of many ranks, which needn't be here."""
    merged: MergedCulprits | None = None
    """What the culprits were told from."""

    def as_of(self, case: Case, culprits: list[Culprit]) -> Ranks:
        """Return the same as told of the rank that was chosen, which nothing is judged for anew."""
        if self.merged is None or self.chosen is None:
            return self
        own = case.recording.header.rank
        self.merged.tell_as(own, culprits)
        return replace(
            self,
            culprits=self.merged.of([row.rank for row in self.rows]),
            notes=(self.chosen.sentence, *_notes(self.rows, case)),
            chosen=None,
        )

    def chosen_for(self, rank: int, culprit: Culprit) -> Ranks:
        """Return the same with a rank chosen of many, in whose workers the worst culprit grows."""
        sentence = told_of(rank, len(self.rows), f"{culprit.name} grows most there.")
        return replace(self, chosen=Chosen(rank, sentence))


def is_many(ranks: Ranks) -> bool:
    """Return whether there are so many that each was read and judged by itself."""
    return len(ranks.rows) > MANY


def conclude_ranks(
    case: Case, culprits: list[Culprit], others: Iterable[RankSummary] = ()
) -> Ranks:
    """Return what the ranks of a run add to what was concluded of the first one.

    Args:
        case: the first one's.
        culprits: what grows in it.
        others: ranks whose recordings are not in the run, each judged somewhere else; taken one
            by one, and of each only what the report needs is kept.

    """
    own = case.recording.header
    if own.world_size < 2:
        return Ranks(culprits, [])
    merged = MergedCulprits(own.rank, culprits)
    rows, courses, problems = [], {}, []
    for summary in _summaries(case, culprits, others):
        problems += summary.problems
        if summary.row is None:
            continue
        merged.add(summary.row.rank, summary.culprits)
        rows.append(summary.row)
        if summary.course is not None:
            courses[summary.row.rank] = summary.course
    problems = [*_missing(case.run, {row.rank for row in rows}, own.world_size), *problems]
    if len(rows) < 2:
        alone = tuple(problems[:MOST_PROBLEMS])
        return Ranks(culprits, [], problems=alone, notes=killed_notes(case.run))
    told = merged.of([row.rank for row in rows])
    rows.sort(key=lambda row: row.rank)
    problems.sort(key=lambda problem: (problem.where != RANKS, problem.where))
    odd = odd_one_out(courses)
    return Ranks(
        told,
        with_beginnings(rows),
        odd,
        tuple(problems[:MOST_PROBLEMS]),
        shown_courses(courses, odd.rank if odd else None),
        _notes(rows, case),
        None if len(rows) > MANY else worst_here(ranks_here(case.run), case, merged, told),
        choose(case, merged, told, rows, odd) if len(rows) > MANY else None,
        merged,
    )


def _missing(run: Run, told: set[int], world_size: int) -> list[Problem]:
    """Return that ranks are missing, where the directory was to have them.

    A program that has but one of its ranks record itself means to.
    """
    missing = [rank for rank in range(world_size) if rank not in told]
    if not missing or (len(told) < 2 and not run.outcome):
        return []
    return [
        Problem(
            where=RANKS,
            message=(
                f"of {world_size} nothing is here of {named_ranks(missing)}: leakscope merge puts "
                "together what machines without a shared disk have recorded apart"
            ),
        )
    ]


def _notes(rows: list[RankMemory], case: Case) -> tuple[str, ...]:
    return (*_killed(rows, case.recording.header.rank), *killed_notes(case.run))


def _killed(rows: list[RankMemory], own: int) -> tuple[str, ...]:
    """Return that ranks besides the one that is told of were killed for memory, if some were."""
    killed = [row.rank for row in rows if row.ended == OOM_KILLED and row.rank != own]
    if not killed:
        return ()
    told = named_ranks(killed)
    were = "was" if len(killed) == 1 else "were"
    return (f"{told[:1].upper()}{told[1:]} {were} {OOM_KILLED}: memory ran out there.",)


def _summaries(
    case: Case, culprits: list[Culprit], others: Iterable[RankSummary]
) -> Iterable[RankSummary]:
    yield summarise(case, culprits)
    for recording in ranks_here(case.run):
        if recording.header.rank != case.recording.header.rank:
            yield summarise_rank(case.run, recording, case.catalogue)
    yield from others


def recording_of_rank(run: Run, rank: int) -> Recording | None:
    """Return the longest recording of a rank in a run that measured something."""
    return next((one for one in ranks_here(run) if one.header.rank == rank), None)


def ranks_here(run: Run) -> list[Recording]:
    """Return the recordings of ranks that measured something, one for each rank: the longest."""
    longest: dict[int, Recording] = {}
    for recording in run.recordings:
        header = recording.header
        if header.worker is None and header.world_size > 1 and recording.measurements:
            known = longest.setdefault(header.rank, recording)
            if len(recording.measurements) > len(known.measurements):
                longest[header.rank] = recording
    return [longest[rank] for rank in sorted(longest)]
