"""What is drawn: memory at a boundary, and how fast grows what is seen to grow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from leakscope.instrument.frameworks.figures import PREFIX
from leakscope.instrument.growth import GrowthWatch
from leakscope.model import gauge

_MIB, _KIB = 1 << 20, 1 << 10
_MEMORY = {gauge.RSS: "host_mib", gauge.CHILDREN_PSS: "children_mib"}
_OF_DEVICES = (gauge.DEVICE_ALLOCATED, gauge.DEVICE_RESERVED)
GROWING_AT_ONCE = 5
NAMES = 20
"""So many growing things have a chart in one run."""
_LONGEST_NAME = 80
_MOST_OF_THE_GROWTH = 0.7
"""A container that carries so much of its owner's growth is drawn instead of the owner."""


def memory_of(gauges: Mapping[str, int]) -> dict[str, float]:
    """Return resident memory, that of child processes, and what each device has, in MiB."""
    found = {short: gauges[name] for name, short in _MEMORY.items() if gauges.get(name)}
    for name, size in gauges.items():
        device, _, what = name.rpartition(".")
        if device and what in _OF_DEVICES:
            found[f"{device}_{what}_mib"] = size
    return {f"{PREFIX}{name}": round(size / _MIB, 3) for name, size in found.items()}


def named(path: str) -> str:
    """Return a name as every tracker takes it: letters, digits, ``_``, ``-`` and ``.``."""
    plain = re.sub(r"[^A-Za-z0-9_.\-]+", "_", path.removeprefix("__main__·"))
    return plain[-_LONGEST_NAME:].strip("_.") or "unnamed"


class Rising(NamedTuple):
    """Where something was first seen to grow."""

    place: object
    size: int
    step: int


class Rates:
    """How fast grows what rises at each of the latest looks, since it was first seen to."""

    def __init__(self) -> None:
        self._first: dict[str, Rising] = {}

    def at(self, step: int, growth: GrowthWatch) -> dict[str, float]:
        """Return KiB per step of the fastest, by the name under which each is drawn."""
        place, sizes = growth.growing()
        risen = {path: self._risen(path, place, size, step) for path, size in sizes.items()}
        rates = {
            f"{PREFIX}growing/{named(path)}_kib_per_step": round(
                risen[path] / _KIB / (step - self._first[path].step), 3
            )
            for path in _innermost({path: rise for path, rise in risen.items() if rise > 0})
        }
        fastest = sorted(rates, key=lambda name: -rates[name])[:GROWING_AT_ONCE]
        return {name: rates[name] for name in fastest}

    def _risen(self, path: str, place: object, size: int, step: int) -> int:
        """Return the bytes since the first look at this place; 0 where that can't be said."""
        first = self._first.get(path)
        if first is None and len(self._first) < NAMES:
            first = self._first[path] = Rising(place, size, step)
        return 0 if first is None or first.place != place or step <= first.step else size - first[1]


def _innermost(risen: Mapping[str, int]) -> list[str]:
    """Return the containers that grow: neither their owners nor their elements."""
    chosen: list[str] = []
    for path in sorted(risen, key=len):
        owners = [owner for owner in chosen if path.startswith(owner)]
        if any(path[len(owner) :].startswith("[*]") for owner in owners):
            continue
        for owner in owners:
            if risen[path] >= _MOST_OF_THE_GROWTH * risen[owner]:
                chosen.remove(owner)
        chosen.append(path)
    return chosen
