"""The growth model: whether what is kept grows with the work, and is still growing."""

from __future__ import annotations

from leakscope.analysis.growth.model import Growth, GrowthVerdict, Reason, judge_growth

__all__ = ["Growth", "GrowthVerdict", "Reason", "judge_growth"]
