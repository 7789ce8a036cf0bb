"""How processes ended (by themselves, an exception, a signal, for want of memory), and restarts.

A launcher that restarts all ranks when one dies makes several attempts of one run; their recordings
are kept apart and never joined.
"""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from leakscope.analysis.growth import policy
from leakscope.analysis.verdict.wording import listed
from leakscope.model import gauge
from leakscope.model.record import EndRecord, HeaderRecord
from leakscope.model.report import RankAttempt
from leakscope.model.run import REQUESTS_TO_END, Recording, Run
from leakscope.model.text import clipped, human_bytes, plural

WATCHED_NO_LONGER = "watched no longer"
"""What became of a watched process that outlived the watching."""
EXCEPTION, KILLED, WORKER_KILLED = "exception", "killed", "worker_killed"
OOM_KILLED = "killed by the kernel's out-of-memory killer"
LONGEST = 160
"""Characters of an exception's message in a sentence."""
_CAUGHT = re.compile(r"\bCaught \w+ in ")
"""How torch begins the message of an exception that was raised elsewhere: its traceback follows."""
_RAISED = re.compile(r"[A-Za-z_][\w.]*: ")
_WORKER = "is killed by signal: Killed"
"""What torch's DataLoader says of a worker that was killed."""

ENDINGS = frozenset(
    {"out_of_memory", "out_of_memory_survived", "killed_near_the_limit", "workers_died"}
)
"""Kinds of findings that say how a run or its workers ended, or nearly did: nothing in them
grows."""


def shortage_at_the_end(run: Run, recording: Recording) -> str | None:
    """Return how lack of memory ended the run; None if it didn't, as far as is known."""
    outcome, end = outcome_of(run, recording), recording.end
    if outcome.get("oom_killed"):
        return KILLED
    if end is None or end.status != "exception":
        return None
    if recording.shortages and recording.shortages[-1].seen == "exception":
        return EXCEPTION
    if outcome.get("oom_kills") and _WORKER in end.exception:
        return WORKER_KILLED
    return None


def outcome_of(run: Run, recording: Recording) -> dict[str, str | int]:
    """Return what a supervisor saw of a recording's process: that of the first rank sees its own
    alone, and a worker's is its program's.
    """
    header = recording.header
    if header.child is not None:
        return {}
    if not run.recordings or recording is run.main or header.worker is not None:
        return run.outcome
    return run.outcomes.get((header.attempt, header.rank), {})


@dataclass(frozen=True)
class Ending:
    """How a program ended."""

    text: str
    """``completed``, ``exit code 3``, ``killed (no closing record)``, …"""
    predicate: str = ""
    """``ended by ValueError: no such batch``, the rest of a sentence; empty where it just ended."""
    subject: str = "the program"
    before: str = ""
    """What became of other ranks before."""
    goes_on: bool = False

    @property
    def clause(self) -> str:
        """The ending as a main clause; empty where the program just ended."""
        own = f"{self.subject} {self.predicate}" if self.predicate else ""
        return f"{self.before}; then {own}" if self.before and own else self.before or own

    @property
    def is_regular(self) -> bool:
        """Whether the program ended by itself, as far as is known, and not in failure."""
        return not (self.clause or self.goes_on) and self.text != WATCHED_NO_LONGER


def how_it_ended(run: Run, recording: Recording) -> Ending:
    """Return how the program of a recording ended."""
    outcome, end = outcome_of(run, recording), recording.end
    if outcome.get("oom_killed"):
        return _killed(OOM_KILLED)
    if end is not None:
        return _closed(end)
    memory, at_end = "", memory_at_the_end(run, recording)
    if at_end is not None and is_nearly_full(run, recording):
        memory = f"; memory stood at {human_bytes(at_end[0])} of {human_bytes(at_end[1])}"
    if outcome.get("signal") == signal.SIGKILL:
        return _killed(f"killed by SIGKILL{memory}")
    if outcome.get("signal"):
        return _killed(f"killed by signal {outcome['signal']}")
    if "exit_code" in outcome:
        how = f"ended with exit code {outcome['exit_code']} (no closing record)"
        return Ending(how, how)
    if recording.goes_on:
        return Ending("still running", goes_on=True)
    if recording.goes_on is None:
        return _killed(
            f"killed, or still running on {recording.header.host} (no closing record){memory}"
        )
    return _killed(f"killed (no closing record){memory}")


def _closed(end: EndRecord) -> Ending:
    if end.status == "exception":
        if not end.exception:
            return Ending("exception", "ended by an exception")
        message = clipped(_in_brief(end.exception), LONGEST)
        return Ending(f"exception: {end.exception}", f"ended by {message}")
    if end.status == "exit":
        how = f"exit code {end.exit_code}"
        return Ending(how, f"ended with {how}" if end.exit_code else "")
    return Ending(end.status, "was interrupted" if end.status == "interrupted" else "")


def _killed(how: str) -> Ending:
    return Ending(how, f"was {how}", "the run")


def _in_brief(ended: str) -> str:
    """Return the first line of a message, and of a worker's traceback in it the last one too.

    The recording may have cut the traceback short.
    """
    lines = [line.strip() for line in ended.splitlines() if line.strip()]
    if len(lines) <= 1:
        return ended
    first, last = lines[0], lines[-1]
    is_whole = _CAUGHT.search(first) and _RAISED.match(last)
    return f"{first.removesuffix('.')}: {last}" if is_whole else first


def is_killed(run: Run, recording: Recording) -> bool:
    """Return whether the program was killed, or vanished, for an unknown reason."""
    outcome = outcome_of(run, recording)
    if recording.end is not None or recording.goes_on or outcome.get("oom_killed"):
        return False
    return outcome.get("signal", signal.SIGKILL if not outcome else 0) == signal.SIGKILL


def is_nearly_full(run: Run, recording: Recording) -> bool:
    """Return whether memory was nearly used up when it was last measured."""
    at_end = memory_at_the_end(run, recording)
    return at_end is not None and at_end[0] >= policy.PEAK_OF_LIMIT * at_end[1]


def memory_at_the_end(run: Run, recording: Recording) -> tuple[int, int] | None:
    """Return memory in use and its limit when last measured: of the control group or machine."""
    latest = [measurement.gauges for measurement in reversed(recording.measurements)]
    for g in latest:
        if gauge.CGROUP_LIMIT in g and gauge.CGROUP_USED in g:
            return g[gauge.CGROUP_USED], g[gauge.CGROUP_LIMIT]
    total = run.manifest.memory_total
    available = next((g for g in latest if gauge.SYSTEM_AVAILABLE in g), None)
    if available is None or not total:
        return None
    return total - available[gauge.SYSTEM_AVAILABLE], total


MOST_NAMED = 8


def how_all_ended(run: Run, recording: Recording) -> Ending:
    """Return how the program ended, other ranks that were killed before the first one's ending."""
    own, killed = how_it_ended(run, recording), killed_ranks(run)
    killed.pop(recording.header.rank, None)
    if not killed:
        return own
    rank, before = f"rank {recording.header.rank}", _list_killed(killed)
    return replace(own, text=f"{before}; {rank}: {own.text}", subject=rank, before=before)


def killed_notes(run: Run) -> tuple[str, ...]:
    """Return a sentence on the other ranks that a signal ended, if some were.

    Those that the kernel killed for memory are reported elsewhere.
    """
    killed = {rank: how for rank, how in killed_ranks(run).items() if how != OOM_KILLED}
    if not killed:
        return ()
    who = _list_killed(killed)
    return (f"{who[:1].upper()}{who[1:]}: what other ranks ended by may follow from that.",)


def killed_ranks(run: Run) -> dict[int, str]:
    """Return the ranks, the first one's aside, that a signal ended which nobody ends a program by,
    each with its name or with the kernel's reason.
    """
    if not run.recordings:
        return {}
    first = run.main.header
    return {
        rank: how
        for (attempt, rank), outcome in sorted(run.outcomes.items())
        if attempt == first.attempt and rank != first.rank
        if (how := OOM_KILLED if outcome.get("oom_killed") else _name(outcome.get("signal")))
    }


def named_ranks(ranks: list[int]) -> str:
    """Return ``rank 1, rank 2 and 5 more``."""
    left = len(ranks) - MOST_NAMED
    named = [f"rank {rank}" for rank in ranks[:MOST_NAMED]]
    return listed([*named, *([f"{left:,} more"] if left > 0 else [])])


def _list_killed(killed: dict[int, str]) -> str:
    starved = [rank for rank, how in killed.items() if how == OOM_KILLED]
    struck = [rank for rank in killed if rank not in starved]
    names = " and ".join(sorted({killed[rank] for rank in struck}))
    kinds = ((starved, OOM_KILLED), (struck, f"killed ({names})"))
    return listed(
        [
            f"{named_ranks(ranks)} {'was' if len(ranks) == 1 else 'were'} {how}"
            for ranks, how in kinds
            if ranks
        ]
    )


def _name(number: str | int | None) -> str:
    if not isinstance(number, int) or number in REQUESTS_TO_END:
        return ""
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


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

    def listed(self) -> list[RankAttempt]:
        """Return the attempts as a report tells of them; none where there was one alone."""
        if len(self.runs) < 2:
            return []
        begun = [min(recording.header.started for recording in run.recordings) for run in self.runs]
        return [
            RankAttempt(
                number=number,
                ranks=run.main.header.world_size,
                steps=_steps(run),
                began_s=round(began - begun[0], 1),
                duration_s=round(max(map(_last_moment, run.recordings)) - began, 1),
                ended=_how_it_ended(run),
                is_judged=number - 1 == self.judged,
            )
            for number, (run, began) in enumerate(zip(self.runs, begun, strict=True), 1)
        ]

    def note(self) -> str:
        """Return a sentence that there was more than one attempt; empty where there wasn't."""
        started = self.listed()
        if not started:
            return ""
        others = "; ".join(
            f"attempt {attempt.number} made {plural(attempt.steps, 'step')} ({attempt.ended})"
            for attempt in started
            if not attempt.is_judged
        )
        return (
            f"The launcher started the training {len(started)} times. This report is about attempt "
            f"{self.judged + 1}, which got furthest: {plural(_steps(self.run), 'step')}. Apart "
            f"from it, {others}. Each attempt began with new processes."
        )


def find_attempts(run: Run) -> Attempts:
    """Return the attempts among the recordings of a run."""
    headers = [recording.header for recording in run.recordings]
    groups = group_attempts(headers)
    if len(groups) < 2:
        return Attempts([run], 0)
    runs = []
    for group in groups:
        recordings = sorted((run.recordings[place] for place in group), key=_by_rank)
        runs.append(replace(run, recordings=recordings, outcome={}))
    number = run.outcome.get("attempt", 0)
    for attempt in reversed(runs):  # the supervisor saw the last of its number
        if attempt.main.header.attempt == number:
            attempt.outcome = run.outcome
            break
    steps = [_steps(attempt) for attempt in runs]
    furthest = max(range(len(runs)), key=lambda place: (steps[place], place))
    return Attempts(runs, furthest)


def group_attempts(headers: list[HeaderRecord]) -> list[list[int]]:
    """Return the places of headers, attempt by attempt, in the order in which they began.

    Where machines join or leave, a launcher restarts all ranks and counts no restart: the number
    of ranks is another one then, or a rank appears again.
    """
    counted: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, header in enumerate(headers):
        if header.is_primary:
            counted[header.attempt, header.world_size].append(place)
    rounds = [attempt for places in counted.values() for attempt in _rounds(headers, places)]
    rounds.sort(key=lambda places: min(headers[place].started for place in places))
    for place, header in enumerate(headers):
        if not header.is_primary and rounds:
            _round_of(header, headers, rounds).append(place)
    return rounds or [list(range(len(headers)))]


def _round_of(
    worker: HeaderRecord, headers: list[HeaderRecord], rounds: list[list[int]]
) -> list[int]:
    """Return the attempt that a worker is of: its parent's, else the last that had begun."""
    parent = (worker.host, worker.parent)
    for places in reversed(rounds):
        members = [headers[place] for place in places if headers[place].is_primary]
        if any((header.host, header.pid) == parent for header in members):
            return places
    begun = [r for r in rounds if min(headers[p].started for p in r) <= worker.started]
    return begun[-1] if begun else rounds[0]


def _rounds(headers: list[HeaderRecord], places: list[int]) -> Iterator[list[int]]:
    """Yield the places of one count of restarts; a new group begins where a rank appears again."""
    current: list[int] = []
    seen: set[int] = set()
    for place in sorted(places, key=lambda place: headers[place].started):
        header = headers[place]
        is_rank = header.is_primary and header.world_size > 1
        if is_rank and header.rank in seen:
            yield current
            current, seen = [], set()
        current.append(place)
        seen |= {header.rank} if is_rank else set()
    if current:
        yield current


def _by_rank(recording: Recording) -> tuple[bool, int, float]:
    header = recording.header
    return not header.is_primary, header.rank, header.started


def _steps(run: Run) -> int:
    return max((m.boundary.step for r in run.recordings for m in r.measurements[-3:]), default=0)


def _last_moment(recording: Recording) -> float:
    last = recording.measurements[-1].boundary.time_s if recording.measurements else 0.0
    return recording.header.started + max(last, recording.end.time_s if recording.end else 0.0)


def _has_known_reason(run: Run, recording: Recording) -> bool:
    """Return whether a rank ended for a reason of its own that is known.

    One without any, where supervisors tell of kills, was asked to end: by the launcher, because of
    another rank.
    """
    outcome = outcome_of(run, recording)
    was_requested = outcome.get("signal") in REQUESTS_TO_END
    return recording.end is not None or (bool(outcome) and not was_requested)


def _how_it_ended(run: Run) -> str:
    """Return how the first rank ended that didn't complete."""
    ranks = [recording for recording in run.recordings if recording.header.is_primary]
    failed = [r for r in ranks if r.end is None or r.end.status != COMPLETED]
    if not failed:
        return COMPLETED
    is_supervised = bool(run.outcome or run.outcomes)
    first = min(
        failed, key=lambda r: (is_supervised and not _has_known_reason(run, r), _last_moment(r))
    )
    how = how_it_ended(run, first).text
    return f"rank {first.header.rank} first: {how}" if first.header.world_size > 1 else how
