"""Numbers as a person reads them: bytes in IEC units, counts, rates, times."""

from __future__ import annotations

import math
import re

BYTES_IN = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
"""Units in which a person may write a size, in lower case."""
_WRITTEN = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([kmgt]?i?b)?", re.IGNORECASE)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def human_bytes(value: float) -> str:
    """Return bytes with three significant digits at most: ``2.1 MiB``, ``512 B``, ``−40 KiB``."""
    if not math.isfinite(value):
        return "unknown"
    sign, size = ("−" if value < 0 else ""), abs(float(value))
    unit = 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size /= 1024.0
        unit += 1
    if sign and round(size, 1) == 0:
        sign = ""
    return f"{sign}{_digits(size, whole=unit == 0)} {_UNITS[unit]}"


def to_bytes(text: str) -> float | None:
    """Return the bytes in a text such as ``1 KB`` or ``4096``; None where it is none."""
    found = _WRITTEN.fullmatch(text.strip())
    unit = (found[2] or "b").lower() if found else ""
    return float(found[1]) * BYTES_IN[unit] if found and unit in BYTES_IN else None


def human_count(value: float) -> str:
    """Return a count with thin grouping: ``12,345``, or one decimal below ten: ``2.5``."""
    if not math.isfinite(value):
        return "unknown"
    if abs(value) < 10 and not float(value).is_integer():
        return f"{value:.1f}"
    return f"{round(value):,}"


def human_share(value: float) -> str:
    """Return a part of one as per cent: ``83 %``, ``< 1 %``; of nearly all gone ``< −99 %``.

    What is hardly less than nothing is noise and no part of anything: ``≈ 0 %``.
    """
    if not math.isfinite(value):
        return "unknown"
    if 0 < value < 0.01:
        return "< 1 %"
    if -0.01 < value < 0:
        return "≈ 0 %"
    if -1 < value < -0.99:
        return "< −99 %"
    return f"{value:.0%}".replace("%", " %").replace("-", "−")


def plural(count: float, noun: str) -> str:
    """Return ``3 epochs``, ``1 batch``, ``2 batches``, ``4 boundaries``, ``5 days``."""
    if round(count) == 1:
        return f"1 {noun}"
    if noun.endswith("y") and not noun.endswith(("ay", "ey", "oy", "uy")):
        noun, ending = noun[:-1], "ies"
    else:
        ending = "es" if noun.endswith(("s", "x", "tch", "sh")) else "s"
    return f"{human_count(round(count))} {noun}{ending}"


def _digits(size: float, *, whole: bool) -> str:
    if whole or size >= 99.95:
        return f"{size:.0f}"
    text = f"{size:.1f}"
    return text.removesuffix(".0")
