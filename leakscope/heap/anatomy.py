"""Objects, frames and sizes, read without running any code of the user's.

Classes may override ``__getattribute__``, ``__len__``, ``__eq__`` or ``__class__``, and a census
that called them would change the program it looks at. Everything here goes through the C slots of
``type`` and ``object`` and compares by identity.

Up to 3.12 reading ``frame.f_locals`` of a function leaves a dictionary on the frame that keeps what
it holds alive until the function returns; the native module reads the variables where they are.
From 3.13 on ``f_locals`` is a view and leaves nothing.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, MethodDescriptorType
from typing import Any

from leakscope.model.errors import ours

try:
    from leakscope.heap import _native as _native  # noqa: PLC0414
except ImportError:  # nothing was compiled
    _native = None  # type: ignore[assignment]

# Where a version of Python needs no help, the native module has none of these.
_inline_attributes: Callable[[object], dict[str, Any] | None] | None = getattr(
    _native, "inline_attributes", None
)
_classes_in: Callable[[dict[str, Any]], list[type]] | None = getattr(_native, "classes_in", None)
_read_variables: Callable[[FrameType], list[tuple[str, object]]] | None = getattr(
    _native, "frame_locals", None
)


MISSING: Any = object()
"""What :func:`class_attribute` and :func:`slot_value` return where there is nothing."""

mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
"""Returns the classes that a class inherits from, itself first."""
class_dict: Callable[[type], Mapping[str, Any]] = type.__dict__["__dict__"].__get__
"""Returns the names defined in the class itself."""
qualname: Callable[[type], str] = type.__dict__["__qualname__"].__get__
"""Returns the class's own qualified name, without its module."""
module_dict: Callable[[types.ModuleType], dict[str, Any]] = vars(types.ModuleType)[
    "__dict__"
].__get__
"""Returns the globals of a module, also of one that loads lazily."""
_module = type.__dict__["__module__"].__get__
flags_of = type.__dict__["__flags__"].__get__


def class_items(cls: type) -> list[tuple[str, Any]]:
    """Return what is defined in the class itself at this moment; other threads may add to it."""
    return list(class_dict(cls).items())


def classes_in(names: dict[str, Any]) -> list[type]:
    """Return the classes among the values of a dict.

    With the native module no other value's reference count is touched, so that a forked process
    goes on sharing their pages.
    """
    if _classes_in is not None:
        return _classes_in(names)
    return [value for value in list(names.values()) if issubclass(type(value), type)]


def class_attribute(cls: type, name: str) -> Any:
    """Return what ``cls`` or its bases define under ``name``, else :data:`MISSING`."""
    for base in mro(cls):
        found = class_dict(base).get(name, MISSING)
        if found is not MISSING:
            return found
    return MISSING


def module_name(cls: type) -> str:
    """Return the module a class says it was defined in; empty where it says nothing sensible.

    A class of an extension, made at run time, may have no module at all.
    """
    try:
        module = _module(cls)
    except AttributeError:
        return ""
    return module if type(module) is str else ""


def qualified_name(cls: type) -> str:
    """Return ``list``, ``torch.Tensor`` or ``__main__.Trainer``."""
    module = module_name(cls)
    return qualname(cls) if module in {"", "builtins"} else f"{module}.{qualname(cls)}"


def without_locals(name: str) -> str:
    """Return a qualified name as a person says it."""
    return name.replace("<locals>.", "")


def is_instance(obj: object, cls: type) -> bool:
    """Say whether ``obj`` is an instance of ``cls``, believing the type and not ``__class__``.

    ``cls`` must be a class whose own type is ``type``: then no ``__subclasscheck__`` runs.
    """
    return issubclass(type(obj), cls)


def inherits(cls: type, module: str, name: str) -> bool:
    """Say whether a base of ``cls`` is called ``module.name``, without importing that module."""
    return any(qualname(b) == name and module_name(b) == module for b in mro(cls))


def instance_dict(obj: object) -> dict[str, Any] | None:
    """Return the ``__dict__`` of an instance, function or module, or None.

    Up to CPython 3.10 an instance has one from the beginning. Later ones make it when they are
    called, and keep it: where the native module is built the attributes of such an instance are
    copied instead, and nothing is left behind.
    """
    if is_instance(obj, type):
        return None
    copied = None if _inline_attributes is None else _inline_attributes(obj)
    if copied is not None:
        return copied
    getter = class_attribute(type(obj), "__dict__")
    kind = type(getter)
    if kind is not types.GetSetDescriptorType and kind is not types.MemberDescriptorType:
        return None
    names = attempt(getter.__get__, obj)
    return names if type(names) is dict else None


def attempt(call: Callable[..., Any], *args: object) -> Any:
    """Return what a call into C returns; None where it raises."""
    try:
        return call(*args)
    except ours(Exception):
        return None


def slots(cls: type) -> dict[str, Any]:
    """Return the member descriptors of a class and its bases: ``__slots__`` and C members.

    Inside :func:`classes_stay` they are looked up once for each class.
    """
    known = None if _slots_of is None else _slots_of.get(id(cls))
    if known is not None:
        return known
    found: dict[str, Any] = {}
    if _slots_of is not None:
        _slots_of[id(cls)] = found
    for base in mro(cls):
        for name, value in class_items(base):
            if type(value) is types.MemberDescriptorType:
                found.setdefault(name, value)
    return found


_slots_of: dict[int, dict[str, Any]] | None = None


@contextmanager
def classes_stay() -> Iterator[None]:
    """Inside, no class ends, so what is known of one goes by where it lies."""
    global _slots_of
    _slots_of = {}
    try:
        yield
    finally:
        _slots_of = None


def slot_value(descriptor: Any, obj: object) -> Any:
    """Return what a member descriptor holds for ``obj``, else :data:`MISSING`."""
    try:
        return descriptor.__get__(obj)
    except ours(Exception):
        return MISSING


def plain_length(obj: object) -> int | None:
    """Return the length of a built-in container or a subclass of one, from C."""
    for base in mro(type(obj)):
        length = _LENGTHS.get(id(base))
        if length is not None:
            return int(length(obj))
    return None


_SIZED: tuple[Any, ...] = (list, dict, tuple, set, frozenset, deque, str, bytes, bytearray)
_LENGTHS = {id(cls): cls.__dict__["__len__"] for cls in _SIZED}


_HEAP = __file__.rpartition(os.sep)[0] + os.sep
_FRAME_AND_WE = 3
"""References to a snapshot that nobody else holds: the frame's, our name, an argument."""


def running_frames() -> list[tuple[int, FrameType]]:
    """Return thread id and frame of every running Python frame, the innermost of a thread first.

    The heap's own frames are left out: a frame that had a list of itself would be a cycle, and
    would keep alive all that the census knows until the collector runs.
    """
    tops: dict[int, FrameType | None] = dict(sys._current_frames())
    tops[threading.get_ident()] = _caller_of_the_heap()
    return [(thread, frame) for thread, top in tops.items() for frame in outwards(top)]


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and those that called it, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _caller_of_the_heap() -> FrameType | None:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_HEAP):
        frame = frame.f_back
    return frame


def locals_of(frame: FrameType) -> list[tuple[str, object]]:
    """Return the variables of a function's frame, cells dereferenced; unset ones are absent.

    For a module's or class's frame it returns nothing: their names live in a dictionary, which is
    ``frame.f_globals`` for a module.
    """
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return []
    if _read_variables is not None:
        return _read_variables(frame)
    snapshot = frame.f_locals
    found = list(snapshot.items())
    # It is emptied on the frame unless the program has it too.
    if sys.version_info < (3, 13) and sys.getrefcount(snapshot) <= _FRAME_AND_WE:
        snapshot.clear()
    return found


_HEADER_FLAG = 1 << 14
_INLINE_DICT_FLAG = 1 << 4 if sys.version_info >= (3, 11) else 0
_WEAKREF_FLAG = 1 << 3 if sys.version_info >= (3, 12) else 0
_HEADER_BYTES = 16
_HEAP_TYPE_FLAG = 1 << 9
_IMMUTABLE_FLAG = 1 << 8
_TRUSTED = frozenset(
    {"builtins", "collections", "array", "_io", "re", "_struct", "decimal", "itertools", "_pickle",
     "xml.etree.ElementTree"}
)  # fmt: skip
"""Modules of the standard library whose C types size themselves. Of others none is called, for it
might do anything; those whose memory matters have an adapter. What no method tells stays unknown:
the state of ``zlib`` and ``hashlib``, what ``sqlite3`` keeps, hash tables of pandas' indexes."""


def sizer_of(kind: type) -> Any:
    """Return the C method that sizes instances: the interpreter's own, never an override's."""
    for base in mro(kind):
        method = class_dict(base).get("__sizeof__")
        if type(method) is MethodDescriptorType and method.__objclass__ is base and _trusted(base):
            return method
    return object.__sizeof__


def _trusted(base: type) -> bool:
    made_at_run_time = flags_of(base) & _HEAP_TYPE_FLAG and not flags_of(base) & _IMMUTABLE_FLAG
    return not made_at_run_time and _module(base) in _TRUSTED


def header_bytes(kind: type) -> int:
    """Return what precedes an instance: the collector's header, dict and weak reference slots."""
    flags = flags_of(kind)
    slots = _HEADER_BYTES if flags & (_INLINE_DICT_FLAG | _WEAKREF_FLAG) else 0
    return slots + (_HEADER_BYTES if flags & _HEADER_FLAG else 0)


_MOST_BYTES = 1 << 40
"""Some types of extensions declare items and keep something else, such as a pointer, where their
number belongs: they say that they have terabytes."""


class Sizes:
    """Shallow sizes; what a type alone tells is kept for the next of its instances."""

    def __init__(self) -> None:
        self._of_types: dict[int, tuple[type, Any, int, bool]] = {}

    def __call__(self, value: object) -> int:
        """Return the size of one object without what it refers to, in bytes."""
        kind = type(value)
        known = self._of_types.get(id(kind))
        if known is None:
            is_class = any(base is type for base in mro(kind))
            # The type is kept with it: another may come to lie where it lay.
            known = self._of_types[id(kind)] = (kind, sizer_of(kind), header_bytes(kind), is_class)
        _, sizer, header, is_class = known
        if is_class and not flags_of(value) & _HEAP_TYPE_FLAG:
            header = 0
        try:
            size = int(sizer(value))
            return (size if size < _MOST_BYTES else kind.__basicsize__) + header
        except ours(Exception):
            return header
