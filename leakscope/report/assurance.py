"""How far the answer can be trusted, in a line under it: each part leads to its evidence."""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.model.report import Culprit, Finding, Report
from leakscope.model.sizes import plural
from leakscope.report import wording
from leakscope.report.ledger import ledger_view, unexplained_of
from leakscope.report.measuring import is_over_budget, precise_share
from leakscope.report.sizes import humane_interval, humane_share

RATHER_SURE = 0.7
"""A verdict less sure than this is marked."""
MUCH_UNEXPLAINED = 0.25


@dataclass(frozen=True)
class Assurance:
    """One thing that speaks for or against the answer; ``link`` is where on the page it is told."""

    label: str
    value: str
    link: str
    worries: bool = False


@dataclass(frozen=True)
class AssuranceView:
    """All of them, and what would prove the answer wrong."""

    parts: list[Assurance]
    falsifier: str
    tried: str


def assurance_view(report: Report, anchor: str) -> AssuranceView:
    """Return what speaks for the answer; ``anchor`` is that of the card of who leads."""
    lead = wording.lead_of(report)
    falsifier = lead.falsifier if lead is not None else None
    parts = [*_of_lead(lead, anchor), *_of_ledger(report), *_of_measuring(report)]
    return AssuranceView(
        parts=[part for part in parts if part.value],
        falsifier=falsifier.text if falsifier else "",
        tried=(falsifier.result or "not tried in this run") if falsifier else "",
    )


def _of_lead(lead: Culprit | Finding | None, anchor: str) -> list[Assurance]:
    if lead is None:
        return []
    sure = f"{wording.confidence_words(lead.confidence)} ({humane_share(lead.confidence)})"
    parts = [Assurance("How sure", sure, anchor, worries=lead.confidence < RATHER_SURE)]
    if lead.unit:
        words = f"{humane_interval(lead.interval)} per {lead.unit}"
        parts.append(Assurance("95 % interval", words, anchor))
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
    parts = [Assurance("Measuring cost", cost, "measuring", worries=over)]
    if report.errors:
        parts.append(
            Assurance("Went wrong", plural(len(report.errors), "thing"), "notices", worries=True)
        )
    return parts
