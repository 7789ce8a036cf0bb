"""How far the answer can be trusted, in a line under it: each part leads to its evidence."""

from __future__ import annotations

import math
from dataclasses import dataclass

from leakscope.model import gauge
from leakscope.model.report import Culprit, Falsifier, Finding, Report, RunVerdict
from leakscope.model.sizes import plural
from leakscope.report import wording
from leakscope.report.ledger import ledger_view, unexplained_of
from leakscope.report.measuring import in_longer_runs, is_over_budget, precise_share
from leakscope.report.sizes import exact_interval, humane_interval, humane_rate

RESIDENT = {gauge.RSS, gauge.PSS}
FEW_READINGS = 5
"""Growth through fewer readings than this is worth a second look."""
MUCH_UNEXPLAINED = 0.25
WORTH_ASKING = 1 << 20
"""From this rate of child processes on, a reader asks why it is no leak."""
EVEN = 0.8
"""A rate is even whose interval reaches no lower than this part of it."""


@dataclass(frozen=True)
class Assurance:
    """One thing that speaks for or against the answer; ``link`` is where on the page it is told."""

    label: str
    value: str
    link: str
    worries: bool = False
    exact: str = ""


@dataclass(frozen=True)
class AssuranceView:
    """All of them, and what would prove the answer wrong; ``tried`` is what came of trying that."""

    parts: list[Assurance]
    falsifier: str
    tried: str


def assurance_view(report: Report, anchor: str) -> AssuranceView:
    """Return what speaks for the answer; ``anchor`` is that of the card of who leads."""
    lead = wording.lead_of(report)
    falsifier = lead.falsifier if lead is not None else _of_clean(report)
    parts = [*_of_lead(lead, anchor), *_of_ledger(report), *_of_measuring(report)]
    return AssuranceView(
        parts=[part for part in parts if part.value],
        falsifier=falsifier.text if falsifier else "",
        tried=wording.tried_words(falsifier) if lead is not None else "",
    )


def noise_words(report: Report) -> str:
    """Return why a clean run's rates accuse nothing; empty where none is told."""
    if report.verdict is not RunVerdict.CLEAN or not report.growth:
        return ""
    text = "Rates so small, so uneven or seen so seldom are noise, warm-up or caches that fill."
    children = next((g for g in report.growth if g.metric == gauge.CHILDREN_PSS), None)
    if not report.workers or children is None or children.bytes_per_unit < WORTH_ASKING:
        return text
    if children.interval[0] < EVEN * children.bytes_per_unit:
        text += " That of child processes is as uneven as where a cache fills or pages are copied."
    return (
        f"{text} Each DataLoader worker was judged by its own recording: nothing in it is a leak."
    )


def _of_clean(report: Report) -> Falsifier | None:
    """Return what a run without a suspect can't have seen: nameless growth within the noise."""
    told = next((g for g in report.growth if g.metric in RESIDENT), None)
    if (
        report.verdict is not RunVerdict.CLEAN
        or told is None
        or not 0 < told.interval[1] < math.inf
    ):
        return None
    most = humane_rate(told.interval[1], told.unit)
    return Falsifier(
        text=f"Growth that has no name and is slower than {most} lies within the noise of this "
        "run. A longer run would show it."
    )


def _of_lead(lead: Culprit | Finding | None, anchor: str) -> list[Assurance]:
    if lead is None:
        return []
    few = 0 < lead.readings < FEW_READINGS
    parts = [Assurance("Evidence", wording.evidence(lead), anchor, worries=few)]
    if lead.unit:
        words = f"{humane_interval(lead.interval)} per {lead.unit}"
        exact = f"{exact_interval(lead.interval)} per {lead.unit}"
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
    longer = in_longer_runs(overhead)
    exact = f"The first looks are taken in any run: {longer}." if longer else ""
    parts = [Assurance("Measuring cost", cost, "measuring", worries=over, exact=exact)]
    if report.errors:
        parts.append(
            Assurance("Went wrong", plural(len(report.errors), "thing"), "notices", worries=True)
        )
    return parts
