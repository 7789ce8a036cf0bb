"""Reports written by hand: a leak with everything in it, and the odd ones."""

from __future__ import annotations

import math

import msgspec
import retained_samples

from leakscope.model.comparison import (
    ChangeKind,
    Comparison,
    CulpritChange,
    RankPair,
    RunCost,
    Topic,
    ValueChange,
    WorkerPair,
    WorkFact,
)
from leakscope.model.device import (
    Advice,
    DeviceMemory,
    DeviceOwner,
    Figures,
    LiveRow,
    MapBlock,
    MapSegment,
    OutOfMemory,
    PoolFigures,
    Slack,
    UnexplainedBlocks,
)
from leakscope.model.report import (
    Answer,
    Cleared,
    Component,
    Culprit,
    Cure,
    Cures,
    Effect,
    Excerpt,
    Falsifier,
    Finding,
    Forecast,
    HeldLine,
    KindAnswer,
    KindOfGrowth,
    Ledger,
    LedgerEntry,
    Line,
    MetricGrowth,
    Moment,
    OddRank,
    Overhead,
    PhaseMemory,
    PhaseSpan,
    Point,
    Problem,
    RankMemory,
    Remedy,
    Report,
    RunFacts,
    RunVerdict,
    Severity,
    ShownIn,
    Timeline,
    Work,
    WorkerMemory,
)

KIB, MIB, GIB = 1024, 1024**2, 1024**3
EPOCHS, TRAIN_S, VALIDATION_S = 12, 13.0, 4.6

DIFF = """\
--- a/src/training/trainer.py
+++ b/src/training/trainer.py
@@ -594,9 +594,12 @@ class Trainer:
     def validate(self, loader):
-        # predictions of every validation pile up on the trainer
-        self.all_pred_boxes.extend(boxes.numpy() for boxes in outputs)
+        # one validation's predictions, gone when it ends
+        all_pred_boxes = []
+        for batch in loader:
+            all_pred_boxes.extend(self.predict(batch))
         return self.metrics(all_pred_boxes)
"""

SOURCE = [
    "    @torch.no_grad()",
    "    def validate(self, loader):",
    '        """Mean average precision over the validation episodes."""',
    "        for batch in loader:",
    "            outputs = self.model(batch['query_images'].to(self.device))",
    "            for boxes, scores in zip(outputs['boxes'], outputs['scores']):",
    "                self.all_pred_boxes.append(boxes.cpu().numpy())  # never cleared",
    "                self.all_pred_scores.append(scores.cpu().numpy())",
    "        return self.metrics(self.all_pred_boxes, threshold=0.5)",
]


def run_facts(**changes: object) -> RunFacts:
    facts = {
        "run_id": "2026-03-04T10-22-08-train_detector",
        "path": "leakscope-runs/2026-03-04T10-22-08-train_detector",
        "script": "train_detector.py",
        "command": ["python", "train_detector.py", "--n_way", "4", "--epochs", "12"],
        "created": 1772619728.0,
        "environment": {
            "python": "3.11.7",
            "torch": "2.13.0+cpu",
            "platform": "Linux-6.1 x86_64 glibc 2.36",
            "cpu_count": "16",
            "allocator": "glibc malloc, arenas default",
        },
        "ended": "completed",
        "limit_bytes": 64 * GIB,
        "leakscope_version": "0.1.0",
    }
    return RunFacts(**{**facts, **changes})


def timeline(points: int = 2000, growing: bool = True) -> Timeline:
    cycle = TRAIN_S + VALIDATION_S
    rss, named = [], []
    for i in range(points):
        t = i * EPOCHS * cycle / points
        epoch, inside = divmod(t, cycle)
        kept = 412 * MIB * epoch if growing else 0.0
        climb = 0.0
        if inside > TRAIN_S:
            climb = (inside - TRAIN_S) / VALIDATION_S * (900 if growing else 300) * MIB
        wave = 60 * MIB * math.sin(i / 7) + 25 * MIB * math.sin(i / 2.3)
        rss.append((t, 1.9 * GIB + kept + climb + wave + 0.2 * GIB * (1 - math.exp(-t / 4))))
        named.append((t, 0.25 * GIB + kept + climb * 0.7))
    spans = []
    for epoch in range(EPOCHS):
        begin = epoch * cycle
        spans.append(_span("train", epoch, begin, begin + TRAIN_S))
        spans.append(_span("validation", epoch, begin + TRAIN_S, begin + cycle))
    return Timeline(
        lines=[
            Line(label="process (RSS)", metric="rss", points=rss),
            Line(label="named containers", metric="named", points=named),
        ],
        spans=spans,
        moments=[_moment(i, i * EPOCHS * cycle / points) for i in range(points)],
        censuses_s=[1.5 + i * 4.4 for i in range(48)],
        limit_bytes=64 * GIB,
        thinned_from=18_432,
    )


def _moment(boundary: int, second: float) -> Moment:
    epoch, inside = divmod(second, TRAIN_S + VALIDATION_S)
    steps = int(400 * (epoch + min(1.0, inside / TRAIN_S)))
    phase = "train" if inside < TRAIN_S else "validation"
    return Moment(second, boundary, steps, int(epoch), phase)


def _span(phase: str, epoch: int, start: float, end: float) -> PhaseSpan:
    return PhaseSpan(phase=phase, occurrence=epoch, epoch=epoch, start_s=start, end_s=end)


def boxes_culprit() -> Culprit:
    wobble = [0, 7, -5, 3, 9, -8, 2, 6, -4, 1, -6, 5]
    return Culprit(
        rank=1,
        name="Trainer.all_pred_boxes",
        path="main()·trainer.all_pred_boxes",
        kind="list",
        type="list",
        growth="across",
        unit="validation",
        phase="validation",
        bytes_per_unit=298.4 * MIB,
        interval=(291.0 * MIB, 306.5 * MIB),
        items_per_unit=640,
        share=0.724,
        total_bytes=int(3.53 * GIB),
        severity=Severity.CRITICAL,
        readings=14,
        defined_at="src/training/trainer.py:112",
        fed_at=["src/training/trainer.py:600"],
        allocated_at=["src/training/trainer.py:600", "src/models/heads.py:88"],
        holds=[
            HeldLine(
                type="numpy.ndarray", count=7680, bytes=int(3.4 * GIB), detail="float32 (300, 4)"
            ),
            HeldLine(type="tuple", count=7680, bytes=92 * MIB, detail=""),
        ],
        signature="4f1c9a02be",
        remedy=Remedy(
            title="Keep the boxes local to one validation",
            text="validate() appends to a list that lives on the trainer and nothing ever clears "
            "it. Gather the boxes in a local list and return the metric.",
            diff=DIFF,
        ),
        owner="Trainer",
        held_by=["main()", "trainer", "Trainer.all_pred_boxes"],
        sentence="Trainer.all_pred_boxes gains 640 arrays in every validation and is never "
        "cleared.",
        trend="growing",
        forecast=Forecast(
            limit_bytes=64 * GIB,
            unit="epoch",
            units_left=147.0,
            at=159.0,
            text="reaches 64.0 GiB in epoch 159 of 200",
        ),
        falsifier=Falsifier(
            text="If the list shrank at any later validation, or gc.collect() freed its arrays, "
            "this would be no leak.",
            result="gc.collect() freed 0 B of it; it never shrank in 12 validations.",
        ),
        excerpts=[
            Excerpt(file="src/training/trainer.py", first_line=594, lines=SOURCE, marked=[600])
        ],
        chart=[
            Point(x=i + 1, y=(i + 1) * 298.4 * MIB + d * MIB, boundary=(i + 1) * 2000 // EPOCHS - 1)
            for i, d in enumerate(wobble)
        ],
        chart_unit="validation",
    )


def crops_culprit() -> Culprit:
    return Culprit(
        rank=2,
        name="validate_episode.crops",
        path="main()·validate_episode()·crops[*]['query']",
        kind="list",
        type="list",
        growth="within",
        unit="batch",
        phase="validation",
        bytes_per_unit=44.9 * MIB,
        interval=(40.2 * MIB, 48.8 * MIB),
        items_per_unit=32,
        share=0.171,
        total_bytes=900 * MIB,
        severity=Severity.WARNING,
        readings=14,
        defined_at="src/training/trainer.py:571",
        fed_at=["src/training/trainer.py:584", "src/training/trainer.py:588"],
        holds=[
            HeldLine(
                type="torch.Tensor",
                count=640,
                bytes=900 * MIB,
                detail="float32 (3, 224, 224) on cpu",
            )
        ],
        signature="b77e01d3c4",
        remedy=Remedy(
            title="Score each batch as it comes",
            text="The crops are only needed for a running mean; keep the sum and the count.",
        ),
        owner="validate_episode",
        held_by=["main()", "validate_episode()", "crops"],
        sentence="crops climbs by 44.9 MiB with every validation batch and makes up most of the "
        "peak; it is freed when the validation ends.",
        trend="growing",
        falsifier=Falsifier(
            text="If the peak stayed after crops were dropped, it would be innocent."
        ),
        excerpts=[
            Excerpt(
                file="src/training/trainer.py",
                first_line=582,
                lines=[
                    "        for episode in loader:",
                    "            query = augment(episode['query'])",
                    "            crops.append(query)",
                ],
                marked=[584],
            )
        ],
        chart=[_climbing(epoch, i) for epoch in range(EPOCHS) for i in range(5)],
        chart_unit="s",
    )


def _climbing(epoch: int, i: int) -> Point:
    begin = epoch * (TRAIN_S + VALIDATION_S) + TRAIN_S
    return Point(x=begin + i, y=4 * i * 44.9 * MIB, boundary=epoch * 5 + i)


def loss_culprit() -> Culprit:
    return Culprit(
        rank=3,
        name="train_epoch.total_loss",
        path="main()·train_epoch()·total_loss",
        kind="graph",
        type="torch.Tensor",
        growth="across",
        unit="step",
        phase="train",
        bytes_per_unit=3.1 * KIB,
        interval=(2.9 * KIB, 3.4 * KIB),
        items_per_unit=4,
        share=0.031,
        total_bytes=14 * MIB,
        device="host",
        severity=Severity.NOTE,
        readings=14,
        fed_at=["src/training/trainer.py:431"],
        holds=[HeldLine(type="autograd node", count=19_200, bytes=14 * MIB, detail="AddBackward0")],
        signature="09aa77f1e2",
        remedy=Remedy(
            title="Add up numbers, not tensors",
            text="total_loss keeps the graph of every step it has seen.",
            diff="--- a/t.py\n+++ b/t.py\n@@ -431 +431 @@\n-total_loss += loss\n"
            "+total_loss += loss.item()\n",
        ),
        held_by=["main()", "train_epoch()", "total_loss"],
        sentence="total_loss holds the autograd graph of every step of the epoch.",
        chart=[
            Point(x=400 * i, y=400 * i * 3.1 * KIB, boundary=2000 * i // EPOCHS)
            for i in range(EPOCHS)
        ],
        chart_unit="step",
    )


def slack_finding() -> Finding:
    return Finding(
        rank=1,
        kind="allocator_slack",
        title="glibc keeps 210 MiB that the program has freed",
        text="Freed memory is not returned to the system; malloc_trim(0) would return it.",
        unit="epoch",
        bytes_per_unit=17.5 * MIB,
        interval=(9.0 * MIB, 24.0 * MIB),
        share=0.042,
        total_bytes=210 * MIB,
        severity=Severity.NOTE,
        readings=14,
        signature="slack-rss",
        remedy=Remedy(
            title="Limit the arenas",
            text="Set MALLOC_ARENA_MAX=2, or ignore it: it is bounded by the peak.",
        ),
        falsifier=Falsifier(text="malloc_trim(0) returns nothing.", result="It returned 188 MiB."),
    )


KINDS = [
    KindAnswer(
        kind=KindOfGrowth.LEAK,
        answer=Answer.YES,
        bytes=9 * 1024 * MIB,
        section=ShownIn.CULPRITS,
        subject="main.trainer.predictions",
    ),
    KindAnswer(
        kind=KindOfGrowth.CACHE,
        answer=Answer.YES,
        bytes=40 * MIB,
        section=ShownIn.CLEARED,
        subject="Tokenizer.cache",
    ),
    KindAnswer(kind=KindOfGrowth.PEAK, answer=Answer.NO),
    KindAnswer(
        kind=KindOfGrowth.ALLOCATOR, answer=Answer.YES, bytes=40 * MIB, section=ShownIn.LEDGER
    ),
    KindAnswer(kind=KindOfGrowth.GARBAGE, answer=Answer.NOT_MEASURED),
    KindAnswer(kind=KindOfGrowth.DEVICE_CACHE, answer=Answer.NO),
]


def leaking() -> Report:
    total = int(4.96 * GIB)
    entries = [
        ("Trainer.all_pred_boxes", int(3.53 * GIB), "named", "7,680 arrays"),
        ("other named containers", int(0.62 * GIB), "named", ""),
        ("autograd graphs", 14 * MIB, "graph", "held by total_loss"),
        ("garbage awaiting collection", 36 * MIB, "garbage", ""),
        ("allocator slack", 210 * MIB, "slack", "glibc: free but not returned"),
        ("child processes", -48 * MIB, "children", "two workers ended"),
        ("leakscope itself", 11 * MIB, "own", ""),
    ]
    rest = total - sum(amount for _, amount, _, _ in entries)
    return Report(
        kinds=KINDS,
        retained=retained_samples.retained(),
        verdict=RunVerdict.LEAK,
        headline="Trainer.all_pred_boxes grows by 298 MiB in every validation and is never "
        "cleared; it explains 72 % of the growth.",
        growth=[
            MetricGrowth(
                metric="rss",
                unit="epoch",
                bytes_per_unit=412 * MIB,
                interval=(401 * MIB, 424 * MIB),
                explained_share=0.93,
            ),
            MetricGrowth(
                metric="cuda:0.allocated",
                unit="step",
                bytes_per_unit=0.0,
                interval=(-2.0 * KIB, 2.0 * KIB),
                explained_share=None,
            ),
        ],
        culprits=[boxes_culprit(), crops_culprit(), loss_culprit()],
        findings=[slack_finding()],
        cleared=[
            Cleared(
                name="FrameCache.frames",
                path="main()·dataset.cache.frames",
                reason="bounded: 500 entries since epoch 2",
                kind="lru_cache",
                total_bytes=300 * MIB,
                signature="c1",
            ),
            Cleared(
                name="Trainer.grad_norms",
                path="main()·trainer.grad_norms",
                reason="bounded by its own maxlen of 100",
                kind="deque",
                total_bytes=4 * KIB,
                signature="c2",
            ),
            Cleared(
                name="triplet_batch",
                path="main()·triplet_batch",
                reason="large but constant: 288 MiB at every step",
                kind="tensor",
                total_bytes=288 * MIB,
                signature="c3",
            ),
        ],
        overhead=Overhead(
            wall_share=0.0137,
            peak_bytes=11 * MIB,
            seconds={"census": 2.41, "gauges": 0.31, "recording": 0.12, "tracemalloc": 0.05},
            censuses=48,
            boundaries=19_440,
            recorded_boundaries=18_432,
            longest_pause_s=0.083,
            budget=0.02,
            walker="native",
        ),
        errors=[Problem(where="pss probe", message="smaps_rollup could not be read; RSS is used.")],
        run=run_facts(),
        work=Work(
            duration_s=211.2,
            steps=4800,
            epochs=12,
            validations=12,
            batches={"train": 4800, "validation": 240},
        ),
        ledgers=[
            Ledger(
                metric="rss",
                from_boundary=1620,
                to_boundary=19_440,
                total_bytes=total,
                entries=[
                    *(
                        LedgerEntry(label=label, bytes=amount, kind=kind, note=note)
                        for label, amount, kind, note in entries
                    ),
                    LedgerEntry(label="unexplained", bytes=rest, kind="unexplained"),
                ],
                advice="gc.collect() could free 36 MiB and malloc_trim(0) 210 MiB; neither "
                "touches the 4.15 GiB that names hold.",
            )
        ],
        phases=[
            PhaseMemory(
                phase=phase,
                occurrences=12,
                metric="rss",
                before_bytes=int(before * GIB),
                peak_bytes=int(peak * GIB),
                after_bytes=int(after * GIB),
                kept_bytes=int((after - before) * GIB),
            )
            for phase, before, peak, after in (
                ("train", 4.41, 4.62, 4.43),
                ("validation", 4.43, 5.71, 4.83),
            )
        ],
        components=[
            Component(
                name=name,
                device=device,
                start_bytes=int(start * MIB),
                peak_bytes=int(peak * MIB),
                end_bytes=int(end * MIB),
                by_phase={"train": int(peak * MIB), "validation": int(end * MIB)},
            )
            for name, device, start, peak, end in (
                ("baseline", "host", 1120, 1120, 1120),
                ("parameters", "host", 214, 214, 214),
                ("gradients", "host", 0, 214, 214),
                ("optimizer_state", "host", 0, 428, 428),
                ("batches", "host", 0, 352, 288),
                ("activations and graphs", "host", 0, 610, 14),
                ("accumulations", "host", 0, 4510, 3615),
                ("caches", "host", 0, 300, 300),
                ("unexplained", "host", 40, 366, 296),
            )
        ],
        timeline=timeline(),
        notes=["The first epoch is treated as warm-up."],
    )


def clean() -> Report:
    full = leaking()
    return Report(
        verdict=RunVerdict.CLEAN,
        headline="Nothing grows: memory after validation is the same in epochs 2 to 12.",
        growth=[
            MetricGrowth(
                metric="rss",
                unit="epoch",
                bytes_per_unit=0.2 * MIB,
                interval=(-1.1 * MIB, 1.6 * MIB),
                explained_share=None,
            )
        ],
        culprits=[],
        findings=[],
        cleared=full.cleared,
        overhead=full.overhead,
        errors=[],
        run=run_facts(script="train_detector_fixed.py", run_id="2026-03-04T10-31-40-train_fixed"),
        work=full.work,
        phases=full.phases,
        components=full.components,
        timeline=timeline(growing=False),
    )


def out_of_memory() -> Report:
    full = leaking()
    ended = OutOfMemory(
        device="cuda:0",
        cause="exception",
        shortage="capacity",
        sentence="Out of memory on cuda:0 in train of epoch 7, after 2,810 steps: 4.9 GiB were "
        "asked for with 91 MiB left on the device; capacity, not fragmentation.",
        evidence="Looked at inside the allocator, before the exception unwound.",
        error="OutOfMemoryError: CUDA out of memory. Tried to allocate 4.90 GiB.",
        requested_bytes=int(4.9 * GIB),
        live_bytes=78 * GIB,
        reserved_bytes=int(78.4 * GIB),
        free_bytes=91 * MIB,
        limit_bytes=int(79.1 * GIB),
        components=[
            LiveRow(name="activations and graphs", bytes=60 * GIB, share=0.77),
            LiveRow(name="parameters", bytes=18 * GIB, share=0.23),
        ],
        names=[LiveRow(name="Trainer.crops", bytes=41 * GIB, share=0.52, detail="list, 512 items")],
        fits_if=[
            Advice(title="Mend Trainer.crops", helps=True, evidence="It held 41 GiB.", bytes=41),
            Advice(title="expandable_segments:True", helps=False, evidence="No holes.", bytes=0),
        ],
    )
    return msgspec.structs.replace(
        full,
        verdict=RunVerdict.OUT_OF_MEMORY,
        headline=f"{ended.sentence} Most was held by Trainer.crops: 41 GiB.",
        out_of_memory=ended,
    )


def on_device() -> Report:
    """Tensors gathered on a device, most of its memory named, and much of it stuck in holes."""
    figures = Figures(
        segments=3, blocks=7, live_blocks=4, reserved=900 * MIB, allocated=560 * MIB,
        active=600 * MIB, requested=559 * MIB, pending=40 * MIB, cached=100 * MIB,
        stuck=200 * MIB, holes=2, largest_hole=120 * MIB,
    )  # fmt: skip
    parts = [
        ("parameters", "model.layers[*].weight", 300 * MIB, []),
        ("accumulation", "Trainer.history[*]", 200 * MIB, ["src/train.py:33"]),
        ("pending", "", 40 * MIB, []),
        ("unexplained", "", 60 * MIB, ["src/train.py:12"]),
    ]
    owners = [
        DeviceOwner(
            name=name, path=name, role=role, bytes=size, count=2, share=size / (600 * MIB),
            allocated_at=places,
        )
        for role, name, size, places in parts
    ]  # fmt: skip
    device = DeviceMemory(
        device="cuda:0",
        boundary=40,
        moment="after step 40 of train",
        figures=figures,
        peak_bytes=700 * MIB,
        outside_bytes=410 * MIB,
        pinned_bytes=16 * MIB,
        roles=owners,
        owners=owners * 4,
        unexplained=[UnexplainedBlocks(size=5 * MIB, count=12, bytes=60 * MIB, allocated_at="a:1")],
        explained_share=0.9,
        astray_bytes=4096,
        slack=Slack.FRAGMENTATION,
        slack_sentence="Of 900 MiB reserved, 300 MiB are in no tensor.",
        settings=[Advice(title="expandable_segments:True", helps=True, evidence="Whole pages.")],
        pools=[
            PoolFigures(
                stream=0, pool=(0, 0), is_small=False, is_private=False, figures=figures
            )
        ],
        memory_map=[
            MapSegment(
                stream=0, pool=(0, 0), is_small=False, size=800 * MIB,
                blocks=[
                    MapBlock(300 * MIB, "parameters"), MapBlock(120 * MIB, "hole"),
                    MapBlock(200 * MIB, "accumulation"), MapBlock(80 * MIB, "hole"),
                    MapBlock(40 * MIB, "pending"), MapBlock(60 * MIB, "unexplained"),
                ],
            ),
            MapSegment(
                stream=0, pool=(0, 0), is_small=False, size=100 * MIB,
                blocks=[MapBlock(100 * MIB, "cache")],
            ),
        ],
        left_out_blocks=3,
    )  # fmt: skip
    return msgspec.structs.replace(leaking(), devices=[device])


def cures_tried() -> Report:
    cures = Cures(
        sentence="Tried 6 times, where phases ended.",
        cures=[
            Cure(
                call="gc.collect()",
                effect=Effect.HELPS,
                sentence="gc.collect() freed 210 MiB in 41 ms each time after train: it helps.",
                times=3,
                seconds=0.041,
                objects=1234,
                host_bytes=210 * MIB,
            ),
            Cure(
                call="empty_cache()",
                effect=Effect.USELESS,
                sentence="empty_cache() returned 3 MiB on cuda:0 in 9 ms: it cannot help.",
                times=3,
                seconds=0.009,
                device_bytes={"cuda:0": 3 * MIB},
                taken_again_bytes=2 * MIB,
            ),
        ],
        remarks=["There is no malloc_trim: the C library is not glibc."],
    )
    return msgspec.structs.replace(leaking(), cures=cures)


def inconclusive() -> Report:
    return Report(
        verdict=RunVerdict.INCONCLUSIVE,
        headline="Two epochs are too few for a verdict: RSS rose by 380 MiB, but that may be "
        "warm-up.",
        growth=[
            MetricGrowth(
                metric="rss",
                unit="epoch",
                bytes_per_unit=190 * MIB,
                interval=(-math.inf, math.inf),
                explained_share=0.4,
            )
        ],
        culprits=[],
        findings=[],
        cleared=[],
        overhead=Overhead(wall_share=0.05, peak_bytes=9 * MIB, budget=0.02),
        errors=[],
        run=run_facts(ended="killed (no closing record)", limit_bytes=None),
        work=Work(duration_s=31.0, steps=700, epochs=2, validations=1),
        timeline=timeline(points=60),
        missing=[
            "Two more epochs: four comparable boundaries of each phase are needed.",
            "A full census at the end of an epoch: only focused ones were taken.",
        ],
    )


def empty() -> Report:
    return Report(
        verdict=RunVerdict.INCONCLUSIVE,
        headline="",
        growth=[],
        culprits=[],
        findings=[],
        cleared=[],
        overhead=Overhead(wall_share=0.0, peak_bytes=0),
        errors=[],
        run=RunFacts(
            run_id="", path="", script="", command=[], created=0.0, environment={}, ended=""
        ),
        work=Work(),
    )


def comparison() -> Comparison:
    before, after = leaking(), clean()
    return Comparison(
        headline="The leak is fixed: Trainer.all_pred_boxes no longer grows, and the peak of "
        "validation fell from 5.71 GiB to 2.43 GiB.",
        before=before.run,
        after=after.run,
        before_verdict=before.verdict,
        after_verdict=after.verdict,
        culprits=[
            CulpritChange(
                change=ChangeKind.FIXED,
                name="Trainer.all_pred_boxes",
                path="main()·trainer.all_pred_boxes",
                signature="4f1c9a02be",
                unit="validation",
                severity=Severity.CRITICAL,
                before_bytes_per_unit=298.4 * MIB,
                before_interval=(291.0 * MIB, 306.5 * MIB),
                significant=True,
                text="now bounded",
                place="src/training/trainer.py:600",
                before_chart=boxes_culprit().chart,
                chart_unit="validation",
                before_total_bytes=int(3.53 * GIB),
                before_rates_by_rank={"0": 298.4 * MIB, "1": 297.0 * MIB},
            ),
            CulpritChange(
                change=ChangeKind.REDUCED,
                name="validate_episode.crops",
                path="main()·validate_episode()·crops",
                signature="b77e01d3c4",
                unit="batch",
                severity=Severity.WARNING,
                before_bytes_per_unit=44.9 * MIB,
                before_interval=(40.2 * MIB, 48.8 * MIB),
                after_bytes_per_unit=11.0 * MIB,
                after_interval=(10.1 * MIB, 12.4 * MIB),
                significant=True,
                growth="within",
                before_chart=[Point(10.0 * i, 4.0 * MIB * (i % 5), i) for i in range(20)],
                after_chart=[Point(10.0 * i, 1.0 * MIB * (i % 5), i) for i in range(20)],
                chart_unit="step",
                before_workers=4,
                after_workers=2,
            ),
            CulpritChange(
                change=ChangeKind.NEW,
                name="Logger.rows",
                path="Logger.rows",
                signature="77",
                unit="step",
                severity=Severity.NOTE,
                after_bytes_per_unit=1.1 * KIB,
                after_interval=(1.0 * KIB, 1.2 * KIB),
            ),
        ],
        growth=[
            ValueChange(
                name="rss",
                before_bytes=412 * MIB,
                after_bytes=0.2 * MIB,
                unit="epoch",
                significant=True,
            )
        ],
        components=[
            ValueChange(name="baseline", before_bytes=1120 * MIB, after_bytes=1120 * MIB),
            ValueChange(name="optimizer_state", before_bytes=428 * MIB, after_bytes=428 * MIB),
            ValueChange(name="accumulations", before_bytes=4510 * MIB, after_bytes=300 * MIB),
            ValueChange(name="caches", before_bytes=None, after_bytes=300 * MIB),
        ],
        peaks=[
            ValueChange(name="train", before_bytes=4.62 * GIB, after_bytes=2.31 * GIB),
            ValueChange(name="validation", before_bytes=5.71 * GIB, after_bytes=2.43 * GIB),
        ],
        work_differences=["batch size of validation: 32 before, 16 after"],
        before_timeline=_with_steps(before.timeline),
        after_timeline=_with_steps(after.timeline),
        retained=retained_samples.compared(),
        **comparison_evidence(),
    )


def comparison_evidence() -> dict[str, object]:
    """Return what a comparison shows next to its verdict."""
    return {
        "work": [
            WorkFact(topic=Topic.WORK, name="steps", before="4,800", after="4,800"),
            WorkFact(topic=Topic.WORK, name="ranks", before="2", after="2"),
            WorkFact(
                topic=Topic.PROGRAM, name="--out", before="a", after="b", differs=True,
                matters=False,
            ),
            WorkFact(
                topic=Topic.ENVIRONMENT, name="torch", before="2.12.0", after="2.13.0",
                differs=True,
            ),
            WorkFact(topic=Topic.MEASURING, name="budget", before="2.0%", after=""),
        ],
        "before_cost": RunCost(
            work=Work(duration_s=211.2, steps=4800, epochs=12, validations=12),
            peak_bytes=int(5.71 * GIB),
            overhead=Overhead(wall_share=0.031, peak_bytes=11 * MIB, budget=0.02, censuses=48),
            problems=1,
        ),
        "after_cost": RunCost(
            work=Work(duration_s=198.0, steps=4800, epochs=12, validations=12),
            peak_bytes=int(2.43 * GIB),
            overhead=Overhead(wall_share=0.0137, peak_bytes=9 * MIB, budget=0.02, censuses=51),
        ),
        "ranks": [
            RankPair(
                rank=n,
                before=RankMemory(rank=n, steps=4800, peak_bytes=5 * GIB, grows=["all_pred_boxes"]),
                after=RankMemory(rank=n, steps=4800, peak_bytes=(2 + n) * GIB),
            )
            for n in range(2)
        ],
        "before_odd_rank": OddRank(
            rank=1, step=300, bytes=2 * GIB, sentence="Rank 1 is the first that differs."
        ),
        "workers": [
            WorkerPair(
                loader=1,
                worker=0,
                before=WorkerMemory(
                    loader=1, worker=0, pid=11, batches=60, pss_bytes=900 * MIB,
                    copies=["FrameDataset.samples"],
                ),
            )
        ],
    }  # fmt: skip


def _with_steps(timeline: Timeline | None) -> Timeline:
    assert timeline is not None
    cycle, each = TRAIN_S + VALIDATION_S, 33
    clock = [(0.0, 0.0)]
    for epoch in range(EPOCHS):
        done = each * epoch
        clock += [(epoch * cycle + TRAIN_S * n / each, float(done + n)) for n in range(1, each + 1)]
        clock.append((epoch * cycle + 0.999 * cycle, done + each + 0.9))
    return msgspec.structs.replace(timeline, steps=clock)
