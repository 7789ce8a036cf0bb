"""Worker processes that died: how many, of what, and what they held then.

A worker that the kernel kills for memory, that crashes or that leaves with an exit code ends its
epoch with an exception; a program that goes on makes others, and a pool does so by itself. Memory
of the dead is gone: it counts as no growth.

May be confused with: workers that are told to end by their loader, pool or program, which are not
recorded.
"""

from __future__ import annotations

import signal
from collections import defaultdict

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.model import gauge
from leakscope.model.record import ProcessEndRecord
from leakscope.model.report import Finding, Remedy, Severity
from leakscope.model.run import Recording, Run
from leakscope.model.sizes import human_bytes, plural

REMEDIES = {
    "SIGKILL": Remedy(
        title="Look for what killed them",
        text=(
            "The kernel ends a process with SIGKILL when memory runs out: dmesg and memory.events "
            "of the control group tell. Fewer workers, a smaller prefetch_factor or smaller "
            "batches need less."
        ),
    ),
    "SIGBUS": Remedy(
        title="Give shared memory more room",
        text=(
            "A bus error in a worker mostly means that /dev/shm is full: containers get 64 MB "
            "unless they are started with --shm-size or --ipc=host."
        ),
    ),
    "SIGSEGV": Remedy(
        title="Find the crash",
        text=(
            "Native code crashed. PYTHONFAULTHANDLER=1 shows the line; libraries with threads or "
            "CUDA that were used before the fork are a common cause: try the start method 'spawn'."
        ),
    ),
}
OTHERWISE = Remedy(
    title="Find out why they ended",
    text=(
        "With num_workers=0, or the work of the pool done in the main process, the traceback is "
        "seen."
    ),
)


def find_died(case: Case) -> list[Finding]:
    """Return one finding of all processes that ended by themselves; empty without any."""
    ended = case.recording.process_ends
    if not ended:
        return []
    groups: dict[tuple[str, int], list[ProcessEndRecord]] = defaultdict(list)
    for end in ended:
        groups[_who(end), end.exit_code].append(end)
    worst = max(groups.values(), key=len)
    told = [_tell(case, who, ends) for (who, _), ends in groups.items()]
    is_killed = any(end.exit_code < 0 for end in ended)
    return [
        finding(
            "workers_died",
            f"{plural(len(ended), 'process')} died",
            f"{'; '.join(told)}. {_held(case, ended)}{_killed_for_memory(case.run)}What they "
            "held ended with them and counts as no growth.",
            REMEDIES.get(_signal(worst[0].exit_code), OTHERWISE),
            severity=Severity.WARNING if is_killed else Severity.NOTE,
            subject=",".join(sorted({who for who, _ in groups})),
            growth="constant",
        )
    ]


def _who(end: ProcessEndRecord) -> str:
    return f"worker of loader {end.loader}" if end.loader else end.name or "child process"


def _tell(case: Case, who: str, ends: list[ProcessEndRecord]) -> str:
    count, code = len(ends), ends[0].exit_code
    noun, of, loader = who.partition(" of loader ")
    many = plural(count, noun) + of + loader
    was = "was" if count == 1 else "were"
    how = f"{was} ended by {_signal(code)}" if code < 0 else f"left with exit code {code}"
    return f"{many} {how}{_when(case, ends)}"


def _when(case: Case, ends: list[ProcessEndRecord]) -> str:
    if not len(case.track):
        return ""
    at = np.searchsorted(case.track.index, [end.boundary for end in ends], side="right") - 1
    steps = sorted(case.track.step[np.maximum(at, 0)].tolist())
    if not steps[-1]:
        return ""
    if steps[0] == steps[-1]:
        return f" near step {steps[0]}"
    return f" between steps {steps[0]} and {steps[-1]}"


def _held(case: Case, ended: list[ProcessEndRecord]) -> str:
    """Return how much the heaviest of them held, of those that were recorded.

    Resident memory alone, which is read oftener, has all that a forked worker shares.
    """
    pids = {end.pid for end in ended}
    rank = case.recording.header.rank
    readings = [
        _last_reading(recording, gauge.PSS) or _last_reading(recording, gauge.RSS)
        for recording in case.run.recordings
        if recording.header.worker is not None
        and recording.header.rank == rank
        and recording.header.pid in pids
    ]
    most = max(readings, default=0)
    return f"The heaviest held {human_bytes(most)} at its last reading. " if most else ""


def _last_reading(recording: Recording, name: str) -> int:
    read = (m.gauges[name] for m in reversed(recording.measurements) if name in m.gauges)
    return next(read, 0)


def _killed_for_memory(run: Run) -> str:
    kills = int(run.outcome.get("oom_kills", 0))
    if not kills:
        return ""
    many = plural(kills, "process")
    return f"The kernel killed {many} of this control group for lack of memory meanwhile. "


def _signal(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
