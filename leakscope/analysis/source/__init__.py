"""Questions to the user's source: which lines feed a container, where was it defined.

Everything is answered from the texts in the recording. The program is taken apart once
(``program``, ``reading``); a row's path gives the places to start from (``anchors``), these spread
along aliases, arguments and returns (``references``), and the statements that change what they
refer to (``mutations``) are ranked by evidence (``ranking``).
"""

from leakscope.analysis.source.index import SourceIndex
from leakscope.analysis.source.lines import FeedingLine

__all__ = ["FeedingLine", "SourceIndex"]
