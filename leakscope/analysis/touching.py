"""Memory that was allocated long ago and becomes resident only as it is written.

A replay buffer of zeros takes no page until its rows are filled. Resident memory then rises for as
long as that goes on, and nothing grows.
"""

from __future__ import annotations

from leakscope.analysis.case import Case
from leakscope.analysis.series import HOST
from leakscope.model import gauge

IN_USE_SHARE = 0.5
"""Growth of which the C heap has handed out less than this part was handed out before."""


def may_be_touched_only(case: Case, growth: float) -> bool:
    """Return whether resident memory may have grown by pages of what a name reached all along.

    Args:
        case: The run.
        growth: The bytes of resident memory that nothing explains.

    """
    in_use = case.gauge_gain(gauge.MALLOC_IN_USE)
    if in_use is None or in_use >= IN_USE_SHARE * growth or not case.table.censuses:
        return False
    return case.table.censuses[0].payload_bytes.get(HOST, 0) >= growth
