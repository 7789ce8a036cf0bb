"""NumPy arrays: their data, whose memory they share, and the objects among their items.

An array is read through NumPy's own accessors and its memory: to index it would make arrays, and
so call ``__array_finalize__`` of a subclass.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from typing import Any

from leakscope.heap.adapters.memory import Memory

_CAPSULE = "PyCapsule"
_MOST_FIELDS = 64
_POINTER = ctypes.sizeof(ctypes.c_void_p)


def array_referents(array: Any, ndarray: Any) -> list[object]:
    """Return what an array shares its memory with, and the objects among its own items.

    An array over memory that a capsule keeps has it from a library, of which nothing else tells.
    """
    base = _read(array, ndarray, "base")
    referents = [] if base is None else [base]
    referents += _objects(array, ndarray)
    if type(base).__name__ == _CAPSULE and _is_contiguous(array, ndarray):
        address, nbytes = _address(array, ndarray), int(_read(array, ndarray, "nbytes"))
        referents += [Memory(address, nbytes, address=address)] * (nbytes > 0)
    return referents


def array_bytes(array: Any, ndarray: Any) -> int:
    """Return the bytes of the data that this array owns; 0 for a view."""
    return int(_read(array, ndarray, "nbytes")) if _owns(array, ndarray) else 0


def frame_bytes(array: Any, ndarray: Any) -> int:
    """Return what an array takes beside its struct: numbers for each of its dimensions."""
    return 2 * _POINTER * int(_read(array, ndarray, "ndim"))


def array_memory(array: Any, ndarray: Any) -> tuple[int, int]:
    """Return where the data lie that an array owns, and how many bytes they are."""
    return _address(array, ndarray), array_bytes(array, ndarray)


def array_base(array: Any, ndarray: Any) -> object:
    """Return whose memory an array is part of; None where it is its own."""
    found: object = _read(array, ndarray, "base")
    return found


def array_address(array: Any, ndarray: Any) -> int:
    """Return where the first item of an array lies."""
    return _address(array, ndarray)


def array_reach(array: Any, ndarray: Any) -> tuple[int, int, int] | None:
    """Return from which address to which an array reads, and how many bytes of that at most."""
    if not _read(array, ndarray, "size"):
        return None
    item = int(_read(array, ndarray, "itemsize"))
    steps = list(zip(_read(array, ndarray, "shape"), _read(array, ndarray, "strides"), strict=True))
    spans = [(count - 1) * stride for count, stride in steps]
    first = _address(array, ndarray)
    distinct = item * math.prod(count for count, stride in steps if stride)
    begin = first + sum(span for span in spans if span < 0)
    return begin, first + sum(span for span in spans if span > 0) + item, distinct


def record_bytes(record: Any, void: Any) -> int:
    """Return the bytes that an item of a structured array owns; 0 for one within its array."""
    flags = vars(void)["flags"].__get__(record)
    owns = vars(type(flags))["owndata"].__get__(flags)
    return int(vars(void)["dtype"].__get__(record).itemsize) if owns else 0


def record_base(record: Any, void: Any) -> object:
    """Return whose memory a record is part of: most often that of the array it was taken from."""
    found: object = vars(void)["base"].__get__(record)
    return found


def _read(array: Any, ndarray: Any, name: str) -> Any:
    return vars(ndarray)[name].__get__(array)


def _owns(array: Any, ndarray: Any) -> bool:
    return bool(_read(array, ndarray, "flags").owndata)


def _is_contiguous(array: Any, ndarray: Any) -> bool:
    return bool(_read(array, ndarray, "flags").forc)


def _address(array: Any, ndarray: Any) -> int:
    return int(_read(array, ndarray, "__array_interface__")["data"][0])


def _objects(array: Any, ndarray: Any) -> list[object]:
    nbytes = array_bytes(array, ndarray)
    places = list(_places(_read(array, ndarray, "dtype"), 0))[:_MOST_FIELDS] if nbytes else []
    shape, strides = _read(array, ndarray, "shape"), _read(array, ndarray, "strides")
    if not places or not _is_dense(shape, strides, nbytes):
        return []
    first, item_bytes = _address(array, ndarray), nbytes // math.prod(shape)
    found = (
        _object_at(item + place)
        for item in range(first, first + nbytes, item_bytes)
        for place in places
    )
    return [value for value in found if value is not None]


def _places(dtype: Any, offset: int) -> Iterator[int]:
    """Yield where in an item its objects lie."""
    if dtype.char == "O":
        yield offset
    for field, within, *_ in (dtype.fields or {}).values():
        yield from _places(field, offset + within)


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...], nbytes: int) -> bool:
    """Whether an array's own items fill its memory from the first to the last."""
    if any(stride < 0 for stride in strides):
        return False
    last = sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True))
    return last + nbytes // math.prod(shape) == nbytes


def _object_at(address: int) -> object:
    pointer = ctypes.c_void_p.from_address(address)
    return ctypes.cast(pointer, ctypes.py_object).value if pointer.value else None
