"""Conclusions from recordings: series, trends, culprits, the ledger, remedies, comparison.

Works from files alone, on any machine; never imports torch.
"""

from __future__ import annotations

from leakscope.analysis.analyse import analyse
from leakscope.analysis.compare import compare

__all__ = ["analyse", "compare"]
