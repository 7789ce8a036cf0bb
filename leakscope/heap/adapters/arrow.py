"""pyarrow's buffers: memory behind arrays, columns and tables, and so behind pandas' texts.

Only getters written in C++ are asked that neither make Python code run nor release the GIL. An
array of a type that Python defines is left alone: to wrap it runs that type's code.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leakscope.heap.adapters.known_types import KnownTypes
from leakscope.heap.adapters.memory import Memory

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
