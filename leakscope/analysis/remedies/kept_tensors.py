"""Tensors put into a container with their graph, or on the GPU, or as tensors of one number.

Recognises ``losses.append(loss)``, ``outputs[i] = out`` and the like where the container keeps
graphs, device memory or single-number tensors. Offers a diff where the value is plainly the
tensor. Silent where the value is cut and on the host already, where gradients are computed from
the contents later, and where the container is no Python container.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.retained_graph import retaining_line
from leakscope.analysis.remedies.running_total import is_cut
from leakscope.analysis.remedies.saved_on_context import kept_on_context
from leakscope.analysis.remedies.usage import (
    Use,
    backward_called,
    derived_attributes,
    goes_backward,
    reads,
    releases,
)
from leakscope.model.report import Remedy

_CONTAINERS = frozenset({"list", "dict", "deque", "set", "tuple", "queue", "object"})
_NUMBER_CONSUMERS = frozenset({"sum", "mean", "len", "print", "max", "min", "array", "median"})


def recognise(case: Case) -> Remedy | None:
    """Return how to keep the values without what they were computed from."""
    if case.row.kind not in _CONTAINERS or not (case.has_graph or case.on_device):
        return None
    if goes_backward(case.references) or _consumed_by_gradient(case):
        return None
    value = case.fed_value
    if value is not None and is_cut(value) and case.has_graph and not case.on_device:
        return None
    parts = _tensors(case, value)
    edits = case.edits()
    methods = []
    for part in parts:
        method = _method(case, part)
        methods.append(method)
        if method:
            edits.call_method(part, method)
    return case.remedy(
        _title(case, parts, methods), *_sentences(case), diff=edits.diff() if parts else None
    )


def _tensors(case: Case, value: ast.expr | None) -> list[ast.expr]:
    """Return the parts of what is stored that are plainly tensors with a graph."""
    if value is None or case.scope is None:
        return []
    if isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)):
        return [value] if case.may_hold_tensors() else []
    if isinstance(value, ast.Call):
        return [value] if case.may_hold_tensors() and not _makes_container(value) else []
    if isinstance(value, ast.Dict):
        elements = list(value.values)
    elif isinstance(value, (ast.Tuple, ast.List)):
        elements = value.elts
    else:
        return []
    scope = case.scope
    return [e for e in elements if isinstance(e, ast.Name) and backward_called(e.id, scope)]


def _makes_container(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in {"list", "dict", "tuple", "set"}


def _method(case: Case, part: ast.expr) -> str:
    """Return the call that keeps the value alone: ``item()``, ``detach().cpu()`` or one of them."""
    if _is_number(case, part) and _numbers_will_do(case):
        return "item()"
    calls = [] if is_cut(part) or not case.has_graph else ["detach()"]
    if _may_leave_device(case):
        calls.append("cpu()")
    return ".".join(calls)


def _is_number(case: Case, part: ast.expr) -> bool:
    """Whether the tensor is known to be of one number."""
    is_loss = (
        isinstance(part, ast.Name)
        and case.scope is not None
        and backward_called(part.id, case.scope)
    )
    return is_loss or case.holds_only_scalars()


def _numbers_will_do(case: Case) -> bool:
    """Whether everything that is done with the contents works on floats as well."""
    for use in reads(case.references):
        called = use.passed_to
        if called.startswith(("torch.", "F.")):
            return False
        if called and called.rpartition(".")[2] not in _NUMBER_CONSUMERS:
            return False
        if _loops_over(use) or any(isinstance(p, ast.Subscript) for p in use.parents[:1]):
            return False
        if isinstance(use.statement.node, ast.Return) and not called:
            return False
    return not derived_attributes(case.references) & {"item", "detach", "cpu", "mean", "stack"}


def _loops_over(use: Use) -> bool:
    return any(isinstance(p, (ast.comprehension, ast.For)) for p in use.parents[:1])


def _may_leave_device(case: Case) -> bool:
    """Whether nothing that reads the contents could miss them on the GPU."""
    for use in reads(case.references):
        called = use.passed_to
        if called in {"len", "print"} or called.startswith(("np.", "numpy.")):
            continue
        chained = {p.attr for p in use.parents if isinstance(p, ast.Attribute)}
        if chained & {"cpu", "numpy", "tolist", "clear"}:
            continue
        return False
    return True


def _consumed_by_gradient(case: Case) -> bool:
    """``torch.stack(losses).mean().backward()`` in the function that reads the contents."""
    scopes = {use.statement.scope for use in reads(case.references)}
    names = {place.name for place in case.references.places if place.kind == "name"}
    return any(backward_called(name, scope) for scope in scopes for name in names)


def _title(case: Case, parts: list[ast.expr], methods: list[str]) -> str:
    if parts and any(methods):
        return f"Store {ast.unparse(parts[0])}.{methods[0]} in {case.name}"
    how = ".detach()" if case.has_graph else ".cpu()"
    return f"Store {how} of the tensors in {case.name}"


def _of_retain_graph(case: Case) -> str:
    line = retaining_line(case)
    if line is None or case.scope is None:
        return ""
    where = case.sources.location(case.scope.module.file, line)
    return (
        f"{where} calls backward(retain_graph=True), which frees nothing of them: drop the "
        "argument where no second backward() goes through the same graph."
    )


def _sentences(case: Case) -> list[str]:
    said = [case.opening()]
    if case.has_graph:
        said.append(
            "Its tensors carry their autograd graphs, so each also keeps the operations from which "
            "it was computed, and their activations until backward() frees those; .detach() drops "
            "the graph, and .item() suits a single number."
        )
        said += [_of_retain_graph(case), kept_on_context(case)]
        if case.phase.startswith(("val", "test")):
            said.append("Running this phase under torch.no_grad() would not build graphs at all.")
    if case.on_device:
        said.append(f"They lie on {case.on_device}; .cpu() moves what must be kept off it.")
    if case.growth == "across" and not releases(case.references):
        said.append(f"Nothing in the source empties {case.name}: bound or clear it as well.")
    return [*said, case.still_reachable()]
