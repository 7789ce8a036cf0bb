"""Which leakscope this is."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """Return the installed version; ``unknown`` when run from a bare checkout."""
    try:
        return metadata.version("leakscope")
    except metadata.PackageNotFoundError:
        return "unknown"
