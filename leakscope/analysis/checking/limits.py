"""The rate of growth that a user allows: ``1 MB/epoch``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from leakscope.analysis.comparing.counting import rate_in
from leakscope.model.errors import LeakscopeError
from leakscope.model.report import Work
from leakscope.model.sizes import BYTES_IN

_UNITS = ("step", "validation", "epoch", "minute", "hour")
_LIMIT = re.compile(
    r"(?P<size>\d+(?:\.\d*)?|\.\d+)\s*(?P<bytes>[kmgt]?i?b)\s*(?:/|\bper\b)\s*"
    r"(?:(?P<count>\d+)\s*)?(?P<unit>[a-z]+)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class GrowthLimit:
    """So many bytes per unit of work are allowed."""

    bytes_per_unit: float
    unit: str
    text: str
    """As the user wrote it."""

    def rate_of(self, rate: float, unit: str, phase: str, work: Work) -> float | None:
        """Return a rate in the limit's own unit; None where the run can't tell."""
        return rate_in(rate, unit, phase, self.unit, work)


def to_growth_limit(text: str) -> GrowthLimit:
    """Return the limit in a text such as ``1 MB/epoch`` or ``64 KiB per 100 steps``.

    Raises:
        LeakscopeError: it is none.

    """
    found = _LIMIT.fullmatch(text.strip())
    unit = found["unit"].lower() if found else ""
    unit = unit if unit in _UNITS else unit.removesuffix("s")
    if found is None or unit not in _UNITS or found["bytes"].lower() not in BYTES_IN:
        raise _bad(text)
    size = float(found["size"]) * BYTES_IN[found["bytes"].lower()]
    count = float(found["count"] or 1)
    if not (math.isfinite(size) and math.isfinite(count)) or count == 0:
        raise _bad(text)
    return GrowthLimit(size / count, unit, text.strip())


def _bad(text: str) -> LeakscopeError:
    return LeakscopeError(
        f"{text!r} is no rate of growth; write a size and a unit of work, such as 1 MB/epoch or "
        f"64 KiB/step (units of work: {', '.join(_UNITS)}).",
        slug="bad-limit",
    )
