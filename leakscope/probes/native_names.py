"""Names for return addresses: the library that they lie in and the function, readable.

Symbols come from the library's file, which is read once for all addresses that are new in it; names
of C++ and Rust are demangled by the C++ library that the process has loaded anyway.
"""

from __future__ import annotations

import bisect
import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from leakscope.model.interrupts import ours

MOST_KNOWN = 20_000
"""Addresses whose names are kept; a program that loads and unloads libraries makes ever new ones.
Some 4 MB."""
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")
_CLONE = re.compile(r"(\.(part|constprop|isra|cold|lto_priv|llvm)(\.\d+)?)+$")
_QUALIFIERS = re.compile(r"( const| volatile| &&?)+$")
_ABI = re.compile(r"\[abi:\w+\]")


class Named(NamedTuple):
    """Where an address lies."""

    library: str
    """Name of the file; empty where there is none any more."""
    function: str


class NativeNames:
    """Names addresses of this process, once each.

    Args:
        symbols: returns the names of functions at offsets in a file, as ``_sampling.symbols`` does.

    """

    def __init__(self, symbols: Callable[[str, list[int]], dict[int, str | None]]) -> None:
        self._symbols = symbols
        self._known: dict[tuple[str, int], Named] = {}
        self._demangler: Demangler | None = None

    def __len__(self) -> int:
        return len(self._known)

    def name(
        self, addresses: Iterable[int], libraries: Iterable[tuple[str, int, int, int]]
    ) -> dict[int, Named]:
        """Return the names of return addresses.

        Args:
            addresses: return addresses: the call lies right before each.
            libraries: path, base, begin and end of each that is loaded.

        """
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        loaded = sorted(libraries, key=lambda library: library[2])
        begins = [library[2] for library in loaded]
        places: dict[int, tuple[str, int]] = {}
        missing: dict[str, list[int]] = {}
        for address in set(addresses):
            at = bisect.bisect_right(begins, address - 1) - 1
            path, base, _, end = loaded[at] if at >= 0 else ("", 0, 0, 0)
            if at < 0 or address - 1 >= end:
                continue
            place = places[address] = (path or _program(), address - 1 - base)
            if place not in self._known:
                missing.setdefault(place[0], []).append(place[1])
        for path, offsets in missing.items():
            self._learn(path, sorted(set(offsets)))
        return {address: self._known[place] for address, place in places.items()}

    def _learn(self, path: str, offsets: list[int]) -> None:
        try:
            found = self._symbols(path, offsets)
        except ours(Exception):
            found = {}
        library = Path(path).name
        for offset in offsets:
            symbol = found.get(offset)
            function = self._readable(symbol) if symbol else f"+0x{offset:x}"
            self._known[path, offset] = Named(library, function)

    def _readable(self, symbol: str) -> str:
        if symbol.startswith(("_Z", "_R")):
            if self._demangler is None:
                self._demangler = Demangler()
            symbol = self._demangler(symbol)
        return shortened(symbol)


class Demangler:
    """``__cxa_demangle`` of the C++ library that is loaded; without one, names stay as they are."""

    def __init__(self) -> None:
        self._call: Any = None
        try:
            library = ctypes.CDLL("libstdc++.so.6", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            call = library["__cxa_demangle"]  # as an attribute it would be a name of this class
            call.restype = ctypes.c_void_p
            call.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
            self._free = ctypes.CDLL(None).free
            self._free.restype = None
            self._free.argtypes = [ctypes.c_void_p]
            self._call = call
        except ours(OSError, AttributeError):
            pass

    def __call__(self, symbol: str) -> str:
        """Return the name that a symbol stands for."""
        if self._call is None:
            return symbol
        status = ctypes.c_int(0)
        text = self._call(symbol.encode(), None, None, ctypes.byref(status))
        if not text:
            return symbol
        name = ctypes.string_at(text).decode("utf-8", "replace")
        self._free(text)
        return name


def shortened(name: str) -> str:
    """Return a function's name without arguments, template arguments and what compilers append."""
    name = _RUST_HASH.sub("", _CLONE.sub("", name.split(" [clone ", maxsplit=1)[0]))
    name = _ABI.sub("", name)
    if "(" not in name and "<" not in name:
        return name
    kept: list[str] = []
    depth = 0
    text = name.replace("(anonymous namespace)", "\0").replace("operator()", "\1")
    text = text.replace("operator<<", "\2").replace("operator<", "\3").replace("operator->", "\4")
    for letter in text:
        if letter in "(<":
            depth += 1
        elif letter in ")>":
            depth = max(depth - 1, 0)
        elif depth == 0:
            kept.append(letter)
    # What comes before the last space outside of brackets is the type that a template returns.
    plain = _QUALIFIERS.sub("", "".join(kept)).strip()
    if not re.search(r"operator (new|delete)(\[\])?$", plain):
        plain = plain.rpartition(" ")[2] or plain
    for mark, original in _MARKS.items():
        plain = plain.replace(mark, original)
    return plain or name


_MARKS = {
    "\0": "(anonymous namespace)",
    "\1": "operator()",
    "\2": "operator<<",
    "\3": "operator<",
    "\4": "operator->",
}


def _program() -> str:
    try:
        return str(Path("/proc/self/exe").readlink())
    except ours(OSError):
        return sys.executable
