"""Numbers and names as remedies and comparisons write them."""

from __future__ import annotations

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def size(count: float) -> str:
    """Return bytes in decimal units, two significant digits at least: ``2.1 MB``, ``410 MB``."""
    value, sign = abs(float(count)), "-" if count < 0 else ""
    index = 0
    while value >= 999.5 and index < len(_UNITS) - 1:
        value /= 1000
        index += 1
    digits = 0 if index == 0 or value >= 99.95 else 1
    return f"{sign}{value:.{digits}f} {_UNITS[index]}"


def number(value: float) -> str:
    """Return a count as a person says it: ``20``, ``0.5``, ``1,280``."""
    if abs(value) >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.2g}"


def plural(count: float, noun: str) -> str:
    """Return ``1 item`` or ``20 items``."""
    return f"{number(count)} {noun}" + ("" if count == 1 else "s")
