"""The ledger: where the growth of each kind of memory went, with the remainder as a number.

``find_growth`` has the rate of each gauge and how much of it is explained. ``with_imputed`` puts
the remainder down to things that are counted, not weighed, as an estimate: no census weighs the
pixels of open figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec
import numpy as np

from leakscope.analysis.accounting.native import native_entry
from leakscope.analysis.allocator.devices import outside_owners
from leakscope.analysis.columns.series import HOST, FloatArray, IntArray
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.rows import Grower
from leakscope.analysis.remedies.cleanup_calls import device_advice, host_advice
from leakscope.analysis.run_context import MeasuredWindow, RunContext
from leakscope.model import gauge
from leakscope.model.boundary import comparable_key
from leakscope.model.census import SHARED
from leakscope.model.record import DeviceSnapshotRecord
from leakscope.model.report import Finding, Ledger, LedgerEntry, MetricGrowth, Severity

TREE = "tree"
"""What a ledger is of that counts a process and its children by proportional memory."""
CHILDREN = "child processes"
ELSEWHERE = "new objects held by libraries and native code"
MAPPED_FILES = "pages of files: the kernel takes them back when it needs room"
CHILDREN_BEYOND = "child processes, beyond what they share with this one"
_TERM_OF_FINDING = {
    "open_figures": "open figures",
    "registry": "entries of registries",
    "deep_graph": "graphs that aren't walked",
    "leaked_references": "objects whose references are leaked",
    "tasks": "tasks that pile up",
    "threads": "threads that pile up",
}
"""The term of each kind of finding."""
_GAUGES_WITHOUT_NAMES = {
    gauge.DEVICE_BY_TREE,
    gauge.CHILDREN_PSS,
    gauge.DEVICE_OUTSIDE,
    gauge.DEVICE_OWN_OUTSIDE,
    gauge.PINNED_HOST,
}
"""No name of the process stands for these bytes, or not for all of them."""
WITHOUT_NAME = frozenset({"unexplained", "native"})
"""Terms for which no name of the program's stands."""
_UNKNOWN_TERMS = {"unexplained", "unnamed"}
"""Terms of a ledger that say that nobody knows."""


def find_ledgers(case: RunContext, growers: list[Grower]) -> list[Ledger]:
    """Return the ledger of the host and of each device, over the window of the case."""
    window = case.window
    if window is None:
        return []
    across = [g for g in growers if g.growth == "across"]
    ledgers = [_host(case, window, across)]
    ledgers += [_device(case, window, across, d) for d in case.track.devices]
    return [ledger for ledger in ledgers if ledger is not None]


def _host(case: RunContext, window: MeasuredWindow, growers: list[Grower]) -> Ledger | None:
    gain = case.gauge_gain(case.host_metric)
    if gain is None:
        return None
    tree = case.tree_gain()
    children = case.children_gain() if tree is None else tree - gain
    entries = _named(case, window, growers, HOST)
    first, last = garbage_at(case, window.ends)
    named_shared = named_shared_memory(case, window)
    shared = _shared(case, named_shared)
    mapped = _gain(case, gauge.MAPPED) - shared - max(named_shared, 0.0)
    entries += [
        _entry("garbage awaiting the collector", float(last - first), "garbage"),
        _entry("allocator slack: free in the C heap, not returned", _slack(case, window), "slack"),
        _entry("page-locked memory of torch", _gain(case, gauge.PINNED_HOST), "pinned"),
        _entry("shared memory", shared, "shm"),
        _entry(MAPPED_FILES, max(mapped, 0.0), "mapped"),
        _entry("swapped out, no longer resident", -_gain(case, gauge.SWAPPED), "swapped"),
        _entry(CHILDREN if tree is None else CHILDREN_BEYOND, children, "children"),
    ]
    entries += _new_unnamed(case, window, entries, growers)
    own = float(case.own[window.last] - case.own[window.first])
    entries.append(_entry("leakscope itself", own, "own"))
    native = native_entry(case, window, gain + children - sum(entry.bytes for entry in entries))
    entries += [native] if native is not None else []
    metric, read = case.host_metric, [case.host_metric]
    if tree is not None:
        metric, read = TREE, [gauge.PSS, gauge.CHILDREN_PSS]
    elif children:
        metric, read = f"{metric}+children_pss", [metric, gauge.CHILDREN_PSS]
    before = _before(case, window, *read)
    advise = partial(host_advice, allocator=case.allocator)
    return _close(case, window, metric, before, gain + children, entries, advise)


def _device(
    case: RunContext, window: MeasuredWindow, growers: list[Grower], device: str
) -> Ledger | None:
    metrics = [f"{device}.{m}" for m in (gauge.DEVICE_RESERVED, gauge.DEVICE_ALLOCATED)]
    metric = next((m for m in metrics if case.track.has_gauge(m)), None)
    gain = case.gauge_gain(metric) if metric else None
    if metric is None or gain is None:
        return None
    live = case.gauge_gain(metrics[1]) or 0.0
    entries = _named(case, window, growers, device)
    named = sum(entry.bytes for entry in entries)
    before, after = (_snapshot(case, device, p) for p in (window.first, window.last))
    cached = after.cached - before.cached if before and after else gain - live
    stuck = after.stuck - before.stuck if before and after else 0
    entries += [
        _entry("live tensors without a name", live - named, "unnamed"),
        _entry("cached but free: whole segments", cached, "cached"),
        _entry("cached but free: stuck in used segments", stuck, "fragmentation"),
        _entry(
            "freed, still in use on another stream",
            _gain(case, f"{device}.{gauge.DEVICE_PENDING}"),
            "pending",
        ),
    ]
    read = [metric]
    outside = case.gauge_gain(f"{device}.{gauge.DEVICE_OUTSIDE}")
    if outside is not None:
        # Read together with reserved memory, unlike what the device has in use by itself.
        read.append(f"{device}.{gauge.DEVICE_OUTSIDE}")
        metric = f"{device}.{gauge.DEVICE_USED}"
        entries += _outside(case, device, outside)
    before_bytes = _before(case, window, *read)
    gain += outside or 0.0
    return _close(case, window, metric, before_bytes, gain, entries, device_advice)


def _outside(case: RunContext, device: str, gained: float) -> list[LedgerEntry]:
    """Return what grew outside torch's allocator, by owner as far as the driver tells them."""
    label = "outside torch's allocator"
    owners = outside_owners(case, device)
    entries = [_entry(f"{label}: {each.name}", each.gained, "outside") for each in owners]
    rest = gained - sum(each.gained for each in owners)
    return [*entries, _entry(f"{label}: the driver" if owners else label, rest, "outside")]


def _named(
    case: RunContext, window: MeasuredWindow, growers: list[Grower], device: str
) -> list[LedgerEntry]:
    """Return what each culprit gained over the window, and what all other names of the user's."""
    entries, seen = [], 0
    for g in growers:
        if g.device != device:
            continue
        row = case.table.latest[g.path]
        gained = _gain_of(case, window, g)
        seen += gained if case.table.is_reached(g.path) else 0
        holds_graph = row.kind == "graph" or row.graph_nodes > 0
        entries.append(_entry(row.name, gained, "graph" if holds_graph else "named"))
    everything = _gain_of_roots(case, window, growers, device)
    if everything is not None:
        entries.append(_entry("all other named objects", everything - seen, "named"))
    return entries


def _gain_of(case: RunContext, window: MeasuredWindow, g: Grower) -> int:
    """Return what a culprit gained over the window, between two censuses evenly."""
    values = case.table.retained[g.device][g.path, g.observed]
    # What only full censuses show is not gone where another was taken.
    shown = np.isfinite(values)
    shown |= case.table.is_reached(g.path) or not shown.any()
    at = case.table.at[g.observed[shown]]
    retained = case.read_between(window.ends, at, np.nan_to_num(values[shown]))
    first, last = retained + unseen_growth(case, g, window.ends)
    return round(float(last - first))


def unseen_growth(case: RunContext, g: Grower, positions: IntArray) -> FloatArray:
    """Return what a culprit has gained since it could be seen last, at its rate, by position."""
    index, seen = case.track.work, case.table.at[g.observed]
    last = index[seen[-1]] if len(seen) else index[-1]
    end = index[case.track.last_work]
    since = np.clip(np.minimum(index[positions], end) - last, 0, None)
    return np.asarray(since * g.per_boundary, dtype=np.float64)


def _gain_of_roots(
    case: RunContext, window: MeasuredWindow, growers: list[Grower], device: str
) -> int | None:
    """Return the change of all that has a name of the user's, None without a census."""
    if device not in case.table.retained or not len(case.table.at):
        return None
    first, last = named_bytes_at(case, device, window.ends)
    for g in growers:
        if g.device == device and case.table.is_reached(g.path):
            begin, end = unseen_growth(case, g, window.ends)
            last += end - begin
    return round(float(last - first))


def named_bytes(case: RunContext, device: str) -> FloatArray:
    """Return what user names hold at each census: rows that no other row retains.

    What a function held when it was last seen to run counts on when it has returned: nobody
    saw it go. One that had returned before, and had let go of it, did so again. Calls of a
    library's hold nothing where a census saw none: what outlives them is new elsewhere. A name that
    was first seen after the work is another one for what had a name before.
    """
    total = np.zeros(len(case.table.at))
    for _, retained in _kept_by_roots(case, device):
        total += retained
    return total


def named_bytes_at(case: RunContext, device: str, at: IntArray) -> FloatArray:
    """Return the same at some measurements, between two censuses evenly.

    What a validation holds is not there a step later: a name that was never seen at boundaries like
    one of these, though a census looked there, holds nothing at it.
    """
    total = np.zeros(len(at))
    keys = [comparable_key(case.track.boundaries[place]) for place in at]
    seen_at = [comparable_key(case.track.boundaries[place]) for place in case.table.at]
    for path, retained in _kept_by_roots(case, device):
        values = case.read_between(at, case.table.at, retained)
        present = np.isfinite(case.table.retained[device][path])
        with_it = {key for key, is_there in zip(seen_at, present, strict=True) if is_there}
        first = int(np.argmax(present))
        looked_at = {*seen_at[first:]} - with_it
        values[[key in looked_at for key in keys]] = 0.0
        total += values
    return total


def garbage_readings(case: RunContext) -> tuple[IntArray, FloatArray]:
    """Return the measurements at which garbage was weighed, and its bytes.

    The first look after the work is among them where there is more: it awaited the collector
    before. So is each collection of all generations in between, which leaves nothing: unless there
    was more at each look, whatever was collected before it. Then it is held, by what no walk sees.
    """
    track, sizes = case.track, [c.garbage_bytes for c in case.table.censuses]
    places = zip(case.table.at, sizes, strict=True)
    after = [int(at) for at, size in places if at > track.last_work and size is not None]
    weighed, values = weighed_at(case, sizes, min(after, default=track.last_work))
    if after and len(values) > 1 and values[-1] < values[-2]:
        weighed, values = weighed[:-1], values[:-1]
    at = case.table.at[weighed]
    survived = track.gauge(gauge.GC_LONG_LIVED)
    known = track.known(gauge.GC_LONG_LIVED)
    collected = known[1:][np.diff(survived[known]) != 0]
    if not len(at):
        return at, values
    collected = collected[(collected > at[0]) & (collected < at[-1]) & ~np.isin(collected, at)]
    looks_between = np.unique(np.searchsorted(at, collected))
    if len(looks_between) >= policy.FEWEST_RISES and (np.diff(values) > 0).all():
        return at, values
    both, sizes_there = np.append(at, collected), np.append(values, np.zeros(len(collected)))
    order = np.argsort(both, kind="stable")
    return both[order], sizes_there[order]


def garbage_at(case: RunContext, at: IntArray) -> FloatArray:
    """Return the bytes of garbage at some measurements.

    Between two readings it is taken to change evenly. Where a collection freed it between them, and
    after the last one if any did, it is taken to rise from one collection to the next, as fast as
    where it was weighed without one between.
    """
    read_at, sizes = garbage_readings(case)
    if not len(read_at):
        return np.zeros(len(at))
    values = case.read_between(at, read_at, sizes)
    every = [c.garbage_bytes for c in case.table.censuses]
    columns, weighed = weighed_at(case, every, len(case.track))
    final = case.table.at[columns[-1]]
    if final > read_at[-1]:  # freed after the work: it was there until then
        read_at, sizes = np.append(read_at, final), np.append(sizes, weighed[-1])
    work, collected = case.track.work, collections_until(case)
    worked, gained = np.diff(work[read_at]), np.diff(sizes)
    is_apart = np.diff(collected[read_at]) > 0
    risen = ~is_apart & (gained > 0)
    if not risen.any():
        return values
    rate = float(gained[risen].sum() / max(worked[~is_apart].sum(), 1.0))
    is_freed = is_apart & (gained < policy.MOST_SHARE * rate * worked)
    before = np.searchsorted(read_at, at, side="right") - 1
    for n in np.flatnonzero(np.append(is_freed, is_freed.any())).tolist():
        begin, end = read_at[n], read_at[min(n + 1, len(read_at) - 1)]
        inside = (before == n) & (at > begin)
        places = at[inside]
        first = np.searchsorted(collected, collected[places])
        rising = rate * (work[places] - work[first])
        if end > begin:
            leads_on = collected[places] == collected[end]
            rising[leads_on] = sizes[n + 1] - rate * (work[end] - work[places])[leads_on]
        goes_on = collected[places] == collected[begin]
        rising[goes_on] = sizes[n] + rate * (work[places] - work[begin])[goes_on]
        values[inside] = np.maximum(rising, 0.0)
    return values


def collections_until(case: RunContext) -> FloatArray:
    """Return how many collections had run at each measurement, as far as that was read."""
    known = case.track.known(gauge.GC_COLLECTIONS)
    if not len(known):
        return np.zeros(len(case.track))
    places = np.searchsorted(known, np.arange(len(case.track)), side="right") - 1
    counted: FloatArray = case.track.gauge(gauge.GC_COLLECTIONS)[known[places.clip(min=0)]]
    return counted


def weighed_at(
    case: RunContext, sizes: Sequence[int | None], last: int
) -> tuple[IntArray, FloatArray]:
    """Return the censuses that weighed something up to a measurement, and what."""
    values = np.array(sizes, dtype=np.float64)  # NaN for None
    known = np.flatnonzero(np.isfinite(values) & (case.table.at <= last))
    return known, values[known]


def _kept_by_roots(case: RunContext, device: str) -> Iterator[tuple[int, FloatArray]]:
    """Yield the rows of the user's that no other row retains, with what each keeps at a census."""
    table, last_work = case.table, case.track.last_work
    during = table.at <= last_work if (table.at <= last_work).any() else table.at >= 0
    for path in range(len(table.paths)):
        columns = case.observations.columns(path)
        values = table.retained[device][path]
        is_root = table.is_reached(path) and table.parent(path) is None
        if is_root and len(columns) and np.isfinite(values[during]).any():
            seen = np.nan_to_num(values[columns])
            retained = case.read_between(table.at, table.at[columns], seen, before=0.0)
            alive = table.alive(path)
            if not table.latest[path].user:
                retained[~alive] = 0.0
            elif not alive[columns].all():
                retained[columns[-1] + 1 :] = 0.0
            yield path, retained


def _new_unnamed(
    case: RunContext, window: MeasuredWindow, entries: list[LedgerEntry], growers: list[Grower]
) -> list[LedgerEntry]:
    """Return what is new and held by libraries or native code, less what culprits name."""
    every = [c.elsewhere_bytes for c in case.table.censuses]
    weighed, sizes = weighed_at(case, every, len(case.track))
    if len(weighed) < 2:
        return []
    gained = case.change_over(window, case.table.at[weighed], sizes)
    library = {case.table.latest[g.path].name for g in growers if not case.table.is_reached(g.path)}
    named = sum(e.bytes for e in entries if e.label in library and e.kind in {"named", "graph"})
    return [_entry(ELSEWHERE, gained - named, "elsewhere")]


def _slack(case: RunContext, window: MeasuredWindow) -> float:
    """Return by how much free memory in the C heap grew.

    A reading right after the work counts too where no less is in use than before: a program that
    releases what it held makes free memory of it.
    """
    known = case.track.known(gauge.MALLOC_FREE)
    inside = known[known <= case.working[-1]] if len(case.working) else known
    after = known[len(inside) : len(inside) + 1]
    in_use = case.track.gauge(gauge.MALLOC_IN_USE)
    if not len(inside) or not len(after) or not in_use[after[0]] >= in_use[inside[-1]]:
        return _gain(case, gauge.MALLOC_FREE)
    read = np.append(inside, after)
    return case.change_over(window, read, case.track.gauge(gauge.MALLOC_FREE)[read])


def _shared(case: RunContext, named: float) -> float:
    """Return growth of shared memory that is part of resident memory and in no row; ``named`` is
    that in rows.

    Files in ``/dev/shm`` may be other processes', and resident shared pages may be of code.
    """
    files, mapped = case.gauge_gain(gauge.SHM), case.gauge_gain(gauge.SHARED)
    grown = 0.0 if files is None or mapped is None else min(files, mapped)
    resident = case.gauge_gain(gauge.MAPPED_SHARED)
    grown = grown if resident is None else min(grown, resident)
    return max(grown - named, 0.0)


def host_ledger(ledgers: list[Ledger]) -> Ledger | None:
    """Return the ledger of host memory, if there is one."""
    return next((ledger for ledger in ledgers if "." not in ledger.metric), None)


def unexplained_bytes(ledgers: list[Ledger]) -> float:
    """Return the growth of host memory that no name explains, 0 where there is none."""
    host = host_ledger(ledgers)
    entries = host.entries if host else []
    return float(max(sum(e.bytes for e in entries if e.kind in WITHOUT_NAME), 0))


def named_shared_memory(case: RunContext, window: MeasuredWindow) -> float:
    """Return the growth of shared memory that censuses found under some name."""
    if not len(case.table.at):
        return 0.0
    sizes = np.array([census.payload_bytes.get(SHARED, 0) for census in case.table.censuses])
    return case.change_over(window, case.table.at, sizes)


def _before(case: RunContext, window: MeasuredWindow, *names: str) -> float | None:
    """Return what gauges read together where the ledger begins, None where one wasn't read."""
    read = [case.nearest(name, window.first) for name in names]
    return None if None in read else sum(amount for amount in read if amount is not None)


def _gain(case: RunContext, name: str) -> float:
    return case.gauge_gain(name) or 0.0


def _snapshot(case: RunContext, device: str, position: int) -> DeviceSnapshotRecord | None:
    measured = reversed(case.track.measurements[: position + 1])
    return next((d for m in measured for d in m.devices if d.device == device), None)


def _entry(label: str, size: float, kind: str) -> LedgerEntry:
    return LedgerEntry(label=label, bytes=round(size), kind=kind)


def _close(
    case: RunContext,
    window: MeasuredWindow,
    metric: str,
    before: float | None,
    gain: float,
    entries: list[LedgerEntry],
    advise: Callable[[int, list[LedgerEntry]], str],
) -> Ledger:
    total = round(gain)
    kept = [entry for entry in entries if entry.bytes]
    remainder = total - sum(entry.bytes for entry in kept)
    kept.append(_entry("unexplained", remainder, "unexplained"))
    return Ledger(
        metric=metric,
        from_boundary=int(case.track.index[window.first]),
        to_boundary=int(case.track.index[window.last]),
        total_bytes=total,
        before_bytes=None if before is None else round(before),
        entries=kept,
        advice=advise(total, kept),
        from_s=float(case.track.time_s[window.first]),
        to_s=float(case.track.time_s[window.last]),
        recorded_s=float(case.track.time_s[-1]),
    )


def with_imputed(case: RunContext, ledgers: list[Ledger], findings: list[Finding]) -> list[Ledger]:
    """Return the ledgers with the host's remainder put down to what was counted."""
    if host_ledger(ledgers) is None or case.window is None:
        return ledgers
    host, *devices = ledgers
    *known, remainder = host.entries
    counted = sum(max(e.bytes, 0) for e in known if e.kind in {"elsewhere", "native"})
    for finding in findings:
        label = _TERM_OF_FINDING.get(finding.kind)
        left = finding.total_bytes
        left -= counted if finding.kind == "leaked_references" else 0
        moved = min(left, remainder.bytes)
        if label is None or finding.severity is Severity.NOTE or moved <= 0:
            continue
        known.append(LedgerEntry(label=label, bytes=moved, kind="imputed", note="an estimate"))
        remainder = msgspec.structs.replace(remainder, bytes=remainder.bytes - moved)
    entries = [*known, remainder]
    advice = host_advice(host.total_bytes, entries, case.allocator)
    return [msgspec.structs.replace(host, entries=entries, advice=advice), *devices]


def find_growth(
    case: RunContext, growers: list[Grower], ledgers: list[Ledger]
) -> list[MetricGrowth]:
    """Return the rate of each gauge of memory over comparable boundaries."""
    own = (gauge.DEVICE_ALLOCATED, gauge.DEVICE_RESERVED, gauge.DEVICE_BY_TREE)
    beyond = (gauge.DEVICE_OUTSIDE, gauge.DEVICE_OWN_OUTSIDE)
    devices, outside = (
        [f"{device}.{metric}" for device in case.track.devices for metric in each]
        for each in (own, beyond)
    )
    metrics = [gauge.RSS, gauge.PSS, gauge.CHILDREN_PSS, *devices, *outside, gauge.PINNED_HOST]
    return [_growth(case, m, growers, ledgers) for m in metrics if _can_be_judged(case, m)]


def _can_be_judged(case: RunContext, metric: str) -> bool:
    """Return whether a gauge was read at so many places that a rate of it says something.

    Where even memory of the process itself was read at few, all rates are given as they are.
    """
    if not case.track.has_gauge(metric):
        return False
    read, places = (len(case.gauge_series(name)[1]) for name in (metric, case.host_metric))
    return read >= min(places, policy.FEWEST_GROWING)


def _growth(
    case: RunContext, metric: str, growers: list[Grower], ledgers: list[Ledger]
) -> MetricGrowth:
    trend = case.gauge_trend(metric)
    device = metric.rpartition(".")[0] or HOST
    gain = case.device_gain(HOST) if metric == case.host_metric else case.gauge_gain(metric)
    is_explainable = metric.rpartition(".")[2] not in _GAUGES_WITHOUT_NAMES
    named = explained = None
    if gain is not None and gain > policy.HARMLESS_BYTES and is_explainable:
        across = [g for g in growers if g.growth == "across" and g.device == device]
        named = min(sum(case.gain_of(g) for g in across) / gain, 1.0)
        explained = _explained(device, ledgers)
    return MetricGrowth(
        metric=metric,
        unit=case.unit.noun,
        bytes_per_unit=trend.bytes_per_unit,
        interval=trend.interval,
        named_share=named,
        explained_share=explained,
    )


def _explained(device: str, ledgers: list[Ledger]) -> float | None:
    """Return how much of the program's growth the ledger's terms make up.

    Too much counts as too little.
    """
    mine = (each for each in ledgers if (each.metric.rpartition(".")[0] or HOST) == device)
    ledger = next(mine, None)
    if ledger is None:
        return None
    total = ledger.total_bytes - sum(e.bytes for e in ledger.entries if e.kind == "own")
    if total <= 0:
        return None
    left = sum(entry.bytes for entry in ledger.entries if entry.kind in _UNKNOWN_TERMS)
    return max(1.0 - abs(left) / total, 0.0)
