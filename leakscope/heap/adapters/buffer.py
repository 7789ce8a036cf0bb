"""Buffers of the standard library: what ``bytes`` lend, ``ctypes``, ``io.StringIO``."""

from __future__ import annotations

import array
import ctypes
import sys
from typing import Any

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
