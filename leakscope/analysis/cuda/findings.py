"""What else is worth knowing about a device: each finding with the evidence for it.

A finding here is no verdict of a leak unless several steps are in the history: one moment can't
tell what grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from leakscope.analysis.cuda.replay import Replay
from leakscope.analysis.cuda.sites import place_of, short_place
from leakscope.model.device import Figures
from leakscope.model.explanation import (
    BlockClass,
    ClassRow,
    DeviceExplanation,
    Finding,
    PhaseRow,
    SiteRow,
    TraceFacts,
)
from leakscope.model.report import Severity
from leakscope.model.sizes import human_bytes, human_share, plural

MIB = 1 << 20
LEAST_STEPS = 4
SAME = 0.01
WASTED = 0.3
"""From this share of rounding on, tiny tensors are named."""
KEPT_SHARE = 0.1
UNEVEN = 0.5
"""Devices that peaked below this share of the one that failed had room."""


def findings_of(
    played: Replay,
    figures: Figures,
    classes: Sequence[ClassRow],
    sites: Sequence[SiteRow],
    phases: Sequence[PhaseRow],
    facts: TraceFacts,
    *,
    is_failed: bool,
) -> list[Finding]:
    """Return what the state and its history show, the gravest first."""
    found = [
        _growth_per_step(played, facts),
        _first_step(phases, facts, classes),
        None if is_failed else _graph_kept(phases, classes, sites),
        _pending(figures),
        _rounding(figures),
        _workspaces(classes),
    ]
    return [finding for finding in found if finding is not None]


def between_devices(devices: Sequence[DeviceExplanation]) -> list[Finding]:
    """Return a finding where one device ran out while others stood nearly empty."""
    peaks = {d.device: d.peak.live_bytes for d in devices if d.peak is not None}
    failed = [d for d in devices if d.fault is not None and d.fault.entry is not None]
    others = (
        {device: peak for device, peak in peaks.items() if device != failed[0].device}
        if failed
        else {}
    )
    if not others or max(others.values()) > UNEVEN * peaks.get(failed[0].device, 0):
        return []
    told = ", ".join(
        f"cuda:{device} {human_bytes(peak)}" for device, peak in sorted(others.items())
    )
    return [
        Finding(
            slug="uneven-devices",
            severity=Severity.WARNING,
            title=f"cuda:{failed[0].device} ran out while the other devices had room",
            text=f"It peaked at {human_bytes(peaks[failed[0].device])}; the others: {told}. "
            "Either the work, or the size of the samples in it, is spread unevenly, or the others "
            "had not come as far.",
            remedy="Balance the batch by the size of its samples rather than by their number.",
        )
    ]


def _growth_per_step(played: Replay, facts: TraceFacts) -> Finding | None:
    """Say where live bytes rise with each optimizer step, as a graph or a list that is kept does.

    False positives: the first step, where the optimizer's state appears; it is left out.
    """
    live = facts.step_bytes[1:]
    if len(live) < LEAST_STEPS:
        return None
    rises = [after - before for before, after in pairwise(live)]
    usual = median(rises)
    if min(rises) <= 0 or usual < max(512, SAME * SAME * live[0]):
        return None
    born = _born_and_live(played, after=facts.step_ends[1])
    lines = "; ".join(f"{human_bytes(size)} at {place}" for place, size in born[:3])
    return Finding(
        slug="grows-per-step",
        severity=Severity.CRITICAL,
        title=f"Live memory grows by {human_bytes(usual)} per step",
        text=f"After each of {plural(len(live), 'step')} more is live than after the one before: "
        f"{human_bytes(live[0])}, then {human_bytes(live[-1])}. Allocated since and still live: "
        f"{lines or 'blocks without a stack'}.",
        remedy="Those lines allocate it; look for who keeps it: a list, a total that is no number "
        "(loss instead of loss.item()), outputs that were not detached.",
    )


def _born_and_live(played: Replay, *, after: int) -> list[tuple[str, int]]:
    sizes: dict[str, int] = {}
    for number in played.births.values():
        entry = played.entries[number]
        if number > after and entry.stack is not None:
            place = place_of(entry.stack)
            sizes[place] = sizes.get(place, 0) + entry.size
    return sorted(sizes.items(), key=lambda item: -item[1])


def _first_step(
    phases: Sequence[PhaseRow], facts: TraceFacts, classes: Sequence[ClassRow]
) -> Finding | None:
    kept = sum(row.kept_bytes for row in phases if row.phase == "optimizer")
    if len(facts.step_ends) != 1 or kept < max(MIB, KEPT_SHARE * facts.end_bytes):
        return None
    evidence = next((r.evidence for r in classes if r.kind is BlockClass.OPTIMIZER), "")
    return Finding(
        slug="first-step",
        severity=Severity.NOTE,
        title="The optimizer's first step: its state appears once",
        text=f"It took {human_bytes(kept)} and keeps them"
        f"{f' ({evidence})' if '×' in evidence else ''}. That is no leak: later steps reuse it.",
    )


def _graph_kept(
    phases: Sequence[PhaseRow], classes: Sequence[ClassRow], sites: Sequence[SiteRow]
) -> Finding | None:
    names = {row.phase for row in phases}
    kept = sum(row.kept_bytes for row in phases if row.phase == "forward")
    live = sum(row.bytes for row in classes if row.kind is BlockClass.ACTIVATIONS)
    total = sum(row.bytes for row in classes)
    if names & {"backward", "optimizer"} or min(kept, live) < max(64 * MIB, KEPT_SHARE * total):
        return None
    made = next((s for s in sites if s.kind is BlockClass.ACTIVATIONS), None)
    where = f", most of it at {short_place(made.place)}" if made is not None else ""
    return Finding(
        slug="forward-kept",
        severity=Severity.NOTE,
        title=f"A forward pass keeps {human_bytes(kept)}",
        text=f"It is live at the end and no backward pass is in the history{where}. Either the "
        "file was written before backward, or this is inference that keeps its output, a cache or "
        "its graph.",
        remedy="For inference: with torch.inference_mode(): around the forward pass.",
    )


def _pending(figures: Figures) -> Finding | None:
    if figures.pending < max(64 * MIB, 0.01 * figures.active):
        return None
    return Finding(
        slug="pending-free",
        severity=Severity.NOTE,
        title=f"{human_bytes(figures.pending)} are freed but still waited for",
        text="The program let go of them, another stream still uses them (record_stream, "
        "collective communication). They come back when that stream is done.",
        remedy="If it grows: synchronise that stream, or wait on the work's handle.",
    )


def _rounding(figures: Figures) -> Finding | None:
    rounding = figures.active - figures.requested
    tiny = figures.active / max(1, figures.live_blocks) < 2048
    if not figures.active or rounding < WASTED * figures.active:
        return None
    if rounding < 64 * MIB and not (tiny and figures.live_blocks > 1000):
        return None
    return Finding(
        slug="rounding",
        severity=Severity.NOTE,
        title=f"{human_share(rounding / figures.active)} of the live bytes are rounding",
        text=f"{plural(figures.live_blocks, 'live block')} asked for "
        f"{human_bytes(figures.requested)} and got {human_bytes(figures.active)}: each is rounded "
        "up to 512 bytes. Many tiny tensors, such as losses kept one by one, look like this.",
        remedy="Keep numbers (loss.item()) rather than tensors, or stack them into one.",
    )


def _workspaces(classes: Sequence[ClassRow]) -> Finding | None:
    row = next((row for row in classes if row.kind is BlockClass.WORKSPACE), None)
    if row is None or row.count <= 8:
        return None
    return Finding(
        slug="workspaces",
        severity=Severity.NOTE,
        title=f"{plural(row.count, 'workspace')} of cuBLAS",
        text=f"They take {human_bytes(row.bytes)}: one per thread and stream that multiplies "
        "matrices. Two are usual; many mean that threads or streams keep being made.",
    )
