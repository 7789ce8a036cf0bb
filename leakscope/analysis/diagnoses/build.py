"""How a diagnosis writes down what it found."""

from __future__ import annotations

import hashlib

from leakscope.model.known import Recognised
from leakscope.model.report import Falsifier, Finding, Remedy, Severity
from leakscope.model.trend import Trend


def finding(
    kind: str,
    title: str,
    text: str,
    remedy: Remedy,
    *,
    severity: Severity,
    trend: Trend | None = None,
    share: float = 0.0,
    total_bytes: float = 0.0,
    device: str = "host",
    fed_at: list[str] | None = None,
    falsifier: tuple[str, str | None] = ("", None),
    subject: str = "",
    growth: str = "across",
    known: Recognised | None = None,
) -> Finding:
    """Return a finding, not ranked yet; ``subject`` tells two of one kind apart."""
    return Finding(
        rank=0,
        kind=kind,
        title=title,
        text=text,
        growth=growth,
        unit=trend.unit if trend else "",
        bytes_per_unit=trend.bytes_per_unit if trend else 0.0,
        interval=trend.interval if trend else (0.0, 0.0),
        readings=trend.points if trend else 0,
        share=min(max(share, 0.0), 1.0),
        total_bytes=max(int(total_bytes), 0),
        device=device,
        fed_at=fed_at or [],
        severity=severity,
        signature=finding_signature(kind, device, subject),
        remedy=remedy,
        known=known,
        falsifier=Falsifier(text=falsifier[0], result=falsifier[1]) if falsifier[0] else None,
    )


def finding_signature(kind: str, device: str, subject: str = "") -> str:
    """Return what identifies a finding between runs."""
    text = f"finding\n{kind}\n{device}\n{subject}"
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:12]
