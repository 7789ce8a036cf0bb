"""What a list needs of each run, taken from its ``report.json`` without reading all of it; and its
comparison pages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec

from leakscope.analysis.processes.endings import in_a_sentence
from leakscope.model.documents import COURSE_POINTS, Lead, ListedRun, RunLink, RunStatus
from leakscope.model.gauge import CHILDREN_PSS, PSS
from leakscope.model.report import REPORT_SCHEMA_VERSION, RunVerdict, Severity
from leakscope.report.text import peaks_of

_PLAUSIBLE = 1e18
"""No machine has so many bytes; what says so is no reading."""


_Points = list[tuple[float, float]]
"""Seconds and bytes."""


class UnreadableReportError(Exception):
    """A ``report.json`` can't be read; says why, as the end of a sentence."""


class _Suspect(msgspec.Struct):
    severity: Severity
    name: str = ""
    title: str = ""
    bytes_per_unit: float | None = None
    unit: str = ""
    workers: int = 0
    signature: str = ""


class _GrowthFields(msgspec.Struct):
    metric: str = ""
    bytes_per_unit: float | None = None
    unit: str = ""
    interval: tuple[float | None, float | None] | None = None

    @property
    def is_steady(self) -> bool:
        """Whether it surely rises, or surely falls."""
        low, high = self.interval or (None, None)
        return low is None or high is None or not low < 0 < high


class _Line(msgspec.Struct):
    metric: str = ""
    points: list[tuple[float | None, float | None]] = []


class _Rank(msgspec.Struct):
    peak_bytes: float | None = None
    bytes_per_unit: float = 0.0
    unit: str = ""
    grows: list[str] = []


class _Timeline(msgspec.Struct):
    lines: list[_Line] = []


class _Facts(msgspec.Struct):
    script: str = ""
    created: float | None = None
    ended: str = ""
    environment: dict[str, Any] = {}


class _Work(msgspec.Struct):
    duration_s: float | None = None


class _ReportHead(msgspec.Struct):
    """The part of a report that a list needs; the decoder passes over the rest."""

    schema_version: int
    verdict: RunVerdict
    headline: str
    run: _Facts
    work: _Work
    growth: list[_GrowthFields] = []
    culprits: list[_Suspect] = []
    findings: list[_Suspect] = []
    timeline: _Timeline | None = None
    ranks: list[_Rank] = []
    out_of_memory: dict[str, Any] | None = None


class _Version(msgspec.Struct):
    schema_version: int


def read_listed(report: Path, *, name: str, path: str, page: str) -> ListedRun:
    """Return what a list says of the run that a ``report.json`` is about.

    Raises:
        UnreadableReportError: it is damaged, or a newer leakscope wrote it.

    """
    seen = _read_head(report)
    points = _memory(seen.timeline.lines) if seen.timeline else []
    growth, unit = _growth(seen.growth)
    if growth is not None:
        growing = [r.bytes_per_unit for r in seen.ranks if r.grows and r.unit == unit]
        growth = max([growth, *growing])
    peaks = [r.peak_bytes for r in seen.ranks if r.peak_bytes is not None]
    grave = _grave(seen)
    return ListedRun(
        name=name,
        path=path,
        standing=RunStatus.REPORTED,
        page=page,
        verdict=seen.verdict,
        headline=seen.headline,
        ran_out_of_memory=seen.out_of_memory is not None,
        ended=in_a_sentence(seen.run.ended),
        script=seen.run.script,
        created=seen.run.created or 0.0,
        duration_s=seen.work.duration_s,
        lead=grave[0] if grave else None,
        others=grave[1:],
        commit=str(seen.run.environment.get("commit", ""))[:12],
        growth_bytes_per_unit=growth,
        growth_unit=unit,
        peak_bytes=max([*points, *peaks], default=None),
        has_children=seen.timeline is not None and _has_children(seen.timeline.lines),
        course=peaks_of(points, COURSE_POINTS),
    )


def _read_head(report: Path) -> _ReportHead:
    try:
        data = report.read_bytes()
        if _decoded(data, _Version).schema_version > REPORT_SCHEMA_VERSION:
            raise UnreadableReportError("was written by a newer leakscope; update this one")
        seen = _decoded(data, _ReportHead)
    except OSError as fault:
        raise UnreadableReportError(f"can't be read: {fault.strerror or fault}") from fault
    except (ValueError, RecursionError) as fault:
        raise UnreadableReportError(f"is damaged: {fault}") from fault
    assert isinstance(seen, _ReportHead)
    return seen


def _decoded(data: bytes, kind: type) -> Any:
    return msgspec.json.decode(data, type=kind)


_MOST_SUSPECTS = 20


def _grave(seen: _ReportHead) -> list[Lead]:
    """Return what makes a run a leak, the gravest first."""
    named = [(suspect, True) for suspect in seen.culprits]
    titled = [(suspect, False) for suspect in seen.findings]
    return [
        Lead(
            name=suspect.name or suspect.title,
            bytes_per_unit=suspect.bytes_per_unit or 0.0,
            unit=suspect.unit,
            is_code=is_code,
            workers=suspect.workers,
            signature=suspect.signature,
        )
        for suspect, is_code in named + titled
        if suspect.severity is not Severity.NOTE
    ][:_MOST_SUSPECTS]


def _growth(growth: list[_GrowthFields]) -> tuple[float | None, str]:
    """Return the rate of the first gauge that was judged, with children's added, and its unit: 0
    where it may as well have fallen as risen.
    """
    if not growth:
        return None, ""
    first = growth[0]
    children = next((g for g in growth if g.metric == CHILDREN_PSS and g.unit == first.unit), None)
    added = children.bytes_per_unit if children is not None and children.is_steady else None
    if not first.is_steady and not added:
        return 0.0, first.unit
    if first.bytes_per_unit is None:
        return None, first.unit
    return first.bytes_per_unit + (added or 0.0), first.unit


def _memory(lines: list[_Line]) -> list[float]:
    """Return memory over the run by the first line that has any, with that of child processes."""
    known = [(line.metric, _plausible(line.points)) for line in lines]
    first = next((points for _, points in known if any(y > 0 for _, y in points)), [])
    by_metric = dict(known)
    beyond = _children_beyond(by_metric.get(CHILDREN_PSS, []), by_metric.get(PSS, []), first)
    times = [at for at, _ in beyond]
    added = [0.0, *(size for _, size in beyond)]
    return [size + added[bisect_right(times, at)] for at, size in first]


def _has_children(lines: list[_Line]) -> bool:
    return any(
        y > 0 for line in lines if line.metric == CHILDREN_PSS for _, y in _plausible(line.points)
    )


def _children_beyond(children: _Points, shares: _Points, own: _Points) -> _Points:
    """Return what child processes add from each moment on at which they were read.

    Pages that they share with this process lie in its own memory already: where its proportional
    memory was read together with theirs, only what both come to beyond that is added.
    """
    shared, times = dict(shares), [at for at, _ in own]
    found = []
    for at, size in children:
        place = bisect_right(times, at) - 1
        is_known = at in shared and place >= 0
        together = shared[at] + size - own[place][1] if is_known else size
        found.append((at, min(max(together, 0.0), size)))
    return found


def _plausible(points: list[tuple[float | None, float | None]]) -> _Points:
    known = [(x, y) for x, y in points if x is not None and y is not None and 0 <= y < _PLAUSIBLE]
    return sorted(known)


MOST_PAGES = 20
"""More aren't linked: the newest of them are."""
_HEAD = 8192
"""Bytes of a page, in which it says what it is."""
_MOST_LOOKED_AT = 500


def comparisons_in(folders: Sequence[Path]) -> list[RunLink]:
    """Return the comparison pages that lie in some folders, the newest first."""
    pages = [page for folder in folders for page in _pages_in(folder)]
    found = [
        (made, link)
        for made, page in sorted(pages, reverse=True)
        if (link := _link_of(page)) is not None
    ]
    return [link for _, link in found[:MOST_PAGES]]


def _pages_in(folder: Path) -> Iterable[tuple[float, Path]]:
    try:
        return [
            (page.stat().st_mtime, page) for page in sorted(folder.glob("*.html")) if page.is_file()
        ][:_MOST_LOOKED_AT]
    except OSError:
        return []


def _link_of(page: Path) -> RunLink | None:
    """Return the link to a page, None where it is no comparison of ours."""
    try:
        with page.open("rb") as stream:
            head = stream.read(_HEAD).decode("utf-8", "replace")
    except OSError:
        return None
    parsed = _PageHead()
    try:
        parsed.feed(head)
    except AssertionError:  # how the parser refuses what is no markup
        return None
    runs = parsed.metas.get("leakscope-comparison", "")
    if parsed.metas.get("generator") != "leakscope" or not runs:
        return None
    return RunLink(
        label=f"{runs}, compared", page=str(page), sentence=parsed.metas.get("description", "")
    )


class _PageHead(HTMLParser):
    """What the head of a page says of it."""

    def __init__(self) -> None:
        super().__init__()
        self.metas: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what a ``meta`` says, the first of each name."""
        attributes = dict(attrs)
        if tag == "meta" and attributes.get("name"):
            self.metas.setdefault(str(attributes["name"]), attributes.get("content") or "")
