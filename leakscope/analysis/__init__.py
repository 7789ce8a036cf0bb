"""Conclusions from recordings: series, growth, culprits, the ledger, remedies, comparison.

Works from files alone, on any machine; never imports torch.
"""

from __future__ import annotations

from leakscope.analysis.compare import compare
from leakscope.analysis.processes.endings import find_attempts, group_attempts
from leakscope.analysis.processes.ranks import RankSummary, summarise_rank
from leakscope.analysis.verdict.analyse import analyse

__all__ = [
    "RankSummary",
    "analyse",
    "compare",
    "find_attempts",
    "group_attempts",
    "summarise_rank",
]
