"""A tensor or array that is made longer in a loop: ``bank = torch.cat([bank, x])``.

Recognises joining functions of torch and numpy that read the variable they assign. Offers a diff
only where a graph rides along and the new part is a plain name. Silent for anything that is cut to
a fixed length in the same statement.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.running_total import is_cut
from leakscope.analysis.remedies.usage import goes_backward
from leakscope.analysis.source.types import dotted
from leakscope.model.report import Remedy

_JOINERS = frozenset(
    {"cat", "concat", "concatenate", "append", "hstack", "vstack", "stack", "column_stack"}
)


def recognise(case: Case) -> Remedy | None:
    """Return how to stop the enlarging."""
    node = case.node
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return None
    joiner = dotted(node.value.func).rpartition(".")[2]
    if joiner not in _JOINERS or case.row.kind not in {"tensor", "graph", "array"}:
        return None
    diff = _detached(case, node.value) if case.has_graph else None
    graph = "The graph of every part rides along: join detached parts. " if case.has_graph else ""
    return case.remedy(
        f"Don't enlarge {case.name} with {joiner}",
        f"`{case.line.text if case.line else ''}` at {case.where()} copies all of {case.name} each "
        "time and never drops anything.",
        f"{graph}Keep the running figure that is read later, a window of fixed length "
        f"({case.variable}[-N:]), or write the parts to disk.",
        case.still_reachable(),
        diff=diff,
    )


def _detached(case: Case, call: ast.Call) -> str | None:
    if goes_backward(case.references) or not call.args:
        return None
    joined = call.args[0]
    if not isinstance(joined, (ast.List, ast.Tuple)) or case.scope is None:
        return None
    own = case.references
    parts = [e for e in joined.elts if () not in own.steps_from(e, case.scope)]
    if len(parts) != 1 or not isinstance(parts[0], ast.Name) or is_cut(parts[0]):
        return None
    return case.edits().call_method(parts[0], "detach()").diff()
