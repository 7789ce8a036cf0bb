"""What culprits come to together: none of many says how fast memory really grows."""

from __future__ import annotations

from leakscope.model.printable import one_line
from leakscope.model.report import Culprit, Report, Severity
from leakscope.model.sizes import plural
from leakscope.report.sizes import humane_rate
from leakscope.report.wording import lead_of, share_words


def together_words(report: Report) -> str:
    """Return ``5 % of the growth; 25 culprits grow by 341 KiB per step together`` of who leads."""
    lead = lead_of(report)
    if not isinstance(lead, Culprit) or lead.growth != "across":
        return ""
    part = share_words(lead.share, lead.growth) if lead.share else ""
    return "; ".join(filter(None, [part, all_together(report, lead)]))


def all_together(report: Report, lead: Culprit) -> str:
    """Return ``25 culprits grow by 341 KiB per step together``; empty where that can't be said.

    Rates are added up where they count the same unit on the same device, in a single process, and
    no two culprits share what they hold.
    """
    if lead.growth != "across":
        return ""
    grown = [c for c in report.culprits if c.severity is not Severity.NOTE and c.growth == "across"]
    alike = all((c.unit, c.device, c.workers) == (lead.unit, lead.device, 0) for c in grown)
    apart = not any(c.also_held_by or c.leak_share_bytes or c.rates_by_rank for c in grown)
    if len(grown) < 2 or not alike or not apart:
        return ""
    rate = humane_rate(sum(c.bytes_per_unit for c in grown), one_line(lead.unit))
    return f"{plural(len(grown), 'culprit')} grow by {rate} together"
