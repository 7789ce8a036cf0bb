"""Conclusions from recordings: series, trends, culprits, the ledger, remedies, comparison.

Works from files alone, on any machine; never imports torch.
"""

from __future__ import annotations

from leakscope.analysis.analyse import analyse
from leakscope.analysis.attempts import find_attempts, group_attempts
from leakscope.analysis.compare import compare
from leakscope.analysis.ranks import RankSummary, summarise_rank

__all__ = [
    "RankSummary",
    "analyse",
    "compare",
    "find_attempts",
    "group_attempts",
    "summarise_rank",
]
