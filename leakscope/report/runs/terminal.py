"""A list of runs for the terminal: a line each, and what to look at first below it."""

from __future__ import annotations

import os

from leakscope.model.printable import one_line
from leakscope.model.runs import ListedRun, RunList
from leakscope.model.sizes import plural
from leakscope.report.paper import Paper
from leakscope.report.runs.words import (
    PEAK_MEANING,
    Bounds,
    bounds_by_run,
    ending_of,
    growth_words,
    label_of,
    lead_rate,
    others_words,
    summary_of,
)
from leakscope.report.sizes import humane_bytes, humane_duration, humane_moment
from leakscope.report.sparkline import sparkline

SPARK = 12
MOST_LINKS = 5
"""So many comparisons are told, the newest."""
_HEADINGS = ("verdict", "run", "when (UTC)", "took", "peak", "memory")
_NAME = 1
_LEAST_NAME = 20
"""So many letters of a name are shown before another column is left out."""
_FIRST_TO_GO = tuple(map(_HEADINGS.index, ("when (UTC)", "memory", "took")))
_TO_THE_RIGHT = tuple(map(_HEADINGS.index, ("took", "peak")))
_WIDE = 100
_LONG, _SHORT = "%Y-%m-%d %H:%M", "%m-%d %H:%M"


def render_runs_text(listed: RunList, *, width: int = 100, color: bool = False) -> str:
    """Return the list for a terminal; without ``color`` it is plain text."""
    paper = Paper(width, color)
    lines = [summary_of(listed.runs), ""]
    scales = bounds_by_run(listed)
    rows = [_cells(run, paper, scale) for run, scale in zip(listed.runs, scales, strict=True)]
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    shown = _fitting(widths, width)
    if listed.runs:
        lines.append(paper.paint(_line(_HEADINGS, shown, paper), "muted"))
    for run, row in zip(listed.runs, rows, strict=True):
        verdict = run.verdict.value if run.verdict else "muted"
        line = _line(row, shown, paper)
        lines.append(paper.paint(line[: widths[0]], verdict) + line[widths[0] :])
        about = _about(run, width - 2)
        lines += [paper.paint(paper.clip(about, "  "), "muted")] if about else []
    if any(run.has_children for run in listed.runs):
        lines += ["", *paper.wrap(f"peak: {PEAK_MEANING[0].lower()}{PEAK_MEANING[1:]}")]
    for link in listed.links[:MOST_LINKS]:
        lines += ["", *paper.wrap(one_line(f"{link.label}: {link.sentence}"), most=2)]
        place = os.path.relpath(link.page, listed.directory)
        lines += [paper.paint(paper.clip(one_line(place), "  "), "muted")]
    left = len(listed.links) - MOST_LINKS
    lines += ["", f"and {plural(left, 'more comparison')}"] if left > 0 else []
    others = others_words(listed)
    lines += ["", *paper.wrap(others)] if others else []
    return "\n".join(lines) + "\n"


def _fitting(widths: list[int], room: int) -> dict[int, int]:
    """Return which columns a line has room for and how wide they are, the name's what is left."""
    shown = dict(enumerate(widths))
    for column in _FIRST_TO_GO:
        if _left(shown, room) >= min(widths[_NAME], _LEAST_NAME):
            break
        del shown[column]
    return shown | {_NAME: max(1, min(widths[_NAME], _left(shown, room)))}


def _left(shown: dict[int, int], room: int) -> int:
    """Return how much of a line is left to the name."""
    return room - sum(shown.values()) + shown[_NAME] - 2 * (len(shown) - 1)


def _cells(run: ListedRun, paper: Paper, bounds: Bounds) -> tuple[str, ...]:
    form = _LONG if paper.width >= _WIDE else _SHORT
    return (
        label_of(run),
        one_line(run.name),
        humane_moment(run.created, form) if run.created > 0 else "–",
        humane_duration(run.duration_s),
        humane_bytes(run.peak_bytes),
        sparkline(run.course, SPARK, bounds),
    )


def _line(cells: tuple[str, ...], shown: dict[int, int], paper: Paper) -> str:
    parts = []
    for column, width in shown.items():
        short = Paper(width, color=False).clip(cells[column])
        parts.append(short.rjust(width) if column in _TO_THE_RIGHT else short.ljust(width))
    return paper.clip("  ".join(parts).rstrip())


def _about(run: ListedRun, room: int) -> str:
    """Return what to look at first; how fast all memory grows where there is room for it."""
    if run.remark:
        return one_line(run.remark)
    if run.lead is None:
        return ending_of(run)
    grown = f"all memory {growth_words(run)}" if run.growth_bytes_per_unit else ""
    told = one_line(" · ".join(filter(None, [run.lead.name, lead_rate(run.lead), ending_of(run)])))
    return f"{told} · {grown}" if grown and len(f"{told} · {grown}") <= room else told
