"""Tensors that keep their autograd graph: losses, running totals, averages, recurrent state."""

from __future__ import annotations

import ast
import re

from leakscope.analysis.remedies.context import (
    CulpritContext,
    Use,
    attributes_of_name,
    backward_called,
)
from leakscope.analysis.source.program import (
    CodeScope,
    Statement,
    bases_of,
    chain_end,
    decorators_of,
    dotted,
    keyword_of,
    names_in,
    parts_of,
)
from leakscope.model.census import CensusRow
from leakscope.model.report import Remedy

_CONTAINERS = frozenset({"list", "dict", "deque", "set", "tuple", "queue", "object"})
_NUMBER_CONSUMERS = frozenset({"sum", "mean", "len", "print", "max", "min", "array", "median"})


def recognise_kept_contexts(case: CulpritContext) -> Remedy | None:
    """Return how not to keep the context of a ``torch.autograd.Function``."""
    value, scope = case.fed_value, case.scope
    if case.row.kind not in _CONTAINERS or not isinstance(value, ast.Name) or scope is None:
        return None
    if not _is_of_function(scope) or scope.params[:1] != [value.id]:
        return None
    return case.remedy(
        f"Don't keep `{value.id}` in {case.name}",
        case.opening(),
        f"It is the context of one call of {scope.name}(), and the node of its graph: with it stay "
        "what it saved for backward() and the graph of its inputs.",
        "Keep what is read later of it: a number, a shape, or a detached copy.",
    )


def recognise_kept_tensors(case: CulpritContext) -> Remedy | None:
    """Return how to keep the values without what they were computed from."""
    if case.row.kind not in _CONTAINERS or not (case.has_graph or case.on_device):
        return None
    if case.goes_backward or _consumed_by_gradient(case):
        return None
    value = case.fed_value
    if value is not None and is_cut(value) and case.has_graph and not case.on_device:
        return None
    parts, edits = _tensors(case, value), case.edits()
    methods = [_method(case, part) for part in parts]
    for part, method in zip(parts, methods, strict=True):
        if method:
            edits.call_method(part, method)
    return case.remedy(_title(case, parts, methods), *_sentences(case), diff=edits.diff())


def _tensors(case: CulpritContext, value: ast.expr | None) -> list[ast.expr]:
    """Return the parts of what is stored that are plainly tensors with a graph."""
    scope = case.scope
    match value:
        case ast.Call(func=ast.Name(id="list" | "dict" | "tuple" | "set")):
            return []
        case ast.Name() | ast.Attribute() | ast.Subscript() | ast.Call():
            return [value] if scope and case.may_hold_tensors() else []
        case ast.Dict(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            names = [part for part in parts if isinstance(part, ast.Name)]
            return [name for name in names if scope and backward_called(name.id, scope)]
    return []


def _method(case: CulpritContext, part: ast.expr) -> str:
    """Return the call that keeps the value alone: ``item()``, ``detach().cpu()`` or one of them."""
    if _is_number(case, part) and _numbers_will_do(case):
        return "item()"
    calls = [] if is_cut(part) or not case.has_graph else ["detach()"]
    if _may_leave_device(case):
        calls.append("cpu()")
    return ".".join(calls)


def _is_number(case: CulpritContext, part: ast.expr) -> bool:
    is_loss = isinstance(part, ast.Name) and case.scope and backward_called(part.id, case.scope)
    return bool(is_loss) or case.holds_only_scalars()


def _numbers_will_do(case: CulpritContext) -> bool:
    """Whether everything that is done with the contents works on floats as well."""
    for use in case.reads:
        is_tensors = use.passed_to.startswith(("torch.", "F."))
        if is_tensors or use.called not in _NUMBER_CONSUMERS | {""}:
            return False
        if isinstance(use.parent, (ast.comprehension, ast.For, ast.Subscript)):
            return False
        if isinstance(use.statement.node, ast.Return) and not use.called:
            return False
    return not case.derived_attributes & {"item", "detach", "cpu", "mean", "stack"}


def _may_leave_device(case: CulpritContext) -> bool:
    """Whether nothing that reads the contents could miss them on the GPU."""
    return all(
        use.passed_to in {"len", "print"}
        or use.passed_to.startswith(("np.", "numpy."))
        or {getattr(parent, "attr", "") for parent in use.parents}
        & {"cpu", "numpy", "tolist", "clear"}
        for use in case.reads
    )


def _consumed_by_gradient(case: CulpritContext) -> bool:
    """``torch.stack(losses).mean().backward()`` in the function that reads the contents."""
    scopes = {use.statement.scope for use in case.reads}
    names = {place.name for place in case.references.places if place.kind == "name"}
    return any(backward_called(name, scope) for scope in scopes for name in names)


def _title(case: CulpritContext, parts: list[ast.expr], methods: list[str]) -> str:
    if parts and any(methods):
        return f"Store {ast.unparse(parts[0])}.{methods[0]} in {case.name}"
    if case.holds_only_scalars():
        return f"Store .item() of the numbers in {case.name}"
    how = ".detach()" if case.has_graph else ".cpu()"
    return f"Store {how} of the tensors in {case.name}"


def _sentences(case: CulpritContext) -> list[str]:
    sentences = [case.opening()]
    if case.holds_only_scalars():
        sentences.append(
            "Each is a single number: .item() keeps it as a float, which needs no .detach() or "
            ".cpu() where it is read. Small tensors keep the free memory between them as well."
        )
    elif case.has_graph:
        sentences.append(
            "Its tensors carry their autograd graphs, so each also keeps the operations from which "
            "it was computed, and their activations until backward() frees those; .detach() drops "
            "the graph, and .item() suits a single number."
        )
    if case.has_graph:
        if where := retaining_line(case):
            sentences.append(
                f"{where} calls backward(retain_graph=True), which frees nothing of them: drop the "
                "argument where no second backward() goes through the same graph."
            )
        sentences.append(kept_on_context(case))
        if case.phase.startswith(("val", "test")):
            sentences.append(
                "Running this phase under torch.no_grad() would not build graphs at all."
            )
    if case.on_device:
        sentences.append(f"They lie on {case.on_device}; .cpu() moves what must be kept off it.")
    if case.growth == "across" and not case.releases:
        sentences.append(f"Nothing in the source empties {case.name}: bound or clear it as well.")
    return sentences


_LONGEST = 40
_CUT = frozenset({"item", "detach", "tolist", "numpy"})
_NUMBER_CALLS = frozenset(
    {
        "print", "float", "round", "str", "format", "append", "add_scalar", "log", "info", "debug",
        "warning", "update", "set_postfix", "write", "max", "min", "abs", "add", "isnan",
    }
)  # fmt: skip


def recognise_running_total(case: CulpritContext) -> Remedy | None:
    """Return how to add a number instead of a graph."""
    if not (case.has_graph or case.row.kind == "tensor"):
        return None
    addends = _addends(case.node)
    if not addends or any(map(is_cut, addends)) or case.goes_backward:
        return None
    method = "item()" if _number_will_do(case, addends) else "detach()"
    edits = case.edits()
    written = _called(ast.unparse(addends[0]), method)
    # An argument of the function may be a number already: others may pass one.
    arguments = set(case.scope.params) - {"self", "cls"} if case.scope else set()
    if method == "item()" and any(names_in(addend) & arguments for addend in addends):
        written = f"float({ast.unparse(addends[0])})"
        for addend in addends:
            edits.replace(addend, f"float({edits.source_of(addend)})")
    else:
        for addend in addends:
            edits.call_method(addend, method)
    return case.remedy(
        f"Add {written}, not the tensor, to {case.name}",
        "",
        f"{case.name} is a tensor that remembers how it was computed: `{case.line_text}` at "
        f"{case.where()} chains the whole graph of each iteration to it, activations included.",
        "Only its value is needed here, and .item() gives that as a float."
        if method == "item()"
        else "Its value is still used as a tensor, so .detach() keeps that and drops the graph; "
        "where a float will do, .item() is smaller still.",
        diff=edits.diff(),
    )


def is_cut(node: ast.expr) -> bool:
    """Whether an expression's graph is cut, or it is a number."""
    match node:
        case ast.Constant() | ast.Call(func=ast.Name(id="float" | "int" | "len")):
            return True
        case ast.Call(func=ast.Attribute(attr=method, value=value)):
            return method in _CUT or is_cut(value)
        case ast.Attribute(attr=name, value=value):
            return name == "data" or is_cut(value)
        case ast.BinOp(left=left, right=right):
            return is_cut(left) and (is_cut(right) or isinstance(right, ast.Name))
    return False


def _addends(node: ast.stmt | None) -> list[ast.expr]:
    if isinstance(node, ast.AugAssign):
        return [node.value] if isinstance(node.op, (ast.Add, ast.Sub)) else []
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return []
    target = ast.unparse(node.targets[0])
    terms = _terms(node.value)
    others = [term for term in terms if ast.unparse(term) != target]
    return others if len(others) == len(terms) - 1 else []


def _terms(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        return [*_terms(node.left), *_terms(node.right)]
    return [node]


def _number_will_do(case: CulpritContext, addends: list[ast.expr]) -> bool:
    """Whether each addend is a single number and nobody needs the total as a tensor."""
    called = {use.called for use in case.reads} - {""}
    if case.derived_attributes - {"append"} or not called <= _NUMBER_CALLS:
        return False
    if case.holds_only_scalars() or _is_formatted(case):
        return True
    names, scope = set().union(*map(names_in, addends)), case.scope
    return scope is not None and any(
        backward_called(name, scope) or "item" in attributes_of_name(name, scope) for name in names
    )


def _is_formatted(case: CulpritContext) -> bool:
    for use in case.reads:
        for parent in use.parents:
            if isinstance(parent, ast.FormattedValue) and parent.format_spec is not None:
                return bool(re.search(r"[0-9]*\.[0-9]*[feg]", ast.unparse(parent)))
            if isinstance(parent, ast.Call) and use.passed_to == "float":
                return True
    return False


def _called(text: str, method: str) -> str:
    if len(text) > _LONGEST:
        return "a number" if method == "item()" else "a detached value"
    is_atom = re.fullmatch(r"[\w.]+(\(.*\)|\[.*\])?", text)
    return f"{text}.{method}" if is_atom else f"({text}).{method}"


_WEIGHING = (ast.Mult, ast.Div)
_GRADLESS = frozenset({"no_grad", "inference_mode"})
_CUTTING = frozenset({"detach", "item", "tolist", "numpy", "data"})
_SHOWN = frozenset({"print", "float", "round", "str", "len", "format"})


def recognise_moving_average(case: CulpritContext) -> Remedy | None:
    """Return how to average values without their graphs."""
    node = case.node
    if not case.has_graph or not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return None
    if not _averages(node) or is_cut(node.value) or case.goes_backward:
        return None
    others = [use for use in case.reads if use.statement is not case.statement]
    is_safe = all(_takes_no_gradient(use) for use in others)
    diff = case.edits().call_method(node.value, "detach()").diff() if is_safe else None
    return case.remedy(
        f"Detach what is averaged into {case.name}",
        "",
        f"`{case.line_text}` at {case.where()} computes the next value from "
        "the last one and from outputs that carry their graph, so the operations of every step so "
        f"far hang on it, with what they saved ({case.measure() or 'more each time'}).",
        "An average needs no gradient: .detach() keeps the value and drops the graph, or compute "
        "it under torch.no_grad().",
        ""
        if is_safe
        else "If gradients are meant to go through earlier steps, detach it where a sequence ends.",
        diff=diff,
    )


def _averages(node: ast.Assign) -> bool:
    """Whether the value is a sum with the target's last value, weighed, as one term."""
    target, value = ast.unparse(node.targets[0]), node.value
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, (ast.Add, ast.Sub)):
        return False
    return any(
        isinstance(side, ast.BinOp)
        and isinstance(side.op, _WEIGHING)
        and target in {ast.unparse(side.left), ast.unparse(side.right)}
        for side in (value.left, value.right)
    )


def _takes_no_gradient(use: Use) -> bool:
    """Whether the value is only shown, cut, or read where nothing builds graphs."""
    is_shown = any(isinstance(parent, ast.FormattedValue) for parent in use.parents)
    is_severed = any(getattr(parent, "attr", "") in _CUTTING for parent in use.parents)
    scope: CodeScope | None = use.statement.scope
    decorators: set[str] = set()
    while scope is not None:
        if scope.kind == "function":
            decorators.update(map(chain_end, decorators_of(scope.node)))
        scope = scope.parent
    return is_shown or is_severed or use.passed_to in _SHOWN or bool(decorators & _GRADLESS)


_JOINERS = frozenset({"cat", "concat", "concatenate", "stack", "append", "hstack", "vstack"})


def recognise_hidden_state(case: CulpritContext) -> Remedy | None:
    """Return how to cut the state between batches."""
    node, statement = case.node, case.statement
    if not isinstance(node, ast.Assign) or statement is None:
        return None
    if not (case.has_graph or _shares_a_graph(case)):
        return None
    target = _carried(case, node)
    if target is None or _renewed_in_loop(case, statement):
        return None
    state, diff = ast.unparse(target), None
    if _may_be_cut(case, statement):
        diff = case.edits().insert_before(node, *_cut(case, state)).diff()
    return case.remedy(
        f"Detach {case.name} between batches",
        "",
        f"`{case.line_text}` at {case.where()} computes the next state from "
        "the last one, so the graph of every batch so far hangs on it.",
        f"Cutting it before each batch ({state}.detach(), for an LSTM each of its two tensors) "
        "keeps the value and truncates backpropagation at the batch; "
        "`retain_graph=True` would hide the error and keep the leak.",
        diff=diff,
    )


def _shares_a_graph(case: CulpritContext) -> bool:
    """Return whether most of what a tensor leads to others keep too, as the loss of the last batch
    does: then no graph counts for the tensor alone.
    """
    row = case.row
    shared = sum(row.shared_bytes.values())
    return row.kind == "tensor" and shared > row.host_bytes + sum(row.device_bytes.values())


def _carried(case: CulpritContext, node: ast.Assign) -> ast.expr | None:
    value = node.value
    if not isinstance(value, ast.Call) or chain_end(value.func) in _JOINERS:
        return None
    mine = [use.node for use in case.uses if use.statement is case.statement]
    by_context = {type(getattr(node, "ctx", None)): node for node in reversed(mine)}
    return by_context.get(ast.Store) if ast.Load in by_context else None


def _renewed_in_loop(case: CulpritContext, statement: Statement) -> bool:
    """Whether the state is reset within a loop around this one: for each sequence."""
    outer = set(map(id, statement.loops[:-1]))
    if case.growth == "within" and not outer:
        return False
    return any(
        use.is_stored
        and use.statement is not statement
        and any(id(loop) in outer for loop in use.statement.loops)
        for use in case.uses
    )


def _may_be_cut(case: CulpritContext, statement: Statement) -> bool:
    """Whether cutting before the statement takes no gradient from anybody."""
    if statement.loops:
        return any(a.attr == "backward" for a in parts_of(statement.loops[-1], ast.Attribute))
    outlives = any(place.kind == "attr" and not steps for place, steps in case.references.chain)
    return case.growth == "across" and outlives and not case.goes_backward


def _cut(case: CulpritContext, state: str) -> list[str]:
    cut = f"{state} = {state}.detach()"
    if case.row.kind == "tuple":
        cut = f"{state} = tuple(part.detach() for part in {state})"
    starts_empty = any(
        use.is_stored
        and isinstance(use.statement.node, ast.Assign)
        and isinstance(use.statement.node.value, ast.Constant)
        for use in case.uses
    )
    return [f"if {state} is not None:", f"    {cut}"] if starts_empty else [cut]


def keeps_its_gradients(row: CensusRow) -> bool:
    """Return whether a parameter keeps autograd graphs: only its ``.grad`` leads to any."""
    return row.role == "parameters" and row.graph_nodes > 1


def recognise_kept_gradients(case: CulpritContext) -> Remedy | None:
    """Return what to do where the gradient of a parameter is added to, graph and all."""
    if not keeps_its_gradients(case.row) or case.growth != "across":
        return None
    made = f" by backward(create_graph=True) at {case.where()}" if case.line else ""
    return case.remedy(
        f"Set the gradient of {case.name} to None in each step",
        "",
        f"Its .grad keeps the graph of each step{made}, as it is added to and never set to None. "
        "optimizer.zero_grad() clears only what the optimizer was given: call "
        "model.zero_grad(set_to_none=True), or compute the gradients by "
        "torch.autograd.grad(loss, parameters, create_graph=True), which leaves none in .grad.",
    )


def recognise_retained_graph(case: CulpritContext) -> Remedy | None:
    """Return what to do about the kept graph."""
    where = retaining_line(case) if case.has_graph else ""
    if not where:
        return None
    return case.remedy(
        f"Cut the graph that {case.name} keeps, then drop retain_graph=True",
        "",
        f"{case.name} keeps autograd graphs alive ({case.measure() or 'more each time'}), and "
        f"{where} calls backward(retain_graph=True), which leaves every saved tensor in them.",
        "It is needed only for a second backward() through the same graph. If removing it gives "
        "'Trying to backward through the graph a second time', a value is carried over from an "
        "earlier iteration: detach that one.",
    )


def retaining_line(case: CulpritContext) -> str:
    """Return where the feeding function keeps the graph, empty where it doesn't."""
    calls = parts_of(case.scope.node if case.scope else None, ast.Call)
    kept = (c for c in calls if getattr(keyword_of(c, "retain_graph"), "value", None) is True)
    call = next(kept, None)
    return case.at(case.scope, call) if case.scope and call else ""


def kept_on_context(case: CulpritContext) -> str:
    """Return which attribute of a context keeps a tensor, empty where none is seen to."""
    for scope in case.sources.program.functions.get("forward", []):
        if not _is_of_function(scope) or not scope.params:
            continue
        for node in ast.walk(scope.node):
            name = _stored(node, scope)
            if name and _is_tensor(name, scope):
                return (
                    f"{case.at(scope, node)} keeps `{name}` on {scope.params[0]}, and backward() "
                    f"doesn't free an attribute: {scope.params[0]}.save_for_backward() keeps what "
                    "it does free."
                )
    return ""


def _is_of_function(scope: CodeScope) -> bool:
    return scope.parent is not None and "Function" in bases_of(scope.parent)


def _stored(node: ast.AST, scope: CodeScope) -> str:
    match node:
        case ast.Assign(
            targets=[ast.Attribute(value=owner, attr=name)],
            value=ast.Name() | ast.Call() | ast.Compare() | ast.BinOp(),
        ) if dotted(owner) == scope.params[0]:
            return name
    return ""


def _is_tensor(name: str, forward: CodeScope) -> bool:
    siblings = forward.parent.children if forward.parent else []
    nodes = (node for s in siblings if s.name == "backward" for node in ast.walk(s.node))
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=called))) if called == name:
                return True
    return False
