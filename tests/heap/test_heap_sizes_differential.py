"""Sizes against three oracles: ``sys.getsizeof``, what tracemalloc saw allocated, and pympler."""

from __future__ import annotations

import ctypes
import decimal
import gc
import io
import itertools
import mmap
import pickle
import random
import sys
import tracemalloc
import types
import xml.etree.ElementTree as ET
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import every_type
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from optional_torch import needs_torch, torch
from pympler import asizeof

from leakscope.heap import graph
from leakscope.heap.graph import WalkRequest, WalkResult, walk

ENGINES = ["reference", *(["native"] if graph.engine_name() == "native" else [])]
INLINE_VALUES = sys.version_info >= (3, 11)
"""Attributes live in an array of the instance's, which ``sys.getsizeof`` leaves out."""
MOST_INLINE_BYTES = 8 * 31 + 32
_MANAGED_DICT = 1 << 4
_HEAP_TYPE = 1 << 9
_C_METHOD = types.MethodDescriptorType
_CTYPES_DATA = ctypes.Array.__base__


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def seen(roots: list[Any], engine: str) -> WalkResult:
    """Walk, and select all the roots and nothing else."""
    request = WalkRequest(
        roots=roots, cutoff_bytes=0, max_selected=len(roots), max_depth=0, max_groups=1
    )
    return walk(request, engine=engine)


def weight_of(value: object, engine: str) -> int:
    return seen([value], engine).nodes.shallow_bytes[0]


@pytest.mark.parametrize("name", every_type.SAMPLES)
def test_an_object_weighs_what_getsizeof_says(engine: str, name: str) -> None:
    value = every_type.SAMPLES[name]()
    expected = sys.getsizeof(value) + every_type.PAYLOAD.get(name, 0) - _distinguished(value)
    if INLINE_VALUES and engine == "native" and every_type.flags_of(type(value)) & _MANAGED_DICT:
        assert expected <= weight_of(value, engine) <= expected + MOST_INLINE_BYTES
    else:
        assert weight_of(value, engine) == expected


@pytest.mark.parametrize("name", every_type.WITH_ATTRIBUTES)
def test_an_instance_weighs_what_getsizeof_says_and_its_values(engine: str, name: str) -> None:
    value = every_type.WITH_ATTRIBUTES[name]()
    most = MOST_INLINE_BYTES if INLINE_VALUES and engine == "native" else 0
    size = sys.getsizeof(value)
    assert size <= weight_of(value, engine) <= size + most


def test_every_type_of_the_process_weighs_what_getsizeof_says(engine: str) -> None:
    values = every_type.found_in_this_process()
    nodes = seen(values, engine).nodes
    weights = dict(zip(map(id, nodes.objects), nodes.shallow_bytes, strict=True))
    wrong = [
        (type(value), weights[id(value)], expected)
        for value in values
        if id(value) in weights  # autograd nodes are not named
        and (expected := _getsizeof(value)) is not None
        and not 0 <= weights[id(value)] - expected <= _inline_bytes(value, engine)
    ]
    assert len({id(type(v)) for v in values}) > 300
    assert not wrong


def _distinguished(value: object) -> int:
    """Return what an object's own size counts that its traversal tells of too."""
    tells = isinstance(value, io.BytesIO) and any(
        type(referent) is bytes for referent in gc.get_referents(value)
    )
    return value.__sizeof__() - object.__sizeof__(value) if tells else 0


def _getsizeof(value: Any) -> int | None:
    """Return what the interpreter says of a size; None where it isn't that of the memory."""
    kind = type(value)
    if issubclass(kind, (np.generic, np.ndarray, io.StringIO, _CTYPES_DATA)):
        return None  # with data that they own
    if _has_sizer_of_its_own(kind):
        return None
    if issubclass(kind, type) and not every_type.flags_of(value) & _HEAP_TYPE:
        return type.__sizeof__(value)  # no collector's header stands before it
    return sys.getsizeof(value) - _distinguished(value)


def _has_sizer_of_its_own(kind: type) -> bool:
    names = [every_type.names_of(base) for base in every_type.bases_of(kind)]
    nearest = next(n for n in names if "__sizeof__" in n)
    of_ctypes = nearest.get("__module__") == "_ctypes"  # from 3.13 on without the class itself
    return of_ctypes or type(nearest["__sizeof__"]) is not _C_METHOD


def _inline_bytes(value: object, engine: str) -> int:
    may = INLINE_VALUES and engine == "native" and every_type.flags_of(type(value)) & _MANAGED_DICT
    return MOST_INLINE_BYTES if may else 0


class TestWhatIsAllocated:
    """What a walk adds up against the bytes that tracemalloc saw come into being."""

    def grown(self, make: Callable[[], Any], engine: str) -> tuple[int, int]:
        """Return the bytes that were allocated for a hundred objects, and what they weigh."""
        make()
        kept: list[Any] = [None] * 100
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for i in range(100):
                kept[i] = make()
            allocated = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        result = walk(WalkRequest(roots=[kept]), engine=engine)
        return allocated, result.heap_bytes - sys.getsizeof(kept)

    @pytest.mark.parametrize("attributes", [0, 1, 3, 8, 20])
    def test_instances_and_their_attributes(self, attributes: int) -> None:
        if len(ENGINES) < 2:
            pytest.skip("the native engine is not built")
        kind = type("Kind", (), {})
        names = [f"attribute_{i}" for i in range(attributes)]

        def make() -> object:
            item = kind()
            for name in names:
                setattr(item, name, None)
            return item

        for _ in range(5):
            make()  # the keys that instances share find their size
        spare = [{} for _ in range(200)]  # so that no dict comes out of the interpreter's stock
        allocated, weight = self.grown(make, "native")
        del spare
        assert weight == pytest.approx(allocated, abs=100 * 16)

    @pytest.mark.parametrize(
        "make",
        [
            lambda: [float(i) for i in range(1000)],
            lambda: {i + 0.5: bytes(i) for i in range(100)},
            lambda: (bytes(1000), bytearray(1000), 10**4000),
            lambda: {f"key {i}" for i in range(100)},
            lambda: deque(bytes(100) for _ in range(500)),
            lambda: OrderedDict((str(i), bytes(i)) for i in range(100)),
        ],
        ids=["list", "dict", "tuple", "set", "deque", "OrderedDict"],
    )
    def test_containers(self, make: Callable[[], Any], engine: str) -> None:
        allocated, weight = self.grown(make, engine)
        assert weight == pytest.approx(allocated, rel=0.02)  # free lists hide a little


keys = st.one_of(st.integers(-(10**30), 10**30), st.floats(allow_nan=False), st.binary(max_size=60))
atoms = st.one_of(keys, st.text(max_size=40))
trees = st.recursive(
    atoms,
    lambda child: st.one_of(
        st.lists(child, max_size=6),
        st.lists(child, max_size=6).map(tuple),
        st.dictionaries(keys, child, max_size=6),
        st.lists(atoms, max_size=0).map(deque),  # asizeof doesn't look into others
        st.dictionaries(st.text(max_size=5), child, max_size=4).map(OrderedDict),
        st.sets(atoms, max_size=6),
        st.frozensets(atoms, max_size=6),
        st.binary(max_size=50).map(bytearray),
        st.complex_numbers(allow_nan=False),
    ),
    max_leaves=60,
)


class TestAgainstPympler:
    """What a root retains against ``asizeof``, which follows references in its own way."""

    @pytest.mark.parametrize("engine", ENGINES)
    @given(tree=trees)
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_a_tree_retains_what_asizeof_adds_up(self, engine: str, tree: object) -> None:
        root = [tree]
        assert self.retained(root, engine) == asizeof.asizeof(root, align=1)

    @pytest.mark.parametrize("engine", ENGINES)
    @given(parts=st.lists(trees, min_size=1, max_size=5), order=st.randoms(use_true_random=False))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_what_is_shared_inside_is_counted_once(
        self, engine: str, parts: list[Any], order: random.Random
    ) -> None:
        holders: list[list[Any]] = [[] for _ in range(4)]
        for _ in range(12):
            order.choice(holders).append(order.choice([*parts, *holders]))
        root = [*holders, parts[0]]
        assert self.retained(root, engine) == asizeof.asizeof(root, align=1)

    @pytest.mark.skipif(INLINE_VALUES, reason="asizeof knows nothing of values within an instance")
    def test_instances(self, engine: str) -> None:
        item = every_type.Plain()
        item.first, item.second = [1.5], "text"  # type: ignore[attr-defined]
        names = sum(map(sys.getsizeof, vars(item)))  # those of attributes belong to the code
        assert self.retained([item], engine) == asizeof.asizeof([item], align=1) - names

    def test_slots(self, engine: str) -> None:
        item = every_type.Slotted()
        item.a, item.b = [bytes(1000)], {2.5: "text"}
        assert self.retained([item], engine) == asizeof.asizeof([item], align=1)

    def retained(self, root: list[Any], engine: str) -> int:
        result = walk(WalkRequest(roots=[root], cutoff_bytes=0), engine=engine)
        assert result.nodes.host_bytes[0] == result.heap_bytes
        return result.heap_bytes


def _element() -> ET.Element:
    parent = ET.Element("parent")
    for _ in range(50):
        ET.SubElement(parent, "child")
    return parent


def _pickler() -> pickle.Pickler:
    pickler = pickle.Pickler(io.BytesIO())
    pickler.dump([str(i) for i in range(1000)])
    return pickler


THEMSELVES: dict[str, Callable[[], Any]] = {
    "long Decimal": lambda: decimal.Decimal("1" * 500),
    "product": lambda: itertools.product(*[range(3)] * 10),
    "combinations": lambda: itertools.combinations(range(30), 9),
    "permutations": lambda: itertools.permutations(range(30), 9),
    "Element": _element,
    "Pickler": _pickler,
    "record": lambda: np.void(bytes(800)),
}


@pytest.mark.parametrize("name", THEMSELVES)
def test_memory_that_a_c_type_sizes_itself_is_counted(engine: str, name: str) -> None:
    value = THEMSELVES[name]()
    assert weight_of(value, engine) >= sys.getsizeof(value) - 24


def test_texts_that_are_keys_of_a_dict_are_counted(engine: str) -> None:
    names = {f"sample {i}": None for i in range(1000)}
    found = walk(WalkRequest(roots=[names]), engine=engine).heap_bytes
    assert found == sys.getsizeof(names) + sum(map(sys.getsizeof, names))


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_an_array_weighs_what_getsizeof_says(engine: str, dimensions: int) -> None:
    array = np.zeros((5,) * dimensions)
    assert weight_of(array, engine) == sys.getsizeof(array)


@needs_torch
def test_a_storage_without_a_tensor_weighs_its_memory(engine: str) -> None:
    storage = torch.zeros(10_000).untyped_storage()
    result = seen([[storage]], engine)
    assert result.payload_bytes == {"host": 40_000}
    assert result.nodes.host_bytes[0] > 40_000


def test_a_mapping_of_the_system_is_not_taken_for_heap(engine: str) -> None:
    with mmap.mmap(-1, 1 << 20) as mapping:
        assert weight_of(mapping, engine) == sys.getsizeof(mapping) < 1000
        assert seen([mapping], engine).heap_bytes < 1000
