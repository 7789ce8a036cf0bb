"""Sections of a run's page: which kind of growth it is, and what only some runs have, device
memory, running out of memory, cleaning calls that were tried, compiled code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

from leakscope.model.device import DeviceMemory, OutOfMemory
from leakscope.model.report import (
    Answer,
    CompiledCode,
    CompiledEntry,
    KindAnswer,
    Report,
    ShownIn,
)
from leakscope.model.text import plural
from leakscope.report import words
from leakscope.report.device_map import SHADES, map_view
from leakscope.report.snapshot import figure_facts, parts_of, pool_views
from leakscope.report.tables import Fact, size_facts
from leakscope.report.text import humane_number, size_of
from leakscope.report.words import role_words


def kinds_view(report: Report, anchors: Mapping[str, str]) -> SimpleNamespace | None:
    """Return the table of a report; None where it has none, as older ones.

    ``anchors`` are where culprits and findings stand on the page, by signature.
    """
    if not report.kinds:
        return None
    shown = (Answer.YES, Answer.UNDECIDED)
    others = words.other_kinds(report.kinds)
    return SimpleNamespace(
        rows=[_kind_row(kind, anchors) for kind in report.kinds if kind.answer in shown],
        others=[Fact(answer, ", ".join(names)) for answer, names in others.items()],
    )


def _kind_row(kind: KindAnswer, anchors: Mapping[str, str]) -> SimpleNamespace:
    section = kind.section.value if kind.section is not None else ""
    return SimpleNamespace(
        kind=kind,
        shown=kind.subject or words.SECTIONS.get(section, ""),
        is_code=bool(kind.subject) and kind.section is not ShownIn.FINDINGS,
        link=anchors.get(kind.signature, section),
    )


def device_views(devices: Sequence[DeviceMemory]) -> list[SimpleNamespace]:
    """Return one view a device, in the order given."""
    return [
        SimpleNamespace(
            anchor=f"device-{place}",
            memory=device,
            facts=[*figure_facts(device.figures), *_device_facts(device)],
            bars=parts_of(device.figures, device.figures.reserved),
            memory_map=map_view(
                device.memory_map,
                f"device-{place}-blocks",
                ((role_words(row.role), _kind(row.role), row.bytes) for row in device.roles),
                device.figures,
                role_words,
            ),
            remarks=_remarks(device),
            pools=pool_views(device.pools),
        )
        for place, device in enumerate(devices)
    ]


def _device_facts(device: DeviceMemory) -> list[Fact]:
    sizes = [
        ("torch's own peak", device.peak_bytes),
        ("Outside the allocator", device.outside_bytes),
        ("Page-locked on the host", device.pinned_bytes),
    ]
    return size_facts((label, amount) for label, amount in sizes if amount)


def shade_of(role: str) -> str:
    """Return the CSS variable of a role; a role ``cache`` is no cache of the allocator's."""
    return SHADES.get(_kind(role), "map-other")


def _kind(role: str) -> str:
    return "caches" if role == "cache" else role


def _remarks(device: DeviceMemory) -> list[str]:
    remarks = []
    if device.left_out_blocks:
        remarks.append(
            f"{humane_number(device.left_out_blocks)} blocks were too many to be recorded."
        )
    if not device.sees_libraries and device.explained_share < 1.0:
        remarks.append(
            "The census looked only at what your own names reach: what libraries hold is among the "
            "unexplained."
        )
    if device.astray_bytes:
        size = size_of(device.astray_bytes).text
        remarks.append(
            f"{size} of tensors lie in no block of torch's allocator: memory of another process, "
            "of a library, or freed while it was looked at."
        )
    return remarks


def shortage_view(ended: OutOfMemory | None) -> SimpleNamespace | None:
    """Return the section; None where memory didn't end the run."""
    if ended is None:
        return None
    tables = [
        SimpleNamespace(title="Held by, by name", rows=ended.names, has_details=True),
        SimpleNamespace(title="Live, by what it is for", rows=ended.components, has_details=False),
    ]
    return SimpleNamespace(
        sentence=ended.sentence,
        evidence=ended.evidence,
        error=ended.error,
        facts=_shortage_facts(ended),
        ways=ended.fits_if,
        first_ways=" · ".join(way.title for way in ended.fits_if if way.helps),
        tables=[table for table in tables if table.rows],
    )


def _shortage_facts(ended: OutOfMemory) -> list[Fact]:
    on_device = ended.device != "host"
    sizes = [
        ("Asked for", ended.requested_bytes),
        ("Left", ended.free_bytes),
        ("In live tensors" if on_device else "Resident", ended.live_bytes),
        ("Held by torch's allocator", ended.reserved_bytes),
        ("Limit", ended.limit_bytes),
    ]
    facts = size_facts((label, size) for label, size in sizes if size is not None)
    return [*facts, Fact("Kind of shortage", ended.shortage)] if ended.shortage else facts


MIN_TENSOR_BYTES = 64 << 10
MOST_FORMS = 8


def compiled_view(kept: CompiledCode | None) -> SimpleNamespace | None:
    """Return the section; None where nothing was compiled."""
    if kept is None or not kept.functions:
        return None
    then = "the program fails" if kept.is_error else "calls that fit none run uncompiled"
    raised = ", which the program has raised" if kept.is_raised else ""
    return SimpleNamespace(
        sentence=f"Dynamo keeps at most {humane_number(kept.limit)} entries per code object "
        f"(recompile_limit{raised}); then {then}.",
        rows=[_compiled_row(entry, kept) for entry in kept.functions],
        remarks=[text for text in (_about_workers(kept), _about_graphs(kept)) if text],
    )


def _compiled_row(entry: CompiledEntry, kept: CompiledCode) -> SimpleNamespace:
    limit = f"of {humane_number(kept.limit)}"
    if entry.codes > 1:
        limit = f"in {humane_number(entry.codes)} code objects, no limit together"
    elif entry.hit_limit:
        limit = f"{limit}: reached"
    parts = []
    if entry.bytes and entry.entries > 1:
        parts.append(f"{size_of(entry.bytes // entry.entries).text} each")
    if entry.tensor_bytes >= MIN_TENSOR_BYTES:
        parts.append(f"{size_of(entry.tensor_bytes).text} of tensors")
    if entry.native_bytes >= MIN_TENSOR_BYTES:
        parts.append(
            f"{size_of(entry.native_bytes).text} of native memory that it keeps (estimate)"
        )
    is_installed = "site-packages" in entry.place or "dist-packages" in entry.place
    return SimpleNamespace(
        entry=entry,
        place=entry.called_at[0] if is_installed and entry.called_at else entry.place,
        limit=limit,
        each=", ".join(parts),
    )


def _about_workers(kept: CompiledCode) -> str:
    if not kept.workers:
        return ""
    ends = (
        "they end when they have been idle for a while (quiesce_async_compile_pool)"
        if kept.ends_idle_workers
        else "they stay until the program ends"
    )
    return (
        f"Inductor compiles in {plural(kept.workers, 'process')} of its own, "
        f"{size_of(kept.worker_bytes).text} resident together; {ends}. "
        "TORCHINDUCTOR_COMPILE_THREADS=1 does without them."
    )


def _about_graphs(kept: CompiledCode) -> str:
    count = sum(each.graphs for each in kept.graphs)
    if not count:
        return ""
    forms = "; ".join(
        f"{each.shapes or 'no tensors'} on {each.device} ({humane_number(each.graphs)})"
        for each in kept.graphs[:MOST_FORMS]
    )
    return (
        f"{plural(count, 'CUDA graph')} captured, by the shapes of what they return: {forms}. "
        "Their memory lies in private pools."
    )
