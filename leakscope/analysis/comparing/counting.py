"""How much of a unit of work a run did, so that rates in different units can be compared."""

from __future__ import annotations

from leakscope.model.report import Work


def units_done(work: Work, unit: str, phase: str = "") -> float:
    """Return how many steps, batches of a phase, validations, epochs, minutes or hours a run did.

    0 where it did none, or where the unit is one that the run doesn't count.
    """
    if unit == "batch":
        return float(work.batches.get(phase, 0))
    counts = {
        "step": float(work.steps),
        "epoch": float(work.epochs),
        "validation": float(work.validations),
        "minute": work.duration_s / 60,
        "hour": work.duration_s / 3600,
    }
    return counts.get(unit, 0.0)


def rate_in(rate: float, unit: str, phase: str, wanted: str, work: Work) -> float | None:
    """Return a rate per ``unit`` as a rate per ``wanted``; None where the run can't tell."""
    if unit == wanted:
        return rate
    own, other = units_done(work, unit, phase), units_done(work, wanted, phase)
    return rate * own / other if own > 0 and other > 0 else None
