"""The type of an object in general terms, and what it declares about its own bound."""

from __future__ import annotations

import functools
import types
from collections import deque
from typing import Any

from leakscope.heap import anatomy

CONTAINERS = frozenset({"list", "dict", "set", "deque", "tuple", "queue", "lru_cache"})

_KINDS: dict[type, str] = {
    dict: "dict",
    list: "list",
    set: "set",
    frozenset: "set",
    deque: "deque",
    tuple: "tuple",
    str: "str",
    bytes: "bytes",
    bytearray: "bytes",
    memoryview: "bytes",
    functools._lru_cache_wrapper: "lru_cache",
    functools.partial: "function",
    types.FunctionType: "function",
    types.MethodType: "function",
    types.BuiltinFunctionType: "function",
    type: "other",
    types.CodeType: "other",
    types.GeneratorType: "generator",
    types.CoroutineType: "generator",
    types.AsyncGeneratorType: "generator",
    types.TracebackType: "traceback",
    BaseException: "traceback",
}
_BY_TYPE = {id(cls): kind for cls, kind in _KINDS.items()}
_BY_NAME: dict[tuple[str, str], str] = {
    ("torch._C", "TensorBase"): "tensor",
    ("torch._C", "_TensorBase"): "tensor",
    ("torch.nn.modules.module", "Module"): "module",
    ("torch.optim.optimizer", "Optimizer"): "optimizer",
    ("numpy", "ndarray"): "array",
    ("array", "array"): "bytes",
    ("mmap", "mmap"): "bytes",
    ("queue", "Queue"): "queue",
    ("_queue", "SimpleQueue"): "queue",
    ("multiprocessing.queues", "Queue"): "queue",
    ("PIL.Image", "Image"): "image",
    ("matplotlib.figure", "FigureBase"): "figure",
    ("collections", "UserDict"): "dict",
    ("collections", "UserList"): "list",
}


def kind_of(obj: object) -> str:
    """Return the kind of an object as :class:`~leakscope.model.census.CensusRow` names them."""
    return kind_of_class(type(obj))


def kind_of_class(cls: type) -> str:
    """Return the kind that instances of a class have."""
    for base in anatomy.mro(cls):
        name = (anatomy.module_name(base), anatomy.qualname(base))
        kind = _BY_TYPE.get(id(base)) or _BY_NAME.get(name)
        if kind is not None:
            return kind
    return "object" if len(anatomy.mro(cls)) > 1 and _has_names(cls) else "other"


def capacity_of(obj: Any, kind: str) -> int | None:
    """Return the bound that a container of a kind declares itself, or None where it has none."""
    if kind == "deque":
        limit = deque.__dict__["maxlen"].__get__(obj)
    elif kind == "lru_cache":
        limit = functools._lru_cache_wrapper.cache_info(obj).maxsize
    elif kind == "queue":
        names = anatomy.instance_dict(obj) or {}
        limit = names.get("maxsize", names.get("_maxsize"))
        limit = limit if type(limit) is int and limit > 0 else None
    else:
        return None
    return limit if type(limit) is int else None


def length_of(obj: Any) -> int | None:
    """Return how many items an object holds, where it is a container."""
    if type(obj) is functools._lru_cache_wrapper:
        return functools._lru_cache_wrapper.cache_info(obj).currsize
    return anatomy.plain_length(obj)


def _has_names(cls: type) -> bool:
    has_dict = anatomy.class_attribute(cls, "__dict__") is not anatomy.MISSING
    return has_dict or bool(anatomy.slots(cls))
