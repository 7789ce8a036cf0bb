"""A recurrent state carried from batch to batch with its graph: ``out, h = rnn(x, h)``.

Recognises an assignment whose value is computed from the variable itself by a call, of a state
that keeps a graph. Offers a diff where ``backward`` runs in the same loop and the state isn't made
anew inside an enclosing loop, or where it outlives the function that carries it and nothing is seen
to compute gradients from it. Silent for sums and for ``torch.cat``, and for time steps within one
sequence: backpropagation through time needs that chain.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.usage import Use, goes_backward, uses
from leakscope.analysis.source.program import LOOPS, Statement
from leakscope.analysis.source.types import dotted
from leakscope.model.report import Remedy

_JOINERS = frozenset({"cat", "concat", "concatenate", "stack", "append", "hstack", "vstack"})


def recognise(case: Case) -> Remedy | None:
    """Return how to cut the state between batches."""
    node, statement = case.node, case.statement
    if not case.has_graph or not isinstance(node, ast.Assign) or statement is None:
        return None
    target = _carried(case, node)
    if target is None or _renewed_in_loop(case, statement):
        return None
    state = ast.unparse(target)
    diff = None
    if _may_be_cut(case, statement):
        diff = case.edits().insert_before(node, *_cut(case, state)).diff()
    return case.remedy(
        f"Detach {case.name} between batches",
        f"`{case.line.text if case.line else ''}` at {case.where()} computes the next state from "
        "the last one, so the graph of every batch so far hangs on it.",
        f"Cutting it before each batch ({state}.detach(), for an LSTM each of its two tensors) "
        "keeps the value and truncates backpropagation at the batch; "
        "`retain_graph=True` would hide the error and keep the leak.",
        case.still_reachable(),
        diff=diff,
    )


def _carried(case: Case, node: ast.Assign) -> ast.expr | None:
    """Return the target that is computed from itself by a call."""
    value = node.value
    if not isinstance(value, ast.Call) or dotted(value.func).rpartition(".")[2] in _JOINERS:
        return None
    mine = [use.node for use in uses(case.references) if use.statement is case.statement]
    stored = [n for n in mine if isinstance(getattr(n, "ctx", None), ast.Store)]
    read = [n for n in mine if isinstance(getattr(n, "ctx", None), ast.Load)]
    return stored[0] if stored and read else None


def _renewed_in_loop(case: Case, statement: Statement) -> bool:
    """Whether the state begins anew within a loop around this one: for each sequence."""
    outer = set(map(id, statement.loops[:-1]))
    if case.growth == "within" and not outer:
        return False
    return any(
        _begins(use, statement) and any(id(loop) in outer for loop in use.statement.loops)
        for use in uses(case.references)
    )


def _begins(use: Use, statement: Statement) -> bool:
    return use.is_stored and use.statement is not statement and bool(use.statement.loops)


def _may_be_cut(case: Case, statement: Statement) -> bool:
    """Whether cutting before the statement takes no gradient from anybody."""
    if statement.loops:
        return _has_backward(statement.loops[-1])
    outlives = any(place.kind == "attr" and not steps for place, steps in case.references.chain)
    return case.growth == "across" and outlives and not goes_backward(case.references)


def _has_backward(loop: ast.stmt) -> bool:
    return isinstance(loop, LOOPS) and any(
        isinstance(node, ast.Attribute) and node.attr == "backward" for node in ast.walk(loop)
    )


def _cut(case: Case, state: str) -> list[str]:
    """Return the lines that cut the state, whatever it is before the first batch."""
    if case.row.kind == "tuple":
        cut = f"{state} = tuple(part.detach() for part in {state})"
    else:
        cut = f"{state} = {state}.detach()"
    starts_empty = any(
        use.is_stored
        and isinstance(use.statement.node, ast.Assign)
        and isinstance(use.statement.node.value, ast.Constant)
        for use in uses(case.references)
    )
    return [f"if {state} is not None:", f"    {cut}"] if starts_empty else [cut]
