"""Classes that calls make and that stay, told once: by what gathers them, if that is known.

A walk names classes by their modules and enters them from nowhere else, so that a list of classes
that calls made would seem to hold references alone.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from leakscope.analysis.growers import Grower
from leakscope.analysis.series import RowTable
from leakscope.heap import anatomy
from leakscope.heap.definitions import Definitions
from leakscope.heap.ownership import Ownership
from leakscope.heap.roots import Root
from leakscope.model.census import RootKind
from leakscope.model.growth import Growth

_ADVICE = "Make the class once, outside of what is called again and again"
_NUMBER = re.compile(r"\d+")
_SOME = 100
_LISTED_OTHERWISE = 0.1
"""What part of as many classes may come or go meanwhile in the same lists."""


def class_roots(
    ownership: Ownership, definitions: Definitions, named: Sequence[Root]
) -> Iterator[Root]:
    """Yield a root for each of the user's classes that no module has a name for.

    Those that differ in numbers alone have one name: ``Record*``.
    """
    known = {id(root.obj) for root in named}
    alike: dict[tuple[str, str], list[type]] = {}
    for cls in _classes(ownership):
        if id(cls) not in known:
            name = _NUMBER.sub("*", anatomy.qualname(cls))
            alike.setdefault((anatomy.module_name(cls), name), []).append(cls)
    for (module, name), classes in alike.items():
        for cls in classes:
            said = name if len(classes) > 1 else anatomy.qualname(cls)
            spoken = said.replace("<locals>.", "")
            owner = definitions.class_(cls, "")
            yield Root(cls, RootKind.CLASS_ATTRIBUTE, f"{module}·{said}", spoken, owner)


def latest_classes(ownership: Ownership) -> list[object]:
    """Return some of the user's classes, the latest among them."""
    # The collector tells of its youngest generation first, and of each in order of age.
    found: list[object] = [*_classes(ownership)]
    return [*found[:_SOME], *found[_SOME:][-_SOME:]]


def _classes(ownership: Ownership) -> Iterator[type]:
    for obj in gc.get_objects():
        if anatomy.is_instance(obj, type) and ownership.owns_class(obj):
            yield obj


def with_classes_once(
    table: RowTable, growers: Sequence[Grower], paths: Collection[str]
) -> list[Grower]:
    """Return growers, classes as growth of what gathers as many items; else by themselves.

    Where their bases list them, which no name leads to, nothing else is told of it.

    Args:
        table: all rows.
        growers: what grows.
        paths: under which classes stand that no module has a name for.

    """
    left = list(growers)
    for made in [g for g in growers if table.latest[g.path].path in paths]:
        alike = [g for g in left if g is not made and _gathers_as_many(table, g, made)]
        keeper = next((g for g in alike if not _is_native(table, g)), None)
        native = [g for g in left if _is_native(table, g) and _lists(table, g, made)]
        left = [g for g in left if g not in native]
        if keeper is not None:
            both = _together(keeper, made)
            left = [both if g is keeper else g for g in left if g is not made]
    return sorted(left, key=lambda g: (-g.trend.bytes_per_unit, g.path))


def of_classes(growth: Growth) -> Growth:
    """Return growth of classes of one name in words for it, where they become more."""
    if not growth.objects_per_call:
        return growth
    holder = f"What is taken by classes called {growth.holder}"
    return msgspec.structs.replace(growth, holder=holder, advice=_ADVICE, diff="")


def _together(keeper: Grower, made: Grower) -> Grower:
    rate = keeper.trend.bytes_per_unit + made.trend.bytes_per_unit
    return replace(
        keeper,
        trend=msgspec.structs.replace(keeper.trend, bytes_per_unit=rate, interval=(rate, rate)),
        gained=keeper.gained + made.gained,
    )


def _is_native(table: RowTable, grower: Grower) -> bool:
    return table.latest[grower.path].root is RootKind.NATIVE


def _gathers_as_many(table: RowTable, grower: Grower, made: Grower) -> bool:
    return _items_less_classes(table, grower, made) == 0


def _lists(table: RowTable, grower: Grower, made: Grower) -> bool:
    """Return whether these may be where bases list their subclasses, those of others among them."""
    is_dict = table.latest[grower.path].type == "dict"
    most = _LISTED_OTHERWISE * _number(table, made)
    return is_dict and abs(_items_less_classes(table, grower, made)) <= most


def _items_less_classes(table: RowTable, grower: Grower, made: Grower) -> int:
    items = (grower.items_per_unit or 0.0) * grower.units
    return round(items - _number(table, made))


def _number(table: RowTable, made: Grower) -> float:
    count = np.nan_to_num(table.count[made.path, made.columns])
    return float(count[-1] - count[0])
