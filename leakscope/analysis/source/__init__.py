"""Questions to the user's source: which lines feed a container, where was it defined.

Everything is answered from the texts in the recording. The program is taken apart once
(``program``); a row's path gives the places to start from (``anchors``), these spread along
aliases, arguments and returns (``references``), and the statements that change what they refer to
(``mutations``) are ranked by evidence (``index``).
"""

from leakscope.analysis.source.index import FeedingLine, SourceIndex

__all__ = ["FeedingLine", "SourceIndex"]
