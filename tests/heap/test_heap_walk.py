"""Both engines: what is reached, what it retains, how it is answered."""

from __future__ import annotations

import gc
import sys
from collections import OrderedDict, deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakscope.heap import graph
from leakscope.heap.graph import GARBAGE, NATIVE, WalkRequest, WalkResult, walk

ENGINES = ["reference", *(["native"] if graph.engine_name() == "native" else [])]
COLUMNS = [
    "parent",
    "root",
    "dominator",
    "selected",
    "shallow_bytes",
    "host_bytes",
    "device_bytes",
    "reached_bytes",
    "graph_nodes",
    "keeps_graph",
    "holds",
]


class Slotted:
    __slots__ = ("__weakref__", "a", "b")


def everything_of(roots: list[object], engine: str, **options: Any) -> WalkResult:
    limits = {"cutoff_bytes": 0, "max_selected": 10_000, "max_depth": 60_000, "max_groups": 100}
    return walk(WalkRequest(roots=roots, **{**limits, **options}), engine=engine)


def retained_of(result: WalkResult) -> dict[int, int]:
    return {id(o): b for o, b in zip(result.nodes.objects, result.nodes.host_bytes, strict=True)}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def build(kinds: list[str], edges: list[tuple[int, int]]) -> list[Any]:
    makers = {"list": list, "dict": dict, "slots": Slotted, "deque": deque}
    nodes = [makers[kind]() for kind in kinds]
    for key, (source, target) in enumerate(edges):
        source, target = source % len(nodes), target % len(nodes)
        holder, value = nodes[source], nodes[target]
        if isinstance(holder, dict):
            holder[key % 250] = value
        elif isinstance(holder, Slotted):
            setattr(holder, "ab"[key % 2], value)
        else:
            holder.append(value)
    return nodes


heaps = st.builds(
    build,
    st.lists(st.sampled_from(["list", "dict", "slots", "deque"]), min_size=1, max_size=14),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=40),
)


def reached_from(roots: list[Any], without: object = None) -> dict[int, Any]:
    seen: dict[int, Any] = {}
    waiting = list(roots)
    while waiting:
        value = waiting.pop()
        if value is not without and id(value) not in seen and type(value) is not type:
            seen[id(value)] = value
            waiting += [r for r in gc.get_referents(value) if type(r) is not int]
    return seen


@pytest.mark.parametrize("engine", ENGINES)
@given(nodes=heaps, count=st.integers(1, 3))
@settings(deadline=None)
def test_retained_is_what_would_be_freed(engine: str, nodes: list[Any], count: int) -> None:
    roots = nodes[:count]
    found = retained_of(everything_of(roots, engine))
    everything = reached_from(roots)
    for key, value in everything.items():
        left = reached_from([r for r in roots if r is not value], without=value)
        freed = [o for k, o in everything.items() if k not in left]
        assert found[key] >= sum(map(sys.getsizeof, freed))
        numbers = {id(k) for o in freed if isinstance(o, dict) for k in o}
        assert found[key] <= sum(map(sys.getsizeof, freed)) + 28 * len(numbers)
    assert {k for k, v in zip(found, found.values(), strict=True)} >= set(everything)


@pytest.mark.skipif(len(ENGINES) < 2, reason="the native engine is not built")
@given(nodes=heaps, count=st.integers(1, 3))
@settings(deadline=None)
def test_engines_agree_on_every_column(nodes: list[Any], count: int) -> None:
    first, second = (everything_of(nodes[:count], engine) for engine in ENGINES)
    assert first.objects == second.objects
    assert first.heap_bytes == second.heap_bytes
    assert [id(o) for o in first.nodes.objects] == [id(o) for o in second.nodes.objects]
    for column in COLUMNS:
        assert getattr(first.nodes, column) == getattr(second.nodes, column), column


def test_a_shared_object_belongs_to_neither_holder(engine: str) -> None:
    shared = [bytes(50_000)]
    left, right = [shared], [shared]
    found = retained_of(everything_of([left, right], engine))
    assert found[id(left)] == sys.getsizeof(left)
    assert found[id(shared)] == sys.getsizeof(shared) + sys.getsizeof(shared[0])


def test_a_parent_comes_before_its_child_and_names_it(engine: str) -> None:
    root = {"a": [[bytes(30_000)]]}
    nodes = walk(WalkRequest(roots=[root], cutoff_bytes=20_000), engine=engine).nodes
    assert [type(o) for o in nodes.objects] == [dict, list, list, bytes]
    assert nodes.parent == [-1, 0, 1, 2]
    assert nodes.dominator == [-1, 0, 1, 2]
    assert nodes.root == [0] * 4


def test_the_first_name_of_a_shared_object_has_what_it_reaches(engine: str) -> None:
    shared = bytes(30_000)
    first, second = [shared], [shared]
    nodes = walk(WalkRequest(roots=[first, second], cutoff_bytes=20_000), engine=engine).nodes
    assert [o is expected for o, expected in zip(nodes.objects, (first, shared), strict=True)]
    assert nodes.host_bytes[0] == sys.getsizeof(first)
    assert nodes.reached_bytes[0] == {"host": sys.getsizeof(first) + sys.getsizeof(shared)}


def test_a_later_stage_only_adds_what_it_alone_reaches(engine: str) -> None:
    part = [bytes(30_000)]
    whole, local = [[[part]]], part
    result = everything_of([whole, local], engine, stages=[1])
    assert retained_of(result)[id(whole)] == result.heap_bytes
    together = everything_of([whole, local], engine)
    assert retained_of(together)[id(whole)] < 1000


def test_late_types_name_only_what_nothing_else_does(engine: str) -> None:
    data, own, late = [bytes(30_000)], [bytes(40_000)], Slotted()
    late.a, late.b = data, own
    nodes = everything_of([[late], [[[data]]]], engine, late_types=(Slotted,)).nodes
    parents = {id(o): nodes.objects[p] for o, p in zip(nodes.objects, nodes.parent, strict=True)}
    assert type(parents[id(data)]) is list
    assert parents[id(own)] is late


def test_what_a_container_holds_is_grouped_by_type(engine: str) -> None:
    root = [[1.5 * i, str(i) * 30, (i, [i])] for i in range(500)]
    nodes = walk(WalkRequest(roots=[root], cutoff_bytes=20_000), engine=engine).nodes
    [group] = nodes.holds[0]
    assert (group.type, group.count) == (list, 500)
    assert group.bytes == nodes.host_bytes[0] - sys.getsizeof(root)
    assert all(any(s is item for item in root) for s in group.samples)


def test_a_container_of_numbers_and_texts_says_so(engine: str) -> None:
    root = [float(i) for i in range(1000)] + [f"text {i}" for i in range(1000)]
    nodes = walk(WalkRequest(roots=[root], cutoff_bytes=20_000), engine=engine).nodes
    assert {(g.type, g.count) for g in nodes.holds[0]} == {(float, 1000), (str, 1000)}
    assert nodes.host_bytes[0] == sum(map(sys.getsizeof, [root, *root]))


def test_the_heaviest_are_kept_when_there_are_too_many(engine: str) -> None:
    root = [bytearray(20_000 + 100 * i) for i in range(50)]
    request = WalkRequest(roots=[root], cutoff_bytes=10_000, max_selected=4)
    nodes = walk(request, engine=engine).nodes
    assert sorted(len(o) for o in nodes.objects if o is not root) == [24_700, 24_800, 24_900]


def test_many_heavy_items_of_one_list_hide_no_lighter_list(engine: str) -> None:
    dataset = [[bytearray(20_000)] for _ in range(500)]
    gathers = [bytes(100) for _ in range(100)]
    request = WalkRequest(roots=[dataset, gathers], cutoff_bytes=5_000, max_selected=200)
    nodes = walk(request, engine=engine).nodes
    found = {id(o) for o, chosen in zip(nodes.objects, nodes.selected, strict=True) if chosen}
    assert len(found) == 200
    assert {id(dataset), id(gathers)} <= found
    items = sum(id(item) in found for item in dataset)
    assert items == 200 - len([dataset, gathers]) - 64  # with what lies in the first 64


def test_what_the_user_holds_leaves_places_for_what_libraries_hold(engine: str) -> None:
    dataset = [bytearray(20_000) for _ in range(500)]
    registry = [bytearray(200_000) for _ in range(100)]
    request = WalkRequest(
        roots=[dataset, registry], library_from=1, full=True, cutoff_bytes=5_000, max_selected=100
    )
    nodes = walk(request, engine=engine).nodes
    found = {id(o) for o, chosen in zip(nodes.objects, nodes.selected, strict=True) if chosen}
    assert id(registry) in found
    assert sum(id(item) in found for item in [dataset, *dataset]) == 100
    assert len(found) == 125


def test_types_modules_and_globals_are_not_entered(engine: str) -> None:
    def function() -> None: ...

    result = everything_of([[function, sys, Slotted, gc.collect]], engine)
    found = {id(o) for o in result.nodes.objects}
    assert id(function) in found
    assert not {id(sys), id(Slotted), id(globals()), id(vars(sys))} & found


def test_a_class_is_entered_where_it_is_a_root(engine: str) -> None:
    kind = type("Kind", (), {"cache": [bytes(30_000)]})
    found = retained_of(everything_of([kind], engine))
    assert found[id(kind.cache)] > 30_000  # type: ignore[attr-defined]


def test_barriers_and_hidden_objects_are_left_out(engine: str) -> None:
    barrier, hidden = [bytes(30_000)], [bytes(40_000)]
    result = everything_of([[barrier, hidden]], engine, barriers=[barrier], hidden=[hidden])
    assert result.heap_bytes < 10_000


def test_plain_paths_are_preferred_to_closures(engine: str) -> None:
    data = [bytes(30_000)]

    def closure() -> list[bytes]:
        return data

    holder = [closure, [[[data]]]]
    nodes = walk(WalkRequest(roots=[holder], cutoff_bytes=20_000), engine=engine).nodes
    at = next(i for i, o in enumerate(nodes.objects) if o is data)
    assert type(nodes.objects[nodes.parent[at]]) is list


def test_a_long_linked_list_is_walked_and_only_its_head_named(engine: str) -> None:
    head: list[Any] = []
    for _ in range(200_000 if engine == "native" else 20_000):
        head = [head]
    result = walk(WalkRequest(roots=[head], cutoff_bytes=1000), engine=engine)
    assert result.nodes.host_bytes[0] == result.heap_bytes
    assert len(result.nodes.objects) == 65
    while head:  # unlinked by hand: its deallocation would nest
        head = head[0]


@pytest.mark.skipif(len(ENGINES) < 2, reason="the native engine is not built")
def test_a_huge_dict_needs_hardly_any_scratch() -> None:
    root = {i + 10**6: i + 10**7 for i in range(1_000_000)}
    result = walk(WalkRequest(roots=[root], cutoff_bytes=1000), engine="native")
    assert result.objects == 2_000_001
    assert result.nodes.host_bytes[0] == sys.getsizeof(root) + 2_000_000 * 28
    assert result.scratch_bytes < 1 << 20


def test_containers_weigh_what_getsizeof_says(engine: str) -> None:
    values = [
        [1, 2, 3],
        (1, 2),
        {"a": 1},
        {1, 2, 3},
        frozenset({1}),
        deque([1, 2]),
        OrderedDict(a=1),
        bytearray(100),
        b"bytes",
        "latin \xe9",
        "text",
        10**50,
        1.5,
        Slotted(),
        range(3),
        iter([1]),
        lambda: 0,
    ]
    nodes = everything_of(values, engine).nodes
    weights = {id(o): s for o, s in zip(nodes.objects, nodes.shallow_bytes, strict=True)}
    for value in values:
        assert weights[id(value)] == sys.getsizeof(value), type(value)


SLOW_IN_PYTHON = [
    pytest.param(e, marks=pytest.mark.slow if e == "reference" else ()) for e in ENGINES
]


@pytest.mark.parametrize("engine", SLOW_IN_PYTHON)
class TestFull:
    """The rest of the heap: library, native-held, garbage."""

    def full(self, roots: list[object], engine: str, **options: Any) -> WalkResult:
        return walk(WalkRequest(roots=roots, full=True, **options), engine=engine)

    def root_of(self, result: WalkResult, value: object) -> int:
        nodes = result.nodes
        return next(r for o, r in zip(nodes.objects, nodes.root, strict=True) if o is value)

    def test_rows_of_the_user_are_those_of_a_focused_walk(self, engine: str) -> None:
        mine, theirs = [bytes(50_000), [1, 2]], [bytes(90_000)]
        theirs.append(mine)  # type: ignore[arg-type]
        full = self.full([mine, theirs], engine, library_from=1)
        focused = walk(WalkRequest(roots=[mine]), engine=engine)
        assert retained_of(full)[id(mine)] == retained_of(focused)[id(mine)]
        assert retained_of(full)[id(theirs)] < 100_000
        assert self.root_of(full, theirs) == 1

    def test_a_cycle_that_nothing_reaches_is_garbage(self, engine: str) -> None:
        gc.collect()
        gc.disable()
        try:
            cycle: list[Any] = [bytes(3_000_000)]
            cycle.append(cycle)
            key = id(cycle)
            del cycle
            result = self.full([], engine)
            at = next(i for i, o in enumerate(result.nodes.objects) if id(o) == key)
            assert result.nodes.root[at] == GARBAGE
            assert result.garbage_bytes is not None
            assert 3_000_000 < result.garbage_bytes < 3_100_000
        finally:
            del result
            gc.enable()
            gc.collect()

    def test_what_only_native_code_holds_is_distinguished_from_garbage(self, engine: str) -> None:
        import functools

        call = functools.partial(print, [bytes(3_000_000)])
        data = call.args[0]
        kept = iter(call.args)  # the only other name is this running frame's, which the
        del call  # collector's objects don't show: a reference the walk can't find
        result = self.full([], engine)
        assert self.root_of(result, data) == NATIVE
        assert result.native_bytes is not None
        assert result.native_bytes >= 3_000_000
        del kept
