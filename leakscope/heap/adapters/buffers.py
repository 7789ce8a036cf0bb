"""Payloads outside of torch: NumPy arrays, memory that is lent, images, and keys that dict's
traversal leaves out.

An array is read through NumPy's own accessors and its memory: to index it would make arrays, and
so call ``__array_finalize__`` of a subclass.

Source for the keys: CPython's Objects/dictobject.c, ``dict_traverse``.
"""

from __future__ import annotations

import array
import bisect
import ctypes
import gc
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from leakscope.model.census import FILE, SHARED
from leakscope.model.errors import ours

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
    is_contiguous = _read(array, ndarray, "flags").forc
    if type(base).__name__ == _CAPSULE and is_contiguous:
        address, nbytes = _address(array, ndarray), int(_read(array, ndarray, "nbytes"))
        referents += [Memory(address, nbytes, address=address)] * (nbytes > 0)
    return referents


def array_bytes(array: Any, ndarray: Any) -> int:
    """Return the bytes of the data that this array owns; 0 for a view."""
    owns = _read(array, ndarray, "flags").owndata
    return int(_read(array, ndarray, "nbytes")) if owns else 0


def frame_bytes(array: Any, ndarray: Any) -> int:
    """Return what an array takes besides its struct: numbers for each of its dimensions."""
    return 2 * _POINTER * int(_read(array, ndarray, "ndim"))


def array_memory(array: Any, ndarray: Any) -> tuple[int, int]:
    """Return where the data lie that an array owns, and how many bytes they are."""
    return _address(array, ndarray), array_bytes(array, ndarray)


def record_bytes(record: Any, void: Any) -> int:
    """Return the bytes that an item of a structured array owns; 0 for one within its array."""
    flags = vars(void)["flags"].__get__(record)
    owns = vars(type(flags))["owndata"].__get__(flags)
    return int(vars(void)["dtype"].__get__(record).itemsize) if owns else 0


def record_base(record: Any, void: Any) -> object:
    """Return whose memory a record is part of: most often that of the array it was taken from."""
    return vars(void)["base"].__get__(record)


def _read(array: Any, ndarray: Any, name: str) -> Any:
    return vars(ndarray)[name].__get__(array)


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


_BYTES_HEADER = bytes.__basicsize__ - 1
_NUMBERS_HEADER = 24


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
        for key, count in zip(keys, reference_counts(keys), strict=True)
        if type(key) is str and count == _LONE
    ]


def reference_counts(values: list[Any]) -> list[int]:
    return [sys.getrefcount(value) for value in values]


def _count_of_a_lone_key() -> int:
    mapping = {f"{__name__}:{id(object())}": None}
    return reference_counts(list(mapping))[0]


_LONE = _count_of_a_lone_key()


__all__ = ["FILE", "HOST", "SHARED", "Memory"]


HOST = "host"


class Memory(NamedTuple):
    """The memory of a storage, a mapping or a buffer."""

    key: int
    """The address of the storage or, where there is none, of the memory."""
    nbytes: int
    device: str = HOST
    backing: str = HOST
    """Of host memory: ``host`` or :data:`SHARED`, as far as its holder can tell."""
    address: int = 0
    """Where it lies; 0 where that isn't known."""
    is_foreign: bool = True
    """Its holder's own allocator did not make it: see ``settle_extents``."""


_HEADER = object.__basicsize__


class Mappings(NamedTuple):
    """The stretches of addresses that are not private memory, in order."""

    begins: list[int]
    ends: list[int]
    backings: list[str]

    def backing_of(self, address: int) -> str:
        """Return ``host``, ``shared`` or ``file``."""
        at = bisect.bisect_right(self.ends, address)
        found = at < len(self.begins) and self.begins[at] <= address
        return self.backings[at] if found else HOST


def read_mappings() -> Mappings:
    """Return the mappings of this process at this moment."""
    mappings = Mappings([], [], [])
    try:
        lines = Path("/proc/self/maps").read_bytes().splitlines()
    except ours(OSError):
        return mappings
    for line in lines:
        addresses, _, rest = line.partition(b" ")
        backing = _backing(rest)
        if backing != HOST:
            begin, _, end = addresses.partition(b"-")
            mappings.begins.append(int(begin, 16))
            mappings.ends.append(int(end, 16))
            mappings.backings.append(backing)
    return mappings


def _backing(rest: bytes) -> str:
    """Tell from a line's end, ``rw-s 00000000 00:1b 12 /dev/shm/name``."""
    at = rest.find(b"/")
    path = rest[at:] if at >= 0 else b""
    if path and not path.startswith((b"/dev/", b"/memfd:", b"/SYSV")):
        return FILE
    return SHARED if rest[3:4] == b"s" else HOST


def mapped_memory(mapping: object) -> Memory | None:
    """Return the memory of an ``mmap``; None of one that was closed.

    Its address and size stand first in the object; they are the same from 3.10 to 3.13.
    """
    address, size = (ctypes.c_ssize_t * 2).from_address(id(mapping) + _HEADER)
    return Memory(address, size, address=address) if address and size > 0 else None


class KnownTypes(NamedTuple):
    """Types with memory that ``tp_traverse`` can't see; the native engine reads them by position.

    A field is None where the program has not imported the module.
    """

    array: type | None
    record: type | None
    mapping: type | None
    numbers: type | None
    c_data: type | None
    text_buffer: type | None
    bytes_buffer: type | None
    """``io.BytesIO`` where its traversal visits its bytes, which its own size counts too."""
    arrow_buffer: type | None
    arrow_array: type | None
    arrow_dictionary: type | None
    arrow_chunked: type | None
    arrow_table: type | None
    arrow_batch: type | None
    arrow_extension: type | None
    """Types of data that Python code defines."""
    canvas: type | None
    """What matplotlib draws on: pixels in C++ memory, which it lends as a buffer."""


def known_types() -> KnownTypes:
    """Return the types of this moment."""
    simple = _found("_ctypes", "_SimpleCData")
    visited = gc.get_referents(sys.modules["_io"].BytesIO(b"some"))
    return KnownTypes(
        array=_found("numpy", "ndarray"),
        record=_found("numpy", "void"),
        mapping=_found("mmap", "mmap"),
        numbers=_found("array", "array"),
        c_data=None if simple is None else type.__dict__["__base__"].__get__(simple),
        text_buffer=_found("_io", "StringIO"),
        bytes_buffer=_found("_io", "BytesIO") if bytes in map(type, visited) else None,
        arrow_buffer=_found("pyarrow.lib", "Buffer"),
        arrow_array=_found("pyarrow.lib", "Array"),
        arrow_dictionary=_found("pyarrow.lib", "DictionaryArray"),
        arrow_chunked=_found("pyarrow.lib", "ChunkedArray"),
        arrow_table=_found("pyarrow.lib", "Table"),
        arrow_batch=_found("pyarrow.lib", "RecordBatch"),
        arrow_extension=_found("pyarrow.lib", "BaseExtensionType"),
        canvas=_found("matplotlib.backends._backend_agg", "RendererAgg"),
    )


def _found(module: str, name: str) -> type | None:
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else None
