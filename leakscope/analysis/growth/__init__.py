"""The growth model: whether what is kept grows with the work, and is still growing."""

from __future__ import annotations

from leakscope.analysis.growth.model import GrowthJudgement, judge, judge_growth, trend_of
from leakscope.analysis.growth.shape import theil_sen

__all__ = ["GrowthJudgement", "judge", "judge_growth", "theil_sen", "trend_of"]
