"""The way from a root to a culprit and on to what it holds, a box each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leakscope.analysis.source.path import Step, parse_path
from leakscope.model.report import Culprit
from leakscope.report.sizes import humane_bytes, humane_number

MOST_STEPS = 6
"""Between root and culprit; of a longer way the middle is left out."""
_CAPTIONS = {
    "attr": "attribute",
    "key": "key",
    "index": "item",
    "any": "each item",
    "cell": "closed over by it",
    "default": "default of",
}
_FORMS = {
    "attr": ".{}",
    "key": "[{}]",
    "index": "[{}]",
    "any": "[*]",
    "cell": "{}",
    "default": "{}=",
}


@dataclass(frozen=True)
class Box:
    """A box on the way; ``kind`` is ``root``, ``step``, ``culprit`` or ``contents``."""

    kind: str
    caption: str
    text: str
    note: str = ""


def way_of(culprit: Culprit) -> list[Box]:
    """Return the boxes from the outermost name to the contents."""
    pattern = parse_path(culprit.path)
    between = [Box("step", "variable", pattern.variable)] if pattern.variable else []
    between += [_step(step) for step in pattern.steps]
    if not pattern.root or not between:
        between = [Box("step", "holder", name) for name in (*culprit.held_by, culprit.name)]
    own = Box("culprit", culprit.type, culprit.name, f"at most {humane_bytes(culprit.total_bytes)}")
    root = [Box("root", _root_words(pattern.root), pattern.root)] if pattern.root else []
    return [*root, *_shortened(between[:-1]), own, *_contents(culprit)]


def _step(step: Step) -> Box:
    return Box("step", _CAPTIONS[step.kind], _FORMS[step.kind].format(step.value))


def _shortened(boxes: Sequence[Box]) -> list[Box]:
    if len(boxes) <= MOST_STEPS:
        return [*boxes]
    half = MOST_STEPS // 2
    left_out = len(boxes) - 2 * half
    return [*boxes[:half], Box("step", f"{left_out} more", "…"), *boxes[-half:]]


def _contents(culprit: Culprit) -> list[Box]:
    if not culprit.holds:
        return []
    most = max(culprit.holds, key=lambda held: held.bytes)
    text = f"{humane_number(most.count)} × {most.type}"
    return [Box("contents", most.detail or "contents", text, humane_bytes(most.bytes))]


def _root_words(root: str) -> str:
    if root.startswith("<"):
        return "without a name"
    return "running function" if root.endswith(")") else "module or class"
