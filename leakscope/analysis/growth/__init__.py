"""The growth model: whether what is kept grows with the work, and is still growing."""

from __future__ import annotations

from leakscope.analysis.growth.model import Growth, judge_growth
from leakscope.analysis.growth.slopes import theil_sen
from leakscope.analysis.growth.trend import judge, trend_of

__all__ = ["Growth", "judge", "judge_growth", "theil_sen", "trend_of"]
