"""What the figures were measured on, without a name."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path


def machine() -> str:
    """Return processor, cores, memory, system and the versions that matter, in one line."""
    return ", ".join(
        (
            _processor(),
            f"{len(os.sched_getaffinity(0))} cores",
            f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
            f"{platform.system()} {platform.release().split('-')[0]}",
            f"Python {platform.python_version()}",
            f"torch {version('torch')}",
        )
    )


def _processor() -> str:
    """Return the processor's model: what ``platform.processor`` leaves empty on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
