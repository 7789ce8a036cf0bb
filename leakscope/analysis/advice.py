"""Advice from a ledger: which of the cleaning calls could help, and which can't."""

from __future__ import annotations

from leakscope.model.report import LedgerEntry
from leakscope.model.sizes import human_bytes

WORTH = 0.2
"""A call is named when it could give back this part of the growth."""
LITTLE_BYTES = 1 << 20


def host_advice(total: int, entries: list[LedgerEntry]) -> str:
    """Return whether ``gc.collect()`` or ``malloc_trim`` could help, from the host's ledger."""
    if total < LITTLE_BYTES:
        return "Memory did not grow: nothing to give back."
    garbage, slack = _sum(entries, "garbage"), _sum(entries, "slack")
    held = _sum(entries, "named") + _sum(entries, "graph")
    helps: list[str] = []
    cant: list[str] = []
    _sort(garbage, total, "gc.collect()", "awaits the collector", helps, cant)
    _sort(slack, total, "malloc_trim(0)", "is free in the C heap", helps, cant)
    text = []
    if helps:
        text.append(f"{' and '.join(helps)} could help.")
    if cant:
        text.append(f"{' and '.join(cant)} can't help much.")
    return " ".join([*text, *_held(held, total)])


def device_advice(total: int, entries: list[LedgerEntry]) -> str:
    """Return whether ``empty_cache()`` could help, from a device's ledger."""
    if total < LITTLE_BYTES:
        return "Device memory did not grow: nothing to give back."
    cached, stuck = _sum(entries, "cached"), _sum(entries, "fragmentation")
    if cached > WORTH * total:
        return f"torch.cuda.empty_cache() could return {human_bytes(cached)} to the driver."
    if stuck > WORTH * total:
        return (
            "empty_cache() can't help: free memory is stuck between live blocks; "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True could."
        )
    return "empty_cache() can't help: the growth is in live tensors."


def measured_advice(total: int, entries: list[LedgerEntry], told: list[str]) -> str:
    """Return what the calls did where they were tried, in place of what they were thought to do."""
    held = _sum(entries, "named") + _sum(entries, "graph")
    return " ".join(["Tried in this run:", *told, *_held(held, total)])


def _held(held: int, total: int) -> list[str]:
    if held <= WORTH * total:
        return []
    return [f"{human_bytes(held)} is held by names: only letting go of them frees it."]


def _sort(size: int, total: int, call: str, why: str, helps: list[str], cant: list[str]) -> None:
    if size > WORTH * total:
        helps.append(f"{call} ({human_bytes(size)} {why})")
    else:
        cant.append(call)


def _sum(entries: list[LedgerEntry], kind: str) -> int:
    return sum(entry.bytes for entry in entries if entry.kind == kind)
