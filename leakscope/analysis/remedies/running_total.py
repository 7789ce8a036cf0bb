"""A running total of losses that keeps every iteration's graph: ``total += loss``.

Recognises a sum, in place or written out, into a variable or attribute that keeps a graph.
Silent where the total is meant to carry gradients (something calls ``backward`` on it or on what is
made of it), and where the addend is detached or a number already.
"""

from __future__ import annotations

import ast
import re

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.usage import (
    attributes_of_name,
    backward_called,
    derived_attributes,
    goes_backward,
    reads,
)
from leakscope.model.report import Remedy

_LONGEST = 40
_CUT = frozenset({"item", "detach", "tolist", "numpy"})
_NUMBER_CALLS = frozenset(
    {
        "print", "float", "round", "str", "format", "append", "add_scalar", "log", "info", "debug",
        "warning", "update", "set_postfix", "write", "max", "min", "abs", "add", "isnan",
    }
)  # fmt: skip


def recognise(case: Case) -> Remedy | None:
    """Return how to add a number instead of a graph."""
    if not (case.has_graph or case.row.kind == "tensor"):
        return None
    addends = _addends(case.node)
    if not addends or any(is_cut(addend) for addend in addends):
        return None
    if goes_backward(case.references):
        return None
    method = "item()" if _number_will_do(case, addends) else "detach()"
    edits = case.edits()
    for addend in addends:
        edits.call_method(addend, method)
    written = ast.unparse(addends[0])
    return case.remedy(
        f"Add {_called(written, method)}, not the tensor, to {case.name}",
        f"{case.name} is a tensor that remembers how it was computed: `{_first(case)}` at "
        f"{case.where()} chains the whole graph of each iteration to it, activations included.",
        _why(case, method),
        case.still_reachable(),
        diff=edits.diff(),
    )


def is_cut(node: ast.expr) -> bool:
    """Whether an expression's graph is cut, or it is a number."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Name) and function.id in {"float", "int", "len"}:
            return True
        if isinstance(function, ast.Attribute):
            return function.attr in _CUT or is_cut(function.value)
    if isinstance(node, ast.Attribute):
        return node.attr == "data" or is_cut(node.value)
    if isinstance(node, ast.BinOp):
        return is_cut(node.left) and (is_cut(node.right) or isinstance(node.right, ast.Name))
    return False


def _addends(node: ast.stmt | None) -> list[ast.expr]:
    """Return what is added to the variable, without the variable itself."""
    if isinstance(node, ast.AugAssign):
        return [node.value] if isinstance(node.op, (ast.Add, ast.Sub)) else []
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return []
    target = ast.unparse(node.targets[0])
    terms = _terms(node.value)
    others = [term for term in terms if ast.unparse(term) != target]
    return others if len(others) == len(terms) - 1 else []


def _terms(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        return [*_terms(node.left), *_terms(node.right)]
    return [node]


def _number_will_do(case: Case, addends: list[ast.expr]) -> bool:
    """Whether each addend is a single number and nobody needs the total as a tensor."""
    if derived_attributes(case.references) - {"item", "append"}:
        return False
    if "item" in derived_attributes(case.references):
        return False
    scope = case.scope
    for use in reads(case.references):
        called = use.passed_to.rpartition(".")[2]
        if called and called not in _NUMBER_CALLS:
            return False
    if case.holds_only_scalars() or _is_formatted(case):
        return True
    names = {n.id for a in addends for n in ast.walk(a) if isinstance(n, ast.Name)}
    return scope is not None and any(
        backward_called(name, scope) or "item" in attributes_of_name(name, scope) for name in names
    )


def _is_formatted(case: Case) -> bool:
    """Whether the total is printed with a number's format, so that it must be one."""
    for use in reads(case.references):
        for parent in use.parents:
            if isinstance(parent, ast.FormattedValue) and parent.format_spec is not None:
                return bool(re.search(r"[0-9]*\.[0-9]*[feg]", ast.unparse(parent)))
            if isinstance(parent, ast.Call) and use.passed_to == "float":
                return True
    return False


def _why(case: Case, method: str) -> str:
    if method == "item()":
        return "Only its value is needed here, and .item() gives that as a float."
    return (
        "Its value is still used as a tensor, so .detach() keeps that and drops the graph; "
        "where a float will do, .item() is smaller still."
    )


def _first(case: Case) -> str:
    return case.line.text if case.line else ""


def _called(text: str, method: str) -> str:
    if len(text) > _LONGEST:
        return "a number" if method == "item()" else "a detached value"
    is_atom = re.fullmatch(r"[\w.]+(\(.*\)|\[.*\])?", text)
    return f"{text}.{method}" if is_atom else f"({text}).{method}"
