"""Classes whose every method tells on its caller."""

from __future__ import annotations

import collections
import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
from optional_torch import torch

Behaviour = Callable[..., Any]


class Watch:
    """What was called while somebody looked; meanwhile the methods misbehave."""

    def __init__(self) -> None:
        self.looks = False
        self.calls: list[str] = []

    @contextlib.contextmanager
    def looking(self) -> Iterator[list[str]]:
        self.calls.clear()
        self.looks = True
        try:
            yield self.calls
        finally:
            self.looks = False


WATCH = Watch()


def _raise(name: str, *_: Any) -> Any:
    raise RuntimeError(f"{name} was called")


def _lie(name: str, *_: Any) -> Any:
    lies = {"__len__": 10**15, "__class__": ModuleType, "__dict__": {"a": bytes(10**6)}}
    if torch is not None:
        lies["__class__"] = torch.nn.Module
    return lies.get(name, True)


def _sleep(*_: Any) -> Any:
    time.sleep(0.01)  # lets another thread in
    return NotImplemented


def _recurse(name: str, *_: Any) -> Any:
    return _recurse(name)


BEHAVIOURS: dict[str, Behaviour] = {
    "raises": _raise,
    "lies": _lie,
    "sleeps": _sleep,
    "recurses": _recurse,
}

METHODS = """
    __len__ __length_hint__ __bool__ __repr__ __str__ __format__ __bytes__ __int__ __float__
    __index__ __hash__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __iter__ __next__ __reversed__
    __contains__ __getitem__ __setitem__ __delitem__ __missing__ __call__ __getattribute__
    __getattr__ __setattr__ __delattr__ __dir__ __sizeof__ __reduce__ __reduce_ex__ __getstate__
    __copy__ __deepcopy__ __del__ __get__ __enter__ __exit__ __add__ __array__ __fspath__
    keys values items get copy size numel storage untyped_storage data_ptr parameters children
    named_parameters named_modules state_dict forward tolist element_size nelement
"""
PROPERTIES = """
    __class__ __dict__ __doc__ __annotations__ __wrapped__ __name__
    __array_interface__ __cuda_array_interface__ __closure__ __code__ __self__ __func__ __mro__
    grad grad_fn data base shape dtype device nbytes requires_grad is_leaf maxlen maxsize
"""
OF_CLASSES = """
    __instancecheck__ __subclasscheck__ __eq__ __hash__ __getattribute__ __call__ __repr__ __dir__
    __len__ __iter__ __contains__ __bool__ __sizeof__ __setattr__ __or__
"""


OTHERWISE: dict[str, Any] = {"__hash__": object.__hash__, "__del__": id}
"""Done whatever the base does; everything can be a key then."""


def _method(name: str, base: type, behaviour: Behaviour) -> Any:
    plain = OTHERWISE.get(name) or getattr(base, name, None)

    def method(*args: Any, **kwargs: Any) -> Any:
        if WATCH.looks:
            WATCH.calls.append(name)
            return behaviour(name, *args)
        if plain is None:
            raise AttributeError(name)
        return plain(*args, **kwargs)

    return method


def _property(name: str, base: type, behaviour: Behaviour) -> property:
    def read(self: Any) -> Any:
        if WATCH.looks:
            WATCH.calls.append(name)
            return behaviour(name)
        if name == "__class__":
            return type(self)
        found = next((vars(b)[name] for b in base.__mro__ if name in vars(b)), None)
        return found.__get__(self, type(self)) if hasattr(found, "__get__") else found

    return property(read)


def _meta(base: type, behaviour: Behaviour) -> type:
    names = {
        name: _method(name, base, behaviour) for name in OF_CLASSES.split() if hasattr(base, name)
    }
    return type("HostileMeta", (base,), names)


def _of(*makers: Callable[[], Any]) -> Callable[[type], Any]:
    return lambda kind: type.__call__(kind, *(make() for make in makers))


def _heavy() -> list[bytes]:
    return [bytes(50_000)]


def _with_attribute(kind: type) -> Any:
    made = type.__call__(kind)
    object.__setattr__(made, "heavy", _heavy())
    return made


def _tensor(kind: type) -> Any:
    return torch.Tensor._make_subclass(kind, torch.zeros(10_000))


KINDS: dict[str, tuple[type, Callable[[type], Any]]] = {
    "object": (object, _with_attribute),
    "dict": (dict, _of(lambda: {"a": _heavy()})),
    "list": (list, _of(_heavy)),
    "tuple": (tuple, _of(_heavy)),
    "set": (set, _of(_heavy)),
    "frozenset": (frozenset, _of(_heavy)),
    "str": (str, _of(lambda: "text")),
    "bytes": (bytes, _of(lambda: bytes(50_000))),
    "int": (int, _of(lambda: 10**30)),
    "float": (float, _of(lambda: 1.5)),
    "deque": (collections.deque, _of(_heavy)),
    "OrderedDict": (collections.OrderedDict, _of(lambda: {"a": _heavy()})),
    "partial": (functools.partial, _of(lambda: print, _heavy)),
    "exception": (ValueError, _of(_heavy)),
    "module": (ModuleType, _of(lambda: "hostile")),
    "array": (np.ndarray, lambda kind: np.ndarray.__new__(kind, (10_000,))),
}
"""What is inherited from, and how an instance is made."""

if torch is not None:
    KINDS |= {
        "tensor": (torch.Tensor, _tensor),
        "parameter": (torch.nn.Parameter, _tensor),
        "nn.Module": (torch.nn.Module, _with_attribute),
        "optimizer": (torch.optim.SGD, _of(lambda: [torch.nn.Parameter(torch.zeros(10_000))])),
    }


@functools.cache
def hostile_class(base: type, behaviour: Behaviour) -> type:
    """Return a subclass of ``base`` all of whose methods and properties misbehave."""
    own = "__next__ __call__ __get__ __getattr__ __missing__ __array__ __enter__ __exit__ __del__"
    names: dict[str, Any] = {
        name: _method(name, base, behaviour)
        for name in METHODS.split()
        if hasattr(base, name) or name in own.split()
    }
    names |= {name: _property(name, base, behaviour) for name in PROPERTIES.split()}
    names["__class_getitem__"] = names["__init_subclass__"] = classmethod(
        _method("__class_getitem__", base, behaviour)
    )
    if torch is not None and issubclass(base, torch.Tensor):
        names["__torch_function__"] = classmethod(_function_of_torch(behaviour))
    names["held"] = None
    kind: type = _meta(type(base), behaviour)(f"Hostile{base.__name__}", (base,), names)
    return kind


def _function_of_torch(behaviour: Behaviour) -> Any:
    plain = torch._C._disabled_torch_function_impl

    def method(cls: type, *args: Any, **kwargs: Any) -> Any:
        if WATCH.looks:
            WATCH.calls.append("__torch_function__")
            return behaviour("__torch_function__")
        return plain(cls, *args, **kwargs)

    return method


def hostile_object(name: str, behaviour: Behaviour) -> Any:
    """Return an instance of a hostile subclass of one of the kinds."""
    base, make = KINDS[name]
    return make(hostile_class(base, behaviour))
