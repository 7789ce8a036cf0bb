"""What is said of runs in a list, on a page and in the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath
from statistics import median_low

from leakscope.model.report import RunVerdict
from leakscope.model.runs import Lead, ListedRun, RunList, Standing
from leakscope.model.sizes import plural
from leakscope.report import wording
from leakscope.report.sizes import humane_rate
from leakscope.report.sparkline import settled

STANDINGS = {
    Standing.RUNNING: "Still running",
    Standing.UNREPORTED: "No report yet",
    Standing.UNREADABLE: "Report unreadable",
}
WORST_FIRST = (
    RunVerdict.OUT_OF_MEMORY,
    RunVerdict.LEAK,
    RunVerdict.INCONCLUSIVE,
    RunVerdict.CLEAN,
)
GROWTH_MEANING = (
    "How fast all memory of the process and of its child processes grew. Up and down: it may as "
    "well have fallen in all, whatever grows in it; the lead culprit's own rate stands with it."
)
PEAK_MEANING = "The highest of the process and its child processes together."
SCALE_MEANING = (
    "Lines of memory of one script share a scale, from where its runs here usually begin, once "
    "started up, to their highest reading; where those are nearly alike they lie flat."
)
_LEAST_SPAN = 0.1
"""A sparkline is at least this part of its peak high: the noise of a steady run stays flat."""
_COUNTED: dict[RunVerdict | Standing, tuple[str, str]] = {
    RunVerdict.OUT_OF_MEMORY: ("ran out of memory", "ran out of memory"),
    RunVerdict.LEAK: ("leaks", "leak"),
    RunVerdict.INCONCLUSIVE: ("has too little evidence", "have too little evidence"),
    RunVerdict.CLEAN: ("is clean", "are clean"),
    Standing.RUNNING: ("is still running", "are still running"),
    Standing.UNREPORTED: ("has no report", "have no report"),
    Standing.UNREADABLE: ("has a report that can't be read", "have reports that can't be read"),
}


def summary_of(runs: Sequence[ListedRun]) -> str:
    """Return ``12 runs: 3 leak, 9 are clean.``, of a single one ``1 run: it leaks.``."""
    if len(runs) == 1:
        return f"1 run: it {_COUNTED[runs[0].verdict or runs[0].standing][0]}."
    counted = Counter((run.verdict or run.standing).value for run in runs)
    kinds = [(words, counted[kind.value]) for kind, words in _COUNTED.items()]
    parts = [f"{count} {words[count > 1]}" for words, count in kinds if count]
    return f"{plural(len(runs), 'run')}: {', '.join(parts)}." if parts else "There is no run yet."


def others_words(listed: RunList) -> str:
    """Return the sentence about folders that hold no run; empty where all do."""
    if not listed.others:
        return ""
    some = ", ".join(listed.others[:3]) + (", …" if len(listed.others) > 3 else "")
    if len(listed.others) == 1:
        return f"{some} holds no run."
    return f"{len(listed.others)} other folders hold no run: {some}."


Bounds = tuple[float, float]


def bounds_by_run(listed: RunList) -> list[Bounds]:
    """Return the values at the foot and at the top of each run's sparkline.

    Runs of one script share them, so that their lines compare; so do all forms of one program.
    """
    keys = ["" if listed.are_alike else PurePath(run.script).name for run in listed.runs]
    courses: dict[str, list[Sequence[float]]] = {}
    for key, run in zip(keys, listed.runs, strict=True):
        courses.setdefault(key, []).append(settled(run.course))
    bounds = {key: _bounds_of([one for one in some if one]) for key, some in courses.items()}
    return [bounds[key] for key in keys]


def _bounds_of(courses: Sequence[Sequence[float]]) -> Bounds:
    """Return the usual lowest value and the highest; a run broken off early has but low ones."""
    if not courses:
        return 0.0, 0.0
    low, high = median_low(map(min, courses)), max(map(max, courses))
    return low, max(high, low + _LEAST_SPAN * high)


def label_of(run: ListedRun) -> str:
    """Return a run's verdict, or how far it has come where there is none."""
    if run.verdict is None:
        return STANDINGS[run.standing]
    return wording.verdict_words(run.verdict, ran_out=run.ran_out_of_memory)


def ending_of(run: ListedRun) -> str:
    """Return how a run ended, if not by itself and its verdict doesn't say so."""
    return "" if run.ran_out_of_memory else run.ended


def lead_rate(lead: Lead | None) -> str:
    """Return how fast what makes a run a leak grows; empty where that has no rate."""
    if lead is None or not lead.bytes_per_unit:
        return ""
    return wording.rate_in_workers(lead.bytes_per_unit, lead.unit, lead.workers)


def growth_words(run: ListedRun) -> str:
    """Return how fast memory grew in all: ``412 MiB per epoch``, or that it rose and fell."""
    if run.growth_bytes_per_unit is None:
        return "–"
    if not run.growth_bytes_per_unit:
        return "up and down"
    return humane_rate(run.growth_bytes_per_unit, run.growth_unit)
