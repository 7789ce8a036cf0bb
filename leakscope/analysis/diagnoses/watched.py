"""A process tree that was watched from outside grows: that it does, how fast, and which part of it.

Nothing can be named from outside. May be confused with: a warm-up or data that is read into memory,
both of which end; hence growth must go on through all thirds of what was watched. Pages of files
that are mapped and read don't count: the kernel takes them back when it needs room.
"""

from __future__ import annotations

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.forecast import forecast
from leakscope.analysis.growth import policy
from leakscope.analysis.search import Growth
from leakscope.analysis.series import FloatArray
from leakscope.analysis.severity import MIB
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes
from leakscope.model.trend import Trend

GROWTH_BYTES = 32 * MIB
FEWEST = 8
"""Readings below which growth may as well be a beginning."""
MOSTLY = 0.6
"""Part of the growth from which on it is said to be of the process or of its children."""
MORE_THAN_ALL = 1.2

FROM_WITHIN = Remedy(
    title="Run it under leakscope to learn what grows",
    text=(
        "From outside nothing has a name. Put `leakscope run` in front of the command, or one "
        "`with leakscope.profile():` around the loop: the report then names what grows and the "
        "line that feeds it, in DataLoader workers too."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding when the memory of a watched process tree grows steadily."""
    if not case.is_watched:
        return []
    x, y = tree_series(case)
    trend = case.trend_of(x, y, noise=4.0 * MIB)
    if not trend.is_growing or trend.points < FEWEST or trend.net_bytes < GROWTH_BYTES:
        return []
    ahead = forecast(
        limit_bytes=case.limit_bytes,
        used_bytes=float(y[-1]),
        rate=trend.bytes_per_unit,
        unit=trend.unit,
        done=float(x[-1]),
    )
    watched = float(x[-1] - x[0])
    fatal = ahead is not None and ahead.units_left <= policy.HORIZON * watched
    ends = f" It {ahead.text} of watching." if ahead is not None and fatal else ""
    return [
        finding(
            "tree_grows",
            "The process and its children take ever more",
            f"{human_bytes(trend.bytes_per_unit)} more per {trend.unit}, "
            f"{human_bytes(trend.net_bytes)} in all{_part(case, trend)}.{ends}",
            FROM_WITHIN,
            severity=Severity.CRITICAL if fatal else Severity.WARNING,
            trend=trend,
            share=1.0,
            total_bytes=float(y.max()),
            falsifier=("A warm-up would have ended.", "It went on in each third."),
        )
    ]


def tree_series(case: Case) -> tuple[FloatArray, FloatArray]:
    """Return minutes and the memory of the process with all its children at each reading, without
    pages of files.
    """
    own = gauge.PSS if case.track.has_gauge(gauge.PSS) else gauge.RSS
    values = case.track.gauge(own) + np.nan_to_num(case.track.gauge(gauge.CHILDREN_PSS))
    values -= np.nan_to_num(case.track.gauge(gauge.TREE_FILES))
    values = values[case.working]
    known = np.isfinite(values)
    return case.unit.done[case.working][known], values[known]


def _part(case: Case, trend: Trend) -> str:
    """Return where it grows, where that is clear."""
    share = case.children_gain() / max(trend.net_bytes, 1.0)
    if share > MORE_THAN_ALL:  # children read files, which don't count in the whole
        return ""
    if share >= MOSTLY:
        return ", most of it in child processes"
    return ", most of it in the process itself" if share <= 1 - MOSTLY else ""
