"""The remedy of last resort: true for every culprit of a kind, with this culprit's names.

Never silent. Offers no diff.
"""

from __future__ import annotations

from leakscope.analysis.remedies.case import Case
from leakscope.model.report import Remedy

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
    "traceback": "A traceback keeps every frame and its locals: store the text of the error.",
}
_OTHER = "Find out whether it is needed after it was used, and drop the last reference if not."


def recognise(case: Case) -> Remedy:
    """Return advice by kind."""
    kind = case.row.kind
    advice = (
        _ADVICE["optimizer"] if case.row.role == "optimizer_state" else _ADVICE.get(kind, _OTHER)
    )
    if case.has_graph and kind in {"list", "dict", "deque", "set", "tuple", "object"}:
        advice = f"It also keeps autograd graphs: store .detach() or .item(). {advice}"
    if case.on_device:
        advice += f" Most of it lies on {case.on_device}: .cpu() moves what must be kept."
    if case.growth == "within":
        title = f"Gather less in {case.name} at a time"
        span = f" during one {case.unit}" if case.unit else ""
        when = f"It climbs{span} and is given back afterwards: it sets the peak, it doesn't leak."
        when = when if case.falls_back else f"It climbs{span}, and nothing shows it given back."
    else:
        title = (
            f"Cut the graph that {case.name} carries"
            if kind == "graph"
            else f"Bound or empty {case.name}"
        )
        when = "Nothing in the recording shows it being emptied for good."
    return case.remedy(
        title, case.opening(), when, advice, case.about_views(), case.still_reachable()
    )
