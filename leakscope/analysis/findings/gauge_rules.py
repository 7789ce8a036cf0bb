"""Diagnoses that are nothing but a gauge whose tail grows beyond a floor: one table of rules.

Beside the table: descriptors of shared memory that pile up, whose cause is told from their number.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from leakscope.analysis.accounting.ledger import unexplained_bytes
from leakscope.analysis.allocator.devices import device_series, snapshot_trend
from leakscope.analysis.columns.series import HOST
from leakscope.analysis.findings.unnamed import is_named
from leakscope.analysis.growth import judge, policy
from leakscope.analysis.growth.search import SearchResult
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.source.index import places_that_call
from leakscope.analysis.verdict.wording import to_finding
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.text import human_bytes, human_count
from leakscope.model.trend import Trend


@dataclass(frozen=True)
class GaugeRule:
    """A gauge of which growth is a diagnosis by itself."""

    kind: str
    gauge: str
    """Of a device without the device's name."""
    title: str
    text: str
    """With ``{gained}``, ``{held}``, ``{rate}`` and ``{unit}``."""
    remedy: Remedy
    falsifier: str
    severity: Severity = Severity.WARNING
    floor: float = policy.GAUGE_BYTES
    """What the tail must have gained; of what is counted, all readings."""
    of_devices: bool = False
    counts: bool = False
    """Whether it counts things, not bytes."""
    holds_memory: bool = False
    """Whether memory that nothing else explains may be theirs."""
    snapshot_field: str = ""
    """The sum of a device's blocks that stands for the gauge where that was not read."""
    made_by: frozenset[str] = frozenset()
    """Functions of pyplot that make them."""
    library: str = ""
    """The library that keeps them."""


WARM_UP = "A warm-up would have ended within the run."
_THINGS = "{gained} more {noun} than at the beginning, {rate} per {unit}."


def _things(
    kind: str, name: str, noun: str, fewest: int, remedy: Remedy, **more: object
) -> GaugeRule:
    return GaugeRule(
        kind,
        name,
        f"More and more {noun}",
        _THINGS.replace("{noun}", noun),
        remedy,
        f"If the {noun} are closed and memory grows on, it was not them.",
        severity=Severity.NOTE,
        floor=fewest,
        counts=True,
        **more,  # type: ignore[arg-type]
    )


RULES = (
    GaugeRule(
        "pinned_host",
        gauge.PINNED_HOST,
        "Page-locked host memory grows",
        "Pinned memory that torch owns grew by {gained} to {held}. It can't be swapped, and torch "
        "keeps what is freed.",
        Remedy(
            title="Pin a few buffers and use them again",
            text=(
                "Pin buffers of fixed size once and copy into them, pad batches to equal sizes, "
                "and don't gather pinned tensors (x.cpu() of results needs no pinning). torch "
                "rounds each pinned block up to a power of two and keeps it when it is freed."
            ),
        ),
        WARM_UP,
    ),
    GaugeRule(
        "private_pools",
        gauge.DEVICE_PRIVATE,
        "Private memory pools grow on {device}",
        "Memory reserved by CUDA graphs or MemPool grew by {gained} to {held}; no other request "
        "can use it.",
        Remedy(
            title="Capture for a few shapes only",
            text=(
                "Each capture of a CUDA graph keeps a pool as large as its step. Pad inputs to "
                "some fixed shapes, capture those once, let captures share a pool "
                "(torch.cuda.graph(…, pool=…)), and let go of graphs and MemPool objects that are "
                "no longer replayed. With torch.compile: mark_dynamic, or a mode without "
                "cudagraphs for shapes that vary."
            ),
        ),
        WARM_UP,
        of_devices=True,
        snapshot_field="private",
    ),
    GaugeRule(
        "outside_allocator",
        gauge.DEVICE_OUTSIDE,
        "Memory outside torch's allocator grows on {device}",
        "What the device has in use beyond torch's reserved memory grew by {gained} to {held}: "
        "libraries of this process, or another process on the device.",
        Remedy(
            title="See who uses the device",
            text=(
                "nvidia-smi lists the processes of the device. If it is this one: reuse process "
                "groups instead of making new ones, unload engines (TensorRT, cuDNN plans) that "
                "are no longer used, and look for cudaMalloc in extensions. NCCL takes buffers "
                "per communicator: NCCL_BUFFSIZE makes them smaller."
            ),
        ),
        "With no other process on the device it would be this one's.",
        severity=Severity.NOTE,
        of_devices=True,
    ),
    _things(
        "open_figures",
        gauge.FIGURES,
        "open figures",
        policy.FIGURES,
        Remedy(
            title="Close figures after saving them",
            text=(
                "pyplot keeps every figure until it is closed: call plt.close(fig) after "
                "fig.savefig(…), or use matplotlib.figure.Figure directly."
            ),
        ),
        holds_memory=True,
        made_by=frozenset({"figure", "subplots", "subplot_mosaic"}),
        library="matplotlib",
    ),
    _things(
        "open_files",
        gauge.OPEN_FILES,
        "open files",
        policy.OPEN_FILES,
        Remedy(
            title="Close files",
            text=(
                "Open them with `with`, or close images after reading; a process may hold some "
                "thousand descriptors at most."
            ),
        ),
    ),
    _things(
        "threads",
        gauge.THREADS,
        "threads",
        policy.THREADS,
        Remedy(
            title="Reuse one executor",
            text=(
                "Every thread keeps a stack and often an arena of its own: make one pool outside "
                "the loop, or use it as a context manager."
            ),
        ),
    ),
    _things(
        "processes",
        gauge.CHILDREN,
        "child processes",
        policy.PROCESSES,
        Remedy(
            title="Let workers end",
            text=(
                "Keep one DataLoader (persistent_workers=True) instead of an iterator left "
                "unfinished in each epoch, and join processes that were started."
            ),
        ),
    ),
)


def diagnose_gauges(case: RunContext, growth: SearchResult, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding for each gauge of the table that grows."""
    found = []
    for rule in RULES:
        if rule.gauge == gauge.OPEN_FILES and descriptors_pile_up(case):
            continue
        for device in case.track.devices if rule.of_devices else [HOST]:
            trend, held = _gauge_trend(case, rule, device)
            gained = trend.net_bytes + (trend.gained_before if rule.counts else 0.0)
            if trend.is_growing and gained >= rule.floor:
                found.append(_gauge_finding(case, growth, rule, device, trend, held, ledgers))
    return found


def _gauge_trend(case: RunContext, rule: GaugeRule, device: str) -> tuple[Trend, float]:
    """Return how a gauge grows and what it read last."""
    name = f"{device}.{rule.gauge}" if rule.of_devices else rule.gauge
    if rule.snapshot_field and not case.track.has_gauge(name):
        series = device_series(case, device)
        held = series.of(rule.snapshot_field)
        return snapshot_trend(case, series, rule.snapshot_field), float(
            held[-1] if len(held) else 0
        )
    noise = policy.COUNT_NOISE if rule.counts else policy.GAUGE_NOISE_BYTES
    _, y = case.gauge_series(name)
    return case.gauge_trend(name, noise), float(y[-1]) if len(y) else 0.0


def _gauge_finding(
    case: RunContext,
    growth: SearchResult,
    rule: GaugeRule,
    device: str,
    trend: Trend,
    held: float,
    ledgers: list[Ledger],
) -> Finding:
    say = human_count if rule.counts else human_bytes
    figures = {
        "gained": say(trend.net_bytes),
        "held": say(held),
        "rate": say(trend.bytes_per_unit),
        "unit": trend.unit,
    }
    told, total, severity = trend, held, rule.severity
    text = rule.text.format(**figures)
    if rule.counts:
        total = _without_name(case, growth, ledgers) if rule.holds_memory else 0.0
        told = _imputed(trend, total)
    if rule.holds_memory and total >= policy.IMPUTED_BYTES:
        severity = Severity.WARNING
        text += f" They may hold the {human_bytes(total)} that nothing else explains (estimate)."
    resident = case.gauge_gain(case.host_metric) or 0.0
    share = told.net_bytes / resident if device == HOST and resident > 0 else 0.0
    return to_finding(
        rule.kind,
        rule.title.format(device=device),
        text,
        rule.remedy,
        severity=severity,
        trend=told,
        share=share,
        total_bytes=total,
        device=device,
        fed_at=places_that_call(case.sources, {"plt", "pyplot"}, set(rule.made_by))
        if rule.made_by
        else [],
        known=case.known_by(rule.library) if rule.library else None,
        falsifier=(rule.falsifier, None),
    )


def _without_name(case: RunContext, growth: SearchResult, ledgers: list[Ledger]) -> float:
    """Return what memory gained without a name, where it goes on and in the stretch accounted."""
    terms = (growth.terms.get(kind) for kind in ("unexplained", "elsewhere"))
    going = [t for t in terms if t is not None and t.grows]
    named = [t for t in going if t.kind == "elsewhere" and is_named(case, growth, t)]
    going_on = sum(t.trend.net_bytes for t in going if t not in named)
    return going_on if named else max(unexplained_bytes(ledgers), going_on)


def _imputed(trend: Trend, total: float) -> Trend:
    """Return the trend of a count as one of the bytes that are put down to it."""
    scale = total / max(trend.net_bytes, 1.0)
    low, high = trend.interval
    return msgspec.structs.replace(
        trend,
        bytes_per_unit=trend.bytes_per_unit * scale,
        interval=(low * scale, high * scale),
        net_bytes=total,
    )


FEWEST_DESCRIPTORS = 20
MOST_NAMED = 3
SAME_PACE = 0.5
"""What gains at least this part of as many items as there come descriptors may hold them."""

SHARED_DESCRIPTORS_REMEDY = Remedy(
    title="Keep copies of batches, not the batches",
    text=(
        "Store batch.clone() (or numbers computed from it) where batches are kept: the clone is "
        "ordinary memory and the descriptor is closed. ulimit -n raises the limit; "
        "torch.multiprocessing.set_sharing_strategy('file_system') needs no descriptors but leaves "
        "files in /dev/shm when a process is killed."
    ),
)


def diagnose_shared_descriptors(
    case: RunContext, growth: SearchResult, ledgers: list[Ledger]
) -> list[Finding]:
    """Return a finding when descriptors of shared memory become ever more."""
    trend = _descriptor_trend(case)
    if not _piles_up(trend):
        return []
    last = len(case.track) - 1
    limit = case.nearest(gauge.OPEN_FILES_LIMIT, last)
    text = (
        f"{human_count(trend.net_bytes)} more descriptors of shared memory than at the beginning, "
        f"{human_count(trend.bytes_per_unit)} per {trend.unit}: each belongs to a tensor that a "
        "worker sent and that is still alive."
    )
    names = _names(case, growth, trend)
    if names:
        text += f" {', '.join(names)} {'gain' if len(names) > 1 else 'gains'} items as fast."
    if limit:
        text += f" Of {human_count(limit)} that may be open {human_count(_open(case))} were."
    return [
        to_finding(
            "shared_descriptors",
            "File descriptors of shared memory pile up",
            text,
            SHARED_DESCRIPTORS_REMEDY,
            severity=Severity.WARNING if _is_near(case, trend, limit) else Severity.NOTE,
            falsifier=("If they were on their way, they would be closed at the next epoch.", None),
            subject=",".join(names),
        )
    ]


def descriptors_pile_up(case: RunContext) -> bool:
    """Return whether most of the files that a process opens more and more are shared memory."""
    trend = _descriptor_trend(case)
    x, y = case.gauge_series(gauge.OPEN_FILES)
    files = judge(x, y, unit=case.unit.name, noise=0.5)
    return _piles_up(trend) and trend.net_bytes >= SAME_PACE * files.net_bytes


def _descriptor_trend(case: RunContext) -> Trend:
    x, y = case.gauge_series(gauge.SHARED_DESCRIPTORS)
    return judge(x, y, unit=case.unit.name, noise=0.5)


def _piles_up(trend: Trend) -> bool:
    return trend.is_growing and trend.net_bytes >= FEWEST_DESCRIPTORS


def _names(case: RunContext, growth: SearchResult, trend: Trend) -> list[str]:
    """Return what gains items at least half as fast."""
    across = [g for g in growth.growers if g.growth == "across" and g.items_per_unit]
    units = max(float(case.work_done[-1] - case.work_done[0]), 1.0)
    wanted = SAME_PACE * trend.bytes_per_unit * units
    fast = [g for g in across if (g.items_per_unit or 0.0) * g.units >= wanted]
    return [case.table.latest[g.path].name for g in fast][:MOST_NAMED]


def _open(case: RunContext) -> float:
    """Return the most files that were open: a program that ends has closed them."""
    return float(np.nanmax(case.track.gauge(gauge.OPEN_FILES), initial=0.0))


def _is_near(case: RunContext, trend: Trend, limit: float | None) -> bool:
    """Return whether ten such runs would open more files than the process may."""
    return bool(limit) and _open(case) + policy.HORIZON * trend.net_bytes >= (limit or 0.0)
