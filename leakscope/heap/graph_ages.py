"""When the nodes of an autograd graph were made.

torch numbers the nodes of a thread in the order in which it makes them (``Node::sequence_nr``,
torch/csrc/autograd/function.h). A graph whose first node is younger than the last one of an earlier
census holds nothing of what that one had seen: it was made anew and is as large as its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import GetSetDescriptorType
from typing import Any

from leakscope.heap.adapters.tensor import tensor_access
from leakscope.model.interrupts import ours

MOST_NODES = 5000
"""A graph of more nodes isn't asked: a microsecond each."""
_LEAF = 1 << 63
"""What accumulates into a leaf has the greatest number there is, whenever it was made."""


def made(tensor: Any) -> list[int]:
    """Return the numbers of a graph's oldest and youngest node; nothing where they aren't known."""
    try:
        access = tensor_access()
        if access is None:
            return []
        with access.without_overrides():
            numbers = [n for n in _numbers(access.grad_fn.__get__(tensor)) if n < _LEAF]
    except ours(Exception):
        return []
    return [min(numbers), max(numbers)] if numbers else []


def _numbers(root: Any) -> Iterator[int]:
    seen, waiting = {id(root)}, [root]
    known: dict[type, tuple[Callable[[Any], int], Callable[[Any], Any]]] = {}
    while waiting:
        node = waiting.pop()
        kind = type(node)
        if kind not in known:
            known[kind] = _accessors(kind)
        number, followers = known[kind]
        yield number(node)
        for follower, _ in followers(node):
            if follower is not None and id(follower) not in seen:
                seen.add(id(follower))
                waiting.append(follower)
        if len(seen) > MOST_NODES:
            raise OverflowError


def _accessors(kind: type) -> tuple[Callable[[Any], int], Callable[[Any], Any]]:
    """Return torch's own accessors of a node type, whatever a subclass of the user's defines."""
    found: dict[str, Any] = {}
    for base in reversed(type.__dict__["__mro__"].__get__(kind)):
        names = type.__dict__["__dict__"].__get__(base)
        value = names.get("next_functions")
        if type(value) is GetSetDescriptorType:
            found = {"followers": value.__get__, "number": names["_sequence_nr"]}
    return found["number"], found["followers"]
