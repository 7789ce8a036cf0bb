"""What a library keeps of every call to it: finalizers, callbacks, registered functions.

Its containers are not the user's to bound: less must be given to it. Offers no diff.
"""

from __future__ import annotations

from leakscope.analysis.remedies.case import Case
from leakscope.model.census import RootKind
from leakscope.model.report import Remedy


def recognise(case: Case) -> Remedy | None:
    """Return how to give a library less to keep."""
    if case.row.root is not RootKind.LIBRARY or case.row.user or case.line is None:
        return None
    return case.remedy(
        f"Register once, or take back what {case.name} keeps",
        case.opening(),
        "It belongs to a library, which keeps what a call gives it until that is taken back "
        "(detach, close, unregister) or what it was registered for is gone.",
        "Call it once, before the loop, or give it nothing large.",
        case.still_reachable(),
    )
