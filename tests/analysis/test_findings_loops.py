"""Loops through autograd are called by their steps, with the edge to cut and the line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_runs import MIB, Program, Thing

from leakscope.analysis import analyse
from leakscope.model.census import LoopStep, RootKind, StepKind
from leakscope.model.report import Finding, Report, RunVerdict, Severity

FILE = "/project/train.py"
SOURCE = """import torch

def watch(hidden, out):
    def note(grad):
        return grad * out.detach().mean()
    hidden.register_hook(note)
"""
NOTE = LoopStep(kind=StepKind.HOOK, name="watch.note", file=FILE, line=4)
OUT = LoopStep(kind=StepKind.TENSOR, name="out")
GRAPH = (
    LoopStep(kind=StepKind.NODE, name="AddmmBackward0"),
    LoopStep(kind=StepKind.GAP, name="…"),
    LoopStep(kind=StepKind.NODE, name="ReluBackward0"),
)


def report_of(
    *loop: LoopStep,
    source: str = SOURCE,
    type_: str = "OrderedDict",
    each: int = MIB,
    full_every: int = 1,
) -> Report:
    """Return what is concluded where objects of one loop each pile up, four an epoch."""
    held = Thing(
        f"<held by native code>·{type_}", lambda s: s.epochs_done * 4 * each, "object", type_,
        root=RootKind.NATIVE, user=False, count=lambda s: s.epochs_done * 4, loop=loop,
    )  # fmt: skip
    run = Program(epochs=10, full_every=full_every).plant(held).build()
    run.main.sources[FILE] = source
    return analyse(run)


def loop_in(report: Report) -> Finding:
    return next(f for f in report.findings if f.kind == "autograd_loop")


def test_a_hook_that_keeps_what_came_of_its_tensor_is_reported_as_a_loop() -> None:
    report = report_of(NOTE, OUT, *GRAPH)
    found = loop_in(report)
    assert report.verdict is RunVerdict.LEAK
    assert found.severity is Severity.WARNING
    assert found.title == "The hook watch.note and the graph of out keep each other alive"
    assert found.fed_at == ["train.py:6"]
    assert found.text.startswith("36 loops, 1 MiB each, growing by 4 MiB per epoch: ")
    assert found.circles[0].steps == [
        "hidden",
        "hook watch.note (train.py:4)",
        "out",
        "grad_fn AddmmBackward0",
        "…",
        "ReluBackward0",
    ]
    assert "→ ReluBackward0 → hidden." in found.text
    assert "train.py:6 calls register_hook." in found.text
    assert "handle = hidden.register_hook(…)" in found.remedy.text
    assert "weakref.ref(out)" in found.remedy.text
    assert found.bytes_per_unit == pytest.approx(4 * MIB, rel=0.05)


@pytest.mark.parametrize(("loop", "leaks"), [((NOTE, OUT, *GRAPH), True), ((), False)])
def test_little_in_loops_is_a_leak_and_as_little_elsewhere_may_be_a_librarys(
    loop: tuple[LoopStep, ...], leaks: bool
) -> None:
    report = report_of(*loop, each=MIB // 12, full_every=9)
    assert (report.verdict is RunVerdict.LEAK) is leaks


def test_a_lambda_is_found_by_its_line() -> None:
    hook = LoopStep(kind=StepKind.HOOK, name="train.<lambda>", file=FILE, line=2)
    source = "def train(features, loss):\n    features.register_hook(lambda g: g / loss)\n"
    found = loop_in(report_of(hook, OUT, *GRAPH, source=source))
    assert found.fed_at == ["train.py:2"]
    assert found.circles[0].steps[0] == "features"


@pytest.mark.parametrize(
    "registers",
    [
        "hidden.register_hook(watch(hidden))",
        "hook = watch(hidden)\n    hidden.register_hook(hook)",
        "hidden.register_hook(partial(note, hidden))",
    ],
    ids=["made at once", "made before", "a partial"],
)
def test_a_hook_that_a_function_makes_is_reported_where_it_is_registered(registers: str) -> None:
    source = f"def train(features):\n    hidden = features * 2\n    {registers}\n"
    found = loop_in(report_of(NOTE, OUT, *GRAPH, source=source))
    assert found.fed_at == [f"train.py:{3 + registers.count(chr(10))}"]
    assert found.circles[0].steps[0] == "hidden"


def test_the_programs_own_hook_counts_before_a_librarys() -> None:
    wrapper = LoopStep(kind=StepKind.HOOK, name="BackwardHook.hook", file="/lib/hooks.py", line=9)
    mine = LoopStep(kind=StepKind.FUNCTION, name="watch.note", file=FILE, line=4)
    source = SOURCE.replace("hidden.register_hook", "hidden.register_full_backward_hook")
    found = loop_in(report_of(wrapper, mine, OUT, *GRAPH, source=source))
    assert found.title.startswith("The hook watch.note")
    assert "calls register_full_backward_hook" in found.text


def test_a_hook_that_no_recorded_line_registers_is_reported_by_where_it_begins() -> None:
    found = loop_in(report_of(NOTE, OUT, *GRAPH, source=SOURCE.replace("register_hook", "add")))
    assert found.fed_at == ["train.py:4"]
    assert found.circles[0].steps[0] == "hook watch.note (train.py:4)"


def test_an_unpack_hook_lives_as_long_as_the_graph() -> None:
    hook = LoopStep(kind=StepKind.UNPACK_HOOK, name="compress.unpack", file=FILE, line=4)
    source = (
        "def compress(box):\n    def pack(x):\n        return x.half()\n    def unpack(x):\n"
        "        return box['out']\n    return saved_tensors_hooks(pack, unpack)\n"
    )
    found = loop_in(report_of(hook, OUT, GRAPH[0], source=source, type_="function"))
    assert (
        found.title == "The unpack hook compress.unpack and the graph of out keep each other alive"
    )
    assert found.fed_at == ["train.py:6"]
    assert found.circles[0].steps[0] == "unpack hook compress.unpack (train.py:4)"
    assert "weakref.ref(out)" in found.remedy.text


def test_a_context_is_advised_to_save_or_detach() -> None:
    context = LoopStep(kind=StepKind.CONTEXT, name="SquareBackward")
    kept = LoopStep(kind=StepKind.TENSOR, name="SquareBackward.loss")
    found = loop_in(report_of(context, kept, *GRAPH, type_="SquareBackward"))
    assert found.title.startswith("The ctx of Square and the graph of SquareBackward.loss")
    assert found.circles[0].steps[0] == "ctx of Square"
    assert "save_for_backward" in found.remedy.text


def test_a_loop_without_functions_is_opened_by_detaching() -> None:
    leaf = LoopStep(kind=StepKind.TENSOR, name="Tensor")
    kept = LoopStep(kind=StepKind.TENSOR, name="Keeper.total")
    found = loop_in(report_of(leaf, kept, *GRAPH, type_="Tensor"))
    assert found.title == "The graph of Keeper.total leads back to itself"
    assert found.remedy.title.startswith("Detach Keeper.total")


def test_a_hook_that_runs_after_accumulation_keeps_no_graph() -> None:
    source = """def watch(layer):
    def note(weight):
        return layer.bias
    layer.weight.register_post_accumulate_grad_hook(note)
"""
    hook = LoopStep(kind=StepKind.HOOK, name="watch.note", file=FILE, line=2)
    layer = LoopStep(kind=StepKind.OBJECT, name="Linear")
    weight = LoopStep(kind=StepKind.TENSOR, name="Linear.weight")
    found = loop_in(report_of(hook, layer, weight, source=source))
    assert found.title == "The hook watch.note and Linear.weight keep each other alive"
    assert found.fed_at == ["train.py:4"]
    assert found.remedy.title == "Remove the hook watch.note, or let it keep no Linear"
    assert "graph" not in found.text


@pytest.mark.parametrize("is_function", [True, False])
def test_what_the_reducer_keeps_for_a_communication_hook(is_function: bool) -> None:
    source = """def compress(model):
    def hook(state, bucket):
        return model.reduced(bucket)
    model.register_comm_hook(State(model), hook)
"""
    hook = LoopStep(kind=StepKind.HOOK, name="compress.hook", file=FILE, line=2)
    state = LoopStep(kind=StepKind.OBJECT, name="State")
    wrapped = LoopStep(kind=StepKind.OBJECT, name="DistributedDataParallel")
    reducer = LoopStep(kind=StepKind.OBJECT, name="Reducer")
    found = loop_in(report_of(hook if is_function else state, wrapped, reducer, source=source))
    assert found.title == (
        f"The {'hook compress.hook' if is_function else 'state of a communication hook'} and "
        "DistributedDataParallel keep each other alive"
    )
    assert found.fed_at == ["train.py:4"]
    assert "weakref.ref" in found.remedy.text


def held_by(loop: tuple[LoopStep, ...], type_: str, size: float) -> Thing:
    return Thing(
        f"<held by native code>·{type_}", lambda s: s.epochs_done * size, "object", type_,
        root=RootKind.NATIVE, user=False, count=lambda s: s.epochs_done * 4, loop=loop,
    )  # fmt: skip


def test_a_loop_on_which_several_types_hang_is_reported_once() -> None:
    loop = (NOTE, OUT, *GRAPH)
    both = [held_by(loop, "Parameter", 4 * MIB), held_by(loop, "OrderedDict", 2 * MIB)]
    other = held_by((NOTE, LoopStep(kind=StepKind.TENSOR, name="loss"), *GRAPH), "dict", MIB)
    run = Program(epochs=10, full_every=1).plant(*both, other).build()
    run.main.sources[FILE] = SOURCE
    found = [f for f in analyse(run).findings if f.kind == "autograd_loop"]
    assert [round(f.bytes_per_unit / MIB) for f in found] == [6, 1]
    assert "What else hangs on it grows by 2 MiB per epoch" in found[0].text


def looked_at_once(*things: Thing) -> Report:
    """Return what is concluded of a run in which the whole heap is walked near its end alone."""
    program = Program(epochs=10).plant(*things)
    program.full_at = (380,)
    run = program.build()
    run.main.sources[FILE] = SOURCE
    return analyse(run)


def test_one_look_at_many_loops_tells_what_every_census_weighs() -> None:
    found = loop_in(looked_at_once(held_by((NOTE, OUT, *GRAPH), "OrderedDict", 4 * MIB)))
    assert found.bytes_per_unit == pytest.approx(4 * MIB, rel=0.1)
    assert found.fed_at == ["train.py:6"]


def test_a_few_loops_are_not_blamed_for_what_grows_next_to_them() -> None:
    few = Thing(
        "<held by native code>·OrderedDict", lambda s: 20 * MIB * (s.step > 5), "object",
        "OrderedDict", root=RootKind.NATIVE, user=False, count=lambda s: 3,
        loop=(NOTE, OUT, *GRAPH),
    )  # fmt: skip
    grows = replace(held_by((), "Record", 4 * MIB), path="library·records", root=RootKind.GLOBAL)
    assert "autograd_loop" not in {f.kind for f in looked_at_once(few, grows).findings}


def test_without_a_loop_it_is_held_by_native_code() -> None:
    kinds = {f.kind for f in report_of().findings}
    assert "native_held" in kinds
    assert "autograd_loop" not in kinds


def test_parameters_and_their_gradients_stay_a_diagnosis_of_their_own() -> None:
    parameter = LoopStep(kind=StepKind.TENSOR, name="Parameter")
    gradient = LoopStep(kind=StepKind.TENSOR, name="Parameter.grad")
    held = Thing(
        "native·Parameter", lambda s: s.epochs_done * 4 * MIB, "tensor",
        "torch.nn.parameter.Parameter", root=RootKind.NATIVE, user=False, graph_nodes=40,
        loop=(parameter, gradient, *GRAPH),
    )  # fmt: skip
    report = analyse(Program(epochs=10, full_every=1).plant(held).build())
    found = next(f for f in report.findings if f.kind == "gradient_cycle")
    assert found.circles[0].steps[:2] == ["Parameter", "Parameter.grad"]
    assert "autograd_loop" not in {f.kind for f in report.findings}


def test_a_loop_that_was_made_once_is_no_leak() -> None:
    held = Thing(
        "<held by native code>·OrderedDict", lambda s: 4 * MIB if s.step > 20 else 0, "object",
        "OrderedDict", root=RootKind.NATIVE, user=False, loop=(NOTE, OUT, *GRAPH),
    )  # fmt: skip
    report = analyse(Program(epochs=10, full_every=2).plant(held).build())
    assert "autograd_loop" not in {f.kind for f in report.findings}
