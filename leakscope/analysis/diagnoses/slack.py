"""Allocator slack: the C heap keeps freed memory, so that resident memory stays high.

May be confused with: a leak, by anyone who looks at resident memory alone. Slack that has settled
is no more than a note, nor is what lies in holes between the contents of a container that grows, or
came with new shapes of tensors alone. And a heap that leakscope itself may have disturbed: where
sizes mix, some hundred small blocks between the program's own can move it to a layout whose holes
spread for epochs, long after those were made. It settles with about as much free as in use.
"""

from __future__ import annotations

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.diagnoses.unexplained import is_steady
from leakscope.analysis.growers import Grower
from leakscope.analysis.search import Growth
from leakscope.analysis.series import HOST
from leakscope.analysis.severity import MIB
from leakscope.analysis.shapes import Company, company_of
from leakscope.analysis.trends import is_growth
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes
from leakscope.model.trend import Trend

EXPLAINS = 0.5
"""Slack is the explanation when it makes up this part of the growth of resident memory."""
GROWTH_BYTES = 32 * MIB
HELD_BYTES = 128 * MIB
HELD_SHARE = 0.3
LONG_POINTS = 8
"""A heap settles within some epochs; fewer boundaries than this say nothing."""
LONG_STEPS = 300
"""The same where growth is judged by the step, of which an epoch has many."""

DISTURBED_FREE = 1.5
"""Up to so many times what the C heap has in use, free memory may be our doing. Measured: 0.9 times
in a program that alone keeps 0.3, and 1.8 and 3.4 where programs themselves left holes without end.
"""

BESIDE = 0.25
"""Slack beside a container with this part of the growth lies between what is kept there."""

REMEDY = Remedy(
    title="Let the allocator return memory",
    text=(
        "Set MALLOC_ARENA_MAX=2 and MALLOC_TRIM_THRESHOLD_=131072, preload jemalloc or "
        "tcmalloc, or call ctypes.CDLL('libc.so.6').malloc_trim(0) after each epoch. No "
        "container has to be changed."
    ),
)

WATCH = Remedy(
    title="See whether it grows without leakscope",
    text=(
        "Watch the program from outside, which changes nothing in it: leakscope monitor -- python "
        "train.py. If memory grows then as well, set MALLOC_ARENA_MAX=2 and "
        "MALLOC_TRIM_THRESHOLD_=131072, preload jemalloc or tcmalloc, or call malloc_trim(0) "
        "after each epoch."
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
    trend, memory = case.gauge_trend(gauge.MALLOC_FREE), case.gauge_trend(case.host_metric)
    _, y = case.gauge_series(case.host_metric)
    # The C heap is read seldom where that is dear: resident memory tells whether it went on.
    is_long = trend.points >= LONG_POINTS or is_steady(memory, y)
    steady = (
        gained >= GROWTH_BYTES
        and is_growth(trend.verdict)
        and is_growth(memory.verdict)
        and is_long
        and (
            gained > EXPLAINS * resident > 0
            or trend.bytes_per_unit > EXPLAINS * memory.bytes_per_unit
        )
    )
    large = held >= HELD_BYTES and held > HELD_SHARE * used
    if not steady and not large:
        return []
    is_beside = any(case.gain_of(g) >= BESIDE * resident for g in _growing(growth))
    # Larger batches leave larger holes, until they are no larger.
    is_beside = is_beside or company_of(case, gained, resident - gained) is Company.SHAPES
    # A short run of a program that keeps something leaves more holes than it will.
    is_beside = is_beside or bool(_growing(growth) and _is_short(case, trend))
    is_alone = steady and not is_beside
    is_disturbed = is_alone and _may_be_ours(case)
    return [
        finding(
            "allocator_slack",
            "Freed memory stays in the C heap",
            f"glibc keeps {human_bytes(held)} that the program has freed; this grew by "
            f"{human_bytes(max(gained, 0))} while resident memory grew by {human_bytes(resident)}."
            + (_OURS if is_disturbed else ""),
            WATCH if is_disturbed else REMEDY,
            severity=Severity.WARNING if is_alone and not is_disturbed else Severity.NOTE,
            trend=trend,
            share=gained / resident if resident > 0 else 0.0,
            total_bytes=held,
            confidence=0.3 if is_disturbed else 0.7,
            falsifier=("malloc_trim(0) would return most of it to the system.", None),
        )
    ]


_OURS = (
    " Small blocks of leakscope's own between the program's can spread the holes so far: this may "
    "be its doing."
)


def _may_be_ours(case: Case) -> bool:
    """Return whether so little is free at last that our blocks may have spread the holes."""
    last = int(case.comparable[-1])
    free, in_use, mapped = (
        case.nearest(name, last) or 0.0
        for name in (gauge.MALLOC_FREE, gauge.MALLOC_IN_USE, gauge.MALLOC_MAPPED)
    )
    return free <= DISTURBED_FREE * (in_use - mapped)


def _is_short(case: Case, trend: Trend) -> bool:
    """Return whether the heap had too little time to settle, by the readings of its free part."""
    done, _ = case.gauge_series(gauge.MALLOC_FREE)
    by_steps = trend.unit == BoundaryKind.STEP.value and done[-1] - done[0] < LONG_STEPS
    return trend.points < LONG_POINTS or bool(by_steps)


def _growing(growth: Growth) -> list[Grower]:
    across = [g for g in growth.growers if g.growth == "across" and g.device == HOST]
    return [g for g in across if g.gained >= MIB]
