"""What torch.compile keeps has the name of its function, and is read from dynamo's cache alone."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from leakscope.heap import compiled_code as subject
from leakscope.heap.compiled_code import (
    captured_graphs,
    compiled_code,
    functions,
    is_made_by_dynamo,
    limits,
    spoken_name,
    workers,
)

FRAMES = "torch._dynamo.convert_frame"


def function() -> int:
    return 1


@pytest.fixture
def dynamo(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A dynamo that has compiled ``function``, with as many entries as a test says."""
    fake = SimpleNamespace(entries=[], fault=None)

    def entries_of(code: object) -> list[object]:
        if fake.fault is not None:
            raise fake.fault
        return fake.entries if code is function.__code__ else []

    frame = SimpleNamespace(_debug_get_cache_entry_list=entries_of)
    core = SimpleNamespace(_dynamo=SimpleNamespace(eval_frame=frame))
    seen = [lambda: function.__code__, lambda: None, lambda: entries_of.__code__]
    monkeypatch.setitem(sys.modules, "torch._C", core)
    frames = SimpleNamespace(input_codes=SimpleNamespace(seen=seen))
    monkeypatch.setitem(sys.modules, FRAMES, frames)
    return fake


def test_without_dynamo_nothing_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, FRAMES, raising=False)
    assert compiled_code() == []


def test_code_with_entries_is_reported_and_other_code_is_not(dynamo: SimpleNamespace) -> None:
    assert compiled_code() == []
    dynamo.entries = [SimpleNamespace(), SimpleNamespace()]
    (compiled,) = compiled_code()
    assert compiled.code is function.__code__
    assert len(compiled.entries) == 2
    assert list(compiled.parts()) == []


def test_parts_are_guards_and_what_the_bytecode_calls(dynamo: SimpleNamespace) -> None:
    def graph() -> int:
        return 0

    namespace = {"__compiled_fn_1": graph}
    code = compile("__compiled_fn_1(other)", "<dynamo>", "exec")
    guards = SimpleNamespace(global_scope={"G": namespace})
    dynamo.entries = [SimpleNamespace(guard_manager=guards, code=code)]
    assert list(compiled_code()[0].parts()) == [guards, graph]


@pytest.mark.parametrize("fault", [AttributeError("another version"), TypeError("one argument")])
def test_another_version_of_torch_tells_nothing(dynamo: SimpleNamespace, fault: Exception) -> None:
    dynamo.fault = fault
    assert compiled_code() == []


def test_limits_have_two_names_and_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    config = "torch._dynamo.config"
    monkeypatch.setitem(sys.modules, config, SimpleNamespace(cache_size_limit=64))
    assert limits() == (64, 256, False)
    assert limits().bound == 64
    raised = SimpleNamespace(recompile_limit=512, fail_on_recompile_limit_hit=True)
    monkeypatch.setitem(sys.modules, config, raised)
    assert limits() == (512, 256, True)
    assert limits().bound is None
    monkeypatch.delitem(sys.modules, config)
    assert limits() == (8, subject.USUAL_CAP, False)


def test_what_goes_on_behind_a_graph_break_is_reported_by_its_line() -> None:
    assert spoken_name("forward") == "forward"
    assert spoken_name("inner", "/lib/torch/_dynamo/external_utils.py") == "torch.nn modules"
    assert spoken_name("torch_dynamo_resume_in_forward_at_12") == "forward from line 12"
    assert is_made_by_dynamo("__compiled_fn_3_ab12")
    assert not is_made_by_dynamo("compiled_fn")


def test_functions_have_the_entries_of_all_their_code(dynamo: SimpleNamespace) -> None:
    dynamo.entries = [SimpleNamespace()] * 3
    (reported,) = functions()
    assert (reported.function, reported.entries, reported.most, reported.codes) == (
        "function",
        3,
        3,
        1,
    )
    assert reported.line == function.__code__.co_firstlineno


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_inductors_processes_are_counted_while_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    started = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    pool = SimpleNamespace(
        process=subprocess.Popen([sys.executable, "-c", started], stdin=subprocess.PIPE)
    )
    module = SimpleNamespace(_pool_set=[pool])
    monkeypatch.setitem(sys.modules, "torch._inductor.async_compile", module)
    try:
        deadline = time.monotonic() + 20
        while workers()[0] < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        count, size = workers()
        assert count == 2
        assert size > 1 << 20
    finally:
        pool.process.communicate()
    assert workers() == (0, 0)


def test_captured_graphs_are_counted_by_the_shapes_of_what_they_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def node(*sizes: tuple[int, ...], below: list[object] | None = None) -> SimpleNamespace:
        forms = [{"size": size} for size in sizes]
        return SimpleNamespace(children={1: below or []}, outputs_metadata=[*forms, None])

    roots = {0: [node((8, 4), below=[node((8, 4))]), node((2, 4))]}
    container = SimpleNamespace(tree_manager=SimpleNamespace(roots=roots))
    local = SimpleNamespace(tree_manager_containers={0: container})
    name = "torch._inductor.cudagraph_trees"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(local=local))
    assert [(graph.device, graph.shapes, graph.graphs) for graph in captured_graphs()] == [
        ("cuda:0", "8x4", 2),
        ("cuda:0", "2x4", 1),
    ]
    local.tree_manager_containers = {0: SimpleNamespace()}
    assert captured_graphs() == []
