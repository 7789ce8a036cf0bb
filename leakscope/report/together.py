"""What culprits come to together: none of many says how fast memory really grows."""

from __future__ import annotations

from leakscope.model.printable import one_line
from leakscope.model.report import Culprit, Report, Severity
from leakscope.report.sizes import humane_rate
from leakscope.report.wording import lead_of, share_words


def together_words(report: Report) -> str:
    """Return ``5 % of the growth; all 25 culprits grow by 341 KiB per step`` of who leads."""
    lead = lead_of(report)
    if not isinstance(lead, Culprit) or lead.growth != "across":
        return ""
    part = share_words(lead.share, lead.growth) if lead.share else ""
    rate = rate_together(report)
    whole = f"all {len(_growing(report))} culprits grow by {rate}" if rate else ""
    return "; ".join(filter(None, [part, whole]))


def rate_together(report: Report) -> str:
    """Return ``341 KiB per step``, by which several culprits grow; empty where that can't be said.

    Rates are added up where all count the same unit on the same device, in a single process, and
    no two culprits share what they hold.
    """
    grown = _growing(report)
    alike = len({(c.unit, c.device) for c in grown}) == 1
    apart = not any(
        c.growth != "across" or c.workers or c.also_held_by or c.leak_share_bytes or c.rates_by_rank
        for c in grown
    )
    if len(grown) < 2 or not alike or not apart:
        return ""
    return humane_rate(sum(c.bytes_per_unit for c in grown), one_line(grown[0].unit))


def _growing(report: Report) -> list[Culprit]:
    return [c for c in report.culprits if c.severity is not Severity.NOTE]
