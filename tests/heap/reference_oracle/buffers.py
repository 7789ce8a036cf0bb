"""Payloads of which the fallback knows nothing: Arrow, ``io.StringIO``, ctypes, canvases.

Of Arrow only getters written in C++ are called that neither make Python code run nor release the
GIL. An array of a type that Python defines is left alone: to wrap it runs that type's code.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from typing import Any

from leakscope.heap.adapters.buffers import KnownTypes, Memory

_MOST_PARENTS = 16


def is_of_arrow(mro: tuple[type, ...], known: KnownTypes) -> bool:
    """Return whether objects of a type have buffers of pyarrow's."""
    types = (
        known.arrow_buffer,
        known.arrow_array,
        known.arrow_chunked,
        known.arrow_table,
        known.arrow_batch,
    )
    return any(base is kind for base in mro for kind in types if kind is not None)


def arrow_memory(value: Any, known: KnownTypes) -> list[object]:
    """Return the whole memory of all the buffers of which an object has a part."""
    found = (_memory(buffer, known) for buffer in _buffers(value, known))
    return [memory for memory in found if memory is not None]


def _memory(buffer: Any, known: KnownTypes) -> Memory | None:
    for _ in range(_MOST_PARENTS):
        parent = _ask(known.arrow_buffer, "parent", buffer)
        if not _is(parent, known.arrow_buffer):
            break
        buffer = parent
    if _ask(known.arrow_buffer, "is_cpu", buffer) is not True:
        return None
    address = _ask(known.arrow_buffer, "address", buffer) or 0
    nbytes = _ask(known.arrow_buffer, "size", buffer) or 0
    return Memory(address, nbytes, address=address) if address and nbytes else None


def _buffers(value: Any, known: KnownTypes) -> Iterator[Any]:
    if _is(value, known.arrow_buffer):
        yield value
    elif _is(value, known.arrow_array):
        yield from _array_buffers(value, known)
    elif _is(value, known.arrow_chunked):
        yield from _chunk_buffers(value, known)
    elif _is(value, known.arrow_table):
        for column in _ask(known.arrow_table, "columns", value) or []:
            yield from _buffers(column, known)
    elif not _has_extension(value, known):
        for column in _ask(known.arrow_batch, "columns", value) or []:
            yield from _buffers(column, known)


def _array_buffers(value: Any, known: KnownTypes) -> Iterator[Any]:
    array: Any = known.arrow_array
    yield from (b for b in array.buffers(value) if _is(b, known.arrow_buffer))
    if _is(value, known.arrow_dictionary):
        yield from _array_buffers(_ask(known.arrow_dictionary, "dictionary", value), known)


def _chunk_buffers(value: Any, known: KnownTypes) -> Iterator[Any]:
    chunked: Any = known.arrow_chunked
    if not _is(_ask(chunked, "type", value), known.arrow_extension):
        for i in range(_ask(chunked, "num_chunks", value) or 0):
            yield from _array_buffers(chunked.chunk(value, i), known)


def _has_extension(batch: Any, known: KnownTypes) -> bool:
    schema = _ask(known.arrow_batch, "schema", batch)
    return any(_is(kind, known.arrow_extension) for kind in schema.types)


def _ask(kind: Any, name: str, value: object) -> Any:
    for base in kind.__mro__:
        getter = base.__dict__.get(name)
        if getter is not None:
            return getter.__get__(value)
    return None


def _is(value: object, kind: type | None) -> bool:
    bases = type.__dict__["__mro__"].__get__(type(value))
    return kind is not None and any(base is kind for base in bases)


_INSIDE = 16
"""Smaller data of ctypes lie in the object."""
_ACCUMULATING = 2
_GATHERS_OBJECTS = sys.version_info < (3, 12)
_WIDE_CHARACTER = 4


class _CData(ctypes.Structure):
    """The beginning of every object of ctypes; it is the same from 3.10 to 3.13."""

    _fields_ = (
        ("header", ctypes.c_ssize_t * 2),
        ("data", ctypes.c_void_p),
        ("owns", ctypes.c_int),
        ("base", ctypes.c_void_p),
        ("size", ctypes.c_ssize_t),
    )


class _TextBuffer(ctypes.Structure):
    """The beginning of ``io.StringIO``, likewise."""

    _fields_ = (
        ("header", ctypes.c_ssize_t * 2),
        ("text", ctypes.c_void_p),
        ("position", ctypes.c_ssize_t),
        ("length", ctypes.c_ssize_t),
        ("capacity", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("joined", ctypes.c_void_p),
        ("pieces", ctypes.c_void_p),
    )


def c_data_bytes(value: object) -> int:
    """Return the bytes of the data that an object of ctypes owns besides itself."""
    data = _CData.from_address(id(value))
    return data.size if data.owns and data.size > _INSIDE else 0


def text_buffer_bytes(value: object) -> int:
    """Return the bytes that an ``io.StringIO`` has for its text.

    Until it is read or sought in, it gathers pieces, which are objects before Python 3.12; from
    then on they are as wide as their characters, so that these are the least.
    """
    buffer = _TextBuffer.from_address(id(value))
    if buffer.state == _ACCUMULATING:
        return 0 if _GATHERS_OBJECTS else int(buffer.length)
    return int(buffer.capacity) * _WIDE_CHARACTER if buffer.text else 0


def text_pieces(value: object) -> list[object]:
    """Return the lists in which an ``io.StringIO`` gathers what is written, where it has some.

    Source: CPython's ``Modules/_io/stringio.c``, whose traversal leaves them out.
    """
    buffer = _TextBuffer.from_address(id(value))
    if not _GATHERS_OBJECTS or buffer.state != _ACCUMULATING:
        return []
    found = (buffer.joined, buffer.pieces)
    return [ctypes.cast(address, ctypes.py_object).value for address in found if address]


def c_data_memory(value: object) -> tuple[int, int]:
    """Return where the data that an object of ctypes owns lie, and how many bytes they are."""
    return _CData.from_address(id(value)).data or 0, c_data_bytes(value)


def canvas_bytes(renderer: Any) -> int:
    """Return the bytes of the pixels of matplotlib's ``_backend_agg.RendererAgg``."""
    with memoryview(renderer) as pixels:
        return pixels.nbytes
