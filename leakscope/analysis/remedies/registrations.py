"""What is registered again and again, and what a library keeps of the calls to it."""

from __future__ import annotations

import ast
import re

from leakscope.analysis.remedies.context import CulpritContext, calls_of
from leakscope.analysis.source.library_calls import registers_hook
from leakscope.analysis.source.mutations import BUILTIN_FEEDERS
from leakscope.analysis.source.program import (
    Loop,
    Statement,
    calls_in,
    dotted,
    names_in,
    own_nodes,
    own_parts,
    parts_of,
)
from leakscope.model.census import CensusRow, RootKind
from leakscope.model.path_pattern import parse_path, parse_steps
from leakscope.model.registries import registry_of
from leakscope.model.report import Remedy
from leakscope.model.text import human_bytes, plural


def recognise_hooks(case: CulpritContext) -> Remedy | None:
    """Return how to remove the hooks."""
    statement, node = case.statement, case.node
    if statement is None or not isinstance(node, ast.Expr) or not registers_hook(node.value):
        return None
    return case.remedy(
        "Register the hook once, or remove it by its handle",
        "",
        f"`{case.line_text}` at {case.where()} adds one more hook each time and throws the handle "
        "away, so all of them stay registered, run, and keep what they refer to.",
        "Register before the loop, or keep the handle and call handle.remove() when done.",
        diff=_hook_diff(case, statement, node),
    )


def _hook_diff(case: CulpritContext, statement: Statement, node: ast.Expr) -> str | None:
    is_handled = {"handle", "handles"} & names_in(statement.scope.node)
    if not statement.loops or is_handled:
        return None
    inner, edits = statement.loops[-1], case.edits()
    call = edits.source_of(node.value)
    if _is_over_parts(inner, node) and len(statement.loops) > 1:
        outer = statement.loops[-2]
        if inner not in outer.body or node not in inner.body or _leaves_early(outer):
            return None
        edits.insert_before(inner, "handles = []").replace(node.value, f"handles.append({call})")
        removal = ("for handle in handles:", "    handle.remove()")
        return edits.insert_after(outer.body[-1], *removal).diff()
    # Removed at once it would never be called.
    if node not in inner.body[:-1] or _is_over_parts(inner, node) or _leaves_early(inner):
        return None
    edits.replace(node.value, f"handle = {call}")
    return edits.insert_after(inner.body[-1], "handle.remove()").diff()


def _is_over_parts(loop: ast.stmt, registration: ast.Expr) -> bool:
    """Whether a loop goes over the parts of a model rather than over epochs or batches.

    Then a hook is registered with what the loop goes over, or its text says so.
    """
    if not isinstance(loop, ast.For):
        return False
    match registration.value:
        case ast.Call(func=ast.Attribute(value=owner)) if names_in(owner) & names_in(loop.target):
            return True
    text = ast.unparse(loop.iter)
    return any(word in text for word in ("modules", "layers", "children", "blocks", "parameters"))


def _leaves_early(loop: Loop) -> bool:
    leaving = (ast.Continue, ast.Break, ast.Return)
    return any(isinstance(node, leaving) for part in loop.body for node in ast.walk(part))


def recognise_modules_made(case: CulpritContext) -> Remedy | None:
    """Return how to keep the number of modules constant that a program loads as it runs."""
    module = parse_path(case.row.path).root
    if "*" not in module or case.row.root not in (RootKind.GLOBAL, RootKind.LIBRARY):
        return None
    loaded = f" {case.where()} loads one more each time." if case.line is not None else ""
    return case.remedy(
        f"Load {module} once, or take each out of sys.modules when it was used",
        case.opening(),
        f"Modules of that name are loaded again and again, each under a name of its own.{loaded}",
        "sys.modules keeps every module until the program ends, with all its globals. Load it once "
        "and pass what differs to a function of it, or `del sys.modules[name]` after use.",
        closing="",
    )


def recognise_classes_made(case: CulpritContext) -> Remedy | None:
    """Return how to keep the number of classes constant that a program makes as it runs."""
    made = case.heaviest
    if case.growth != "across" or made is None or not _METACLASS.search(made.type):
        return None
    return case.remedy(
        f"Make each class in {case.name} once",
        case.opening(),
        f"It holds {plural(made.count, 'class')} that were made while the program ran, "
        f"{human_bytes(made.bytes / made.count)} each.",
        "A class keeps its methods, their globals and all its attributes. Make it once for each "
        "set of arguments, with functools.lru_cache around the function that makes it, or pass "
        "what differs to instances of a single class.",
    )


_METACLASS = re.compile(r"(^|\.)type$|Meta$")
_CALLABLES = frozenset(
    {"function", "method", "partial", "partialmethod", "builtin_function_or_method", "lambda"}
)
_LISTENER_WORDS = re.compile(r"listener|callback|subscriber|observer|handler|hook", re.IGNORECASE)
_LISTENER_KINDS = frozenset({"list", "dict", "set", "deque", "tuple"})
_ORDERERS = frozenset({"list", "tuple", "sorted", "reversed", "iter", "enumerate"})


def recognise_subscribers(case: CulpritContext) -> Remedy | None:
    """Return how to keep the number of subscribers constant."""
    if case.growth != "across" or case.row.kind not in _LISTENER_KINDS:
        return None
    called_at, is_named = _called_at(case), bool(_LISTENER_WORDS.search(case.name))
    kind = case.heaviest.type.rpartition(".")[2] if case.heaviest else ""
    is_wrapped = kind == "tuple" and called_at and is_named
    if not (called_at or is_named) or not (is_wrapped or kind in _CALLABLES):
        return None
    subscribing = _subscribing(case)
    return case.remedy(
        f"Subscribe to {case.name} once, or unsubscribe",
        case.opening(),
        "It holds callables, and each keeps what it was made with: arguments, closure, object.",
        f"{called_at} calls all of them." if called_at else "",
        f"{subscribing} subscribes one more each time." if subscribing else "",
        "Subscribe before the loop, or take the callable out again once it was called, and let it "
        "keep numbers rather than tensors. Keeping only the last entries would drop subscribers "
        "that others count on.",
    )


def _called_at(case: CulpritContext) -> str:
    """Return where the contents are called in a loop, an empty text where they aren't."""
    for use in case.reads:
        loop = use.statement.node
        if isinstance(loop, (ast.For, ast.AsyncFor)) and _goes_over(loop.iter, use.node):
            calls = (call for part in loop.body for call in parts_of(part, ast.Call))
            if names_in(loop.target) & {dotted(call.func) for call in calls}:
                return case.at(use.statement)
    return ""


def _goes_over(iterated: ast.expr, container: ast.expr) -> bool:
    while isinstance(iterated, ast.Call) and iterated is not container:
        name = iterated.func.id if isinstance(iterated.func, ast.Name) else ""
        if name in _ORDERERS and iterated.args:
            iterated = iterated.args[0]
        elif isinstance(iterated.func, ast.Attribute):
            iterated = iterated.func.value
        else:
            return False
    return iterated is container


def _subscribing(case: CulpritContext) -> str:
    """Return where the feeding function is called again and again, empty where that isn't known."""
    scope, heat = case.scope, case.sources.heat
    calls = calls_of(case.sources, scope) if scope and scope.kind == "function" else ()
    return next((case.at(statement, call) for statement, call in calls if heat.of(statement)), "")


def recognise_log_handlers(case: CulpritContext) -> Remedy | None:
    """Return how to add the handler once."""
    around = ast.unparse(case.scope.node) if case.scope is not None else ""
    if ".handlers" in around.replace("logging.handlers", ""):
        return None  # it looks at those that are there
    diff = None
    match case.node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="addHandler", value=owner))):
            logger = ast.unparse(owner)
            adds = f"`{case.line_text}` at {case.where()} adds"
            diff = _log_handler_diff(case, case.node, logger)
        case _ if case.row.path.endswith(".handlers") and case.row.path.startswith("logging·"):
            logger = "logger"
            place = f" at {case.where()}" if case.line is not None else ""
            adds = f"Each call of addHandler(){place} adds"
        case _:
            return None
    return case.remedy(
        "Add the log handler once",
        "",
        f"{adds} one more handler; each keeps its file or buffer, and every message is written "
        "once per handler.",
        f"Configure logging before the loop, or only when `{logger}.handlers` is empty.",
        closing="gc.collect() can't help: loggers live as long as the program.",
        diff=diff,
    )


def _log_handler_diff(case: CulpritContext, node: ast.Expr, logger: str) -> str | None:
    if len(case.sources.program.mentioning("addHandler")) != 1 or node.lineno != node.end_lineno:
        return None
    edits = case.edits().insert_before(node, f"if not {logger}.handlers:")
    return edits.replace(node, f"    {edits.source_of(node)}").diff()


_NEWER_RELEASE = "A newer release of the library may keep less: search its changes for this name."


def recognise_library_registry(case: CulpritContext) -> Remedy | None:
    """Return how to give a library less to keep."""
    registry = registry_of(case.row.path)
    is_of_library = case.row.root is RootKind.LIBRARY and not case.row.user
    if case.growth != "across" or not (is_of_library or registry is not None):
        return None
    if case.row.kind == "lru_cache":
        never = case.row.hits == 0
        return case.remedy(
            f"Call {case.name}.cache_clear() now and then",
            case.opening(),
            "It is a library's cache of results, by the arguments of the call"
            + (", and has never answered one: every call is a new one to it." if never else "."),
            f"Pass it the same objects again instead of new ones, or clear it. {_NEWER_RELEASE}",
        )
    if case.line is None and case.row.length is None:
        return None
    advice = registry.advice if registry is not None else ""
    return case.remedy(
        f"Register once, or take back what {case.name} keeps",
        case.opening(),
        "It belongs to a library, which keeps what a call gives it until that is taken back "
        "(detach, close, unregister) or what it was registered for is gone.",
        advice or f"Call it once, before the loop, or give it nothing large. {_NEWER_RELEASE}",
    )


_REGISTERING = re.compile(r"^(add|attach|callback|connect|enter|listen|on|register|subscribe)(_|$)")
_COUNTERPARTS = {("ignite", "add_event_handler"): "remove_event_handler"}


def recognise_library_object(case: CulpritContext) -> Remedy | None:
    """Return how to have the library keep less."""
    holder = _holder(case)
    if holder is None or case.growth != "across" or case.row.root is RootKind.LIBRARY:
        return None
    calls = calls_in(case.node) if case.node else ()
    methods = [call.func for call in calls if isinstance(call.func, ast.Attribute)]
    # `app["log"].append(x)` fills a container of the program's that a library keeps.
    if any(m.attr in BUILTIN_FEEDERS and isinstance(m.value, ast.Subscript) for m in methods):
        return None
    library, class_name = holder.type.partition(".")[0], holder.type.rpartition(".")[2]
    belongs = f"It belongs to {class_name} of {library}, so no bound can be set on it from outside."
    call = next((method for method in methods if _REGISTERING.match(method.attr)), None)
    if call is None:
        return case.remedy(
            f"Give {class_name} less to keep",
            case.opening(),
            belongs,
            "Give it a number or a summary instead of the whole, or start again with another "
            f"{class_name} where the library lets you.",
            case.about_views(),
        )
    undo = _COUNTERPARTS.get((library, call.attr), "")
    return case.remedy(
        f"Call {ast.unparse(call)} once, or take back what it adds",
        case.opening(),
        f"{belongs} What each call adds stays, and what it refers to, until it is taken back.",
        "Make the call once, outside what is repeated, or undo it when the round is done"
        + (f": {ast.unparse(call.value)}.{undo}(…)." if undo else " (remove, detach, unregister)."),
    )


def _holder(case: CulpritContext) -> CensusRow | None:
    for row in reversed(case.above):
        way = parse_steps(case.row.path.removeprefix(row.path))
        names = [step.value for step in way if step.kind == "attr"]
        if names:
            is_of_library = "." in row.type and not case.sources.defines(row.type)
            is_own = all(_is_library_own(case, name) for name in names)
            is_holder = is_own and way[0].kind == "attr" and is_of_library
            return row if is_holder and row.role != "optimizer_state" else None
    return None


def _is_library_own(case: CulpritContext, name: str) -> bool:
    """Whether the program doesn't mention an attribute; a private one, that it doesn't bind it, and
    doesn't write its name out, as ``setattr`` wants it.
    """
    mentions = case.sources.program.mentioning(name)
    for node in (node for statement in mentions for node in own_nodes(statement.node)):
        match node:
            case ast.Constant(value=written) | ast.Attribute(attr=written, ctx=ast.Store()):
                if written == name:
                    return False
    return name.startswith("_") or not mentions


def recognise_metric_state(case: CulpritContext) -> Remedy | None:
    """Return how to reset the metric."""
    receiver = _receiver(case)
    if receiver is None or case.line is None or _calls(case, receiver, "reset"):
        return None
    computing = _calls(case, receiver, "compute")
    is_metric = "metric" in (case.row.path + case.row.type + case.line.text).lower()
    if not is_metric and not computing:
        return None
    diff, node = None, computing[0].node if len(computing) == 1 else None
    is_plain = isinstance(node, (ast.Assign, ast.Expr, ast.AnnAssign))
    if node is not None and is_plain and computing[0].scope is case.scope:
        diff = case.edits().insert_after(node, f"{receiver}.reset()").diff()
    return case.remedy(
        f"Reset {receiver} after each round",
        "",
        f"{receiver} gathers every batch given to it at {case.where()} (`{case.line.text}`) and "
        "is never reset, so it keeps the predictions of all rounds, and its result mixes them.",
        f"Call {receiver}.reset() after {receiver}.compute().",
        diff=diff,
    )


def _receiver(case: CulpritContext) -> str | None:
    if case.node is None or case.line is None or case.line.form not in {"call", "update"}:
        return None
    for call in calls_in(case.node):
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr in {"update", "forward"}:
            return ast.unparse(function.value)
        if case.scope is not None and case.references.steps_from(function, case.scope):
            return ast.unparse(function)
    return None


def _calls(case: CulpritContext, receiver: str, method: str) -> list[Statement]:
    return [
        statement
        for statement in case.sources.program.mentioning(method)
        for node in own_parts(statement.node, ast.Attribute)
        if node.attr == method and ast.unparse(node.value) == receiver
    ]


_GATHERED = re.compile(
    r"^transformers\..*\b(?:evaluation_loop|prediction_loop)\."
    r"(?:all_(preds|labels|inputs|losses)|(preds|labels|inputs|losses)_host)\b"
)
_FEWER = (
    "Trainer(preprocess_logits_for_metrics=…) keeps only what the metric reads, such as "
    "logits.argmax(-1); prediction_loss_only=True keeps none, if the loss is enough."
)
_MOVING = "eval_accumulation_steps=N moves what was gathered from the device every N batches"


def recognise_trainer_evaluation(case: CulpritContext) -> Remedy | None:
    """Return the settings of the trainer that gather less."""
    found = _GATHERED.match(case.row.path) or _GATHERED.match(case.name)
    if found is None or case.growth != "within":
        return None
    what = (found[1] or found[2]).replace("preds", "predictions")
    batches = "batch_eval_metrics=True"
    return case.remedy(
        f"Set eval_accumulation_steps or {batches}" if case.on_device else f"Set {batches}",
        "",
        f"The trainer gathers the {what} of a whole evaluation in {case.name}{case.measured()} and "
        "hands them to compute_metrics at the end.",
        f"With TrainingArguments({batches}) compute_metrics is called for each batch, with "
        "compute_result=True for the last one, and nothing is gathered.",
        _FEWER if what == "predictions" else "",
        f"{_MOVING}: that saves {case.on_device}'s memory, not the host's."
        if case.on_device
        else f"{_MOVING}: that doesn't help here, where the host's memory is filled.",
        closing="",
    )
