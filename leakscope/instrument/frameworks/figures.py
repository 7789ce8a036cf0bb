"""Memory as a few numbers that a log or a tracker draws beside the loss."""

from __future__ import annotations

from leakscope.cleanup.accelerator import device_levels
from leakscope.cleanup.host import resident

PREFIX = "leakscope/"
_MIB = 1 << 20


def memory_figures() -> dict[str, float]:
    """Return resident memory of this process, and what is live and reserved per device, in MiB."""
    figures = {f"{PREFIX}host_mib": resident() / _MIB}
    for device, level in device_levels().items():
        figures[f"{PREFIX}{device}_allocated_mib"] = level.allocated / _MIB
        figures[f"{PREFIX}{device}_reserved_mib"] = level.reserved / _MIB
    return {name: round(figure, 3) for name, figure in figures.items()}
