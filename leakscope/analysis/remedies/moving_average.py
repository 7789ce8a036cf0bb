"""An average that is carried on with its graph: ``self.mean = m * self.mean + (1 - m) * x``.

Recognises sums in which the value so far is weighed, kept with a graph. Offers a diff, which
detaches the new value, where all that reads it computes no gradients. Silent where gradients are
seen to be computed through it, and for states that a call makes from themselves.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.running_total import is_cut
from leakscope.analysis.remedies.usage import Use, goes_backward, reads
from leakscope.analysis.source.program import FunctionNode, Scope
from leakscope.analysis.source.types import dotted
from leakscope.model.report import Remedy

_WEIGHING = (ast.Mult, ast.Div)
_GRADLESS = frozenset({"no_grad", "inference_mode"})
_CUTTING = frozenset({"detach", "item", "tolist", "numpy", "data"})
_SHOWN = frozenset({"print", "float", "round", "str", "len", "format"})


def recognise(case: Case) -> Remedy | None:
    """Return how to average values without their graphs."""
    node = case.node
    if not case.has_graph or not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return None
    if not _averages(node) or is_cut(node.value) or goes_backward(case.references):
        return None
    others = [use for use in reads(case.references) if use.statement is not case.statement]
    is_safe = all(_takes_no_gradient(use) for use in others)
    diff = case.edits().call_method(node.value, "detach()").diff() if is_safe else None
    return case.remedy(
        f"Detach what is averaged into {case.name}",
        f"`{case.line.text if case.line else ''}` at {case.where()} computes the next value from "
        "the last one and from outputs that carry their graph, so the operations of every step so "
        f"far hang on it, with what they saved ({case.measure() or 'more each time'}).",
        "An average needs no gradient: .detach() keeps the value and drops the graph, or compute "
        "it under torch.no_grad().",
        ""
        if is_safe
        else "If gradients are meant to go through earlier steps, detach it where a sequence ends.",
        case.still_reachable(),
        diff=diff,
    )


def _averages(node: ast.Assign) -> bool:
    """Whether the value is a sum with the target's last value, weighed, as one term."""
    target = ast.unparse(node.targets[0])
    value = node.value
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, (ast.Add, ast.Sub)):
        return False
    return any(
        isinstance(side, ast.BinOp)
        and isinstance(side.op, _WEIGHING)
        and target in {ast.unparse(side.left), ast.unparse(side.right)}
        for side in (value.left, value.right)
    )


def _takes_no_gradient(use: Use) -> bool:
    """Whether the value is only shown, cut, or read where nothing builds graphs."""
    for parent in use.parents:
        if isinstance(parent, ast.FormattedValue):
            return True
        if isinstance(parent, ast.Attribute) and parent.attr in _CUTTING:
            return True
    return use.passed_to in _SHOWN or _is_gradless(use.statement.scope)


def _is_gradless(scope: Scope | None) -> bool:
    """Whether a function, or one around it, is decorated to build no graphs."""
    while scope is not None:
        if isinstance(scope.node, FunctionNode):
            for decorator in scope.node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if dotted(called).rpartition(".")[2] in _GRADLESS:
                    return True
        scope = scope.parent
    return False
