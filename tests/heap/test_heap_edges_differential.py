"""Edges against ``gc.get_referents``, for one object of every type that the process has."""

from __future__ import annotations

import gc
import io
import sys
import types
from collections.abc import Iterable
from typing import Any

import every_type
import numpy as np
import pytest
from optional_torch import torch

from leakscope.heap import graph
from leakscope.heap.graph import WalkRequest, WalkResult, walk

ENGINES = ["reference", *(["native"] if graph.engine_name() == "native" else [])]
PAYLOADS = (np.ndarray, np.void, io.StringIO, *(() if torch is None else (torch.Tensor,)))
SAVED = None if torch is None else torch._C._autograd.SavedTensor
NOTHING = {id(value) for value in (None, True, False, ..., NotImplemented)}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def is_cut(value: object) -> bool:
    """Types and modules are entered only where they are roots."""
    return issubclass(type(value), type | types.ModuleType)


def namespaces(value: Any) -> set[int]:
    """What an engine leaves out of a function or frame."""
    if type(value) is types.FunctionType:
        return {id(value.__globals__), id(value.__builtins__)}
    return {id(value.f_globals), id(value.f_builtins)} if type(value) is types.FrameType else set()


def has_payload(value: object) -> bool:
    """Whether an engine sees more of it than the collector does."""
    kind = type(value)
    if issubclass(kind, (dict, *PAYLOADS)) or is_graph_node(value):
        return True
    return any(base is SAVED for base in every_type.bases_of(kind))


def is_graph_node(value: object) -> bool:
    """Autograd nodes are walked and never named."""
    return any("next_functions" in every_type.names_of(b) for b in every_type.bases_of(type(value)))


def referents(value: object) -> dict[int, Any]:
    """Return what a walk must reach from an object in one step."""
    if type(value) is types.FrameType and sys.version_info < (3, 11):
        return {}  # what a running frame holds are roots; later the collector says nothing of it
    left_out = namespaces(value) | NOTHING | {id(value)}
    found = {id(r): r for r in gc.get_referents(value)}
    return {key: r for key, r in found.items() if key not in left_out and not is_cut(r)}


def one_step(value: object, engine: str) -> tuple[WalkResult, dict[int, Any]]:
    """Walk from an object no further than to its referents, and return these, too."""
    expected = referents(value)
    beyond = {
        id(further): further
        for r in expected.values()
        for further in gc.get_referents(r)
        if id(further) not in expected and further is not value and id(further) not in NOTHING
    }
    request = WalkRequest(
        roots=[value],
        barriers=list(beyond.values()),
        cutoff_bytes=0,
        max_selected=10**6,
        max_groups=1,
    )
    return walk(request, engine=engine), expected


def objects_of(values: Iterable[Any]) -> list[str]:
    return sorted(f"{type(v).__module__}.{type(v).__qualname__}" for v in values)


def differences(values: list[Any], engine: str) -> list[tuple[type, list[str], list[str]]]:
    """Return the types whose objects were entered otherwise: what was missed, what was invented."""
    wrong = []
    for value in values:
        result, expected = one_step(value, engine)
        reached = {id(o): o for o in result.nodes.objects if o is not value}
        missed = [r for k, r in expected.items() if k not in reached and not is_graph_node(r)]
        invented = [r for key, r in reached.items() if key not in expected]
        if has_payload(value) or any(map(has_payload, expected.values())):
            invented = []
        if missed or invented:
            wrong.append((type(value), objects_of(missed), objects_of(invented)))
    return wrong


def test_every_type_of_the_process_refers_to_what_the_collector_says(engine: str) -> None:
    values = every_type.found_in_this_process(1)
    assert len(values) > 300
    assert not differences(values, engine)


@pytest.mark.parametrize("name", [*every_type.SAMPLES, *every_type.WITH_ATTRIBUTES])
def test_an_object_refers_to_what_the_collector_says(engine: str, name: str) -> None:
    value = {**every_type.SAMPLES, **every_type.WITH_ATTRIBUTES}[name]()
    assert not differences([value], engine)


def test_edges_are_counted_one_for_each_reference(engine: str) -> None:
    number, text = 10.5, "a text"  # named twice: what has one name only needs no edge
    first, second = [number], {"a": text}
    root = [first, second, (first,), None, int]
    result = walk(WalkRequest(roots=[root]), engine=engine)
    assert (result.objects, result.edges) == (6, 6)


def test_a_wide_object_shows_all_its_edges(engine: str) -> None:
    items = [[i] for i in range(100_000)]
    result = walk(WalkRequest(roots=[items]), engine=engine)
    numbers = {id(i) for [i] in items}
    assert result.objects == 1 + len(items) + len(numbers)
