"""The page of many runs as plain values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from leakscope.model.runs import ListedRun, RunList
from leakscope.report.culprit import Piece, pieces_of
from leakscope.report.runs.words import (
    GROWTH_MEANING,
    PEAK_MEANING,
    SCALE_MEANING,
    WORST_FIRST,
    Bounds,
    bounds_by_run,
    ending_of,
    growth_words,
    label_of,
    lead_rate,
    others_words,
    summary_of,
)
from leakscope.report.sizes import (
    Size,
    humane_bytes,
    humane_duration,
    humane_moment,
    size_of,
)

_WIDTH, _HEIGHT = 120, 26


@dataclass(frozen=True)
class Spark:
    """A sparkline: the path of its line and of the area below, and what it says in words."""

    line: str
    area: str
    label: str


@dataclass(frozen=True)
class RunRow:
    """One run of the table."""

    name: str
    href: str
    script: str
    sub: str
    kind: str
    label: str
    ended: str
    verdict_order: str
    when: str
    when_order: str
    lead: str
    lead_is_code: bool
    rate: str
    remark: list[Piece]
    growth: str
    growth_order: str
    peak: Size
    peak_order: str
    duration: str
    duration_order: str
    spark: Spark | None


@dataclass(frozen=True)
class LinkView:
    """Another page that belongs to a list."""

    label: str
    href: str
    sentence: str


@dataclass(frozen=True)
class ListView:
    """The runs of a folder."""

    anchor: str
    title: str
    rows: list[RunRow]
    links: list[LinkView]
    others: str


@dataclass(frozen=True)
class RunsPage:
    """Everything that the page shows."""

    title: str
    headline: str
    lead_in: list[Piece]
    lists: list[ListView]
    growth_meaning: str = GROWTH_MEANING
    peak_meaning: str = PEAK_MEANING
    scale_meaning: str = SCALE_MEANING
    data: dict[str, Any] = field(default_factory=lambda: {"charts": {}, "copies": {}})


def runs_page(lists: Sequence[RunList], title: str, lead_in: str, beside: PurePath) -> RunsPage:
    """Return the page of some lists; its links are relative to the folder that it lies in."""
    return RunsPage(
        title=title,
        headline=summary_of([run for listed in lists for run in listed.runs]),
        lead_in=pieces_of(lead_in),
        lists=[
            ListView(
                anchor=f"list-{number}",
                title=listed.title or listed.directory,
                rows=[
                    _row(run, beside, bounds)
                    for run, bounds in zip(listed.runs, bounds_by_run(listed), strict=True)
                ],
                links=[
                    LinkView(k.label, href_of(k.page, beside), k.sentence) for k in listed.links
                ],
                others=others_words(listed),
            )
            for number, listed in enumerate(lists, 1)
        ],
    )


def _row(run: ListedRun, beside: PurePath, bounds: Bounds) -> RunRow:
    lead = run.lead
    return RunRow(
        name=run.name,
        href=href_of(run.page, beside) if run.page else "",
        script=run.script,
        sub=PurePath(run.script).name,
        kind=run.verdict.value if run.verdict else run.standing.value,
        label=label_of(run),
        ended=ending_of(run),
        verdict_order=str(WORST_FIRST.index(run.verdict) if run.verdict else len(WORST_FIRST)),
        when=humane_moment(run.created) if run.created > 0 else "–",
        when_order=str(run.created),
        lead=lead.name if lead else "",
        lead_is_code=lead is not None and lead.is_code,
        rate=lead_rate(lead),
        remark=pieces_of(run.remark or ("" if lead else run.headline)),
        growth=growth_words(run),
        growth_order=str(run.growth_bytes_per_unit or 0.0),
        peak=size_of(run.peak_bytes),
        peak_order=str(run.peak_bytes or 0),
        duration=humane_duration(run.duration_s),
        duration_order=str(run.duration_s or 0),
        spark=spark_of(run.course, bounds),
    )


def spark_of(course: Sequence[float], bounds: Bounds) -> Spark | None:
    """Return the sparkline of a course between two amounts, or None where it has no two points."""
    if len(course) < 2:
        return None
    low, top = bounds
    span = top - low or 1.0
    places = [
        (_WIDTH * i / (len(course) - 1), 1 + (_HEIGHT - 2) * (1 - max(0.0, y - low) / span))
        for i, y in enumerate(course)
    ]
    line = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    label = (
        f"Memory begins at {humane_bytes(course[0])}, peaks at {humane_bytes(max(course))} and "
        f"ends at {humane_bytes(course[-1])}"
    )
    return Spark(line, f"{line}L{_WIDTH} {_HEIGHT}L0 {_HEIGHT}Z", label)


def href_of(page: str, beside: PurePath) -> str:
    """Return the address of a page for a link from a page in a folder."""
    # A colon in the first part would be taken for a scheme; quoted, it is a name like any other.
    relative = os.path.relpath(page, beside)
    try:
        return quote(os.fsencode(relative), safe="/")
    except UnicodeEncodeError:  # no name of a file
        return ""
