"""What a list says of a run, taken from its ``report.json`` without reading all of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from leakscope.model.report import REPORT_SCHEMA_VERSION, RunVerdict, Severity
from leakscope.model.runs import COURSE_POINTS, Lead, ListedRun, Standing
from leakscope.report.sparkline import peaks_of

_PLAUSIBLE = 1e18
"""No machine has so many bytes; what says so is no reading."""


class UnreadableReportError(Exception):
    """A ``report.json`` can't be read; says why, as the end of a sentence."""


class _Suspect(msgspec.Struct):
    severity: Severity
    name: str = ""
    title: str = ""
    bytes_per_unit: float | None = None
    unit: str = ""


class _Growth(msgspec.Struct):
    bytes_per_unit: float | None = None
    unit: str = ""


class _Line(msgspec.Struct):
    points: list[tuple[float | None, float | None]] = []


class _Timeline(msgspec.Struct):
    lines: list[_Line] = []


class _Facts(msgspec.Struct):
    script: str = ""
    created: float | None = None


class _Work(msgspec.Struct):
    duration_s: float | None = None


class _Glance(msgspec.Struct):
    """The part of a report that a list needs; the decoder passes over the rest."""

    schema_version: int
    verdict: RunVerdict
    headline: str
    run: _Facts
    work: _Work
    growth: list[_Growth] = []
    culprits: list[_Suspect] = []
    findings: list[_Suspect] = []
    timeline: _Timeline | None = None


class _Version(msgspec.Struct):
    schema_version: int


def read_listed(report: Path, *, name: str, path: str, page: str) -> ListedRun:
    """Return what a list says of the run that a ``report.json`` is about.

    Raises:
        UnreadableReportError: it is damaged, or a newer leakscope wrote it.

    """
    seen = _glance(report)
    points = _leading_points(seen.timeline)
    return ListedRun(
        name=name,
        path=path,
        standing=Standing.REPORTED,
        page=page,
        verdict=seen.verdict,
        headline=seen.headline,
        script=seen.run.script,
        created=seen.run.created or 0.0,
        duration_s=seen.work.duration_s,
        lead=_lead(seen),
        growth_bytes_per_unit=seen.growth[0].bytes_per_unit if seen.growth else None,
        growth_unit=seen.growth[0].unit if seen.growth else "",
        peak_bytes=max(points, default=None),
        course=peaks_of(points, COURSE_POINTS),
    )


def _glance(report: Path) -> _Glance:
    try:
        data = report.read_bytes()
        if _decoded(data, _Version).schema_version > REPORT_SCHEMA_VERSION:
            raise UnreadableReportError("was written by a newer leakscope; update this one")
        seen = _decoded(data, _Glance)
    except OSError as fault:
        raise UnreadableReportError(f"can't be read: {fault.strerror or fault}") from fault
    except (ValueError, RecursionError) as fault:
        raise UnreadableReportError(f"is damaged: {fault}") from fault
    assert isinstance(seen, _Glance)
    return seen


def _decoded(data: bytes, kind: type) -> Any:
    return msgspec.json.decode(data, type=kind)


def _lead(seen: _Glance) -> Lead | None:
    named = [(suspect, True) for suspect in seen.culprits]
    titled = [(suspect, False) for suspect in seen.findings]
    for suspect, is_code in named + titled:
        if suspect.severity is not Severity.NOTE:
            return Lead(
                name=suspect.name or suspect.title,
                bytes_per_unit=suspect.bytes_per_unit or 0.0,
                unit=suspect.unit,
                is_code=is_code,
            )
    return None


def _leading_points(timeline: _Timeline | None) -> list[float]:
    for line in timeline.lines if timeline else []:
        known = [y for _, y in line.points if y is not None and 0 <= y < _PLAUSIBLE]
        if any(y > 0 for y in known):
            return known
    return []
