"""Memory ran out: what was live and who held it, which kind of shortage, what would have fitted.

Its figures are of the moment itself: from inside the allocator, from the nearest census, or while
the traceback kept what the exception had left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from leakscope.analysis.accounting.phases import live_by_component, live_by_name, reached_bytes
from leakscope.analysis.allocator.out_of_memory import (
    Need,
    fault_sentence,
    fitting_advice,
    is_fragmentation,
    ranked_advice,
    to_advice,
)
from leakscope.analysis.allocator.segments import returnable
from leakscope.analysis.columns.series import HOST
from leakscope.analysis.findings.unnamed import FROM_WITHIN
from leakscope.analysis.growth import policy
from leakscope.analysis.processes.endings import (
    EXCEPTION,
    KILLED,
    is_killed,
    is_nearly_full,
    memory_at_the_end,
    shortage_at_the_end,
)
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.wording import to_finding
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census
from leakscope.model.device import Advice, Figures, LiveRow, OutOfMemory
from leakscope.model.explanation import BlockClass
from leakscope.model.record import OutOfMemoryRecord, SnapshotRecord
from leakscope.model.report import Culprit, Finding, Remedy, Severity
from leakscope.model.run import Measurement, Recording
from leakscope.model.text import human_bytes, human_share, plural

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
BEFORE = "Looked at inside the allocator, before the exception unwound."
AFTER = "Looked at when the exception left the program; its traceback still kept what it had left."
MOST_ADVICE = 8
_CLASSES = {
    "parameters": BlockClass.WEIGHTS,
    "gradients": BlockClass.GRADIENTS,
    "optimizer_state": BlockClass.OPTIMIZER,
    "graph": BlockClass.ACTIVATIONS,
}
MOST_NAMES = 3


def find_out_of_memory(case: RunContext, culprits: list[Culprit]) -> OutOfMemory | None:
    """Return how memory ended the run; None if it didn't."""
    found = find_shortage(case)
    if found is None:
        return None
    census, device = found.census, found.device
    last = case.recording.shortages[-1] if case.recording.shortages else None
    return OutOfMemory(
        device=device,
        cause=found.cause,
        shortage=found.kind,
        sentence=_sentence(case, found),
        evidence=found.evidence,
        error=": ".join(filter(None, (last.error, last.message))) if last and last.error else "",
        requested_bytes=found.requested,
        live_bytes=found.live or None,
        reserved_bytes=found.figures.reserved or None,
        free_bytes=found.free,
        limit_bytes=found.limit,
        components=live_by_component(census, device, found.live) if census else [],
        names=live_by_name(census, device, found.live) if census else [],
        fits_if=oom_advice(case, found, culprits),
    )


def diagnose_out_of_memory(case: RunContext, ended: OutOfMemory | None) -> list[Finding]:
    """Return a finding where memory ended the run; notes where it was survived or is suspected."""
    if ended is not None:
        return [_of_the_end(ended, FROM_WITHIN if case.is_watched else _NOTHING_KNOWN)]
    if case.recording.shortages:
        return [_survived(case)]
    if is_killed(case.run, case.recording) and is_nearly_full(case.run, case.recording):
        return [_suspected(case)]
    return []


def _of_the_end(ended: OutOfMemory, otherwise: Remedy) -> Finding:
    best = ended.fits_if[0] if ended.fits_if else None
    return to_finding(
        KIND,
        "Memory ran out" + ("" if ended.device == HOST else f" on {ended.device}"),
        f"{ended.sentence} {ended.evidence}",
        Remedy(title=best.title, text=best.evidence) if best else otherwise,
        severity=Severity.CRITICAL,
        total_bytes=ended.live_bytes or 0,
        device=ended.device,
    )


def _survived(case: RunContext) -> Finding:
    last = case.recording.shortages[-1]
    place = _moment(case, last)
    wanted = "" if last.requested is None else f" ({human_bytes(last.requested)} asked for)"
    return to_finding(
        "out_of_memory_survived",
        f"Memory ran out on {last.device} and the program went on",
        f"{plural(last.number, 'time')}, the last {place}{wanted}: the program, or a "
        "library that tries several ways, caught the error.",
        Remedy(title="Nothing to do", text="It cost the attempt, and emptied torch's cache."),
        severity=Severity.NOTE,
        total_bytes=last.allocated or 0,
        device=last.device,
    )


def _suspected(case: RunContext) -> Finding:
    used, limit = memory_at_the_end(case.run, case.recording) or (0, 0)
    return to_finding(
        "killed_near_the_limit",
        "The program was killed with memory nearly used up",
        f"{human_bytes(used)} of {human_bytes(limit)} were in use when last measured. Whether the "
        "kernel's out-of-memory killer did it, nothing recorded here proves: its log (dmesg) may.",
        Remedy(title="Ask the kernel", text="dmesg | grep -i 'killed process'"),
        severity=Severity.NOTE,
        total_bytes=used,
    )


def _sentence(case: RunContext, found: Shortage) -> str:
    if found.record is None:
        return _killed_sentence(case, found)
    where = "" if found.device == HOST else f" on {found.device}"
    place = _moment(case, found.record)
    return f"Out of memory{where} {place}: {_state(found, found.record)}"


def _state(found: Shortage, record: OutOfMemoryRecord) -> str:
    requested, free = found.requested, found.free
    if found.kind and requested is not None:
        stuck, hole = found.kind == "fragmentation", found.largest_hole
        return fault_sentence(requested, free, found.figures, hole, is_stuck=stuck)
    wanted = (
        "memory was asked for" if requested is None else f"{human_bytes(requested)} were asked for"
    )
    left = "" if free is None else f" with {human_bytes(free)} left"
    if found.device != HOST:
        return f"{wanted}{left}; {human_bytes(found.live)} were live in tensors."
    name = min(record.limits, key=lambda limit: record.limits[limit], default="")
    limit = f" under {_LIMITS.get(name, name)} of {human_bytes(found.limit or 0)}" if name else ""
    return f"{wanted}{left}{limit}; the process held {human_bytes(found.live)}."


def _killed_sentence(case: RunContext, found: Shortage) -> str:
    last = case.track.boundaries[-1] if len(case.track) else None
    header = case.recording.header
    whole = "The program" if header.world_size < 2 else f"Rank {header.rank}"
    victim = f"{whole} was" if found.cause == KILLED else "A DataLoader worker was"
    where = ""
    if last is not None and case.is_watched:
        where = f" when it had been watched for {last.time_s:.0f} s"
    elif last is not None:
        where = f" {_moment(case, last)}"
    text = f"{victim} killed by the kernel's out-of-memory killer{where}"
    if found.free is None or found.limit is None:
        return f"{text}."
    used = human_bytes(found.limit - found.free)
    return f"{text}: {used} of {human_bytes(found.limit)} were in use when last measured."


@dataclass(frozen=True)
class Shortage:
    """A shortage as it was recorded, with the census that shows it best."""

    cause: str
    device: str
    record: OutOfMemoryRecord | None
    census: Census | None
    evidence: str
    figures: Figures
    live: int
    """In tensors of the device; on the host resident memory."""
    free: int | None
    limit: int | None
    steps_since: int = 0
    """Steps between the census and the end."""

    @property
    def requested(self) -> int | None:
        """Bytes requested."""
        return None if self.record is None else self.record.requested

    @property
    def largest_hole(self) -> int:
        """The largest free block of the allocator that might have served the request."""
        return 0 if self.record is None else self.record.largest_hole or 0

    @property
    def kind(self) -> str:
        """``capacity``, ``fragmentation``, or empty where that isn't known or makes no sense."""
        if self.device == HOST or self.requested is None or self.free is None:
            return ""
        if self.record is not None and self.record.snapshot is not None:
            hole = self.largest_hole
            stuck = is_fragmentation(self.requested, self.free, self.figures, hole)
            return "fragmentation" if stuck else "capacity"
        unused = self.figures.reserved - self.figures.active
        is_known = self.figures.reserved > 0
        return "capacity" if is_known and self.requested > self.free + unused else ""


def find_shortage(case: RunContext) -> Shortage | None:
    """Return the shortage that ended the run; None if none did."""
    cause = shortage_at_the_end(case.run, case.recording)
    if cause is None:
        return None
    return _by_exception(case) if cause == EXCEPTION else _by_kernel(case, cause)


def _moment(case: RunContext, moment: Boundary | OutOfMemoryRecord) -> str:
    """Return where training stood; without its epoch where a phase came again in what counts as
    the first: nothing says where epochs begin then.
    """
    track = case.track
    has_repeated = bool(len(track)) and int(track.occurrence.max()) > 0
    return describe_moment(moment, epochs=not has_repeated or int(track.epoch.max()) > 0)


def describe_moment(moment: Boundary | OutOfMemoryRecord, *, epochs: bool = True) -> str:
    """Return where training stood: ``in train of epoch 3, after 120 steps``; without its epoch
    where those aren't known.
    """
    if not moment.step:
        return f"in {moment.phase} before the first step" if moment.phase else "before any step"
    of_epoch = f" of epoch {moment.epoch + 1}," if epochs else ""
    stretch = f"in {moment.phase}{of_epoch} " if moment.phase else ""
    return f"{stretch}after {plural(moment.step, 'step')}"


def _by_exception(case: RunContext) -> Shortage:
    """Join what the allocator's observer saw with what was there when the exception left."""
    left = case.recording.shortages[-1]
    record = _observed(case, left) or left
    census, evidence = record.census, BEFORE
    if record.seen == "exception" or census is None:
        census, evidence = left.census, AFTER
    since = 0
    if census is None:
        census, evidence, since = _last_census(case, left.step)
    figures = _figures(record)
    live = figures.active or (_on(census, record.device) if census else 0)
    limit = min(record.limits.values(), default=None)
    return Shortage(
        EXCEPTION, record.device, record, census, evidence, figures, live, record.free, limit, since
    )


def _observed(case: RunContext, left: OutOfMemoryRecord) -> OutOfMemoryRecord | None:
    for record in reversed(case.recording.shortages):
        is_same = (record.boundary, record.device) == (left.boundary, left.device)
        exact, stated = record.requested, left.requested  # a message writes two decimals
        is_about = exact is None or stated is None or abs(exact - stated) <= 0.01 * exact
        if record.seen == "observer" and is_same and is_about:
            return record
    return None


def _by_kernel(case: RunContext, cause: str) -> Shortage:
    steps = int(case.track.step[-1]) if len(case.track) else 0
    census, evidence, since = _last_census(case, steps)
    at_end = memory_at_the_end(case.run, case.recording)
    live = int(case.used_at_end()) if len(case.track) else 0
    used, limit = (None, case.limit_bytes) if at_end is None else at_end
    free = None if used is None or limit is None else max(0, limit - used)
    figures = Figures(active=live)
    return Shortage(cause, HOST, None, census, evidence, figures, live, free, limit, since)


def _figures(record: OutOfMemoryRecord) -> Figures:
    seen = record.snapshot
    if seen is None:
        live = record.allocated or 0
        reserved = record.reserved or 0 if record.device != HOST else 0
        return Figures(allocated=live, active=live, reserved=reserved)
    return Figures(pending=seen.pending_free, **{name: getattr(seen, name) for name in _SUMS})


_SUMS = (
    "segments", "reserved", "allocated", "active", "requested", "cached", "stuck", "releasable",
    "largest_hole",
)  # fmt: skip


def _last_census(case: RunContext, steps: int) -> tuple[Census | None, str, int]:
    """Return the last census before the end, where it was, and how many steps before ``steps``.

    At the end itself all functions have returned.
    """
    looks: list[Measurement | SnapshotRecord] = [*case.recording.snapshots]
    looks += (case.track.measurements[position] for position in case.table.at.tolist())
    for look in sorted(looks, key=lambda look: look.boundary.time_s, reverse=True):
        if look.boundary.kind is not BoundaryKind.RUN_END and look.census is not None:
            place = f"The last look at the heap was {_moment(case, look.boundary)}"
            since = max(0, steps - look.boundary.step)
            return look.census, f"{place}, {look.boundary.time_s:.1f} s after the start.", since
    if case.is_watched:
        return None, "It was watched from outside, where nothing has a name.", 0
    return None, "No census of the heap had been taken.", 0


def _on(census: Census, device: str) -> int:
    return sum(by_device.get(device, 0) for by_device in census.components.values())


def oom_advice(case: RunContext, found: Shortage, culprits: list[Culprit]) -> list[Advice]:
    """Return what to do about a shortage, the best first."""
    need = _need(found)
    others = [way for way in _other_advice(case, found, need) if way.bytes]
    if found.record is not None and found.record.snapshot is not None:
        ways = [*others, *fitting_advice(need)]
    else:
        ways = ranked_advice(need, others)
    mends = list(_mends(found, culprits, need))
    large = [] if mends else list(_large(found, need))
    return [*_too_much_at_once(found), *mends, *large, *ways][:MOST_ADVICE]


def _need(found: Shortage) -> Need:
    components = found.census.components if found.census else {}
    requested, free = found.requested, found.free
    is_known = requested is not None and free is not None
    missing = max(0, (requested or 0) - (free or 0) - returnable(found.figures))
    snapshot = None if found.record is None else found.record.snapshot
    return Need(
        request=requested,
        missing=missing if is_known else None,
        is_fragmentation=found.kind == "fragmentation",
        figures=found.figures,
        classes={
            kind: components.get(role, {}).get(found.device, 0) for role, kind in _CLASSES.items()
        },
        largest_hole=found.largest_hole,
        pages=0 if snapshot is None else snapshot.pages,
        is_expandable=snapshot is not None and snapshot.expandable,
        is_training=True,
        basis="by the names that hold them",
    )


def _too_much_at_once(found: Shortage) -> Iterator[Advice]:
    requested, limit = found.requested, found.limit
    if requested is not None and limit is not None and requested > limit:
        yield Advice(
            title="Ask for less at once",
            helps=True,
            evidence=f"The one request of {human_bytes(requested)} is more than all there is "
            f"({human_bytes(limit)}): nothing that was let go of would have made it fit.",
            bytes=requested,
        )


def _mends(found: Shortage, culprits: list[Culprit], need: Need) -> Iterator[Advice]:
    for culprit in culprits:
        if culprit.device != found.device:
            continue
        seen = _held_by(found, culprit)
        size = _at_the_end(found, culprit, seen)
        if culprit.severity is Severity.NOTE and size < policy.LITTLE_SHARE * found.live:
            continue
        share = f" ({human_share(size / found.live)} of what was live)" if found.live else ""
        by_rate = f", {human_bytes(seen)} when it was weighed last and the rest by its rate"
        by_rate = by_rate if size > seen else ""
        yield Advice(
            title=f"Mend {culprit.name}",
            helps=need.suffices(size),
            evidence=f"It grew by {human_bytes(culprit.bytes_per_unit)} per {culprit.unit} and "
            f"held {human_bytes(size)}{share}{by_rate}. {culprit.remedy.title}.",
            bytes=size,
        )


def _at_the_end(found: Shortage, culprit: Culprit, seen: int) -> int:
    """Return what a culprit held when memory ran out, by its rate since it was weighed."""
    if culprit.unit != "step" or culprit.growth != "across":
        return seen
    return min(round(seen + culprit.bytes_per_unit * found.steps_since), max(seen, found.live))


def _held_by(found: Shortage, culprit: Culprit) -> int:
    rows = [] if found.census is None else found.census.rows
    row = next((row for row in rows if row.path == culprit.path), None)
    return culprit.total_bytes if row is None else reached_bytes(row, found.device)


def _large(found: Shortage, need: Need) -> Iterator[Advice]:
    if found.census is None:
        return
    gathered = {r.name for r in found.census.rows if r.user and r.role in ("accumulation", "cache")}
    for row in live_by_name(found.census, found.device, found.live):
        if row.name in gathered and row.share >= policy.CONSIDERABLE_SHARE:
            evidence = (
                f"It held {human_bytes(row.bytes)} ({row.detail}); "
                "whether it grows, too few looks tell."
            )
            yield to_advice(need, f"Keep less in {row.name}", row.bytes, evidence)


def _other_advice(case: RunContext, found: Shortage, need: Need) -> Iterator[Advice]:
    census = found.census
    garbage = census.garbage_bytes or 0 if census is not None and found.device == HOST else 0
    yield to_advice(
        need,
        "Break reference cycles, or collect in time",
        garbage,
        f"{human_bytes(garbage)} were reached by no name and awaited the collector.",
    )
    graphs = need.classes.get(BlockClass.ACTIVATIONS, 0)
    if found.record is not None and found.record.phase.startswith(("validation", "test")):
        yield to_advice(
            need,
            "Validate without gradients",
            graphs,
            f"{human_bytes(graphs)} were kept for a backward pass during {found.record.phase}: "
            "torch.no_grad() around it keeps none of that.",
        )
    if found.device == HOST:
        yield from _of_the_host(case, need)


def _of_the_host(case: RunContext, need: Need) -> Iterator[Advice]:
    last = len(case.track) - 1
    slack = int(case.nearest(gauge.MALLOC_FREE, last) or 0)
    yield to_advice(
        need,
        "Let the C heap return what is free",
        slack,
        f"{human_bytes(slack)} were free in the C heap and not returned: malloc_trim(0), or "
        "MALLOC_ARENA_MAX=2 in the environment.",
    )
    workers = int(case.nearest(gauge.CHILDREN_PSS, last) or 0)
    yield to_advice(
        need,
        "Fewer worker processes",
        workers,
        f"Child processes, DataLoader workers among them, held {human_bytes(workers)}.",
    )


def snapshot_notes(recording: Recording) -> list[str]:
    """Return a note on the censuses taken on request, if there were any."""
    taken = [snapshot for snapshot in recording.snapshots if snapshot.census is not None]
    if not taken:
        return []
    last = taken[-1]
    taken_were = "1 census was" if len(taken) == 1 else f"{len(taken):,} censuses were"
    names = ", ".join(f"{row.name} {human_bytes(row.bytes)}" for row in biggest(last)[:MOST_NAMES])
    return [
        f"{taken_were} taken on request, which no rate and no verdict rests on; the last "
        f"{last.boundary.time_s:.1f} s after the start, {describe_moment(last.boundary)}"
        + (f": {names}." if names else ".")
    ]


def biggest(snapshot: SnapshotRecord, device: str = HOST) -> list[LiveRow]:
    """Return the names that held most on a device, the most first."""
    if snapshot.census is None:
        return []
    metric = gauge.RSS if device == HOST else f"{device}.{gauge.DEVICE_ALLOCATED}"
    return live_by_name(snapshot.census, device, snapshot.gauges.get(metric, 0))


def devices_of(snapshot: SnapshotRecord) -> list[str]:
    """Return the devices besides the host on which tensors were live."""
    parts = (name.rpartition(".") for name in snapshot.gauges)
    return sorted(
        {device for device, _, short in parts if device and short == gauge.DEVICE_ALLOCATED}
    )
