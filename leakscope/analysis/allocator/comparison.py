"""What grew between snapshots: live memory by class, line and size; or cache; or holes.

The snapshots are taken in the order in which they are named. Two tell a change; that something
keeps growing takes three at least, each higher than the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

from leakscope.analysis.allocator.classes import NATIVE, NOT_RECORDED, Live, line_of
from leakscope.analysis.allocator.explain import NAMES, Study, explain_studied, study
from leakscope.analysis.allocator.segments import fixed, kind_of_slack, returnable, total_of
from leakscope.analysis.growth import policy
from leakscope.model.device import AllocatorSnapshot, Figures
from leakscope.model.explanation import (
    BlockClass,
    DeviceComparison,
    DeviceGrowth,
    SnapshotComparison,
)
from leakscope.model.text import human_bytes, human_share, plural

MIB = 1 << 20
MOST_ROWS = 30
ONCE = (BlockClass.OPTIMIZER, BlockClass.GRADIENTS)
"""What appears at a first step and stays."""
LIVE, CACHE, FRAGMENTATION, LESS, NOTHING = "live", "cache", "fragmentation", "less", "nothing"
_Key: TypeAlias = "tuple[str, BlockClass, int | None]"


def compare_snapshots(
    snapshots: Sequence[AllocatorSnapshot], device: int | None = None
) -> SnapshotComparison:
    """Return what changed from the first to the last of some snapshots."""
    numbers = sorted({n for s in snapshots for n in s.devices if device in (None, n)})
    studies = [{n: study(snapshot, n) for n in numbers} for snapshot in snapshots]
    explanations = [
        explain_studied(snapshot, [of[n] for n in numbers if n in snapshot.devices])
        for snapshot, of in zip(snapshots, studies, strict=True)
    ]
    devices = [_compare_device([of[number] for of in studies]) for number in numbers]
    totals = [total_of([studied.figures for studied in of.values()]) for of in studies]
    names = [snapshot.name for snapshot in snapshots]
    short = [name.replace("\\", "/").rpartition("/")[2] for name in names]
    names = short if len(set(short)) == len(short) else names
    notes = [
        f"{name}: {note}"
        for name, explanation in zip(names, explanations, strict=True)
        for note in explanation.notes
    ]
    versions = sorted({snapshot.version for snapshot in snapshots if snapshot.version})
    if len(versions) > 1:
        many = plural(len(versions), "version")
        notes.append(f"They come from {many} of torch: {'; '.join(versions)}.")
    return SnapshotComparison(
        names=names,
        headline=_headline(devices),
        devices=devices,
        by_stuck=sorted(range(len(totals)), key=lambda n: (-fixed(totals[n]), n)),
        slack=[kind_of_slack(total) for total in totals],
        headlines=[explanation.headline for explanation in explanations],
        notes=notes,
    )


def _compare_device(studies: Sequence[Study]) -> DeviceComparison:
    figures = [studied.figures for studied in studies]
    found = [studied.found for studied in studies]
    peaks = [max(s.played.live) if s.played.peak is not None else None for s in studies]
    classes = _grown(found, lambda x: (NAMES[x.kind], x.kind, None))
    sites = _grown(found, lambda x: (line_of(x.block.stack), x.kind, None))
    sizes = _grown(found, lambda x: (line_of(x.block.stack), x.kind, x.block.requested))
    appeared = [row for row in classes if _appears_once(row)]
    kind = _kind(figures, appeared)
    is_leak = _is_leak(figures, appeared) if kind == LIVE else None
    return DeviceComparison(
        device=studies[0].played.device,
        kind=kind,
        is_leak=is_leak,
        headline=_headline_of(kind, is_leak, figures, appeared, sites),
        sentence=_sums(figures) + _peak_words(peaks),
        figures=figures,
        peaks=peaks,
        classes=classes,
        sites=sites,
        sizes=sizes,
    )


def _grown(found: Sequence[Sequence[Live]], key_of: Callable[[Live], _Key]) -> list[DeviceGrowth]:
    sizes: dict[_Key, list[int]] = {}
    counts: dict[_Key, list[int]] = {}
    for number, live in enumerate(found):
        for allocation in live:
            key = key_of(allocation)
            sizes.setdefault(key, [0] * len(found))[number] += allocation.block.size
            counts.setdefault(key, [0] * len(found))[number] += 1
    rows = [
        DeviceGrowth(name=key[0], kind=key[1], size=key[2], bytes=bytes_, counts=counts[key])
        for key, bytes_ in sizes.items()
    ]
    changed = [row for row in rows if len(set(row.bytes)) > 1 or row.size is None]
    return sorted(changed, key=lambda row: (-abs(row.change), row.name, row.size or 0))[:MOST_ROWS]


def _kind(figures: Sequence[Figures], appeared: Sequence[DeviceGrowth]) -> str:
    first, last = figures[0], figures[-1]
    live = last.active - first.active
    once = sum(row.change for row in appeared)
    cache = returnable(last) - returnable(first)
    stuck = fixed(last) - fixed(first)
    floor = _floor(first.reserved, last.reserved)
    most = max(live - once, cache, stuck)
    if live - once >= max(floor, 0.5 * most) or once >= max(floor, 2 * most):
        return LIVE
    if stuck >= max(floor, 0.5 * most):
        return FRAGMENTATION
    if cache >= floor:
        return CACHE
    if live >= floor:
        return LIVE
    return LESS if last.reserved - first.reserved <= -floor else NOTHING


def _floor(before: int, after: int) -> float:
    return max(policy.NOTEWORTHY_BYTES, policy.STEP_SHARE * max(before, after))


def _peak_words(peaks: Sequence[int | None]) -> str:
    known = [peak for peak in peaks if peak is not None]
    if len(known) < len(peaks) or abs(known[-1] - known[0]) < _floor(known[0], known[-1]):
        return ""
    return f" Peaks: {_from_to(known)}."


def _headline_of(
    kind: str,
    is_leak: bool | None,
    figures: Sequence[Figures],
    appeared: Sequence[DeviceGrowth],
    sites: Sequence[DeviceGrowth],
) -> str:
    first, last = figures[0], figures[-1]
    change, names = last.active - first.active, " and ".join(NAMES[row.kind] for row in appeared)
    if kind == LIVE and is_leak is False:
        return (
            f"Live memory rose by {human_bytes(change)} of {names}: state that appears once and "
            "stays, no leak."
        )
    if kind == LIVE:
        return f"{_live_words(change, sites, is_leak=is_leak is True)}."
    of_tensors = ", not the tensors"
    if appeared:
        of_tensors = f", beside {names} that appear once"
    elif change >= _floor(first.reserved, last.reserved):
        of_tensors = ", more than the tensors"
    if kind == FRAGMENTATION:
        stuck = _from_to([fixed(figure) for figure in figures])
        return f"Fragmentation grew{of_tensors}: {stuck} stuck in holes."
    if kind == CACHE:
        cache = _from_to([returnable(figure) for figure in figures])
        return f"Cache grew{of_tensors}: {cache}, which empty_cache() returns."
    reserved = _from_to([figure.reserved for figure in figures])
    return f"{'Less is held' if kind == LESS else 'Nothing grew'}: {reserved} reserved."


def _sums(figures: Sequence[Figures]) -> str:
    live, cache, stuck, reserved = (
        _from_to([of(figure) for figure in figures])
        for of in (lambda f: f.active, returnable, fixed, lambda f: f.reserved)
    )
    return f"Live {live}; cache {cache}; stuck in holes {stuck}; reserved {reserved}."


def _appears_once(row: DeviceGrowth) -> bool:
    """Return whether a class came into being between two of the snapshots and then stood still."""
    little = policy.LITTLE_SHARE * row.bytes[-1]
    most = (1 - policy.LITTLE_SHARE) * row.bytes[-1]
    is_state = row.kind in ONCE and row.change > policy.NOTEWORTHY_BYTES
    is_constant = all(size <= little or size >= most for size in row.bytes)
    return is_state and row.bytes[0] <= little and is_constant


def _is_leak(figures: Sequence[Figures], appeared: Sequence[DeviceGrowth]) -> bool | None:
    live = [figure.active for figure in figures]
    once = sum(row.change for row in appeared)
    if once >= (1 - policy.LITTLE_SHARE) * (live[-1] - live[0]):
        return False
    rises = all(after > before for before, after in pairwise(live))
    return True if len(live) > 2 and rises else None


def _live_words(change: int, sites: Sequence[DeviceGrowth], *, is_leak: bool) -> str:
    largest = max(sites, key=lambda row: row.change, default=None)
    made = ""
    if largest is not None and largest.change > 0 and largest.name not in (NATIVE, NOT_RECORDED):
        share = human_share(min(1.0, largest.change / change))
        made = f", {share} of it allocated at {largest.name}"
    if is_leak:
        return (
            f"Live memory rises from each to the next, by {human_bytes(change)} in all: a leak, "
            f"if they were taken at the same moment of the loop{made}"
        )
    return f"Live memory rose by {human_bytes(change)}{made}"


def _from_to(amounts: Sequence[int]) -> str:
    return " → ".join(human_bytes(amount) for amount in amounts[:6])


def _headline(devices: Sequence[DeviceComparison]) -> str:
    if not devices:
        return "No device memory in any of them."
    order = (LIVE, FRAGMENTATION, CACHE, LESS, NOTHING)
    gravest = min(devices, key=lambda d: (order.index(d.kind), -d.figures[-1].reserved))
    return f"cuda:{gravest.device}: {gravest.headline}" if len(devices) > 1 else gravest.headline
