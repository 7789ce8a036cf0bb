"""An end of ``itertools.tee`` that is left behind: ``stream, ahead = itertools.tee(batches)``.

What one end has had and the other not yet is kept for it (CPython's ``Modules/itertoolsmodule.c``),
so an end that nobody goes on with keeps all that comes. Offers no diff: whether to drop it or to go
on with it only its author knows.
"""

from __future__ import annotations

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.source.tee_ends import TEE
from leakscope.model.report import Remedy


def recognise(case: Case) -> Remedy | None:
    """Return how to look ahead without keeping the whole stream."""
    if case.row.type != TEE:
        return None
    is_read = case.line is not None and case.line.form == "read"
    known = f" They are {'read' if is_read else 'made'} at {case.where()}." if case.line else ""
    return case.remedy(
        f"Drop {case.name} when it has been read as far as needed",
        f"{case.name} is one end of an itertools.tee, which keeps for it all that its other ends "
        f"have had since.{known}",
        "To look at the first items alone, take them as a list, "
        "first = list(itertools.islice(stream, n)), and go on with "
        "itertools.chain(first, stream); else go on with all ends together.",
        case.still_reachable(),
    )
