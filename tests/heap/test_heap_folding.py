"""A walk that folds what only one container holds answers as one that gives it nodes."""

from __future__ import annotations

import gc
import random
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from itertools import pairwise
from typing import Any

import pytest
from heap_programs import RunProgram
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leakscope.heap.graph import GraphBaseline, Seal, WalkRequest, WalkResult, can_seal, walk
from leakscope.model.census import CensusScope

pytestmark = pytest.mark.skipif(not can_seal(), reason="only the native walker folds")

NAMES = [sys.intern(f"a{i}") for i in range(500)]
"""Of attributes: of one without another reference CPython's cache of lookups may have one."""
LABELS = [f"label {i}" * (i + 1) for i in range(8)]
DAYS = [date(2026, 1, 1 + i) for i in range(8)]


class Plain:
    key: object


class Slots:
    __slots__ = ("__weakref__", "first", "second")


class Named(list[Any]):
    pass


def _atom(chance: random.Random) -> object:
    n = chance.randrange(1000, 10**6)
    kinds = [
        float(n),
        n,
        str(n),
        chance.choice(LABELS),
        n % 200,
        None,
        n + 1j,
        7**n if n < 1500 else n,
    ]
    kinds += ["x" * (n % 700), f"{n}\u20ac", bytes(n % 90), (), True]
    kinds += [chance.choice(DAYS), date(2026, 1, 1 + n % 31)]
    return chance.choice(kinds)


def _fill(chance: random.Random, container: Any, items: list[Any]) -> None:
    if isinstance(container, (list, deque)):
        container.extend(items)
    elif isinstance(container, dict):
        for item in items:
            key = chance.choice([f"key {chance.randrange(10**6)}", "id", "name", chance.random()])
            if type(item) is Plain and chance.random() < 0.3:
                item.key = key = f"own key {chance.randrange(10**6)}"
            elif type(item) is str and chance.random() < 0.5:
                key = item
            container[key] = item
    elif isinstance(container, set):
        container.update(item for item in items if type(item) in (str, float, int, bytes))
    elif isinstance(container, Slots):
        container.first, container.second = items[:1], tuple(items[1:])
    else:
        for i, item in enumerate(items):
            setattr(container, NAMES[i], item)


def graph(seed: int, size: int, tied: float) -> list[object]:
    """Return containers in each other, to whose objects mostly one refers.

    Args:
        seed: of what is chosen.
        size: how many containers there are.
        tied: the part of references that lead to just any container.

    """
    chance = random.Random(seed)
    kinds: list[Any] = [list, dict, list, dict, set, deque, Plain, Slots, Named, OrderedDict]
    kinds.append(lambda: defaultdict(list))
    containers = [[], *(chance.choice(kinds)() for _ in range(size))]
    items: dict[int, list[Any]] = {i: [] for i in range(len(containers))}
    for i in range(1, len(containers)):
        items[chance.randrange(max(1, i // 6), i) if i > 6 else 0].append(containers[i])
        while chance.random() < tied:
            items[chance.randrange(len(containers))].append(chance.choice(containers))
    for i, container in enumerate(containers):
        items[i] += [_atom(chance) for _ in range(chance.randrange(8))]
        if chance.random() < 0.1:
            items[i] = [tuple(items[i]), frozenset([chance.random()])]
        chance.shuffle(items[i])
        _fill(chance, container, items[i])
    some = chance.sample(range(1, len(containers)), min(2, size))
    return [containers[0], *(containers[i] for i in some)]


def _answer(result: WalkResult) -> dict[str, object]:
    """Return what a walk says, by the objects it says it of."""
    nodes, rows = result.nodes, {}
    name = [id(obj) for obj in nodes.objects]
    for i, obj in enumerate(nodes.objects):
        if not nodes.selected[i]:
            continue
        leaves = (int, float, str, bytes, tuple, date)
        groups = {g.type: g.count for g in nodes.holds[i] if g.type not in leaves}
        above, dominator = nodes.parent[i], nodes.dominator[i]
        rows[id(obj)] = (
            type(obj),
            nodes.host_bytes[i],
            nodes.reached_bytes[i],
            nodes.root[i],
            name[above] if above >= 0 else -1,
            name[dominator] if dominator >= 0 else -1,
            groups,
            sum(g.bytes for g in nodes.holds[i]),
            [name[other] for other in nodes.others[i]],
        )
    sums = (result.objects, result.heap_bytes, result.native_bytes, result.garbage_bytes)
    return {"sums": (*sums, result.elsewhere_bytes), "rows": rows}


def _both(request: WalkRequest, **kept: Any) -> tuple[dict[str, object], dict[str, object]]:
    folded = _answer(walk(replace(request, folds=True), **kept))
    return folded, _answer(walk(request, **kept))


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 30), st.integers(2, 120), st.sampled_from([0.0, 0.02, 0.1, 0.4]))
def test_sums_names_and_dominators_are_the_same(seed: int, size: int, tied: float) -> None:
    roots = graph(seed, size, tied)
    request = WalkRequest(roots, cutoff_bytes=600, max_selected=5000, max_groups=200)
    folded, unfolded = _both(request)
    assert folded == unfolded


def _sums(request: WalkRequest) -> tuple[int, int, int]:
    result = walk(request, seal=Seal())
    assert result.native_bytes is not None
    assert result.garbage_bytes is not None
    return result.heap_bytes, result.native_bytes, result.garbage_bytes


@pytest.mark.parametrize("seed", range(6))
def test_a_walk_of_everything_takes_nothing_in_it_for_held_elsewhere(seed: int) -> None:
    roots = graph(seed, 4000, 0.02)
    request = WalkRequest(roots, full=True, cutoff_bytes=600, max_selected=50)
    gc.collect()
    _sums(request)
    folded, unfolded = _sums(replace(request, folds=True)), _sums(request)
    differences = [abs(a - b) for a, b in zip(folded, unfolded, strict=True)]
    assert max(differences) < 4000


def test_what_is_new_in_folded_objects_is_not_elsewhere() -> None:
    baseline = GraphBaseline()
    mine: list[object] = []
    request = WalkRequest([mine], folds=True)
    walk(request, baseline=baseline)
    mine.extend({"id": n * 1000, "box": [n + 0.5, n * 1.5]} for n in range(20_000))
    for _ in range(3):
        result = walk(request, baseline=baseline)
        assert result.elsewhere_bytes is not None
        assert result.elsewhere_bytes < 200_000
        assert result.heap_bytes > 20_000 * 200
        gc.collect()
    assert walk(request).scratch_bytes < 20_000 * 30
    assert walk(replace(request, folds=False)).scratch_bytes > 20_000 * 100


def _plain(**attributes: object) -> Plain:
    plain = Plain()
    vars(plain).update(attributes)
    return plain


def _by_own_key(count: int) -> object:
    return {record.key: record for record in (_plain(key=f"own key {n}") for n in range(count))}


SHARING: dict[str, Callable[[int], object]] = {
    "objects of few days": lambda count: {(n * 1000, DAYS[n % 8]): n + 0.5 for n in range(count)},
    "records under a key of their own": _by_own_key,
    "texts under themselves": lambda count: {text: text for text in map(str, range(1000, count))},
    "records that refer to few others": lambda count: [
        [_plain(n=n) for n in range(8)],
        [[other, n + 0.5] for n, other in enumerate([_plain()] * count)],
    ],
    "records of one that nothing else refers to": lambda count: [
        _plain(of=other, n=n + 0.5) for n, other in enumerate([_plain(n=8)] * count)
    ],
}


@pytest.mark.parametrize("sharing", SHARING)
def test_records_that_refer_to_what_others_hold_too_are_folded(sharing: str) -> None:
    request = WalkRequest([SHARING[sharing](20_000)], folds=True)
    folded, unfolded = walk(request), walk(replace(request, folds=False))
    assert folded.heap_bytes == unfolded.heap_bytes
    assert folded.objects == unfolded.objects
    assert folded.scratch_bytes < 20_000 * 30


LEAKS = {
    "a list in what many records refer to": """
        class Session:
            def __init__(self):
                self.cache = []
        class Record:
            def __init__(self, i, session):
                self.id, self.session = i * 1000, session
        sessions = [Session() for _ in range(7)]
        records = [Record(i, sessions[i % 7]) for i in range(20_000)]
        del sessions
        look()
        for _ in range(4):
            records[3].session.cache.append(bytes(40_000))
            look()
    """,
    "a list in one of many dicts": """
        records = [{"id": i * 1000, "box": [i + 0.5], "cache": []} for i in range(20_000)]
        look()
        for _ in range(4):
            records[5]["cache"].append(bytes(40_000))
            look()
    """,
    "a dict in one of many objects": """
        class Record:
            def __init__(self, i):
                self.id = i * 1000
                self.cache = {}
        records = [Record(i) for i in range(20_000)]
        look()
        for n in range(4):
            records[7].cache.update({f"{n} {i}": i * 1000 for i in range(800)})
            look()
    """,
}


NAMES_OF_LEAKS = {
    "a list in what many records refer to": "records[*].session.cache",
    "a list in one of many dicts": "records[*]['cache']",
}


@pytest.mark.parametrize("scope", [CensusScope.FOCUSED, CensusScope.FULL], ids=["focused", "full"])
@pytest.mark.parametrize("leak", LEAKS)
def test_what_grows_deep_in_a_large_dataset_has_its_name(
    leak: str, scope: CensusScope, run_program: RunProgram
) -> None:
    taken = run_program(LEAKS[leak], scope=scope, cutoff_bytes=16384)
    name = NAMES_OF_LEAKS.get(leak, "records[*].cache")
    sizes = [
        next((row.host_bytes for row in census.rows if row.path.endswith(name)), 0)
        for census in taken.censuses
    ]
    assert sizes[0] == 0
    assert all(later - earlier > 30_000 for earlier, later in pairwise(sizes))


GROWING = {
    "items are replaced by larger ones": "records[i] = {'id': i * 1000, 'text': 'x' * (300 + n)}",
    "values grow": "records[i]['text'] += 'y' * 300",
    "each gets a list that is appended to": "records[i].setdefault('seen', []).append(i + 0.5)",
    "each gets an attribute": "records[i][f'key {len(records[i])}'] = [i + 0.5, (i * 1000,)]",
}


@pytest.mark.parametrize("scope", [CensusScope.FOCUSED, CensusScope.FULL], ids=["focused", "full"])
@pytest.mark.parametrize("change", GROWING)
def test_what_grows_all_over_a_large_dataset_is_weighed_to_the_byte(
    change: str, scope: CensusScope, run_program: RunProgram
) -> None:
    taken = run_program(
        f"""
        records = [{{"id": i * 1000, "text": "x" * (i % 50)}} for i in range(20_000)]
        look()
        for n in range(3):
            for i in range(n, len(records), 50):
                {GROWING[change]}
            look()
        """,
        scope=scope,
    )
    rows = [taken.row("records", census) for census in range(4)]
    assert all(later.host_bytes > row.host_bytes for row, later in pairwise(rows))
    assert rows[-1].length == 20_000
    contents = {content.type: content for content in rows[-1].holds}
    assert contents["dict"].count == 20_000
    owner = rows[-1].host_bytes - sum(content.bytes for content in rows[-1].holds)
    assert owner == pytest.approx(8 * 20_000, rel=0.2)


def test_folded_items_tell_who_else_holds_what_they_refer_to(run_program: RunProgram) -> None:
    taken = run_program(
        """
        texts = [f"{i} " * 300 for i in range(2000)]
        class Store:
            def __init__(self):
                self.texts = {i: {"text": texts[i], "n": i * 1000} for i in range(2000)}
        store, cache = Store(), [{"key": i * 1000, "of": [texts[i]]} for i in range(2000)]
        del texts
        look()
        """
    )
    rows = {row.name: row for row in taken.last.rows}
    assert rows["cache"].also_held_by == ["Store.texts"] or rows["Store.texts"].also_held_by == [
        "cache"
    ]


def test_later_full_censuses_count_folded_objects_once(run_program: RunProgram) -> None:
    taken = run_program(
        """
        numbers = [i + 0.5 for i in range(1_000_000)]
        for _ in range(3):
            look()
        """,
        scope=CensusScope.FULL,
    )
    first, *later = (census.objects for census in taken.censuses)
    assert first > 1_000_000
    assert later == [pytest.approx(first, abs=400_000)] * 2
