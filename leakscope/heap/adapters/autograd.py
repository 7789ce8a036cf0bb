"""Autograd graphs: what a ``grad_fn`` keeps alive, without running a single unpack hook.

``node._saved_x`` would unpack, and under non-reentrant checkpointing *recompute*; the raw saved
variables hand out what they hold as it is: the tensor, or whatever a pack hook made of it.
"""

from __future__ import annotations

from types import GetSetDescriptorType
from typing import Any, NamedTuple

from leakscope.model.interrupts import ours

_RAW = "_raw_saved_"


class NodeFacts(NamedTuple):
    """The accessors of one type of autograd nodes."""

    next_functions: Any
    saved: tuple[Any, ...]
    variable: Any | None
    """Of ``AccumulateGrad``: the leaf it accumulates into."""


def node_facts(mro: tuple[type, ...]) -> NodeFacts | None:
    """Return the accessors of a node type by its bases; None for any other type."""
    found: dict[str, Any] = {}
    for base in reversed(mro):
        found.update(
            (name, value)
            for name, value in type.__dict__["__dict__"].__get__(base).items()
            if type(value) is GetSetDescriptorType
        )
    if "next_functions" not in found or "_input_metadata" not in found:
        return None
    saved = tuple(value for name, value in found.items() if name.startswith(_RAW))
    return NodeFacts(found["next_functions"], saved, found.get("variable"))


def node_referents(node: object, facts: NodeFacts) -> list[object]:
    """Return the next nodes, the leaf and what was saved; nothing of what was freed already."""
    referents = [follower for follower, _ in _read(facts.next_functions, node) or ()]
    if facts.variable is not None:
        referents.append(_read(facts.variable, node))
    for accessor in facts.saved:
        saved = _read(accessor, node)
        for variable in saved if type(saved) is tuple else (saved,):
            referents += saved_referents(variable)
    return [r for r in referents if r is not None]


def _read(accessor: Any, node: object) -> Any:
    try:
        return accessor.__get__(node)
    except ours(Exception):
        return None  # freed by backward


def is_saved_variable(kind: type) -> bool:
    """Return whether a type is that of raw saved variables: checkpointing keeps some in lists."""
    name = type.__dict__["__name__"].__get__(kind)
    names = type.__dict__["__dict__"].__get__(kind)
    return bool(name == "SavedTensor" and names.get("__module__") == "torch._C._autograd")


def saved_referents(variable: Any) -> list[object]:
    """Return what a saved variable holds, and the hook that would unpack it: it never runs, but
    under checkpointing its closure keeps the inputs from which activations are recomputed.
    """
    return [_attribute(variable, "data"), _attribute(variable, "unpack_hook")]


def _attribute(variable: Any, name: str) -> object:
    try:
        return getattr(variable, name)
    except ours(Exception):
        return None
