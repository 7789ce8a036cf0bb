"""Whether both runs did the same work, and what each of them cost, as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leakscope.model.comparison import Comparison, RunCost, Topic, WorkFact
from leakscope.model.sizes import plural
from leakscope.report.sizes import (
    UNKNOWN,
    humane_bytes,
    humane_duration,
    humane_number,
    humane_share,
    size_of,
)

TOPICS = {
    Topic.WORK: "Work done",
    Topic.PROGRAM: "Program and arguments",
    Topic.ENVIRONMENT: "Versions and machine",
    Topic.MEASURING: "How it was measured",
}


@dataclass(frozen=True)
class FactRow:
    """One fact of both runs."""

    name: str
    before: str
    after: str
    state: str
    """``same``, ``differs``, ``aside`` (differs, and need not be alike) or ``unknown``."""
    label: str


@dataclass(frozen=True)
class FactTable:
    """The facts of one topic."""

    title: str
    summary: str
    differs: bool
    rows: list[FactRow]


@dataclass(frozen=True)
class CostRow:
    """One thing that each run cost."""

    name: str
    before: str
    after: str
    exact_before: str = ""
    exact_after: str = ""


def fact_tables(facts: Sequence[WorkFact]) -> list[FactTable]:
    """Return a table per topic, what differs first in each."""
    tables = []
    for topic, title in TOPICS.items():
        mine = [fact for fact in facts if fact.topic is topic]
        if not mine:
            continue
        differing = [fact for fact in mine if fact.differs]
        rows = [_row(fact) for fact in sorted(mine, key=lambda fact: not fact.differs)]
        tables.append(FactTable(title, _summary(mine, differing), bool(differing), rows))
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


def cost_rows(comparison: Comparison) -> list[CostRow]:
    """Return what each run took, and what measuring it took."""
    sides = (comparison.before_cost, comparison.after_cost)
    rows = [
        _cost("Took", sides, lambda cost: humane_duration(cost.work.duration_s or None)),
        _cost("Per step", sides, _step_time),
        CostRow(
            "Process memory at most",
            *(humane_bytes(cost.peak_bytes) for cost in sides),
            *(size_of(cost.peak_bytes).exact for cost in sides),
        ),
        _cost("leakscope's share of the time", sides, _share),
        _cost("leakscope's own memory", sides, lambda c: humane_bytes(c.overhead.peak_bytes)),
        _cost("Longest pause", sides, lambda c: humane_duration(c.overhead.longest_pause_s)),
        _cost("Censuses", sides, lambda c: humane_number(c.overhead.censuses)),
        _cost("Errors suppressed", sides, lambda c: humane_number(c.problems)),
    ]
    return [row for row in rows if {row.before, row.after} != {UNKNOWN}]


def _row(fact: WorkFact) -> FactRow:
    state, label = "same", "alike"
    if fact.differs:
        state, label = ("differs", "differs") if fact.matters else ("aside", "differs, as it may")
    elif not fact.before or not fact.after:
        state, label = "unknown", "one run doesn't tell"
    return FactRow(fact.name, fact.before or UNKNOWN, fact.after or UNKNOWN, state, label)


def _summary(facts: Sequence[WorkFact], differing: Sequence[WorkFact]) -> str:
    compared = [fact for fact in facts if fact.before and fact.after]
    if not differing:
        return f"all {len(compared)} alike" if compared else "not told by both"
    return f"{len(differing)} of {len(compared)} differ"


def _cost(name: str, sides: tuple[RunCost, RunCost], told: Callable[[RunCost], str]) -> CostRow:
    return CostRow(name, *(told(cost) for cost in sides))


def _step_time(cost: RunCost) -> str:
    steps = cost.work.steps
    return humane_duration(cost.work.duration_s / steps) if steps else UNKNOWN


def _share(cost: RunCost) -> str:
    budget = cost.overhead.budget
    over = budget is not None and cost.overhead.wall_share > budget
    share = humane_share(cost.overhead.wall_share)
    return f"{share} (budget {humane_share(budget)})" if over else share
