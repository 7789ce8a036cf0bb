"""A ``WeakKeyDictionary`` that never forgets, because its values refer to their keys.

Recognises the type, and says which value keeps its key where the source shows it. Offers no diff:
what the value needs of its key has to be stored in another form.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.calls import argument_of
from leakscope.analysis.remedies.case import Case
from leakscope.analysis.source.program import Scope
from leakscope.analysis.source.types import dotted
from leakscope.model.report import Remedy


def recognise(case: Case) -> Remedy | None:
    """Return how to let entries go with their keys."""
    if not case.row.type.endswith("WeakKeyDictionary") or case.growth != "across":
        return None
    kept = _keeping(case)
    fact = (
        f"{kept}, so no entry ever goes"
        if kept
        else "Either the keys are kept elsewhere, or a value refers to its key, by a closure or a "
        "bound method too, and then the entry never goes"
    )
    return case.remedy(
        f"Store in {case.name} what doesn't refer to its key",
        case.opening(),
        "An entry goes when nothing refers to its key any more; the dictionary keeps the values, "
        f"and a value that refers to its key keeps the entry for ever. {fact}.",
        "Store only what was computed from the key, or have the value keep weakref.ref(key); or "
        "keep the value as an attribute of the key itself: both then go together.",
        case.still_reachable(),
    )


def _keeping(case: Case) -> str:
    """Return how the stored value keeps its key, as far as the source shows, else an empty text."""
    node, scope = case.node, case.scope
    if not isinstance(node, ast.Assign) or scope is None:
        return ""
    subscripts = [t for t in node.targets if isinstance(t, ast.Subscript)]
    if not subscripts:
        return ""
    key = ast.unparse(subscripts[0].slice)
    value = node.value
    if isinstance(value, (ast.Tuple, ast.List, ast.Dict)):
        parts = value.values if isinstance(value, ast.Dict) else value.elts
        return f"`{ast.unparse(value)}` holds `{key}`" if key in map(ast.unparse, parts) else ""
    if isinstance(value, ast.Lambda):
        used = {ast.unparse(n) for n in ast.walk(value.body) if isinstance(n, ast.expr)}
        return f"the lambda refers to `{key}`" if key in used else ""
    if not isinstance(value, ast.Call):
        return ""
    for cls in case.sources.types.of(value, scope):
        if _is_dataclass(cls) and key in map(ast.unparse, value.args):
            return f"`{ast.unparse(value)}` keeps `{key}`"
        for maker in (c for c in cls.children if c.name == "__init__"):
            stored = _stored(maker, value, key)
            if stored is not None:
                where = case.sources.location(maker.module.file, stored.lineno)
                return f"`{ast.unparse(value)}` keeps `{key}` at {where}"
    return ""


def _is_dataclass(cls: Scope) -> bool:
    decorators: list[ast.expr] = getattr(cls.node, "decorator_list", [])
    names = [dotted(d.func if isinstance(d, ast.Call) else d) for d in decorators]
    return any(name.rpartition(".")[2] == "dataclass" for name in names)


def _stored(maker: Scope, call: ast.Call, key: str) -> ast.Assign | None:
    """Return where a constructor stores the key that it is called with on the object."""
    for parameter in maker.params[1:]:
        given = argument_of(call, maker, parameter)
        if given is None or ast.unparse(given) != key:
            continue
        for node in ast.walk(maker.node):
            if not isinstance(node, ast.Assign) or ast.unparse(node.value) != parameter:
                continue
            if any(isinstance(target, ast.Attribute) for target in node.targets):
                return node
    return None
