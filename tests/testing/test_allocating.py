"""The line that made what a container gained last, however much it held before."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path

import pytest

from leakscope.heap.ownership import ownership_under
from leakscope.testing.heap_sampler import sites_of, traced

OLD = 1000
KEYS = [f"key {n}" for n in range(2 * OLD)]


@pytest.mark.parametrize(
    ("make", "add"),
    [
        (list, lambda holder, item: holder.append(item)),
        (deque, lambda holder, item: holder.append(item)),
        (dict, lambda holder, item: holder.update({KEYS[len(holder)]: item})),
        (OrderedDict, lambda holder, item: holder.update({KEYS[len(holder)]: item})),
    ],
)
def test_the_latest_items_tell_the_line(
    make: Callable[[], object], add: Callable[[object, object], object]
) -> None:
    holder = make()
    for _ in range(OLD):
        add(holder, bytes(64))
    with traced():
        for _ in range(3):
            add(holder, bytearray(1024))
        (latest, *_) = sites_of(holder, ownership_under(str(Path(__file__).parent)))
    source = Path(__file__).read_text().splitlines()
    assert latest.file == __file__
    assert "bytearray(1024)" in source[latest.line - 1]
