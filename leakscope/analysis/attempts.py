"""Attempts: a launcher that restarts all ranks when one dies makes several runs of one.

Each attempt is processes of its own, whose memory begins anew: their recordings are told apart and
never joined. The one that got furthest is judged, the others are told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from leakscope.analysis.ending import how_it_ended, outcome_of
from leakscope.model.rank import Attempt
from leakscope.model.record import HeaderRecord
from leakscope.model.run import ASKED_TO_END, Recording, Run
from leakscope.model.sizes import plural

COMPLETED = "completed"


@dataclass(frozen=True)
class Attempts:
    """The attempts of a run, each a run of its own, in the order in which they began."""

    runs: list[Run]
    judged: int
    """Which of them tells most."""

    @property
    def run(self) -> Run:
        """The attempt that is judged."""
        return self.runs[self.judged]

    @property
    def latest(self) -> Run:
        """The attempt that began last."""
        return self.runs[-1]

    def told(self) -> list[Attempt]:
        """Return the attempts as a report tells of them; none where there was one alone."""
        if len(self.runs) < 2:
            return []
        begun = [_began(run) for run in self.runs]
        return [
            Attempt(
                number=number,
                ranks=run.main.header.world_size,
                steps=_steps(run),
                began_s=round(began - begun[0], 1),
                duration_s=round(_ended(run) - began, 1),
                ended=_how_it_ended(run),
                is_judged=number - 1 == self.judged,
            )
            for number, (run, began) in enumerate(zip(self.runs, begun, strict=True), 1)
        ]

    def note(self) -> str:
        """Return in a sentence that there was more than one attempt; empty where there wasn't."""
        told = self.told()
        if not told:
            return ""
        others = "; ".join(
            f"attempt {one.number} made {plural(one.steps, 'step')} ({one.ended})"
            for one in told
            if not one.is_judged
        )
        return (
            f"The launcher started the training {len(told)} times. This report is about attempt "
            f"{self.judged + 1}, which got furthest: {plural(_steps(self.run), 'step')}. Apart "
            f"from it, {others}. Each attempt began with new processes."
        )


def find_attempts(run: Run) -> Attempts:
    """Return the attempts among the recordings of a run."""
    headers = [recording.header for recording in run.recordings]
    groups = group_attempts(headers)
    if len(groups) < 2:
        return Attempts([run], 0)
    runs = [_run_of(run, [run.recordings[place] for place in group]) for group in groups]
    _give_outcome(run, runs)
    steps = [_steps(one) for one in runs]
    furthest = max(range(len(runs)), key=lambda place: (steps[place], place))
    return Attempts(runs, furthest)


def group_attempts(headers: list[HeaderRecord]) -> list[list[int]]:
    """Return the places of headers, attempt by attempt, in the order in which they began.

    Where machines join or leave, a launcher starts all ranks anew and counts no restart: the number
    of ranks is another one then, or a rank appears again.
    """
    counted: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, header in enumerate(headers):
        if header.worker is None:
            counted[header.attempt, header.world_size].append(place)
    rounds = [one for places in counted.values() for one in _rounds(headers, places)]
    rounds.sort(key=lambda places: min(headers[place].started for place in places))
    for place, header in enumerate(headers):
        if header.worker is not None and rounds:
            _round_of(header, headers, rounds).append(place)
    return rounds or [list(range(len(headers)))]


def _round_of(
    worker: HeaderRecord, headers: list[HeaderRecord], rounds: list[list[int]]
) -> list[int]:
    """Return the attempt that a worker is of: its parent's, else the last that had begun."""
    parent = (worker.host, worker.parent)
    for places in reversed(rounds):
        members = [headers[place] for place in places if headers[place].worker is None]
        if any((header.host, header.pid) == parent for header in members):
            return places
    begun = [r for r in rounds if min(headers[p].started for p in r) <= worker.started]
    return begun[-1] if begun else rounds[0]


def _rounds(headers: list[HeaderRecord], places: list[int]) -> Iterator[list[int]]:
    """Yield the places of one count of restarts, anew where a rank appears again."""
    current: list[int] = []
    seen: set[int] = set()
    for place in sorted(places, key=lambda place: headers[place].started):
        header = headers[place]
        is_rank = header.worker is None and header.world_size > 1
        if is_rank and header.rank in seen:
            yield current
            current, seen = [], set()
        current.append(place)
        seen |= {header.rank} if is_rank else set()
    if current:
        yield current


def _run_of(run: Run, recordings: list[Recording]) -> Run:
    recordings.sort(key=lambda r: (r.header.worker is not None, r.header.rank, r.header.started))
    return Run(
        run.path, run.manifest, recordings, run.damage, outcomes=run.outcomes, unread=run.unread
    )


def _give_outcome(run: Run, runs: list[Run]) -> None:
    """Give what the supervisor saw to the attempt that it saw, the last of its number."""
    number = run.outcome.get("attempt", 0)
    for one in reversed(runs):
        if one.main.header.attempt == number:
            one.outcome = run.outcome
            return


def _steps(run: Run) -> int:
    return max((m.boundary.step for r in run.recordings for m in r.measurements[-3:]), default=0)


def _began(run: Run) -> float:
    return min(recording.header.started for recording in run.recordings)


def _ended(run: Run) -> float:
    return max(_last_moment(recording) for recording in run.recordings)


def _last_moment(recording: Recording) -> float:
    last = recording.measurements[-1].boundary.time_s if recording.measurements else 0.0
    return recording.header.started + max(last, recording.end.time_s if recording.end else 0.0)


def _is_told(run: Run, recording: Recording) -> bool:
    """Return whether a rank ended for a reason of its own that is known.

    One without any, where supervisors tell of kills, was asked to end: by the launcher, because of
    another rank.
    """
    outcome = outcome_of(run, recording)
    asked = outcome.get("signal") in ASKED_TO_END
    return recording.end is not None or (bool(outcome) and not asked)


def _how_it_ended(run: Run) -> str:
    """Return how the first rank ended that didn't complete."""
    ranks = [recording for recording in run.recordings if recording.header.worker is None]
    failed = [r for r in ranks if r.end is None or r.end.status != COMPLETED]
    if not failed:
        return COMPLETED
    is_supervised = bool(run.outcome or run.outcomes)
    first = min(failed, key=lambda r: (is_supervised and not _is_told(run, r), _last_moment(r)))
    how = how_it_ended(run, first)
    return f"rank {first.header.rank} first: {how}" if first.header.world_size > 1 else how
