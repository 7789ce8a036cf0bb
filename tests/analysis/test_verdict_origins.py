"""What the censuses say about how a container grows takes part in finding the lines behind it."""

from __future__ import annotations

import msgspec
import pytest
from synthetic_runs import KIB, MIB, Program, Size, Thing

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model.census import Site

SOURCE = """\
pools = {}
for step in range(9000):
    name = names[step % 3]
    if name not in pools:
        pools[name] = Pool(name)
    pools[name].items.append(step)
    pools[name].sizes.append(step)
"""


def fed_at(length: Size, sites: list[Site] | None = None) -> list[int]:
    """Return the feeding lines of a dict of so many items that gains a MiB per epoch."""
    pools = Thing(
        "__main__·pools", lambda s: 20 * KIB + MIB * s.epochs_done, "dict", "dict", length=length
    )
    run = Program(epochs=12).plant(pools).build()
    run.main.sources["/project/train.py"] = SOURCE
    first = next(m for m in run.recordings[0].measurements if m.census and m.census.rows)
    if first.census is not None and sites:
        seen = [msgspec.structs.replace(row, allocated_at=sites) for row in first.census.rows]
        first.census.rows[:] = seen
    return [int(place.rpartition(":")[2]) for place in analyse(run).culprits[0].fed_at]


@pytest.mark.parametrize(("length", "first"), [(lambda s: 3, 6), (lambda s: 3 + s.epochs_done, 5)])
def test_a_container_with_ever_the_same_items_is_fed_inside(length: Size, first: int) -> None:
    assert fed_at(length)[0] == first


def test_a_line_that_any_census_saw_allocating_comes_first() -> None:
    seen = [Site(file="/project/train.py", line=7, bytes=1 << 20)]
    assert fed_at(lambda s: 3, seen)[0] == 7
