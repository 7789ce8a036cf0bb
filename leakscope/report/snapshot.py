"""The page of a snapshot of torch's CUDA allocator, and of several, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from leakscope.model import __version__
from leakscope.model.device import Figures, PoolFigures
from leakscope.model.explanation import (
    BlockClass,
    DeviceComparison,
    DeviceExplanation,
    DevicePeak,
    Explanation,
    Fault,
    SnapshotComparison,
)
from leakscope.model.text import plural
from leakscope.report import words
from leakscope.report.device_map import curve_data, curve_view, map_view
from leakscope.report.tables import Bar, Fact, size_facts
from leakscope.report.text import humane_bytes, humane_duration, humane_number


def snapshot_page(explanation: Explanation) -> SimpleNamespace:
    """Return the whole page for a snapshot."""
    verdict, label = words.verdict_of(explanation)
    ordered = words.devices_in_order(explanation)
    devices = [_device_view(device) for device in ordered]
    charts: dict[str, Any] = {}
    for device, view in zip(ordered, devices, strict=True):
        charts |= curve_data(view.curve, device.course)
    name = explanation.name.replace("\\", "/").rpartition("/")[2]
    return SimpleNamespace(
        explained=explanation,
        title=f"{label} · {name}",
        verdict=verdict,
        verdict_label=label,
        context=_context(explanation, name),
        main_device=devices[0] if devices else None,
        devices=devices,
        settings=[Fact(key, value) for key, value in explanation.settings.items() if value],
        terms=words.ALLOCATOR_TERMS,
        version=__version__,
        data={
            "charts": charts,
            "maps": {
                view.memory_map.key: view.memory_map.data for view in devices if view.memory_map
            },
            "copies": {},
        },
    )


def figure_facts(figures: Figures) -> list[Fact]:
    """Return the sums of a device as labels and sizes."""
    amounts = [*zip(words.SUMS, words.sums_of(figures), strict=True)]
    if figures.pending:
        amounts.append(("Freed, still waited for", figures.pending))
    return size_facts(amounts)


def parts_of(figures: Figures, whole: int) -> list[Bar]:
    """Return live, stuck and cached bytes as one bar against a whole."""
    if not whole:
        return []
    bars, left = [], 0
    _, live, cached, stuck, _ = words.sums_of(figures)
    for kind, amount in (("live", live), ("stuck", stuck), ("cached", cached)):
        bars.append(Bar(f"{100 * left / whole:.2f}%", f"{100 * amount / whole:.2f}%", kind))
        left += amount
    return bars


def _context(explanation: Explanation, name: str) -> list[Fact]:
    facts = [Fact("File", name, explanation.name)]
    if explanation.version:
        facts.append(Fact("Version", f"torch {explanation.version}"))
    if explanation.devices:
        facts.append(Fact("Devices", plural(len(explanation.devices), "device")))
    entries = sum(d.trace.entries for d in explanation.devices if d.trace is not None)
    history = f"{plural(entries, 'entry')} of history" if entries else "no history"
    return [*facts, Fact("History", history)]


def _device_view(device: DeviceExplanation) -> SimpleNamespace:
    figures = device.figures if device.fault is None else device.fault.figures
    key = f"cuda-{device.device}"
    return SimpleNamespace(
        anchor=key,
        name=f"cuda:{device.device}",
        subject=words.subject_words(device),
        explained=device,
        facts=[*figure_facts(figures), *_moments(device)],
        bars=parts_of(figures, figures.reserved),
        curve=curve_view(device.course, f"{key}-curve"),
        memory_map=_map(device, key, figures),
        fault_facts=_fault_facts(device.fault),
        peak=_peak_words(device.peak) if device.peak else "",
        settings=device.settings if device.fault is None else [],
        pools=pool_views(device.pools),
        history=_history(device),
    )


def _moments(device: DeviceExplanation) -> list[Fact]:
    if device.fault is not None and device.fault.request is not None:
        return size_facts([("Asked for in vain", device.fault.request)])
    return size_facts([("Peak of the history", device.peak.live_bytes)] if device.peak else [])


def _map(device: DeviceExplanation, key: str, figures: Figures) -> SimpleNamespace | None:
    if not device.memory_map:
        return None
    return map_view(
        device.memory_map,
        f"{key}-blocks",
        ((words.BLOCK_CLASSES[row.kind], row.kind.value, row.bytes) for row in device.classes),
        figures,
        lambda kind: words.BLOCK_CLASSES[BlockClass(kind)],
    )


def _fault_facts(fault: Fault | None) -> list[Fact]:
    if fault is None or fault.request is None:
        return []
    sizes = [
        ("Asked for", fault.request),
        ("Left on the device", fault.device_free),
        ("Missing", fault.missing),
    ]
    facts = [*size_facts(sizes), Fact("Asked by", fault.operation)]
    return [fact for fact in facts if fact.value]


def _peak_words(peak: DevicePeak) -> str:
    when = f" {humane_duration(peak.time_s)} into the history" if peak.time_s is not None else ""
    phase = f", in {peak.phase}" if peak.phase else ""
    return (
        f"{humane_bytes(peak.live_bytes)} requested and live, "
        f"{humane_bytes(peak.reserved_bytes)} reserved{when}{phase} (entry {peak.entry:,})."
    )


def pool_views(rows: Sequence[PoolFigures]) -> list[SimpleNamespace]:
    """Return one row a stream and pool; bars share one scale."""
    top = max((row.figures.reserved for row in rows), default=1)
    return [
        SimpleNamespace(
            label=words.group_words(row.stream, row.pool, is_small=row.is_small),
            parts=parts_of(row.figures, top),
            sums=words.sums_of(row.figures),
        )
        for row in rows
    ]


def _history(device: DeviceExplanation) -> list[Fact]:
    trace = device.trace
    if trace is None:
        return []
    facts = [
        Fact("Entries", humane_number(trace.entries)),
        Fact("Lasts", humane_duration(trace.seconds) if trace.seconds is not None else ""),
        Fact("Begins", "with the process" if trace.from_the_beginning else "in the middle"),
        Fact("Live at its start", humane_bytes(trace.start_bytes)),
        Fact("Live at its end", humane_bytes(trace.end_bytes)),
        Fact("Segments taken", humane_number(trace.segment_allocs)),
        Fact("Segments released", humane_number(trace.segment_frees)),
        Fact("Optimizer steps", humane_number(len(trace.step_ends))),
        Fact("Contradictions", humane_number(trace.conflicts)),
    ]
    return [fact for fact in facts if fact.value]


BY_CLASS = "By what it is for"
COLUMNS = (*words.SUMS, "Peak")


def snapshots_page(comparison: SnapshotComparison) -> SimpleNamespace:
    """Return the whole page for several snapshots."""
    verdict, label = words.comparison_verdict(comparison)
    names = comparison.names
    return SimpleNamespace(
        title=f"{label} · {len(names)} snapshots",
        verdict=verdict,
        verdict_label=label,
        compared=comparison,
        ranked=[names[number] for number in comparison.by_stuck],
        devices=[_compared_device(device, names) for device in comparison.devices],
        terms=words.ALLOCATOR_TERMS,
        version=__version__,
        data={"charts": {}, "copies": {}},
    )


def _compared_device(device: DeviceComparison, names: Sequence[str]) -> SimpleNamespace:
    top = max((figures.reserved for figures in device.figures), default=0)
    sums = [
        SimpleNamespace(
            name=name, parts=parts_of(figures, top), sums=[*words.sums_of(figures), peak]
        )
        for name, figures, peak in zip(names, device.figures, device.peaks, strict=True)
    ]
    tables = [
        (BY_CLASS, device.classes),
        ("By the line that allocated it", device.sites),
        ("By size of block", device.sizes),
    ]
    return SimpleNamespace(
        anchor=f"cuda-{device.device}",
        name=f"cuda:{device.device}",
        sentence=device.sentence,
        sums=sums,
        tables=[(title, rows) for title, rows in tables if rows],
    )
