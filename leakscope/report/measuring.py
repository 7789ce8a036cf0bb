"""How far an answer can be trusted: what measuring cost, each census and gauge, and how the
verdict came about.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from leakscope.model import gauge
from leakscope.model.report import (
    CensusCoverage,
    Culprit,
    Decision,
    Falsifier,
    Finding,
    Overhead,
    Report,
    RunVerdict,
    Taken,
)
from leakscope.model.text import clipped, human_bytes, human_count, plural
from leakscope.report import words as wording
from leakscope.report.tables import Fact, bar_of, ledger_view, size_facts, unexplained_of
from leakscope.report.text import (
    Size,
    clock,
    exact_bytes,
    exact_interval,
    humane_bytes,
    humane_duration,
    humane_interval,
    humane_number,
    humane_rate,
    humane_share,
    humane_wait,
)

MANY_PUT_OFF = 20
"""Boundaries without a reading, and at least as many as have one: a reader should know."""
MOST_ROWS = 300
"""Censuses in the table; of more those that paused longest."""
STRIP = (1000, 40)
"""Width and height of the strip of censuses, in its own units."""
_LEAST_HEIGHT = 6
_LEVELS = {"full": "whole heap", "focused": "the program's own names"}
_PAUSES = {
    "whole": "the whole heap object by object",
    "full": "the whole heap, gone on from an earlier walk",
    "focused": "the program's own names",
}
_ACTIVITIES = {
    "census": "censuses",
    "gauges": "reading gauges",
    "tracemalloc": "tracing allocations",
    "blocks": "following Python's objects",
    "history": "recording allocations of devices",
    "recording": "writing the recording",
    "boundary": "finding boundaries",
}


def measuring_view(overhead: Overhead, duration_s: float, errors: int = 0) -> SimpleNamespace:
    """Return all of it; ``duration_s`` is how long the run lasted, ``errors`` what went wrong."""
    taken = [census for census in overhead.taken if math.isfinite(census.time_s + census.pause_s)]
    longest = sorted(taken, key=lambda census: -census.pause_s)[:MOST_ROWS]
    shown = sorted(longest, key=lambda census: (census.time_s, census.boundary))
    return SimpleNamespace(
        facts=_facts(overhead, errors),
        over_budget=is_over_budget(overhead),
        spent=_spent(overhead, duration_s),
        sentence=_sentence(taken, duration_s),
        strip=_strip(taken, duration_s),
        taken=shown,
        taken_note=f"The {len(shown):,} that paused longest." if len(shown) < len(taken) else "",
        gauges=overhead.gauged,
    )


def is_over_budget(overhead: Overhead) -> bool:
    """Return whether measuring cost more than it may."""
    return overhead.budget is not None and overhead.wall_share > overhead.budget


def budget_words(overhead: Overhead) -> str:
    """Return from which length of a run on this cost is within the budget; empty where it is.

    The first censuses are taken in any run, and what comes later makes up for them.
    """
    if not is_over_budget(overhead) or not overhead.budget:
        return ""
    long_enough = humane_wait(sum(overhead.seconds.values()) / overhead.budget)
    budget = humane_share(overhead.budget)
    return f"the budget of {budget} is kept in runs of {long_enough} or more"


def postponed_words(overhead: Overhead) -> str:
    """Return how often measuring waited for a later boundary, and inside of what."""
    counts = sorted(overhead.put_off.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{humane_number(count)} inside {reason}" for reason, count in counts)


def is_mostly_postponed(overhead: Overhead) -> bool:
    """Return whether measuring waited so often that boundaries are missing from what is shown."""
    waited = sum(overhead.put_off.values())
    return waited >= MANY_PUT_OFF and waited >= overhead.recorded_boundaries


def precise_share(share: float) -> str:
    """Return a small part of one with a decimal: ``1.4 %``."""
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{share:.1%}".replace("%", " %") if share == share else humane_share(share)


def _facts(overhead: Overhead, errors: int) -> list[Fact]:
    coverage = overhead.census_coverage
    seen = "none" if coverage.taken else ""
    if coverage.full:
        seen = f"{coverage.full:,}, {coverage.whole:,} of them object by object"
    others = coverage.taken - coverage.full
    weighed = f"{coverage.weighed:,} of {others:,}"
    longest = humane_duration(overhead.longest_pause_s)
    kind = _PAUSES.get(overhead.longest_pause, "")
    facts = [
        Fact("Share of wall time", precise_share(overhead.wall_share)),
        Fact("Budget", precise_share(overhead.budget) if overhead.budget is not None else ""),
        Fact("In longer runs", budget_words(overhead)),
        *size_facts([("Own memory at most", overhead.peak_bytes)]),
        Fact("Censuses", humane_number(overhead.censuses)),
        Fact("of them of the whole heap", seen),
        Fact("of the others, weighed all that is new", weighed if others else ""),
        Fact("Longest pause", f"{longest}{f', {kind}' if kind else ''}"),
        Fact("Left out for their pause", _left_out(overhead)),
        Fact("Held against a whole walk", _drift(coverage)),
        Fact("Heap walker", wording.walker_words(overhead.walker)),
        Fact("Boundaries", humane_number(overhead.boundaries)),
        Fact("of them recorded", humane_number(overhead.recorded_boundaries)),
        Fact("Put off to a later boundary", postponed_words(overhead)),
        Fact("Errors suppressed", humane_number(errors)),
    ]
    return [fact for fact in facts if fact.value]


def _left_out(overhead: Overhead) -> str:
    coverage, most = overhead.census_coverage, overhead.max_pause_s
    parts = []
    if coverage.left_out_by_pause:
        parts.append(plural(coverage.left_out_by_pause, "census"))
    if coverage.made_cheaper_by_pause:
        parts.append(f"{coverage.made_cheaper_by_pause:,} looked at the program's own names only")
    if not parts or most is None:
        return ""
    return f"{'; '.join(parts)} (each would have taken more than {humane_duration(most)})"


def _drift(coverage: CensusCoverage) -> str:
    if not coverage.checked:
        return ""
    drift = coverage.largest_drift_bytes or 0
    found = f"{humane_bytes(drift)} apart at most" if drift else "no difference"
    return f"{plural(coverage.checked, 'census')}, {found}"


def _spent(overhead: Overhead, duration_s: float) -> list[SimpleNamespace]:
    most = max(overhead.seconds.values(), default=0.0)
    return [
        SimpleNamespace(
            activity=_ACTIVITIES.get(activity, activity),
            time=humane_duration(seconds),
            share=precise_share(seconds / duration_s) if duration_s > 0 else "",
            bar=bar_of(seconds, most, "own"),
        )
        for activity, seconds in sorted(overhead.seconds.items(), key=lambda item: -item[1])
    ]


def _sentence(taken: Sequence[Taken], duration_s: float) -> str:
    if not taken:
        return "No census was taken: nothing could be named."
    together = sum(census.pause_s for census in taken)
    full = sum(census.scope == "full" for census in taken)
    requested = sum(census.requested for census in taken)
    of_run = f", {precise_share(together / duration_s)} of the run" if duration_s > 0 else ""
    on_request = f", {requested:,} on request" if requested else ""
    return (
        f"{plural(len(taken), 'census')}, {full:,} of the whole heap{on_request}. "
        f"The program stood still for {humane_duration(together)} altogether{of_run}."
    )


def _strip(taken: Sequence[Taken], duration_s: float) -> SimpleNamespace | None:
    ends = max([duration_s, *(census.time_s for census in taken)]) if taken else 0.0
    longest = max((census.pause_s for census in taken), default=0.0)
    if not ends > 0:
        return None
    width, height = STRIP
    lines = {True: "", False: ""}
    for census in taken:
        share = census.pause_s / longest if longest > 0 else 0.0
        tall = _LEAST_HEIGHT + (height - _LEAST_HEIGHT) * share
        lines[census.scope == "full"] += f"M{census.time_s / ends * width:.1f} {height}v-{tall:.1f}"
    return SimpleNamespace(
        full=lines[True], focused=lines[False], width=width, height=height, last=clock(ends)
    )


def scope_words(taken: Taken) -> str:
    """Return what a census walked, and whether somebody asked for it."""
    return _LEVELS.get(taken.scope, taken.scope) + (" (on request)" if taken.requested else "")


def gauged_size(value: float, unit: str) -> Size:
    """Return what a gauge read, in words and exactly."""
    if unit == "bytes":
        return Size(humane_bytes(value), exact_bytes(value))
    if unit == "microseconds":
        return Size(humane_duration(value / 1e6), f"{humane_number(value)} µs")
    return Size(humane_number(value), humane_number(value))


RESIDENT = {gauge.RSS, gauge.PSS}
FEW_READINGS = 5
"""Growth through fewer readings than this is worth a second look."""
MUCH_UNEXPLAINED = 0.25
MIN_UNEXPLAINED_RATE = 1 << 20
"""From this rate of child processes on, a reader asks why it is no leak."""
EVEN = 0.8
"""A rate is even whose interval reaches no lower than this part of it."""


@dataclass(frozen=True)
class Assurance:
    """One thing that speaks for or against the answer; ``link`` is where on the page it is
    shown.
    """

    label: str
    value: str
    link: str
    worries: bool = False
    exact: str = ""


def assurance_view(report: Report, anchor: str) -> SimpleNamespace:
    """Return what speaks for the answer; ``anchor`` is that of the card of who leads."""
    suspect = wording.leading_suspect(report)
    falsifier = suspect.falsifier if suspect is not None else _of_clean(report)
    parts = [*_of_leading_suspect(suspect, anchor), *_of_ledger(report), *_of_measuring(report)]
    return SimpleNamespace(
        parts=[part for part in parts if part.value],
        falsifier=falsifier.text if falsifier else "",
        tried=wording.tried_words(falsifier) if suspect is not None else "",
    )


def noise_words(report: Report) -> str:
    """Return why a clean run's rates accuse nothing; empty where there are none."""
    if report.verdict is not RunVerdict.CLEAN or not report.growth:
        return ""
    text = "Rates so small, so uneven or seen so seldom are noise, warm-up or caches that fill."
    children = next((g for g in report.growth if g.metric == gauge.CHILDREN_PSS), None)
    if not report.workers or children is None or children.bytes_per_unit < MIN_UNEXPLAINED_RATE:
        return text
    if children.interval[0] < EVEN * children.bytes_per_unit:
        text += " That of child processes is as uneven as where a cache fills or pages are copied."
    return (
        f"{text} Each DataLoader worker was judged by its own recording: nothing in it is a leak."
    )


def _of_clean(report: Report) -> Falsifier | None:
    """Return what a run without a suspect can't have seen: nameless growth within the noise."""
    growth = next((g for g in report.growth if g.metric in RESIDENT), None)
    if (
        report.verdict is not RunVerdict.CLEAN
        or growth is None
        or not 0 < growth.interval[1] < math.inf
    ):
        return None
    most = humane_rate(growth.interval[1], growth.unit)
    return Falsifier(
        text=f"Growth that has no name and is slower than {most} lies within the noise of this "
        "run. A longer run would show it."
    )


def _of_leading_suspect(suspect: Culprit | Finding | None, anchor: str) -> list[Assurance]:
    if suspect is None:
        return []
    few = 0 < suspect.readings < FEW_READINGS
    parts = [Assurance("Evidence", wording.evidence(suspect), anchor, worries=few)]
    if suspect.unit:
        words = f"{humane_interval(suspect.interval)} per {suspect.unit}"
        exact = f"{exact_interval(suspect.interval)} per {suspect.unit}"
        parts.append(Assurance("95 % interval", words, anchor, exact=exact))
    return parts


def _of_ledger(report: Report) -> list[Assurance]:
    """Return what the first ledger, that of the host, leaves unexplained."""
    return [
        Assurance(
            "Unexplained",
            f"{view.unexplained} of the growth" if view.unexplained else "",
            "ledger",
            worries=unexplained_of(ledger) > MUCH_UNEXPLAINED * ledger.total_bytes,
        )
        for ledger in report.ledgers[:1]
        if (view := ledger_view(ledger))
    ]


def _of_measuring(report: Report) -> list[Assurance]:
    overhead = report.overhead
    over = is_over_budget(overhead)
    cost = f"{precise_share(overhead.wall_share)} of the time" + (", over budget" if over else "")
    kept_from = budget_words(overhead)
    exact = f"The first censuses are taken in any run; {kept_from}." if kept_from else ""
    parts = [Assurance("Measuring cost", cost, "measuring", worries=over, exact=exact)]
    if report.errors:
        parts.append(
            Assurance("Went wrong", plural(len(report.errors), "thing"), "notices", worries=True)
        )
    return parts


_SUBJECTS = {
    "elsewhere": "new objects held by libraries and native code",
    "named": "all that has a name and does not grow by itself",
    "unexplained": "private memory that nothing explains",
    "slack": "free memory in the C heap",
    "garbage": "garbage awaiting the collector",
    "pinned": "page-locked memory",
}
_IN_BYTES = frozenset(
    {"growth", "floor", "declares_a_bound", "follows_the_model", "pinned_by_growth"}
    | {"nothing_pins_it", "goes_with_memory", "counted_by_malloc", "native_contents"}
    | {"carries_growth"}
)
LONGEST = 70


@dataclass(frozen=True)
class DecisionRow:
    """One decision, in words."""

    subject: str
    path: str
    rule: str
    figure: str
    outcome: str


def decision_rows(decisions: Sequence[Decision]) -> list[DecisionRow]:
    """Return decisions in words, in the order in which they were made."""
    return [
        DecisionRow(_subject(d), d.path, d.rule.replace("_", " "), _figure(d), d.outcome)
        for d in decisions
    ]


def render_why(report: Report, name: str) -> str:
    """Return the chain of decisions about all whose name or path has ``name`` in it."""
    wanted = name.casefold()
    found = [
        d
        for d in report.decisions
        if wanted in d.subject.casefold() or wanted in d.path.casefold() or wanted in _subject(d)
    ]
    if not found:
        known = dict.fromkeys(_subject(d) for d in report.decisions)
        some = ", ".join(clipped(entry, LONGEST) for entry in [*known][:8])
        return f"Nothing was decided about {name!r}." + (f" Known are {some}, …" if some else "")
    lines: list[str] = []
    before = ""
    for decision, row in zip(found, decision_rows(found), strict=True):
        about = decision.path or row.subject
        if about != before:
            path = f"  ({decision.path})" if decision.path not in {"", row.subject} else ""
            lines += ["", f"{clipped(row.subject, LONGEST)}{path}"]
            before = about
        figure = f" [{row.figure}]" if row.figure else ""
        lines.append(f"  {row.rule}: {row.outcome}{figure}")
    return "\n".join([*lines[1:], "", f"Verdict: {report.headline}"])


def _subject(decision: Decision) -> str:
    return _SUBJECTS.get(decision.subject, decision.subject)


def _figure(decision: Decision) -> str:
    """Return ``3.1 MiB, threshold 4 KiB``."""
    if decision.figure is None:
        return ""
    as_text = human_bytes if decision.rule in _IN_BYTES else human_count
    if decision.threshold is None:
        return as_text(decision.figure)
    return f"{as_text(decision.figure)}, threshold {as_text(decision.threshold)}"
