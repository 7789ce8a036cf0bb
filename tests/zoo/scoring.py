"""Holds a report against what is true of the program."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from corpus import Case, feeding_lines
from running import Outcome
from truth import Leak

WITHIN = 3
AS_GREAT = 0.8
"""A leak of this part of the greatest one's size may come first as well."""
RATE_TOLERANCE = 0.1


@dataclass(frozen=True)
class LeakScore:
    """How well one leak was found."""

    name: str
    rank: int | None
    """Its place among the accusations, from 1; none if it was missed."""
    line: bool
    """Whether the first line given is one that feeds it."""
    rate_error: float | None
    """Relative; none where the leak was missed, or the unit is none in which the truth is known."""
    summary: str
    """What the report says of it."""
    size: float = 0.0
    """What it truly keeps, in a unit that all leaks of the program share; 0 where unknown."""


@dataclass(frozen=True)
class Score:
    """How well one program was judged."""

    name: str
    about: str
    leaking: bool
    verdict: str
    verdict_right: bool
    headline: str
    leaks: list[LeakScore] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Accusations of what is no leak."""
    explained: float | None = None
    """Of the growth of host memory, by all terms of the ledger."""
    named: float | None = None
    """Of it, what culprits hold."""
    seconds: float = 0.0
    measuring_share: float = 0.0
    fault: str = ""

    @property
    def inconclusive(self) -> bool:
        return self.verdict == "inconclusive"

    @property
    def first(self) -> LeakScore | None:
        """The leak that comes first, if it is the greatest or about as great."""
        least = AS_GREAT * self.leaks[0].size if self.leaks else 0.0
        return next((leak for leak in self.leaks if leak.rank == 1 and leak.size >= least), None)

    @property
    def first_right(self) -> bool:
        return self.first is not None

    @property
    def line_right(self) -> bool:
        return self.first is not None and self.first.line

    @property
    def rate_right(self) -> bool:
        error = self.first.rate_error if self.first is not None else None
        return error is not None and error <= RATE_TOLERANCE

    @property
    def right(self) -> bool:
        """Whether all that the report says first is true."""
        if self.fault or not self.verdict_right or self.wrong:
            return False
        return not self.leaking or self.inconclusive or self.line_right


def accusations(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the report blames, culprits before findings, without the notes."""
    finding = [*report["culprits"], *report["findings"]]
    return [item for item in finding if item["severity"] != "note"]


def called(accusation: dict[str, Any]) -> str:
    return str(accusation.get("name") or accusation["kind"])


def names_of(accusation: dict[str, Any]) -> set[str]:
    """Return what an accusation counts as: growth without a name that names the library which
    allocates it is ``native`` too.
    """
    names_library = accusation.get("title", "").startswith("Native memory grows in ")
    return {called(accusation), *(["native"] if names_library else [])}


def share_of_growth(report: dict[str, Any], share: str) -> float | None:
    """Return a share of the host memory's growth; none where little grew."""
    shares = {item["metric"]: item[share] for item in report["growth"]}
    return next((shares[name] for name in ("pss", "rss") if shares.get(name) is not None), None)


def score(case: Case, outcome: Outcome) -> Score:
    """Return how well the report tells what is true of a case."""
    leaking = bool(case.leaks)
    if outcome.fault:
        about, seconds = case.about(), outcome.seconds
        return Score(
            case.name, about, leaking, "none", False, "", seconds=seconds, fault=outcome.fault
        )
    report = outcome.report
    found = accusations(report)
    known = {name for leak in case.leaks for name in (*leak.names, *leak.also)}
    overhead = report["overhead"]
    return Score(
        case.name,
        case.about(),
        leaking,
        report["verdict"],
        report["verdict"] in case.truth.verdicts,
        report["headline"],
        [
            score_leak(case, leak, found, kept)
            for leak, kept in zip(case.leaks, outcome.kept, strict=True)
        ],
        [called(item) for item in found if not known & names_of(item)],
        share_of_growth(report, "explained_share"),
        share_of_growth(report, "named_share"),
        outcome.seconds,
        overhead["wall_share"] or 0.0,
    )


def score_leak(
    case: Case, leak: Leak, found: list[dict[str, Any]], kept: dict[str, float]
) -> LeakScore:
    """Return how well one leak was found among the accusations."""
    size = next(iter(kept.values()), 0.0)
    for rank, item in enumerate(found, 1):
        if names_of(item) & set(leak.names) and item["growth"] == leak.growth:
            truth, rate = kept.get(item["unit"]), item["bytes_per_unit"]
            error = abs(rate - truth) / truth if truth and rate is not None else None
            lines = feeding_lines(case.program, leak)
            places = [place.rpartition(":") for place in item["fed_at"]]
            fed = [int(line) if file.endswith(case.program.name) else 0 for file, _, line in places]
            text = f"{rate or 0:,.0f} bytes per {item['unit']}, truly {truth or 0:,.0f}"
            has_line = bool(fed) and fed[0] in lines
            return LeakScore(called(item), rank, has_line, error, text, size)
    return LeakScore(leak.names[0], None, False, None, "not found", size)


@dataclass(frozen=True)
class Summary:
    """The figures of many programs."""

    leaking: int
    healthy: int
    first_right: int
    line_right: int
    rate_right: int
    leaks: int
    within: int
    explained: float
    named: float
    false_alarms: int
    also_wrong: int
    inconclusive: int
    faults: int
    seconds: float
    measuring_share: float


def summarise(scores: list[Score]) -> Summary:
    """Return the counts and medians; a case whose verdict may be inconclusive counts if it is."""
    leaking = [item for item in scores if item.leaking]
    judged = [item for item in leaking if not (item.inconclusive and item.verdict_right)]
    explained = [item.explained for item in judged if item.explained is not None]
    named = [item.named for item in judged if item.named is not None]
    every = [leak for item in judged for leak in item.leaks]
    return Summary(
        leaking=len(judged),
        healthy=len(scores) - len(leaking),
        first_right=sum(item.first_right for item in judged),
        line_right=sum(item.line_right for item in judged),
        rate_right=sum(item.rate_right for item in judged),
        leaks=len(every),
        within=sum(leak.rank is not None and leak.rank <= WITHIN for leak in every),
        explained=statistics.median(explained) if explained else 0.0,
        named=statistics.median(named) if named else 0.0,
        false_alarms=sum(bool(item.wrong) for item in scores if not item.leaking),
        also_wrong=sum(bool(item.wrong) for item in judged),
        inconclusive=sum(item.inconclusive for item in scores),
        faults=sum(bool(item.fault) for item in scores),
        seconds=sum(item.seconds for item in scores),
        measuring_share=statistics.median([item.measuring_share for item in scores] or [0.0]),
    )
