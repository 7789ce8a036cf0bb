"""A culprit as the remedies see it: its row, its growth, its feeding lines and their syntax."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from leakscope.analysis.remedies.edits import Edits
from leakscope.analysis.source import FeedingLine, SourceIndex
from leakscope.analysis.source.program import Scope, Statement
from leakscope.analysis.source.references import References
from leakscope.model.census import CensusRow
from leakscope.model.report import Remedy
from leakscope.model.sizes import human_bytes, human_count

_SMALL = frozenset({"float", "int", "bool", "str", "NoneType"})


@dataclass(frozen=True)
class Case:
    """Everything that a remedy may be judged by."""

    row: CensusRow
    growth: str
    unit: str
    phase: str
    feeding: list[FeedingLine]
    sources: SourceIndex
    items_per_unit: float | None = None
    above: Sequence[CensusRow] = ()
    """The rows on the way from the root to it, outermost first."""
    inside: Sequence[CensusRow] = ()
    """The rows that are named through it, the nearest first."""
    shrank: bool = False
    """Whether it was seen shorter than before, and then to grow again."""
    falls_back: bool = True
    """Of growth within a phase: whether it was seen to be given back."""

    @property
    def name(self) -> str:
        """The culprit as a person says it."""
        return self.row.name or self.row.path

    @property
    def variable(self) -> str:
        """The last name of the culprit: ``all_preds`` of ``Trainer.all_preds``."""
        return self.name.partition("[")[0].rpartition(".")[2]

    @cached_property
    def references(self) -> References:
        """Every expression that refers to the container."""
        return self.sources.references(self.row.owner, self.row)

    @property
    def line(self) -> FeedingLine | None:
        """The likeliest feeding line."""
        return self.feeding[0] if self.feeding else None

    @cached_property
    def statement(self) -> Statement | None:
        """The statement of the likeliest feeding line."""
        return self.statement_at(self.line) if self.line else None

    @property
    def node(self) -> ast.stmt | None:
        """The syntax of that statement."""
        return self.statement.node if self.statement else None

    @property
    def scope(self) -> Scope | None:
        """The function that it stands in."""
        return self.statement.scope if self.statement else None

    def statement_at(self, line: FeedingLine) -> Statement | None:
        """Return the innermost statement that begins at a feeding line."""
        file = self.sources.files.find(line.file)
        found = [
            statement
            for statement in self.sources.program.statements
            if statement.line == line.line and statement.scope.module.file == file
        ]
        return found[-1] if found else None

    @cached_property
    def fed(self) -> ast.Call | None:
        """The call that feeds: ``xs.append(x)``, where the statement is one."""
        if self.node is None or self.scope is None:
            return None
        for node in ast.walk(self.node):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                form = self.line.form if self.line else ""
                if node.func.attr == form and node.args:
                    return node
        return None

    @property
    def fed_value(self) -> ast.expr | None:
        """The expression that is put into the container."""
        if self.fed is not None:
            return self.fed.args[-1]
        is_item = isinstance(self.node, ast.Assign) and isinstance(
            self.node.targets[0], ast.Subscript
        )
        return self.node.value if is_item and isinstance(self.node, ast.Assign) else None

    def edits(self, scope: Scope | None = None) -> Edits:
        """Return an editor of the file of a scope, by default of the feeding line's."""
        home = scope or self.scope
        return Edits(self.sources, home.module.file if home else "")

    def where(self) -> str:
        """Return ``train.py:12``, or an empty text without a feeding line."""
        return self.sources.location(self.line.file, self.line.line) if self.line else ""

    @property
    def has_graph(self) -> bool:
        """Whether it keeps autograd graphs alive."""
        return self.row.graph_nodes > 0 or self.row.kind == "graph"

    @property
    def on_device(self) -> str:
        """The device that holds most of it, empty for the host."""
        devices = self.row.device_bytes
        best = max(devices, key=lambda name: devices[name], default="")
        return best if best and devices[best] > self.row.host_bytes else ""

    @property
    def total(self) -> int:
        """Bytes retained on all devices."""
        row = self.row
        return row.host_bytes + sum((*row.device_bytes.values(), *row.shared_bytes.values()))

    def holds_only_scalars(self) -> bool:
        """Whether the census saw tensors of a single number in it."""
        details = [content.detail for content in self.row.holds if "ensor" in content.type]
        return bool(details) and all("()" in detail for detail in details)

    def may_hold_tensors(self) -> bool:
        """Whether the census saw tensors in it, or nothing at all that is larger than a number."""
        held = [c for c in self.row.holds if c.type.rpartition(".")[2] not in _SMALL]
        return not held or any(
            content.type.endswith(("Tensor", "Parameter")) or " on " in content.detail
            for content in held
        )

    def has_payload(self) -> bool:
        """Whether it holds more than numbers and short texts."""
        kinds = [content.type.rpartition(".")[2] for content in self.row.holds]
        return not kinds or any(kind not in _SMALL for kind in kinds)

    def measure(self) -> str:
        """Return what is known of its growth: ``20 items per validation, 640 so far, 2.1 MB``."""
        parts = []
        if self.items_per_unit:
            items = "item" if self.items_per_unit == 1 else "items"
            parts.append(f"{human_count(self.items_per_unit)} {items} per {self.unit or 'unit'}")
        if self.row.length:
            parts.append(f"{human_count(self.row.length)} when last seen")
        if self.total:
            parts.append(human_bytes(self.total))
        return ", ".join(parts)

    def opening(self) -> str:
        """Return the sentence that says what grows where."""
        measured = f" ({self.measure()})" if self.measure() else ""
        fed = f" It is fed at {self.where()}: `{self.line.text}`." if self.line else ""
        return f"{self.name} keeps what is put into it{measured}.{fed}"

    def about_views(self) -> str:
        """Return a warning where a slice is stored that keeps the whole of what it is cut from."""
        value = self.fed_value
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if value.func.attr not in {"detach", "cpu", "numpy", "view", "squeeze", "flatten"}:
                return ""
            value = value.func.value
        if not isinstance(value, ast.Subscript) or isinstance(value.slice, ast.Constant):
            return ""
        arrays = [c for c in self.row.holds if c.type.endswith(("Tensor", "ndarray"))]
        if not arrays:
            return ""
        copy = ".copy()" if arrays[0].type.endswith("ndarray") else ".clone()"
        return (
            f"`{ast.unparse(value)}` is a view, which keeps all of `{ast.unparse(value.value)}` "
            f"alive; {copy} keeps the part alone."
        )

    def still_reachable(self) -> str:
        """Return why collecting and emptying caches is of no use."""
        return (
            "gc.collect() and torch.cuda.empty_cache() can't help: "
            f"{self.name} still refers to all of it."
        )

    def remedy(self, title: str, *sentences: str, diff: str | None = None) -> Remedy:
        """Return a remedy of these sentences."""
        return Remedy(title=title, text=" ".join(s for s in sentences if s), diff=diff)
