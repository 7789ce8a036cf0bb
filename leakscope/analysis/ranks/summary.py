"""What a report keeps of one rank: small, so that those of thousands of ranks fit into memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np

from leakscope.analysis.alone import judge_alone
from leakscope.analysis.case import Case
from leakscope.analysis.ending import how_it_ended
from leakscope.analysis.facts import problems_of
from leakscope.analysis.known import Catalogue
from leakscope.analysis.ranks.courses import Course, course_of
from leakscope.model.boundary import BoundaryKind
from leakscope.model.rank import RankMemory
from leakscope.model.report import Culprit, Problem, Severity
from leakscope.model.run import Recording, Run

POINTS_OF_CHART = 60
MOST_CULPRITS = 40
MOST_PROBLEMS = 5
"""Of one rank."""


@dataclass(frozen=True)
class RankSummary:
    """What was concluded of one rank from its own recording."""

    row: RankMemory | None
    """None where nothing could be concluded."""
    culprits: list[Culprit] = field(default_factory=list)
    course: Course | None = None
    problems: list[Problem] = field(default_factory=list)


def summarise_rank(
    run: Run, recording: Recording, catalogue: Catalogue | None = None
) -> RankSummary:
    """Return what is concluded of a rank's recording, judged as if it had trained alone.

    Of ``run`` the manifest, the sources of the first process and what its supervisor saw are used.
    """
    if not recording.measurements:
        return RankSummary(None, problems=problems_of(recording)[:MOST_PROBLEMS])
    with np.errstate(all="ignore"):
        case, _, culprits = judge_alone(run, recording, catalogue)
        return summarise(case, culprits)


def summarise(case: Case, culprits: list[Culprit]) -> RankSummary:
    """Return what a report keeps of a rank that was judged already."""
    recording = case.recording
    elsewhere = all(recording is not one for one in case.run.recordings)
    return RankSummary(
        _row(case, culprits),
        [_small(culprit) for culprit in culprits[:MOST_CULPRITS]],
        course_of(case),
        problems_of(recording)[:MOST_PROBLEMS] if elsewhere else [],
    )


def _small(culprit: Culprit) -> Culprit:
    points = culprit.chart
    if len(points) <= POINTS_OF_CHART:
        return culprit
    places = np.linspace(0, len(points) - 1, POINTS_OF_CHART).round().astype(int)
    return msgspec.structs.replace(culprit, chart=[points[place] for place in places])


def _row(case: Case, culprits: list[Culprit]) -> RankMemory:
    header, track = case.recording.header, case.track
    readings = track.gauge(case.host_metric)
    known = readings[np.isfinite(readings)]
    trend = case.gauge_trend(case.host_metric)
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
        ended=how_it_ended(case.run, case.recording),
        began=header.started + _first_work(case),
    )


def _first_work(case: Case) -> float:
    """Return after how many seconds the first step or phase was measured."""
    begun = (b for b in case.track.boundaries if b.kind is not BoundaryKind.RUN_BEGIN)
    first = next(begun, None)
    return 0.0 if first is None else first.time_s
