"""The tables of a comparison: whether both runs did the same work, amounts of memory, ranks and
workers, cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from leakscope.model.comparison import Comparison, RunCost, Topic, ValueChange, WorkerPair, WorkFact
from leakscope.model.report import RankMemory, WorkerMemory
from leakscope.model.text import plural
from leakscope.report import words
from leakscope.report.tables import Cell, bar_of, cell_of, direction_of
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

TOPICS = {
    Topic.WORK: "Work done",
    Topic.PROGRAM: "Program and arguments",
    Topic.ENVIRONMENT: "Versions and machine",
    Topic.MEASURING: "How it was measured",
}


def fact_tables(facts: Sequence[WorkFact]) -> list[SimpleNamespace]:
    """Return a table per topic, what differs first in each."""
    tables = []
    for topic, title in TOPICS.items():
        mine = [fact for fact in facts if fact.topic is topic]
        if not mine:
            continue
        differing = [fact for fact in mine if fact.differs]
        rows = [_fact_row(fact) for fact in sorted(mine, key=lambda fact: not fact.differs)]
        tables.append(
            SimpleNamespace(
                title=title,
                summary=_work_summary(mine, differing),
                differs=bool(differing),
                rows=rows,
            )
        )
    return tables


def same_work_words(facts: Sequence[WorkFact]) -> str:
    """Return what was compared and found alike: ``250 steps, 5 epochs, 650 batches, …``."""
    work = [f for f in facts if f.topic is Topic.WORK and f.matters and not f.differs]
    counts = [_counted(fact) for fact in work if fact.after not in {"0", ""}]
    others = [f for f in facts if f.topic is Topic.ENVIRONMENT and not f.differs and f.before]
    versions = [f"{plural(len(others), 'fact')} of the environment"] if others else []
    return ", ".join([*counts, *versions])


def _counted(fact: WorkFact) -> str:
    """Return ``5 epochs``, and ``1 process`` where the name is that of several."""
    singular = {"steps": "step", "epochs": "epoch", "validations": "validation",
                "processes": "process", "ranks": "rank"}  # fmt: skip
    return f"{fact.after} {singular.get(fact.name, fact.name) if fact.after == '1' else fact.name}"


_PEAK = "Process memory at most"


def cost_rows(comparison: Comparison) -> list[SimpleNamespace]:
    """Return what each run took, and what measuring it took."""
    sides = (comparison.before_cost, comparison.after_cost)
    columns: dict[str, Callable[[RunCost], str]] = {
        "Took": lambda cost: humane_duration(cost.work.duration_s or None),
        "Per step": _step_time,
        _PEAK: lambda cost: humane_bytes(cost.peak_bytes),
        "leakscope's share of the time": _share,
        "leakscope's own memory": lambda cost: humane_bytes(cost.overhead.peak_bytes),
        "Longest pause": lambda cost: humane_duration(cost.overhead.longest_pause_s),
        "Censuses": lambda cost: humane_number(cost.overhead.censuses),
        "Errors suppressed": lambda cost: humane_number(cost.problems),
    }
    exact = [size_of(cost.peak_bytes).exact for cost in sides]
    rows = [
        SimpleNamespace(
            name=name,
            before=describe(sides[0]),
            after=describe(sides[1]),
            exact_before=exact[0] if name == _PEAK else "",
            exact_after=exact[1] if name == _PEAK else "",
        )
        for name, describe in columns.items()
    ]
    return [row for row in rows if {row.before, row.after} != {UNKNOWN}]


def _fact_row(fact: WorkFact) -> SimpleNamespace:
    state, label = "same", "alike"
    if fact.differs:
        state, label = ("differs", "differs") if fact.matters else ("aside", "differs, as it may")
    elif not fact.before or not fact.after:
        state, label = "unknown", "one run doesn't tell"
    return SimpleNamespace(
        name=fact.name,
        before=fact.before or UNKNOWN,
        after=fact.after or UNKNOWN,
        state=state,
        label=label,
    )


def _work_summary(facts: Sequence[WorkFact], differing: Sequence[WorkFact]) -> str:
    compared = [fact for fact in facts if fact.before and fact.after]
    if not differing:
        return f"all {len(compared)} alike" if compared else "not reported by both"
    return f"{len(differing)} of {len(compared)} differ"


def _step_time(cost: RunCost) -> str:
    steps = cost.work.steps
    return humane_duration(cost.work.duration_s / steps) if steps else UNKNOWN


def _share(cost: RunCost) -> str:
    budget = cost.overhead.budget
    over = budget is not None and cost.overhead.wall_share > budget
    share = humane_share(cost.overhead.wall_share)
    return f"{share} (budget {humane_share(budget)})" if over else share


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
    sentences = [
        f"{side}: {odd.sentence}"
        for side, odd in (
            ("Before", comparison.before_odd_rank), ("After", comparison.after_odd_rank)
        )
        if odd is not None
    ]  # fmt: skip
    if len(rows) <= FEW:
        return SimpleNamespace(rows=rows, others=[], sentences=sentences, left_out="")
    moved = sorted(rows, key=lambda row: -abs(float(row.order)))[:FEW]
    left = len(rows) - MOST_ROWS
    return SimpleNamespace(
        rows=moved,
        others=rows[:MOST_ROWS],
        sentences=sentences,
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
