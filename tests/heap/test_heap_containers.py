"""Containers of the standard library: what they hold is found, what they refer to weakly is not."""

from __future__ import annotations

import asyncio
import collections
import functools
import queue
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from payloads import ENGINES, KB, retained, seen

BIG = 50 * KB


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Thing:
    def __init__(self) -> None:
        self.data = bytearray(BIG)


def _cached(**options: Any) -> Any:
    @functools.lru_cache(**options)
    def make(number: int) -> bytearray:
        return bytearray(BIG // 10)

    for number in range(10):
        make(number)
    return make


def _cached_by_key() -> Any:
    @functools.lru_cache
    def look_up(key: bytes) -> None: ...

    for number in range(10):
        look_up(bytes(BIG // 10) + bytes([number]))
    return look_up


def _cached_property() -> Any:
    class Holder:
        @functools.cached_property
        def data(self) -> bytearray:
            return bytearray(BIG)

    holder = Holder()
    assert holder.data
    return holder


def _filled(container: Any, put: str) -> Any:
    for _ in range(10):
        getattr(container, put)(bytearray(BIG // 10))
    return container


def _ranked() -> Any:
    ranked: Any = queue.PriorityQueue()
    ranked.put((1, bytearray(BIG)))
    return ranked


HOLDING: dict[str, Callable[[], Any]] = {
    "cache without a bound": lambda: _cached(maxsize=None),
    "bounded cache": lambda: _cached(maxsize=100),
    "keys of a cache": _cached_by_key,
    "cached property": _cached_property,
    "partial": lambda: functools.partial(print, bytearray(BIG)),
    "partial's keywords": lambda: functools.partial(print, end=bytearray(BIG)),
    "partial method": lambda: functools.partialmethod(print, bytearray(BIG)),
    "deque": lambda: _filled(collections.deque(), "append"),
    "OrderedDict": lambda: collections.OrderedDict(a=bytearray(BIG)),
    "defaultdict": lambda: collections.defaultdict(list, {1: bytearray(BIG)}),
    "ChainMap": lambda: collections.ChainMap({}, {1: bytearray(BIG)}),
    "keys of a Counter": lambda: collections.Counter({bytes(BIG): 1}),
    "UserDict": lambda: collections.UserDict(a=bytearray(BIG)),
    "UserList": lambda: collections.UserList([bytearray(BIG)]),
    "Queue": lambda: _filled(queue.Queue(), "put"),
    "LifoQueue": lambda: _filled(queue.LifoQueue(), "put"),
    "PriorityQueue": _ranked,
    "SimpleQueue": lambda: _filled(queue.SimpleQueue(), "put"),
    "asyncio's queue": lambda: _filled(asyncio.Queue(), "put_nowait"),
}


@pytest.mark.parametrize("name", HOLDING)
def test_what_it_holds_is_retained(engine: str, name: str) -> None:
    value = HOLDING[name]()
    assert BIG < retained(seen(engine, value), value) < BIG + 8 * KB


BOUNDED: dict[str, Callable[[], Any]] = {
    "cache": lambda: _cached(maxsize=2),
    "deque": lambda: _filled(collections.deque(maxlen=2), "append"),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_what_a_bounded_one_dropped_is_gone(engine: str, name: str) -> None:
    value = BOUNDED[name]()
    assert BIG // 5 < retained(seen(engine, value), value) < BIG // 5 + 6 * KB


WEAK: dict[str, Callable[[Thing], Any]] = {
    "reference": weakref.ref,
    "proxy": weakref.proxy,
    "method": lambda thing: weakref.WeakMethod(thing.__init__),  # type: ignore[misc]
    "values": lambda thing: weakref.WeakValueDictionary({1: thing}),
    "keys": lambda thing: weakref.WeakKeyDictionary({thing: 1}),
    "set": lambda thing: weakref.WeakSet([thing]),
}


@pytest.mark.parametrize("name", WEAK)
def test_what_is_referred_to_weakly_is_not_held(engine: str, name: str) -> None:
    thing = Thing()
    weak = WEAK[name](thing)
    holder = [weak]
    assert retained(seen(engine, holder), holder) < 4 * KB
    both = [weak, thing]
    assert retained(seen(engine, both), both) > BIG


def test_values_kept_by_weak_keys_are_held(engine: str) -> None:
    thing = Thing()
    notes = weakref.WeakKeyDictionary({thing: bytearray(2 * BIG)})
    assert 2 * BIG < retained(seen(engine, notes), notes) < 2 * BIG + 4 * KB


def test_callbacks_of_weak_references_are_held(engine: str) -> None:
    thing = Thing()
    reference = weakref.ref(thing, functools.partial(print, bytearray(BIG)))
    assert BIG < retained(seen(engine, reference), reference) < BIG + 2 * KB
