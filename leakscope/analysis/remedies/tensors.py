"""Tensors and modules that accumulate: slices, joins, gradients, activations, copies, layers."""

from __future__ import annotations

import ast
import re

from leakscope.analysis.growth import policy
from leakscope.analysis.remedies.context import CulpritContext
from leakscope.analysis.remedies.graphs import is_cut
from leakscope.analysis.source.library_calls import registers_hook
from leakscope.analysis.source.program import CodeScope, chain_end, dotted, last_name, parts_of
from leakscope.model.report import Remedy
from leakscope.model.text import human_bytes

_PART = re.compile(r"\[\*\]\[('[^']*'|\d+)\]")
"""From a container to one part of each of its items."""
_VIEWS = frozenset(
    {
        "detach", "view", "reshape", "squeeze", "unsqueeze", "flatten", "select", "narrow", "chunk",
        "diagonal", "transpose", "permute", "numpy", "cpu", "t",
    }
)  # fmt: skip


def recognise_slices(case: CulpritContext) -> Remedy | None:
    """Return how to keep the part that is read."""
    unread = sum(case.row.unused_bytes.values())
    if case.total <= 0 or unread < policy.MOST_SHARE * case.total:
        return None
    copy, value, diff = _copy(case), _stored(case), None
    if copy and value is not None and _is_view(value):
        cut = "" if is_cut(value) or not case.has_graph else "detach()."
        diff = case.edits().call_method(value, cut + copy).diff()
    written = f" `{ast.unparse(value)}` is a view." if diff and value is not None else ""
    how = f".{copy} copies" if copy else ".clone() of a tensor or .copy() of an array copies"
    return case.remedy(
        f"{'Copy' if copy == 'copy()' else 'Clone'} the slice before it is stored in {case.name}",
        case.opening(),
        f"{human_bytes(unread)} of that can't be read through it any more: a "
        f"slice keeps the whole storage of what it was cut from.{written}",
        f"{how} the part that is read, and the rest can go.",
        diff=diff,
    )


_OF_PANDAS = frozenset({"pandas.Series", "pandas.DataFrame"})


def _copy(case: CulpritContext) -> str:
    keeping = [row.type for row in case.inside if sum(row.unused_bytes.values()) > 0]
    holds = [content.type for content in case.row.holds]
    for name in (case.row.type, *holds, *keeping):
        if name.endswith("ndarray") or name in _OF_PANDAS:
            return "copy()"
        if name.endswith(("Tensor", "Parameter")):
            return "clone()"
    return ""


def _stored(case: CulpritContext) -> ast.expr | None:
    """Return what is stored; of a dict or tuple the part that the census saw to keep the whole."""
    value = case.fed_value
    keys = {
        found[1]
        for row in case.inside
        if row.kind in {"array", "tensor", "graph"} and sum(row.unused_bytes.values()) > 0
        if (found := _PART.fullmatch(row.path.removeprefix(case.row.path)))
    }
    parts: dict[str, ast.expr] = {}
    if isinstance(value, ast.Tuple):
        parts = {str(place): part for place, part in enumerate(value.elts)}
    elif isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        parts = {repr(k.value): part for k, part in pairs if isinstance(k, ast.Constant)}
    return parts.get(keys.pop(), value) if len(keys) == 1 else value


def _is_view(value: ast.expr) -> bool:
    """Whether an expression takes a part of one tensor, whatever is called on it meanwhile."""
    match value:
        case ast.Call(func=ast.Attribute(attr=method, value=source)) if method in _VIEWS:
            return _is_view(source)
    return isinstance(value, ast.Subscript)


_JOINERS = frozenset(
    {"cat", "concat", "concatenate", "append", "hstack", "vstack", "stack", "column_stack"}
)


def recognise_concatenation(case: CulpritContext) -> Remedy | None:
    """Return how to stop the enlarging."""
    call = node.value if isinstance(node := case.node, ast.Assign) else None
    joiner = chain_end(call.func) if isinstance(call, ast.Call) else ""
    if joiner not in _JOINERS or case.row.kind not in {"tensor", "graph", "array"}:
        return None
    diff = _detached(case, call) if case.has_graph else None
    graph = "The graph of every part rides along: join detached parts. " if case.has_graph else ""
    return case.remedy(
        f"Don't enlarge {case.name} with {joiner}",
        "",
        f"`{case.line_text}` at {case.where()} copies all of {case.name} each "
        "time and never drops anything.",
        f"{graph}Keep the running figure that is read later, a window of fixed length "
        f"({case.variable}[-N:]), or write the parts to disk.",
        diff=diff,
    )


def _detached(case: CulpritContext, call: ast.expr | None) -> str | None:
    match call:
        case ast.Call(args=[ast.List(elts=joined) | ast.Tuple(elts=joined), *_]) if case.scope:
            parts = [e for e in joined if not case.references.is_container(e, case.scope)]
            if len(parts) == 1 and isinstance(parts[0], ast.Name) and not case.goes_backward:
                return case.edits().call_method(parts[0], "detach()").diff()
    return None


_COPIES = frozenset({"detach", "clone", "cpu", "data"})


def recognise_gradient_log(case: CulpritContext) -> Remedy | None:
    """Return how to keep a number of each gradient."""
    gradient = _gradient(case.fed_value)
    if case.growth != "across" or gradient is None:
        return None
    diff = None
    if all(use.passed_to == "len" for use in case.reads):
        norm = f"{ast.unparse(_plain(gradient))}.norm().item()"
        diff = case.edits().replace(gradient, norm).diff()
    return case.remedy(
        f"Keep the norms of the gradients in {case.name}",
        case.opening(),
        "Every entry is as large as the parameters themselves. A number of each gradient "
        "(.norm().item(), .abs().max().item()) or a histogram is what a log needs; to look at "
        "whole gradients, keep those of the last steps or write them to a file.",
        diff=diff,
    )


def _gradient(value: ast.expr | None) -> ast.expr | None:
    match value:
        case ast.DictComp(value=part) | ast.ListComp(elt=part) | ast.GeneratorExp(elt=part):
            return _gradient(part)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return next((part for part in parts if _is_gradient(part)), None)
    return value if value is not None and _is_gradient(value) else None


def _is_gradient(value: ast.expr) -> bool:
    plain = _plain(value)
    return isinstance(plain, ast.Attribute) and plain.attr == "grad"


def _plain(value: ast.expr) -> ast.expr:
    match value:
        case ast.Call(func=ast.Attribute(attr=method, value=source)) if method in _COPIES:
            return _plain(source)
        case ast.Attribute(attr="data", value=source):
            return _plain(source)
    return value


def recognise_stored_activations(case: CulpritContext) -> Remedy | None:
    """Return how to keep the last activation."""
    is_fed = case.growth == "across" and case.fed is not None
    where = _registered_at(case, case.scope) if is_fed and case.scope is not None else ""
    if not where:
        return None
    cut = " Its outputs also carry their graphs: .detach() drops those." if case.has_graph else ""
    return case.remedy(
        f"Keep the last activation of each layer in {case.name}",
        case.opening(),
        f"That is a hook, registered at {where}, and runs at every forward pass. Overwrite the "
        f"entry instead of appending to it, or add up what is needed of it.{cut} Once it was "
        "looked at, remove the hook by its handle: handle.remove().",
    )


def _registered_at(case: CulpritContext, hook: CodeScope) -> str:
    names = {hook.name}
    if hook.parent is not None and hook.parent.kind == "function":
        names.add(hook.parent.name)
    for name in sorted(names):
        for statement, call in case.sources.program.calls_mentioning(name):
            parts = (part for argument in call.args for part in parts_of(argument, ast.expr))
            if registers_hook(call) and not names.isdisjoint(map(last_name, parts)):
                return case.at(statement)
    return ""


_WEIGHTS = re.compile(r"(^|[._])(model|net|network|ema|weights|teacher|student|module)\b")


def recognise_model_copies(case: CulpritContext) -> Remedy | None:
    """Return how to keep one copy."""
    value = case.fed_value
    if case.growth != "across" or value is None:
        return None
    if not _copies_weights(value) and not (case.row.kind == "module" and _is_deep_copy(value)):
        return None
    return case.remedy(
        f"Keep one copy of the weights in {case.name}",
        case.opening(),
        "Each is a whole copy of the model. Keep the best or the last one, replaced when there is "
        "a better one, or write each to a file with torch.save; an average over epochs needs one "
        "running copy too.",
    )


def _copies_weights(value: ast.expr) -> bool:
    for call in parts_of(value, ast.Call):
        name = chain_end(call.func)
        is_copy = name == "deepcopy" and call.args
        if name == "state_dict" or (is_copy and _WEIGHTS.search(ast.unparse(call.args[0]))):
            return True
    return False


def _is_deep_copy(value: ast.expr | None) -> bool:
    return any(chain_end(call.func) == "deepcopy" for call in parts_of(value, ast.Call))


_ADDERS = frozenset(
    {"append", "extend", "insert", "add_module", "register_module", "register_parameter",
     "register_buffer", "setitem", "setattr", "update"}
)  # fmt: skip


def recognise_growing_module(case: CulpritContext) -> Remedy | None:
    """Return how to create the modules once."""
    if case.growth != "across" or case.line is None or case.line.form not in _ADDERS:
        return None
    value = case.fed_value
    is_module = isinstance(value, ast.Call) and dotted(value.func).startswith(("nn.", "torch.nn."))
    if not (is_module or case.row.kind == "module") or _is_deep_copy(value):
        return None
    return case.remedy(
        f"Create the modules of {case.name} once, before the loop",
        "",
        f"{case.name} gets more of them while it trains{case.measured()}: `{case.line.text}` at "
        f"{case.where()} runs again and again. All that were added before stay, with their "
        "gradients, and parameters that come after the optimizer was made aren't trained by it.",
        "Make them before the optimizer, or replace the one that isn't needed any more; where a "
        "task really needs its own, move those of finished tasks to a file.",
    )


def recognise_param_groups(case: CulpritContext) -> Remedy | None:
    """Return how to add parameters once."""
    line = next((line for line in case.feeding if "add_param_group" in line.text), None)
    if line is None:
        return None
    where = case.sources.location(line.file, line.line)
    return case.remedy(
        "Add parameter groups once, before the loop",
        "",
        f"`{line.text}` at {where} runs repeatedly: each new group keeps its "
        "parameters, and the optimizer keeps state for each of them.",
        "Add the group when its parameters become trainable, and only then; to change a learning "
        "rate, set it in the group that is there.",
    )
