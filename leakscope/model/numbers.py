"""Numbers as files may hold them: a recording made to overflow is refused where it is decoded."""

from __future__ import annotations

from typing import Annotated

import msgspec

_MOST = (1 << 63) - 1
_MOST_SECONDS = 1e12

Whole = Annotated[int, msgspec.Meta(ge=-_MOST, le=_MOST)]
"""A count or a size in bytes: what a kernel can tell, and a column of the analysis can hold."""
Seconds = Annotated[float, msgspec.Meta(ge=-_MOST_SECONDS, le=_MOST_SECONDS)]
"""A time or a duration; thirty thousand years fit."""
