"""Memory over time and by what it is: before, at the peak of and after each phase, the timeline of
the run, and per component: baseline, parameters, gradients, optimizer state, …, unexplained.

The timeline is thinned so that no spike is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from leakscope.analysis.columns.series import (
    HOST,
    BoundaryTable,
    FloatArray,
    IntArray,
    code_of,
    own_bytes,
)
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.shape import thinned
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict import severity
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, CensusRow
from leakscope.model.device import LiveRow
from leakscope.model.report import Component, Line, Moment, PhaseMemory, PhaseSpan, Timeline
from leakscope.model.text import plural

_PHASE_END = code_of(BoundaryKind.PHASE_END)
RAISED_BYTES, RAISED_SHARE = 4 << 20, 0.02
"""A peak between boundaries is reported if it lies so far above those at them."""
MOST_POINTS = 3000
MOST_FURTHER_POINTS = 600
MOST_SPANS = 2000
MOST_EPOCHS = 2000
MOST_STEPS = 400
BETWEEN_STEPS_SHARE = 0.9
"""Of the way from a step to the next, what lies between them takes so much."""
FURTHER = (
    gauge.PRIVATE,
    gauge.MAPPED,
    gauge.MALLOC_IN_USE,
    gauge.MALLOC_FREE,
    gauge.PYMALLOC_ARENAS,
    gauge.SHM,
    gauge.PINNED_HOST,
    gauge.CGROUP_USED,
)
FURTHER_OF_DEVICES = (gauge.DEVICE_USED, gauge.DEVICE_REQUESTED)


def find_phases(case: RunContext) -> list[PhaseMemory]:
    """Return medians over the occurrences of each phase, for the host and each device."""
    found = [
        _phase(case, phase, case.metric_of(device))
        for phase in case.track.phases
        for device in [HOST, *case.track.devices]
    ]
    return [phase for phase in found if phase is not None]


def _phase(case: RunContext, phase: str, metric: str) -> PhaseMemory | None:
    track = case.track
    values = track.gauge(metric)
    mine = np.flatnonzero((track.phase == track.phase_code(phase)) & np.isfinite(values))
    if not len(mine):
        return None
    starts = np.flatnonzero(np.diff(track.occurrence[mine], prepend=-1))
    stops = np.append(starts[1:], len(mine))
    before, peak, after = [], [], []
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        inside, last = values[mine[start:stop]], int(mine[stop - 1])
        before.append(inside[0])
        peak.append(inside.max())
        # At the end of a phase its locals are still alive: the boundary after it tells.
        following = values[last + 1 : last + 2] if track.kind[last] == _PHASE_END else inside[-1:]
        after.append(following[0] if np.isfinite(following).any() else inside[-1])
    highest, raised = peak_rise(case, phase, metric)
    # Resident memory moves a little between any two boundaries.
    worth = 0.0 if "." in metric else max(peak) + max(RAISED_BYTES, RAISED_SHARE * max(peak))
    return PhaseMemory(
        phase=phase,
        occurrences=track.begun(phase),
        metric=metric,
        before_bytes=int(np.median(before)),
        peak_bytes=int(np.median(peak)),
        after_bytes=int(np.median(after)),
        kept_bytes=int(np.median(np.subtract(after, before))),
        highest_bytes=int(highest) if highest > worth else None,
        raised_bytes=None if raised is None else int(raised),
        most_bytes=int(max(peak)),
    )


def phase_height(case: RunContext, phase: str, device: str, climbed: float) -> severity.PhaseHeight:
    """Return how high memory of a device rises in a passage through a phase.

    Passages differ: the first pays for warm-up, and later ones refill what the C allocator kept of
    it, so that resident memory doesn't move. What the C heap has in use tells better, where it was
    read. The lowest rise that has room for what ``climbed`` says most about it.

    What stands between two boundaries is part of the peak and of the full rise, not of the rise.
    Most often it is a copy of all that was gathered; it might be there without that, too.
    """
    metric = case.metric_of(device)
    resident = _passages(case, phase, metric)
    in_use = _passages(case, phase, gauge.MALLOC_IN_USE) if device == HOST else []
    rises = [float(p.max() - p[0]) for p in (*resident, *in_use)]
    roomy = [rise for rise in rises if rise >= policy.MAIN_SHARE * climbed]
    seen = max((float(p.max()) for p in resident), default=0.0)
    rise = min(roomy) if roomy else max(rises, default=0.0)
    return severity.PhaseHeight(
        baseline=min((float(p[0]) for p in resident), default=0.0),
        peak=max(seen, peak_rise(case, phase, metric)[0]),
        rise=rise,
        full_rise=max(rise, _full_rise(case, phase, metric)),
        limit=case.limit_bytes if device == HOST else None,
    )


def peak_rise(case: RunContext, phase: str, metric: str) -> tuple[float, float | None]:
    """Return the new peak and the rise that a phase caused, from torch's mark or the kernel's.

    The mark belongs to the program, which may reset it: only what rises above all before counts.
    Where there is no mark it is 0, by None.
    """
    marks = _marks(case, phase, metric)
    if marks is None:
        return 0.0, None
    return max(marks.highest, default=0.0), float(sum(marks.rises))


def _full_rise(case: RunContext, phase: str, metric: str) -> float:
    """Return how far memory rose at most, at and between boundaries, in one passage of a phase.

    Only a passage that raised the mark says so, and not the first of all, which pays for warm-up;
    it is 0 where there is none. The one that reached highest alone would not do: each may raise
    the mark by a page, from a beginning that is higher by all that the C allocator kept.
    """
    marks = _marks(case, phase, metric)
    if marks is None:
        return 0.0
    track, values = case.track, case.track.gauge(metric)
    mine = np.flatnonzero((track.phase == track.phase_code(phase)) & np.isfinite(values))
    _, firsts = np.unique(track.occurrence[mine], return_index=True)
    begins = mine[firsts]
    passage = np.searchsorted(begins, marks.at, side="right") - 1
    warm = passage > 0
    rises = marks.highest[warm] - values[begins[passage[warm]]]
    return float(rises.max(initial=0.0))


@dataclass(frozen=True)
class _Marks:
    """Where one phase raised the highest memory: at which measurements, to what and by how much."""

    at: IntArray
    highest: FloatArray
    rises: FloatArray


def _marks(case: RunContext, phase: str, metric: str) -> _Marks | None:
    device, _, _ = metric.rpartition(".")
    if not device and metric != gauge.RSS:
        return None
    peaks = case.track.gauge(f"{device}.{gauge.DEVICE_PEAK}" if device else gauge.RSS_PEAK)
    known = np.flatnonzero(np.isfinite(peaks))
    if not len(known):
        return None
    highest = np.maximum.accumulate(peaks[known])
    rises = np.diff(highest, prepend=highest[0])
    # What rose up to a boundary rose in the phase that lay before it.
    mine = (case.track.before[known] == case.track.phase_code(phase)) & (rises > 0)
    return _Marks(known[mine], highest[mine], rises[mine])


def _passages(case: RunContext, phase: str, metric: str) -> list[FloatArray]:
    track = case.track
    values = track.gauge(metric)
    mine = (track.phase == track.phase_code(phase)) & np.isfinite(values)
    return [values[mine & (track.occurrence == o)] for o in np.unique(track.occurrence[mine])]


LABELS = {
    gauge.RSS: "resident",
    gauge.PSS: "resident, shared pages divided",
    gauge.CHILDREN_PSS: "child processes",
    gauge.DEVICE_ALLOCATED: "allocated",
    gauge.DEVICE_RESERVED: "reserved",
    gauge.PRIVATE: "its own pages",
    gauge.MAPPED: "pages of files and shared memory",
    gauge.MALLOC_IN_USE: "C heap in use",
    gauge.MALLOC_FREE: "C heap free, not given back",
    gauge.PYMALLOC_ARENAS: "Python's arenas of small objects",
    gauge.SHM: "shared memory files",
    gauge.PINNED_HOST: "page-locked",
    gauge.CGROUP_USED: "control group",
    gauge.DEVICE_USED: "used by all processes",
    gauge.DEVICE_REQUESTED: "asked for",
}


def find_timeline(case: RunContext) -> Timeline | None:
    """Return memory over time, None when nothing was measured."""
    track = case.track
    if not len(track):
        return None
    devices = [
        f"{d}.{m}" for d in track.devices for m in (gauge.DEVICE_ALLOCATED, gauge.DEVICE_RESERVED)
    ]
    metrics = [gauge.RSS, gauge.PSS, gauge.CHILDREN_PSS, *devices]
    begun = np.flatnonzero(track.kind == code_of(BoundaryKind.PHASE_BEGIN))
    _, first = np.unique(track.epoch[begun], return_index=True)
    epochs = begun[np.sort(first)] if len(first) > 1 else begun[:0]
    kept = {m: _kept(track, m) for m in metrics if track.has_gauge(m)}
    further = [*FURTHER, *(f"{d}.{m}" for d in track.devices for m in FURTHER_OF_DEVICES)]
    on_request = (s.boundary.time_s for s in case.recording.snapshots if s.census is not None)
    return Timeline(
        lines=[_line(track, metric, places) for metric, places in kept.items()],
        further=[
            _line(track, metric, _kept(track, metric, MOST_FURTHER_POINTS))
            for metric in further
            if _moves(track, metric)
        ],
        spans=_spans(track, begun),
        moments=_moments(track, [*kept.values(), case.table.at]),
        censuses_s=sorted([*map(float, case.track.time_s[case.table.at]), *on_request]),
        limit_bytes=case.limit_bytes,
        thinned_from=len(track) if len(track) > MOST_POINTS else None,
        phases_begun=len(begun) if len(begun) > MOST_SPANS else None,
        epochs=[(b.time_s, b.epoch) for b in _boundaries(track, thinned(epochs, MOST_EPOCHS))],
        epochs_begun=len(epochs) if len(epochs) > MOST_EPOCHS else None,
        steps=_steps(case),
    )


def _kept(track: BoundaryTable, metric: str, most: int = MOST_POINTS) -> IntArray:
    known = track.known(metric)
    return known[keep_extremes(track.gauge(metric)[known], most)]


def _moves(track: BoundaryTable, metric: str) -> bool:
    """Return whether a gauge was read more than once and was not always 0."""
    values = track.gauge(metric)[track.known(metric)] if track.has_gauge(metric) else ()
    return len(values) > 1 and bool(np.any(values))


def _line(track: BoundaryTable, metric: str, kept: IntArray) -> Line:
    values = track.gauge(metric)
    device, _, short = metric.rpartition(".")
    label = f"{device} {LABELS[short]}".strip()
    points = [(float(track.time_s[i]), float(values[i])) for i in kept]
    return Line(label=label, metric=metric, points=points)


def _moments(track: BoundaryTable, kept: Sequence[IntArray]) -> list[Moment]:
    places = np.unique(np.concatenate(kept))
    return [Moment(b.time_s, b.index, b.step, b.epoch, b.phase) for b in _boundaries(track, places)]


def keep_extremes(values: FloatArray, most: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return indices of the lowest and highest value of each of ``most / 2`` equal stretches."""
    if len(values) <= most:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), most // 2, dtype=np.int64)
    kept = {0, len(values) - 1}
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if stop > start:
            kept.add(start + int(values[start:stop].argmin()))
            kept.add(start + int(values[start:stop].argmax()))
    return np.array(sorted(kept), dtype=np.int64)


def _steps(case: RunContext) -> list[tuple[float, float]]:
    """Return when which step had ended, and how far the next one was when what lay between ended.

    So a validation between two steps has a stretch of its own, whatever time it took.
    """
    track = case.track
    if not track.step.any():
        return []
    numbers, first = np.unique(track.step, return_index=True)
    last = len(track) - 1 - np.unique(track.step[::-1], return_index=True)[1]
    kept = thinned(np.arange(len(numbers)), MOST_STEPS)
    clock: list[tuple[float, float]] = []
    for number, begin, end in zip(numbers[kept], first[kept], last[kept], strict=True):
        clock.append((float(track.time_s[begin]), float(number)))
        if track.time_s[end] > track.time_s[begin]:
            clock.append((float(track.time_s[end]), float(number) + BETWEEN_STEPS_SHARE))
    return clock


def _evenly_by_phase(track: BoundaryTable, begun: IntArray) -> IntArray:
    """Return at most ``MOST_SPANS`` of the phases, of each as large a part: one that comes after
    each other one is not what is left out.
    """
    if len(begun) <= MOST_SPANS:
        return begun
    phase = track.phase[begun]
    each = [begun[phase == name] for name in np.unique(phase)]
    kept = [thinned(e, max(1, len(e) * MOST_SPANS // len(begun))) for e in each]
    return thinned(np.sort(np.concatenate(kept)), MOST_SPANS)


def _boundaries(track: BoundaryTable, places: IntArray) -> list[Boundary]:
    return [track.boundaries[at] for at in places.tolist()]


def _spans(track: BoundaryTable, begun: IntArray) -> list[PhaseSpan]:
    """Return the phases as stretches of time; one whose end is missing lasts until the next."""
    passages = list(zip(track.phase.tolist(), track.occurrence.tolist(), strict=True))
    last = {passage: at for at, passage in enumerate(passages)}
    ended = {passages[at]: at for at in np.flatnonzero(track.kind == _PHASE_END).tolist()}
    spans: list[PhaseSpan] = []
    for at in _evenly_by_phase(track, begun).tolist():
        boundary = track.boundaries[at]
        passage = (int(track.phase[at]), boundary.occurrence)
        end = ended.get(passage, last[passage])
        spans.append(
            PhaseSpan(
                phase=boundary.phase,
                occurrence=boundary.occurrence,
                epoch=boundary.epoch,
                start_s=boundary.time_s,
                end_s=float(track.time_s[end]),
                steps=(boundary.step, int(track.step[end])),
            )
        )
    return spans


BASELINE = "baseline"
"""What the process held before training beyond its components: interpreter, imports."""
COMPONENT_NAMES = {
    "parameters": "parameters",
    "buffers": "buffers",
    "gradients": "gradients",
    "optimizer_state": "optimizer state",
    "batch": "batches",
    "graph": "activations and graphs",
    "accumulation": "accumulations",
    "cache": "caches",
    "code": "code and libraries",
    "other": "other objects",
}


LIBRARIES = ("code", "other")
"""Roles of what libraries own, too: censuses of the whole heap see that, focused ones don't."""
MOST_ROWS = 10
LEAST_SHARE = 0.01
_UNDIVIDED_KINDS = ("module", "optimizer", "graph")
"""Nobody needs to know which part of these."""
UNNAMED_LABEL = "interpreter, libraries and what no name reaches"


def find_components(case: RunContext) -> list[Component]:
    """Return what each component held at the first census, at its peak and at the last census.

    The last is the last of a phase: after it functions return, and what they held is gone.
    """
    seen = _Seen(case)
    if not seen.censuses:
        return []
    devices = sorted({d for c in seen.censuses for by in c.components.values() for d in by})
    ordered = [HOST] * (HOST in devices) + [d for d in devices if d != HOST]
    found = [component for device in ordered for component in _of_device(seen, device)]
    return found + _outside(seen, [c for c in found if c.device == HOST])


class _Seen:
    """What the censuses up to the last one of a phase saw, as if all had looked equally far."""

    def __init__(self, case: RunContext) -> None:
        self.case = case
        phases = [case.track.boundaries[position].phase for position in case.table.at.tolist()]
        within = [n for n, phase in enumerate(phases, 1) if phase]
        last = within[-1] if within else len(phases)
        self.phases = phases[:last]
        self.at = case.table.at[:last]
        self.full = case.table.full[:last]
        self.censuses = case.table.censuses[:last]

    def roles(self) -> list[str]:
        """Return all roles that were seen, those with a name first."""
        seen = {role for census in self.censuses for role in census.components}
        named = [role for role in COMPONENT_NAMES if role in seen]
        return named + sorted(seen - COMPONENT_NAMES.keys())

    def sizes(self, role: str, device: str) -> FloatArray:
        """Return what objects of a role hold on a device, by census.

        What only censuses of the whole heap see of libraries counts from its first sight on.
        """
        seen = [c.components.get(role, {}).get(device, 0) for c in self.censuses]
        sizes = np.array(seen, dtype=np.float64)
        if role not in LIBRARIES or self.full.all() or not self.full.any():
            return sizes
        focused = np.interp(self.at, self.at[~self.full], sizes[~self.full])
        beyond = (sizes - focused)[self.full]
        latest = np.cumsum(self.full) - 1
        gained = np.where(latest >= 0, (beyond - beyond[0])[latest], 0.0)
        return np.maximum(focused + gained, 0.0)

    def gauge(self, name: str) -> FloatArray:
        """Return a gauge's readings nearest to the censuses, 0 where there are none."""
        readings = [self.case.nearest(name, int(p)) or 0.0 for p in self.at]
        return np.array(readings, dtype=np.float64)


def _of_device(seen: _Seen, device: str) -> list[Component]:
    found = [
        _component(seen, COMPONENT_NAMES.get(role, role), device, seen.sizes(role, device))
        for role in seen.roles()
    ]
    return [component for component in found if component.peak_bytes > 0]


def _outside(seen: _Seen, named: list[Component]) -> list[Component]:
    """Return what no census sees: baseline, allocator slack, workers and the remainder."""
    case = seen.case
    resident = [case.nearest(case.host_metric, int(p)) for p in seen.at]
    if any(value is None for value in resident):
        return []
    whole = np.array(resident, dtype=np.float64)
    known = np.sum([seen.sizes(role, HOST) for role in seen.roles()] or [np.zeros(1)], axis=0)
    slack = seen.gauge(gauge.MALLOC_FREE)
    baseline = np.full_like(whole, max(float((whole - known - slack)[0]), 0.0))
    own = seen.gauge(gauge.OWN_RESIDENT)
    left = np.maximum(whole - known - slack - baseline - own, 0.0)
    terms = {
        BASELINE: baseline,
        "allocator slack": slack,
        "workers": seen.gauge(gauge.CHILDREN_PSS),
        "leakscope itself": own,
        "unexplained": left,
    }
    found = [_component(seen, name, HOST, values) for name, values in terms.items()]
    return [c for c in found if c.peak_bytes > 0] if named or whole.any() else []


def _component(seen: _Seen, name: str, device: str, values: FloatArray) -> Component:
    sizes = [int(v) for v in values]
    by_phase: dict[str, int] = {}
    for phase, size in zip(seen.phases, sizes, strict=True):
        if phase:
            by_phase[phase] = max(size, by_phase.get(phase, 0))
    return Component(
        name=name,
        device=device,
        start_bytes=sizes[0],
        peak_bytes=max(sizes),
        end_bytes=sizes[-1],
        by_phase=by_phase,
    )


def live_by_component(census: Census, device: str, total: int) -> list[LiveRow]:
    """Return what was live for what on a device, the most first, the rest of ``total`` included."""
    sizes = {
        COMPONENT_NAMES.get(role, role): by_device.get(device, 0)
        for role, by_device in census.components.items()
    }
    unnamed = UNNAMED_LABEL if device == HOST else "without a name"
    sizes[unnamed] = total - sum(sizes.values())
    return _notable([_row(name, size, total) for name, size in sizes.items()])


def live_by_name(census: Census, device: str, total: int) -> list[LiveRow]:
    """Return the names that held most on a device; none of them is part of another."""
    children: dict[str, list[CensusRow]] = defaultdict(list)
    paths = {row.path for row in census.rows}
    for row in census.rows:
        children[row.parent if row.parent in paths else ""].append(row)
    chosen = [row for top in children[""] for row in _descend(top, children, device)]
    return _notable([_row(r.name, reached_bytes(r, device), total, _detail(r)) for r in chosen])


def reached_bytes(row: CensusRow, device: str) -> int:
    """Return what is reached through a row first, on one device."""
    return own_bytes(row, device) + row.shared_bytes.get(device, 0)


def _descend(
    row: CensusRow, children: dict[str, list[CensusRow]], device: str
) -> Iterator[CensusRow]:
    inner = [
        child
        for child in children.get(row.path, ())
        if not child.path.startswith(f"{row.path}[*]") and child is not row
    ]
    inside = sum(reached_bytes(child, device) for child in inner)
    is_inside = inner and inside >= policy.MOST_SHARE * reached_bytes(row, device)
    if row.kind in _UNDIVIDED_KINDS or not is_inside:
        yield row
        return
    for child in inner:
        yield from _descend(child, children, device)


def _detail(row: CensusRow) -> str:
    kind = "keeps an autograd graph" if row.kind == "graph" else row.type
    return kind if row.length is None else f"{kind}, {plural(row.length, 'item')}"


def _row(name: str, size: int, total: int, detail: str = "") -> LiveRow:
    return LiveRow(name=name, bytes=size, share=size / total if total else 0.0, detail=detail)


def _notable(rows: list[LiveRow]) -> list[LiveRow]:
    large = [row for row in rows if row.bytes > 0 and row.share >= LEAST_SHARE]
    return sorted(large, key=lambda row: -row.bytes)[:MOST_ROWS]
