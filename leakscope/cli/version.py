"""Which leakscope this is."""

from __future__ import annotations


def version() -> str:
    """Return the installed version; ``unknown`` when run from a bare checkout."""
    from importlib import metadata

    try:
        return metadata.version("leakscope")
    except metadata.PackageNotFoundError:
        return "unknown"
