"""One snapshot explained: what is live and for what, cache and holes, the peak, the failure.

With the findings about a device, traffic with the driver, and the first line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from leakscope.analysis.allocator.classes import (
    NATIVE,
    NOT_RECORDED,
    NOTHING,
    OLDER,
    Live,
    class_rows,
    classify,
    kind_of,
    knowledge_of,
    line_of,
    short_line,
    site_rows,
)
from leakscope.analysis.allocator.out_of_memory import fault_of
from leakscope.analysis.allocator.replay import (
    ACTIONS,
    GAINS,
    LOSSES,
    OOM,
    PhaseStretch,
    Replay,
    course_of,
    ends_of_steps,
    phase_at,
    phase_rows,
    replay,
    seconds_at,
    stretches_of,
)
from leakscope.analysis.allocator.segments import (
    figures_of,
    fixed,
    is_filled_at,
    kind_of_slack,
    memory_map,
    pools_of,
    returnable,
    settings_advice,
    slack_sentence,
    total_of,
)
from leakscope.analysis.growth import policy
from leakscope.model.device import (
    AllocatorSnapshot,
    Annotation,
    Figures,
    HistoryEntry,
    Segment,
    Slack,
    Stack,
)
from leakscope.model.explanation import (
    BlockClass,
    ClassRow,
    DeviceExplanation,
    DeviceFinding,
    DevicePeak,
    DevicePhaseRow,
    Explanation,
    Fault,
    SiteRow,
    TraceFacts,
)
from leakscope.model.report import Severity
from leakscope.model.text import human_bytes, human_share, plural


def explain(snapshot: AllocatorSnapshot, device: int | None = None) -> Explanation:
    """Return a snapshot explained, or one device of it.

    Takes a second for some ten thousand entries: the history is played twice, and once more each
    for its peak and its failure.
    """
    chosen = [number for number in snapshot.devices if device in (None, number)]
    return explain_studied(snapshot, [study(snapshot, number) for number in chosen])


def explain_studied(snapshot: AllocatorSnapshot, studies: Sequence[Study]) -> Explanation:
    """Return a snapshot explained from the states of its devices."""
    devices = [_explain_device(snapshot, studied) for studied in studies]
    return Explanation(
        name=snapshot.name,
        headline=snapshot_headline(devices),
        version=snapshot.version,
        settings=snapshot.settings,
        total=total_of([found.figures for found in devices]),
        devices=devices,
        findings=between_devices(devices),
        notes=[*snapshot.oddities, *_notes(snapshot, devices)],
    )


def _explain_device(snapshot: AllocatorSnapshot, studied: Study) -> DeviceExplanation:
    played, fault, state, judged = studied.played, studied.fault, studied.state, studied.figures
    at_the_end = figures_of(played.final)
    stretches = stretches_of(played, snapshot.annotations)
    phases = phase_rows(played, stretches)
    peak, peak_figures = _peak(studied, stretches)
    classes, sites = class_rows(studied.found), site_rows(studied.found)
    facts = _facts(played, stretches, snapshot.annotations)
    slack = kind_of_slack(judged)
    is_failed = any(entry.action == OOM for trace in snapshot.traces.values() for entry in trace)
    found = (
        _growth_per_step(played, facts),
        _first_step(phases, facts, classes),
        None if is_failed else _graph_kept(phases, classes, sites),
        _pending(judged),
        _rounding(judged),
        _workspaces(classes),
        _churn(played.entries, facts.seconds),
        _flushes(played.entries),
    )
    findings = [finding for finding in found if finding is not None]
    headline = device_headline(judged, classes, slack, fault, peak_figures, sites)
    kept = sum(row.kept_bytes for row in phases if row.phase == "optimizer")
    return DeviceExplanation(
        device=played.device,
        headline=headline if fault is not None else with_gravest(findings, headline),
        subject="end" if fault is None or fault.entry is None else "fault",
        figures=at_the_end,
        pools=pools_of(state),
        classes=classes,
        sites=sites,
        slack=slack,
        slack_sentence=slack_sentence(judged, peak_figures),
        settings=settings_advice(
            state,
            judged,
            peak_figures,
            snapshot.settings,
            is_steady=kept <= policy.LITTLE_SHARE * at_the_end.active,
        ),
        fault=fault,
        trace=facts if played.entries else None,
        peak=peak,
        phases=phases,
        findings=findings,
        course=course_of(played, stretches, fault),
        memory_map=memory_map(state, {id(x.block): x.kind.value for x in studied.found}),
    )


def _peak(
    studied: Study, stretches: Sequence[PhaseStretch]
) -> tuple[DevicePeak | None, Figures | None]:
    played = studied.played
    entry = played.peak
    if entry is None:
        return None, None
    state: list[Segment] = played.state_after(entry)
    # What lived through to the judged moment was the same at the peak.
    known = knowledge_of(studied.found) if studied.fault is None else NOTHING
    found = classify(state, is_recorded=studied.is_recorded, known=known)
    peak = DevicePeak(
        entry=entry,
        time_s=seconds_at(played, entry),
        live_bytes=played.live[entry],
        reserved_bytes=played.reserved[entry],
        phase=phase_at(stretches, entry),
        classes=class_rows(found),
        sites=site_rows(found, 12),
    )
    return peak, figures_of(state)


def _facts(
    played: Replay, stretches: Sequence[PhaseStretch], annotations: Sequence[Annotation]
) -> TraceFacts:
    actions = Counter(entry.action for entry in played.entries)
    steps = [end for end in ends_of_steps(played, stretches, annotations) if end >= 0]
    last = len(played.entries) - 1
    return TraceFacts(
        entries=len(played.entries),
        actions=dict(sorted(actions.items())),
        seconds=seconds_at(played, last) if played.entries else None,
        from_the_beginning=bool(played.entries) and not played.start,
        start_bytes=played.start_live,
        end_bytes=played.live[-1] if played.live else played.start_live,
        conflicts=played.conflicts,
        segment_allocs=sum(actions[action] for action in GAINS),
        segment_frees=sum(actions[action] for action in LOSSES),
        retries=retries_of(played.entries),
        step_ends=steps,
        step_bytes=[played.live[end] for end in steps],
    )


def _notes(snapshot: AllocatorSnapshot, devices: Sequence[DeviceExplanation]) -> list[str]:
    actions = {a for d in devices if d.trace is not None for a in d.trace.actions}
    notes = [
        f"The history holds the unknown action {action or '(none)'!r:.60}; it is ignored."
        for action in sorted(actions - ACTIONS)
    ]
    conflicts = sum(d.trace.conflicts for d in devices if d.trace is not None)
    if conflicts:
        notes.append(
            f"{conflicts:,} entries of the history contradict the segments: it is damaged, and "
            "the figures for the peak and for phases are only roughly right."
        )
    if devices and not any(segment.blocks for segment in snapshot.segments):
        notes.append("The segments list no blocks.")
    return notes


@dataclass(frozen=True)
class Study:
    """One device: its history, the state that matters, and what is live in that state."""

    played: Replay
    fault: Fault | None
    state: list[Segment]
    figures: Figures
    found: list[Live]
    is_recorded: bool
    """Whether any stack was recorded at all."""


def study(snapshot: AllocatorSnapshot, device: int) -> Study:
    """Return the state of a device that is worth explaining, with its blocks classified."""
    played = replay(snapshot, device)
    in_blocks = any(block.stack for segment in played.final for block in segment.blocks)
    is_recorded = in_blocks or any(entry.stack for entry in played.entries)
    fault, state = fault_of(
        played, is_recorded=is_recorded, is_training=_is_training(snapshot)
    ) or (None, played.final)
    found = classify(state, is_recorded=is_recorded)
    return Study(played, fault, state, figures_of(state), found, is_recorded)


def _is_training(snapshot: AllocatorSnapshot) -> bool:
    telling = (BlockClass.BACKWARD, BlockClass.OPTIMIZER)
    stacks = {id(e.stack): e.stack for trace in snapshot.traces.values() for e in trace}
    return any(mark.name.startswith("Optimizer.") for mark in snapshot.annotations) or any(
        kind_of(stack) in telling for stack in stacks.values()
    )


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
    live = f"{human_bytes(figures.active)} live{_leading_class(classes, figures, sites)}"
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


def with_gravest(findings: Sequence[DeviceFinding], headline: str) -> str:
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
    chosen = max(failed or devices, key=lambda device: device.figures.reserved)
    if len(devices) == 1:
        return f"{chosen.headline}."
    return f"cuda:{chosen.device}: {chosen.headline}."


def _of_fault(fault: Fault) -> str:
    figures = fault.figures
    live = f"{human_bytes(figures.active)} of {human_bytes(figures.reserved)} reserved"
    largest = max(fault.classes, key=lambda row: row.bytes, default=None)
    most = f", {human_share(largest.share)} of it {_name(largest)}" if largest is not None else ""
    if fault.request is None:
        return f"Full: {live} are live{most}; if memory ran out here, that was capacity"
    kind = "fragmentation" if fault.is_fragmentation else "capacity, not fragmentation"
    has_place = fault.place not in ("", NATIVE, NOT_RECORDED)
    at = f" at {short_line(fault.place)}" if has_place else ""
    requested = human_bytes(fault.request)
    return f"Out of memory by {kind}: {requested} asked for{at} with {live} live{most}"


def _name(row: ClassRow) -> str:
    return f"{'likely ' if row.evidence == OLDER else ''}{NAMES[row.kind]}"


def _leading_class(classes: Sequence[ClassRow], figures: Figures, sites: Sequence[SiteRow]) -> str:
    shown = [row for row in classes if row.bytes >= policy.LITTLE_SHARE * figures.active][:2]
    if [row.kind for row in shown] == [BlockClass.UNKNOWN]:
        return ", with no stacks that tell what for"
    words = [f"{human_bytes(row.bytes)} {_name(row)}" for row in shown]
    made = next((s for s in sites if s.kind is BlockClass.OTHER and s.function), None)
    if made is not None and shown and shown[0].kind is BlockClass.OTHER:
        by = made.operation or made.function
        words[0] = f"{human_bytes(made.bytes)} by {by} at {short_line(made.place)}"
    return f" ({', '.join(words)})" if words else ""


def between_devices(devices: Sequence[DeviceExplanation]) -> list[DeviceFinding]:
    """Return a finding where one device ran out while others stood nearly empty."""
    peaks = {d.device: d.peak.live_bytes for d in devices if d.peak is not None}
    failed = [d for d in devices if d.fault is not None and d.fault.entry is not None]
    others = {device: p for device, p in peaks.items() if failed and device != failed[0].device}
    if not others or max(others.values()) > policy.MOST_SHARE * peaks.get(failed[0].device, 0):
        return []
    listed = ", ".join(f"cuda:{device} {human_bytes(p)}" for device, p in sorted(others.items()))
    return [
        DeviceFinding(
            slug="uneven-devices",
            severity=Severity.WARNING,
            title=f"cuda:{failed[0].device} ran out while the other devices had room",
            text=f"It peaked at {human_bytes(peaks[failed[0].device])}; the others: {listed}. "
            "Either the work, or the size of the samples in it, is spread unevenly, or the others "
            "had not come as far.",
            remedy="Balance the batch by the size of its samples rather than by their number.",
        )
    ]


def _growth_per_step(played: Replay, facts: TraceFacts) -> DeviceFinding | None:
    """Say where live bytes rise with each optimizer step, as a graph or a list that is kept does.

    False positives: the first step, where the optimizer's state appears; it is left out.
    """
    live = facts.step_bytes[1:]
    if len(live) < policy.EVEN_READINGS:
        return None
    rises = [after - before for before, after in pairwise(live)]
    usual = median(rises)
    if min(rises) <= 0 or usual < max(512, policy.STEP_SHARE * policy.STEP_SHARE * live[0]):
        return None
    born: Counter[str] = Counter()
    for number in played.births.values():
        entry = played.entries[number]
        if number > facts.step_ends[1] and entry.stack is not None:
            born[line_of(entry.stack)] += entry.size
    lines = "; ".join(f"{human_bytes(size)} at {place}" for place, size in born.most_common(3))
    return DeviceFinding(
        slug="grows-per-step",
        severity=Severity.CRITICAL,
        title=f"Live memory grows by {human_bytes(usual)} per step",
        text=f"After each of {plural(len(live), 'step')} more is live than after the one before: "
        f"{human_bytes(live[0])}, then {human_bytes(live[-1])}. Allocated since and still live: "
        f"{lines or 'blocks without a stack'}.",
        remedy="Those lines allocate it; look for who keeps it: a list, a total that is no number "
        "(loss instead of loss.item()), outputs that were not detached.",
    )


def _first_step(
    phases: Sequence[DevicePhaseRow], facts: TraceFacts, classes: Sequence[ClassRow]
) -> DeviceFinding | None:
    kept = sum(row.kept_bytes for row in phases if row.phase == "optimizer")
    least = max(policy.GAUGE_NOISE_BYTES, policy.LITTLE_SHARE * facts.end_bytes)
    if len(facts.step_ends) != 1 or kept < least:
        return None
    evidence = next((r.evidence for r in classes if r.kind is BlockClass.OPTIMIZER), "")
    return DeviceFinding(
        slug="first-step",
        severity=Severity.NOTE,
        title="The optimizer's first step: its state appears once",
        text=f"It took {human_bytes(kept)} and keeps them"
        f"{f' ({evidence})' if '×' in evidence else ''}. That is no leak: later steps reuse it.",
    )


def _graph_kept(
    phases: Sequence[DevicePhaseRow], classes: Sequence[ClassRow], sites: Sequence[SiteRow]
) -> DeviceFinding | None:
    names = {row.phase for row in phases}
    kept = sum(row.kept_bytes for row in phases if row.phase == "forward")
    live = sum(row.bytes for row in classes if row.kind is BlockClass.ACTIVATIONS)
    least = max(policy.COSTLY_BYTES, policy.LITTLE_SHARE * sum(row.bytes for row in classes))
    if names & {"backward", "optimizer"} or min(kept, live) < least:
        return None
    made = next((s for s in sites if s.kind is BlockClass.ACTIVATIONS), None)
    where = f", most of it at {short_line(made.place)}" if made is not None else ""
    return DeviceFinding(
        slug="forward-kept",
        severity=Severity.NOTE,
        title=f"A forward pass keeps {human_bytes(kept)}",
        text=f"It is live at the end and no backward pass is in the history{where}. Either the "
        "file was written before backward, or this is inference that keeps its output, a cache or "
        "its graph.",
        remedy="For inference: with torch.inference_mode(): around the forward pass.",
    )


def _pending(figures: Figures) -> DeviceFinding | None:
    if figures.pending < policy.COSTLY_BYTES:
        return None
    return DeviceFinding(
        slug="pending-free",
        severity=Severity.NOTE,
        title=f"{human_bytes(figures.pending)} are freed but still waited for",
        text="The program let go of them, another stream still uses them (record_stream, "
        "collective communication). They come back when that stream is done.",
        remedy="If it grows: synchronise that stream, or wait on the work's handle.",
    )


def _rounding(figures: Figures) -> DeviceFinding | None:
    rounding = figures.active - figures.requested
    if not figures.active or rounding < policy.MOST_SHARE * figures.active:
        return None
    if rounding < policy.COSTLY_BYTES and figures.live_blocks < policy.TINY_BLOCKS:
        return None
    return DeviceFinding(
        slug="rounding",
        severity=Severity.NOTE,
        title=f"{human_share(rounding / figures.active)} of the live bytes are rounding",
        text=f"{plural(figures.live_blocks, 'live block')} asked for "
        f"{human_bytes(figures.requested)} and got {human_bytes(figures.active)}: each is rounded "
        "up to 512 bytes. Many tiny tensors, such as losses kept one by one, look like this.",
        remedy="Keep numbers (loss.item()) rather than tensors, or stack them into one.",
    )


def _workspaces(classes: Sequence[ClassRow]) -> DeviceFinding | None:
    row = next((row for row in classes if row.kind is BlockClass.WORKSPACE), None)
    if row is None or row.count <= 8:
        return None
    return DeviceFinding(
        slug="workspaces",
        severity=Severity.NOTE,
        title=f"{plural(row.count, 'workspace')} of cuBLAS",
        text=f"They take {human_bytes(row.bytes)}: one per thread and stream that multiplies "
        "matrices. Two are usual; many mean that threads or streams keep being made.",
    )


def retries_of(entries: Sequence[HistoryEntry]) -> int:
    """Return how often the cache was flushed for lack of memory: frees, then at once a new need.

    Where the frees have no stacks, ``empty_cache()`` may have been called instead.
    """
    retries = 0
    for before, entry in pairwise(entries):
        flushed = before.action in LOSSES and not _is_empty_cache_call(before.stack)
        retries += flushed and (entry.action in GAINS or entry.action == OOM)
    return retries


def _churn(entries: Sequence[HistoryEntry], seconds: float | None) -> DeviceFinding | None:
    freed = [entry for entry in entries if entry.action in LOSSES]
    taken = [entry for entry in entries if entry.action in GAINS]
    explicit = [entry for entry in freed if _is_empty_cache_call(entry.stack)]
    if min(len(freed), len(taken)) < policy.CHURNED_SEGMENTS or len(explicit) < len(freed) / 2:
        return None
    place, _ = Counter(line_of(entry.stack) for entry in explicit).most_common(1)[0]
    during = f" in {seconds:.0f} s" if seconds else ""
    return DeviceFinding(
        slug="empty-cache-churn",
        severity=Severity.WARNING,
        title="empty_cache() is called over and over",
        text=f"{plural(len(freed), 'segment')} went back to the driver and {len(taken)} were taken "
        f"again{during}, {human_bytes(sum(entry.size for entry in freed))} in all. Each costs time "
        "and a synchronisation, and the memory is needed again at once: no leak, but slow.",
        remedy=f"Call it once, after what won't come back, not in the loop at {place}.",
    )


def _flushes(entries: Sequence[HistoryEntry]) -> DeviceFinding | None:
    retries = retries_of(entries)
    if not retries:
        return None
    if any(e.stack is not None for e in entries if e.action in LOSSES):
        return DeviceFinding(
            slug="flushed-for-want",
            severity=Severity.WARNING,
            title=f"The cache was flushed for want of memory, {plural(retries, 'time')}",
            text="The driver refused memory, so the allocator gave back all of its cache and asked "
            "again. The run is at the limit of the device, and each flush stalls it.",
            remedy="Lower the peak: see what stood there.",
        )
    return DeviceFinding(
        slug="flushed",
        severity=Severity.NOTE,
        title=f"The cache was flushed and filled again, {plural(retries, 'time')}",
        text="Either the program calls empty_cache(), or the driver refused memory and the "
        "allocator asked again; the history has no stacks for it.",
    )


def _is_empty_cache_call(stack: Stack | None) -> bool:
    return stack is not None and any(frame.name == "empty_cache" for frame in stack.frames)
