"""Numbers and series as plain text.

Numbers are short with an IEC unit, with the exact figure for those who ask; a series is one line of
block characters. Where an encoding lacks a sign, a plain one takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TypeGuard

from leakscope.model.text import human_bytes, human_share, plural

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
"""Each 1,024 times the one before; rounding is the analysis's, so that sentence and table agree."""
UNKNOWN = "–"
MINUS = "\N{MINUS SIGN}"
MOMENT = "%Y-%m-%d %H:%M UTC"
SOON = 10_000
"""Counts up to here are written out; larger ones are rounded in running text."""


@dataclass(frozen=True)
class Size:
    """An amount of memory: ``text`` to show and ``exact`` to reveal."""

    text: str
    exact: str


def size_of(amount: float | None, *, signed: bool = False) -> Size:
    """Return an amount of bytes for a page; None and what is not finite are unknown."""
    return Size(humane_bytes(amount, signed=signed), exact_bytes(amount))


def humane_bytes(amount: float | None, *, signed: bool = False) -> str:
    """Return bytes in the largest fitting unit: ``1.4 GiB``, ``812 KiB``, ``12 B``."""
    if not _known(amount):
        return UNKNOWN
    return f"{'+' if signed and amount > 0 else ''}{human_bytes(amount)}"


def exact_bytes(amount: float | None) -> str:
    """Return every digit: ``1,503,238,553 bytes``."""
    if not _known(amount):
        return "unknown"
    return f"{MINUS if amount < 0 else ''}{abs(round(amount)):,} bytes"


def humane_interval(interval: tuple[float, float]) -> str:
    """Return both ends in one unit: ``398 to 425 MiB``."""
    low, high = interval
    if not (_known(low) and _known(high)):
        return "unknown"
    scale = scale_of(max(abs(low), abs(high)))
    first, last = _distinct_digits(low / scale, high / scale)
    return f"{first} to {last} {unit_name(scale)}" if first != last else humane_bytes(low)


def exact_interval(interval: tuple[float, float]) -> str:
    """Return every digit of both ends: ``417,333,248 to 445,644,800 bytes``."""
    low, high = interval
    if not (_known(low) and _known(high)):
        return "unknown"
    return f"{exact_bytes(low).removesuffix(' bytes')} to {exact_bytes(high)}"


def humane_rate(bytes_per_unit: float | None, unit: str) -> str:
    """Return ``412 MiB per validation``."""
    return f"{humane_bytes(bytes_per_unit)} per {unit}" if unit else humane_bytes(bytes_per_unit)


def rate_or_none(bytes_per_unit: float | None) -> str:
    """Return a rate without its unit, ``none`` where nothing grew."""
    return "none" if bytes_per_unit is None else humane_bytes(bytes_per_unit)


def humane_share(share: float | None) -> str:
    """Return a part of one as per cent, as sentences have it: ``83 %``, ``< 1 %``."""
    return human_share(share) if _known(share) else UNKNOWN


def signed_share(share: float | None) -> str:
    """Return a change as a part of what there was: ``+20 %``, ``−86 %``; next to none ``≈ 0 %``."""
    if not _known(share) or share <= 0:
        return humane_share(share)
    return "≈ 0 %" if share < 0.01 else f"+{human_share(share)}"


def humane_number(number: float | None) -> str:
    """Return a count with thousands parted; fractions keep three significant digits."""
    if not _known(number):
        return UNKNOWN
    if float(number).is_integer() or abs(number) >= SOON:
        return f"{round(number):,}"
    return f"{number:.3g}"


def humane_duration(seconds: float | None) -> str:
    """Return ``1.2 ms``, ``48 s``, ``3 min 20 s`` or ``2 h 5 min``."""
    if not _known(seconds):
        return UNKNOWN
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.5:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


def humane_moment(seconds: float, form: str = MOMENT) -> str:
    """Return a moment given in seconds since the epoch, in UTC; empty where there is none such."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime(form)
    except (OverflowError, OSError, ValueError):
        return ""


def humane_wait(seconds: float) -> str:
    """Return a time to come as one number: ``40 minutes``, ``11 hours``, ``3 days``."""
    for noun, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * length:
            return plural(seconds / length, noun)
    return plural(max(1.0, seconds), "second")


def clock(seconds: float) -> str:
    """Return a moment of the run: ``3:20``, ``1:02:05``."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours = f"{minutes // 60}:{minutes % 60:02d}" if minutes >= 60 else f"{minutes}"
    return f"{hours}:{rest:02d}"


def scale_of(amount: float) -> int:
    """Return the bytes in the largest unit in which an amount is at least one."""
    scale = 1
    while abs(amount) >= 999.5 * scale and scale < 1024 ** (len(UNITS) - 1):
        scale *= 1024
    return scale


def unit_name(scale: int) -> str:
    """Return the name of a unit given its bytes."""
    return UNITS[round(math.log(scale, 1024))]


def _distinct_digits(low: float, high: float) -> tuple[str, str]:
    """Return both numbers with the fewest decimals at which they differ, three at most."""
    short = ("0" if max(abs(low), abs(high)) >= 99.95 else "1", "2", "3")
    for decimals in short:
        first, last = (f"{number:.{decimals}f}".replace("-", MINUS) for number in (low, high))
        if _trimmed(first) != _trimmed(last):
            break
    # Where it takes decimals to tell them apart, both have as many: 65.886 to 65.890.
    is_fine = _trimmed(first) != _trimmed(last) and decimals in ("2", "3")
    return (first, last) if is_fine else (_trimmed(first), _trimmed(last))


def _trimmed(digits: str) -> str:
    if "." in digits:
        digits = digits.rstrip("0").removesuffix(".")
    return "0" if digits == f"{MINUS}0" else digits


def _known(number: float | None) -> TypeGuard[float]:
    return number is not None and math.isfinite(number)


BLOCKS = "▁▂▃▄▅▆▇█"
_BEGIN = 20
"""So small a part of a course is its begin."""
_SHORT = 3


def sparkline(
    values: Sequence[float], width: int, bounds: tuple[float, float] | None = None
) -> str:
    """Return the series in at most ``width`` characters; each shows the highest of its stretch.

    ``bounds`` are the values of the lowest and of the highest block, for curves of one scale.
    """
    peaks = peaks_of(values, width)
    if not peaks:
        return ""
    low, high = bounds or (min(peaks), max(peaks))
    span = high - low
    if span <= 0:
        return BLOCKS[0] * len(peaks)
    return "".join(BLOCKS[max(0, min(7, int((peak - low) / span * 8)))] for peak in peaks)


def settled(values: Sequence[float]) -> Sequence[float]:
    """Return a course without its begin, where the interpreter starts up and imports: so low that
    all that comes later would look alike next to it.
    """
    return values[max(1, len(values) // _BEGIN) :] if len(values) > _SHORT else values


def curve_with_ends(
    values: Sequence[float], width: int, bounds: tuple[float, float] | None = None
) -> str:
    """Return a curve of memory, where it begins, the height at which it is seen to end, its peak.

    That height is the highest of the last stretch, as the curve shows it: what a run releases as it
    ends would contradict a curve that rises to the last.
    """
    peaks = peaks_of(values, width)
    if not peaks:
        return ""
    first = next(value for value in values if math.isfinite(value))
    return (
        f"{sparkline(values, width, bounds)} {humane_bytes(first)} → {humane_bytes(peaks[-1])}, "
        f"peak {humane_bytes(max(peaks))}"
    )


def course_words(name: str, values: Sequence[float]) -> str:
    """Return ``Memory begins at 1 GiB, peaks at 3 GiB and ends at 2 GiB``."""
    first, peak, last = map(humane_bytes, (values[0], max(values), values[-1]))
    return f"{name} begins at {first}, peaks at {peak} and ends at {last}"


def peaks_of(values: Sequence[float], width: int) -> list[float]:
    """Return the highest value of each of at most ``width`` equal stretches."""
    known = [value for value in values if math.isfinite(value)]
    columns = min(max(width, 0), len(known))
    return [
        max(known[i * len(known) // columns : (i + 1) * len(known) // columns])
        for i in range(columns)
    ]


PLAIN_BLOCKS = "_.-:=+*#"
_PLAIN = str.maketrans({
    **dict(zip(BLOCKS, PLAIN_BLOCKS, strict=True)),
    "✗": "x", "✓": "v", "→": "->", "·": "-", "…": "~", "–": "-", "\N{MINUS SIGN}": "-",
})  # fmt: skip


def encodable(text: str, encoding: str | None) -> str:
    r"""Return text that can be written in an encoding; as it stands where that holds all of it.

    What a program's names are made of is spelled out then, ``\u4e2d``.
    """
    encoding = encoding or "utf-8"
    with suppress(LookupError):
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            return text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    return text
