"""A list of which only the last few entries are read, or none: ``self.norms[-100:]``.

Recognises a list fed by ``append`` whose every reading is a tail of fixed length, its length, or
nothing. Offers a diff that trims it. Silent where anything else reads it, since a bound would
change the result.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.usage import Use, reads, releases
from leakscope.model.report import Remedy

_ENOUGH_BYTES = 16 << 20
"""What a list that nothing reads may keep."""


def recognise_tail(case: Case) -> Remedy | None:
    """Return how to keep the entries that are read."""
    sizes = _sizes(case)
    known = sorted({int(size) for size in sizes or () if size}, reverse=True)
    if not known:
        return None
    return _remedy(case, known[0], f"only its last {_entries(known[0])} ever read")


def recognise_unread(case: Case) -> Remedy | None:
    """Return how to bound a list that nothing reads."""
    if _sizes(case) is None:
        return None
    each = case.total / case.row.length if case.row.length else 1000.0
    bound = next((n for n in (1000, 100, 10) if n * each <= _ENOUGH_BYTES), 1)
    return _remedy(case, bound, "nothing reads it")


def _sizes(case: Case) -> list[str] | None:
    """Return the lengths of the tails that are read, None where anything else is."""
    if case.row.kind != "list" or case.line is None or case.line.form != "append":
        return None
    if case.growth != "across" or len(case.feeding) != 1 or releases(case.references):
        return None
    sizes = [_tail(use) for use in reads(case.references)]
    known = [size for size in sizes if size is not None]
    return known if len(known) == len(sizes) else None


def _remedy(case: Case, bound: int, read: str) -> Remedy:
    return case.remedy(
        f"Keep only the last {'entry' if bound == 1 else f'{bound} entries'} of {case.name}",
        f"{case.opening()} In the recorded source {read}.",
        f"A collections.deque(maxlen={bound}) bounds it from the start where no slice is taken.",
        case.about_views(),
        case.still_reachable(),
        diff=_diff(case, bound),
    )


def _entries(count: int) -> str:
    return "entry is" if count == 1 else f"{count} entries are"


def _tail(use: Use) -> str | None:
    """Return N of ``xs[-N:]``, an empty text for ``len(xs)``, None for any other reading."""
    if use.passed_to == "len":
        return ""
    if not isinstance(use.parent, ast.Subscript) or use.parent.value is not use.node:
        return None
    index = use.parent.slice
    if isinstance(index, ast.Slice):
        return _last(index.lower) if index.upper is None and index.step is None else None
    return _last(index)


def _last(node: ast.expr | None) -> str | None:
    """Return N of ``-N``."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        operand = node.operand
        if isinstance(operand, ast.Constant) and isinstance(operand.value, int):
            return str(operand.value)
    return None


def _diff(case: Case, bound: int) -> str | None:
    if case.fed is None or not isinstance(case.fed.func, ast.Attribute) or case.node is None:
        return None
    if any(use.passed_to == "len" for use in reads(case.references)):
        return None
    name = ast.unparse(case.fed.func.value)
    return case.edits().insert_after(case.node, f"del {name}[:-{bound}]").diff()
