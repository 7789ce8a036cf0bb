"""Traffic with the driver: segments taken and given back again, and flushes of the cache.

A program that calls ``empty_cache()`` in a loop pays for it in time. The allocator itself gives
segments back only when the driver has nothing left: then it flushes its cache and tries again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from leakscope.analysis.cuda.replay import (
    OOM,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
)
from leakscope.analysis.cuda.sites import place_of
from leakscope.model.allocator import Entry, Stack
from leakscope.model.explanation import Finding
from leakscope.model.report import Severity
from leakscope.model.sizes import human_bytes, plural

MANY = 50
"""Segments given back, from which on a program is said to churn."""
_TAKES = {SEGMENT_ALLOC, SEGMENT_MAP}
_GIVES = {SEGMENT_FREE, SEGMENT_UNMAP}


def retries_of(entries: Sequence[Entry]) -> int:
    """Return how often the cache was flushed for want of memory: frees, then at once a new need.

    Where the frees have no stacks, ``empty_cache()`` may have been called instead.
    """
    retries = 0
    for before, entry in pairwise(entries):
        flushed = before.action in _GIVES and not _is_asked_for(before.stack)
        retries += flushed and (entry.action in _TAKES or entry.action == OOM)
    return retries


def traffic_findings(entries: Sequence[Entry], seconds: float | None) -> list[Finding]:
    """Return what is worth knowing about the traffic with the driver."""
    found = [_churn(entries, seconds), _flushes(entries)]
    return [finding for finding in found if finding is not None]


def _churn(entries: Sequence[Entry], seconds: float | None) -> Finding | None:
    given = [entry for entry in entries if entry.action in _GIVES]
    taken = [entry for entry in entries if entry.action in _TAKES]
    asked = [entry for entry in given if _is_asked_for(entry.stack)]
    if len(given) < MANY or len(taken) < MANY or len(asked) < len(given) / 2:
        return None
    place, _ = Counter(place_of(entry.stack) for entry in asked).most_common(1)[0]
    during = f" in {seconds:.0f} s" if seconds else ""
    return Finding(
        slug="empty-cache-churn",
        severity=Severity.WARNING,
        title="empty_cache() is called over and over",
        text=(
            f"{plural(len(given), 'segment')} went back to the driver and {len(taken)} were taken "
            f"again{during}, {human_bytes(sum(entry.size for entry in given))} in all. Each costs "
            "time and a synchronisation, and the memory is needed again at once: no leak, but slow."
        ),
        remedy=f"Call it once, after what won't come back, not in the loop at {place}.",
    )


def _flushes(entries: Sequence[Entry]) -> Finding | None:
    retries = retries_of(entries)
    if not retries:
        return None
    if any(e.stack is not None for e in entries if e.action in _GIVES):
        return Finding(
            slug="flushed-for-want",
            severity=Severity.WARNING,
            title=f"The cache was flushed for want of memory, {plural(retries, 'time')}",
            text="The driver refused memory, so the allocator gave back all of its cache and asked "
            "again. The run is at the limit of the device, and each flush stalls it.",
            remedy="Lower the peak: see what stood there.",
        )
    return Finding(
        slug="flushed",
        severity=Severity.NOTE,
        title=f"The cache was flushed and filled again, {plural(retries, 'time')}",
        text="Either the program calls empty_cache(), or the driver refused memory and the "
        "allocator asked again; the history has no stacks for it.",
    )


def _is_asked_for(stack: Stack | None) -> bool:
    return stack is not None and any(frame.name == "empty_cache" for frame in stack.frames)
