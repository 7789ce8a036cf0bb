"""Copies of the weights in memory: ``snapshots.append(copy.deepcopy(model.state_dict()))``.

Recognises a container that is fed with a ``state_dict()`` or a deep copy of a model, averaged
weights among them. Offers no diff: which copy is wanted is the program's own business.
"""

from __future__ import annotations

import ast
import re

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.source.types import dotted
from leakscope.model.report import Remedy

_WEIGHTS = re.compile(r"(^|[._])(model|net|network|ema|weights|teacher|student|module)\b")


def recognise(case: Case) -> Remedy | None:
    """Return how to keep one copy."""
    value = case.fed_value
    if case.growth != "across" or value is None or not _copies_weights(value):
        return None
    return case.remedy(
        f"Keep one copy of the weights in {case.name}",
        case.opening(),
        "Each is a whole copy of the model. Keep the best or the last one, replaced when there is "
        "a better one, or write each to a file with torch.save; an average over epochs needs one "
        "running copy too.",
        case.still_reachable(),
    )


def _copies_weights(value: ast.expr) -> bool:
    for node in ast.walk(value):
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func).rpartition(".")[2]
        if name == "state_dict":
            return True
        if name == "deepcopy" and node.args and _WEIGHTS.search(ast.unparse(node.args[0])):
            return True
    return False
