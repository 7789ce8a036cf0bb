"""What to change about a culprit: the recognised patterns, the most specific first.

Each recogniser returns a remedy where its pattern is there and None where it isn't; the general one
comes last. A diff is offered only where the change is safe as far as the sources show.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from leakscope.analysis.remedies import (
    caches,
    catalogue,
    containers,
    graphs,
    records,
    registrations,
    tensors,
)
from leakscope.analysis.remedies.context import CulpritContext
from leakscope.model.known import KnownCulprit
from leakscope.model.report import Remedy

PATTERNS: tuple[Callable[[CulpritContext], Remedy | None], ...] = (
    records.recognise_output_history,
    registrations.recognise_modules_made,
    registrations.recognise_classes_made,
    registrations.recognise_trainer_evaluation,
    caches.recognise_function_cache,
    caches.recognise_weak_keys,
    registrations.recognise_hooks,
    registrations.recognise_subscribers,
    registrations.recognise_log_handlers,
    records.recognise_log_records,
    records.recognise_warnings,
    containers.recognise_tee,
    tensors.recognise_param_groups,
    records.recognise_figures,
    records.recognise_kept_figures,
    caches.recognise_default_argument,
    records.recognise_stored_exceptions,
    records.recognise_suspended,
    tensors.recognise_growing_module,
    tensors.recognise_slices,
    containers.recognise_exit_stack,
    graphs.recognise_kept_gradients,
    graphs.recognise_running_total,
    graphs.recognise_moving_average,
    tensors.recognise_concatenation,
    graphs.recognise_hidden_state,
    containers.recognise_linked_objects,
    containers.recognise_thread_values,
    tensors.recognise_gradient_log,
    tensors.recognise_stored_activations,
    tensors.recognise_model_copies,
    graphs.recognise_kept_contexts,
    graphs.recognise_kept_tensors,
    graphs.recognise_retained_graph,
    caches.recognise_source_bound,
    containers.recognise_queue,
    containers.recognise_heap,
    containers.recognise_replay_buffer,
    registrations.recognise_metric_state,
    registrations.recognise_library_object,
    caches.recognise_class_attribute,
    caches.recognise_dict_cache,
    containers.recognise_tail_reads,
    containers.recognise_gathered_rounds,
    containers.recognise_unread_list,
    containers.recognise_gathered_within,
    registrations.recognise_library_registry,
)


def propose(case: CulpritContext, known: KnownCulprit | None = None) -> Remedy:
    """Return the remedy for a culprit, with a diff where its pattern is recognised.

    That of the entry of the catalogue that describes it comes first.
    """
    recognised = (recognise(case) for recognise in PATTERNS)
    general = next((remedy for remedy in recognised if remedy is not None), None)
    remedy = catalogue.prefer_known_remedy(known, general or general_remedy(case))
    return records.with_kept_errors(case, remedy)


_ADVICE = {
    "list": "Keep only what is needed later: a number per item instead of the item, the last N in "
    "a deque(maxlen=N), or empty it once its contents were used.",
    "deque": "Give it a bound, deque(maxlen=N), or take items out as fast as they are put in.",
    "dict": "Remove keys that aren't needed any more, or bound the number of keys.",
    "set": "Remove members that aren't needed any more, or keep a count instead of the members.",
    "tuple": "It is made longer by copying: keep only the part that is read later.",
    "tensor": "Keep only the part that is read later, and overwrite in place instead of enlarging.",
    "graph": "Break the chain of operations with .detach(), or store a number with .item(): each "
    "operation on it keeps everything that was needed to compute it.",
    "array": "Keep only the part that is read later; enlarging an array copies it each time.",
    "bytes": "Write to a file instead of gathering in memory, or empty the buffer after use.",
    "str": "Gather the pieces in a file, or keep only the last of them.",
    "object": "Look for the attribute that grows and drop what isn't needed any more.",
    "module": "Buffers or submodules are added while training: create them once, before the loop.",
    "optimizer": "Its state grows with its parameters: create it once and don't add parameter "
    "groups in a loop.",
    "function": "A function object keeps its closure and attributes: don't store results on it.",
    "lru_cache": "Bound the cache with lru_cache(maxsize=N), or call cache_clear() after use.",
    "queue": "Take items out as fast as they are put in, or bound the queue with maxsize.",
    "image": "Close images after use: `with Image.open(path) as image:`.",
    "figure": "Close each figure after saving it: plt.close(fig).",
    "generator": "A suspended generator keeps its locals: exhaust it or call its close().",
    "type": "Keep what differs from object to object in a dict with a bound, or on the object.",
    "future": "Each callback that is added stays until the future is done: add one that serves "
    "all, or take each out again with remove_done_callback().",
    "traceback": "A traceback keeps every frame and its locals: store the text of the error.",
}
_NO_CONTAINERS = frozenset({"object", "module", "function", "other"})
_OTHER = "Find out whether it is needed after it was used, and drop the last reference if not."


def general_remedy(case: CulpritContext) -> Remedy:
    """Return advice by kind."""
    kind = case.row.kind
    advised = "optimizer" if case.row.role == "optimizer_state" else kind
    advice = _ADVICE.get(advised, _OTHER)
    if case.has_graph and kind in {"list", "dict", "deque", "set", "tuple", "object"}:
        advice = f"It also keeps autograd graphs: store .detach() or .item(). {advice}"
    if case.on_device:
        advice += f" Most of it lies on {case.on_device}: .cpu() moves what must be kept."
    if case.growth == "within":
        title = f"Gather less in {case.name} at a time"
        span = f" during one {case.unit}" if case.unit else ""
        when = f"It climbs{span}, and nothing shows it given back."
        if case.falls_back:
            when = (
                f"It climbs{span} and is given back afterwards: it sets the peak, it doesn't leak."
            )
    else:
        of_contents = _advice_on_contents(case)
        advice = of_contents or advice
        when = "Nothing in the recording shows it being emptied for good."
        title = f"Bound or empty {case.name}"
        if kind in _NO_CONTAINERS:
            title = f"Bound what {case.name} keeps"
        if case.row.type == "type":
            title, advice = f"Add no more attributes to the class {case.name}", _ADVICE["type"]
        elif case.row.type.endswith("Future"):
            title, advice = f"Remove callbacks from {case.name}", _ADVICE["future"]
        if kind == "graph":
            title = f"Cut the graph that {case.name} carries"
        elif taken := _taken_out(case):
            title, when = f"Remove every entry of {case.name} that is done with", ""
            advice = f"{taken} {of_contents}".rstrip()
    return case.remedy(title, f"{case.opening()} {when}", advice, case.about_views())


def _advice_on_contents(case: CulpritContext) -> str:
    most = case.heaviest
    if most is None or not most.type.endswith("Thread"):
        return ""
    return (
        "Drop threads that have ended: [t for t in threads if t.is_alive()] keeps those to join. A "
        "ThreadPoolExecutor keeps none of its own."
    )


_TAKERS = frozenset({"pop", "popleft", "popitem", "remove", "discard"})


def _taken_out(case: CulpritContext) -> str:
    """Return where the source takes entries out, in a sentence; empty where nowhere."""
    for use in case.uses:
        is_deletion = isinstance(use.statement.node, ast.Delete)
        if use.method in _TAKERS or (is_deletion and isinstance(use.parent, ast.Subscript)):
            return (
                f"{case.at(use.statement)} takes entries out, and fewer than come: look for the "
                "ways on which it isn't reached. What stands in a finally: clause runs on all of "
                "them."
            )
    return ""
