"""Common places: where ranks that can't ask each other measure at the same steps.

A look at the heap of one rank stalls all that train with it, so ranks should stall together. Each
decides by its own clock how far apart its looks must be; taken at multiples of the next power of
two only, they fall on those of a rank whose looks are farther apart too.
"""

from __future__ import annotations

from math import ceil

MOST_DOUBLINGS = 40


def is_common(number: int, spacing_s: float, period_s: float) -> bool:
    """Return whether an occurrence is one at which other ranks look too.

    Args:
        number: which occurrence of its kind, as all ranks count.
        spacing_s: how far apart looks must be at least.
        period_s: how far apart occurrences are.

    """
    return number % stride(spacing_s, period_s) == 0


def stride(spacing_s: float, period_s: float) -> int:
    """Return for how many occurrences one is looked at: a power of two."""
    if spacing_s <= period_s or period_s <= 0:
        return 1
    apart = min(ceil(spacing_s / period_s), 1 << MOST_DOUBLINGS)
    return 1 << (apart - 1).bit_length()
