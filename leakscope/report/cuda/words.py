"""What the classes, pools and states of the CUDA allocator are called."""

from __future__ import annotations

from leakscope.model.allocator import DEFAULT_POOL, UNKNOWN_POOL
from leakscope.model.device import Slack
from leakscope.model.explanation import (
    BlockClass,
    DeviceComparison,
    DeviceExplanation,
    Explanation,
    SnapshotComparison,
)
from leakscope.model.report import Severity

CLASSES = {
    BlockClass.WEIGHTS: "Weights",
    BlockClass.GRADIENTS: "Gradients",
    BlockClass.OPTIMIZER: "Optimizer state",
    BlockClass.ACTIVATIONS: "Made in a forward pass",
    BlockClass.BACKWARD: "Made in a backward pass",
    BlockClass.WORKSPACE: "Workspaces",
    BlockClass.COMMUNICATION: "Communication buffers",
    BlockClass.PENDING: "Freed, still waited for",
    BlockClass.OTHER: "Other tensors",
    BlockClass.UNKNOWN: "Unknown",
}
SLACKS = {
    Slack.TIDY: "Tidy",
    Slack.CACHE: "Cache",
    Slack.FRAGMENTATION: "Holes",
    Slack.BOTH: "Holes and cache",
}
CHANGED = {
    "live": "More live",
    "fragmentation": "More holes",
    "cache": "More cache",
    "less": "Less",
    "nothing": "The same",
}
TERMS = {
    "reserved": "What the allocator took from the driver; what nvidia-smi shows, nearly.",
    "live": "Reserved and in use: tensors, workspaces, and frees that a stream waits for.",
    "cache": "Wholly free segments: empty_cache() returns them to the driver.",
    "stuck": "Holes in segments that are in use: nothing returns them while a neighbour lives.",
    "segment": "A stretch of memory from the driver, cut into blocks.",
    "pool": "A free block serves requests of its own stream, pool and size alone.",
    "peak": "The moment of the history at which most was live, played back entry by entry.",
}


def verdict_of(explanation: Explanation) -> tuple[str, str]:
    """Return whose colours a snapshot wears, and a word for it."""
    if not explanation.devices:
        return "clean", "Empty"
    faults = [device.fault for device in explanation.devices if device.fault is not None]
    if faults:
        fragmented = any(fault.is_fragmentation for fault in faults)
        return "leak", "Fragmentation" if fragmented else "Capacity"
    severities = {f.severity for device in explanation.devices for f in device.findings}
    if Severity.CRITICAL in severities:
        return "leak", "Leak"
    slack = lead_device(explanation).slack
    if slack in (Slack.FRAGMENTATION, Slack.BOTH):
        return "inconclusive", SLACKS[slack]
    if Severity.WARNING in severities:
        return "inconclusive", "Warning"
    return "clean", SLACKS[slack]


def lead_device(explanation: Explanation) -> DeviceExplanation:
    """Return the device that matters most: one that ran out of memory, else the fullest."""
    failed = [d for d in explanation.devices if d.fault is not None]
    return max(failed or explanation.devices, key=lambda device: device.figures.reserved)


def devices_in_order(explanation: Explanation) -> list[DeviceExplanation]:
    """Return the devices, the one that matters most first."""
    if not explanation.devices:
        return []
    lead = lead_device(explanation)
    return [lead, *(device for device in explanation.devices if device is not lead)]


def comparison_verdict(comparison: SnapshotComparison) -> tuple[str, str]:
    """Return whose colours several snapshots wear, and a word for what happened."""
    if not comparison.devices:
        return "clean", "Empty"
    lead = lead_comparison(comparison)
    alarming = lead.kind == "fragmentation" or ": a leak" in lead.headline
    calm = lead.kind in ("cache", "less", "nothing") or "no leak" in lead.headline
    kind = "leak" if alarming else "clean" if calm else "inconclusive"
    return kind, CHANGED.get(lead.kind, lead.kind)


def lead_comparison(comparison: SnapshotComparison) -> DeviceComparison:
    """Return the device whose change is the headline."""
    order = list(CHANGED)
    return min(comparison.devices, key=lambda d: (order.index(d.kind), -d.figures[-1].reserved))


def pool_words(pool: tuple[int, int]) -> str:
    """Return ``default pool`` or which private one it is."""
    if pool == DEFAULT_POOL:
        return "default pool"
    if pool == UNKNOWN_POOL:
        return "outside any segment"
    kind = "CUDA graphs" if pool[0] else "private pool"
    return f"{kind} ({pool[0]}, {pool[1]})"


def group_words(stream: int, pool: tuple[int, int], *, is_small: bool) -> str:
    """Return ``stream 0, default pool, large blocks``."""
    blocks = "small blocks" if is_small else "large blocks"
    return f"stream {stream if stream < 1 << 16 else hex(stream)}, {pool_words(pool)}, {blocks}"


def subject_words(device: DeviceExplanation) -> str:
    """Return which moment is shown."""
    return "just before the failure" if device.subject == "fault" else "at the end of the file"
