"""What the run was and did: facts, work, and what went wrong with measuring."""

from __future__ import annotations

from leakscope.analysis.case import Case
from leakscope.analysis.killed import how_all_ended
from leakscope.analysis.units import epochs, is_training, steps_done, tells_epochs
from leakscope.model.boundary import BoundaryKind
from leakscope.model.report import Problem, RunFacts, Work
from leakscope.model.run import Damage, Recording, Run


def find_facts(run: Run, recording: Recording) -> RunFacts:
    """Return which run a report is about."""
    manifest = run.manifest
    return RunFacts(
        run_id=manifest.run_id,
        path=run.path.name,
        script=manifest.script,
        command=list(manifest.command),
        created=manifest.created,
        environment=dict(manifest.environment),
        ended=how_all_ended(run, recording),
        limit_bytes=manifest.memory_limit or manifest.memory_total,
        leakscope_version=manifest.leakscope_version,
    )


def find_work(run: Run, case: Case) -> Work:
    """Return what the run did."""
    track = case.track
    announced = any(b.kind is BoundaryKind.EPOCH_END for b in track.boundaries)
    trained = sum(track.begun(p) for p in track.phases if p == "train")
    seen = trained if tells_epochs(track.boundaries) else 0
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


def _batches(case: Case, phase: str) -> int:
    track = case.track
    mine = track.phase == track.phase_code(phase)
    most: dict[int, int] = {}
    numbers = zip(track.occurrence[mine].tolist(), track.batch[mine].tolist(), strict=True)
    for occurrence, batch in numbers:
        most[occurrence] = max(most.get(occurrence, 0), batch)
    steps = steps_done(track) if is_training(phase) else 0
    return max(sum(most.values()), steps)


LONGEST_MESSAGE = 2000
"""Characters; what is longer was written to fill the report."""


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
        )
        for e in recording.errors
    ]
    return problems + [_of_damage(damage) for damage in recording.damage]


def _of_damage(damage: Damage) -> Problem:
    where = f"{damage.file}@{damage.offset}" if damage.offset else damage.file
    return Problem(where=where, message=damage.reason[:LONGEST_MESSAGE])
