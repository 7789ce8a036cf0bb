"""Culprits and findings as the page shows them: every number already in words."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from leakscope.analysis.ending import ENDINGS
from leakscope.model.known import Nature, Recognised
from leakscope.model.report import Culprit, Finding, Held, PhaseSpan, Remedy
from leakscope.report import wording
from leakscope.report.charts import SECONDS, draw_series, is_fitted
from leakscope.report.sizes import (
    Size,
    exact_bytes,
    exact_interval,
    humane_interval,
    humane_number,
    humane_share,
    size_of,
)
from leakscope.report.source import DiffLine, SourceView, diff_lines, excerpt_view
from leakscope.report.svg import Drawing
from leakscope.report.tables import Bar
from leakscope.report.way import Box, way_of

BRIEF = 240
"""Characters of what to change that stand beside the diff on the first screen."""


@dataclass(frozen=True)
class Piece:
    """A piece of running text; ``code`` where it stands in the program."""

    text: str
    code: bool = False


@dataclass(frozen=True)
class RemedyView:
    """What to change; ``raw_diff`` is what the copy button hands over."""

    title: str
    text: list[Piece]
    diff: list[DiffLine]
    raw_diff: str
    brief: list[Piece]
    """Its first sentences."""

    @property
    def is_shortened(self) -> bool:
        """Whether the first sentences are not all of it."""
        return self.brief != self.text


@dataclass(frozen=True)
class RateView:
    """A rate in words with its interval, and both exactly."""

    text: str
    exact: str
    interval: str
    exact_interval: str
    unit: str = ""
    unit_meaning: str = ""
    """Of a unit that isn't the reader's own word."""


@dataclass(frozen=True)
class HeldRow:
    """One kind of thing that a culprit holds."""

    type: str
    detail: str
    count: str
    size: Size
    bar: Bar


@dataclass(frozen=True)
class ChartView:
    """A small chart and what its hover read-out needs."""

    key: str
    drawing: Drawing
    unit: str
    axis: str
    points: list[tuple[float, float]]
    fitted: bool


@dataclass(frozen=True)
class CircleView:
    """Objects that refer to each other in a circle."""

    steps: list[str]
    count: str
    size: Size


@dataclass(frozen=True)
class KnownView:
    """What is known of a culprit; ``link`` is empty where it is no address of the web."""

    label: str
    is_fault: bool
    title: str
    cause: str
    link: str
    source: str


@dataclass(frozen=True)
class SuspectView:
    """What culprits and findings have in common on the page."""

    anchor: str
    rank: str
    name: str
    severity: str
    severity_label: str
    severity_meaning: str
    sentence: list[Piece]
    growth: str
    growth_label: str
    growth_term: str
    growth_text: str
    rate: RateView | None
    share: str
    share_label: str
    share_width: str
    total: Size | None
    held_on: str
    place: str
    defined_at: str
    fed_at: list[str]
    allocated_at: list[str]
    evidence: str
    falsifier: str
    falsifier_result: str
    remedy: RemedyView
    circles: list[CircleView] = field(default_factory=list)
    is_code: bool = False
    """Whether the name stands in the program."""
    forecast: str = ""
    known: KnownView | None = None


@dataclass(frozen=True)
class CulpritView(SuspectView):
    """A culprit's card."""

    type: str = ""
    kind: str = ""
    path: str = ""
    way: list[Box] = field(default_factory=list)
    also_named: list[str] = field(default_factory=list)
    also_held_by: list[str] = field(default_factory=list)
    alone: Size | None = None
    """What it holds alone, where others hold its contents too."""
    even_share: Size | None = None
    owner: str = ""
    items: str = ""
    holds: list[HeldRow] = field(default_factory=list)
    excerpts: list[SourceView] = field(default_factory=list)
    chart: ChartView | None = None
    signature: str = ""


def culprit_views(
    culprits: Iterable[Culprit], spans: Sequence[PhaseSpan] = ()
) -> list[CulpritView]:
    """Return the cards in rank order, each with an anchor of its own."""
    taken: set[str] = set()
    return [_culprit_view(c, anchor_of("culprit", c.signature, taken), spans) for c in culprits]


def finding_views(findings: Iterable[Finding]) -> list[SuspectView]:
    """Return the findings in rank order, each with an anchor of its own."""
    taken: set[str] = set()
    return [_finding_view(f, anchor_of("finding", f.signature, taken)) for f in findings]


def _culprit_view(culprit: Culprit, anchor: str, spans: Sequence[PhaseSpan]) -> CulpritView:
    return CulpritView(
        **_shared(culprit, anchor),
        name=culprit.name,
        is_code=True,
        sentence=pieces_of(culprit.sentence),
        place=wording.place_of(culprit),
        type=culprit.type,
        kind=culprit.kind,
        path=culprit.path,
        way=way_of(culprit),
        also_named=culprit.also_named,
        also_held_by=culprit.also_held_by,
        alone=None if culprit.exclusive_bytes is None else size_of(culprit.exclusive_bytes),
        even_share=None if culprit.leak_share_bytes is None else size_of(culprit.leak_share_bytes),
        owner=culprit.owner,
        items=_items(culprit),
        holds=_held_rows(culprit.holds),
        forecast=culprit.forecast.text if culprit.forecast else "",
        excerpts=[excerpt_view(excerpt) for excerpt in culprit.excerpts],
        chart=_chart(culprit, f"{anchor}-chart", spans),
        signature=culprit.signature,
    )


def known_view(known: Recognised | None) -> KnownView | None:
    """Return what a card says of a known culprit."""
    return (
        None
        if known is None
        else KnownView(
            wording.known_words(known),
            known.nature is Nature.FAULT,
            known.title,
            known.cause,
            known.link if wording.is_address(known.link) else "",
            "" if known.source == "leakscope" else known.source,
        )
    )


def _finding_view(finding: Finding, anchor: str) -> SuspectView:
    return SuspectView(
        **_shared(finding, anchor),
        name=finding.title,
        sentence=pieces_of(finding.text),
        circles=[
            CircleView(c.steps, humane_number(c.count), size_of(c.bytes)) for c in finding.circles
        ],
        place=wording.place_of(finding),
    )


def _shared(suspect: Culprit | Finding, anchor: str) -> dict[str, Any]:
    is_ending = isinstance(suspect, Finding) and suspect.kind in ENDINGS
    # What lies outside the process, or grows by no part of it, is no share of its growth.
    has_share = isinstance(suspect, Culprit) or (suspect.share > 0 and not is_ending)
    return {
        "anchor": anchor,
        "rank": str(suspect.rank),
        "severity": suspect.severity.value,
        "severity_label": wording.SEVERITIES[suspect.severity],
        "severity_meaning": wording.SEVERITY_MEANINGS[suspect.severity],
        "growth": suspect.growth,
        "growth_label": "" if is_ending else wording.GROWTHS.get(suspect.growth, suspect.growth),
        "growth_term": wording.TERMS.get(suspect.growth, ""),
        "growth_text": wording.growth_words(
            suspect.growth,
            suspect.phase,
            suspect.unit,
            falls_back=not isinstance(suspect, Culprit) or suspect.falls_back,
        ),
        "rate": _rate(suspect),
        "share": humane_share(suspect.share) if has_share else "",
        "share_label": wording.SHARES.get(suspect.growth, "Share"),
        "share_width": percent(suspect.share),
        "total": size_of(suspect.total_bytes) if suspect.total_bytes else None,
        "held_on": _held_on(suspect),
        "defined_at": suspect.defined_at or "",
        "fed_at": [*suspect.fed_at],
        "allocated_at": [*suspect.allocated_at],
        "evidence": wording.evidence(suspect),
        "falsifier": suspect.falsifier.text if suspect.falsifier else "",
        "falsifier_result": wording.tried_words(suspect.falsifier),
        "remedy": remedy_view(suspect.remedy),
        "known": known_view(suspect.known),
    }


def remedy_view(remedy: Remedy) -> RemedyView:
    """Return what to change, its code set apart and its diff in colours."""
    return RemedyView(
        title=remedy.title,
        text=pieces_of(remedy.text),
        diff=diff_lines(remedy.diff),
        raw_diff=remedy.diff or "",
        brief=pieces_of(
            first_sentences(remedy.text if remedy.diff else wording.what_to_do(remedy.text), BRIEF)
        ),
    )


def first_sentences(text: str, most: int) -> str:
    """Return as many whole sentences as fit into so many characters; the first in any case."""
    whole = wording.sentence_ends(text)
    return text[: max([end for end in whole if end <= most], default=whole[0])]


def pieces_of(text: str) -> list[Piece]:
    """Return running text cut at its backticks: what they enclose is code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return [Piece(text)]
    return [Piece(part, code=i % 2 == 1) for i, part in enumerate(parts) if part]


def percent(share: float) -> str:
    """Return a share as a CSS length between 0 and 100 %."""
    return f"{100 * min(1.0, max(0.0, share if share == share else 0.0)):.2f}%"


def _rate(suspect: Culprit | Finding) -> RateView | None:
    if not suspect.unit:
        return None
    in_workers = isinstance(suspect, Culprit) and suspect.workers
    return RateView(
        text=wording.rate_words(suspect),
        exact=f"{exact_bytes(suspect.bytes_per_unit)} per {suspect.unit}",
        interval=humane_interval(suspect.interval),
        exact_interval=f"{exact_interval(suspect.interval)} per {suspect.unit}",
        unit=suspect.unit,
        unit_meaning=wording.TERMS["pass"] if in_workers and suspect.unit == "pass" else "",
    )


def _held_on(suspect: Culprit | Finding) -> str:
    """Return where it held what is told: of a worker's only what its last census saw is known."""
    in_worker = isinstance(suspect, Culprit) and suspect.workers
    return f"on {suspect.device}{', in one worker when last looked at' if in_worker else ''}"


def _items(culprit: Culprit) -> str:
    if culprit.items_per_unit is None:
        return ""
    count = humane_number(culprit.items_per_unit)
    return f"{count} {'item' if count == '1' else 'items'} per {culprit.unit}"


def _held_rows(holds: Sequence[Held]) -> list[HeldRow]:
    most = max((held.bytes for held in holds), default=0) or 1
    return [
        HeldRow(
            type=held.type,
            detail=held.detail,
            count=humane_number(held.count),
            size=size_of(held.bytes),
            bar=Bar("0", percent(held.bytes / most)),
        )
        for held in holds
    ]


def _chart(culprit: Culprit, key: str, spans: Sequence[PhaseSpan]) -> ChartView | None:
    if not culprit.chart:
        return None
    return ChartView(
        key=key,
        drawing=draw_series(culprit, key, spans),
        axis="time in the run" if culprit.chart_unit == SECONDS else culprit.chart_unit,
        unit="clock" if culprit.chart_unit == SECONDS else culprit.chart_unit or culprit.unit,
        points=[(point.x, point.y) for point in culprit.chart],
        fitted=is_fitted(culprit),
    )


def anchor_of(kind: str, signature: str, taken: set[str]) -> str:
    """Return an element's name on the page, the same each time; ``taken`` takes it in."""
    name = signature if re.fullmatch(r"[\w.-]{1,80}", signature, re.ASCII) else _digest(signature)
    anchor, number = f"{kind}-{name}", 1
    while anchor in taken:
        number += 1
        anchor = f"{kind}-{name}-{number}"
    taken.add(anchor)
    return anchor


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
