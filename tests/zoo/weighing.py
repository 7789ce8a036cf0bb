"""What a program of the zoo keeps, weighed by itself, without anything of leakscope's.

A program calls ``tell`` at its end when ``COUNT_KEPT`` is in the environment. What it keeps is
given as texts, so that asking is no use of the variables.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

CONTAINERS = (list, tuple, set, deque)


def tell(names: dict[str, Any], kept: dict[str, str], done: dict[str, int]) -> None:
    """Print what is kept per unit of work.

    Args:
        names: The program's variables.
        kept: For each leak's name, an expression for what holds the memory, or for its bytes.
        done: How many units of each kind were done while it grew.

    """
    words = {**names, "weigh": weigh, "freed": freed}
    found = {name: eval(text, words) for name, text in kept.items()}
    sizes = {name: it if isinstance(it, int) else weigh(it) for name, it in found.items()}
    per_unit = {
        name: {unit: size / count for unit, count in done.items()} for name, size in sizes.items()
    }
    print("kept bytes", json.dumps(per_unit))


def weigh(root: object) -> int:
    """Return the bytes of all that is reached, each once: objects, and memory of theirs outside."""
    found: dict[object, int] = {}
    seen: dict[int, object] = {}  # holds what is made for the asking, so that no id comes twice
    todo = [root]
    while todo:
        obj = todo.pop()
        if id(obj) in seen:
            continue
        seen[id(obj)] = obj
        key, size = own_memory(obj)
        found[key] = size
        found["object", id(obj)] = shell(obj)
        todo.extend(referents(obj))
    return sum(found.values())


def freed(free: Callable[[], object]) -> int:
    """Return how much less of the C heap is in use after a call; glibc tells it."""
    before = in_use()
    free()
    gc.collect()
    return before - in_use()


def in_use() -> int:
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    fields = [(name, ctypes.c_size_t) for name in "abcdefghij"]
    mallinfo2.restype = type("MallInfo", (ctypes.Structure,), {"_fields_": fields})
    reported = mallinfo2()
    return int(reported.e + reported.h)  # hblkhd and uordblks


def shell(obj: Any) -> int:
    """Return the size of an object itself; a class is nothing that a program gathers."""
    if isinstance(obj, type):
        return 0
    has_data = isinstance(obj, np.ndarray) and obj.flags.owndata
    return sys.getsizeof(obj) - (obj.nbytes if has_data else 0)


def own_memory(obj: Any) -> tuple[object, int]:
    """Return what tells the memory behind an object from others, and its size."""
    if isinstance(obj, torch.Tensor):
        storage = obj.untyped_storage()
        return ("memory", storage.data_ptr()), storage.nbytes()
    if isinstance(obj, np.ndarray):
        while isinstance(obj.base, np.ndarray):
            obj = obj.base
        return ("memory", obj.ctypes.data), obj.nbytes
    if hasattr(obj, "getbands") and hasattr(obj, "size"):  # a picture of PIL
        width, height = obj.size
        return id(obj), width * height * (4 if len(obj.getbands()) == 3 else len(obj.getbands()))
    return id(obj), 0


def referents(obj: Any) -> list[object]:
    if isinstance(obj, dict):
        return [*obj.keys(), *obj.values()]
    if isinstance(obj, CONTAINERS):
        return list(obj)
    if isinstance(obj, (torch.Tensor, np.ndarray, type, str, bytes)) or hasattr(obj, "getbands"):
        return []
    slots = [getattr(obj, name, None) for name in getattr(obj, "__slots__", ())]
    return [*slots, vars(obj)] if hasattr(obj, "__dict__") else slots
