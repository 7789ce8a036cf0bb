"""A look at the heap tells the same of what didn't change."""

from __future__ import annotations

import sys
from pathlib import Path

from leakscope.testing.heap_sampler import HeapSampler, KnownNames

HERE = Path(__file__).parent


class Box:
    """Somebody with many attributes."""


BOX = Box()
for _number in range(300):
    setattr(BOX, f"attribute_{_number}", [0] * 20)


def test_what_an_object_retains_is_the_same_whatever_was_looked_up_last() -> None:
    looker = HeapSampler(str(HERE), KnownNames())

    def retained() -> int:
        rows = looker.census(10_000).rows
        return next(row.host_bytes for row in rows if row.path == f"{__name__}·BOX")

    for name in list(vars(BOX)):
        getattr(BOX, name)
    after_lookups = retained()
    for number in range(10_000):
        getattr(sys, f"nothing_{number}", None)
    assert retained() == after_lookups
