"""Severity: what growth does to the user. All thresholds of the verdict are here."""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.analysis.growers import Grower
from leakscope.model.report import Forecast, Severity

KIB, MIB = 1 << 10, 1 << 20

HORIZON = 10
"""Growth is projected over ten observed runs: people profile a part of what they train."""
STEADY_BYTES = 4 * MIB
"""Less than this over the horizon disturbs nobody: a history of floats."""
RATE_PER_STEP = 1 * KIB
"""Noise floor per step or batch: some floats and strings a step are a log, not a leak."""
RATE_PER_PASS = 32 * KIB
"""Noise floor per validation or epoch."""
PEAK_OF_LIMIT = 0.85
"""A peak above this part of the limit threatens the run: the next larger batch ends it."""
PEAK_SHARE = 0.5
"""Growth within a phase matters when it makes up more than half of the phase's height."""
PEAK_BYTES = 16 * MIB
"""Below this a peak is not worth a change of code, whatever its share."""
PEAK_OF_BASELINE = 0.05
"""The same, relative to what the process holds anyway."""
WARNED_OF_BASELINE = 0.1
"""What is less than this is also held against what stands between two boundaries, as a copy does
of all that was gathered."""
BOOKKEEPING_BYTES = 1 * MIB
"""What a library gathers by itself is not worth a note up to this much."""
GATHERED_BYTES = 2 * MIB
"""What a phase gathers and gives back is not worth a note up to this much."""
MEMBER_SHARE = 0.05
"""Several lists gathered in one phase are judged together; one this small is left out."""


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


def of_across(grower: Grower, horizon: Forecast | None) -> Severity:
    """Return the severity of growth across phases."""
    per_item = grower.unit in {"step", "batch"}
    rate, units = grower.trend.bytes_per_unit, max(grower.units, 1.0)
    if rate < (RATE_PER_STEP if per_item else RATE_PER_PASS):
        return Severity.NOTE
    if rate * units * HORIZON < STEADY_BYTES:
        return Severity.NOTE
    if horizon is not None and horizon.units_left <= HORIZON * units:
        return Severity.CRITICAL
    return Severity.WARNING


def of_within(peak_bytes: float, together_bytes: float, height: PhaseHeight) -> Severity:
    """Return the severity of growth within a phase.

    Args:
        peak_bytes: What this container holds at its height.
        together_bytes: What all containers that climb in the phase hold.
        height: How high memory rises in the phase.

    """
    floor = max(PEAK_BYTES, PEAK_OF_BASELINE * height.baseline)
    if together_bytes < floor or peak_bytes < MEMBER_SHARE * together_bytes:
        return Severity.NOTE
    if height.peak <= 0 or together_bytes <= PEAK_SHARE * height.rise:
        return Severity.NOTE
    if height.limit and height.peak > PEAK_OF_LIMIT * height.limit:
        return Severity.CRITICAL
    is_much = together_bytes >= WARNED_OF_BASELINE * height.baseline
    is_most = together_bytes > PEAK_SHARE * height.full_rise
    return Severity.WARNING if is_much or is_most else Severity.NOTE
