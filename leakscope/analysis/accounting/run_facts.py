"""What the run was and did, what went wrong with measuring, and what measuring has cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leakscope.analysis.columns.units import epochs, epochs_are_visible, is_training, steps_done
from leakscope.analysis.processes.endings import how_all_ended
from leakscope.analysis.run_context import RunContext
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, CensusScope
from leakscope.model.record import OverheadRecord
from leakscope.model.report import (
    CensusCoverage,
    Gauged,
    Overhead,
    Problem,
    ProblemKind,
    RunFacts,
    Taken,
    Work,
)
from leakscope.model.run import Damage, Recording, Run

LONGEST_MESSAGE = 2000
"""Characters; what is longer was written to fill the report."""
MOST_TAKEN = 1000
"""Censuses that a report lists one by one."""


def find_facts(run: Run, recording: Recording) -> RunFacts:
    """Return which run a report is about."""
    manifest, ending = run.manifest, how_all_ended(run, recording)
    return RunFacts(
        run_id=manifest.run_id,
        path=run.path.name,
        script=manifest.script,
        command=list(manifest.command),
        created=manifest.created,
        environment=dict(manifest.environment),
        ended=ending.text,
        ending=ending.clause,
        ended_regularly=ending.is_regular,
        goes_on=ending.goes_on,
        limit_bytes=manifest.memory_limit or manifest.memory_total,
        leakscope_version=manifest.leakscope_version,
    )


def find_work(run: Run, case: RunContext) -> Work:
    """Return what the run did."""
    track = case.track
    announced = any(b.kind is BoundaryKind.EPOCH_END for b in track.boundaries)
    trained = sum(track.begun(p) for p in track.phases if p == "train")
    seen = trained if epochs_are_visible(track.boundaries) else 0
    validations = [track.begun(p) for p in track.phases if p.partition(":")[0] == "validation"]
    end = case.recording.end
    times = track.time_s
    return Work(
        duration_s=max(float(times[-1]) if len(times) else 0.0, end.time_s if end else 0.0),
        steps=steps_done(track),
        epochs=int(epochs(track).total) if announced else seen,
        validations=max(validations, default=0),
        batches={p: _batches(case, p) for p in track.phases},
        processes=max(len(run.recordings) + run.unread, 1),
    )


def _batches(case: RunContext, phase: str) -> int:
    track = case.track
    mine = track.phase == track.phase_code(phase)
    most: dict[int, int] = {}  # a damaged recording may have any number of an occurrence
    numbers = zip(track.occurrence[mine].tolist(), track.batch[mine].tolist(), strict=True)
    for occurrence, batch in numbers:
        most[occurrence] = max(most.get(occurrence, 0), batch)
    steps = steps_done(track) if is_training(phase) else 0
    return max(sum(most.values()), steps)


def find_problems(run: Run) -> list[Problem]:
    """Return what went wrong with measuring, recording or reading."""
    of_recordings = [problem for r in run.recordings for problem in problems_of(r)]
    return [*of_recordings, *map(_of_damage, run.damage)]


def problems_of(recording: Recording) -> list[Problem]:
    """Return what went wrong with one recording."""
    problems = [
        Problem(
            where=e.where[:LONGEST_MESSAGE],
            message=e.message[:LONGEST_MESSAGE] + (" (switched off)" if e.disabled else ""),
            # An exception is recorded as ``Type: message (file:line)``.
            kind=ProblemKind.OWN_SHORTAGE
            if e.message.partition(" (")[0].partition(":")[0] == MemoryError.__name__
            else ProblemKind.OTHER,
        )
        for e in recording.errors
    ]
    return problems + [_of_damage(damage) for damage in recording.damage]


def _of_damage(damage: Damage) -> Problem:
    where = f"{damage.file}@{damage.offset}" if damage.offset else damage.file
    kind = ProblemKind.GAP if damage.is_gap else ProblemKind.OTHER
    return Problem(where=where, message=damage.reason[:LONGEST_MESSAGE], kind=kind)


def find_overhead(case: RunContext) -> Overhead:
    """Return time and memory spent on measuring, zeros where nothing was recorded."""
    record = case.recording.overhead
    pauses = [c.pause_s for c in case.table.censuses]
    own = case.track.gauge(gauge.OWN)
    peak = max([record.own_peak_bytes if record else 0, *[v for v in own.tolist() if v == v]])
    seconds = dict(record.seconds) if record else {"census": sum(pauses)}
    times = case.track.time_s
    ended = case.recording.end.time_s if case.recording.end else 0.0
    wall = max(float(times[-1]) if len(times) else 0.0, ended)
    milliseconds = _number(case, "max_pause")
    return Overhead(
        wall_share=sum(seconds.values()) / wall if wall > 0 else 0.0,
        peak_bytes=int(peak),
        seconds=seconds,
        censuses=record.censuses if record else len(pauses),
        boundaries=record.boundaries if record else len(case.track),
        recorded_boundaries=record.recorded_boundaries if record else len(case.track),
        longest_pause_s=max(pauses, default=0.0),
        longest_pause=_longest(case.table.censuses),
        max_pause_s=None if milliseconds is None else milliseconds / 1000,
        census_coverage=coverage(case.table.censuses, record),
        budget=_number(case, "budget"),
        walker=case.table.censuses[-1].walker if case.table.censuses else "",
        put_off=dict(record.put_off) if record else {},
        taken=_taken(case),
        gauged=_gauged(case),
    )


def coverage(censuses: Sequence[Census], record: OverheadRecord | None) -> CensusCoverage:
    """Return how much of the heap censuses have seen."""
    drifts = [census.drift_bytes for census in censuses if census.drift_bytes is not None]
    differences = [abs(size) for drift in drifts for size in drift.values()]
    return CensusCoverage(
        taken=len(censuses),
        full=sum(census.scope is CensusScope.FULL for census in censuses),
        whole=sum(census.whole for census in censuses),
        weighed=sum(
            census.scope is not CensusScope.FULL and census.elsewhere_bytes is not None
            for census in censuses
        ),
        postponed_by_budget=record.postponed_by_budget if record else 0,
        left_out_by_pause=record.left_out_by_pause if record else 0,
        made_cheaper_by_pause=record.made_cheaper_by_pause if record else 0,
        checked=len(drifts),
        largest_drift_bytes=max(differences, default=0) if drifts else None,
    )


def _longest(censuses: Sequence[Census]) -> str:
    longest = max(censuses, key=lambda census: census.pause_s, default=None)
    if longest is None:
        return ""
    return "whole" if longest.whole else longest.scope.value


def _taken(case: RunContext) -> list[Taken]:
    at = case.table.at.tolist()
    found = [
        _to_taken(case.track.boundaries[i], census, census.pause_s)
        for i, census in zip(at, case.table.censuses, strict=True)
    ]
    found += [
        _to_taken(s.boundary, s.census, s.seconds or s.census.pause_s, requested=True)
        for s in case.recording.snapshots
        if s.census is not None
    ]
    longest = sorted(found, key=lambda taken: -taken.pause_s)[:MOST_TAKEN]
    return sorted(longest, key=lambda taken: (taken.time_s, taken.boundary))


def _to_taken(
    boundary: Boundary, census: Census, pause_s: float, *, requested: bool = False
) -> Taken:
    return Taken(
        time_s=boundary.time_s,
        boundary=boundary.index,
        phase=boundary.phase,
        step=boundary.step,
        scope=census.scope.value,
        whole=census.whole,
        objects=census.objects,
        rows=len(census.rows),
        pause_s=pause_s,
        requested=requested,
    )


def _gauged(case: RunContext) -> list[Gauged]:
    found = []
    for name in case.track.gauge_names:
        values = case.track.gauge(name)[case.track.known(name)]
        if not len(values):
            continue
        unit, meaning = gauge.describe(name)
        place = gauge.place_of_loop(name)
        where = case.sources.location(*place) if place else ""
        found.append(
            Gauged(
                metric=f"{gauge.LOOP} {where}" if where else name,
                unit=unit,
                meaning=meaning,
                readings=len(values),
                lowest=float(np.min(values)),
                highest=float(np.max(values)),
                last=float(values[-1]),
            )
        )
    return sorted(found, key=lambda gauged: (-gauged.readings, gauged.metric))


def _number(case: RunContext, option: str) -> float | None:
    value = case.run.manifest.options.get(option)
    return float(value) if isinstance(value, int | float) else None
