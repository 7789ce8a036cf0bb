"""Ranks that train together: culprits with the rate of each rank, and the rank that differs first.

Every rank is judged by its own recording, as if it had trained alone; what ranks have in common is
matched by signature. Nothing was exchanged between them while they trained.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from leakscope.analysis.alone import judge_alone
from leakscope.analysis.case import Case
from leakscope.analysis.culprits import ORDER
from leakscope.analysis.ending import how_it_ended
from leakscope.analysis.series import FloatArray
from leakscope.analysis.severity import MIB
from leakscope.analysis.wording import listed
from leakscope.model.rank import OddRank, RankMemory
from leakscope.model.report import Culprit, Severity
from leakscope.model.run import Recording, Run
from leakscope.model.sizes import human_bytes

DIFFERS_BYTES = 32 * MIB
DIFFERS_SHARE = 0.1
"""Another course than the others' is one that leads away from theirs by so much, of what they have
gained at most too: ranks get other batches."""
POINTS = 200
"""Steps at which the courses of ranks are compared."""
SPREAD = 0.1
"""Rates that differ by less than this part are alike."""


@dataclass(frozen=True)
class Ranks:
    """A report's culprits with the rates of all ranks, a row per rank, and the odd one out."""

    culprits: list[Culprit]
    rows: list[RankMemory]
    odd: OddRank | None = None


@dataclass(frozen=True)
class _Judged:
    recording: Recording
    case: Case
    culprits: list[Culprit]

    @property
    def rank(self) -> int:
        return self.recording.header.rank


def conclude_ranks(case: Case, culprits: list[Culprit]) -> Ranks:
    """Return what the ranks of a run add to what was concluded of the first one."""
    own = case.recording.header
    others = [r for r in _of_ranks(case.run) if r.header.rank != own.rank]
    if not others or own.world_size < 2:
        return Ranks(culprits, [])
    judged = [_Judged(case.recording, case, culprits)]
    judged += [_judge(case.run, recording) for recording in others]
    judged.sort(key=lambda one: one.rank)
    return Ranks(_merged(judged, culprits), [_row(one) for one in judged], odd_one_out(judged))


def _of_ranks(run: Run) -> list[Recording]:
    """Return the recordings of ranks that measured something, one for each rank: the longest."""
    longest: dict[int, Recording] = {}
    for recording in run.recordings:
        header = recording.header
        if header.worker is None and header.world_size > 1 and recording.measurements:
            known = longest.setdefault(header.rank, recording)
            if len(recording.measurements) > len(known.measurements):
                longest[header.rank] = recording
    return [longest[rank] for rank in sorted(longest)]


def _judge(run: Run, recording: Recording) -> _Judged:
    case, _, culprits = judge_alone(run, recording)
    return _Judged(recording, case, culprits)


def _merged(judged: list[_Judged], own: list[Culprit]) -> list[Culprit]:
    """Return the first rank's culprits and those it doesn't have, with the rate of each rank."""
    rates: dict[str, dict[int, float]] = {}
    first: dict[str, Culprit] = {culprit.signature: culprit for culprit in own}
    for one in judged:
        for culprit in one.culprits:
            rates.setdefault(culprit.signature, {})[one.rank] = culprit.bytes_per_unit
            first.setdefault(culprit.signature, culprit)
    ranks = [one.rank for one in judged]
    merged = [_with_rates(culprit, rates[key], ranks) for key, culprit in first.items()]
    known = {culprit.signature: place for place, culprit in enumerate(own)}
    merged.sort(key=lambda c: (ORDER[c.severity], known.get(c.signature, len(own)), -c.total_bytes))
    return [msgspec.structs.replace(c, rank=n) for n, c in enumerate(merged, 1)]


def _with_rates(culprit: Culprit, rates: dict[int, float], ranks: list[int]) -> Culprit:
    sentence = f"{culprit.sentence} {_spread(rates, ranks, culprit.unit)}"
    by_rank = {str(rank): rate for rank, rate in sorted(rates.items())}
    return msgspec.structs.replace(culprit, rates_by_rank=by_rank, sentence=sentence)


def _spread(rates: dict[int, float], ranks: list[int], unit: str) -> str:
    """Return in which ranks something grows, and how far their rates lie apart."""
    if len(rates) < len(ranks):
        names = listed([str(rank) for rank in sorted(rates)])
        return f"It grows in rank{'s' * (len(rates) > 1)} {names} of {len(ranks)} only."
    low, high = min(rates.values()), max(rates.values())
    if high - low <= SPREAD * high:
        return f"It grows alike in all {len(ranks)} ranks."
    most = max(rates, key=lambda rank: rates[rank])
    return (
        f"It grows in all {len(ranks)} ranks, by {human_bytes(low)} to {human_bytes(high)} per "
        f"{unit}; most in rank {most}."
    )


def _row(one: _Judged) -> RankMemory:
    case, header = one.case, one.recording.header
    readings = case.track.gauge(case.host_metric)
    known = readings[np.isfinite(readings)]
    trend = case.gauge_trend(case.host_metric)
    # Who ended the process that was started is known; of another rank only what it says itself.
    run = case.run if one.recording is case.run.main else _without_outcome(case.run)
    return RankMemory(
        rank=one.rank,
        host=header.host,
        pid=header.pid,
        steps=int(case.track.step.max()) if len(case.track) else 0,
        first_bytes=int(known[0]) if len(known) else None,
        peak_bytes=int(known.max()) if len(known) else None,
        last_bytes=int(known[-1]) if len(known) else None,
        bytes_per_unit=trend.bytes_per_unit,
        unit=trend.unit,
        grows=[c.name for c in one.culprits if c.severity is not Severity.NOTE],
        ended=how_it_ended(run, one.recording),
    )


def _without_outcome(run: Run) -> Run:
    """Return the run without what its supervisor saw, which is about the first rank alone."""
    return Run(run.path, run.manifest, run.recordings, run.damage)


def odd_one_out(judged: list[_Judged]) -> OddRank | None:
    """Return the rank that was the first to leave the others' course for good, if one did."""
    courses = {one.rank: course for one in judged if (course := _course(one.case)) is not None}
    if len(courses) < 2:
        return None
    begin = max(float(x[0]) for x, _ in courses.values())
    end = min(float(x[-1]) for x, _ in courses.values())
    if end <= begin:
        return None
    steps = np.linspace(begin, end, POINTS)
    risen = {rank: _at(steps, *course) for rank, course in courses.items()}
    found = [
        (float(steps[left]), rank, int(away[-1]))
        for rank in risen
        if (left := _left_at(away := _away(rank, risen), risen)) is not None
    ]
    if not found:
        return None
    # Of two ranks each is away from the other: the one that has more is the odd one.
    step, rank, size = min(found, key=lambda one: (one[0], -one[2]))
    word = "more" if size > 0 else "less"
    sentence = (
        f"Rank {rank} is the first that differs: from about step {step:,.0f} on its memory leaves "
        f"the others' course, and at the end it has {human_bytes(abs(size))} {word} than they."
    )
    return OddRank(rank=rank, step=round(step), bytes=size, sentence=sentence)


def _course(case: Case) -> tuple[FloatArray, FloatArray] | None:
    """Return steps and memory, one reading a step, while the rank was at work."""
    readings = case.track.gauge(case.host_metric)[: case.track.last_work + 1]
    known = np.isfinite(readings) & (case.track.step[: len(readings)] > 0)
    steps, first = np.unique(case.track.step[: len(readings)][known], return_index=True)
    return (steps.astype(np.float64), readings[known][first]) if len(steps) > 1 else None


def _at(steps: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    """Return by how much memory has risen at each step since the first."""
    risen = np.interp(steps, x, y)
    return np.asarray(risen - risen[0], dtype=np.float64)


def _away(rank: int, risen: dict[int, FloatArray]) -> FloatArray:
    others = [course for other, course in risen.items() if other != rank]
    return np.asarray(risen[rank] - np.median(others, axis=0), dtype=np.float64)


def _left_at(away: FloatArray, risen: dict[int, FloatArray]) -> int | None:
    """Return the point from which on a rank is away from the others to the end."""
    gained = max(float(course[-1]) for course in risen.values())
    least = max(DIFFERS_BYTES, DIFFERS_SHARE * gained)
    near = np.flatnonzero(np.abs(away) < least)
    start = int(near[-1]) + 1 if len(near) else 0
    return start if start < len(away) else None
