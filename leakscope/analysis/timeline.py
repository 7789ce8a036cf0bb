"""The timeline: memory over seconds with phases, thinned so that no spike is lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.series import FloatArray, IntArray, Track, code_of
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.report import Line, Moment, PhaseSpan, Timeline

MOST_POINTS = 3000
MOST_FURTHER_POINTS = 600
MOST_SPANS = 2000
MOST_EPOCHS = 2000
MOST_STEPS = 400
STRETCH = 0.9
"""Of the way from a step to the next, what lies between them takes so much."""
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


def find_timeline(case: Case) -> Timeline | None:
    """Return memory over time, None when nothing was measured."""
    track = case.track
    if not len(track):
        return None
    devices = [
        f"{d}.{m}" for d in track.devices for m in (gauge.DEVICE_ALLOCATED, gauge.DEVICE_RESERVED)
    ]
    metrics = [gauge.RSS, gauge.PSS, gauge.CHILDREN_PSS, *devices]
    begun = np.flatnonzero(track.kind == code_of(BoundaryKind.PHASE_BEGIN))
    epochs = _epoch_begins(track, begun)
    kept = {m: _kept(track, m) for m in metrics if track.has_gauge(m)}
    further = [*FURTHER, *(f"{d}.{m}" for d in track.devices for m in FURTHER_OF_DEVICES)]
    return Timeline(
        lines=[_line(track, metric, places) for metric, places in kept.items()],
        further=[
            _line(track, metric, _kept(track, metric, MOST_FURTHER_POINTS))
            for metric in further
            if _moves(track, metric)
        ],
        spans=_spans(track, begun),
        moments=_moments(track, [*kept.values(), case.table.at]),
        censuses_s=_censuses(case),
        limit_bytes=case.limit_bytes,
        thinned_from=len(track) if len(track) > MOST_POINTS else None,
        phases_begun=len(begun) if len(begun) > MOST_SPANS else None,
        epochs=[(b.time_s, b.epoch) for b in _boundaries(track, evenly(epochs, MOST_EPOCHS))],
        epochs_begun=len(epochs) if len(epochs) > MOST_EPOCHS else None,
        steps=_steps(case),
    )


def _censuses(case: Case) -> list[float]:
    asked = (s.boundary.time_s for s in case.recording.snapshots if s.census is not None)
    return sorted([*map(float, case.track.time_s[case.table.at]), *asked])


def _kept(track: Track, metric: str, most: int = MOST_POINTS) -> IntArray:
    known = track.known(metric)
    return known[keep_extremes(track.gauge(metric)[known], most)]


def _moves(track: Track, metric: str) -> bool:
    """Return whether a gauge was read more than once and tells of any memory."""
    values = track.gauge(metric)[track.known(metric)] if track.has_gauge(metric) else ()
    return len(values) > 1 and bool(np.any(values))


def _line(track: Track, metric: str, kept: IntArray) -> Line:
    values = track.gauge(metric)
    device, _, short = metric.rpartition(".")
    label = f"{device} {LABELS[short]}".strip()
    points = [(float(track.time_s[i]), float(values[i])) for i in kept]
    return Line(label=label, metric=metric, points=points)


def _moments(track: Track, kept: Sequence[IntArray]) -> list[Moment]:
    places = np.unique(np.concatenate(kept)) if kept else np.array([], dtype=np.int64)
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


def evenly(places: IntArray, most: int) -> IntArray:
    """Return at most so many of some places, as far apart from one end to the other."""
    if len(places) <= most:
        return places
    return places[np.linspace(0, len(places) - 1, most).round().astype(np.int64)]


def _steps(case: Case) -> list[tuple[float, float]]:
    """Return when which step had ended, and how far the next one was when what lay between ended.

    So a validation between two steps has a stretch of its own, whatever time it took.
    """
    track = case.track
    if not track.step.any():
        return []
    numbers, first = np.unique(track.step, return_index=True)
    last = len(track) - 1 - np.unique(track.step[::-1], return_index=True)[1]
    kept = evenly(np.arange(len(numbers)), MOST_STEPS)
    clock: list[tuple[float, float]] = []
    for number, begin, end in zip(numbers[kept], first[kept], last[kept], strict=True):
        clock.append((float(track.time_s[begin]), float(number)))
        if track.time_s[end] > track.time_s[begin]:
            clock.append((float(track.time_s[end]), float(number) + STRETCH))
    return clock


def _epoch_begins(track: Track, begun: IntArray) -> IntArray:
    """Return where each epoch's first phase begins; none where all are of one epoch."""
    _, first = np.unique(track.epoch[begun], return_index=True)
    return begun[np.sort(first)] if len(first) > 1 else begun[:0]


def _evenly_by_phase(track: Track, begun: IntArray) -> IntArray:
    """Return at most ``MOST_SPANS`` of the phases, of each as large a part: one that comes after
    each other one is not what is left out.
    """
    if len(begun) <= MOST_SPANS:
        return begun
    phase = track.phase[begun]
    each = [begun[phase == name] for name in np.unique(phase)]
    kept = [evenly(e, max(1, len(e) * MOST_SPANS // len(begun))) for e in each]
    return evenly(np.sort(np.concatenate(kept)), MOST_SPANS)


def _boundaries(track: Track, places: IntArray) -> list[Boundary]:
    return [track.boundaries[at] for at in places.tolist()]


def _spans(track: Track, begun: IntArray) -> list[PhaseSpan]:
    """Return the phases as stretches of time; one whose end is missing lasts until the next."""
    last, ended = _ends(track)
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


def _ends(track: Track) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]]:
    """Return by phase and occurrence the last measurement in it, and the last that ended it."""
    passages = list(zip(track.phase.tolist(), track.occurrence.tolist(), strict=True))
    is_end = (track.kind == code_of(BoundaryKind.PHASE_END)).tolist()
    last = {passage: at for at, passage in enumerate(passages)}
    return last, {passage: at for at, passage in enumerate(passages) if is_end[at]}
