"""What memory held, by name, at a choice of censuses; and two runs' trees joined into one."""

from __future__ import annotations

from leakscope.analysis.retained.elsewhere import find_elsewhere
from leakscope.analysis.retained.finding import find_retained
from leakscope.analysis.retained.joining import join_retained

__all__ = ["find_elsewhere", "find_retained", "join_retained"]
