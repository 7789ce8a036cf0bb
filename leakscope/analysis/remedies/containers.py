"""Collections that only ever get more: gathered lists, buffers, heaps, queues, linked objects."""

from __future__ import annotations

import ast
import re

from leakscope.analysis.remedies.context import CulpritContext, Use
from leakscope.analysis.source.index import run_in_threads
from leakscope.analysis.source.mutations import FEEDERS, TEE, made_from
from leakscope.analysis.source.program import (
    Statement,
    chain_end,
    dotted,
    own_parts,
    parts_of,
)
from leakscope.model.report import Remedy

_ROUND = re.compile(r"val|eval|test|train|epoch|predict|infer", re.IGNORECASE)
_ROUND_KINDS = frozenset({"list", "dict", "set", "deque"})
NO_ROUNDS = frozenset({"minute", "hour", "request", "task"})
"""Units of work of programs that serve, in which nothing begins again."""


def recognise_gathered_rounds(case: CulpritContext) -> Remedy | None:
    """Return how to empty the container in each round."""
    statement = case.statement
    if case.growth != "across" or case.row.kind not in _ROUND_KINDS or statement is None:
        return None
    if case.line is None or case.line.form not in FEEDERS | {"setitem", "augmented"}:
        return None
    per_step = case.unit in {"step", "batch"} and len(statement.loops) < 2
    if per_step or case.releases or not _outlives(case, statement):
        return None
    diff = _gathered_rounds_diff(case, statement)
    if diff is None and (_unread(case) or case.unit in NO_ROUNDS):
        return None
    round_name = case.phase or case.unit or "round"
    mixed = ", and what is computed from it mixes them" if _computed_from(case) else ""
    lists = _growing_inside(case)
    emptied = f"each {lists[0]}" if lists else case.name
    return case.remedy(
        f"Empty {emptied} in each {case.unit or 'round'}",
        f"{case.opening()} Nothing in the source empties it, so it keeps those of every earlier "
        f"{round_name}{mixed}.",
        f"{case.name} has as many keys as ever: what grows is {' and '.join(lists[:3])}."
        if lists
        else "",
        f"Empty {'them' if lists else 'it'} where the round begins, or keep only the figures "
        f"computed from {'them' if lists else 'it'}.",
        _unread(case),
        case.about_views(),
        diff=diff,
    )


def _growing_inside(case: CulpritContext) -> list[str]:
    """Return the names of the containers in it that grow, the largest first, where it gets no more
    entries itself.
    """
    if case.items_per_unit or not case.row.length:
        return []
    grown = {
        row.path: row
        for row in case.inside
        if row.kind in _ROUND_KINDS and row.count > 1 and (row.length or 0) > 2 * row.count
    }
    inner = [grown[w] for w in grown if not any(p != w and p.startswith(w) for p in grown)]
    return [row.name for row in sorted(inner, key=lambda row: -row.host_bytes)]


def _computed_from(case: CulpritContext) -> bool:
    return any(
        isinstance(use.parent, (ast.For, ast.AsyncFor, ast.comprehension))
        or use.passed_to not in {"", "len", "print"}
        or isinstance(getattr(use.parent, "slice", None), ast.Slice)
        or use.method in {"values", "items", "copy"}
        for use in case.reads
    )


def _unread(case: CulpritContext) -> str:
    is_read = any(use.passed_to != "len" for use in case.reads)
    return "" if is_read else "In the recorded source nothing reads it: does it have to be kept?"


def _outlives(case: CulpritContext, statement: Statement) -> bool:
    """Whether the container is an attribute, a global, or a local of an outer function or loop."""
    return len(statement.loops) > 1 or any(
        place.kind == "attr" or place.scope is not statement.scope
        for place, _ in case.references.chain
    )


def _gathered_rounds_diff(case: CulpritContext, statement: Statement) -> str | None:
    receiver, scope, loops = _receiver(case), statement.scope, statement.loops
    if receiver is None or not case.has_payload() or not loops or _leaves(case):
        return None
    first, readers = loops[0], [use.statement for use in case.reads]
    reads_after = any(reader.line > (loops[-1].end_lineno or 0) for reader in readers)
    is_local = scope.kind == "function" and scope in (
        place.scope for place in case.references.places if place.kind == "name"
    )
    begin: ast.stmt | None = None
    if not is_local and len(loops) == 1 and case.unit not in {"step", "batch"}:
        elsewhere = any(reader.scope is not scope for reader in readers)
        begin = first if not elsewhere and (reads_after or _ROUND.search(scope.name)) else None
    elif len(loops) == 2 and reads_after and all(first in reader.loops for reader in readers):
        begin = first.body[0]
    return case.edits().insert_before(begin, f"{receiver}.clear()").diff() if begin else None


def _receiver(case: CulpritContext) -> str | None:
    function = case.fed.func if case.fed else None
    if not isinstance(function, ast.Attribute) or case.scope is None:
        return None
    receiver = function.value
    if not case.references.is_container(receiver, case.scope):
        return None
    if isinstance(receiver, ast.Subscript) and isinstance(receiver.slice, ast.Constant):
        return case.edits().source_of(receiver)
    return ast.unparse(receiver) if isinstance(receiver, (ast.Name, ast.Attribute)) else None


def _leaves(case: CulpritContext) -> bool:
    """Whether the container itself is handed on, so that emptying it would be seen elsewhere."""
    handing = (ast.Return, ast.Yield, ast.Dict, ast.Tuple, ast.List)
    return any(
        isinstance(use.parent, handing)
        or (isinstance(use.parent, (ast.Assign, ast.AnnAssign)) and use.parent.value is use.node)
        for use in case.reads
    )


_WITHIN_KINDS = frozenset({"list", "dict", "set", "deque", "tuple"})


def recognise_gathered_within(case: CulpritContext) -> Remedy | None:
    """Return how to gather less at a time."""
    if case.growth != "within" or case.row.kind not in _WITHIN_KINDS or case.statement is None:
        return None
    released = "and is given back afterwards: it sets the peak."
    ends = released if case.falls_back else "and nothing shows it given back."
    return case.remedy(
        f"Reduce {case.name} batch by batch",
        case.opening(),
        f"It holds the whole {case.phase or 'phase'} at once {ends}",
        _consumer(case),
        "If all of it is needed, keep the smallest form (numbers, half precision, only what the "
        "metric reads) or write it to disk.",
        case.about_views(),
    )


def _consumer(case: CulpritContext) -> str:
    assert case.statement is not None and case.line is not None
    if not case.line.is_direct:
        return ""
    end = case.statement.loops[-1].end_lineno or 0 if case.statement.loops else 0
    later = [
        use.statement
        for use in case.reads
        if use.statement.line > end and use.statement.scope is case.scope
    ]
    if not later:
        return "Nothing after the loop reads it: does it have to be gathered at all?"
    where = case.at(later[0])
    return f"It is used at {where}: compute that batch by batch, as running sums or counts."


_WINDOW_BYTES = 16 << 20
"""What a list that nothing reads may keep."""


REACHED_PART = 4
"""A bound is at most this part of the entries that a run had: a second run reaches it soon, and
shows that it holds."""


def reached_bound(length: int | None, most: int) -> int:
    """Return the largest bound that a second run reaches early, at most ``most``."""
    return most if not length else min(most, max(1, length // REACHED_PART))


def recognise_tail_reads(case: CulpritContext) -> Remedy | None:
    """Return how to keep the entries that are read."""
    most = max((int(size) for size in _sizes(case) or () if size), default=None)
    if most is None:
        return None
    entries = "entry is" if most == 1 else f"{most} entries are"
    return _window_remedy(case, most, f"only its last {entries} ever read")


def recognise_unread_list(case: CulpritContext) -> Remedy | None:
    """Return how to bound a list that nothing reads."""
    if _sizes(case) is None:
        return None
    each = case.total / case.row.length if case.row.length else 1000.0
    most = reached_bound(case.row.length, 1000)
    bound = next((n for n in (1000, 100, 10) if n <= most and n * each <= _WINDOW_BYTES), 1)
    read = "only its length is read" if case.reads else "nothing reads it"
    return _window_remedy(case, bound, read)


def _sizes(case: CulpritContext) -> list[str] | None:
    if case.row.kind != "list" or case.line is None or case.line.form != "append":
        return None
    if case.growth != "across" or len(case.feeding) != 1 or case.releases:
        return None
    sizes = [_tail(use) for use in case.reads]
    known = [size for size in sizes if size is not None]
    return known if len(known) == len(sizes) else None


def _window_remedy(case: CulpritContext, bound: int, read: str) -> Remedy:
    return case.remedy(
        f"Keep only the last {'entry' if bound == 1 else f'{bound} entries'} of {case.name}",
        case.opening(),
        f"In the recorded source {read}.",
        f"A collections.deque(maxlen={bound}) bounds it from the start where no slice is taken.",
        case.about_views(),
        diff=_window_diff(case, bound),
    )


def _tail(use: Use) -> str | None:
    """Return N of ``xs[-N:]``, an empty text for ``len(xs)``, None for any other reading."""
    if use.passed_to == "len":
        return ""
    match use.parent:
        case ast.Subscript(
            value=value,
            slice=ast.UnaryOp(ast.USub(), ast.Constant(value=int(number)))
            | ast.Slice(ast.UnaryOp(ast.USub(), ast.Constant(value=int(number))), None, None),
        ) if value is use.node:
            return str(number)
    return None


def _window_diff(case: CulpritContext, bound: int) -> str | None:
    if case.fed is None or not isinstance(case.fed.func, ast.Attribute) or case.node is None:
        return None
    if any(use.passed_to == "len" for use in case.reads):
        return None
    name = ast.unparse(case.fed.func.value)
    return case.edits().insert_after(case.node, f"del {name}[:-{bound}]").diff()


_SAMPLERS = frozenset({"sample", "choice", "choices"})
_REPLAY_BUFFER_BYTES = 1 << 30
"""What a buffer may keep: they are meant to be large."""


def recognise_replay_buffer(case: CulpritContext) -> Remedy | None:
    """Return how to bound the buffer."""
    if case.growth != "across" or case.row.kind != "list" or case.releases:
        return None
    if not any(use.called in _SAMPLERS for use in case.reads):
        return None
    each = case.total / case.row.length if case.row.length else 1000.0
    bound = next((n for n in (100_000, 10_000, 1_000, 100) if n * each <= _REPLAY_BUFFER_BYTES), 10)
    return case.remedy(
        f"Bound {case.name} with deque(maxlen={bound:_})",
        case.opening(),
        "It is sampled at random and nothing is ever taken out. A deque with a maxlen drops the "
        f"oldest entry for each new one; {bound:_} of the size seen here stay under 1 GiB.",
        diff=_replay_buffer_diff(case, bound),
    )


def _replay_buffer_diff(case: CulpritContext, bound: int) -> str | None:
    made = [use for use in case.uses if use.is_stored]
    if len(made) != 1 or not all(_suits_deque(use) for use in case.reads):
        return None
    node = made[0].statement.node
    value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
    if not isinstance(value, ast.List) or value.elts:
        return None
    edits = case.edits(made[0].statement.scope).replace(value, f"deque(maxlen={bound:_})")
    return edits.insert_import("from collections import deque").diff()


def _suits_deque(use: Use) -> bool:
    is_slice = isinstance(use.parent, ast.Subscript) and isinstance(use.parent.slice, ast.Slice)
    return not is_slice and use.called in {*_SAMPLERS, "len", ""} and not use.method


_THREAD_VALUES = frozenset({"_thread._local", "threading.local"})
_HEAP_TAKERS = frozenset({"heappop", "heappushpop", "heapreplace"})
_SMALLEST = frozenset({"nsmallest", "min"})


def recognise_heap(case: CulpritContext) -> Remedy | None:
    """Return how to keep as many as are needed."""
    calls_with = ((use, use.parent) for use in case.uses if isinstance(use.parent, ast.Call))
    with_heap = [use for use, call in calls_with if call.args[:1] == [use.node]]
    calls = {use.called for use in with_heap}
    if case.growth != "across" or "heappush" not in calls:
        return None
    served = [u for u in with_heap if u.called == "heappop" and not _is_dropped(u)]
    served += filter(_is_first_item, case.uses)
    if served:
        return _stale_entries(case, served[0])
    return case.remedy(
        f"Keep the N largest of {case.name} with heapq.heappushpop",
        case.opening(),
        "Something does take items out, but not as many as heapq.heappush puts in."
        if calls & _HEAP_TAKERS
        else "heapq.heappush only puts in, and nothing takes out.",
        "Once it has N items, heapq.heappushpop(heap, item) puts one in and takes the smallest out "
        "(heapq.heapreplace takes out first), so that the N largest stay.",
        _about_smallest(case),
    )


def _stale_entries(case: CulpritContext, served: Use) -> Remedy:
    """Return the remedy for a heap that is a queue: what is due next must stay."""
    where = case.at(served.statement)
    name = dotted(served.node) or case.name
    return case.remedy(
        f"Take entries out of {case.name} that are no longer needed",
        case.opening(),
        f"{where} takes the smallest entry when it is due. An entry that was cancelled or replaced "
        "stays until its turn comes, and so does what it refers to.",
        "Mark such entries, and once they outnumber the others keep only those that are needed: "
        f"`{name}[:] = [entry for entry in {name} if not entry.cancelled]`, then "
        f"`heapq.heapify({name})`. Where all of them are needed, take them out as fast as they "
        "come.",
    )


def _is_dropped(use: Use) -> bool:
    return isinstance(use.statement.node, ast.Expr) and use.statement.node.value is use.parent


def _is_first_item(use: Use) -> bool:
    match use.parent:
        case ast.Subscript(value=value, slice=ast.Constant(value=0)):
            return value is use.node
    return False


def _about_smallest(case: CulpritContext) -> str:
    for use in case.uses:
        if use.called in _SMALLEST:
            return (
                f"{case.at(use.statement)} reads the smallest ({use.called}): give what the items "
                "are ordered by the other sign, for those are the ones to stay."
            )
    return ""


_QUEUE_TAKERS = frozenset({"get", "get_nowait", "popleft", "pop"})


def recognise_queue(case: CulpritContext) -> Remedy | None:
    """Return how to drain or bound the queue."""
    if case.line is None or case.line.form not in {"put", "put_nowait", "enqueue"}:
        return None
    taking = _taking(case)
    concurrent = _concurrent_takers(case, taking)
    meanwhile = concurrent or case.shrank or any(_runs_with_putting(case, s) for s in taking)
    return case.remedy(
        f"Bound {case.name}" if meanwhile else f"Drain {case.name}",
        case.opening(),
        _advice(case, taking, concurrent) if meanwhile else _without_consumer(case, taking),
    )


def _taking(case: CulpritContext) -> list[Statement]:
    return [
        statement
        for statement in case.sources.program.mentioning_any(case.references.names)
        if any(
            node.attr in _QUEUE_TAKERS and case.references.steps_from(node.value, statement.scope)
            for node in own_parts(statement.node, ast.Attribute)
        )
    ]


def _concurrent_takers(case: CulpritContext, taking: list[Statement]) -> list[Statement]:
    """Return the statements that take items out in another thread while items are put in.

    The main thread may do so after everything was put: it counts where the queue was seen shorter.
    """
    threads = run_in_threads(case.sources)
    putting = threads.get(case.scope, set()) if case.scope else set()
    return [
        statement
        for statement in taking
        if (statement.scope in threads or (case.shrank and putting))
        and not threads.get(statement.scope, set()) & putting
    ]


def _runs_with_putting(case: CulpritContext, taking: Statement) -> bool:
    putting = case.statement
    if putting is None or taking.scope is not putting.scope:
        return False
    return any(loop in putting.loops for loop in taking.loops)


def _advice(case: CulpritContext, taking: list[Statement], concurrent: list[Statement]) -> str:
    if concurrent:
        return (
            f"{_location(case, concurrent[0])} takes items out in another thread, but not as fast: "
            "bound the queue with maxsize so that putting waits, or take several at a time."
        )
    where = f"{_location(case, taking[0])} does" if taking else "Something does"
    return (
        f"{where} take items out, but not as fast: take as many as are put. A maxsize makes "
        "putting wait, for ever where the same thread would have to take something out first."
    )


def _without_consumer(case: CulpritContext, taking: list[Statement]) -> str:
    if not taking:
        return "Nothing in the source takes items out of it: start the consumer, or don't put."
    return (
        f"Nothing was seen to take items out while it is filled; {_location(case, taking[0])} does "
        "so at another time. Use the items as they come, or empty the queue after each "
        f"{case.unit or 'round'}. A maxsize would not help: putting would wait for what comes only "
        "later, and the program would stand still."
    )


def _location(case: CulpritContext, statement: Statement) -> str:
    nodes = own_parts(statement.node, ast.Attribute)
    return case.at(statement, next((n for n in nodes if n.attr in _QUEUE_TAKERS), None))


def recognise_tee(case: CulpritContext) -> Remedy | None:
    """Return how to look ahead without keeping the whole stream."""
    if case.row.type != TEE:
        return None
    is_read = case.line is not None and case.line.form == "read"
    known = f" They are {'read' if is_read else 'made'} at {case.where()}." if case.line else ""
    return case.remedy(
        f"Drop {case.name} when it has been read as far as needed",
        "",
        f"{case.name} is one end of an itertools.tee, which keeps for it all that its other ends "
        f"have had since.{known}",
        "To look at the first items alone, take them as a list, "
        "first = list(itertools.islice(stream, n)), and go on with "
        "itertools.chain(first, stream); else go on with all ends together.",
    )


_KEPT = "_exit_callbacks"
_GIVING = frozenset({"callback", "push", "enter_context", "push_async_callback"})


def recognise_exit_stack(case: CulpritContext) -> Remedy | None:
    """Return how to have each round clean up after itself."""
    if case.growth != "across" or not case.row.path.endswith(f".{_KEPT}"):
        return None
    stack = _stack(case)
    is_round = bool(case.unit) and case.unit not in NO_ROUNDS
    return case.remedy(
        f"Open the ExitStack in each {case.unit}, or close it there"
        if is_round
        else "Close the ExitStack when the work that opened it is done",
        case.opening(),
        "An ExitStack keeps all that it is given until it is closed. Write `with "
        f"contextlib.ExitStack() as {stack}:` inside the loop, or call {stack}.close() when the "
        "round is done: then its clean-up runs there and what it refers to can go.",
        "What has to wait for the end is better given a path or a number than the data.",
    )


def _stack(case: CulpritContext) -> str:
    functions = (call.func for call in parts_of(case.node, ast.Call))
    for function in functions:
        if isinstance(function, ast.Attribute) and function.attr in _GIVING:
            return ast.unparse(function.value)
    return case.name.removesuffix(f".{_KEPT}").rpartition(".")[2]


def recognise_thread_values(case: CulpritContext) -> Remedy | None:
    """Return how to let go of what each thread has of its own."""
    if case.growth != "across" or case.row.type not in _THREAD_VALUES:
        return None
    return case.remedy(
        f"End the threads that have values in {case.name}, or delete these",
        case.opening(),
        "Each thread has values of its own in it, which go when the thread ends: more and more "
        "threads are alive, or each keeps more and more.",
        "Let a fixed number of threads do the work (a pool), have each end when its work is done, "
        f"or delete what it stored, `del {case.name}.…`, there.",
    )


def recognise_linked_objects(case: CulpritContext) -> Remedy | None:
    """Return how to let go of those before the last."""
    made = made_from(case.references, case.statement, by_any=case.row.kind == "function")
    if made is None:
        return None
    call, passed = made
    if case.row.kind == "function":
        return case.remedy(
            f"Wrap the original, not what {case.name} is already",
            "",
            f"`{ast.unparse(call)}` at {case.where()} makes a function that refers to the one "
            "before it, and that one to its own: all of them stay, and a call passes through each.",
            f"Keep the first function under a name of its own and wrap that instead of "
            f"{ast.unparse(passed)}.",
        )
    kind, last = chain_end(call.func), ast.unparse(passed)
    attribute = next((k.arg for k in call.keywords if k.value is passed and k.arg), "")
    cut = f"; or cut its own link first, `{last}.{attribute} = None`" if attribute else ""
    return case.remedy(
        f"Let go of the objects before {case.name}",
        "",
        f"`{ast.unparse(call)}` at {case.where()} has each {kind} refer to the one before it, and "
        f"that one to its own: {case.name} keeps all of them{case.measured()}.",
        f"Hand over what is needed of the last one (a number, a detached tensor) instead of "
        f"{last}{cut}.",
    )
