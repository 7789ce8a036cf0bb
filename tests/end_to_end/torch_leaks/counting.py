"""What a program keeps, counted from what it says it keeps, without anything of leakscope's.

A program calls ``tell`` at its end when ``COUNT_KEPT`` is in the environment. The count is the sum
of the storages that tensors have, each once by its address: also of those that autograd saved, that
a ``ctx`` holds, that closures or the frames of a traceback refer to.
"""

from __future__ import annotations

import json
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

PLAIN = (str, bytes, int, float, bool, type(None), torch.device, torch.dtype, torch.Size)


def tell(names: dict[str, Any], kept: str, besides: str, done: dict[str, int]) -> None:
    """Print what is kept per unit of work.

    Args:
        names: The program's variables.
        kept: An expression for what holds the memory; a text, so that it is no use of the variable.
        besides: The same for what would be there anyway.
        done: How many units of each kind were done.

    """
    ordinary = storages(eval(f"({besides})", names))
    found = storages(eval(kept, names))
    own = sum(size for key, size in found.items() if key not in ordinary)
    print("kept bytes", json.dumps({unit: own / count for unit, count in done.items()}))


def storages(root: object) -> dict[int, int]:
    """Return the bytes of every storage that is reached, by its address."""
    found: dict[int, int] = {}
    seen: dict[int, object] = {}  # holds what is made for the asking, so that no id comes twice
    todo = [root]
    while todo:
        obj = todo.pop()
        if id(obj) in seen or isinstance(obj, PLAIN):
            continue
        seen[id(obj)] = obj
        if isinstance(obj, torch.Tensor):
            storage = obj.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
        todo.extend(referents(obj))
    return found


def referents(obj: Any) -> list[object]:
    """Return what an object of a kind that training programs keep refers to."""
    if isinstance(obj, torch.Tensor):
        return [obj.grad if obj.is_leaf else None, obj.grad_fn]
    if isinstance(obj, nn.Module):
        return [*obj.parameters(), *obj.buffers()]
    if isinstance(obj, torch.optim.Optimizer):
        return [obj.param_groups, obj.state]
    if isinstance(obj, dict):
        return [*obj.keys(), *obj.values()]
    if isinstance(obj, (list, tuple, set, deque)):
        return list(obj)
    if isinstance(obj, BaseException):
        return [obj.__traceback__, obj.__context__, *obj.args]
    if isinstance(obj, types.TracebackType):
        return [obj.tb_frame.f_locals, obj.tb_next]
    if isinstance(obj, types.FunctionType):
        return [cell.cell_contents for cell in obj.__closure__ or ()]
    return list(of_node(obj)) if hasattr(obj, "next_functions") else []


def of_node(node: Any) -> Iterator[object]:
    """Yield what a node of an autograd graph refers to; what ``backward`` freed is left out."""
    yield from (follower for follower, _ in node.next_functions)
    yield getattr(node, "variable", None)
    yield getattr(node, "__dict__", None)
    names = [name for name in dir(node) if name.startswith("_saved_")]
    for name in (*names, "saved_tensors"):
        try:
            yield getattr(node, name, None)
        except RuntimeError:  # freed by backward
            continue
