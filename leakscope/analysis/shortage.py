"""A shortage of memory that ended the run: what was recorded of it, and the nearest census."""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.analysis.case import Case
from leakscope.analysis.cuda.faults import is_fragmentation
from leakscope.analysis.ending import EXCEPTION, memory_at_the_end, shortage_at_the_end
from leakscope.analysis.series import HOST
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census
from leakscope.model.device import Figures
from leakscope.model.record import OutOfMemoryRecord, SnapshotRecord
from leakscope.model.run import Measurement
from leakscope.model.sizes import plural

BEFORE = "Looked at inside the allocator, before the exception unwound."
AFTER = "Looked at when the exception left the program; its traceback still kept what it had left."


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
        """Bytes asked for."""
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


def find_shortage(case: Case) -> Shortage | None:
    """Return the shortage that ended the run; None if none did."""
    cause = shortage_at_the_end(case.run, case.recording)
    if cause is None:
        return None
    return _by_exception(case) if cause == EXCEPTION else _by_kernel(case, cause)


def counts_epochs(case: Case) -> bool:
    """Return whether the number of an epoch means something: where a phase came again in what
    counts as the first, nobody told where epochs begin.
    """
    track = case.track
    came_again = bool(len(track)) and int(track.occurrence.max()) > 0
    return not came_again or int(track.epoch.max()) > 0


def place_of(moment: Boundary | OutOfMemoryRecord, *, epochs: bool = True) -> str:
    """Return where training stood: ``in train of epoch 3, after 120 steps``; without its epoch
    where those aren't known.
    """
    if not moment.step:
        return f"in {moment.phase} before the first step" if moment.phase else "before any step"
    of_epoch = f" of epoch {moment.epoch + 1}," if epochs else ""
    stretch = f"in {moment.phase}{of_epoch} " if moment.phase else ""
    return f"{stretch}after {plural(moment.step, 'step')}"


def _place(case: Case, moment: Boundary) -> str:
    return place_of(moment, epochs=counts_epochs(case))


def _by_exception(case: Case) -> Shortage:
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


def _observed(case: Case, left: OutOfMemoryRecord) -> OutOfMemoryRecord | None:
    """Return the record that the observer made of the very request that ended the run."""
    for record in reversed(case.recording.shortages):
        is_same = (record.boundary, record.device) == (left.boundary, left.device)
        if record.seen == "observer" and is_same and _is_about(record.requested, left.requested):
            return record
    return None


def _is_about(exact: int | None, told: int | None) -> bool:
    """Whether a size is the one that a message writes with two decimals."""
    return exact is None or told is None or abs(exact - told) <= 0.01 * exact


def _by_kernel(case: Case, cause: str) -> Shortage:
    steps = int(case.track.step[-1]) if len(case.track) else 0
    census, evidence, since = _last_census(case, steps)
    stood = memory_at_the_end(case.run, case.recording)
    live = int(case.used_at_end()) if len(case.track) else 0
    used, limit = (None, case.limit_bytes) if stood is None else stood
    free = None if used is None or limit is None else max(0, limit - used)
    figures = Figures(active=live)
    return Shortage(cause, HOST, None, census, evidence, figures, live, free, limit, since)


def _figures(record: OutOfMemoryRecord) -> Figures:
    seen = record.snapshot
    if seen is None:
        live = record.allocated or 0
        reserved = record.reserved or 0 if record.device != HOST else 0
        return Figures(allocated=live, active=live, reserved=reserved)
    return Figures(
        segments=seen.segments,
        reserved=seen.reserved,
        allocated=seen.allocated,
        active=seen.active,
        requested=seen.requested,
        pending=seen.pending_free,
        cached=seen.cached,
        stuck=seen.stuck,
        releasable=seen.releasable,
        largest_hole=seen.largest_hole,
    )


def _last_census(case: Case, steps: int) -> tuple[Census | None, str, int]:
    """Return the last census before the end, where it was, and how many steps before ``steps``.

    At the end itself all functions have returned.
    """
    looks: list[Measurement | SnapshotRecord] = [*case.recording.snapshots]
    looks += (case.track.measurements[position] for position in case.table.at.tolist())
    for look in sorted(looks, key=lambda look: look.boundary.time_s, reverse=True):
        if look.boundary.kind is not BoundaryKind.RUN_END and look.census is not None:
            place = f"The last look at the heap was {_place(case, look.boundary)}"
            since = max(0, steps - look.boundary.step)
            return look.census, f"{place}, {look.boundary.time_s:.1f} s after the start.", since
    if case.is_watched:
        return None, "It was watched from outside, where nothing has a name.", 0
    return None, "No census of the heap had been taken.", 0


def _on(census: Census, device: str) -> int:
    return sum(by_device.get(device, 0) for by_device in census.components.values())
