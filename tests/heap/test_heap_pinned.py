"""Both engines: objects asked about, who refers to them, and totals by type."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from optional_torch import needs_torch, torch
from test_heap_walk import ENGINES, everything_of, heaps

from leakscope.heap.graph import GARBAGE, NATIVE, WalkRequest, WalkResult, walk

needs_both = pytest.mark.skipif(len(ENGINES) < 2, reason="the native engine is not built")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def place_of(result: WalkResult, value: object) -> int:
    return next(i for i, o in enumerate(result.nodes.objects) if o is value)


def referrers_of(result: WalkResult, value: object) -> list[Any]:
    nodes = result.nodes
    return [nodes.objects[r] for r in nodes.referrers[place_of(result, value)]]


def are(found: list[Any], *expected: object) -> bool:
    return len(found) == len(expected) and all(a is b for a, b in zip(found, expected, strict=True))


def test_a_pinned_object_is_answered_however_small(engine: str) -> None:
    small: list[int] = []
    result = walk(WalkRequest(roots=[{"a": [small]}], pinned=[small]), engine=engine)
    assert [type(o) for o in result.nodes.objects] == [dict, list, list]
    assert result.nodes.parent == [-1, 0, 1]
    assert result.nodes.selected == [True] * 3
    assert result.nodes.dominator == [-1, 0, 1]


def test_a_pinned_object_that_nothing_reaches_is_not_answered(engine: str) -> None:
    result = walk(WalkRequest(roots=[[1]], pinned=[[2]]), engine=engine)
    assert result.nodes.objects == []


def test_all_that_refer_to_a_pinned_object_are_answered(engine: str) -> None:
    wanted: list[int] = []
    holders = [[wanted], {"b": wanted}, (wanted, wanted)]
    result = walk(WalkRequest(roots=holders, pinned=[wanted]), engine=engine)
    assert are(referrers_of(result, wanted), *holders)
    assert [r for r in result.nodes.referrers if r] == [result.nodes.referrers[-1]]
    assert result.nodes.dominator[place_of(result, wanted)] == -1


def test_holders_at_any_depth_are_answered_with_what_names_them(engine: str) -> None:
    wanted: list[int] = []
    near, far = [wanted], [wanted]
    result = walk(WalkRequest(roots=[near, [[[far]]]], pinned=[wanted]), engine=engine)
    assert are(referrers_of(result, wanted), near, far)
    at, depth = place_of(result, far), 0
    while (at := result.nodes.parent[at]) >= 0:
        depth += 1
    assert depth == 3


def test_at_most_eight_are_answered(engine: str) -> None:
    wanted: list[int] = []
    holders = [[wanted] for _ in range(20)]
    result = walk(WalkRequest(roots=[holders], pinned=[wanted]), engine=engine)
    assert are(referrers_of(result, wanted), *holders[:-9:-1])  # a list is traversed from its end


def test_leakscopes_own_lists_are_no_referrers(engine: str) -> None:
    wanted: list[int] = []
    roots: list[object] = [[wanted], wanted]
    hidden = [wanted]
    request = WalkRequest(roots=roots, pinned=[wanted], hidden=[hidden], full=engine == "native")
    result = walk(request, engine=engine)
    assert are(referrers_of(result, wanted), roots[0])


def test_an_object_and_the_instances_of_a_class_are_not_their_own_referrers(engine: str) -> None:
    kind = type("Kind", (), {})
    ring: list[Any] = [kind()]
    ring.append(ring)
    result = walk(WalkRequest(roots=[ring, kind], pinned=[ring, kind]), engine=engine)
    assert referrers_of(result, ring) == []
    assert kind not in [type(o) for o in referrers_of(result, kind)]


@needs_torch
def test_graphs_and_what_they_alone_hold_can_be_queried(engine: str) -> None:
    weight = torch.ones(10, requires_grad=True)
    product = weight * weight
    saved = product.exp()
    total = saved.sum() + saved.log().sum()
    roots = [total]
    result = walk(WalkRequest(roots=list(roots), pinned=[weight, saved]), engine=engine)
    of_saved = [type(o).__name__ for o in referrers_of(result, saved)]
    assert of_saved == ["LogBackward0"]
    assert "AccumulateGrad" in {type(o).__name__ for o in referrers_of(result, weight)}


@needs_torch
def test_a_gradient_and_a_base_are_held_by_their_tensor(engine: str) -> None:
    leaf = torch.ones(10, requires_grad=True)
    (leaf * 2).sum().backward()
    view = torch.zeros(10)[2:]
    roots = [leaf, view]
    pinned = [leaf.grad, view._base]
    result = walk(WalkRequest(roots=list(roots), pinned=list(pinned)), engine=engine)
    assert are(referrers_of(result, leaf.grad), leaf)
    assert are(referrers_of(result, view._base), view)


@needs_both
@given(nodes=heaps)
@settings(deadline=None)
def test_engines_agree_on_what_is_pinned(nodes: list[Any]) -> None:
    first, second = (
        walk(WalkRequest(roots=nodes[:2], pinned=nodes[1:6:2]), engine=engine) for engine in ENGINES
    )
    assert [id(o) for o in first.nodes.objects] == [id(o) for o in second.nodes.objects]
    for column in ("parent", "root", "dominator", "selected", "host_bytes", "referrers", "holds"):
        assert getattr(first.nodes, column) == getattr(second.nodes, column), column


@needs_both
@pytest.mark.slow
def test_engines_agree_on_who_refers_from_all_over_the_heap() -> None:
    gc.collect()
    wanted: list[Any] = [1]
    ring: list[Any] = [wanted]
    ring.append(ring)
    key = id(ring)
    library = [[wanted]]
    held = [wanted]
    call = iter([held])  # the iterator's list is named by no variable
    del ring, held
    gc.disable()
    try:
        seen = []
        for engine in ENGINES:
            request = WalkRequest(
                roots=[[wanted], library], library_from=1, full=True, pinned=[wanted]
            )
            result = walk(request, engine=engine)
            nodes = result.nodes
            found = nodes.referrers[place_of(result, wanted)]
            seen.append([(id(nodes.objects[r]), nodes.root[r]) for r in found])
            del result, nodes, found, request
    finally:
        gc.enable()
    assert [{root for _, root in item} for item in seen] == [{0, 1, NATIVE, GARBAGE}] * 2
    assert all((key, GARBAGE) in item for item in seen)
    assert {root: i for i, root in seen[0]}[1] == id(library[0])
    del call
    gc.collect()


def chain(length: int) -> list[Any]:
    head: list[Any] = []
    for _ in range(length):
        head = [head]
    return head


def unlink(head: list[Any]) -> None:
    while head:  # by hand: its deallocation would nest
        head = head[0]


def test_a_pinned_object_is_found_at_any_depth(engine: str) -> None:
    length = 30_000 if engine == "native" else 10_000
    head = chain(length)
    last = head
    while last:
        last = last[0]
    result = walk(WalkRequest(roots=[head], pinned=[last]), engine=engine)
    assert len(result.nodes.objects) == length + 1
    assert result.nodes.parent == [-1, *range(length)]
    assert result.nodes.dominator == [-1, *range(length)]
    unlink(head)


@pytest.mark.skipif("native" not in ENGINES, reason="only it walks the whole heap fast")
def test_parents_come_first_however_deep_where_no_name_leads() -> None:
    head = chain(20_000)
    last = head
    while last:
        last = last[0]
    key = id(head)
    held = iter([head])
    del head
    result = walk(WalkRequest(roots=[], pinned=[last], full=True), engine="native")
    nodes = result.nodes
    assert all(parent < at for at, parent in enumerate(nodes.parent))
    assert key in map(id, nodes.objects)
    unlink(next(held))


def counted(result: WalkResult) -> dict[type, tuple[int, int, dict[str, int]]]:
    return {total.type: (total.count, total.bytes, total.payload_bytes) for total in result.types}


def population() -> list[Any]:
    text = "held twice"
    texts = [text, {"key of its own" * 2: text}]
    return [
        [1.5 * i for i in range(100)],
        {i + 10**6: str(i) * 3 for i in range(50)},
        texts,
        np.zeros(1000),
        np.array([[1.5], {2}], dtype=object),
        (1.5, b"bytes" * 3, 10**40, 1 + 2j),
        *([] if torch is None else [torch.ones(5)]),
    ]


def test_totals_by_type_count_every_object_under_its_own(engine: str) -> None:
    root = population()
    result = walk(WalkRequest(roots=[root], count_types=True), engine=engine)
    assert sum(total.count for total in result.types) == result.objects
    arrays = 8 * 1000 + 2 * 8
    assert sum(total.bytes for total in result.types) == result.heap_bytes + arrays
    seen: dict[int, Any] = {}
    waiting = [root, *root[4].tolist()]
    while waiting:
        value = waiting.pop()
        if id(value) not in seen and not isinstance(value, type | None):
            seen[id(value)] = value
            waiting += gc.get_referents(value)
    expected = Counter(type(o) for o in seen.values())
    found = counted(result)
    for kind in (list, dict, str, float, int, bytes, complex, tuple, set, np.ndarray):
        assert found[kind][0] == expected[kind], kind
    assert found[float][1] == expected[float] * sys.getsizeof(1.5)


@needs_torch
def test_a_storage_is_counted_once_for_the_type_that_reached_it_first(engine: str) -> None:
    weight = torch.nn.Parameter(torch.zeros(1000))
    shared = torch.zeros(500)
    roots: list[object] = [weight, shared, shared[100:], torch.nn.Parameter(shared)]
    result = walk(WalkRequest(roots=roots, count_types=True), engine=engine)
    payloads = {total.type: total.payload_bytes for total in result.types}
    assert payloads[torch.nn.Parameter] == {"host": 4000}
    assert payloads[torch.Tensor] == {"host": 2000}
    assert {kind for kind, payload in payloads.items() if payload["host"]} == {
        torch.nn.Parameter,
        torch.Tensor,
    }


def test_without_a_request_no_types_are_counted(engine: str) -> None:
    assert walk(WalkRequest(roots=[population()]), engine=engine).types == []


def test_hidden_objects_are_not_counted(engine: str) -> None:
    kind = type("Kind", (), {})
    hidden = [kind(), 1.5, "x" * 50]
    result = everything_of([[hidden, kind()]], engine, hidden=[hidden], count_types=True)
    assert counted(result)[kind][0] == 1
    assert float not in counted(result)


@needs_both
@given(nodes=heaps)
@settings(deadline=None)
def test_engines_agree_on_totals(nodes: list[Any]) -> None:
    root = [*nodes, population()]
    first, second = (everything_of([root], engine, count_types=True) for engine in ENGINES)
    assert counted(first) == counted(second)


@pytest.mark.slow
@needs_both
def test_engines_agree_on_totals_of_the_whole_heap() -> None:
    root = population()
    marker = type("Marker", (), {"__slots__": ("held",)})
    markers = [marker() for _ in range(321)]
    found = [
        counted(walk(WalkRequest(roots=[root], full=True, count_types=True), engine=engine))
        for engine in ENGINES
    ]
    for kind in (marker, np.ndarray, complex, type(np.add), type(sys)):
        assert found[0][kind] == found[1][kind], kind
    assert found[0][marker][0] == 321
    assert len(markers) == 321
