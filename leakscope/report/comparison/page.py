"""The page of a comparison as plain values: everything computed, nothing left for the template;
with its tables: whether both runs did the same work, amounts of memory, ranks and workers, cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

import msgspec

from leakscope.model.comparison import Comparison, RunCost, Topic, ValueChange, WorkerPair, WorkFact
from leakscope.model.report import RankMemory, RunFacts, Severity, WorkerMemory
from leakscope.report import words
from leakscope.report.comparison.axis import shared_axis
from leakscope.report.comparison.changes import (
    ChangeView,
    Overlay,
    cards,
    change_views,
    overlays,
    overlays_by_time,
)
from leakscope.report.icicle import comparison_icicle
from leakscope.report.json import render_json
from leakscope.report.markdown import change_markdown, render_comparison_markdown
from leakscope.report.measuring import is_over_budget
from leakscope.report.page import environment_facts, run_context
from leakscope.report.runs import href_of
from leakscope.report.tables import Cell, Fact, bar_of, cell_of, direction_of
from leakscope.report.text import (
    UNKNOWN,
    Size,
    humane_bytes,
    humane_duration,
    humane_interval,
    humane_number,
    humane_rate,
    humane_share,
    signed_share,
    size_of,
)

_WORDS = [*(words.CHANGES[change] for change in words.WORST_FIRST), *words.UNSEEN]
MOST_COPIED = 300_000
"""Characters of JSON behind a copy button, which leaves out the points of the timelines and the
tree of names; of more there is no button, but the command writes it."""


def comparison_page(comparison: Comparison, reports: Sequence[str] = ("", "")) -> SimpleNamespace:
    """Return the whole page for a comparison; ``reports`` are paths to those of the two runs."""
    axis = shared_axis(comparison)
    drawn, by_time = overlays(comparison, axis), overlays_by_time(comparison, axis)
    outcome, label = words.outcome_of(comparison)
    changes = change_views(comparison.culprits, axis)
    icicle = comparison_icicle(comparison.retained, changes)
    shown = cards(changes)
    return SimpleNamespace(
        comparison=comparison,
        title=f"{label} · before and after",
        names=_names(comparison.before, comparison.after),
        headline=words.headline_after(label, comparison.headline),
        outcome=outcome,
        outcome_label=label,
        runs=_runs(comparison, reports),
        counts=_counts(comparison),
        facts=fact_tables(comparison.work),
        costs=cost_rows(comparison),
        culprits=changes,
        cards=shown,
        rest=[view for view in changes if view not in shown],
        overlay=drawn[0] if drawn else None,
        overlays=drawn[1:],
        by_time=by_time,
        undecided=words.undecided(comparison),
        icicle=icicle,
        growth=value_rows(comparison.growth),
        components=value_rows(comparison.components),
        peaks=value_rows(comparison.peaks),
        ranks=rank_table(comparison),
        workers=worker_table(comparison.workers),
        data=_data(comparison, changes, [*drawn, *by_time])
        | {"icicles": {icicle.key: icicle.data} if icicle else {}},
    )


def _names(before: RunFacts, after: RunFacts) -> str:
    """Return what both runs are called: their folders, with those above where these are alike."""
    paths = [PurePath(run.path or run.run_id or run.script) for run in (before, after)]
    parts = 2 if paths[0].name == paths[1].name else 1
    return " → ".join("/".join(path.parts[-parts:]) for path in paths)


def _counts(comparison: Comparison) -> list[Fact]:
    """Return how many culprits changed how; ``exact`` is the style, calm where all are notes."""
    changes = words.worst_first(comparison.culprits)
    labels = [words.change_word(change) for change in changes]
    styles: dict[str, str] = {}
    for word, change in zip(labels, changes, strict=True):
        note = " note" if change.severity is Severity.NOTE else ""
        styles.setdefault(word, f"{words.change_style(change)}{note}")
    ordered = sorted(styles, key=_WORDS.index)
    return [Fact(word, str(labels.count(word)), styles[word]) for word in ordered]


def _data(
    comparison: Comparison, changes: list[ChangeView], drawn: list[Overlay]
) -> dict[str, Any]:
    charts = {overlay.view.key: overlay.data for overlay in drawn}
    charts |= {view.series.key: view.series.data for view in changes if view.series}
    copies = {f"{view.anchor}-markdown": change_markdown(view.subject) for view in cards(changes)}
    copies["comparison-markdown"] = render_comparison_markdown(comparison)
    encoded = render_json(
        msgspec.structs.replace(
            comparison,
            before_timeline=None,
            after_timeline=None,
            before_rank_courses=[],
            after_rank_courses=[],
            retained=None,
        )
    )
    if len(encoded) <= MOST_COPIED:
        copies["comparison-json"] = encoded
    return {"charts": charts, "copies": copies}


def _runs(comparison: Comparison, reports: Sequence[str]) -> list[SimpleNamespace]:
    sides = [
        ("Before", comparison.before, comparison.before_verdict, comparison.before_cost),
        ("After", comparison.after, comparison.after_verdict, comparison.after_cost),
    ]
    return [
        SimpleNamespace(
            role=role,
            verdict=verdict.value,
            verdict_label=words.VERDICTS[verdict],
            context=run_context(run, cost.work if cost.work.duration_s else None),
            environment=environment_facts(run),
            href=href_of(report, PurePath()) if report else "",
        )
        for (role, run, verdict, cost), report in zip(sides, reports, strict=True)
    ]


TOPICS = {
    Topic.WORK: "Work done",
    Topic.PROGRAM: "Program and arguments",
    Topic.ENVIRONMENT: "Versions and machine",
    Topic.MEASURING: "How it was measured",
}


def fact_tables(facts: Sequence[WorkFact]) -> list[SimpleNamespace]:
    """Return a table per topic, what differs first in each."""
    by_topic = {
        title: sorted((f for f in facts if f.topic is topic), key=lambda fact: not fact.differs)
        for topic, title in TOPICS.items()
    }
    return [
        SimpleNamespace(
            title=title,
            summary=_work_summary(rows),
            differs=any(fact.differs for fact in rows),
            rows=[_fact_row(fact) for fact in rows],
        )
        for title, rows in by_topic.items()
        if rows
    ]


_PEAK = "Process memory at most"


def cost_rows(comparison: Comparison) -> list[SimpleNamespace]:
    """Return what each run took, and what measuring it took."""
    sides = (comparison.before_cost, comparison.after_cost)
    columns: dict[str, Callable[[RunCost], str]] = {
        "Took": lambda cost: humane_duration(cost.work.duration_s or None),
        "Per step": lambda cost: humane_duration(
            cost.work.duration_s / cost.work.steps if cost.work.steps else None
        ),
        _PEAK: lambda cost: humane_bytes(cost.peak_bytes),
        "leakscope's share of the time": _share,
        "leakscope's own memory": lambda cost: humane_bytes(cost.overhead.peak_bytes),
        "Longest pause": lambda cost: humane_duration(cost.overhead.longest_pause_s),
        "Censuses": lambda cost: humane_number(cost.overhead.censuses),
        "Errors suppressed": lambda cost: humane_number(cost.problems),
    }
    rows = {name: [describe(cost) for cost in sides] for name, describe in columns.items()}
    exact = {_PEAK: [size_of(cost.peak_bytes).exact for cost in sides]}
    return [
        SimpleNamespace(name=name, cells=list(zip(texts, exact.get(name, ["", ""]), strict=True)))
        for name, texts in rows.items()
        if {*texts} != {UNKNOWN}
    ]


def _fact_row(fact: WorkFact) -> SimpleNamespace:
    state, label = "same", "alike"
    if fact.differs:
        state, label = ("differs", "differs") if fact.matters else ("aside", "differs, as it may")
    elif not fact.before or not fact.after:
        state, label = "unknown", "one run doesn't tell"
    before, after = fact.before or UNKNOWN, fact.after or UNKNOWN
    return SimpleNamespace(name=fact.name, before=before, after=after, state=state, label=label)


def _work_summary(facts: Sequence[WorkFact]) -> str:
    compared = sum(bool(fact.before and fact.after) for fact in facts)
    if differing := sum(fact.differs for fact in facts):
        return f"{differing} of {compared} differ"
    return f"all {compared} alike" if compared else "not reported by both"


def _share(cost: RunCost) -> str:
    share, budget = humane_share(cost.overhead.wall_share), humane_share(cost.overhead.budget)
    return f"{share} (budget {budget})" if is_over_budget(cost.overhead) else share


def value_rows(changes: Sequence[ValueChange]) -> list[SimpleNamespace]:
    """Return rows whose bars share one scale per device and unit."""
    tops: dict[tuple[str, str], float] = {}
    for change in changes:
        key = (change.device, change.unit)
        tops[key] = max(tops.get(key, 1.0), change.before_bytes or 0.0, change.after_bytes or 0.0)
    return [_value_row(change, tops[change.device, change.unit]) for change in changes]


def _value_row(change: ValueChange, top: float) -> SimpleNamespace:
    before, after = change.before_bytes, change.after_bytes
    delta = None if before is None or after is None else after - before
    is_significant = change.significant is not False and words.is_notable(before, after)
    return SimpleNamespace(
        name=words.metric_words(change.name).replace("_", " "),
        device=change.device,
        before=_cell(before, change.unit, top, "before"),
        after=_cell(after, change.unit, top, "after"),
        before_interval=humane_interval(change.before_interval) if change.before_interval else "",
        after_interval=humane_interval(change.after_interval) if change.after_interval else "",
        delta=size_of(delta, signed=True),
        delta_share=signed_share(delta / before) if delta is not None and before else "",
        direction=direction_of(delta) if is_significant else "",
        order=str(delta or 0),
        certain=words.significance_words(change),
    )


def _cell(amount: float | None, unit: str, top: float, side: str) -> Cell:
    cell = cell_of(amount, top, side)
    if not unit or amount is None:
        return cell
    return replace(cell, size=Size(humane_rate(amount, unit), cell.size.exact))


FEW = 16
"""Ranks of which each has a row at once; of more only those that changed most."""
MOST_ROWS = 512


def rank_table(comparison: Comparison) -> SimpleNamespace | None:
    """Return the ranks, None where neither run had several."""
    pairs = comparison.ranks
    if not pairs:
        return None
    rows = _process_rows(
        pairs, lambda pair: f"rank {pair.rank}", lambda rank: rank.peak_bytes, _rank_grows
    )
    odd = {"Before": comparison.before_odd_rank, "After": comparison.after_odd_rank}
    is_long, left = len(rows) > FEW, len(rows) - MOST_ROWS
    moved = sorted(rows, key=lambda row: -abs(float(row.order)))
    return SimpleNamespace(
        rows=moved[:FEW] if is_long else rows,
        others=rows[:MOST_ROWS] if is_long else [],
        sentences=[f"{side}: {rank.sentence}" for side, rank in odd.items() if rank is not None],
        left_out=f"{left:,} more, all in the JSON" if left > 0 else "",
    )


def worker_table(pairs: Sequence[WorkerPair]) -> SimpleNamespace | None:
    """Return the workers by their place, None where neither run had any."""
    if not pairs:
        return None
    rows = _process_rows(pairs, _worker_name, lambda worker: worker.pss_bytes, _worker_grows)
    return SimpleNamespace(rows=rows[:FEW], others=rows[FEW:MOST_ROWS], sentences=[], left_out="")


def _process_rows(
    pairs: Sequence[Any],
    name_of: Callable[[Any], str],
    size_in: Callable[[Any], int | None],
    grows_in: Callable[[Any], str],
) -> list[SimpleNamespace]:
    """Return one row a process; of each of the two runs a size, and what grows in it."""
    sides = [(pair.before, pair.after) for pair in pairs]
    sizes = [tuple(None if s is None else size_in(s) for s in both) for both in sides]
    top = max((size or 0 for both in sizes for size in both), default=0)
    rows = []
    for pair, (before, after) in zip(pairs, sizes, strict=True):
        delta = None if before is None or after is None else after - before
        rows.append(
            SimpleNamespace(
                name=name_of(pair),
                peaks=(size_of(before), size_of(after)),
                bars=(bar_of(before, top, "before"), bar_of(after, top, "after")),
                delta=size_of(delta, signed=True),
                direction=direction_of(delta),
                order=str(delta or 0),
                grows=(grows_in(pair.before), grows_in(pair.after)),
            )
        )
    return rows


def _rank_grows(rank: RankMemory | None) -> str:
    if rank is None:
        return "no such rank"
    rate = humane_rate(rank.bytes_per_unit, rank.unit) if rank.unit else ""
    return "; ".join(text for text in (rate, ", ".join(rank.grows)) if text) or "nothing grows"


def _worker_name(pair: WorkerPair) -> str:
    rank = f", rank {pair.rank}" if pair.rank else ""
    return f"worker {pair.worker} of loader {pair.loader}{rank}"


def _worker_grows(worker: WorkerMemory | None) -> str:
    if worker is None:
        return "no such worker"
    copied = [f"copies {name}" for name in worker.copies]
    return ", ".join([*worker.grows, *copied]) or "nothing grows"
