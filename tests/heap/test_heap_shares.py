"""Leak shares: what growers that hold the same objects account for, by both engines."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakscope.heap.graph import Share, WalkRequest, engine_name, leak_shares, walk

ENGINES = ["reference"] if engine_name() == "reference" else ["native", "reference"]


def shares(engine: str, roots: list[object], groups: list[list[object]]) -> list[Share]:
    request = WalkRequest(
        roots=roots, keep_graph=True, cutoff_bytes=1, max_selected=10_000, max_depth=4000
    )
    result = walk(request, engine=engine)
    columns = zip(result.nodes.objects, result.nodes.number, strict=True)
    number = {id(value): n for value, n in columns}
    return leak_shares(result, [[number[id(value)] for value in group] for group in groups])


@pytest.mark.parametrize("engine", ENGINES)
class TestShares:
    def test_what_two_hold_is_split_evenly(self, engine: str) -> None:
        kept = [bytearray(10_000) for _ in range(4)]
        history, records = list(kept), list(kept)
        del kept
        first, second = shares(engine, [history, records], [[history], [records]])
        assert first.bytes["host"] == pytest.approx(20_000, rel=0.05)
        assert second.bytes["host"] == pytest.approx(20_000, rel=0.05)
        assert first.exclusive["host"] < 500
        assert (first.others, second.others) == ([1], [0])

    def test_what_one_alone_holds_is_its_own(self, engine: str) -> None:
        history, records = [bytearray(10_000)], [bytearray(30_000)]
        first, second = shares(engine, [history, records], [[history], [records]])
        assert first.exclusive == first.bytes
        assert second.exclusive["host"] == pytest.approx(30_000, rel=0.05)
        assert first.others == second.others == []

    def test_what_stays_anyway_belongs_to_none(self, engine: str) -> None:
        dataset = bytearray(1_000_000)
        history = [dataset, bytearray(10_000)]
        namespace = {"dataset": dataset}
        (share,) = shares(engine, [namespace, history], [[history]])
        assert share.bytes["host"] == pytest.approx(10_000, rel=0.05)

    def test_the_inner_of_two_has_what_both_reach(self, engine: str) -> None:
        inner = [bytearray(50_000)]
        outer = {"validation": inner, "name": bytearray(20_000)}
        around, within = shares(engine, [outer], [[outer], [inner]])
        assert within.exclusive["host"] == pytest.approx(50_000, rel=0.05)
        assert around.exclusive["host"] == pytest.approx(20_000, rel=0.05)

    def test_two_that_refer_to_each_other_share_alike(self, engine: str) -> None:
        kept = bytearray(40_000)
        left: list[Any] = [kept]
        right: list[Any] = [kept, left]
        left.append(right)
        del kept
        first, second = shares(engine, [left, right], [[left], [right]])
        left.clear()
        assert first.bytes["host"] == pytest.approx(second.bytes["host"], rel=0.05)

    def test_several_objects_are_one_group(self, engine: str) -> None:
        kept = bytearray(40_000)
        parts, other = [[kept], [kept]], [kept]
        del kept
        first, second = shares(engine, [parts, other], [[parts[0], parts[1]], [other]])
        assert first.bytes["host"] == pytest.approx(20_000, rel=0.05)
        assert second.bytes["host"] == pytest.approx(20_000, rel=0.05)


@st.composite
def holdings(draw: st.DrawFn) -> tuple[int, list[set[int]], set[int]]:
    """How many things there are, which of them each grower holds, and which stay anyway."""
    things = draw(st.integers(1, 12))
    some = st.sets(st.integers(0, things - 1))
    return things, draw(st.lists(some, min_size=1, max_size=6)), draw(some)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=60, deadline=None)
@given(drawn=holdings())
def test_shares_add_up_to_what_would_go(
    engine: str, drawn: tuple[int, list[set[int]], set[int]]
) -> None:
    count, holding, staying = drawn
    things = [bytearray(1000 * (i + 1)) for i in range(count)]
    growers: list[list[object]] = [[things[i] for i in sorted(item)] for item in holding]
    stays = [things[i] for i in sorted(staying)]
    lone = {i for item in holding for i in item} - staying
    weight = [things[i].__sizeof__() for i in range(count)]
    del things
    found = shares(engine, [stays, *growers], [[grower] for grower in growers])
    for item, grower, share in zip(holding, growers, found, strict=True):
        alone = {i for i in item - staying if sum(i in other for other in holding) == 1}
        own = grower.__sizeof__() + (16 if gc.is_tracked(grower) else 0)
        assert share.exclusive["host"] == own + sum(weight[i] for i in alone)
        split = sum(weight[i] / sum(i in other for other in holding) for i in item - staying)
        assert share.bytes["host"] == pytest.approx(own + split, abs=len(item) + 1)
    total = sum(share.bytes["host"] for share in found)
    owned = sum(g.__sizeof__() + 16 for g in growers)
    assert total == pytest.approx(owned + sum(weight[i] for i in lone), abs=6 * count)
