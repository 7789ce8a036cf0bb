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
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType
from typing import Any

from leakscope.model import gauge
from leakscope.model.errors import ours
from leakscope.model.record import CleaningCall
from leakscope.model.registries import REGISTRIES, CountedRegistry, Counting
from leakscope.probes import GuardedProbe

try:
    from leakscope.probes import _counting
except ImportError:  # no compiler where it was installed
    _counting = None  # type: ignore[assignment]


class GarbageProbe(GuardedProbe):
    """Counters of the collector, about two microseconds; collects nothing itself."""

    name = "gc"

    def measure(self) -> dict[str, int]:
        """Return the counters, summed over the generations."""
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
        """Start from zero.

        Args:
            starts: What the names of files begin with that are not the user's.
            parts: What else stands in such names.

        """
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

    def measure(self) -> dict[str, int]:
        """Return the number of figures that pyplot's registry holds."""
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
        self._changing: set[str] = set()

    def measure(self) -> dict[str, int]:
        """Return the number of entries of each registry that is new or has ever changed."""
        gauges = {}
        for registry in REGISTRIES:
            count = entries_of(registry)
            if count is None:
                continue
            first = self._first.get(registry.name)
            if first is None:
                self._first[registry.name] = count
            elif count != first:
                self._changing.add(registry.name)
            if first is None or registry.name in self._changing:
                gauges[gauge.registry(registry.name)] = count
        return gauges


def entries_of(registry: CountedRegistry) -> int | None:
    """Return how many entries a registry has; None where none of its modules was imported."""
    counts = [_count(place, registry.counting) for place in registry.places]
    known = [count for count in counts if count is not None]
    others = [_count(place, registry.counting) or 0 for place in registry.but]
    return max(0, sum(known) - sum(others)) if known else None


def _count(place: str, counting: Counting) -> int | None:
    module, _, way = place.partition(":")
    found: Any = sys.modules.get(module)
    try:
        for name in way.split("."):
            found = _stored(found, name)
        if counting is Counting.CALL:
            return int(found()) if type(found) is BuiltinFunctionType else None
        return _length(found)
    except ours(Exception):
        return None


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

    def measure(self) -> dict[str, int]:
        """Return the largest batch, once there was one."""
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
