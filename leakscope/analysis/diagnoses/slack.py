"""Allocator slack: the C heap keeps freed memory, so that resident memory stays high.

May be confused with: a leak, by anyone who looks at resident memory alone. Slack that has settled
is no more than a note, nor is what lies in holes between the contents of a container that grows, or
came with new shapes of tensors alone.
"""

from __future__ import annotations

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.search import Growth
from leakscope.analysis.severity import MIB
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes, human_share

HELD_BYTES = 128 * MIB
HELD_SHARE = 0.3
REMEDY = Remedy(
    title="Let the allocator return memory",
    text=(
        "Set MALLOC_ARENA_MAX=2 and MALLOC_TRIM_THRESHOLD_=131072, preload jemalloc or "
        "tcmalloc, or call ctypes.CDLL('libc.so.6').malloc_trim(0) after each epoch. No "
        "container has to be changed."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding when freed memory is kept by the C heap in quantity."""
    gained, resident = case.gauge_gain(gauge.MALLOC_FREE), case.gauge_gain(case.host_metric)
    if case.window is None or gained is None or resident is None:
        return []
    # At its end a program may give up what it had: the end of the stretch counts as well.
    ends = (case.window.last, len(case.track) - 1)
    held = max(case.nearest(gauge.MALLOC_FREE, end) or 0.0 for end in ends)
    used = max(case.nearest(case.host_metric, case.window.last) or 0.0, case.used_at_end())
    term = growth.terms.get("slack")
    is_alone = term is not None and term.grows
    grows = term is not None and term.trend.is_growing and term.is_much
    if term is not None and grows:
        gained, share = term.trend.net_bytes, term.share
    else:
        share = gained / resident if resident > 0 else 0.0
    large = held >= HELD_BYTES and held > HELD_SHARE * used
    if not grows and not large:
        return []
    return [
        finding(
            "allocator_slack",
            "Freed memory stays in the C heap",
            f"glibc keeps {human_bytes(held)} that the program has freed; this grew by "
            f"{human_bytes(max(gained, 0))}, {human_share(min(share, 1.0))} of what memory grew by."
            f"{_PINNED if is_alone else ''}",
            REMEDY,
            severity=Severity.WARNING if is_alone else Severity.NOTE,
            trend=term.trend if term is not None else None,
            share=share,
            total_bytes=held,
            falsifier=("malloc_trim(0) would return most of it to the system.", None),
        )
    ]


_PINNED = (
    " It goes on: free memory is returned only where no live block lies above it, so that small "
    "blocks that leak between larger ones keep it."
)
