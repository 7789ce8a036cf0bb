"""Pickles opened without trust: plain values only, nothing called, nothing imported.

A snapshot holds dicts, lists, tuples, texts and numbers. The instructions of a file are walked
before any is obeyed: whoever asks for more than plain values is refused, and so is a file that is
cut short or that would have memory reserved for more than it can hold.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn

_FORBIDDEN = {
    ord("c"): "GLOBAL", ord("R"): "REDUCE", ord("b"): "BUILD", ord("i"): "INST", ord("o"): "OBJ",
    ord("P"): "PERSID", ord("Q"): "BINPERSID", 0x81: "NEWOBJ", 0x82: "EXT1", 0x83: "EXT2",
    0x84: "EXT4", 0x92: "NEWOBJ_EX", 0x93: "STACK_GLOBAL", 0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
}  # fmt: skip
_STOP = ord(".")
_LONG_PUT = ord("r")
_TEXT_PUT = ord("p")
_LINE, _UNKNOWN = -1, -100
_PLAIN = b"()]}0123Nadehsult.\x85\x86\x87\x88\x89\x8f\x90\x91\x94"
_FIXED = {
    1: b"hKq\x80", 2: b"M", 4: b"jJr", 8: b"G\x95",
}  # fmt: skip
_LINES = b"FILSVgp"
_COUNTED = {-2: (b"UC\x8a\x8c", 1), -3: (b"TBX\x8b", 4), -4: (b"\x8d\x8e\x96", 8)}


class UntrustedPickleError(Exception):
    """The pickle is damaged, or asks for more than plain values."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise UntrustedPickleError(f"it asks for {module}.{name}")

    def persistent_load(self, _: Any) -> NoReturn:
        raise UntrustedPickleError("it asks for objects outside the file")


def load_plain(data: bytes) -> Any:
    """Return the plain value in a pickle.

    Raises:
        UntrustedPickleError: it is damaged or asks for anything but plain values.

    """
    check_plain(data)
    try:
        return _PlainUnpickler(io.BytesIO(data), encoding="utf-8", errors="replace").load()
    except UntrustedPickleError:
        raise
    except Exception as fault:
        raise UntrustedPickleError(f"it is damaged ({type(fault).__name__})") from fault


def check_plain(data: bytes) -> None:
    """Walk the instructions of a pickle without obeying them.

    Raises:
        UntrustedPickleError: one of them is not of plain values, or reaches past the end.

    """
    table, end, position = _TABLE, len(data), 0
    try:
        while True:
            code = data[position]
            argument = table[code]
            if argument >= 0:
                if code == _LONG_PUT:
                    _check_place(int.from_bytes(data[position + 1 : position + 5], "little"), end)
                elif argument == 0 and code == _STOP:
                    return
                position += argument + 1
            else:
                position = _past(data, position, code, argument)
    except IndexError:
        raise UntrustedPickleError("it is cut short") from None


def _past(data: bytes, position: int, code: int, argument: int) -> int:
    """Return where the instruction after one with a long argument begins."""
    if code in _FORBIDDEN:
        raise UntrustedPickleError(f"it asks for code to be run ({_FORBIDDEN[code]})")
    if argument == _UNKNOWN:
        raise UntrustedPickleError(f"byte {position:,} is no instruction of a pickle")
    if argument == _LINE:
        stop = data.find(b"\n", position)
        if stop < 0:
            raise UntrustedPickleError("it is cut short")
        if code == _TEXT_PUT:
            _check_place(_number(data[position + 1 : stop]), len(data))
        return stop + 1
    width = _COUNTED[argument][1]
    begin = position + 1 + width
    stop = begin + int.from_bytes(data[position + 1 : begin], "little")
    if stop > len(data):
        raise UntrustedPickleError("it is cut short")
    return stop


def _check_place(place: int, most: int) -> None:
    # The C unpickler makes room for every place up to the one that is named.
    if place > most:
        raise UntrustedPickleError("it would have more memory reserved than it can fill")


def _number(digits: bytes) -> int:
    if not digits.isdigit():
        raise UntrustedPickleError("it is damaged")
    return int(digits[:20])


def _table() -> list[int]:
    lengths = [_UNKNOWN] * 256
    for code in _PLAIN:
        lengths[code] = 0
    for width, codes in _FIXED.items():
        for code in codes:
            lengths[code] = width
    for code in _LINES:
        lengths[code] = _LINE
    for kind, (codes, _) in _COUNTED.items():
        for code in codes:
            lengths[code] = kind
    return lengths


_TABLE = _table()
