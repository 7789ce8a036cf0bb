"""Files in shared memory that pile up: nobody removes their names, so they outlive every process.

Segments of ``multiprocessing.shared_memory`` that are not unlinked, or tensors shared by
``file_system`` whose receiver never came (https://github.com/pytorch/pytorch/issues/17499). They
are memory of no process, and count against the same limit.

May be confused with: prefetched batches, which come and go; segments that a growing container still
holds, which is the culprit then; and files of other programs of the same user, which bear no sign
of who made them. A program that shared nothing with anybody is therefore not accused: one that
never had a child process, and whose source makes no segment.
"""

from __future__ import annotations

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.growth import policy
from leakscope.analysis.search import Growth
from leakscope.analysis.severity import MIB
from leakscope.analysis.source.calls import places_that_call
from leakscope.model import gauge
from leakscope.model.census import SHARED
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes

GROWTH_BYTES = 16 * MIB
NAMED = 0.5
"""With so much of it under a name that is what to look at."""

REMEDY = Remedy(
    title="Unlink what is created",
    text=(
        "Call close() in every process and unlink() once for each SharedMemory that is created. "
        "For tensors, torch.multiprocessing.set_sharing_strategy('file_descriptor') leaves no "
        "names behind. What is there already: ls -l /dev/shm."
    ),
)
FALSIFIER = (
    "If they were on their way, they would be gone at the next boundary; if another program of "
    "this user made them, they would come without this one, too."
)
PROBABLY_OF_OTHERS = (
    " Another program of this user has probably made them: this one had no child process to share "
    "them with."
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding when named files of shared memory grow steadily and nothing holds them."""
    trend = case.gauge_trend(gauge.SHM_FILES)
    if not trend.is_growing or trend.net_bytes < GROWTH_BYTES:
        return []
    if _named(case) >= NAMED * trend.net_bytes:
        return []
    most = float(np.nanmax(case.track.gauge(gauge.SHM_FILES)))  # some may be gone at the end
    limit = case.limit_bytes or float("inf")
    fatal = case.used_at_end() + policy.HORIZON * trend.net_bytes >= limit
    serious = Severity.CRITICAL if fatal else Severity.WARNING
    made_at = places_that_call(case.sources, {"shared_memory", ""}, {"SharedMemory"})
    is_its_own = bool(made_at) or not _is_alone(case)
    return [
        finding(
            "shared_memory",
            "Files in shared memory pile up",
            f"{human_bytes(most)} of named files came to /dev/shm in this run, "
            f"{human_bytes(trend.bytes_per_unit)} per {trend.unit}; no name of the program holds "
            "them. Unless somebody removes them, they stay when it ends."
            + (PROBABLY_OF_OTHERS if not is_its_own else ""),
            REMEDY,
            severity=serious if is_its_own else Severity.NOTE,
            trend=trend,
            total_bytes=most,
            fed_at=made_at,
            falsifier=(FALSIFIER, None),
        )
    ]


def _named(case: Case) -> float:
    """Return by how much the shared memory grew that has a name."""
    sizes = [census.payload_bytes.get(SHARED, 0) for census in case.table.censuses]
    return float(max(sizes) - sizes[0]) if sizes else 0.0


def _is_alone(case: Case) -> bool:
    """Return whether the program is known to have had no child process."""
    return float(np.nanmax(case.track.gauge(gauge.CHILDREN), initial=-1.0)) == 0.0
