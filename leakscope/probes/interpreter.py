"""What the interpreter and libraries count: the collector and how long it takes, open matplotlib
figures, entries of registries, a worker's batches.

Registries are counted as the table of :mod:`leakscope.model.registries` says: in what is imported
already, by looking attributes up where they are stored, so that no code of a module, property or
subclass runs.

Looked at are the first batches and then some of them; every tensor or array in nested lists, tuples
and dicts counts with its whole storage, for that is what torch sends.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from queue import Queue, SimpleQueue
from re import Pattern
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType
from typing import Any, NamedTuple
from weakref import ReferenceType

from leakscope.model import gauge
from leakscope.model.errors import ours
from leakscope.model.record import CleaningCall
from leakscope.model.registries import REGISTRIES, CountedRegistry, Counting
from leakscope.model.text import clipped
from leakscope.probes import GuardedProbe

try:
    from leakscope.probes import _counting
except ImportError:  # no compiler where it was installed
    _counting = None  # type: ignore[assignment]


class GarbageProbe(GuardedProbe):
    """Counters of the collector, about two microseconds; collects nothing itself."""

    name = "gc"

    def _measure(self) -> dict[str, int]:
        generations = gc.get_stats()
        long_lived = None if _counting is None else _counting.long_lived()
        pending, old = long_lived or (None, None)
        counters = {
            gauge.GC_COUNT: gc.get_count()[0],
            gauge.GC_COLLECTIONS: sum(g["collections"] for g in generations),
            gauge.GC_COLLECTED: sum(g["collected"] for g in generations),
            gauge.GC_UNCOLLECTABLE: sum(g["uncollectable"] for g in generations),
            gauge.GC_FROZEN: gc.get_freeze_count(),
            gauge.GC_ENABLED: int(gc.isenabled()),
            gauge.GC_PENDING: pending,
            gauge.GC_LONG_LIVED: old,
        }
        return {name: value for name, value in counters.items() if value is not None}


COLLECT = "gc.collect()"


class CollectionTimes:
    """Times every collection of this process while it is started; nothing without the native part.

    Who stands in ``gc.callbacks`` is called inside a collection. That is native code: in a function
    of Python's Ctrl-C might strike, and would be lost there.
    """

    def __init__(self) -> None:
        self._last_sums: dict[str, int] = {}
        self._is_on = False

    def start(self, starts: tuple[str, ...], parts: tuple[str, ...]) -> None:
        """Start from zero; files that begin with ``starts`` or have ``parts`` aren't the user's."""
        self._last_sums = {}
        self._is_on = _counting is not None and _counting.watch_collections(starts, parts)

    def stop(self) -> None:
        """Time no more; what was measured can still be read."""
        if self._is_on:
            _counting.unwatch_collections()

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Count nothing meanwhile: what is collected is our own doing."""
        if not self._is_on:
            yield
            return
        before = _counting.mute_collections(True)
        try:
            yield
        finally:
            _counting.mute_collections(before)

    def gauges(self) -> dict[str, int]:
        """Return the sums that have changed, and the longest collections, since the last time."""
        if not self._is_on:
            return {}
        *by_itself, explicit = _counting.collections()
        sums, longest = {}, {}
        for generation, (count, ns, most) in enumerate(by_itself):
            if count:
                sums[gauge.GC_TIMES[generation]] = ns // 1000
            if most:
                longest[gauge.GC_PAUSES[generation]] = most // 1000
        count, ns, most = explicit
        if count:
            sums |= {gauge.GC_EXPLICIT: count, gauge.GC_EXPLICIT_TIME: ns // 1000}
        if most:
            longest[gauge.GC_EXPLICIT_PAUSE] = most // 1000
        changed = {name: sum_ for name, sum_ in sums.items() if self._last_sums.get(name) != sum_}
        self._last_sums = sums
        return changed | longest

    def calls(self) -> list[CleaningCall]:
        """Return by line of the user's what its calls of the collector took and brought."""
        if not self._is_on:
            return []
        return [
            CleaningCall(
                call=COLLECT,
                file=file or "",
                line=line,
                times=count,
                seconds=ns / 1e9,
                longest_s=longest / 1e9,
                objects=objects,
                weighed=weighed,
                freed_bytes=freed,
                most_freed_bytes=most_freed,
            )
            for file, line, count, ns, longest, objects, weighed, freed, most_freed in (
                _counting.collect_calls()
            )
        ]


class FiguresProbe(GuardedProbe):
    """Counts pyplot's open figures where the program has imported pyplot; never imports it."""

    name = "figures"

    def _measure(self) -> dict[str, int]:
        helpers = sys.modules.get("matplotlib._pylab_helpers")
        if helpers is None:
            return {}
        return {gauge.FIGURES: len(helpers.Gcf.figs)}


class RegistriesProbe(GuardedProbe):
    """Counts the entries of registries; a registry whose number stays the same is read out once."""

    name = "registries"
    slow = True

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._begins: dict[str, int] = {}
        """By place, how many entries lay there when its registry was first counted."""
        self._changing: set[str] = set()

    def _measure(self) -> dict[str, int]:
        gauges = {}
        for registry in REGISTRIES:
            count = entries_of(registry)
            if count is None:
                continue
            first = self._first.get(registry.name)
            if first is None:
                self._first[registry.name] = count
                self._begins |= _lengths(registry)
            elif count != first:
                self._changing.add(registry.name)
            if first is None or registry.name in self._changing:
                gauges[gauge.registry(registry.name)] = count
        return gauges

    def latest(self) -> dict[str, list[str]]:
        """Return by name what some of the latest entries are called, of each that has grown much.

        Of a set, which has no order, they are any; of what only C code counts there are none.
        """
        grown = (registry for registry in REGISTRIES if registry.name in self._changing)
        return {registry.name: names for registry in grown if (names := self._latest_of(registry))}

    def _latest_of(self, registry: CountedRegistry) -> list[str]:
        names: dict[str, None] = {}
        for place, count in _lengths(registry).items():
            gained = count - self._begins.get(place, 0)
            if gained >= NAMED_FROM:
                most = min(gained, MOST_NAMED)
                names |= dict.fromkeys(_names_at(place, most, registry.is_newest_first))
        return list(names)[:MOST_NAMED]


NAMED_FROM = 8
"""Entries that a place has gained before any of them is named: as many as a finding takes."""
MOST_NAMED = 3
_LONGEST_NAME = 60


def _lengths(registry: CountedRegistry) -> dict[str, int]:
    return _counts(registry) if registry.counting is Counting.LENGTH else {}


def _names_at(place: str, most: int, is_newest_first: bool) -> list[str]:
    try:
        newest = _newest(_found(place), most, is_newest_first)
        return [name for entry in newest if (name := _name_of(entry))]
    except ours(Exception):
        return []


def _newest(container: Any, most: int, is_first: bool) -> list[Any]:
    """Return the latest items of a container; of a set any.

    ``is_first`` says whether a list has its newest items at its beginning.
    """
    kind: Any = next((kind for kind in _LENGTHS if issubclass(type(container), kind)), None)
    if kind is None:
        return _newest(_stored(container, "data"), most, is_first)
    if kind is set:
        return list(islice(set.__iter__(container), most))
    if kind is dict:
        return [_Item(*item) for item in islice(reversed(dict.items(container)), most)]
    places = range(most) if is_first else range(-1, -1 - most, -1)
    return [kind.__getitem__(container, place) for place in places]


class _Item(NamedTuple):
    key: Any
    value: Any


def _name_of(entry: Any) -> str:
    """Return what a person would call an entry, or nothing; no code of the program's runs."""
    kind: Any = type(entry)
    if kind is str:
        return clipped(entry, _LONGEST_NAME)
    if kind is tuple:
        return " ".join(filter(None, map(_name_of, entry[:_PARTS])))
    if kind is _Item:
        names = [(name, part) for part in entry if (name := _name_of(part))]
        telling = (name for name, part in names if name != _name_of_class(type(part)))
        return next(telling, names[0][0] if names else "")
    if kind is Pattern:
        return clipped(str(entry.pattern), _LONGEST_NAME)
    if issubclass(kind, ReferenceType):
        return _name_of(ReferenceType.__call__(entry))
    if issubclass(kind, type):
        return _name_of_class(entry)
    if issubclass(kind, MethodType | partial):
        return _name_of(entry.__func__ if kind is MethodType else partial.func.__get__(entry))
    if kind is FunctionType:
        code = entry.__code__
        return f"{entry.__qualname__} ({Path(code.co_filename).name}:{code.co_firstlineno})"
    if kind in _NAMELESS:
        return ""
    if issubclass(kind, getattr(sys.modules.get("_asyncio"), "Task", ())):
        return str(kind.get_coro(entry).__qualname__)
    return _name_of_other(entry)


_PARTS = 4
_NAMELESS = (int, float, bool, bytes, dict, list, set, frozenset, type(None))


def _name_of_class(cls: type) -> str:
    names = type.__dict__["__dict__"].__get__(cls)
    module = names.get("__module__")
    name = type.__dict__["__qualname__"].__get__(cls)
    return f"{module}.{name}" if type(module) is str and module != "builtins" else str(name)


def _name_of_other(entry: Any) -> str:
    """Return the class of an object, and what it calls itself or the function that it has."""
    kind = type(entry)
    name = _name_of_class(kind)
    slot = type.__dict__["__dict__"].__get__(kind).get("func")
    if type(slot) is MemberDescriptorType:
        return _name_of(slot.__get__(entry))
    try:
        own = object.__getattribute__(entry, "__dict__")
    except ours(AttributeError):
        return name
    calls_itself = next((own[key] for key in ("name", "_name") if type(own.get(key)) is str), "")
    return f"{name} {clipped(calls_itself, _LONGEST_NAME)}" if calls_itself else name


def entries_of(registry: CountedRegistry) -> int | None:
    """Return how many entries a registry has; None where none of its modules was imported.

    What lies at two of its places counts once.
    """
    if registry.counting is Counting.UNCOUNTED:
        return None
    if registry.counting is Counting.SERVED:
        return _waiting_for(registry.places)
    known = _counts(registry).values()
    others = (_count(place, registry.counting, set()) or 0 for place in registry.but)
    return max(0, sum(known) - sum(others)) if known else None


def _counts(registry: CountedRegistry) -> dict[str, int]:
    seen: set[int] = set()
    counted = {place: _count(place, registry.counting, seen) for place in registry.places}
    return {place: count for place, count in counted.items() if count is not None}


def _count(place: str, counting: Counting, seen: set[int]) -> int | None:
    """Return what a place has; None where there is nothing, or what was seen, which is noted."""
    if place.partition(":")[0] not in sys.modules:  # as of most places: an error would cost more
        return None
    try:
        found = _found(place)
        if id(found) in seen:
            return None
        seen.add(id(found))
        if counting is Counting.CALL:
            return int(found()) if type(found) is BuiltinFunctionType else None
        return _length(found)
    except ours(Exception):
        return None


def _found(place: str) -> Any:
    """Return what lies at a place; raises where there is nothing."""
    module, _, way = place.partition(":")
    found: Any = sys.modules.get(module)
    for name in way.split("."):
        found = _stored(found, name)
    return found


def _waiting_for(modules: tuple[str, ...]) -> int | None:
    """Return how much waits in queues that threads of these modules serve, each queue once."""
    if not any(module in sys.modules for module in modules):
        return None
    sizes: dict[int, int] = {}
    for thread in list(threading._active.values()):  # type: ignore[attr-defined]
        sizes |= _served(thread, modules)
    return sum(sizes.values())


def _served(thread: Any, modules: tuple[str, ...]) -> dict[int, int]:
    try:
        target = object.__getattribute__(thread, "__dict__").get("_target")
        owners = [thread, target.__self__] if type(target) is MethodType else [thread]
        found: dict[int, int] = {}
        for owner in owners:
            if _is_of(type(owner), modules):
                found |= _queued(object.__getattribute__(owner, "__dict__"))
    except ours(Exception):
        return {}
    return found


def _is_of(kind: type, modules: tuple[str, ...]) -> bool:
    name = type.__dict__["__dict__"].__get__(kind).get("__module__")
    return type(name) is str and any(f"{name}.".startswith(f"{each}.") for each in modules)


def _queued(attributes: dict[str, Any]) -> dict[int, int]:
    found = {}
    for value in list(attributes.values()):
        if type(value) is SimpleQueue:
            found[id(value)] = value.qsize()
        elif issubclass(type(value), Queue):
            found[id(value)] = _length(_stored(value, "queue")) or 0
    return found


def _stored(owner: Any, name: str) -> Any:
    """Return an attribute as it is stored with an object or a class: nothing is computed."""
    names = type.__dict__["__dict__"].__get__(owner) if issubclass(type(owner), type) else None
    return (object.__getattribute__(owner, "__dict__") if names is None else names)[name]


_LENGTHS = (dict, list, set, tuple, deque)


def _length(container: Any) -> int | None:
    """Return how many items a container has; of weak ones those that may have gone count too."""
    for kind in _LENGTHS:
        if issubclass(type(container), kind):
            return int(kind.__len__(container))
    return _length(_stored(container, "data"))


FIRST = 4
EVERY = 16
DEEPEST = 4
MOST_ITEMS = 64
"""Of a longer list the others are taken to be like these."""


class BatchProbe(GuardedProbe):
    """The largest batch that was looked at, in bytes; the worker passes each batch."""

    name = "batches"

    def __init__(self) -> None:
        self._count = 0
        self._largest = 0

    def see(self, batch: object) -> None:
        """Look at a batch if it is its turn; keeps nothing of it."""
        self._count += 1
        if self._count <= FIRST or self._count % EVERY == 0:
            self._largest = max(self._largest, batch_bytes(batch))

    def _measure(self) -> dict[str, int]:
        return {gauge.BATCH: self._largest} if self._count else {}


def batch_bytes(batch: object) -> int:
    """Return the bytes of all tensors, arrays and texts in a batch, each storage once."""
    return _weigh(batch, set(), DEEPEST)


def _weigh(value: Any, seen: set[int], depth: int) -> int:
    if isinstance(value, (bytes, str)):
        return len(value)
    if type(value) is dict:
        return _weigh_all(list(value.values()), seen, depth)
    if type(value) is list or isinstance(value, tuple):
        return _weigh_all(value, seen, depth)
    return _weigh_array(value, seen)


def _weigh_all(values: list[Any] | tuple[Any, ...], seen: set[int], depth: int) -> int:
    looked_at = values[:MOST_ITEMS] if depth else ()
    total = sum(_weigh(value, seen, depth - 1) for value in looked_at)
    return total * len(values) // max(len(looked_at), 1)


def _weigh_array(value: Any, seen: set[int]) -> int:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if numpy is not None and type(value) is numpy.ndarray:
        return int(value.nbytes)
    if torch is None or type(value) is not torch.Tensor or value.layout is not torch.strided:
        return 0
    storage = value.untyped_storage()
    if storage.data_ptr() in seen:
        return 0
    seen.add(storage.data_ptr())
    return int(storage.nbytes())
