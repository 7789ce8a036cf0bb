"""One snapshot explained: what is live and for what, cache and holes, the peak, the failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from leakscope.analysis.cuda.churn import retries_of, traffic_findings
from leakscope.analysis.cuda.classes import NOTHING, class_rows, classify, knowledge_of
from leakscope.analysis.cuda.course import course_of, seconds_at
from leakscope.analysis.cuda.figures import figures_of, pools_of, total_of
from leakscope.analysis.cuda.findings import between_devices, findings_of
from leakscope.analysis.cuda.headlines import device_headline, snapshot_headline, with_gravest
from leakscope.analysis.cuda.phases import (
    Stretch,
    ends_of_steps,
    phase_at,
    phase_rows,
    stretches_of,
)
from leakscope.analysis.cuda.picture import memory_map
from leakscope.analysis.cuda.replay import (
    ACTIONS,
    OOM,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Replay,
)
from leakscope.analysis.cuda.sites import site_rows
from leakscope.analysis.cuda.slack import kind_of_slack, settings_advice, slack_sentence
from leakscope.analysis.cuda.study import Study, study
from leakscope.model.allocator import Annotation, Segment, Snapshot
from leakscope.model.device import Figures
from leakscope.model.explanation import DeviceExplanation, Explanation, Peak, PhaseRow, TraceFacts

SETTLED = 0.1
"""An optimizer that keeps more than this share of what is live at the end was at its first step."""


def explain(snapshot: Snapshot, device: int | None = None) -> Explanation:
    """Return a snapshot explained, or one device of it.

    Takes a second for some ten thousand entries: the history is played twice, and once more each
    for its peak and its failure.
    """
    chosen = [number for number in snapshot.devices if device in (None, number)]
    return explain_studied(snapshot, [study(snapshot, number) for number in chosen])


def explain_studied(snapshot: Snapshot, studies: Sequence[Study]) -> Explanation:
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


def _explain_device(snapshot: Snapshot, studied: Study) -> DeviceExplanation:
    played, fault, state, judged = studied.played, studied.fault, studied.state, studied.figures
    at_the_end = figures_of(played.final)
    stretches = stretches_of(played, snapshot.annotations)
    phases = phase_rows(played, stretches)
    peak, peak_figures = _peak(studied, stretches)
    classes, sites = class_rows(studied.found), site_rows(studied.found)
    facts = _facts(played, stretches, snapshot.annotations)
    slack = kind_of_slack(judged)
    findings = findings_of(
        played, judged, classes, sites, phases, facts, is_failed=_has_failed(snapshot)
    ) + traffic_findings(played.entries, facts.seconds)
    said = device_headline(judged, classes, slack, fault, peak_figures, sites)
    return DeviceExplanation(
        device=played.device,
        headline=said if fault is not None else with_gravest(findings, said),
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
            is_steady=_is_steady(phases, at_the_end),
        ),
        fault=fault,
        trace=facts if played.entries else None,
        peak=peak,
        phases=phases,
        findings=findings,
        course=course_of(played, stretches, fault),
        memory_map=memory_map(state, {id(x.block): x.kind.value for x in studied.found}),
    )


def _has_failed(snapshot: Snapshot) -> bool:
    return any(entry.action == OOM for trace in snapshot.traces.values() for entry in trace)


def _is_steady(phases: Sequence[PhaseRow], at_the_end: Figures) -> bool:
    kept = sum(row.kept_bytes for row in phases if row.phase == "optimizer")
    return kept <= SETTLED * at_the_end.active


def _peak(studied: Study, stretches: Sequence[Stretch]) -> tuple[Peak | None, Figures | None]:
    played = studied.played
    entry = played.peak
    if entry is None:
        return None, None
    state: list[Segment] = played.state_after(entry)
    # What lived through to the judged moment was the same at the peak.
    known = knowledge_of(studied.found) if studied.fault is None else NOTHING
    found = classify(state, is_recorded=studied.is_recorded, known=known)
    peak = Peak(
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
    played: Replay, stretches: Sequence[Stretch], annotations: Sequence[Annotation]
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
        segment_allocs=actions[SEGMENT_ALLOC] + actions[SEGMENT_MAP],
        segment_frees=actions[SEGMENT_FREE] + actions[SEGMENT_UNMAP],
        retries=retries_of(played.entries),
        step_ends=steps,
        step_bytes=[played.live[end] for end in steps],
    )


def _notes(snapshot: Snapshot, devices: Sequence[DeviceExplanation]) -> list[str]:
    told = {a for d in devices if d.trace is not None for a in d.trace.actions}
    notes = [
        f"The history holds the unknown action {action or '(none)'!r:.60}; it is ignored."
        for action in sorted(told - ACTIONS)
    ]
    conflicts = sum(d.trace.conflicts for d in devices if d.trace is not None)
    if conflicts:
        notes.append(
            f"{conflicts:,} entries of the history contradict the segments: it is damaged, and "
            "what is said of the peak and of phases is only roughly right."
        )
    if devices and not any(segment.blocks for segment in snapshot.segments):
        notes.append("The segments list no blocks.")
    return notes
