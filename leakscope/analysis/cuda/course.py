"""Live and reserved bytes along a trace, thinned for a picture without losing a peak."""

from __future__ import annotations

from collections.abc import Sequence

from leakscope.analysis.cuda.phases import OTHER, Stretch
from leakscope.analysis.cuda.replay import Replay
from leakscope.model.explanation import Course, Fault
from leakscope.model.report import PhaseSpan

MOST_POINTS = 700
SECONDS, ENTRIES = "s", "entry"
SHORTEST_SPAN = 1 / 400
"""Phases that take less of the picture than this aren't shaded."""


def course_of(played: Replay, stretches: Sequence[Stretch], fault: Fault | None) -> Course | None:
    """Return the course of a trace; None where there is nothing to draw."""
    if len(played.live) < 2:
        return None
    places = _places(played)
    peak = played.peak
    return Course(
        unit=SECONDS if _has_times(played) else ENTRIES,
        live=_thinned(places, played.live),
        reserved=_thinned(places, played.reserved),
        spans=_spans(places, stretches),
        peak=None if peak is None else (places[peak], played.live[peak]),
        fault=_fault(played, places, fault),
        thinned_from=len(places) if len(places) > MOST_POINTS else None,
    )


def seconds_at(played: Replay, entry: int) -> float | None:
    """Return when an entry was written, from the first on; None without times."""
    return _places(played)[entry] if _has_times(played) else None


def _has_times(played: Replay) -> bool:
    return bool(played.entries) and all(e.time_us is not None for e in played.entries)


def _places(played: Replay) -> list[float]:
    times = [entry.time_us for entry in played.entries if entry.time_us is not None]
    if len(times) < len(played.entries) or not times:
        return [float(number) for number in range(len(played.entries))]
    return [(time - times[0]) / 1e6 for time in times]


def _thinned(places: Sequence[float], values: Sequence[int]) -> list[tuple[float, int]]:
    """Keep the first, the highest and the last of each of so many stretches."""
    if len(values) <= MOST_POINTS:
        return list(zip(places, values, strict=True))
    kept: set[int] = {0, len(values) - 1}
    count = MOST_POINTS // 3
    for part in range(count):
        first, last = part * len(values) // count, (part + 1) * len(values) // count
        kept |= {first, last - 1, max(range(first, last), key=values.__getitem__)}
    return [(places[number], values[number]) for number in sorted(kept)]


def _spans(places: Sequence[float], stretches: Sequence[Stretch]) -> list[PhaseSpan]:
    whole = places[-1] - places[0]
    seen: dict[str, int] = {}
    spans = []
    for stretch in stretches:
        begin, end = places[stretch.first], places[min(stretch.last, len(places) - 1)]
        seen[stretch.phase] = seen.get(stretch.phase, 0) + 1
        if stretch.phase == OTHER or end - begin < SHORTEST_SPAN * whole:
            continue
        spans.append(
            PhaseSpan(
                phase=stretch.phase,
                occurrence=seen[stretch.phase],
                epoch=0,
                start_s=begin,
                end_s=end,
            )
        )
    return spans


def _fault(
    played: Replay, places: Sequence[float], fault: Fault | None
) -> tuple[float, int] | None:
    if fault is None or fault.entry is None or fault.request is None:
        return None
    return places[fault.entry], played.live[fault.entry] + fault.request
