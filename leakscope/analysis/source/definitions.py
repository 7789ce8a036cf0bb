"""Where a container's variable or attribute is first bound."""

from __future__ import annotations

import ast

from leakscope.analysis.source.program import Binding, Scope
from leakscope.analysis.source.references import Place, References

_PREFERENCE = {"assign": 0, "def": 0, "class": 0, "with": 1, "for": 2, "param": 2, "import": 4}


def find_definition(references: References) -> tuple[str, int] | None:
    """Return the file and line of the binding nearest to the container on its own path."""
    chain = sorted(references.chain, key=lambda entry: len(entry[1]))
    best: tuple[tuple[int, int], tuple[str, int]] | None = None
    for place, steps in chain:
        names = sum(1 for step in steps if step.kind == "attr")
        for binding in bindings_of(references, place)[:1]:
            key = (names, _PREFERENCE.get(binding.how, 3))
            if best is None or key < best[0]:
                best = (key, (binding.scope.module.file, binding.line))
    return best[1] if best else None


def bindings_of(references: References, place: Place) -> list[Binding]:
    """Return the bindings of a place, the first that a reader would call its definition first."""
    if place.scope is None:
        return []
    if place.kind == "name":
        return sorted(place.scope.bindings.get(place.name, []), key=_order)
    return _attribute_bindings(references, place.scope, place.name)


def _attribute_bindings(references: References, owner: Scope, name: str) -> list[Binding]:
    family = references.types.family(owner)
    nearest = sorted(family, key=lambda cls: (cls is not owner, cls.module.file, cls.first_line))
    found: list[Binding] = []
    for cls in nearest:
        found += sorted(cls.bindings.get(name, []), key=_order)
        found += sorted(cls.attributes.get(name, []), key=_order)
    return found


def _order(binding: Binding) -> tuple[bool, bool, int, int]:
    """Order: before use, in ``__init__``, not in a loop, by line."""
    late = binding.how in {"import", "except"}
    in_init = binding.scope.name in {"__init__", "__post_init__", "__new__", "setup"}
    statement = binding.statement
    is_update = statement is not None and isinstance(statement.node, ast.AugAssign)
    return (late or is_update, not in_init, 0, binding.line)
