"""One of everything: objects of as many types as a process has."""

from __future__ import annotations

import _io
import array
import asyncio
import collections
import contextvars
import ctypes
import datetime as dt
import decimal
import enum
import fractions
import functools
import gc
import io
import itertools
import mmap
import operator
import pathlib
import queue
import random
import re
import struct
import sys
import threading
import types
import uuid
import weakref
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

_NUMBERS = [3, 1, 2]
_WORDS = {"one": 1, "two": 2}
_PATTERN = re.compile("(a)(b)?")


class Plain:
    def method(self) -> None: ...


class Slotted:
    __slots__ = ("__weakref__", "a", "b")


class Colour(enum.Enum):
    RED = "red"


class Point(collections.namedtuple("Point", "x y")):
    __slots__ = ()


class SizedList(list[int]):
    pass


class SizedTuple(tuple[int, ...]):
    __slots__ = ()


class SizedInt(int):
    pass


class SizedText(str):  # noqa: SLOT000 - its instances shall have a dict
    pass


class SizedDict(dict[str, int]):
    pass


class Fields(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int), ("b", ctypes.c_double))


def _generator() -> Iterator[int]:
    kept = 1
    yield kept


async def _coroutine() -> None:
    await asyncio.sleep(0)


async def _stream() -> AsyncIterator[int]:
    yield 1


def _closed_coroutine() -> Any:
    coroutine = _coroutine()
    coroutine.close()  # one that was never awaited warns when it goes
    return coroutine


def _closure(captured: list[int]) -> Callable[[], list[int]]:
    return lambda: captured


def _cell() -> Any:
    return _closure([1]).__closure__[0]  # type: ignore[index]


def _traceback() -> Any:
    try:
        raise ValueError("wanted")
    except ValueError as error:
        return error.__traceback__


def _large_set() -> set[int]:
    return set(range(1000))


def _shrunk_list() -> list[int]:
    shrunk = list(range(1000))
    del shrunk[3:]
    return shrunk


def _split_dict() -> dict[str, Any]:
    single = Plain()
    single.first, single.second = 1, 2  # type: ignore[attr-defined]
    return single.__dict__


def _filled_buffer() -> _io.BytesIO:
    buffer = io.BytesIO()
    buffer.write(bytes(5000))
    return buffer


SAMPLES: dict[str, Callable[[], object]] = {
    "int": lambda: 5,
    "int 0": lambda: 0,
    "large int": lambda: 10**200,
    "negative int": lambda: -(10**50),
    "float": lambda: 1.5,
    "complex": lambda: 1 + 2j,
    "bytes": lambda: bytes(33),
    "no bytes": lambda: b"",
    "bytearray": lambda: bytearray(77),
    "no bytearray": bytearray,
    "memoryview": lambda: memoryview(bytearray(100)),
    "memoryview of two dimensions": lambda: memoryview(bytes(100)).cast("B", (10, 10)),
    "ascii": lambda: "plain text",
    "no text": lambda: "",
    "latin": lambda: "caf\xe9",
    "wide": lambda: "\u4f60\u597d",
    "astral": lambda: "\U0001f600" * 7,
    "text with its bytes": lambda: _with_utf8("caf\xe9" * 9),
    "list": lambda: [1, 2, 3],
    "no list": list,
    "list that shrank": _shrunk_list,
    "list that grew": lambda: functools.reduce(lambda a, b: a + [b], range(30), []),  # noqa: RUF005
    "tuple": lambda: (1, 2, 3),
    "no tuple": tuple,
    "dict": lambda: {1: 2, "a": 3},
    "no dict": dict,
    "dict of texts": lambda: dict.fromkeys(map(str, range(300))),
    "dict that emptied": lambda: _emptied({i: i for i in range(300)}),
    "instance's dict": _split_dict,
    "set": lambda: {1, 2},
    "no set": set,
    "large set": _large_set,
    "frozenset": lambda: frozenset(range(100)),
    "range": lambda: range(10**20),
    "slice": lambda: slice(1, 2, 3),
    "object": object,
    "mappingproxy": lambda: types.MappingProxyType(_WORDS),
    "SimpleNamespace": lambda: types.SimpleNamespace(a=1),
    "dict_keys": lambda: _WORDS.keys(),
    "dict_values": lambda: _WORDS.values(),
    "dict_items": lambda: _WORDS.items(),
    "list_iterator": lambda: iter(_NUMBERS),
    "list_reverseiterator": lambda: reversed(_NUMBERS),
    "tuple_iterator": lambda: iter((1, 2)),
    "dict_keyiterator": lambda: iter(_WORDS),
    "dict_itemiterator": lambda: iter(_WORDS.items()),
    "set_iterator": lambda: iter({1, 2}),
    "str_iterator": lambda: iter("text\u4f60"),
    "bytes_iterator": lambda: iter(b"bytes"),
    "range_iterator": lambda: iter(range(5)),
    "callable_iterator": lambda: iter(list, [1]),
    "enumerate": lambda: enumerate(_NUMBERS),
    "zip": lambda: zip(_NUMBERS, _NUMBERS, strict=True),
    "map": lambda: map(str, _NUMBERS),
    "filter": lambda: filter(None, _NUMBERS),
    "reversed": lambda: reversed(range(3)),
    "type": lambda: type("Made", (), {"__slots__": ("a", "b")}),
    "class": lambda: Plain,
    "metaclass": lambda: type("Meta", (type,), {}),
    "module": lambda: types.ModuleType("made"),
    "function": lambda: lambda a, b=1: a + b,
    "closure": lambda: _closure([1]),
    "method": lambda: Plain().method,
    "builtin function": lambda: len,
    "builtin method": lambda: [].append,
    "method_descriptor": lambda: list.append,
    "wrapper_descriptor": lambda: list.__len__,
    "method-wrapper": lambda: [].__len__,
    "classmethod_descriptor": lambda: dict.__dict__["fromkeys"],
    "getset_descriptor": lambda: types.FunctionType.__dict__["__code__"],
    "member_descriptor": lambda: Slotted.__dict__["a"],
    "property": lambda: property(len),
    "staticmethod": lambda: staticmethod(len),
    "classmethod": lambda: classmethod(len),
    "super": lambda: super(SizedInt, SizedInt(1)),
    "code": lambda: Plain.method.__code__,
    "cell": _cell,
    "empty cell": types.CellType,
    "frame": sys._getframe,
    "traceback": _traceback,
    "exception": lambda: ValueError("wanted", 1),
    "OSError": lambda: FileNotFoundError(2, "none", "file"),
    "ExceptionGroup": lambda: getattr(sys.modules["builtins"], "ExceptionGroup", ValueError)(
        "some", [ValueError(1)]
    ),
    "generator": _generator,
    "started generator": lambda: _started(_generator()),
    "finished generator": lambda: _finished(_generator()),
    "coroutine": _closed_coroutine,
    "async generator": _stream,
    "generic alias": lambda: list[int],
    "union": lambda: int | str,
    "weakref": lambda: weakref.ref(Plain),
    "weakref with callback": lambda: weakref.ref(Plain, print),
    "weakproxy": lambda: weakref.proxy(Plain),
    "slots": Slotted,
    "namedtuple": lambda: Point(1, 2),
    "tuple subclass with slots": lambda: SizedTuple((1, 2)),
    "structseq": lambda: sys.version_info,
    "float_info": lambda: sys.float_info,
    "deque": lambda: collections.deque(range(1000), 2000),
    "no deque": collections.deque,
    "deque iterator": lambda: iter(collections.deque([1])),
    "OrderedDict": lambda: collections.OrderedDict(zip("abcdef", range(6), strict=True)),
    "defaultdict": lambda: collections.defaultdict(list, {1: [2]}),
    "array": lambda: array.array("d", range(50)),
    "no array": lambda: array.array("b"),
    "array iterator": lambda: iter(array.array("d", [1])),
    "BytesIO": _filled_buffer,
    "BytesIO with a view": lambda: _viewed(io.BytesIO(bytes(5000))),
    "StringIO": lambda: io.StringIO("text" * 100),
    "BufferedReader": lambda: io.BufferedReader(io.BytesIO(bytes(10)), 3000),  # type: ignore[arg-type]
    "BufferedWriter": lambda: io.BufferedWriter(io.BytesIO(), 3000),  # type: ignore[arg-type]
    "BufferedRandom": lambda: io.BufferedRandom(io.BytesIO(), 3000),  # type: ignore[arg-type]
    "TextIOWrapper": lambda: io.TextIOWrapper(io.BytesIO(b"text")),
    "pattern": lambda: _PATTERN,
    "match": lambda: _PATTERN.match("ab"),
    "scanner": lambda: _PATTERN.finditer("ab"),
    "date": lambda: dt.date(2020, 1, 1),
    "time": lambda: dt.time(1, 2),
    "datetime": lambda: dt.datetime(2020, 1, 1),  # noqa: DTZ001
    "datetime with zone": lambda: dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc),
    "timedelta": lambda: dt.timedelta(days=1),
    "timezone": lambda: dt.timezone(dt.timedelta(hours=1)),
    "Decimal": lambda: decimal.Decimal("1.25"),
    "decimal context": decimal.Context,
    "Fraction": lambda: fractions.Fraction(1, 3),
    "UUID": uuid.uuid4,
    "partial": lambda: functools.partial(print, 1, end=""),
    "lru_cache": lambda: functools.lru_cache(len),
    "cmp_to_key": lambda: functools.cmp_to_key(lambda a, b: a - b),
    "itemgetter": lambda: operator.itemgetter(1, 2, 3),
    "attrgetter": lambda: operator.attrgetter("a.b"),
    "methodcaller": lambda: operator.methodcaller("a", 1),
    "count": lambda: itertools.count(3),
    "cycle": lambda: itertools.cycle(_NUMBERS),
    "repeat": lambda: itertools.repeat(1),
    "chain": lambda: itertools.chain(_NUMBERS, _NUMBERS),
    "islice": lambda: itertools.islice(_NUMBERS, 2),
    "groupby": lambda: itertools.groupby(_NUMBERS),
    "tee": lambda: itertools.tee(_NUMBERS)[0],
    "zip_longest": lambda: itertools.zip_longest(_NUMBERS, [1]),
    "accumulate": lambda: itertools.accumulate(_NUMBERS),
    "starmap": lambda: itertools.starmap(print, [_NUMBERS]),
    "compress": lambda: itertools.compress(_NUMBERS, _NUMBERS),
    "Lock": threading.Lock,
    "RLock": threading.RLock,
    "local": threading.local,
    "SimpleQueue": queue.SimpleQueue,
    "ContextVar": lambda: contextvars.ContextVar("made"),
    "Context": contextvars.copy_context,
    "Struct": lambda: struct.Struct("iid10s"),
    "Random": lambda: random.Random(1),
    "mmap": lambda: mmap.mmap(-1, 1 << 16),
    "compressobj": zlib.compressobj,
    "c_int": lambda: ctypes.c_int(1),
    "c array": lambda: (ctypes.c_double * 100)(),
    "c structure": Fields,
    "c pointer": lambda: ctypes.pointer(ctypes.c_int(1)),
    "capsule": lambda: dt.datetime_CAPI,  # type: ignore[attr-defined]
    "path": lambda: pathlib.PurePosixPath("/a/b"),
}
"""Makers of objects that ``sys.getsizeof`` and the engine must agree on."""

PAYLOAD = {"c array": 100 * 8, "StringIO": 4 * 402}
"""Bytes that some of them own and ``sys.getsizeof`` leaves out."""

WITH_ATTRIBUTES: dict[str, Callable[[], object]] = {
    "instance": Plain,
    "list subclass": lambda: SizedList([1, 2, 3]),
    "dict subclass": lambda: SizedDict(a=1),
    "int subclass": lambda: SizedInt(10**30),
    "str subclass": lambda: SizedText("text"),
    "enum": lambda: Colour.RED,
    "Counter": lambda: collections.Counter("abracadabra"),
    "UserDict": lambda: collections.UserDict(a=1),
    "Event": threading.Event,
    "Queue": queue.Queue,
    "WeakSet": weakref.WeakSet,
}
"""Instances with a ``__dict__``, whose attributes may live in an array that no method sizes."""


def _with_utf8(text: str) -> str:
    ctypes.pythonapi.PyUnicode_AsUTF8(ctypes.py_object(text))
    return text


def _emptied(container: dict[int, int]) -> dict[int, int]:
    while container:
        container.popitem()
    return container


def _started(generator: Iterator[int]) -> Iterator[int]:
    next(generator)
    return generator


def _finished(generator: Iterator[int]) -> Iterator[int]:
    list(generator)
    return generator


def _viewed(buffer: io.BytesIO) -> io.BytesIO:
    buffer.getbuffer().release()
    return buffer


bases_of = type.__dict__["__mro__"].__get__
"""The classes of a class, whatever its metaclass says."""
names_of = type.__dict__["__dict__"].__get__
flags_of = type.__dict__["__flags__"].__get__


def found_in_this_process(per_type: int = 3) -> list[Any]:
    """Return some objects of every type that the collector's objects lead to."""
    by_type: dict[int, list[Any]] = {}
    seen: set[int] = set()
    waiting = gc.get_objects()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        some = by_type.setdefault(id(type(value)), [])
        if len(some) < per_type and not _is_ours(value, some, by_type, seen, waiting):
            some.append(value)
        waiting += [r for r in gc.get_referents(value) if id(r) not in seen]
    return [value for some in by_type.values() for value in some]


def _is_ours(value: object, *ours: object) -> bool:
    return any(value is item for item in ours) or type(value) is types.FrameType
