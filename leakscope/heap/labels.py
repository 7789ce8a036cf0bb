"""How one object refers to another, as a person would write it: ``.attr``, ``['key']``, ``[*]``.

The walk knows only that a parent reaches a child; the label is found again by scanning the parent
for the child by identity. What varies from epoch to epoch or from process to process (indices, long
or numbered keys) is folded to ``[*]``, so that a label is the same every time.
"""

from __future__ import annotations

import functools
import re
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, NamedTuple

from leakscope.heap import anatomy
from leakscope.heap.adapters.tensor import no_overrides, tensor_access
from leakscope.heap.anatomy import locals_of
from leakscope.model.errors import ours

NAMED_KEYS = 32
"""A dict with more entries than this is data and not a record: its keys are folded."""
NAMED_ITEMS = 8
"""A tuple with more items than this is data and not a record."""
_ATTEMPTS = 5
_TENSOR_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_KEY = re.compile(r"[A-Za-z_][A-Za-z_ ./@:-]{0,39}")


class Edge(Enum):
    """In which way a parent refers to a child."""

    ATTRIBUTE = "attribute"
    ITEM = "item"
    CELL = "cell"
    DEFAULT = "default"
    LOCAL = "local"
    HIDDEN = "hidden"
    """Inside a wrapper that a person would not mention: ``__dict__``, the deque of a queue."""


class Facet(Enum):
    """What an object that is part of another stands for."""

    ITSELF = "itself"
    ATTRIBUTES = "attributes"
    SUBMODULES = "submodules"
    CLOSURE = "closure"
    CELL = "cell"
    DEFAULTS = "defaults"
    KEYWORD_DEFAULTS = "keyword_defaults"
    THREADS = "threads"
    CACHE = "cache"
    GLOBALS = "globals"
    FRAME = "frame"


class ChainPart(NamedTuple):
    """An object on a chain: what it stands for, and for whom."""

    obj: Any
    facet: Facet = Facet.ITSELF
    whole: Any = None


class Label(NamedTuple):
    """One step: its text in a path, the way it goes, the bare name, what the child stands for."""

    text: str
    edge: Edge
    variable: str = ""
    facet: Facet = Facet.ITSELF


ANY = Label("[*]", Edge.ITEM)
INSIDE = Label("", Edge.HIDDEN)


def label(parent: ChainPart, child: object, attempts: int = _ATTEMPTS) -> Label:
    """Return how ``parent`` refers to ``child``; never raises and runs no code of the user's."""
    try:
        if parent.facet is not Facet.ITSELF:
            return _from_part(parent, child)
        return _from_object(parent.obj, child)
    except RuntimeError:  # another thread added to a dict meanwhile
        return label(parent, child, attempts - 1) if attempts else ANY
    except ours(Exception):
        return ANY


def attribute(name: str, facet: Facet = Facet.ITSELF) -> Label:
    """Return the label of an attribute."""
    return Label(f".{name}", Edge.ATTRIBUTE, name, facet)


def key(name: object) -> Label:
    """Return the label of a dict's entry: the key where it reads like a name, else ``[*]``."""
    if type(name) is str and _KEY.fullmatch(name):
        return Label(f"['{name}']", Edge.ITEM, name)
    return ANY


def _from_object(obj: Any, child: object) -> Label:
    for base in anatomy.mro(type(obj)):
        find = _BY_TYPE.get(id(base))
        if find is not None:
            found = find(obj, child)
            if found is not None:
                return found
    if child is type(obj):
        return attribute("__class__")
    found = _attribute_of(obj, child)
    if found is None and type(child) is OrderedDict:
        name = accessor_of_tensor(obj, child, _TENSOR_HOOKS)
        found = attribute(name) if name else None
    return found or INSIDE


def accessor_of_tensor(obj: Any, child: object, names: tuple[str, ...]) -> str:
    """Return which of torch's own accessors tells that a tensor refers to an object from C++."""
    access = tensor_access()
    if access is None or not anatomy.is_instance(obj, access.tensor):
        return ""
    with no_overrides(access):
        return accessor_of(obj, child, access.tensor, names)


def accessor_of(obj: Any, child: object, kind: type, names: tuple[str, ...]) -> str:
    """Return which of a class's accessors of these names returns ``child``, or nothing."""
    accessors = anatomy.class_dict(kind)
    return next((n for n in names if n in accessors and accessors[n].__get__(obj) is child), "")


def _attribute_of(obj: Any, child: object) -> Label | None:
    cls = type(obj)
    for name, descriptor in anatomy.slots(cls).items():
        if name != "__dict__" and anatomy.slot_value(descriptor, obj) is child:
            return _of_instance(cls, name, child)
    names = anatomy.instance_dict(obj)
    if names is None:
        return None
    if names is child:
        return Label("", Edge.HIDDEN, facet=Facet.ATTRIBUTES)
    found = _name_of(list(dict.items(names)), child)
    return None if found is None else _of_instance(cls, found, child)


def _of_instance(cls: type, name: str, child: object) -> Label:
    """Some attributes are internals of a wrapper and are left out."""
    is_of_torch = name in _TORCH_PARTS and anatomy.inherits(cls, *_TORCH_MODULE)
    if is_of_torch or (type(child) is dict and _answers_from(cls, name)):
        return Label("", Edge.HIDDEN, facet=Facet.SUBMODULES)
    if name in _INNER and any(anatomy.inherits(cls, *owner) for owner in _INNER[name]):
        return INSIDE
    return attribute(name)


def _answers_from(cls: type, name: str) -> bool:
    """Return whether a class looks up missing attributes in a private dict of this name.

    So ``app.state.history`` of Starlette's is what its users write, not ``app.state._state``.
    """
    if not name.startswith("_"):
        return False
    for base in anatomy.mro(cls):
        found = anatomy.class_dict(base).get("__getattr__")
        if found is not None:
            return type(found) is types.FunctionType and name in found.__code__.co_names
    return False


def _name_of(items: Iterable[tuple[Any, object]], child: object) -> str | None:
    """Return the first name; of a dict the items at one moment, for other threads may add to it."""
    for name, value in items:
        if value is child and type(name) is str:
            return name
    return None


def _dict_entry(mapping: dict[Any, Any], child: object) -> Label:
    """Large dicts are not searched: theirs are taken to be values."""
    own = None if type(mapping) is dict else _attribute_of(mapping, child)
    if own is not None or dict.__len__(mapping) > NAMED_KEYS:
        return own or ANY
    for name, value in list(dict.items(mapping)):
        if value is child:
            return key(name)
    is_key = any(name is child for name in list(dict.keys(mapping)))
    return Label(".keys()[*]", Edge.ITEM) if is_key else ANY


def _item(container: Any, child: object) -> Label:
    plain = any(type(container) is kind for kind in _EXACT_CONTAINERS)  # `in` asks a metaclass
    return (None if plain else _attribute_of(container, child)) or ANY


def _tuple_item(items: tuple[Any, ...], child: object) -> Label:
    if type(items) is not tuple:
        fields = anatomy.class_attribute(type(items), "_fields")
        names = fields if type(fields) is tuple else ()
        name = _name_of(zip(names, tuple.__iter__(items), strict=False), child)
        own = _attribute_of(items, child) if name is None else attribute(name)
        if own is not None:
            return own
    if tuple.__len__(items) <= NAMED_ITEMS:
        for index, value in enumerate(tuple.__iter__(items)):
            if value is child:
                return Label(f"[{index}]", Edge.ITEM)
    return ANY


def _from_function(function: types.FunctionType, child: object) -> Label | None:
    for name, facet in _FUNCTION_PARTS.items():
        if child is getattr(function, name):
            return attribute(name) if facet is None else Label("", Edge.HIDDEN, facet=facet)
    return _attribute_of(function, child)


def _from_class(cls: type, child: object) -> Label:
    name = _name_of(anatomy.class_items(cls), child)
    if name is not None:
        return attribute(name)
    return Label("", Edge.HIDDEN, facet=Facet.ATTRIBUTES) if type(child) is dict else INSIDE


def _inside(_: object, __: object) -> Label:
    """The code that uses a cell or a method names what is in it."""
    return INSIDE


def _from_cache(wrapper: Any, child: object) -> Label | None:
    """The dict of an lru_cache is the cache itself; its links and keys belong to it."""
    names = anatomy.instance_dict(wrapper)
    if child is names:
        return Label("", Edge.HIDDEN, facet=Facet.ATTRIBUTES)
    if type(child) is dict:
        return Label("", Edge.HIDDEN, facet=Facet.CACHE)
    name = _name_of(list(dict.items(names or {})), child)
    return ANY if name is None else attribute(name)


def _from_thread_local(_: Any, child: object) -> Label:
    """A thread-local maps each thread to its dict of attributes."""
    return Label("", Edge.HIDDEN, facet=Facet.THREADS) if type(child) is dict else INSIDE


def _from_generator(generator: Any, child: object) -> Label | None:
    frame = frame_of(generator)
    if frame is None:
        return None
    if child is frame:
        return Label("", Edge.HIDDEN, facet=Facet.FRAME)
    return _from_frame(frame, child)


def _from_frame(frame: types.FrameType, child: object) -> Label:
    name = _name_of(locals_of(frame), child)
    return INSIDE if name is None else Label(f".{name}", Edge.LOCAL, name)


def frame_of(obj: Any) -> types.FrameType | None:
    """Return the frame of a generator or coroutine, or the frame itself; None once it is done."""
    name = _FRAME_OF.get(id(type(obj)))
    frame = obj if name is None else anatomy.slot_value(type(obj).__dict__[name], obj)
    return frame if type(frame) is types.FrameType else None


def is_generator(obj: object) -> bool:
    """Say whether an object is a generator or coroutine: a function that is suspended."""
    return id(type(obj)) in _FRAME_OF


def names_by_id(names: dict[Any, Any]) -> dict[int, str]:
    """Return the first name of every object in a namespace, as labels have it, by its id."""
    latest_first = reversed(list(dict.items(names)))
    return {id(value): name for name, value in latest_first if type(name) is str}


def _from_part(parent: ChainPart, child: object) -> Label:
    """Return how what is part of another object, such as the dict of its attributes, refers."""
    match parent.facet:
        case Facet.CELL:  # the code that uses it names what is in it
            return INSIDE
        case Facet.CACHE:
            return ANY
        case Facet.FRAME:
            return _from_frame(parent.obj, child)
        case Facet.THREADS:
            return Label("", Edge.HIDDEN, facet=Facet.ATTRIBUTES) if type(child) is dict else INSIDE
        case Facet.CLOSURE:
            items = [*zip(parent.whole.__code__.co_freevars, parent.obj, strict=False)]
        case Facet.DEFAULTS:
            code = parent.whole.__code__
            names = code.co_varnames[: code.co_argcount][-len(parent.obj) :]
            items = [*zip(names, parent.obj, strict=False)]
        case _:
            items = [*dict.items(parent.obj)]
    name = _name_of(items, child)
    if name is None:
        return ANY
    match parent.facet:
        case Facet.ATTRIBUTES:
            return _of_instance(type(parent.whole), name, child)
        case Facet.GLOBALS:
            return Label(f"·{name}", Edge.ATTRIBUTE, name)
        case Facet.CLOSURE:
            return Label(f"⟨{name}⟩", Edge.CELL, name, Facet.CELL)
        case Facet.DEFAULTS | Facet.KEYWORD_DEFAULTS:
            return Label(f"({name}=)", Edge.DEFAULT, name)
    return attribute(name) if name.isidentifier() else Label(f"[{name}]", Edge.ITEM, name)


_FRAME_OF = {
    id(types.GeneratorType): "gi_frame",
    id(types.CoroutineType): "cr_frame",
    id(types.AsyncGeneratorType): "ag_frame",
}
_EXACT_CONTAINERS = (list, set, frozenset, deque)
_TORCH_PARTS = frozenset({"_parameters", "_buffers", "_modules"})
_TORCH_MODULE = ("torch.nn.modules.module", "Module")
_INNER: dict[str, list[tuple[str, str]]] = {
    "queue": [("queue", "Queue")],
    "data": [
        ("collections", "UserDict"),
        ("collections", "UserList"),
        ("weakref", "WeakValueDictionary"),
        ("weakref", "WeakKeyDictionary"),
        ("weakref", "WeakSet"),
    ],
    "_buffer": [("multiprocessing.queues", "Queue")],
}

_FUNCTION_PARTS: dict[str, Facet | None] = {
    "__closure__": Facet.CLOSURE,
    "__defaults__": Facet.DEFAULTS,
    "__kwdefaults__": Facet.KEYWORD_DEFAULTS,
    "__code__": None,
    "__globals__": None,
}
_FINDERS: dict[type, Callable[[Any, object], Label | None]] = {
    dict: _dict_entry,
    list: _item,
    set: _item,
    frozenset: _item,
    deque: _item,
    tuple: _tuple_item,
    type: _from_class,
    types.FunctionType: _from_function,
    types.MethodType: _inside,
    types.CellType: _inside,
    types.GeneratorType: _from_generator,
    types.CoroutineType: _from_generator,
    types.AsyncGeneratorType: _from_generator,
    types.FrameType: _from_frame,
    functools._lru_cache_wrapper: _from_cache,
    sys.modules["_thread"]._local: _from_thread_local,
}
_BY_TYPE = {id(cls): find for cls, find in _FINDERS.items()}
