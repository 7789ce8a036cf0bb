"""The grammar of path patterns: ``Trainer.validate()·boxes[*]['x']`` as root, name and steps."""

from __future__ import annotations

import re
from dataclasses import dataclass

ITEM_KINDS = frozenset({"key", "index", "any"})

_TOKEN = re.compile(
    r"""
      \.(?P<attr>[^\W\d]\w*)
    | \[(?P<any>\*)\]
    | \[(?P<index>-?\d+)\]
    | \[(?P<key>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[^\]]*)\]
    | ⟨(?P<cell>[^⟩]*)⟩
    | \((?P<default>\w+)=\)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_VARIABLE = re.compile(r"<?[^\W\d]?[\w<>]*")
_ATTRIBUTE_STORES = frozenset({"__dict__", "_modules", "_buffers", "_parameters"})


@dataclass(frozen=True)
class Step:
    """One step of a path: ``attr``, ``key``, ``index``, ``any`` item, ``cell`` or ``default``."""

    kind: str
    value: str = ""

    @property
    def is_item(self) -> bool:
        """Whether the step goes from a container to one of its items."""
        return self.kind in ITEM_KINDS


Steps = tuple[Step, ...]


@dataclass(frozen=True)
class PathPattern:
    """A path pattern taken apart."""

    root: str
    variable: str
    steps: Steps


def parse_path(text: str) -> PathPattern:
    """Return the parts of a path; a text outside the grammar loses only what isn't understood."""
    root, dot, rest = text.partition("·")
    if not dot:
        root, rest = "", text
    match = _VARIABLE.match(rest)
    variable = match.group() if match else ""
    return PathPattern(root=root, variable=variable, steps=parse_steps(rest[len(variable) :]))


def parse_steps(text: str) -> Steps:
    """Return the steps written in ``text``, attribute dictionaries folded into attributes."""
    steps: list[Step] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "other"
        if kind != "other":
            steps.append(Step(kind, match.group(kind)))
    return _fold_attribute_stores(steps)


def _fold_attribute_stores(steps: list[Step]) -> Steps:
    """``._modules['head']`` is what a person calls ``.head``."""
    folded: list[Step] = []
    for step in steps:
        previous = folded[-1] if folded else None
        if previous and previous.value in _ATTRIBUTE_STORES and step.kind == "key":
            folded[-1] = Step("attr", step.value.strip("'\""))
        else:
            folded.append(step)
    return tuple(folded)
