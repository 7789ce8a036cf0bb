"""A list of runs for the terminal: a line each, and what to look at first below it."""

from __future__ import annotations

from leakscope.model.printable import one_line
from leakscope.model.runs import ListedRun, RunList
from leakscope.report.paper import Paper
from leakscope.report.runs.words import bounds_of, growth_words, label_of, others_words, summary_of
from leakscope.report.sizes import humane_bytes, humane_duration, humane_moment, humane_rate
from leakscope.report.sparkline import sparkline

SPARK = 12
_HEADINGS = ("verdict", "run", "when (UTC)", "took", "peak", "memory")
_LEAST_NAME = 12
_WIDE = 100
_LONG, _SHORT = "%Y-%m-%d %H:%M", "%m-%d %H:%M"


def render_runs_text(listed: RunList, *, width: int = 100, color: bool = False) -> str:
    """Return the list for a terminal; without ``color`` it is plain text."""
    paper = Paper(width, color)
    lines = [summary_of(listed.runs), ""]
    rows = [_cells(run, paper) for run in listed.runs]
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    taken = sum(widths) - widths[1] + 2 * (len(widths) - 1)
    widths[1] = max(_LEAST_NAME, min(widths[1], width - taken))
    if listed.runs:
        lines.append(paper.paint(_line(_HEADINGS, widths, paper), "muted"))
    for run, row in zip(listed.runs, rows, strict=True):
        verdict = run.verdict.value if run.verdict else "muted"
        line = _line(row, widths, paper)
        lines.append(paper.paint(line[: widths[0]], verdict) + line[widths[0] :])
        about = _about(run)
        lines += [paper.paint(paper.clip(about, "  "), "muted")] if about else []
    others = others_words(listed)
    lines += ["", *paper.wrap(others)] if others else []
    return "\n".join(lines) + "\n"


def _cells(run: ListedRun, paper: Paper) -> tuple[str, ...]:
    form = _LONG if paper.width >= _WIDE else _SHORT
    return (
        label_of(run),
        one_line(run.name),
        humane_moment(run.created, form) if run.created > 0 else "–",
        humane_duration(run.duration_s),
        humane_bytes(run.peak_bytes),
        sparkline(run.course, SPARK, bounds_of(run.course)),
    )


def _line(cells: tuple[str, ...], widths: list[int], paper: Paper) -> str:
    label, name, when, took, peak, memory = cells
    short = Paper(widths[1], color=False).clip(name)
    parts = (
        label.ljust(widths[0]), short.ljust(widths[1]), when.ljust(widths[2]),
        took.rjust(widths[3]), peak.rjust(widths[4]), memory,
    )  # fmt: skip
    return paper.clip("  ".join(parts).rstrip())


def _about(run: ListedRun) -> str:
    if run.remark:
        return one_line(run.remark)
    if run.lead is None:
        return ""
    rate = humane_rate(run.lead.bytes_per_unit, run.lead.unit) if run.lead.bytes_per_unit else ""
    grown = f"in all {growth_words(run)}" if run.growth_bytes_per_unit else ""
    return one_line(" · ".join(part for part in (run.lead.name, rate, grown) if part))
