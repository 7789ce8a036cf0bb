"""A replay buffer without a bound: a list that is sampled at random and never gets shorter.

Recognises ``random.sample``, ``random.choice`` and ``random.choices`` on the list. Offers a diff
that makes it a ``deque(maxlen=N)`` where it begins as an empty list and everything else done with
it suits a deque as well. Silent where something is taken out of it.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.edits import Edits
from leakscope.analysis.remedies.usage import Use, reads, releases, uses
from leakscope.model.report import Remedy

_SAMPLERS = frozenset({"sample", "choice", "choices"})
_ENOUGH_BYTES = 1 << 30
"""What a buffer may keep: they are meant to be large."""


def recognise(case: Case) -> Remedy | None:
    """Return how to bound the buffer."""
    if case.growth != "across" or case.row.kind != "list" or releases(case.references):
        return None
    if not any(_is_sampled(use) for use in reads(case.references)):
        return None
    each = case.total / case.row.length if case.row.length else 1000.0
    bound = next((n for n in (100_000, 10_000, 1_000, 100) if n * each <= _ENOUGH_BYTES), 10)
    return case.remedy(
        f"Bound {case.name} with deque(maxlen={bound:_})",
        case.opening(),
        "It is sampled at random and nothing is ever taken out. A deque with a maxlen drops the "
        f"oldest entry for each new one; {bound:_} of the size seen here stay under 1 GiB.",
        case.still_reachable(),
        diff=_diff(case, bound),
    )


def _is_sampled(use: Use) -> bool:
    return use.passed_to.rpartition(".")[2] in _SAMPLERS


def _diff(case: Case, bound: int) -> str | None:
    made = [use for use in uses(case.references) if use.is_stored]
    if len(made) != 1 or not all(_suits_deque(use) for use in reads(case.references)):
        return None
    statement = made[0].statement
    node = statement.node
    value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
    if not isinstance(value, ast.List) or value.elts:
        return None
    edits: Edits = case.edits(statement.scope).replace(value, f"deque(maxlen={bound:_})")
    return edits.insert_import("from collections import deque").diff()


def _suits_deque(use: Use) -> bool:
    is_slice = isinstance(use.parent, ast.Subscript) and isinstance(use.parent.slice, ast.Slice)
    called = use.passed_to.rpartition(".")[2]
    return not is_slice and (called in {*_SAMPLERS, "len"} or not called) and not use.method
