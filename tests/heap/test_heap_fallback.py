"""The walker for where nothing was compiled: names and sizes as the native one has, no more."""

from __future__ import annotations

import collections
import io
from typing import Any

import pytest
from heap_programs import RunProgram
from hypothesis import given, settings
from hypothesis import strategies as st
from payloads import KB, payload, retained, seen

from leakscope.heap import graph
from leakscope.heap.graph import WalkRequest, walk
from leakscope.model.census import Census, CensusRow, CensusScope

needs_native = pytest.mark.skipif(
    graph.engine_name() != "native", reason="the native engine is not built"
)
SAME = ("parent", "root", "dominator", "selected", "shallow_bytes", "host_bytes", "device_bytes")
PROGRAM = """
import numpy as np
import torch

class Trainer:
    def __init__(self):
        self.model = torch.nn.Linear(200, 100)
        self.history = []
        self.texts = {f"text {i}" * 20: None for i in range(1000)}
        self.arrays = [np.zeros(5000) for _ in range(10)]

trainer = Trainer()
for _ in range(10):
    trainer.history.append({"loss": trainer.model(torch.randn(50, 200)).mean()})
shared = torch.from_numpy(trainer.arrays[0])
images = [bytearray(50_000) for _ in range(20)]
look()
"""


@needs_native
@given(
    st.lists(st.sampled_from(["list", "dict", "deque"]), min_size=2, max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30),
)
@settings(max_examples=80, deadline=None)
def test_it_names_and_weighs_what_the_native_engine_does(
    kinds: list[str], edges: list[tuple[int, int]]
) -> None:
    makers: dict[str, Any] = {"list": list, "dict": dict, "deque": collections.deque}
    nodes = [makers[kind]() for kind in kinds]
    for key, (source, target) in enumerate(edges):
        holder, value = nodes[source % len(nodes)], nodes[target % len(nodes)]
        if isinstance(holder, dict):
            holder[key] = value
        else:
            holder.append(value)
    for holder in nodes:
        text = bytes(5 * KB)
        holder.update({"text": text}) if isinstance(holder, dict) else holder.append(text)
    request = WalkRequest(roots=[nodes[0], nodes[-1]], cutoff_bytes=0, max_selected=1000)
    fallback, native = (walk(request, engine=engine).nodes for engine in ("reference", "native"))
    assert [id(value) for value in fallback.objects] == [id(value) for value in native.objects]
    for column in SAME:
        assert getattr(fallback, column) == getattr(native, column), column


@needs_native
@pytest.mark.parametrize("scope", [CensusScope.FOCUSED, CensusScope.FULL])
def test_a_census_has_the_rows_of_the_native_one(
    scope: CensusScope, run_program: RunProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    native = run_program(PROGRAM, scope=scope).last
    monkeypatch.setattr(graph, "_native", None)
    fallback = run_program(PROGRAM, scope=scope).last
    assert fallback.walker == "reference"

    def rows(census: Census) -> dict[str, CensusRow]:
        return {row.path: row for row in census.rows if row.user and row.root != "garbage"}

    assert rows(fallback).keys() == rows(native).keys()
    for path, row in rows(native).items():
        found = rows(fallback)[path]
        assert (found.count, found.length) == (row.count, row.length), path
        # Numbers that a dict of an instance has itself are shared or not: some bytes each.
        assert found.host_bytes == pytest.approx(row.host_bytes, rel=0.01), path
    assert {"Trainer.history", "Trainer.texts", "images"} <= {row.name for row in fallback.rows}
    assert (fallback.native_bytes is None) == (native.native_bytes is None)


def test_memory_that_torch_and_numpy_share_counts_once() -> None:
    np, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    array = np.zeros(KB, dtype="u1")
    assert payload("reference", [array, torch.from_numpy(array)])["host"] < 2 * KB


def test_what_it_does_not_look_for_is_left_empty() -> None:
    items = [bytearray(3 * KB) for _ in range(10)]
    first, second = list(items), list(items)
    text = io.StringIO()
    text.write("some text" * KB)
    text.seek(0)
    result = seen("reference", first, second, text, keep_graph=True)
    assert result.graph is None
    assert not any([*result.nodes.holders, *result.nodes.circle, *result.nodes.unused_bytes])
    assert retained(result, text) < KB
    assert result.elsewhere_bytes is None
