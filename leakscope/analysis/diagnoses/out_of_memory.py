"""Memory ran out: what was live and who held it, which kind of shortage, what would have fitted.

Its figures are of the moment itself: from inside the allocator, or while the traceback kept what
the exception had left. A run that the kernel killed is judged by its last census instead.

May be confused with: a program that catches the error and goes on, which is no failed run and at
most a note; a program that somebody else killed, which is not said to be out of memory unless the
kernel counted a kill; a program near its limit that ended by itself.
"""

from __future__ import annotations

from leakscope.analysis.case import Case
from leakscope.analysis.cuda.faults import fault_sentence
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.diagnoses.watched import FROM_WITHIN
from leakscope.analysis.ending import KILLED, is_killed, is_nearly_full, memory_at_the_end
from leakscope.analysis.fitting import ways_for
from leakscope.analysis.live import live_by_component, live_by_name
from leakscope.analysis.series import HOST
from leakscope.analysis.shortage import Shortage, counts_epochs, find_shortage, place_of
from leakscope.model.boundary import Boundary
from leakscope.model.record import OutOfMemoryRecord
from leakscope.model.report import Culprit, Finding, Remedy, Severity
from leakscope.model.shortage import Advice, OutOfMemory
from leakscope.model.sizes import human_bytes, plural

KIND = "out_of_memory"
_LIMITS = {
    "machine": "the machine's memory",
    "cgroup": "the limit of the control group",
    "address_space": "the limit of the address space (ulimit -v)",
}
_NOTHING_KNOWN = Remedy(
    title="Look at what is largest",
    text="No census was near enough to tell what would have helped.",
)


def find_out_of_memory(case: Case, culprits: list[Culprit]) -> OutOfMemory | None:
    """Return how memory ended the run; None if it didn't."""
    found = find_shortage(case)
    if found is None:
        return None
    census, device = found.census, found.device
    return OutOfMemory(
        device=device,
        cause=found.cause,
        shortage=found.kind,
        sentence=_sentence(case, found),
        evidence=found.evidence,
        error=_error(case.recording.shortages),
        requested_bytes=found.requested,
        live_bytes=found.live or None,
        reserved_bytes=found.figures.reserved or None,
        free_bytes=found.free,
        limit_bytes=found.limit,
        components=live_by_component(census, device, found.live) if census else [],
        names=live_by_name(census, device, found.live) if census else [],
        fits_if=ways_for(case, found, culprits),
    )


def diagnose(case: Case, ended: OutOfMemory | None) -> list[Finding]:
    """Return a finding where memory ended the run; notes where it was survived or is suspected."""
    if ended is not None:
        return [_of_the_end(ended, FROM_WITHIN if case.is_watched else _NOTHING_KNOWN)]
    if case.recording.shortages:
        return [_survived(case)]
    if is_killed(case.run, case.recording) and is_nearly_full(case.run, case.recording):
        return [_suspected(case)]
    return []


def _of_the_end(ended: OutOfMemory, otherwise: Remedy) -> Finding:
    helpful = [way for way in ended.fits_if if way.helps] or ended.fits_if
    return finding(
        KIND,
        "Memory ran out" + ("" if ended.device == HOST else f" on {ended.device}"),
        f"{ended.sentence} {ended.evidence}",
        _remedy(ended.fits_if[:1] or helpful[:1], otherwise),
        severity=Severity.CRITICAL,
        total_bytes=ended.live_bytes or 0,
        device=ended.device,
    )


def _remedy(ways: list[Advice], otherwise: Remedy) -> Remedy:
    if not ways:
        return otherwise
    return Remedy(title=ways[0].title, text=ways[0].evidence)


def _survived(case: Case) -> Finding:
    last = case.recording.shortages[-1]
    place = place_of(last, epochs=counts_epochs(case))
    wanted = "" if last.requested is None else f" ({human_bytes(last.requested)} asked for)"
    return finding(
        "out_of_memory_survived",
        f"Memory ran out on {last.device} and the program went on",
        f"{plural(last.number, 'time')}, the last {place}{wanted}: the program, or a "
        "library that tries several ways, caught the error.",
        Remedy(title="Nothing to do", text="It cost the attempt, and emptied torch's cache."),
        severity=Severity.NOTE,
        total_bytes=last.allocated or 0,
        device=last.device,
    )


def _suspected(case: Case) -> Finding:
    used, limit = memory_at_the_end(case.run, case.recording) or (0, 0)
    return finding(
        "killed_near_the_limit",
        "The program was killed with memory nearly used up",
        f"{human_bytes(used)} of {human_bytes(limit)} were in use when last measured. Whether the "
        "kernel's out-of-memory killer did it, nothing recorded here proves: its log (dmesg) may.",
        Remedy(title="Ask the kernel", text="dmesg | grep -i 'killed process'"),
        severity=Severity.NOTE,
        total_bytes=used,
    )


def _sentence(case: Case, found: Shortage) -> str:
    if found.record is None:
        return _killed_sentence(case, found)
    where = "" if found.device == HOST else f" on {found.device}"
    place = place_of(found.record, epochs=counts_epochs(case))
    return f"Out of memory{where} {place}: {_state(found, found.record)}"


def _state(found: Shortage, record: OutOfMemoryRecord) -> str:
    requested, free = found.requested, found.free
    if found.kind and requested is not None:
        stuck, hole = found.kind == "fragmentation", found.largest_hole
        return fault_sentence(requested, free, found.figures, hole, is_stuck=stuck)
    wanted = "memory was asked for" if requested is None else f"{_were(requested)} asked for"
    left = "" if free is None else f" with {human_bytes(free)} left"
    if found.device != HOST:
        return f"{wanted}{left}; {human_bytes(found.live)} were live in tensors."
    name = min(record.limits, key=lambda limit: record.limits[limit], default="")
    limit = f" under {_LIMITS.get(name, name)} of {human_bytes(found.limit or 0)}" if name else ""
    return f"{wanted}{left}{limit}; the process held {human_bytes(found.live)}."


def _killed_sentence(case: Case, found: Shortage) -> str:
    last = case.track.boundaries[-1] if len(case.track) else None
    header = case.recording.header
    whole = "The program" if header.world_size < 2 else f"Rank {header.rank}"
    who = f"{whole} was" if found.cause == KILLED else "A DataLoader worker was"
    where = "" if last is None else f" {_when(case, last)}"
    text = f"{who} killed by the kernel's out-of-memory killer{where}"
    if found.free is None or found.limit is None:
        return f"{text}."
    used = human_bytes(found.limit - found.free)
    return f"{text}: {used} of {human_bytes(found.limit)} were in use when last measured."


def _when(case: Case, last: Boundary) -> str:
    if case.is_watched:
        return f"when it had been watched for {last.time_s:.0f} s"
    return place_of(last, epochs=counts_epochs(case))


def _were(size: int) -> str:
    return f"{human_bytes(size)} were"


def _error(shortages: list[OutOfMemoryRecord]) -> str:
    last = shortages[-1] if shortages else None
    if last is None or not last.error:
        return ""
    return f"{last.error}: {last.message}" if last.message else last.error
