"""A container in a class body, shared by all instances: ``class Batch: items = []``.

Recognises a list, dict or set bound in the class body and fed through ``self``. Offers a diff where
the class has an ``__init__`` and nobody uses the container through the class itself; where a single
instance is made, its own container would grow too, and is to be emptied. Silent for
registries, which are fed through the class or a class method.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.usage import uses
from leakscope.analysis.source.program import FunctionNode, Scope, own_nodes
from leakscope.model.report import Remedy


def recognise(case: Case) -> Remedy | None:
    """Return how to give each instance its own container."""
    found = _shared(case)
    if found is None:
        return None
    owner, name, value, line = found
    if not _used_through_instances_only(case, owner):
        return None
    where = case.sources.location(owner.module.file, line)
    made_once = _made_once(case, owner)
    if made_once and case.growth == "across":
        return case.remedy(
            f"Empty {case.name} after each {case.unit or 'round'}",
            f"{case.opening()} `{name}` at {where} stands in the body of class {owner.name}.",
            f"{made_once} makes the only instance that the source shows, once, and one of its own "
            "would grow just the same: empty it once its contents were used, where the next round "
            "begins.",
            f"Bind it in __init__ as well: self.{name} = {ast.unparse(value)}.",
            case.still_reachable(),
        )
    return case.remedy(
        f"Give each {owner.name} its own {name}",
        f"`{name}` at {where} stands in the body of class {owner.name}: all instances share one "
        f"object, which outlives every one of them ({case.measure() or 'it only grows'}).",
        f"Bind it in __init__: self.{name} = {ast.unparse(value)}. If only one {owner.name} lives "
        "all the time, that alone doesn't bound it: empty it after use as well.",
        case.still_reachable(),
        diff=_diff(case, owner, name, value),
    )


def _shared(case: Case) -> tuple[Scope, str, ast.expr, int] | None:
    for place, _ in case.references.chain:
        if place.kind != "attr" or place.scope is None:
            continue
        for owner in case.sources.types.ancestors(place.scope):
            for binding in owner.bindings.get(place.name, []):
                value = binding.value
                if place.name in owner.attributes or getattr(owner.node, "decorator_list", []):
                    continue
                if isinstance(value, (ast.List, ast.Dict, ast.Set)):
                    return owner, place.name, value, binding.line
    return None


def _used_through_instances_only(case: Case, owner: Scope) -> bool:
    for use in uses(case.references):
        if use.statement.scope is owner:
            continue
        value = use.node.value if isinstance(use.node, ast.Attribute) else None
        if not isinstance(value, ast.Name) or value.id in {"cls", owner.name}:
            return False
    return True


def _made_once(case: Case, owner: Scope) -> str:
    """Return where the only instance is made, empty where there may be several."""
    types = case.sources.types
    found: dict[str, bool] = {}
    for cls in types.family(owner):
        if owner not in types.ancestors(cls):
            continue
        for statement in case.sources.program.mentioning(cls.name):
            for node in own_nodes(statement.node):
                if isinstance(node, ast.Call) and cls in types.of(node, statement.scope):
                    where = case.sources.location(statement.scope.module.file, node.lineno)
                    found[where] = case.sources.heat.of(statement)
    return next(iter(found)) if len(found) == 1 and not any(found.values()) else ""


def _diff(case: Case, owner: Scope, name: str, value: ast.expr) -> str | None:
    makers = [c for c in owner.children if c.name == "__init__"]
    if len(makers) != 1 or not isinstance(makers[0].node, FunctionNode):
        return None
    body = makers[0].node.body
    edits = case.edits(owner)
    line = f"{makers[0].params[0]}.{name} = {edits.source_of(value)}"
    first = body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    calls_super = "super()" in ast.unparse(first)
    after = is_docstring or calls_super
    return (edits.insert_after if after else edits.insert_before)(first, line).diff()
