"""Tensors that a function of the user's own keeps on ``ctx``: ``ctx.x = x`` in ``forward``.

What ``save_for_backward`` keeps is freed by ``backward()``; an attribute of ``ctx`` lives as long
as the graph. Gives a sentence to the remedies of kept graphs, no remedy of its own: it is the graph
that must go. Recognises an attribute bound in ``forward`` on which ``backward`` calls a method;
silent for numbers, flags and shapes that are only read.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.source.program import Scope
from leakscope.analysis.source.types import dotted


def kept_on_context(case: Case) -> str:
    """Return which attribute of a context keeps a tensor, empty where none is seen to."""
    for scope in case.sources.program.functions.get("forward", []):
        if not _is_of_function(scope) or not scope.params:
            continue
        for node in ast.walk(scope.node):
            name = _stored(node, scope)
            if name and _is_tensor(name, scope):
                where = case.sources.location(scope.module.file, getattr(node, "lineno", 0))
                return (
                    f"{where} keeps `{name}` on {scope.params[0]}, and backward() doesn't free an "
                    f"attribute: {scope.params[0]}.save_for_backward() keeps what it does free."
                )
    return ""


def _is_of_function(scope: Scope) -> bool:
    """Whether a method belongs to a ``torch.autograd.Function``."""
    owner = scope.parent.node if scope.parent else None
    return isinstance(owner, ast.ClassDef) and any(
        dotted(base).rpartition(".")[2] == "Function" for base in owner.bases
    )


def _stored(node: ast.AST, scope: Scope) -> str:
    """Return the attribute of ``ctx`` that a statement binds to an argument or to what is made."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return ""
    target, value = node.targets[0], node.value
    is_own = isinstance(target, ast.Attribute) and dotted(target.value) == scope.params[0]
    if not is_own or not isinstance(value, (ast.Name, ast.Call, ast.Compare, ast.BinOp)):
        return ""
    return target.attr if isinstance(target, ast.Attribute) else ""


def _is_tensor(name: str, forward: Scope) -> bool:
    """Whether ``backward`` treats the attribute as a tensor: calls its methods."""
    siblings = forward.parent.children if forward.parent else []
    for scope in siblings:
        if scope.name != "backward":
            continue
        for node in ast.walk(scope.node):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called = node.func.value
                if isinstance(called, ast.Attribute) and called.attr == name:
                    return True
    return False
