"""How the program ended: by itself, by an exception, by a signal, or for want of memory."""

from __future__ import annotations

import re
import signal

from leakscope.model import gauge
from leakscope.model.printable import clipped
from leakscope.model.run import Recording, Run
from leakscope.model.sizes import human_bytes

STILL_RUNNING = "still running"
WATCHED_ENDED = "ended"
"""What a process that was watched from outside did: how is its parent's to know."""
EXCEPTION, KILLED, WORKER_KILLED = "exception", "killed", "worker_killed"
OOM_KILLED = "killed by the kernel's out-of-memory killer"
NEARLY_ALL = 0.9
"""From this part of the limit on, memory is worth a word where nobody knows who killed a run."""
LONGEST = 160
"""Characters of an exception's message in a sentence."""
BESIDE = "; rank "
"""Between what became of other ranks and how the first one ended."""
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
    """Return by which cause memory ended the run; None if it didn't, as far as is known."""
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
    if not run.recordings or recording is run.main or header.worker is not None:
        return run.outcome
    return run.outcomes.get((header.attempt, header.rank), {})


def how_it_ended(run: Run, recording: Recording) -> str:
    """Return how the program ended, in words."""
    outcome, end = outcome_of(run, recording), recording.end
    if outcome.get("oom_killed"):
        return OOM_KILLED
    if end is not None and end.status == "exception":
        return f"exception: {end.exception}" if end.exception else "exception"
    if end is not None:
        return f"exit code {end.exit_code}" if end.status == "exit" else end.status
    stood = _stood(run, recording) if is_nearly_full(run, recording) else ""
    stood = f"; memory stood at {stood}" if stood else ""
    if outcome.get("signal") == signal.SIGKILL:
        return f"killed by SIGKILL{stood}"
    if outcome.get("signal"):
        return f"killed by signal {outcome['signal']}"
    if "exit_code" in outcome:
        return f"ended with exit code {outcome['exit_code']} (no closing record)"
    if recording.goes_on:
        return STILL_RUNNING
    if recording.goes_on is None:
        return f"killed, or still running on {recording.header.host} (no closing record){stood}"
    return f"killed (no closing record){stood}"


def in_a_sentence(ended: str) -> str:
    """Return ``the program ended by ValueError: no such batch``; empty where it just ended.

    Args:
        ended: What :func:`how_it_ended` says, or what :func:`killed.how_all_ended` does.

    """
    if ended.startswith("rank ") and BESIDE in ended:
        killed, _, own = ended.partition(BESIDE)
        rank, _, how = own.partition(": ")
        told = re.sub("^the (program|run)", f"rank {rank}", in_a_sentence(how))
        return f"{killed}; then {told}" if told else killed
    ended = clipped(_in_brief(ended), LONGEST)
    if ended.startswith(f"{EXCEPTION}: "):
        return f"the program ended by {ended.removeprefix(f'{EXCEPTION}: ')}"
    if ended == EXCEPTION:
        return "the program ended by an exception"
    if ended.startswith("exit code ") and ended != "exit code 0":
        return f"the program ended with {ended}"
    if ended.startswith("ended with exit code "):
        return f"the program {ended}"
    if ended == "interrupted":
        return "the program was interrupted"
    return f"the run was {ended}" if ended.startswith(KILLED) else ""


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
    """Return whether the program was killed, or vanished, and nobody knows by whom."""
    outcome = outcome_of(run, recording)
    if recording.end is not None or recording.goes_on or outcome.get("oom_killed"):
        return False
    return outcome.get("signal", signal.SIGKILL if not outcome else 0) == signal.SIGKILL


def is_nearly_full(run: Run, recording: Recording) -> bool:
    """Return whether memory was nearly used up when it was last measured."""
    stood = memory_at_the_end(run, recording)
    return stood is not None and stood[0] >= NEARLY_ALL * stood[1]


def memory_at_the_end(run: Run, recording: Recording) -> tuple[int, int] | None:
    """Return memory in use and its limit when last measured: of the control group or machine."""
    latest = [measurement.gauges for measurement in reversed(recording.measurements)]
    grouped = (g for g in latest if gauge.CGROUP_LIMIT in g and gauge.CGROUP_USED in g)
    group = next(grouped, None)
    if group is not None:
        return group[gauge.CGROUP_USED], group[gauge.CGROUP_LIMIT]
    total = run.manifest.memory_total
    available = next((g for g in latest if gauge.SYSTEM_AVAILABLE in g), None)
    if available is None or not total:
        return None
    return total - available[gauge.SYSTEM_AVAILABLE], total


def _stood(run: Run, recording: Recording) -> str:
    stood = memory_at_the_end(run, recording)
    return "" if stood is None else f"{human_bytes(stood[0])} of {human_bytes(stood[1])}"
