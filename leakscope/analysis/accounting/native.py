"""Memory that is no Python object's: what libraries have live, by line, and kinds of mappings.

What libraries allocate is sampled: one term of private memory, and by line. Sampled blocks that
others keep books of (tensors, arrays, Python's own objects, leakscope) are left out, and so are
those of libraries whose memory the census weighs as contents of Python objects.
What is left may still belong to an object that has a name, or not be resident: in the ledger the
term takes no more than what the measured ones leave, so that nothing is counted twice.

What a library allocates at the line that makes the items of a container, or in their class, is the
container's: one culprit, with both facts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from leakscope.analysis.columns.series import HOST, FloatArray, IntArray
from leakscope.analysis.growth import part_of, policy
from leakscope.analysis.growth.rows import Grower
from leakscope.analysis.run_context import MeasuredWindow, RunContext
from leakscope.analysis.source.program import CodeScope, descendants
from leakscope.model import gauge
from leakscope.model.census import Site
from leakscope.model.record import NativeAllocationsRecord, NativeOwner, NativeSite
from leakscope.model.report import Cleared, LedgerEntry, MappingTerm, PeakMemory, PeakSite
from leakscope.model.text import human_bytes
from leakscope.model.trend import Trend

LABEL = "native allocations by libraries"
MOST_PEAK_SITES = 20
"""Rows of the composition of the peak."""
_OWN_NOTHING = frozenset(
    {"int", "float", "complex", "bool", "str", "bytes", "bytearray", "NoneType", "tuple", "list"}
    | {"dict", "set", "frozenset", "deque", "Tensor", "Parameter", "ndarray", "memoryview"}
)
"""Types of items that have no memory of a library beyond what a census weighs, but for what torch
has for each tensor in C++: half a kilobyte, which counts where tensors are many and small."""
_Key = tuple[str, str, int, NativeOwner]


@dataclass(frozen=True)
class NativeGrowth:
    """Native memory that one library allocates below one line of the user's, and keeps."""

    library: str
    function: str
    """The function that has most of it; an offset in the library where there is no symbol."""
    file: str
    line: int
    """The innermost line of the user's below which it was allocated; 0 where none is known."""
    location: str
    """The same as it is shown; empty where none is known."""
    gained_bytes: float
    trend: Trend
    owner: NativeOwner = NativeOwner.LIBRARY
    is_awaited: bool = False
    """Whether threads of the library's own allocate it, and the line waited for them."""

    @property
    def name(self) -> str:
        """The library, and the function where it has a name."""
        return f"{self.library} · {self.function}" if self.function else self.library


def is_of_torch(growth: NativeGrowth) -> bool:
    """Return whether torch allocates it: for tensors, or for what its graphs are made of."""
    return growth.owner is NativeOwner.TENSOR or growth.library.startswith(policy.TORCH_LIBRARIES)


def growing_allocations(
    case: RunContext,
    owners: Collection[NativeOwner] = (NativeOwner.LIBRARY,),
    *,
    to_the_end: bool = False,
) -> list[NativeGrowth]:
    """Return the native allocations that go on growing, what gained most first.

    A row of the profile is an estimate from some samples; its noise is what chance can make of it.
    By default sites of tensors, arrays and the interpreter are left out: the census counts what
    these hold, as far as it reaches them. ``to_the_end`` takes what was live when the work had
    ended as well: that can be less than while it went on, and not more.
    """
    records = _at_work(case, to_the_end=to_the_end)
    if len(records) < policy.FEWEST_READINGS:
        return []
    done = np.array([case.work_done[at] for at, _ in records], dtype=np.float64)
    rows = [_by_key(record, owners) for _, record in records]
    found = []
    for key in dict.fromkeys(key for row in rows for key in row):
        sites = [row.get(key, []) for row in rows]
        sizes = np.array([sum(site.bytes for site in each) for each in sites], dtype=np.float64)
        trend = case.trend_of(done, sizes, _noise(sites))
        if trend.is_growing:
            heaviest = max(sites[-1] or [s for each in sites for s in each], key=lambda s: s.bytes)
            found.append(_growth(case, key, heaviest, trend, _awaited_at(sites)))
    return sorted(found, key=lambda each: -each.gained_bytes)


def _noise(sites: list[list[NativeSite]]) -> float:
    chance = max(_deviation(each) for each in sites)
    return max(policy.GAUGE_NOISE_BYTES, policy.SAMPLED_DEVIATIONS * chance)


def _deviation(sites: list[NativeSite]) -> float:
    return math.sqrt(sum(site.deviation_bytes**2 for site in sites))


def native_entry(case: RunContext, window: MeasuredWindow, left: float) -> LedgerEntry | None:
    """Return the term of the ledger; None where nothing was sampled or nothing is ``left`` for it
    of the growth by the other terms.
    """
    at, sizes, deviations = native_series(case)
    if len(at) < 2:
        return None
    noise = max(policy.GAUGE_NOISE_BYTES, policy.SAMPLED_DEVIATIONS * float(deviations.max()))
    trend = case.trend_of(case.work_done[at], sizes, noise)
    case.decisions.add(
        LABEL, "growth", f"{trend.verdict.value}: {trend.reason.value}",
        figure=trend.net_bytes, threshold=noise,
    )  # fmt: skip
    gained = case.change_over(window, at, sizes)
    if min(gained, left) < policy.GAUGE_NOISE_BYTES:
        return None
    spread = policy.Z_INTERVAL * float(np.hypot(*case.read_between(window.ends, at, deviations)))
    interval = f"{human_bytes(max(gained - spread, 0.0))} to {human_bytes(gained + spread)}"
    return LedgerEntry(
        label=LABEL,
        bytes=round(min(gained, left)),
        kind="native",
        note=f"sampled: {interval} more are live; counted is no more than the other terms leave",
    )


def native_series(case: RunContext) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return measurements, estimated live bytes of libraries there, and standard deviations."""
    records = _at_work(case)
    at = np.array([position for position, _ in records], dtype=np.int64)
    sizes, deviations = np.zeros(len(records)), np.zeros(len(records))
    for n, (_, record) in enumerate(records):
        listed = [site for site in record.sites if site.owner is NativeOwner.LIBRARY]
        kept = [s for s in listed if not s.library.startswith(policy.WEIGHED_LIBRARIES)]
        of_listed = sum(site.bytes for site in listed)
        # Rows that were too small for the record count too.
        too_small = record.by_owner.get(NativeOwner.LIBRARY.value, of_listed) - of_listed
        sizes[n] = sum(site.bytes for site in kept) + max(too_small, 0)
        deviations[n] = _deviation(kept)
    return at, sizes, deviations


def _at_work(
    case: RunContext, *, to_the_end: bool = False
) -> list[tuple[int, NativeAllocationsRecord]]:
    """Return the records of the run's work with the positions of their boundaries."""
    positions = {index: at for at, index in enumerate(case.track.index.tolist())}
    working = set(case.working.tolist())
    if to_the_end:
        working |= set(range(max(working, default=0), len(case.track)))
    placed = [(positions.get(r.boundary, -1), r) for r in case.recording.native_allocations]
    return [(at, r) for at, r in placed if r.is_on and at in working]


def _by_key(
    record: NativeAllocationsRecord, owners: Collection[NativeOwner]
) -> dict[_Key, list[NativeSite]]:
    found: dict[_Key, list[NativeSite]] = {}
    for site in record.sites:
        if site.owner in owners:
            place = ("", 0) if site.is_awaited else (site.file, site.line)
            found.setdefault((site.library, *place, site.owner), []).append(site)
    return found


def _awaited_at(sites: list[list[NativeSite]]) -> tuple[str, int]:
    """Return the line that waited while threads of the library's own allocated most of what they
    keep: threads that work for nobody in particular allocate at whichever line waits just then.
    """
    gained: dict[tuple[str, int], int] = {}
    for each, sign in ((sites[-1], 1), (sites[0], -1)):
        for site in each:
            place = site.file, site.line
            gained[place] = gained.get(place, 0) + sign * site.bytes
    place = max(gained, key=lambda each: gained[each], default=("", 0))
    everything = sum(max(size, 0) for size in gained.values())
    is_most = gained.get(place, 0) >= policy.MAIN_SHARE * max(everything, 1)
    return place if is_most else ("", 0)


def _growth(
    case: RunContext, key: _Key, heaviest: NativeSite, trend: Trend, awaited: tuple[str, int]
) -> NativeGrowth:
    library, file, line, owner = key
    is_awaited = not line and awaited[1] > 0
    file, line = awaited if is_awaited else (file, line)
    return NativeGrowth(
        library=library or "a library that was unloaded",
        function=heaviest.function,
        file=file,
        line=line,
        location=case.sources.location(file, line) if file and line else "",
        gained_bytes=trend.net_bytes,
        trend=trend,
        owner=owner,
        is_awaited=is_awaited,
    )


def contents_of_growers(case: RunContext, growers: Sequence[Grower]) -> dict[int, NativeGrowth]:
    """Return the native memory that growing containers keep through their items, by path.

    What is live is no growth of memory while its pages aren't resident: private memory has to grow,
    or not to rest while malloc hands out more and more.
    """
    grows = case.pool.is_growing or (
        case.pool.is_open and case.gauge_trend(gauge.MALLOC_IN_USE).is_growing
    )
    native = growing_allocations(case) if growers and grows else []
    found: dict[int, NativeGrowth] = {}
    for each in native:
        # By the census, with the items.
        is_weighed = each.library.startswith(policy.WEIGHED_LIBRARIES)
        is_little = each.gained_bytes < policy.HARMLESS_BYTES
        # What threads keep they may keep when the item is gone.
        if is_weighed or is_little or each.is_awaited or not each.line:
            continue
        owners = [g for g in growers if _keeps(case, g, each)]
        if owners:
            most = max(owners, key=lambda g: g.gained)
            known = found.get(most.path)
            found[most.path] = each if known is None else _together(known, each)
            case.decisions.add(
                case.table.latest[most.path].name, "native_contents",
                f"{each.name} allocates where its items are made", figure=each.gained_bytes,
                threshold=policy.HARMLESS_BYTES, path=case.table.latest[most.path].path,
            )  # fmt: skip
    return _without_untouched_pages(case, growers, found)


def _without_untouched_pages(
    case: RunContext, growers: Sequence[Grower], found: dict[int, NativeGrowth]
) -> dict[int, NativeGrowth]:
    """Return native memory at the rate at which private memory grows beyond what has names.

    A library allocates more than it writes to: the pages of a compressor's window that it never
    touches are live for the allocator, and no memory of the machine's.
    """
    if not found:
        return found
    allocated = sum(each.trend.bytes_per_unit for each in found.values())
    per_boundary = sum(g.per_boundary for g in growers if g.growth == "across" and g.device == HOST)
    named = per_boundary / max(_units_per_boundary(case), 1e-9)
    share = (case.pool.interval[1] - named) / allocated if allocated > 0 else 1.0
    if not 0 < share < 1:
        return found
    return {path: _scaled(each, share) for path, each in found.items()}


def _scaled(growth: NativeGrowth, share: float) -> NativeGrowth:
    trend = part_of(growth.trend, share)
    return replace(growth, trend=trend, gained_bytes=growth.gained_bytes * share)


def _units_per_boundary(case: RunContext) -> float:
    begin, end = case.working[0], case.track.last_work
    boundaries = max(float(case.track.work[end] - case.track.work[begin]), 1.0)
    return float(case.work_done[end] - case.work_done[begin]) / boundaries


def _together(first: NativeGrowth, more: NativeGrowth) -> NativeGrowth:
    """Return what items of a container keep from two lines, under the place of the first."""
    trend, other = first.trend, more.trend
    trend = msgspec.structs.replace(
        trend,
        bytes_per_unit=trend.bytes_per_unit + other.bytes_per_unit,
        interval=(trend.interval[0] + other.interval[0], trend.interval[1] + other.interval[1]),
        net_bytes=trend.net_bytes + other.net_bytes,
    )
    return replace(first, trend=trend, gained_bytes=first.gained_bytes + more.gained_bytes)


def with_contents(case: RunContext, grower: Grower, more: Trend | None) -> Grower:
    """Return a grower with what more of memory it keeps, by the boundary, in its rate and gain."""
    if more is None or min(grower.per_boundary, grower.trend.bytes_per_unit) <= 0:
        return grower
    units_per_boundary = _units_per_boundary(case)
    # Boundaries to one unit of the container's, by its own rate in both.
    factor = units_per_boundary * grower.trend.bytes_per_unit / grower.per_boundary
    low, high = (edge * factor for edge in more.interval)
    trend = msgspec.structs.replace(
        grower.trend,
        bytes_per_unit=grower.trend.bytes_per_unit + more.bytes_per_unit * factor,
        interval=(grower.trend.interval[0] + low, grower.trend.interval[1] + high),
        net_bytes=grower.trend.net_bytes + more.net_bytes,
    )
    return replace(
        grower,
        trend=trend,
        gained=grower.gained + more.net_bytes,
        per_boundary=grower.per_boundary + more.bytes_per_unit * units_per_boundary,
        contents_factor=grower.contents_factor * trend.bytes_per_unit / grower.trend.bytes_per_unit,
    )


def _keeps(case: RunContext, g: Grower, native: NativeGrowth) -> bool:
    """Return whether a container's items own what is allocated at a line, as the source shows."""
    table, row = case.table, case.table.latest[g.path]
    items = {content.type.rpartition(".")[2] for content in row.holds}
    types = items - _OWN_NOTHING
    may_own = bool(types) or ("Tensor" in items and is_of_torch(native))
    if g.growth != "across" or g.device != HOST or not row.user or not may_own:
        return False
    scope = _scope_at(case, native.file, native.line)
    owner = scope.enclosing_class() if scope is not None else None
    if owner is not None and owner.name in types:
        return True
    paths = (g.path, *table.descendants(g.path))
    places = [(s.file, s.line) for path in paths for s in table.sites.get(path, [])]
    if row.owner is not None:
        lines = case.sources.feeding(row.owner, row, g.phase)
        places += [(line.file, line.line) for line in lines]
    if native.location in {case.sources.location(*place) for place in places}:
        return True
    site = Site(file=native.file, line=native.line)
    return (
        row.owner is not None
        and bool(types)
        and case.sources.works_on_items(row.owner, row, g.phase, site)
    )


def _scope_at(case: RunContext, file: str, line: int) -> CodeScope | None:
    """Return the innermost class or function, or the module, that a line lies in."""
    module = case.sources.program.scope_of_file(file)
    if module is None:
        return None
    around = [
        scope
        for scope in descendants(module)
        if scope is not module
        and scope.first_line <= line <= (getattr(scope.node, "end_lineno", None) or line)
    ]
    return max(around, key=lambda scope: scope.first_line, default=module)


def find_peak(case: RunContext) -> PeakMemory | None:
    """Return what was live at the highest reading of memory that a record of allocations is of."""
    private = case.private
    read = {int(case.track.index[at]): at for at in np.flatnonzero(np.isfinite(private)).tolist()}
    records = [
        record
        for record in case.recording.native_allocations
        if record.is_on and record.sites and record.boundary in read
    ]
    if not records:
        return None
    record = max(records, key=lambda each: float(private[read[each.boundary]]))
    at = read[record.boundary]
    return PeakMemory(
        boundary=record.boundary,
        step=int(case.track.step[at]),
        time_s=float(case.track.time_s[at]),
        private_bytes=round(float(private[at])),
        highest_bytes=round(float(np.nanmax(private))),
        sampled_bytes=record.bytes,
        by_owner=dict(sorted(record.by_owner.items(), key=lambda item: -item[1])),
        sites=[
            PeakSite(
                location=case.sources.location(site.file, site.line) if site.line else "",
                library=site.library,
                function=site.function,
                owner=site.owner.value,
                bytes=site.bytes,
                interval=site.interval,
            )
            for site in sorted(record.sites, key=lambda site: -site.bytes)[:MOST_PEAK_SITES]
        ],
    )


LABELS = {
    gauge.MAPPED_HEAP: "the main heap",
    gauge.MAPPED_ARENAS: "thread arenas of glibc",
    gauge.MAPPED_STACKS: "stacks of threads",
    gauge.MAPPED_LIBRARIES: "variables of libraries and changed pages of files",
    gauge.MAPPED_ANONYMOUS: "anonymous mappings",
    gauge.MAPPED_FILES: "mapped files: page cache, not a leak",
    gauge.MAPPED_SHARED: "shared memory",
    gauge.MAPPED_DEVICES: "mappings of device drivers",
}
MOST_KINDS = 3
SHOWN_BYTES = 1 << 20
"""Kinds that hold less and gained less aren't reported."""


def find_mappings(case: RunContext) -> list[MappingTerm]:
    """Return each kind of mapping with its growth, what gained most first; none where not read."""
    terms = [term for kind in gauge.MAPPING_KINDS if (term := _term(case, kind)) is not None]
    files = [name for name in sorted(case.track.gauge_names) if gauge.file_of(name)]
    terms += [term for name in files if (term := _term(case, name)) is not None]
    return sorted(terms, key=lambda term: -term.bytes)


def _term(case: RunContext, kind: str) -> MappingTerm | None:
    done, sizes = kind_series(case, kind)
    if not len(sizes):
        return None
    trend = case.trend_of(done, sizes)
    size, gained = round(float(sizes[-1])), _gained(case, kind)
    if max(size, abs(gained)) < SHOWN_BYTES:
        return None
    file = gauge.file_of(kind)
    label = f"of these {file}" if file else LABELS[kind]
    case.decisions.add(
        label, "growth", f"{trend.verdict.value}: {trend.reason.value}", figure=trend.net_bytes
    )
    return MappingTerm(
        kind=gauge.MAPPED_FILE if file else kind,
        label=label,
        file=file or "",
        bytes=gained,
        held_bytes=size,
        verdict=trend.verdict,
        bytes_per_unit=trend.bytes_per_unit if trend.is_growing else 0.0,
        unit=trend.unit,
    )


def kind_series(case: RunContext, kind: str) -> tuple[FloatArray, FloatArray]:
    """Return units done and readings of a kind, without what leakscope itself holds there."""
    values = case.track.gauge(kind) - _own_in(case, kind)
    read = case.at_work(values)
    return case.work_done[read], values[read]


def _own_in(case: RunContext, kind: str) -> FloatArray:
    """Return what leakscope itself holds in a kind, by measurement: mappings of its own."""
    return case.own if kind == gauge.MAPPED_ANONYMOUS else np.zeros(len(case.track))


def _gained(case: RunContext, kind: str) -> int:
    if case.window is None:
        return 0
    read, sizes = _readings(case, kind, case.window.last)
    return round(case.change_over(case.window, read, sizes)) if len(read) else 0


def _readings(case: RunContext, kind: str, until: int) -> tuple[IntArray, FloatArray]:
    """Return the measurements that read a kind and what they read, in part to the end of the run.

    Those after the work, when a program may have let go, count where none before reaches far: a run
    of a second has few.
    """
    sizes = case.track.gauge(kind) - _own_in(case, kind)
    read = case.track.known(kind)
    working = read[read <= case.track.last_work]
    reached = case.track.work[working[-1]] if len(working) else 0
    begin = case.track.work[case.working[0]] if len(case.working) else 0
    if reached - begin >= policy.MAIN_SHARE * (case.track.work[until] - begin):
        read = working
    return read, sizes[read]


def where_mapped(case: RunContext, since: float) -> str:
    """Return a sentence on the mappings in which private memory grew since some work was done."""
    gains = {kind: _gain_since(case, kind, since) for kind in gauge.OWN_KINDS}
    whole = sum(gain for gain in gains.values() if gain > 0)
    least = max(policy.GAUGE_NOISE_BYTES, policy.UNNAMED_SHARE * whole)
    largest = sorted((kind for kind in gains if gains[kind] >= least), key=lambda k: -gains[k])
    if not largest:
        return ""
    listed = [f"{human_bytes(gains[kind])} in {LABELS[kind]}" for kind in largest[:MOST_KINDS]]
    return f" Private memory grew by {' and '.join(listed)}."


def _gain_since(case: RunContext, kind: str, since: float) -> float:
    read, sizes = _readings(case, kind, case.track.last_work)
    done = case.work_done[read]
    if len(done) < 2 or done[-1] <= since:
        return 0.0
    return float(sizes[-1] - np.interp(since, done, sizes))


def cleared_files(case: RunContext) -> list[Cleared]:
    """Return files that came to be mapped and read: memory that the kernel takes back."""
    found = []
    for name in sorted(case.track.gauge_names):
        file = gauge.file_of(name)
        if file is None:
            continue
        every = np.intersect1d(case.track.known(gauge.MAPPED_FILES), case.working)
        sizes = np.nan_to_num(case.track.gauge(name)[every])  # with few pages it isn't named
        if len(sizes) and sizes.max() - sizes[0] >= policy.NOTEWORTHY_BYTES:
            reason = "mapped file: page cache that the kernel takes back, not a leak"
            size = float(sizes.max())
            found.append(
                Cleared(
                    name=file,
                    path=name,
                    reason=f"{reason} ({human_bytes(size)})",
                    kind="mapped",
                    total_bytes=round(size),
                )
            )
    return found
