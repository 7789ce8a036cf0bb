"""Payloads outside of torch: NumPy arrays, Arrow and standard buffers, images, and keys that
dict's traversal leaves out.

An array is read through NumPy's own accessors and its memory: to index it would make arrays, and
so call ``__array_finalize__`` of a subclass.

Of Arrow only getters written in C++ are called that neither make Python code run nor release the
GIL. An array of a type that Python defines is left alone: to wrap it runs that type's code.

Source for the keys: CPython's Objects/dictobject.c, ``dict_traverse``.
"""

from __future__ import annotations

import array
import ctypes
import math
import sys
from collections.abc import Iterator
from typing import Any

from leakscope.heap.adapters.memory import KnownTypes, Memory

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


_BYTES_HEADER = bytes.__basicsize__ - 1
_NUMBERS_HEADER = 24
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
    """Return the bytes of the data that an object of ctypes owns beside itself."""
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


def exported_memory(value: Any) -> tuple[int, int]:
    """Return where the memory lies that ``bytes``, a ``bytearray`` or an ``array`` lends."""
    if isinstance(value, bytes):
        return id(value) + _BYTES_HEADER, bytes.__len__(value)
    if isinstance(value, bytearray):
        as_string: Any = ctypes.pythonapi.PyByteArray_AsString
        as_string.restype, as_string.argtypes = ctypes.c_void_p, [ctypes.py_object]
        return as_string(value) or 0, bytearray.__len__(value)
    item_bytes = array.array.__dict__["itemsize"].__get__(value)
    address = ctypes.c_void_p.from_address(id(value) + _NUMBERS_HEADER).value or 0
    return address, array.array.__len__(value) * item_bytes


_HEAP_TYPE_FLAG = 1 << 9
_WIDE_PIXELS = 4
_PIXEL_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}


def is_image_core(kind: type) -> bool:
    """Return whether a type is Pillow's pixel storage, which is no class made at run time."""
    made_at_run_time = type.__dict__["__flags__"].__get__(kind) & _HEAP_TYPE_FLAG
    return not made_at_run_time and type.__dict__["__name__"].__get__(kind) == "ImagingCore"


def canvas_bytes(renderer: Any) -> int:
    """Return the bytes of the pixels of matplotlib's ``_backend_agg.RendererAgg``."""
    with memoryview(renderer) as pixels:
        return pixels.nbytes


def image_bytes(core: Any) -> int:
    """Return the bytes of an image's pixels, lines unpadded."""
    width, height = core.size
    return int(width * height * _PIXEL_BYTES.get(core.mode, _WIDE_PIXELS))


def lone_texts(mapping: Any) -> list[object]:
    """Return the texts that nothing but a key of this dict refers to.

    Other texts are names of attributes, or held and counted elsewhere.
    """
    keys = list(dict.keys(mapping))
    return [
        key
        for key, count in zip(keys, _reference_counts(keys), strict=True)
        if type(key) is str and count == _LONE
    ]


def _reference_counts(values: list[Any]) -> list[int]:
    return [sys.getrefcount(value) for value in values]


def _count_of_a_lone_key() -> int:
    mapping = {f"{__name__}:{id(object())}": None}
    return _reference_counts(list(mapping))[0]


_LONE = _count_of_a_lone_key()
