"""Loops through autograd: how each is called, which edge to cut, and the line that made it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from leakscope.analysis.run_context import RunContext
from leakscope.analysis.source.index import SourceIndex, calls_that_create_graphs, places_that_call
from leakscope.analysis.source.program import CodeScope, arguments_of, last_name
from leakscope.model.census import CensusRow, LoopStep, StepKind
from leakscope.model.report import Circle, Remedy
from leakscope.model.text import human_bytes, plural
from leakscope.model.trend import Trend

_REGISTERS = frozenset(
    {
        "register_hook", "register_prehook", "register_multi_grad_hook",
        "register_post_accumulate_grad_hook", "register_full_backward_hook",
        "register_full_backward_pre_hook", "register_backward_hook", "saved_tensors_hooks",
        "register_comm_hook",
    }
)  # fmt: skip
_REDUCER = "Reducer"
"""The C++ part of ``DistributedDataParallel`` that calls a communication hook with its state."""
_CALLED = frozenset({StepKind.HOOK, StepKind.UNPACK_HOOK, StepKind.FUNCTION})
_OF_GRAPHS = frozenset({StepKind.NODE, StepKind.CONTEXT, StepKind.UNPACK_HOOK})
_LONGEST_RECEIVER = 30


@dataclass(frozen=True)
class ExplainedLoop:
    """A loop in words."""

    title: str
    text: str
    remedy: Remedy
    fed_at: list[str]
    circle: Circle | None = None
    kind: str = "autograd_loop"


def explain_loop(case: RunContext, row: CensusRow, trend: Trend) -> ExplainedLoop | None:
    """Return what is known of the loop through autograd that a row's objects are in, if any."""
    if not row.loop:
        return None
    called = [step for step in row.loop if step.kind in _CALLED]
    own = [step for step in called if case.sources.files.find(step.file)]
    function = next(iter(own or called), None)  # the program's own hook before a library's
    call = _registered(case.sources, function) if function is not None else None
    steps = _steps(case.sources, row.loop, call)
    nbytes = row.host_bytes + sum(row.device_bytes.values())
    fed_at = [call.location] if call is not None else []
    if not fed_at and function is not None and case.sources.files.find(function.file):
        fed_at = [case.sources.location(function.file, function.line)]
    if function is None and _tensor(row.loop).endswith(".grad"):
        calls = calls_that_create_graphs(case.sources)
        fed_at = [case.sources.location(call.file, call.line) for call in calls]
    if not fed_at and _is_reduced(row.loop):
        fed_at = places_that_call(case.sources, set(), {"register_comm_hook"})
    way = " → ".join([*steps, steps[0]])
    each = f", {human_bytes(nbytes / row.count)} each" if row.count > 1 else ""
    # Of what hooks have packed several hang on one loop.
    is_packed = any(step.kind is StepKind.UNPACK_HOOK for step in row.loop)
    objects = f"{row.type} object" if is_packed else "loop"
    title, remedy = _words(row.loop, function, call)
    made = f" {call.location} calls {call.function}." if call is not None else ""
    return ExplainedLoop(
        title=title,
        text=f"{plural(row.count, objects)}{each}, growing by {human_bytes(trend.bytes_per_unit)} "
        f"per {trend.unit}: {way}. Part of the way is in C++, where gc.collect() can't see it, so "
        f"that none is ever freed.{made}",
        remedy=remedy,
        fed_at=fed_at,
        circle=Circle(steps=steps, type=row.type, bytes=nbytes, count=row.count),
    )


@dataclass(frozen=True)
class _Call:
    """Where a hook is registered."""

    location: str
    receiver: str
    """Of what, as it is written there; empty where that is no simple name."""
    function: str


def _registered(sources: SourceIndex, hook: LoopStep) -> _Call | None:
    """Return where a hook is registered; where that happens in several places the first counts."""
    *outer, name = hook.name.split(".")
    maker = outer[-1] if outer else ""
    for function in sorted(_REGISTERS):
        for statement, call in sources.program.calls_of(function):
            values = _values(arguments_of(call), statement.scope)
            if any(_is_hook(value, name, maker, hook.line) for value in values):
                receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
                location = sources.place(statement, call)
                return _Call(location, _simple(receiver, function), function)
    return None


def _values(arguments: list[ast.expr], scope: CodeScope) -> Iterator[ast.expr]:
    for argument in arguments:
        yield argument
        if isinstance(argument, ast.Name):
            bound = scope.bindings.get(argument.id, [])
            yield from (b.value for b in bound if b.value is not None)


def _is_hook(value: ast.expr, name: str, maker: str, line: int) -> bool:
    """Return whether it is the function, a partial of it, or what the function around it makes."""
    if isinstance(value, ast.Lambda):
        return name == "<lambda>" and value.lineno == line
    if isinstance(value, ast.Call):
        is_part = last_name(value.func) == "partial"
        is_made = bool(maker) and last_name(value.func) == maker
        return is_made or (is_part and any(last_name(part) == name for part in value.args[:1]))
    return last_name(value) == name


def _simple(receiver: ast.expr | None, function: str) -> str:
    if receiver is None or function == "saved_tensors_hooks":
        return ""
    text = ast.unparse(receiver)
    return text if len(text) <= _LONGEST_RECEIVER else ""


def _steps(sources: SourceIndex, loop: list[LoopStep], call: _Call | None) -> list[str]:
    steps = [_step(sources, loop, place) for place in range(len(loop))]
    is_first = loop[0].kind is StepKind.HOOK and loop[-1].kind is not StepKind.TENSOR
    return [call.receiver, *steps] if call is not None and call.receiver and is_first else steps


def _step(sources: SourceIndex, loop: list[LoopStep], place: int) -> str:
    step, before = loop[place], loop[place - 1]
    if step.kind in _CALLED:
        title = {StepKind.HOOK: "hook ", StepKind.UNPACK_HOOK: "unpack hook "}.get(step.kind, "")
        return f"{title}{step.name} ({sources.location(step.file, step.line)})"
    if step.kind is StepKind.NODE and before.kind is StepKind.TENSOR:
        return f"grad_fn {step.name}"
    if step.kind is StepKind.CONTEXT:
        return f"ctx of {step.name.removesuffix('Backward')}"
    return step.name


def _tensor(loop: list[LoopStep]) -> str:
    """Return what a tensor of the loop is called that leads to the graph; or nothing."""
    named = [step.name for step in loop if step.kind is StepKind.TENSOR]
    return next((name for name in named if name not in ("Tensor", "Parameter")), "")


def _is_reduced(loop: list[LoopStep]) -> bool:
    return any(step.kind is StepKind.OBJECT and step.name == _REDUCER for step in loop)


def _words(
    loop: list[LoopStep], function: LoopStep | None, call: _Call | None
) -> tuple[str, Remedy]:
    """Return what keeps what alive, and which edge to cut."""
    named = _tensor(loop)
    graph, tensor = (f"the graph of {named}", named) if named else ("a graph", "the tensor")
    opened = (
        f"Let it refer to {tensor} by weakref.ref({tensor}), or take what it needs beforehand: "
        f"{tensor}.detach() has no graph."
    )
    if _is_reduced(loop):
        hook = f"hook {function.name}" if function is not None else "state of a communication hook"
        return f"The {hook} and DistributedDataParallel keep each other alive", Remedy(
            title="Let the communication hook keep no DistributedDataParallel",
            text="The reducer, in C++, keeps the hook and its state as long as the model lives. "
            "Give the state what the hook needs of the model (a process group, numbers) or a "
            "weakref.ref, or wrap the model once and not in each round.",
        )
    if function is not None and not any(step.kind in _OF_GRAPHS for step in loop):
        holder = named or "the tensor that has it"
        kept = next((s.name for s in loop if s.kind in (StepKind.OBJECT, StepKind.TENSOR)), tensor)
        return f"The hook {function.name} and {holder} keep each other alive", Remedy(
            title=f"Remove the hook {function.name}, or let it keep no {kept}",
            text="Keep the handle that is returned where it is registered and call its remove() "
            f"when the tensor is done with, or let the hook refer to the {kept} by weakref.ref(…). "
            "C++ refers to such hooks as well, which gc.collect() doesn't know.",
        )
    if function is not None and function.kind is not StepKind.UNPACK_HOOK:
        receiver = call.receiver if call is not None and call.receiver else "tensor"
        register = call.function if call is not None else "register_hook"
        return f"The hook {function.name} and {graph} keep each other alive", Remedy(
            title=f"Remove the hook {function.name} after backward(), or let it keep no graph",
            text=f"Keep what `handle = {receiver}.{register}(…)` returns and call handle.remove() "
            f"once backward() is done. {opened}",
        )
    if function is not None:
        return f"The unpack hook {function.name} and {graph} keep each other alive", Remedy(
            title=f"Let the unpack hook {function.name} keep no graph",
            text=f"What unpacks saved tensors lives as long as the graph. {opened}",
        )
    context = next((step for step in loop if step.kind is StepKind.CONTEXT), None)
    if context is not None:
        node = context.name.removesuffix("Backward")
        return f"The ctx of {node} and {graph} keep each other alive", Remedy(
            title=f"Detach {tensor} before ctx keeps it",
            text="ctx lives as long as the graph: give inputs and outputs to "
            "ctx.save_for_backward, which closes no loop, and of others the detached tensor "
            f"({tensor}.detach()) or what is computed from it.",
        )
    return f"{graph[0].upper()}{graph[1:]} leads back to itself", Remedy(
        title=f"Detach {tensor}, or delete it when the step is done",
        text=f"What {tensor} refers to leads back to it by its graph. {tensor}.detach() has none; "
        "`del`, or None in its place, opens the loop as well.",
    )
