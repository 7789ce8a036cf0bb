"""Objects that each refer to the one before: ``rollout = Rollout(batch, prev=self.last)``.

Whoever holds the newest holds them all. Recognises a feeding line that makes an object of a class
of the program's with the last one as an argument. Offers no diff: how many of them are needed, and
what of them, only its author knows.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.source.types import dotted
from leakscope.model.report import Remedy


def recognise(case: Case) -> Remedy | None:
    """Return how to let go of those before the last."""
    made = _made_from_the_last(case)
    if made is None:
        return None
    call, given = made
    one, last = dotted(call.func).rpartition(".")[2], ast.unparse(given)
    attribute = next((k.arg for k in call.keywords if k.value is given and k.arg), "")
    cut = f"; or cut its own link first, `{last}.{attribute} = None`" if attribute else ""
    size = f" ({case.measure()})" if case.measure() else ""
    return case.remedy(
        f"Let go of the objects before {case.name}",
        f"`{ast.unparse(call)}` at {case.where()} has each {one} refer to the one before it, and "
        f"that one to its own: {case.name} keeps all of them{size}.",
        f"Hand over what is needed of the last one (a number, a detached tensor) instead of "
        f"{last}{cut}.",
        case.still_reachable(),
    )


def _made_from_the_last(case: Case) -> tuple[ast.Call, ast.expr] | None:
    """Return the call of a class of the program's, and the argument that is the last object."""
    value = getattr(case.node, "value", None)
    if not isinstance(value, ast.Call) or case.scope is None:
        return None
    if dotted(value.func).rpartition(".")[2] not in case.sources.program.classes:
        return None
    given = [*value.args, *(keyword.value for keyword in value.keywords)]
    scope = case.scope
    last = (part for part in given if () in case.references.steps_from(part, scope))
    return next(((value, part) for part in last), None)
