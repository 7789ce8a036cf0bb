"""A comparison for the terminal, in thirty lines."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from leakscope.model.comparison import NOTABLE_DIFFERENCE, Comparison, CulpritChange, ValueChange
from leakscope.model.layout import Paper, paper_of, spaced
from leakscope.model.report import Point, Severity
from leakscope.model.text import clipped, one_line, plural
from leakscope.report import words as wording
from leakscope.report.terminal import known_lines
from leakscope.report.text import (
    curve_with_ends,
    humane_bytes,
    humane_duration,
    humane_interval,
    humane_share,
    peaks_of,
    rate_or_none,
    settled,
    sparkline,
)

LINES = 30
MOST_CHANGES = 5
MOST_DIFFERENCES = 4
MOST_DOUBTS = 3
MOST_VALUES = 8
FEWEST_VALUES = 3
AROUND_VALUES = 3
"""Lines above and below the values."""
LABEL = 11
CURVE = 8
SHORT = {"rss": "RSS", "pss": "PSS", "children_pss": "children"}
"""What gauges are called where there is little room: which of them it is, is what matters."""
LEAST_BYTES = 1 << 20
"""Peaks that differ by less are left out."""


def render_comparison_text(comparison: Comparison, *, width: int = 100, color: bool = False) -> str:
    """Return two runs side by side for a terminal: as many amounts as fit into :data:`LINES`.

    So it is with what stands below the verdict: what the list of culprits shows too is left out
    first.
    """
    paper = paper_of(width, color)
    outcome, word = wording.outcome_of(comparison)
    headline = wording.headline_after(word, comparison.headline)
    verdict = paper.titled(f"{wording.MARKS[outcome]} {word}", outcome, headline)
    lines = [*_curves(comparison, paper), *_work(comparison, paper)]
    lines += spaced(_changes(comparison, paper))
    foot = spaced([*_doubts(comparison, paper), *_cost(comparison, paper)])
    room = LINES - len(verdict) - len(lines) - len(foot) - AROUND_VALUES
    details = _details(comparison, paper, max(0, room - FEWEST_VALUES))
    most = max(FEWEST_VALUES, min(MOST_VALUES, room - len(details)))
    return "\n".join([*verdict, *details, *lines, *_values(comparison, paper, most), *foot]) + "\n"


def _details(comparison: Comparison, paper: Paper, room: int) -> list[str]:
    """Return the further details in so many lines, cut short only where these don't suffice.

    What the list of culprits shows too is left out first.
    """
    parts = [paper.wrap(text, "  ", most=2) for text in comparison.details]
    if sum(map(len, parts)) > room:
        parts = [[paper.clip(text, "  ")] for text in comparison.details]
    return [line for lines in parts[max(0, len(parts) - room) :] for line in lines]


def _curves(comparison: Comparison, paper: Paper) -> list[str]:
    """Return memory of both runs as curves of one scale."""
    timelines = {"before": comparison.before_timeline, "after": comparison.after_timeline}
    sides = {
        name: [y for _, y in timeline.lines[0].points if isfinite(y)]
        for name, timeline in timelines.items()
        if timeline and timeline.lines
    }
    room = max(10, min(60, paper.width - LABEL - 34))
    peaks = [peak for values in sides.values() for peak in settled(peaks_of(values, room))]
    if not peaks:
        return []
    bounds = min(peaks), max(peaks)
    return [
        paper.clip(f"{name:<{LABEL}}{curve_with_ends(values, room, bounds)}")
        for name, values in sides.items()
        if values
    ]


def _work(comparison: Comparison, paper: Paper) -> list[str]:
    differences = comparison.work_differences
    if not differences:
        alike = wording.same_work_words(comparison.work)
        first, *rest = paper.wrap(alike, " " * LABEL) or [""]
        return [f"{'same work':<{LABEL}}{first[LABEL:]}", *rest] if alike else []
    begin = "! not the same work: "
    shown = differences[:MOST_DIFFERENCES]
    if any(len(begin) + len(one_line(text)) > paper.width for text in shown):
        lines = [begin.rstrip(" :"), *(paper.clip(text, "! ") for text in shown)]
    else:
        lines = [paper.clip(f"{begin}{text}") for text in shown]
    left = len(differences) - MOST_DIFFERENCES
    return [*lines, *([f"! and {plural(left, 'more difference')}"] if left > 0 else [])]


def _changes(comparison: Comparison, paper: Paper) -> list[str]:
    """Return what became of culprits, the worst first; notes only where there is room."""
    order = wording.worst_first(comparison.culprits)
    lines = [line for change in order[:MOST_CHANGES] for line in _change(change, paper)]
    left = order[MOST_CHANGES:]
    if not left:
        return lines
    notes = sum(change.severity is Severity.NOTE for change in left)
    which = ", all of them notes" if notes == len(left) else ""
    return [*lines, f"{'':<{LABEL}}and {plural(len(left), 'more change')}{which}"]


def _change(change: CulpritChange, paper: Paper) -> list[str]:
    label = f"{wording.change_word(change).lower():<{LABEL - 1}}"
    name = clipped(change.name, paper.width - LABEL)
    curves = _both(change.before_chart, change.after_chart)
    parts = _rates(change)
    certain = wording.significance_words(change)
    certain = f", {certain}" if certain not in {"", "real"} else ""
    place = f", {one_line(change.place)}" if change.place else ""
    room = paper.width - LABEL - len(parts) - len(certain) - len(curves) - 1
    place = place if len(place) <= room else ""
    return [
        f"{paper.paint(label, wording.change_style(change))} {name}",
        paper.clip(f"{parts}{certain}{place}{curves}", " " * LABEL),
        *known_lines(change.known, paper, " " * LABEL),
    ]


def _both(before: Sequence[Point], after: Sequence[Point]) -> str:
    """Return both series as small curves of one scale."""
    sides = [[point.y for point in chart if isfinite(point.y)] for chart in (before, after)]
    everything = [value for values in sides for value in values]
    if len(everything) < 2:
        return ""
    bounds = min(0.0, *everything), max(everything)
    drawn = [sparkline(values, CURVE, bounds) or "none" for values in sides]
    return f"  {drawn[0]} → {drawn[1]}"


def _rates(change: CulpritChange) -> str:
    """Return ``2 MiB → none per step``, or ``2 MiB per step → not seen``."""
    rates = (change.before_bytes_per_unit, change.after_bytes_per_unit)
    before, after = map(rate_or_none, rates)
    unit, missing = one_line(change.unit), wording.missing_rate(change)
    if wording.is_missing(change) and change.before_bytes_per_unit is not None:
        return f"{before} per {unit} → {missing}"
    return f"{missing if wording.is_missing(change) else before} → {after} per {unit}"


def _values(comparison: Comparison, paper: Paper, most: int) -> list[str]:
    """Return the amounts that differ most, each with what it is."""
    kinds = (
        ("growth of", comparison.growth),
        ("peak in", comparison.peaks),
        ("peak of", comparison.components),
    )
    rows = [(kind, value) for kind, values in kinds for value in values if _differs(value)]
    if not rows:
        return []
    left = len(rows) - most
    parts = [_value(kind, value, paper) for kind, value in rows[:most]]
    width = _name_width(paper)
    lines = ["", f"{'':<{width}}{'before':>12}{'after':>12}", *parts]
    return [*lines, f"and {plural(left, 'more amount')} that differ"] if left > 0 else lines


def _name_width(paper: Paper) -> int:
    return max(16, min(46, paper.width - 34))


def _inner(name: str) -> str:
    """Return what a gauge, phase or component is called, as it stands inside a line."""
    words = wording.metric_words(name).replace("_", " ")
    return words if words == name else words[:1].lower() + words[1:]


def _differs(value: ValueChange) -> bool:
    before, after = value.before_bytes or 0.0, value.after_bytes or 0.0
    least = NOTABLE_DIFFERENCE * max(abs(before), abs(after))
    return abs(after - before) > (least if value.unit else max(least, LEAST_BYTES))


def _value(kind: str, value: ValueChange, paper: Paper) -> str:
    width = _name_width(paper)
    place = wording.on_device(value.device) + (f" per {value.unit}" if value.unit else "")
    name = f"{kind} {_inner(value.name)}{place}"
    if len(name) > width - 2 and value.name in SHORT:
        name = f"{kind} {SHORT[value.name]}{place}"
    amounts = f"{humane_bytes(value.before_bytes):>12}{humane_bytes(value.after_bytes):>12}"
    noise = "  ~" if value.significant is False else ""
    return f"{clipped(name, width - 2):<{width}}{amounts}{noise}"


def _doubts(comparison: Comparison, paper: Paper) -> list[str]:
    """Return what can't be distinguished from noise, a line each."""
    parts = [f"{one_line(c.name)}: {c.doubt}" for c in comparison.culprits if c.doubt]
    parts += [
        f"growth of {_inner(value.name)} per {value.unit}: "
        f"{' before, '.join(_intervals(value))} after"
        for value in comparison.growth
        if wording.is_noise(value)
    ]
    lines = [
        line
        for text in parts[:MOST_DOUBTS]
        for line in paper.wrap(f"~ within the noise: {text}", most=2)
    ]
    left = len(parts) - MOST_DOUBTS
    return [*lines, *([f"~ and {plural(left, 'more')} within the noise"] if left > 0 else [])]


def _intervals(value: ValueChange) -> list[str]:
    both = (value.before_interval, value.after_interval)
    return [humane_interval(interval) if interval else "unknown" for interval in both]


def _cost(comparison: Comparison, paper: Paper) -> list[str]:
    costs = (comparison.before_cost, comparison.after_cost)
    took = " and ".join(humane_duration(cost.work.duration_s) for cost in costs)
    shares = " and ".join(humane_share(cost.overhead.wall_share) for cost in costs)
    return paper.wrap(f"the runs took {took}; leakscope {shares} of that", most=2)
