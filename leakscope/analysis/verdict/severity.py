"""Severity: what growth does to the user, and when memory runs out if it goes on.

Its floors are in ``growth.policy``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from leakscope.analysis.growth import policy
from leakscope.analysis.growth.rows import Grower
from leakscope.model.report import Forecast, Severity
from leakscope.model.text import human_bytes, human_count

MIB = 1 << 20
SEVERITY_ORDER = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.NOTE: 2}
"""The worst first."""


@dataclass(frozen=True)
class PhaseHeight:
    """How high memory of one device rises in a phase, and what it may rise to."""

    baseline: float
    """Lowest memory at the beginning of the phase."""
    peak: float
    rise: float
    """Height of one passage above its own beginning."""
    full_rise: float
    """Height of the highest passage above its own, with what stood between two boundaries."""
    limit: float | None


def of_across(
    grower: Grower, horizon: Forecast | None, seconds: float, passes: float = 0.0
) -> Severity:
    """Return the severity of growth across phases.

    Args:
        grower: What grows.
        horizon: When memory runs out.
        seconds: How long it was seen to grow.
        passes: How often a loop without steps was gone through meanwhile; 0 where none is known.

    """
    per_item = grower.unit in {"step", "batch", "task"} or passes > 0
    rate, units = grower.trend.bytes_per_unit, max(grower.units, 1.0)
    # An engine makes many small steps a second: little with each is much in a minute.
    is_fast = seconds > 0 and grower.gained >= policy.HARMLESS_BYTES * max(1.0, seconds / 60)
    each = rate * grower.units / passes if passes > 0 else rate
    if each < (policy.RATE_PER_STEP if per_item else policy.RATE_PER_PASS) and not is_fast:
        return Severity.NOTE
    if rate * units * policy.HORIZON < policy.HARMLESS_BYTES:
        return Severity.NOTE
    if horizon is not None and horizon.units_left <= policy.HORIZON * units:
        return Severity.CRITICAL
    return Severity.WARNING


def of_within(peak_bytes: float, together_bytes: float, height: PhaseHeight) -> Severity:
    """Return the severity of growth within a phase, by what a container holds at its height and
    what all that climb in the phase do together.
    """
    floor = max(policy.NOTEWORTHY_BYTES, policy.HARMLESS_SHARE * height.baseline)
    if together_bytes < floor or peak_bytes < policy.HARMLESS_SHARE * together_bytes:
        return Severity.NOTE
    if height.peak <= 0 or together_bytes <= policy.MOST_SHARE * height.rise:
        return Severity.NOTE
    if height.limit and height.peak > policy.PEAK_OF_LIMIT * height.limit:
        return Severity.CRITICAL
    is_much = together_bytes >= policy.LITTLE_SHARE * height.baseline
    is_most = together_bytes > policy.MOST_SHARE * height.full_rise
    return Severity.WARNING if is_much or is_most else Severity.NOTE


def forecast(
    *, limit_bytes: int | None, used_bytes: float, rate: float, unit: str, done: float
) -> Forecast | None:
    """Return when the limit is reached, None without a limit or growth.

    Memory in use and units done are those at the end of the recording, ``rate`` is the bytes per
    unit of everything that grows.
    """
    if not limit_bytes or rate <= 0 or not math.isfinite(rate):
        return None
    left = max(limit_bytes - used_bytes, 0.0) / rate
    at = math.ceil(done + left)
    return Forecast(
        limit_bytes=limit_bytes,
        unit=unit,
        units_left=left,
        at=float(at),
        text=f"reaches {human_bytes(limit_bytes)} in {unit} {human_count(at)}",
    )
