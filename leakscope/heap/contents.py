"""What objects are and hold, in general terms: kinds, bounds, and samples of their contents."""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from leakscope.heap import anatomy
from leakscope.heap.graph import Group
from leakscope.model.census import Content
from leakscope.model.errors import ours
from leakscope.model.text import human_bytes

_LONGEST_SHAPE = 8
_SHOWN_FROM = 10
"""Of what is retained, the part that nothing can read is reported from a tenth on."""


def contents(groups: list[Group]) -> list[Content]:
    """Return what one or several objects hold directly, by type, the heaviest first."""
    by_type: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_type[anatomy.qualified_name(group.type)].append(group)
    found = [
        Content(
            type=name,
            count=sum(group.count for group in same),
            bytes=sum(group.bytes for group in same),
            detail=_detail(same),
        )
        for name, same in by_type.items()
    ]
    return sorted(found, key=lambda content: -content.bytes)


def _detail(groups: list[Group]) -> str:
    formed = [group for group in groups if kind_of_class(group.type) in _FORMS]
    forms = Counter(form_of(sample) for group in formed for sample in group.samples)
    del forms[""]
    form = forms.most_common(1)[0][0] if forms else ""
    unused = sum(group.unused_bytes for group in groups)
    is_shown = form and unused * _SHOWN_FROM >= sum(group.bytes for group in groups) > 0
    return f"{form}, {human_bytes(unused)} unused" if is_shown else form


def form_of(obj: Any) -> str:
    """Return dtype, shape and device of a tensor or array, mode and size of an image, else ''."""
    try:
        form = _FORMS.get(kind_of(obj))
        return form(obj) if form else ""
    except ours(Exception):
        return ""


def _tensor_form(tensor: Any) -> str:
    """Read from C; neither a subclass nor a mode is called.

    A class with a dispatch of its own may compute shape and device itself: only its type is used.
    """
    core: Any = sys.modules["torch._C"]
    base = vars(core.TensorBase)
    with core.DisableTorchFunction(), core._DisableTorchDispatch():
        dtype = str(base["dtype"].__get__(tensor)).removeprefix("torch.")
        if not _has_plain_dispatch(type(tensor), core):
            return dtype
        shape = _shape(base["shape"].__get__(tensor))
        device = str(base["device"].__get__(tensor))
        backing = _backing(tensor, core) if device == "cpu" else ""
        return f"{dtype} {shape} on {device}{backing}"


def _has_plain_dispatch(cls: type, core: Any) -> bool:
    found = anatomy.class_attribute(cls, "__torch_dispatch__")
    found = found.__func__ if type(found) in (staticmethod, classmethod) else found
    return found is anatomy.MISSING or found is core._disabled_torch_dispatch_impl


def _backing(tensor: Any, core: Any) -> str:
    """Say of host memory that it is shared or page-locked, as torch calls it."""
    base, storage = vars(core.TensorBase), vars(core.StorageBase)
    try:
        if storage["is_shared"](base["untyped_storage"](tensor)):
            return ", shared"
        asks = _has_cuda() and not core._autograd._profiler_enabled()
        return ", pinned" if asks and base["is_pinned"](tensor) else ""
    except ours(Exception):
        return ""  # a tensor without a storage


def _has_cuda() -> bool:
    """Return whether this process uses CUDA; asking of memory must not be what begins it."""
    cuda: Any = sys.modules.get("torch.cuda")
    return bool(getattr(cuda, "_initialized", False)) and not cuda._is_in_bad_fork()


def _array_form(array: Any) -> str:
    base = vars(sys.modules["numpy"].ndarray)
    return f"{base['dtype'].__get__(array)} {_shape(base['shape'].__get__(array))}"


def _image_form(image: Any) -> str:
    names = anatomy.instance_dict(image) or {}
    size, mode = names.get("_size"), names.get("_mode", names.get("mode"))
    return f"{mode} {_shape(size)}" if type(size) is tuple and type(mode) is str else ""


def _shape(sizes: Iterable[Any]) -> str:
    numbers = [int(size) for size in sizes][:_LONGEST_SHAPE]
    return str(tuple(numbers))


_FORMS: dict[str, Callable[[Any], str]] = {
    "tensor": _tensor_form,
    "array": _array_form,
    "image": _image_form,
}
"""How to tell the form, by kind of object; others have none."""


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
    has_dict = anatomy.class_attribute(cls, "__dict__") is not anatomy.MISSING
    has_names = len(anatomy.mro(cls)) > 1 and (has_dict or anatomy.slots(cls))
    return "object" if has_names else "other"


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


def hits_of(obj: Any) -> int | None:
    """Return how many calls an ``lru_cache`` has answered; None for anything else."""
    if type(obj) is functools._lru_cache_wrapper:
        return functools._lru_cache_wrapper.cache_info(obj).hits
    return None


def length_of(obj: Any) -> int | None:
    """Return how many items an object holds, where it is a container."""
    if type(obj) is functools._lru_cache_wrapper:
        return functools._lru_cache_wrapper.cache_info(obj).currsize
    if type(obj) is types.MappingProxyType:
        return next(map(anatomy.plain_length, gc.get_referents(obj)), None)
    return anatomy.plain_length(obj)


def newest_items(obj: Any, most: int) -> list[Any]:
    """Return what was last put into a container that keeps an order; none of its code runs."""
    cls = type(obj)
    bases = {id(base) for base in anatomy.mro(cls)}
    if id(list) in bases:
        return list.__getitem__(obj, slice(-most, None))
    if id(dict) in bases:
        return list(islice(reversed(dict.values(obj)), most))
    if cls is deque:
        return list(islice(reversed(obj), most))
    if cls is functools._lru_cache_wrapper:
        size = length_of(obj)
        kept = (r for r in gc.get_referents(obj) if type(r) is dict and len(r) == size)
        return newest_items(next(kept, {}), most)  # results, or the links that have them
    return []
