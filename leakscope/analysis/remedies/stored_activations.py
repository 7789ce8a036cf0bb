"""Activations that a hook appends at every pass: ``activations[name].append(output)``.

Recognises feeding from a function that is registered as a hook of a module, or made by one that is.
Offers no diff: what reads the list has to change with it.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.source.program import Scope, own_nodes
from leakscope.model.report import Remedy


def recognise(case: Case) -> Remedy | None:
    """Return how to keep the last activation."""
    if case.growth != "across" or case.fed is None or case.scope is None:
        return None
    where = _registered_at(case, case.scope)
    if not where:
        return None
    cut = " Its outputs also carry their graphs: .detach() drops those." if case.has_graph else ""
    return case.remedy(
        f"Keep the last activation of each layer in {case.name}",
        case.opening(),
        f"That is a hook, registered at {where}, and runs at every forward pass. Overwrite the "
        f"entry instead of appending to it, or add up what is needed of it.{cut} Once it was "
        "looked at, remove the hook by its handle: handle.remove().",
        case.still_reachable(),
    )


def _registered_at(case: Case, hook: Scope) -> str:
    """Return where a function, or the one that makes it, is handed to ``register_…_hook``."""
    names = {hook.name}
    if hook.parent is not None and hook.parent.kind == "function":
        names.add(hook.parent.name)
    for name in sorted(names):
        for statement in case.sources.program.mentioning(name):
            for node in own_nodes(statement.node):
                if _registers(node, names):
                    return case.sources.location(statement.scope.module.file, statement.line)
    return ""


def _registers(node: ast.AST, names: set[str]) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    method = node.func.attr
    if not (method.startswith("register_") and "hook" in method):
        return False
    mentioned = {n.id for a in node.args for n in ast.walk(a) if isinstance(n, ast.Name)}
    mentioned |= {n.attr for a in node.args for n in ast.walk(a) if isinstance(n, ast.Attribute)}
    return bool(mentioned & names)
