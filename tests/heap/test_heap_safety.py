"""The walk runs nothing of the user's, keeps nothing alive and leaves nothing behind."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
from optional_torch import needs_torch, torch

from leakscope.heap import graph
from leakscope.heap.graph import WalkRequest, walk

ENGINES = ["reference", *(["native"] if graph.engine_name() == "native" else [])]
needs_native = pytest.mark.skipif(len(ENGINES) < 2, reason="the native engine is not built")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("code of the user's was run")


HOSTILE = dict.fromkeys(
    [
        "__len__",
        "__repr__",
        "__str__",
        "__getattr__",
        "__getattribute__",
        "__eq__",
        "__hash__",
        "__sizeof__",
        "__bool__",
        "__iter__",
        "__contains__",
        "__del__x",
        "__index__",
        "__reduce__",
        "__dir__",
        "__format__",
    ],
    _refuse,
)


class HostileMeta(type):
    __getattribute__ = _refuse
    __instancecheck__ = _refuse
    __subclasscheck__ = _refuse
    __eq__ = _refuse
    __hash__ = _refuse


def hostile_objects() -> list[object]:
    cheat = {**HOSTILE, "__class__": property(_refuse)}
    plain = type.__call__(HostileMeta, "Hostile", (), cheat)
    listed = type("HostileList", (list,), HOSTILE)
    mapped = type("HostileDict", (dict,), HOSTILE)
    misplaced = type("Misplaced", (), {"__sizeof__": dict.__sizeof__})
    return [object.__new__(plain), listed(), mapped(), misplaced()]


def hostile_tensor() -> object:
    kind = type(
        "HostileTensor",
        (torch.Tensor,),
        {"__torch_function__": classmethod(_refuse), "grad": property(_refuse), **HOSTILE},
    )
    return torch.Tensor._make_subclass(kind, torch.zeros(1000))


def test_no_code_of_the_users_runs(engine: str) -> None:
    objects = hostile_objects()
    result = walk(WalkRequest(roots=[objects], cutoff_bytes=0), engine=engine)
    assert {id(o) for o in result.nodes.objects} >= set(map(id, objects))


@needs_torch
def test_no_code_of_the_users_runs_for_a_tensor(engine: str) -> None:
    result = walk(WalkRequest(roots=[hostile_tensor()], cutoff_bytes=0), engine=engine)
    assert result.payload_bytes == {"host": 4000}


@needs_torch
def test_modes_of_the_users_are_not_called(engine: str) -> None:
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        requested = 0

        def __torch_function__(self, *args: Any, **kwargs: Any) -> Any:
            self.requested += 1
            return super().__torch_function__(*args, **kwargs)

    tensors = [torch.ones(10, requires_grad=True) * 2]
    with Mode() as mode:
        walk(WalkRequest(roots=[tensors]), engine=engine)
    assert mode.requested == 0


@needs_torch
def test_no_warning_is_raised(engine: str, recwarn: pytest.WarningsRecorder) -> None:
    leaf = torch.ones(10, requires_grad=True)
    walk(WalkRequest(roots=[leaf, leaf * 2, (leaf * 2).sum()]), engine=engine)
    assert not recwarn.list


SCOPES = [
    pytest.param(e, f, marks=pytest.mark.slow if f and e == "reference" else ())
    for e in ENGINES
    for f in (False, True)
]


@pytest.mark.parametrize(("engine", "full"), SCOPES)
def test_what_is_deleted_after_the_walk_is_freed_at_once(engine: str, full: bool) -> None:
    class Thing:
        pass

    thing: Any = Thing()
    thing.data = set() if torch is None else torch.zeros(10_000)
    alive = weakref.ref(thing), weakref.ref(thing.data)
    walk(WalkRequest(roots=[[thing]], full=full), engine=engine)
    del thing
    assert [a() for a in alive] == [None, None]


def test_reference_counts_are_as_before(engine: str) -> None:
    objects = [[], {}, object(), "text" * 3]
    if torch is not None:
        objects += [torch.zeros(10), torch.ones(2, requires_grad=True) * 2]
    walk(WalkRequest(roots=[objects], cutoff_bytes=0), engine=engine)
    before = [sys.getrefcount(o) for o in objects]
    walk(WalkRequest(roots=[objects], cutoff_bytes=0), engine=engine)
    assert [sys.getrefcount(o) for o in objects] == before


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize(("engine", "full"), SCOPES)
def test_the_collector_is_left_as_it_was(engine: str, full: bool, enabled: bool) -> None:
    thresholds = gc.get_threshold()
    (gc.enable if enabled else gc.disable)()
    try:
        walk(WalkRequest(roots=[[]], full=full), engine=engine)
        assert gc.isenabled() is enabled
        assert gc.get_threshold() == thresholds
    finally:
        gc.enable()


@needs_native
def test_a_wrong_request_raises_and_the_collector_stays_on() -> None:
    with pytest.raises((TypeError, AttributeError)):
        walk(WalkRequest(roots=(1, 2)), engine="native")  # type: ignore[arg-type]
    assert gc.isenabled()


def graph_of_losses() -> list[Any]:
    if torch is None:
        return []
    model = torch.nn.Linear(50, 50)
    loss = torch.zeros(())
    for _ in range(200):
        loss = loss + model(torch.ones(1, 50)).exp().sum()
    return [model, loss]


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@needs_native
def test_three_hundred_walks_take_no_memory() -> None:
    roots = [graph_of_losses(), {i + 10**6: [i] for i in range(10_000)}]

    def walk_often(times: int) -> int:
        for _ in range(times):
            walk(WalkRequest(roots=roots, cutoff_bytes=1000), engine="native")
        return resident_bytes()

    before = walk_often(20)
    assert walk_often(300) - before < 1 << 20


@needs_native
@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True])
def test_what_a_walk_of_a_million_objects_took_goes_back_to_the_system(full: bool) -> None:
    kept = [[float(i)] for i in range(1_000_000)]
    walk(WalkRequest(roots=[[]], full=full), engine="native")
    before = resident_bytes()
    result = walk(WalkRequest(roots=[kept], full=full), engine="native")
    assert resident_bytes() - before < result.scratch_bytes / 20
    assert result.scratch_bytes > 40 << 20


@needs_native
def test_full_walks_leave_no_blocks_behind() -> None:
    def blocks_after(times: int) -> int:
        for _ in range(times):
            walk(WalkRequest(roots=[[]], full=True), engine="native")
        return sys.getallocatedblocks()

    before = blocks_after(2)
    assert blocks_after(5) - before < 500


def test_the_package_works_without_the_native_module() -> None:
    code = (
        "import sys; sys.modules['leakscope.heap._native'] = None\n"
        "from leakscope.heap import graph, anatomy as frames\n"
        "assert graph.engine_name() == 'reference'\n"
        "r = graph.walk(graph.WalkRequest(roots=[[bytes(50000)]]))\n"
        "assert r.engine == 'reference' and r.nodes.host_bytes[0] > 50000\n"
        "def f(x=[1]):\n"
        "    return dict(frames.locals_of(sys._getframe()))\n"
        "assert f() == {'x': [1]}\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
