"""The first line: what matters most about a snapshot, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from leakscope.analysis.cuda.classes import OLDER
from leakscope.analysis.cuda.sites import NATIVE, NOT_RECORDED, short_place
from leakscope.analysis.cuda.slack import fixed, is_filled_at, returnable
from leakscope.model.device import Figures, Slack
from leakscope.model.explanation import (
    BlockClass,
    ClassRow,
    DeviceExplanation,
    Fault,
    Finding,
    SiteRow,
)
from leakscope.model.report import Severity
from leakscope.model.sizes import human_bytes, human_share

NAMES = {
    BlockClass.WEIGHTS: "weights",
    BlockClass.GRADIENTS: "gradients",
    BlockClass.OPTIMIZER: "optimizer state",
    BlockClass.ACTIVATIONS: "activations",
    BlockClass.BACKWARD: "memory of backward passes",
    BlockClass.WORKSPACE: "workspaces",
    BlockClass.COMMUNICATION: "communication buffers",
    BlockClass.PENDING: "pending frees",
    BlockClass.OTHER: "other tensors",
    BlockClass.UNKNOWN: "memory of unknown use",
}


def device_headline(
    figures: Figures,
    classes: Sequence[ClassRow],
    slack: Slack,
    fault: Fault | None,
    peak: Figures | None,
    sites: Sequence[SiteRow],
) -> str:
    """Return what matters most about a device."""
    if fault is not None:
        return _of_fault(fault)
    live = f"{human_bytes(figures.active)} live{_leading(classes, figures, sites)}"
    if slack is Slack.TIDY:
        unused = human_bytes(figures.reserved - figures.active)
        return f"{live}; {human_bytes(figures.reserved)} reserved, {unused} unused"
    if slack is Slack.CACHE:
        return f"{live}; {human_bytes(returnable(figures))} more are cache, not fragmentation"
    holes = f"{human_bytes(fixed(figures))} stuck in holes"
    if slack is Slack.BOTH:
        holes += f" and {human_bytes(returnable(figures))} of cache"
    if peak is not None and is_filled_at(peak):
        share = human_share(peak.active / peak.reserved)
        return f"Fragmented between peaks: {holes}; {live}. At the peak {share} is live"
    return (
        f"Fragmented: {holes}, the largest free block {human_bytes(figures.largest_hole)}; {live}"
    )


def with_gravest(findings: Sequence[Finding], headline: str) -> str:
    """Return a headline that begins with the gravest finding, if one is more than a note."""
    order = (Severity.CRITICAL, Severity.WARNING)
    grave = [finding for finding in findings if finding.severity in order]
    if not grave:
        return headline
    return f"{min(grave, key=lambda f: order.index(f.severity)).title}; {headline}"


def snapshot_headline(devices: Sequence[DeviceExplanation]) -> str:
    """Return what matters most about a snapshot: a failure, else its fullest device."""
    if not devices:
        return "No device memory: the process never used the GPU."
    failed = [device for device in devices if device.fault is not None]
    lead = max(failed or devices, key=lambda device: device.figures.reserved)
    if len(devices) == 1:
        return f"{lead.headline}."
    return f"cuda:{lead.device}: {lead.headline}."


def _of_fault(fault: Fault) -> str:
    figures = fault.figures
    live = f"{human_bytes(figures.active)} of {human_bytes(figures.reserved)} reserved"
    lead = max(fault.classes, key=lambda row: row.bytes, default=None)
    most = f", {human_share(lead.share)} of it {_name(lead)}" if lead is not None else ""
    if fault.request is None:
        return f"Full: {live} are live{most}; if memory ran out here, that was capacity"
    kind = "fragmentation" if fault.is_fragmentation else "capacity, not fragmentation"
    has_place = fault.place not in ("", NATIVE, NOT_RECORDED)
    at = f" at {short_place(fault.place)}" if has_place else ""
    asked = human_bytes(fault.request)
    return f"Out of memory by {kind}: {asked} asked for{at} with {live} live{most}"


def _name(row: ClassRow) -> str:
    return f"{'likely ' if row.evidence == OLDER else ''}{NAMES[row.kind]}"


def _leading(classes: Sequence[ClassRow], figures: Figures, sites: Sequence[SiteRow]) -> str:
    told = [row for row in classes if row.bytes >= 0.1 * figures.active][:2]
    if [row.kind for row in told] == [BlockClass.UNKNOWN]:
        return ", with no stacks that tell what for"
    words = [f"{human_bytes(row.bytes)} {_name(row)}" for row in told]
    made = next((s for s in sites if s.kind is BlockClass.OTHER and s.function), None)
    if made is not None and told and told[0].kind is BlockClass.OTHER:
        by = made.operation or made.function
        words[0] = f"{human_bytes(made.bytes)} by {by} at {short_place(made.place)}"
    return f" ({', '.join(words)})" if words else ""
