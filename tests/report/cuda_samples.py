"""Explanations of CUDA snapshots written by hand."""

from __future__ import annotations

import msgspec

from leakscope.model.device import Figures, MapBlock, MapSegment, PoolFigures, Slack
from leakscope.model.explanation import (
    Advice,
    BlockClass,
    ClassRow,
    DeviceComparison,
    DeviceCourse,
    DeviceExplanation,
    DeviceFinding,
    DeviceGrowth,
    DevicePeak,
    DevicePhaseRow,
    Explanation,
    Fault,
    SiteRow,
    SnapshotComparison,
    TraceFacts,
)
from leakscope.model.report import PhaseSpan, Severity

MIB = 1 << 20
FIGURES = Figures(
    segments=2,
    blocks=4,
    live_blocks=2,
    reserved=100 * MIB,
    allocated=60 * MIB,
    active=60 * MIB,
    requested=59 * MIB,
    cached=20 * MIB,
    stuck=20 * MIB,
    holes=2,
    largest_hole=20 * MIB,
)
CLASSES = [
    ClassRow(
        kind=BlockClass.ACTIVATIONS, bytes=40 * MIB, count=1, share=2 / 3, evidence="its stack"
    ),
    ClassRow(kind=BlockClass.WEIGHTS, bytes=20 * MIB, count=1, share=1 / 3, evidence="older"),
]
SITES = [
    SiteRow(place="/home/u/model.py:20", function="forward", operation="einsum",
            kind=BlockClass.ACTIVATIONS, bytes=40 * MIB, count=1, largest=40 * MIB, share=2 / 3),
    SiteRow(place="no stack was recorded", function="", operation="",
            kind=BlockClass.WEIGHTS, bytes=20 * MIB, count=1, largest=20 * MIB, share=1 / 3),
]  # fmt: skip
WAYS = [
    Advice(title="Make the batch 7 % smaller", helps=True, evidence="Enough.", bytes=MIB),
    Advice(title="expandable_segments:True", helps=False, evidence="Nothing in holes.", bytes=0),
]
FAULT = Fault(
    entry=9,
    request=50 * MIB,
    device_free=MIB,
    is_fragmentation=False,
    missing=9 * MIB,
    place="/home/u/model.py:21",
    operation="relu",
    figures=FIGURES,
    classes=CLASSES,
    sites=SITES,
    sentence="50 MiB were asked for: capacity.",
    fits_if=WAYS,
)
DEVICE = DeviceExplanation(
    device=1,
    headline="60 MiB live",
    subject="end",
    figures=FIGURES,
    pools=[PoolFigures(stream=0, pool=(0, 2), is_small=False, is_private=True, figures=FIGURES)],
    classes=CLASSES,
    sites=SITES,
    slack=Slack.BOTH,
    slack_sentence="40 MiB are in no tensor.",
    settings=WAYS,
    trace=TraceFacts(
        entries=10,
        actions={"alloc": 10},
        seconds=2.5,
        from_the_beginning=True,
        start_bytes=0,
        end_bytes=60 * MIB,
        conflicts=0,
        segment_allocs=2,
        segment_frees=0,
        retries=0,
        step_ends=[9],
        step_bytes=[60 * MIB],
    ),
    peak=DevicePeak(
        entry=5,
        time_s=1.25,
        live_bytes=90 * MIB,
        reserved_bytes=100 * MIB,
        phase="forward",
        classes=CLASSES,
        sites=SITES,
    ),
    phases=[
        DevicePhaseRow(
            phase=phase,
            stretches=1,
            allocated_bytes=MIB,
            peak_bytes=90 * MIB,
            kept_bytes=-MIB,
            seconds=1.0,
        )
        for phase in ("forward", "backward")
    ],
    findings=[
        DeviceFinding(slug="x", severity=Severity.WARNING, title="L", text="Why.", remedy="Do.")
    ],
    course=DeviceCourse(
        unit="s",
        live=[(0.0, 0), (1.25, 90 * MIB), (2.5, 60 * MIB)],
        reserved=[(0.0, 0), (2.5, 100 * MIB)],
        peak=(1.25, 90 * MIB),
        spans=[PhaseSpan(phase="forward", occurrence=1, epoch=0, start_s=0, end_s=1)],
    ),
    memory_map=[
        MapSegment(
            stream=0,
            pool=(0, 2),
            is_small=False,
            size=100 * MIB,
            blocks=[MapBlock(60 * MIB, "weights"), MapBlock(40 * MIB, "hole")],
        )
    ],
)
EXPLANATION = Explanation(
    name="/home/u/snapshot.pickle",
    headline="60 MiB live.",
    version="2.8 or newer",
    settings={"expandable_segments": "False"},
    total=FIGURES,
    devices=[DEVICE],
    findings=[
        DeviceFinding(slug="y", severity=Severity.NOTE, title="Between devices", text="Uneven.")
    ],
    notes=["The history holds the unknown action 'x'."],
)
FAILED = msgspec.structs.replace(
    EXPLANATION, devices=[msgspec.structs.replace(DEVICE, fault=FAULT, subject="fault")]
)
EMPTY = Explanation(
    name="e", headline="No device memory.", version="", settings={}, total=Figures(), devices=[]
)
COMPARISON = SnapshotComparison(
    names=["a.pickle", "b.pickle"],
    headline="Fragmentation grew.",
    by_stuck=[1, 0],
    slack=[Slack.TIDY, Slack.BOTH],
    headlines=["Small.", "Large."],
    notes=["a.pickle: odd."],
    devices=[
        DeviceComparison(
            device=0,
            kind="fragmentation",
            headline="Fragmentation grew.",
            sentence="Live 1 → 2.",
            figures=[Figures(), FIGURES],
            peaks=[None, 90 * MIB],
            classes=[
                DeviceGrowth(name="weights", kind=BlockClass.WEIGHTS, bytes=[0, MIB], counts=[0, 1])
            ],
            sites=[
                DeviceGrowth(
                    name="/home/u/a.py:3", kind=BlockClass.OTHER, bytes=[2, 1], counts=[2, 1]
                )
            ],
            sizes=[
                DeviceGrowth(
                    name="/home/u/a.py:3",
                    kind=BlockClass.OTHER,
                    bytes=[0, MIB],
                    counts=[0, 2],
                    size=512,
                )
            ],
        )
    ],
)
ALL = {"explanation": EXPLANATION, "failed": FAILED, "empty": EMPTY, "comparison": COMPARISON}
