"""Modules, parameters or buffers added while training: ``self.heads.append(nn.Linear(…))``.

Recognises a module that grows, or a layer appended to a plain list. Offers no diff: how many are
wanted is the program's own business.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.source.types import dotted
from leakscope.model.report import Remedy

_ADDERS = frozenset(
    {"append", "extend", "insert", "add_module", "register_module", "register_parameter",
     "register_buffer", "setitem", "setattr", "update"}
)  # fmt: skip


def recognise(case: Case) -> Remedy | None:
    """Return how to create the modules once."""
    if case.growth != "across" or case.line is None or case.line.form not in _ADDERS:
        return None
    if case.row.kind != "module" and not _makes_module(case.fed_value):
        return None
    return case.remedy(
        f"Create the modules of {case.name} once, before the loop",
        f"{case.name} gets more of them while it trains"
        f"{f' ({case.measure()})' if case.measure() else ''}: `{case.line.text}` at "
        f"{case.where()} runs again and again. All that were added before stay, with their "
        "gradients, and parameters that come after the optimizer was made aren't trained by it.",
        "Make them before the optimizer, or replace the one that isn't needed any more; where a "
        "task really needs its own, move those of finished tasks to a file.",
        case.still_reachable(),
    )


def _makes_module(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and dotted(value.func).startswith(("nn.", "torch.nn."))
