r"""Numbers as a person reads them, and text from the user's program made harmless to look at.

Names may hold terminal escapes, marks that reverse the direction of reading, or halves of
surrogate pairs that no file can hold. Each such character is shown as its escape, ``\x1b``.
"""

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
    digits = f"{size:.0f}" if unit == 0 or size >= 99.95 else f"{size:.1f}".removesuffix(".0")
    return f"{sign}{digits} {_UNITS[unit]}"


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


UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and newline
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff"  # direction, zero width
    "\ud800-\udfff"  # halves of surrogate pairs
    "\U000e0000-\U000e007f"  # invisible tags
)
_UNSEEN = re.compile(f"[{UNSEEN}]")
_UNSEEN_OR_BREAK = re.compile(f"[{UNSEEN}\t\n]")


def printable(text: str) -> str:
    """Return text with every unseen character spelled out; tabs and newlines stay."""
    return _UNSEEN.sub(_spell, text)


def one_line(text: str) -> str:
    """Return text fit for one line of a terminal: tabs and newlines are spelled out as well."""
    return _UNSEEN_OR_BREAK.sub(_spell, text)


def clipped(text: str, width: int) -> str:
    """Return one line of at most so many characters, its middle left out where it is longer."""
    text = one_line(text)
    if len(text) <= width:
        return text
    head = max(0, (width - 1) // 2)
    return f"{text[:head]}…{text[len(text) - max(0, width - head - 1) :]}" if width > 0 else ""


def _spell(match: re.Match[str]) -> str:
    code = ord(match.group())
    named = {9: "\\t", 10: "\\n", 13: "\\r"}.get(code)
    if named:
        return named
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
