"""The process after a census is the process before: counts, collector, allocator, frames, modes."""

from __future__ import annotations

import collections
import contextlib
import gc
import random
import sys
import threading
import tracemalloc
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import every_type
import numpy as np
import pytest
from optional_torch import needs_torch, torch

from leakscope.heap import CensusTaker, graph
from leakscope.heap.graph import WalkRequest, walk
from leakscope.model.census import CensusScope

FULL, FOCUSED = CensusScope.FULL, CensusScope.FOCUSED
pytestmark = pytest.mark.skipif(
    graph.engine_name() != "native", reason="the native engine is not built"
)

Look = Callable[[], object]


def new_look(kind: str) -> Look:
    """Return a call that looks at the heap and keeps nothing, warmed up."""
    taker = CensusTaker(project_root=str(Path(__file__).parent))
    looks: dict[str, Look] = {
        "walk": lambda: walk(WalkRequest(roots=[HELD], cutoff_bytes=0)) and None,
        "full walk": lambda: walk(WalkRequest(roots=[HELD], full=True)) and None,
        "focused census": lambda: taker.take(FOCUSED) and None,
        "full census": lambda: taker.take(FULL) and None,
    }
    for _ in range(3):
        looks[kind]()
    gc.collect()
    return looks[kind]


@pytest.fixture(params=["walk", "full walk", "focused census", "full census"])
def look(request: pytest.FixtureRequest) -> Look:
    return new_look(request.param)


class Plain:
    pass


class Slotted:
    __slots__ = ("__weakref__", "held")


def _kept_outputs() -> list[Any]:
    layer = torch.nn.Linear(4, 4)
    return [layer(torch.ones(1, 4)).exp().sum() for _ in range(3)]


HELD: dict[str, Any] = {
    "plain": Plain(),
    "slotted": Slotted(),
    "containers": [[], (1.5, []), {1: []}, {1.5}, collections.deque([[]])],
    "arrays": [np.zeros(10), np.zeros((3, 3))[1:], np.empty(2, dtype=object)],
    "samples": {name: make() for name, make in every_type.SAMPLES.items() if name != "frame"},
    "instances": {name: make() for name, make in every_type.WITH_ATTRIBUTES.items()},
    "classes": [Plain, Slotted, type("Made", (), {"held": []}), dict, type],
    "modules": [sys, np, collections],
    "codes": [_kept_outputs.__code__, Path.exists.__code__],
    "functions": [_kept_outputs, Path.exists, len, np.zeros],
    "tensors": [],
    "outputs": [],
}
HELD["plain"].held = HELD["slotted"].held = []
if torch is not None:
    HELD["tensors"] += [torch.zeros(10), torch.zeros(10)[3:], torch.nn.Parameter(torch.zeros(3))]
    HELD["outputs"] += _kept_outputs()
    HELD["classes"].append(torch.nn.Module)
    HELD["modules"].append(torch)
    HELD["functions"].append(torch.zeros)


def counts_of(values: list[Any]) -> list[int]:
    return [sys.getrefcount(value) for value in values]


def flattened() -> list[Any]:
    """Return everything in HELD, and the types and modules of the process that matter most.

    Without numbers and the empty text: the interpreter shares them with any table or row that is
    made or freed.
    """
    values: list[Any] = [HELD]
    for held in HELD.values():
        values.append(held)
        if type(held) in (list, dict):
            values += held.values() if type(held) is dict else held
    gradients = [output.grad_fn for output in HELD["outputs"]]
    types = [type(value) for value in values]
    found = [*values, *types, *gradients, *sys.modules.values()]
    return [v for v in found if type(v) is not int and not (type(v) is str and not v)]


def test_reference_counts_of_objects_of_every_type(look: Look) -> None:
    values = flattened()
    look()  # what is known of the code that runs here is kept
    before = counts_of(values)
    look()
    after = counts_of(values)
    changed = zip(values, before, after, strict=True)
    assert [(type(v), b, a) for v, b, a in changed if a != b] == []


def test_reference_counts_of_an_object_of_every_type_of_the_process(look: Look) -> None:
    values = [v for v in every_type.found_in_this_process(2) if gc.is_tracked(v)]
    assert len(values) > 300
    look()
    before = counts_of(values)
    look()
    after = counts_of(values)
    changed = zip(values, before, after, strict=True)
    assert [(type(v), b, a) for v, b, a in changed if a != b] == []


class TestCollector:
    """Switched on or off, its counts, statistics and generations."""

    @pytest.mark.parametrize("enabled", [True, False])
    def test_switch_thresholds_and_debug_flags(self, look: Look, enabled: bool) -> None:
        def state() -> tuple[Any, ...]:
            return gc.isenabled(), gc.get_threshold(), gc.get_debug(), len(gc.callbacks)

        was = gc.isenabled()
        (gc.enable if enabled else gc.disable)()
        try:
            before = state()
            look()
            assert state() == before
        finally:
            (gc.enable if was else gc.disable)()

    def test_it_runs_no_collection(self, look: Look) -> None:
        gc.collect()
        before = [generation["collections"] for generation in gc.get_stats()]
        look()
        assert [generation["collections"] for generation in gc.get_stats()][1:] == before[1:]

    def test_objects_stay_in_their_generations(self, look: Look) -> None:
        gc.collect()
        gc.disable()
        try:
            gc.freeze()
            gc.unfreeze()
            young = [[i] for i in range(100)]
            before = {id(o): g for g in range(3) for o in gc.get_objects(generation=g)}
            look()
            after = {id(o): g for g in range(3) for o in gc.get_objects(generation=g)}
            assert all(before[id(item)] == after[id(item)] == 0 for item in young)
            moved = [key for key in before.keys() & after.keys() if before[key] != after[key]]
            assert len(moved) < 1000  # addresses that were used again, of some 200,000
        finally:
            gc.enable()

    def test_frozen_objects_stay_frozen(self, look: Look) -> None:
        gc.collect()
        gc.freeze()
        try:
            before = gc.get_freeze_count()
            look()
            assert abs(gc.get_freeze_count() - before) < 1000  # what an earlier look had kept goes
        finally:
            gc.unfreeze()

    def test_untracked_containers_stay_untracked(self, look: Look) -> None:
        untracked = [{"a": 1}, (1, 2), {}, {1: "a"}]
        gc.collect()
        before = [gc.is_tracked(value) for value in untracked]
        look()
        assert [gc.is_tracked(value) for value in untracked] == before

    def test_no_garbage_is_made(self, look: Look) -> None:
        gc.collect()
        gc.disable()
        try:
            look()
            assert gc.collect() == 0
            assert gc.garbage == []
        finally:
            gc.enable()

    def test_weak_references_and_finalizers_are_left_alone(self, look: Look) -> None:
        called: list[str] = []

        class Ends:
            def __del__(self) -> None:
                called.append("finalizer")

        item = Ends()
        reference = weakref.ref(item, lambda _: called.append("callback"))
        finalizer = weakref.finalize(item, called.append, "finalize")
        look()
        assert called == []
        assert weakref.getweakrefcount(item) == 2
        assert finalizer.alive
        del item
        assert reference() is None
        assert sorted(called) == ["callback", "finalize", "finalizer"]


class TestAllocator:
    """What was taken is released."""

    def test_allocated_blocks_come_back(self, look: Look) -> None:
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(3):
            look()
        gc.collect()
        assert abs(sys.getallocatedblocks() - before) < 100

    def test_tracemalloc_goes_on_as_it_was(self, look: Look) -> None:
        tracemalloc.start(3)
        try:
            look()
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            look()
            gc.collect()
            assert tracemalloc.is_tracing()
            assert tracemalloc.get_traceback_limit() == 3
            assert abs(tracemalloc.get_traced_memory()[0] - before) < 20_000
            kept = bytearray(1000)
            assert tracemalloc.get_object_traceback(kept) is not None
        finally:
            tracemalloc.stop()

    def test_tracemalloc_is_not_switched_on(self, look: Look) -> None:
        look()
        assert not tracemalloc.is_tracing()

    @needs_torch
    @pytest.mark.xfail(reason="torch keeps the Python object of every storage that was asked for")
    def test_a_first_look_at_tensors_leaves_nothing_behind(self) -> None:
        tensors = [torch.zeros(3) for _ in range(5000)]
        walk(WalkRequest(roots=[[]]))
        before = sys.getallocatedblocks()
        walk(WalkRequest(roots=[tensors]))
        assert sys.getallocatedblocks() - before < 500


class TestFrames:
    """Locals of functions that run or are suspended."""

    def test_locals_are_what_they_were(self, look: Look) -> None:
        mine = [1]
        frame = sys._getframe()
        before = dict(frame.f_locals)
        look()
        after = dict(frame.f_locals)
        assert after["mine"] is mine
        assert set(after) - {"before", "after"} == set(before)

    def test_a_local_that_is_deleted_afterwards_goes_at_once(self, look: Look) -> None:
        item = Plain()
        reference = weakref.ref(item)
        look()
        del item
        assert reference() is None

    def test_a_local_of_a_suspended_generator_goes_with_it(self, look: Look) -> None:
        def generate() -> Iterator[weakref.ref[Plain]]:
            item = Plain()
            yield weakref.ref(item)

        generator = generate()
        reference = next(generator)
        look()
        assert reference() is not None
        generator.close()
        assert reference() is None

    def test_a_local_of_another_thread_goes_with_its_function(self, look: Look) -> None:
        ready, may_end, references = threading.Event(), threading.Event(), []

        def work() -> None:
            item = Plain()
            references.append(weakref.ref(item))
            ready.set()
            may_end.wait(30)
            del item
            references.append(references[0]())
            ended.wait(30)

        ended = threading.Event()
        thread = threading.Thread(target=work)
        thread.start()
        ready.wait(30)
        look()
        may_end.set()
        try:
            while len(references) < 2:
                threading.Event().wait(0.01)
            assert references[1] is None
        finally:
            ended.set()
            thread.join()

    def test_frames_keep_their_reference_counts(self, look: Look) -> None:
        frames = []
        frame: Any = sys._getframe()
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        before = counts_of(frames)
        look()
        assert counts_of(frames) == before

    def test_the_exception_in_flight_stays(self, look: Look) -> None:
        try:
            raise KeyError("lost")
        except KeyError as error:
            before = sys.getrefcount(error), sys.getrefcount(error.__traceback__)
            look()
            assert sys.exc_info()[1] is error
            assert before == (sys.getrefcount(error), sys.getrefcount(error.__traceback__))
        assert sys.exc_info() == (None, None, None)


@contextlib.contextmanager
def modes() -> Iterator[None]:
    """Unusual modes of torch, that a census must neither use nor change."""
    if torch is None:
        yield
        return
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)


def state_of_torch() -> tuple[Any, ...]:
    if torch is None:
        return ()
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.initial_seed(),
        torch.are_deterministic_algorithms_enabled(),
        torch._C._is_torch_function_enabled(),
        torch.overrides._len_torch_function_stack()
        if hasattr(torch.overrides, "_len_torch_function_stack")
        else 0,
        bytes(torch.get_rng_state().numpy()),
    )


def state_of_python() -> tuple[Any, ...]:
    return (
        random.getstate(),
        np.random.get_state()[1].tobytes(),  # type: ignore[union-attr]
        sys.gettrace(),
        sys.getprofile(),
        sys.getswitchinterval(),
        sys.getrecursionlimit(),
        tuple(sys.modules),
        tuple(sys.path),
        list(warnings.filters),
        threading.active_count(),
        sys.excepthook,
        sys.stdout,
        sys.stderr,
    )


def test_modes_of_torch_and_of_the_interpreter(look: Look) -> None:
    with modes():
        before = state_of_torch(), state_of_python()
        look()
        assert (state_of_torch(), state_of_python()) == before


@needs_torch
def test_tensors_are_what_they_were(look: Look) -> None:
    def state(tensor: Any) -> tuple[Any, ...]:
        return tensor._version, tensor.data_ptr(), tensor.requires_grad, tensor.is_leaf

    tensors = [*HELD["tensors"], *HELD["outputs"]]
    before = [state(tensor) for tensor in tensors]
    look()
    assert [state(tensor) for tensor in tensors] == before
    assert all(output.grad_fn is not None for output in HELD["outputs"])


@needs_torch
def test_a_graph_still_runs_backward(look: Look) -> None:
    weight = torch.ones(3, requires_grad=True)
    kept = (weight * 2).exp().sum()
    HELD["kept"] = kept
    try:
        look()
        kept.backward()
    finally:
        del HELD["kept"]
    assert torch.allclose(weight.grad, 2 * torch.exp(torch.tensor(2.0)))  # type: ignore[arg-type]


def test_keys_that_instances_share_stay_shared(look: Look) -> None:
    made = [Plain() for _ in range(3)]
    for item in made:
        item.first, item.second = 1, 2  # type: ignore[attr-defined]
    before = [sys.getsizeof(item) for item in made]
    look()
    assert [sys.getsizeof(item) for item in made] == before


def test_nothing_is_printed_or_warned(
    look: Look, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    look()
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list
