"""Ranks that train together: culprits with the rate of each rank, and the rank that differs first.

Every rank is judged by its own recording, as if it had trained alone; what ranks have in common is
matched by signature. A summary of a rank is small, so that those of thousands fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from leakscope.analysis.accounting.run_facts import problems_of
from leakscope.analysis.columns.series import FloatArray
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.shape import thinned
from leakscope.analysis.processes.endings import (
    OOM_KILLED,
    how_it_ended,
    killed_notes,
    named_ranks,
    shortage_at_the_end,
)
from leakscope.analysis.processes.recordings import MergedCulprits, analyse_recording
from leakscope.analysis.remedies.catalogue import Catalogue
from leakscope.analysis.run_context import RunContext
from leakscope.model.boundary import BoundaryKind
from leakscope.model.report import Culprit, OddRank, Problem, RankCourse, RankMemory, Severity
from leakscope.model.run import Recording, Run
from leakscope.model.text import human_bytes

MANY = 8
"""Of more ranks each is read and judged by itself."""
MOST_PROBLEMS_OF_RUN = 200
RANKS = "ranks"
"""Where it is that ranks are missing."""


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
    chosen: ChosenRank | None = None
    """The same of many ranks, which needn't be here."""
    merged: MergedCulprits | None = None
    """What the culprits were merged from."""

    def as_of(self, case: RunContext, culprits: list[Culprit]) -> Ranks:
        """Return the same, reported for the chosen rank; nothing is judged again."""
        if self.merged is None or self.chosen is None:
            return self
        own = case.recording.header.rank
        self.merged.report_as(own, culprits)
        return replace(
            self,
            culprits=self.merged.of([row.rank for row in self.rows]),
            notes=(self.chosen.sentence, *_notes(self.rows, case)),
            chosen=None,
        )

    def chosen_for(self, rank: int, culprit: Culprit) -> Ranks:
        """Return the same with a rank chosen of many, in whose workers the worst culprit grows."""
        sentence = rank_note(rank, len(self.rows), f"{culprit.name} grows most there.")
        return replace(self, chosen=ChosenRank(rank, sentence))


def is_many(ranks: Ranks) -> bool:
    """Return whether there are so many that each was read and judged by itself."""
    return len(ranks.rows) > MANY


def conclude_ranks(
    case: RunContext, culprits: list[Culprit], others: Iterable[RankSummary] = ()
) -> Ranks:
    """Return what the ranks of a run add to what was concluded of the first one.

    ``others`` are ranks whose recordings are not in the run, each judged somewhere else; they are
    taken one by one, and of each only what the report needs is kept.
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
        alone = tuple(problems[:MOST_PROBLEMS_OF_RUN])
        return Ranks(culprits, [], problems=alone, notes=killed_notes(case.run))
    of_ranks = merged.of([row.rank for row in rows])
    rows.sort(key=lambda row: row.rank)
    problems.sort(key=lambda problem: (problem.where != RANKS, problem.where))
    odd, are_many = find_odd_rank(courses), len(rows) > MANY
    return Ranks(
        of_ranks,
        with_beginnings(rows),
        odd,
        tuple(problems[:MOST_PROBLEMS_OF_RUN]),
        shown_rank_series(courses, odd.rank if odd else None),
        _notes(rows, case),
        None if are_many else worst_here(case, merged, of_ranks),
        choose_rank(case, merged, of_ranks, rows, odd) if are_many else None,
        merged,
    )


def _missing(run: Run, reported: set[int], world_size: int) -> list[Problem]:
    """Return that ranks are missing, where the directory was to have them.

    A program that has but one of its ranks record itself means to.
    """
    missing = [rank for rank in range(world_size) if rank not in reported]
    if not missing or (len(reported) < 2 and not run.outcome):
        return []
    message = (
        f"of {world_size} nothing is here of {named_ranks(missing)}: leakscope merge puts "
        "together what machines without a shared disk have recorded apart"
    )
    return [Problem(where=RANKS, message=message)]


def _notes(rows: list[RankMemory], case: RunContext) -> tuple[str, ...]:
    """Return notes that ranks other than the reported one were killed, if some were."""
    own, notes = case.recording.header.rank, killed_notes(case.run)
    killed = [row.rank for row in rows if row.ended == OOM_KILLED and row.rank != own]
    if not killed:
        return notes
    names = f"{named_ranks(killed)} {'was' if len(killed) == 1 else 'were'} {OOM_KILLED}"
    return (f"{names[:1].upper()}{names[1:]}: memory ran out there.", *notes)


def _summaries(
    case: RunContext, culprits: list[Culprit], others: Iterable[RankSummary]
) -> Iterable[RankSummary]:
    yield summarise(case, culprits)
    for recording in ranks_here(case.run):
        if recording.header.rank != case.recording.header.rank:
            yield summarise_rank(case.run, recording, case.catalogue)
    yield from others


def recording_of_rank(run: Run, rank: int) -> Recording | None:
    """Return the longest recording of a rank in a run that measured something."""
    return next((recording for recording in ranks_here(run) if recording.header.rank == rank), None)


def ranks_here(run: Run) -> list[Recording]:
    """Return the recordings of ranks that measured something, one for each rank: the longest."""
    longest: dict[int, Recording] = {}
    for recording in run.recordings:
        header = recording.header
        if header.is_primary and header.world_size > 1 and recording.measurements:
            known = longest.setdefault(header.rank, recording)
            if len(recording.measurements) > len(known.measurements):
                longest[header.rank] = recording
    return [longest[rank] for rank in sorted(longest)]


POINTS_OF_CHART = 60
MOST_CULPRITS = 40
MOST_PROBLEMS_OF_RANK = 5
"""Of one rank."""


@dataclass(frozen=True)
class RankSummary:
    """What was concluded of one rank from its own recording."""

    row: RankMemory | None
    """None where nothing could be concluded."""
    culprits: list[Culprit] = field(default_factory=list)
    course: RankSeries | None = None
    problems: list[Problem] = field(default_factory=list)


def summarise_rank(
    run: Run, recording: Recording, catalogue: Catalogue | None = None
) -> RankSummary:
    """Return what is concluded of a rank's recording, judged as if it had trained alone.

    Of ``run`` the manifest, the sources of the first process and what its supervisor saw are used.
    """
    if not recording.measurements:
        return RankSummary(None, problems=problems_of(recording)[:MOST_PROBLEMS_OF_RANK])
    with np.errstate(all="ignore"):
        case, _, culprits = analyse_recording(run, recording, catalogue)
        return summarise(case, culprits)


def summarise(case: RunContext, culprits: list[Culprit]) -> RankSummary:
    """Return what a report keeps of a rank that was judged already."""
    recording = case.recording
    elsewhere = all(recording is not own for own in case.run.recordings)
    return RankSummary(
        _row(case, culprits),
        [_small(culprit) for culprit in culprits[:MOST_CULPRITS]],
        rank_series(case),
        problems_of(recording)[:MOST_PROBLEMS_OF_RANK] if elsewhere else [],
    )


def _small(culprit: Culprit) -> Culprit:
    places = thinned(np.arange(len(culprit.chart)), POINTS_OF_CHART)
    return msgspec.structs.replace(culprit, chart=[culprit.chart[place] for place in places])


def _row(case: RunContext, culprits: list[Culprit]) -> RankMemory:
    header, track = case.recording.header, case.track
    readings = track.gauge(case.host_metric)
    known = readings[np.isfinite(readings)]
    trend = case.gauge_trend(case.host_metric)
    begun = (b.time_s for b in case.track.boundaries if b.kind is not BoundaryKind.RUN_BEGIN)
    return RankMemory(
        rank=header.rank,
        host=header.host,
        pid=header.pid,
        steps=int(track.step.max()) if len(track) else 0,
        first_bytes=int(known[0]) if len(known) else None,
        peak_bytes=int(known.max()) if len(known) else None,
        last_bytes=int(known[-1]) if len(known) else None,
        bytes_per_unit=trend.bytes_per_unit,
        unit=trend.unit,
        grows=[c.name for c in culprits if c.severity is not Severity.NOTE],
        ended=how_it_ended(case.run, case.recording).text,
        began=header.started + next(begun, 0.0),
    )


@dataclass(frozen=True)
class ChosenRank:
    """The rank to tell of where there are many, and why it is that one."""

    rank: int
    sentence: str


def worst_here(
    case: RunContext, merged: MergedCulprits, culprits: list[Culprit]
) -> Recording | None:
    """Return the rank to tell of where it is another one, of ranks whose recordings are here.

    The kernel may kill more ranks than the one that used up their memory: of those whose memory ran
    out it is the one in which the worst culprit grows.
    """
    own = case.recording.header.rank
    ranks = [case.recording, *(r for r in ranks_here(case.run) if r.header.rank != own)]
    ran_out = [r for r in ranks if shortage_at_the_end(case.run, r)]
    rank = _blamed(merged, culprits)
    blamed = [r for r in ran_out or ranks if r.header.rank == rank]
    chosen = next(iter([*blamed, *ran_out]), case.recording)
    return None if chosen is case.recording else chosen


def choose_rank(
    case: RunContext,
    merged: MergedCulprits,
    culprits: list[Culprit],
    rows: list[RankMemory],
    odd: OddRank | None,
) -> ChosenRank | None:
    """Return the rank to tell of where it is another one than the case's, by what is kept of each.

    Where nothing grows that has a name, it is the one that differs by having more.
    """
    own = case.recording.header.rank
    blamed = _blamed(merged, culprits)
    ran_out = [row.rank for row in rows if row.ended == OOM_KILLED]
    if shortage_at_the_end(case.run, case.recording):
        ran_out.insert(0, own)
    if ran_out:
        rank = blamed if blamed in ran_out else own if own in ran_out else ran_out[0]
        why = "memory ran out there."
    elif blamed is not None:
        rank, why = blamed, f"{culprits[0].name} grows most there."
    elif odd is not None and odd.bytes > 0:
        rank, why = odd.rank, "it is the first that differs from the others."
    else:
        return None
    return None if rank == own else ChosenRank(rank, rank_note(rank, len(rows), why))


def rank_note(rank: int, count: int, why: str) -> str:
    """Return which of so many ranks the report is of."""
    return f"Ledger, timeline and phases are those of rank {rank} of {count}: {why}"


def _blamed(merged: MergedCulprits, culprits: list[Culprit]) -> int | None:
    """Return the rank of which the worst culprit is reported, if it is more than a note."""
    grows = bool(culprits) and culprits[0].severity is not Severity.NOTE
    return merged.rank_of(culprits[0]) if grows else None


POINTS = 200
"""Steps at which the courses of ranks are compared."""


@dataclass(frozen=True)
class RankSeries:
    """Memory of a rank at steps, ascending, at no more than so many of them as are compared."""

    steps: FloatArray
    memory: FloatArray

    @property
    def span(self) -> float:
        """How many steps it covers."""
        return float(self.steps[-1] - self.steps[0])


def rank_series(case: RunContext) -> RankSeries | None:
    """Return steps and memory, one reading a step, while the rank was at work."""
    readings = case.track.gauge(case.host_metric)[: case.track.last_work + 1]
    known = np.isfinite(readings) & (case.track.step[: len(readings)] > 0)
    numbers, first = np.unique(case.track.step[: len(readings)][known], return_index=True)
    if len(numbers) < 2:
        return None
    steps, memory = numbers.astype(np.float64), readings[known][first]
    if len(steps) > POINTS:
        evenly = np.linspace(steps[0], steps[-1], POINTS)
        steps, memory = evenly, np.interp(evenly, steps, memory)
    return RankSeries(steps, memory)


@dataclass(frozen=True)
class _Divergence:
    """A rank that left the others' course for good."""

    step: float
    """From which on it is away by so much as no rank is that keeps with the others."""
    begun: float
    """The step at which that began."""
    rank: int
    size: int
    """How much more than the others it has at the end, or where one of them ended."""
    ended: float | None = None
    """The step up to which it was held against them, where that is not the end."""


def find_odd_rank(courses: Mapping[int, RankSeries]) -> OddRank | None:
    """Return the rank that was the first to leave the others' course for good, if one did."""
    usual = float(np.median([course.span for course in courses.values()])) if courses else 0.0
    together = {
        r: course for r, course in courses.items() if course.span >= policy.MAIN_SHARE * usual
    }
    found = _among(together)
    for rank, course in courses.items():
        if together and rank not in together and course.span >= policy.CONSIDERABLE_SHARE * usual:
            left = _divergence_of_ended(rank, course, together)
            found += [] if left is None else [left]
    if not found:
        return None
    # Of two ranks each is away from the other: the one that has more is the odd one.
    odd = min(found, key=lambda candidate: (candidate.step, -candidate.size))
    word = "more" if odd.size > 0 else "less"
    when = f"at step {odd.ended:,.0f}, where one of them ended," if odd.ended else "at the end"
    sentence = (
        f"Rank {odd.rank} is the first that differs: from about step {odd.begun:,.0f} on its "
        f"memory leaves the others' course, and {when} it has "
        f"{human_bytes(abs(odd.size))} {word} than they."
    )
    return OddRank(rank=odd.rank, step=round(odd.begun), bytes=odd.size, sentence=sentence)


def _among(together: Mapping[int, RankSeries]) -> list[_Divergence]:
    """Return those of ranks with the same steps that left the course of the others."""
    if len(together) < 2:
        return []
    begin = max(float(course.steps[0]) for course in together.values())
    end = min(float(course.steps[-1]) for course in together.values())
    if end <= begin:
        return []
    steps = np.linspace(begin, end, POINTS)
    risen = np.array([_risen(steps, course) for course in together.values()])
    courses, most = zip(together, _away(risen), strict=True), float(risen[:, -1].max())
    found = [_divergence(rank, steps, away, most) for rank, away in courses]
    return [each for each in found if each is not None]


def _divergence_of_ended(
    rank: int, course: RankSeries, together: Mapping[int, RankSeries]
) -> _Divergence | None:
    """Return where a rank that ended early left the others, as far as it got.

    One that began late is let off: it warms up where the others have done so.
    """
    begin = max(float(other.steps[0]) for other in together.values())
    end = float(course.steps[-1])
    if course.steps[0] > begin + policy.LASTING_SHARE * course.span or end <= begin:
        return None
    steps = np.linspace(max(begin, float(course.steps[0])), end, POINTS)
    risen = np.array([_risen(steps, other) for other in together.values()])
    own = _risen(steps, course)
    most = max(float(risen[:, -1].max()), float(own[-1]))
    found = _divergence(rank, steps, own - np.median(risen, axis=0), most)
    if found is None or (steps >= found.step).sum() < policy.LASTING_SHARE * POINTS:
        return None
    if len(together) == 1 and found.size < 0:
        found = replace(found, rank=next(iter(together)), size=-found.size)
    return replace(found, ended=end)


def _risen(steps: FloatArray, course: RankSeries) -> FloatArray:
    """Return the rise of memory at each step since the first."""
    memory = np.interp(steps, course.steps, course.memory)
    return np.asarray(memory - memory[0], dtype=np.float64)


def _away(risen: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> FloatArray:
    """Return the distance of each rank from the median of the others."""
    ordered = np.sort(risen, axis=0)
    count, middle = len(risen), (len(risen) - 1) // 2
    # Without one of them the median is one of the three in the middle, or between two of them.
    place = np.argsort(np.argsort(risen, axis=0, kind="stable"), axis=0, kind="stable")
    others = np.where(place <= middle, ordered[middle + 1], ordered[middle])
    if count % 2:
        low = np.where(place <= middle - 1, ordered[middle], ordered[middle - 1])
        others = (low + others) / 2
    return np.asarray(risen - others, dtype=np.float64)


def _divergence(rank: int, steps: FloatArray, away: FloatArray, most: float) -> _Divergence | None:
    """Return where a rank left the others for good, by its distance from them at some steps and by
    the most that any has risen.
    """
    least = max(policy.GROWTH_BYTES, policy.LITTLE_SHARE * most)
    near = np.flatnonzero(np.abs(away) < least)
    left = int(near[-1]) + 1 if len(near) else 0
    if left == len(away):
        return None
    begun = _divergence_begin(steps, away, left)
    return _Divergence(float(steps[left]), begun, rank, int(away[-1]))


def _divergence_begin(steps: FloatArray, away: FloatArray, left: int) -> float:
    """Return the step at which a rank began to go away that at ``left`` was away for good.

    It is where a level that bends into a slope comes closest to the distance up to then: a distance
    that is there from the warm-up on is level, and no single reading decides.
    """
    until, place = away[: left + 1], np.arange(left + 1)
    if left < 2:
        return float(steps[0])
    slopes = np.maximum(0, place[None, :] - place[:-1, None]).astype(np.float64)
    slopes -= slopes.mean(axis=1, keepdims=True)
    explained = (slopes @ (until - until.mean())) ** 2 / (slopes**2).sum(axis=1)
    return float(steps[int(np.argmax(explained))])


COLOURS = 6
"""Of a chart."""


def shown_rank_series(courses: Mapping[int, RankSeries], odd: int | None) -> list[RankCourse]:
    """Return the courses that a chart shows, that of the rank that differs first before others."""
    if len(courses) < 2:
        return []
    are_few = len(courses) <= COLOURS
    highest = max(courses, key=lambda rank: float(courses[rank].memory[-1]))
    first = [odd] if odd in courses and odd is not None else []
    ranks = dict.fromkeys([*first, *(sorted(courses) if are_few else [highest])])
    shown = [_to_course(f"rank {n}", courses[n].steps, courses[n].memory) for n in ranks]
    return shown if are_few else [*shown, *_middle(courses)]


def _to_course(label: str, steps: FloatArray, memory: FloatArray) -> RankCourse:
    points = zip(steps.tolist(), memory.tolist(), strict=True)
    return RankCourse(label=label, points=list(points))


def _middle(courses: Mapping[int, RankSeries]) -> list[RankCourse]:
    """Return the tenth from above, the median and the tenth from below of all ranks by step."""
    every = courses.values()
    begin, end = min(c.steps[0] for c in every), max(c.steps[-1] for c in every)
    steps = np.linspace(float(begin), float(end), POINTS)
    memory = np.array(
        [np.interp(steps, c.steps, c.memory, left=np.nan, right=np.nan) for c in every]
    )
    # Where few have readings the middle would be that of others than before.
    known = np.isfinite(memory).mean(axis=0) >= policy.MAIN_SHARE
    if not known.any():
        return []
    labels = {90: "nine tenths below", 50: "half below", 10: "a tenth below"}
    return [
        _to_course(label, steps[known], np.nanpercentile(memory[:, known], share, axis=0))
        for share, label in labels.items()
    ]


def with_beginnings(rows: Sequence[RankMemory]) -> list[RankMemory]:
    """Return the rows with how much later than the first rank each began its work."""
    first = min((row.began for row in rows if row.began > 0), default=0.0)
    late = [row.began - first for row in rows]
    return [
        msgspec.structs.replace(row, late_s=round(s, 1) if s > policy.ENDING_S else 0.0)
        for row, s in zip(rows, late, strict=True)
    ]
