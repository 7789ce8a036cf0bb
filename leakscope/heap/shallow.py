"""Shallow sizes as ``sys.getsizeof`` gives them, except that no class of the user's is asked."""

from __future__ import annotations

import sys
from types import MethodDescriptorType
from typing import Any

from leakscope.model.interrupts import ours

_HEADER_FLAG = 1 << 14
_INLINE_DICT_FLAG = 1 << 4 if sys.version_info >= (3, 11) else 0
_WEAKREF_FLAG = 1 << 3 if sys.version_info >= (3, 12) else 0
_HEADER_BYTES = 16
_HEAP_TYPE_FLAG = 1 << 9
_IMMUTABLE_FLAG = 1 << 8
_TRUSTED = frozenset(
    {
        "builtins",
        "collections",
        "array",
        "_io",
        "re",
        "_struct",
        "decimal",
        "itertools",
        "_pickle",
        "xml.etree.ElementTree",
    }
)
"""Modules of the standard library whose C types size themselves. Of others none is asked, for it
might do anything; those whose memory matters have an adapter. What no method tells stays unknown:
the state of ``zlib`` and ``hashlib``, what ``sqlite3`` keeps, hash tables of pandas' indexes."""

mro_of = type.__dict__["__mro__"].__get__
dict_of = type.__dict__["__dict__"].__get__
_flags_of = type.__dict__["__flags__"].__get__
_module_of = type.__dict__["__module__"].__get__


def sizer_of(kind: type) -> Any:
    """Return the C method that sizes instances: the interpreter's own, never an override's."""
    for base in mro_of(kind):
        method = dict_of(base).get("__sizeof__")
        if type(method) is MethodDescriptorType and method.__objclass__ is base and _trusted(base):
            return method
    return object.__sizeof__


def _trusted(base: type) -> bool:
    made_at_run_time = _flags_of(base) & _HEAP_TYPE_FLAG and not _flags_of(base) & _IMMUTABLE_FLAG
    return not made_at_run_time and _module_of(base) in _TRUSTED


def header_bytes(kind: type) -> int:
    """Return what precedes an instance: the collector's header, dict and weak reference slots."""
    flags = _flags_of(kind)
    slots = _HEADER_BYTES if flags & (_INLINE_DICT_FLAG | _WEAKREF_FLAG) else 0
    return slots + (_HEADER_BYTES if flags & _HEADER_FLAG else 0)


class Sizes:
    """Shallow sizes; what a type alone tells is kept for the next of its instances."""

    def __init__(self) -> None:
        self._of_types: dict[int, tuple[type, Any, int, bool]] = {}

    def __call__(self, value: object) -> int:
        """Return the size of one object without what it refers to, in bytes."""
        kind = type(value)
        known = self._of_types.get(id(kind))
        if known is None:
            is_class = any(base is type for base in mro_of(kind))
            # The type is kept with it: another may come to lie where it lay.
            known = self._of_types[id(kind)] = (kind, sizer_of(kind), header_bytes(kind), is_class)
        _, sizer, header, is_class = known
        if is_class and not _flags_of(value) & _HEAP_TYPE_FLAG:
            header = 0
        try:
            return int(sizer(value)) + header
        except ours(Exception):
            return header
