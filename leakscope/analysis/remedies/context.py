"""A culprit as the remedies see it: its row, growth, feeding lines and use, and safe edits.

An edit that can't be made safely makes the whole diff None: no diff is better than a wrong one.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from leakscope.analysis.source import FeedingLine, SourceIndex
from leakscope.analysis.source.mutations import FEEDERS
from leakscope.analysis.source.program import (
    CodeScope,
    Statement,
    UserProgram,
    dotted,
    first_line_of,
    keyword_of,
    last_name,
    names_in,
    own_nodes_in_place,
    parts_of,
)
from leakscope.analysis.source.references import References
from leakscope.model.census import CensusRow, Content
from leakscope.model.report import Remedy
from leakscope.model.text import human_bytes, human_count

_SMALL = frozenset({"float", "int", "bool", "str", "NoneType"})


@dataclass(frozen=True)
class CulpritContext:
    """Everything that a remedy may be judged by."""

    row: CensusRow
    """Its row at its highest census."""
    growth: str
    """``across`` or ``within``."""
    unit: str
    """What the growth is counted by: ``step``, ``validation``, ``epoch``, …"""
    phase: str
    """In which it grows."""
    feeding: list[FeedingLine]
    """Its feeding lines, best first."""
    sources: SourceIndex
    items_per_unit: float | None = None
    above: Sequence[CensusRow] = ()
    """The rows on the way from the root to it, outermost first."""
    inside: Sequence[CensusRow] = ()
    """The rows that are named through it, the nearest first."""
    shrank: bool = False
    """Whether it was seen shorter than before, and then to grow again."""
    falls_back: bool = True
    """Of growth within a phase: whether it was seen to be released."""

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

    @property
    def line_text(self) -> str:
        """That line as it is written, empty without one."""
        return self.line.text if self.line else ""

    @cached_property
    def uses(self) -> list[Use]:
        """Every expression that refers to the container itself, in order."""
        references = self.references
        return [
            Use(statement, node, parents)
            for statement in references.program.mentioning_any(references.names)
            for node, parents in own_nodes_in_place(statement.node)
            if isinstance(node, _REFERRING)
            # `outputs.mean(0)` is no use of what is called `mean`.
            and not (isinstance(node, ast.Attribute) and node is getattr(parents[0], "func", None))
            and references.is_container(node, statement.scope)
        ]

    @cached_property
    def reads(self) -> list[Use]:
        """The uses that neither feed nor replace the container."""
        return [use for use in self.uses if not use.feeds]

    @cached_property
    def releases(self) -> list[Statement]:
        """The statements that empty the container or give it up."""
        return [
            use.statement
            for use in self.uses
            if use.method in _RELEASING
            or isinstance(use.statement.node, ast.Delete)
            or _is_reset(use)
        ]

    @cached_property
    def goes_backward(self) -> bool:
        """Whether gradients are computed through what the container holds."""
        for use in self.uses:
            names = set() if use.is_stored else _target_names(use.statement.node)
            is_used = any(backward_called(name, use.statement.scope) for name in names)
            if is_used or _in_backward(use.parents):
                return True
        return any(
            "backward" in _attributes_of_result(self.references.program, use.statement.scope)
            for use in self.reads
            if isinstance(use.statement.node, ast.Return)
        )

    @cached_property
    def derived_attributes(self) -> set[str]:
        """The attributes that are read from the value, or from what is made of it."""
        found: set[str] = set()
        for use in self.reads:
            node, scope = use.statement.node, use.statement.scope
            found.update(parent.attr for parent in use.parents if isinstance(parent, ast.Attribute))
            if isinstance(node, ast.Assign):
                found.update(*(attributes_of_name(name, scope) for name in _target_names(node)))
            elif isinstance(node, ast.Return):
                found |= _attributes_of_result(self.references.program, scope)
        return found

    @cached_property
    def statement(self) -> Statement | None:
        """The innermost statement that begins at the likeliest feeding line."""
        if self.line is None:
            return None
        wanted = (self.sources.files.find(self.line.file), self.line.line)
        statements = reversed(self.sources.program.statements)
        return next((s for s in statements if (s.file, s.line) == wanted), None)

    @property
    def node(self) -> ast.stmt | None:
        """The syntax of that statement."""
        return self.statement.node if self.statement else None

    @property
    def scope(self) -> CodeScope | None:
        """The function that it stands in."""
        return self.statement.scope if self.statement else None

    @cached_property
    def fed(self) -> ast.Call | None:
        """The call that feeds: ``xs.append(x)``, where the statement is one."""
        form = self.line.form if self.line else ""
        for call in parts_of(self.node, ast.Call):
            if isinstance(call.func, ast.Attribute) and call.func.attr == form and call.args:
                return call
        return None

    @property
    def fed_value(self) -> ast.expr | None:
        """The expression that is put into the container."""
        if self.fed is not None:
            return self.fed.args[-1]
        match self.node:
            case ast.Assign(targets=[ast.Subscript(), *_], value=value):
                return value
        return None

    def edits(self, scope: CodeScope | None = None) -> Edits:
        """Return an editor of the file of a scope, by default of the feeding line's."""
        home = scope or self.scope
        return Edits(self.sources, home.file if home else "")

    def where(self) -> str:
        """Return ``train.py:12``, or an empty text without a feeding line."""
        return self.sources.location(self.line.file, self.line.line) if self.line else ""

    def at(self, around: Statement | CodeScope, node: ast.AST | None = None) -> str:
        """Return the same of a statement, or of a node in it or in a scope."""
        return self.sources.place(around, node)

    @property
    def heaviest(self) -> Content | None:
        """Of what it holds the type that has most bytes."""
        return max(self.row.holds, key=lambda content: content.bytes, default=None)

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

    @property
    def payload(self) -> list[Content]:
        """Of what it holds what is more than numbers and short texts."""
        return [c for c in self.row.holds if c.type.rpartition(".")[2] not in _SMALL]

    def may_hold_tensors(self) -> bool:
        """Whether the census saw tensors in it, or nothing at all that is larger than a number."""
        return not self.payload or any(
            content.type.endswith(("Tensor", "Parameter")) or " on " in content.detail
            for content in self.payload
        )

    def has_payload(self) -> bool:
        """Whether it holds more than numbers and short texts."""
        return not self.row.holds or bool(self.payload)

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

    def measured(self) -> str:
        """Return the same in brackets, as it stands behind a word; empty where nothing is known."""
        return f" ({self.measure()})" if self.measure() else ""

    def opening(self) -> str:
        """Return the sentence that says what grows where."""
        fed = f" It is fed at {self.where()}: `{self.line.text}`." if self.line else ""
        return f"{self.name} keeps what is put into it{self.measured()}.{fed}"

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

    def remedy(
        self,
        title: str,
        account: str,
        *sentences: str,
        diff: str | None = None,
        closing: str | None = None,
    ) -> Remedy:
        """Return a remedy: ``account`` says what grows where, the sentences what to change.

        The closing one says why collecting is of no use, where nothing else is given for it.
        """
        if closing is None:
            also = " and torch.cuda.empty_cache()" if self.row.device_bytes else ""
            closing = f"gc.collect(){also} can't help: {self.name} still refers to all of it."
        advice = " ".join(filter(None, (*sentences, closing)))
        text = " ".join(filter(None, (account, advice)))
        return Remedy(title=title, text=text, advice=advice if account else "", diff=diff)


_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")


class Edits:
    """Collects edits to one file; ``diff`` applies them to a copy of its text."""

    def __init__(self, sources: SourceIndex, file: str) -> None:
        path = sources.files.find(file) or file
        self._name = sources.files.relative(path).lstrip("/")
        self._text = sources.files.texts.get(path, "")
        self._lines: list[str] = _LINE.findall(self._text)
        self._ending = "\r\n" if "\r\n" in self._text else "\n"
        self._changes: list[tuple[int, int, str]] = []
        self._starts = [0, *accumulate(map(len, self._lines))]
        self._impossible = "\r" in self._text.replace("\r\n", "")

    def source_of(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of a node as it was written."""
        start, end = self._range(node)
        return self._text[start:end]

    def replace(self, node: ast.expr | ast.stmt, text: str) -> Edits:
        """Replace a node's text."""
        start, end = self._range(node)
        self._changes.append((start, end, text))
        return self

    def call_method(self, node: ast.expr, method: str) -> Edits:
        """Call a method on an expression's value: ``loss`` becomes ``loss.item()``."""
        text = self.source_of(node)
        text = text if isinstance(node, _REFERRING) else f"({text})"
        return self.replace(node, f"{text}.{method}")

    def insert_before(self, statement: ast.stmt, *lines: str) -> Edits:
        """Insert lines above a statement, indented like it."""
        return self._insert(statement, self._starts[first_line_of(statement) - 1], lines)

    def insert_after(self, statement: ast.stmt, *lines: str) -> Edits:
        """Insert lines below a statement, indented like it."""
        return self._insert(statement, self._next_line(statement), lines)

    def _insert(self, statement: ast.stmt, start: int | None, lines: Sequence[str]) -> Edits:
        indent = self._indent(statement)
        if indent is None or start is None:
            return self._give_up()
        is_open = start > 0 and self._text[start - 1] != "\n"  # the file's last line
        block = "".join(f"{indent}{line}{self._ending}" for line in lines)
        self._changes.append((start, start, (self._ending if is_open else "") + block))
        return self

    def remove(self, statement: ast.stmt) -> Edits:
        """Remove a statement with its lines."""
        end = self._next_line(statement)
        if self._indent(statement) is None or end is None:
            return self._give_up()
        self._changes.append((self._starts[statement.lineno - 1], end, ""))
        return self

    def remove_decorator(self, decorator: ast.expr) -> Edits:
        """Remove a decorator with its lines."""
        start, end = self._starts[decorator.lineno - 1], decorator.end_lineno or decorator.lineno
        if self._text[start:].lstrip()[:1] != "@":
            return self._give_up()
        self._changes.append((start, self._starts[end], ""))
        return self

    def insert_import(self, line: str) -> Edits:
        """Insert an import below the module's last top import, unless it is there already."""
        tree = ast.parse(self._text)
        kinds = (ast.Import, ast.ImportFrom)
        if any(isinstance(n, kinds) and ast.unparse(n) == line for n in tree.body):
            return self
        for node, following in pairwise([*tree.body, None]):
            if isinstance(node, kinds) and not isinstance(following, kinds):
                return self.insert_after(node, line)
        body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
        return self.insert_before(body[0], line) if body else self._give_up()

    def diff(self) -> str | None:
        """Return the unified diff, or None where the edits can't be made safely."""
        changed = self._changed()
        if changed is None or changed == self._text:
            return None
        try:
            ast.parse(changed)
        except (SyntaxError, ValueError):
            return None
        names = f"a/{self._name}", f"b/{self._name}"
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in difflib.unified_diff(self._lines, _LINE.findall(changed), *names)
        )

    def _changed(self) -> str | None:
        if self._impossible or not self._changes:
            return None
        text = self._text
        limit = len(text) + 1
        ordered = sorted(enumerate(self._changes), key=lambda c: (*c[1][:2], c[0]), reverse=True)
        for _, (start, end, new) in ordered:
            if end > limit:
                return None
            text = text[:start] + new + text[end:]
            limit = start
        return text

    def _range(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        start = self._offset(node.lineno, node.col_offset)
        return start, self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _offset(self, line: int, column: int) -> int:
        text = self._lines[line - 1]
        return self._starts[line - 1] + len(text.encode()[:column].decode(errors="ignore"))

    def _indent(self, statement: ast.stmt) -> str | None:
        """Return the statement's indentation, None where it isn't alone on its line."""
        start, _ = self._range(statement)
        before = self._text[self._starts[statement.lineno - 1] : start]
        return before if not before.strip() else None

    def _next_line(self, statement: ast.stmt) -> int | None:
        """Return where the line below a statement begins, None where more follows on its last."""
        _, end = self._range(statement)
        start = self._starts[statement.end_lineno or statement.lineno]
        rest = self._text[end:start].strip()
        return None if rest and not rest.startswith("#") else start

    def _give_up(self) -> Edits:
        self._impossible = True
        return self


_REFERRING = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
_RELEASING = frozenset({"clear", "pop", "popleft", "popitem", "remove", "reset", "get"})


@dataclass(frozen=True)
class Use:
    """One expression that refers to the container, and what it stands in, innermost first."""

    statement: Statement
    node: ast.expr
    parents: tuple[ast.AST, ...]

    @property
    def parent(self) -> ast.AST:
        """What the expression stands in directly."""
        return self.parents[0]

    @property
    def method(self) -> str:
        """The attribute that is read from it, empty if none is."""
        return self.parent.attr if isinstance(self.parent, ast.Attribute) else ""

    @property
    def is_stored(self) -> bool:
        """Whether it is the target of an assignment, or of ``del``."""
        return isinstance(getattr(self.node, "ctx", None), (ast.Store, ast.Del))

    @property
    def feeds(self) -> bool:
        """Whether something is put into it here."""
        item_store = isinstance(self.parent, ast.Subscript) and isinstance(
            self.parent.ctx, ast.Store
        )
        return self.method in FEEDERS or item_store or self.is_stored

    @property
    def passed_to(self) -> str:
        """Dotted name of the function that it is an argument of, empty if of none."""
        for parent in self.parents[:2]:
            if isinstance(parent, ast.Call) and self.node is not parent.func:
                is_function = dotted(parent.func).startswith(dotted(self.node) + ".")
                return "" if is_function else dotted(parent.func) or last_name(parent.func)
        return ""

    @property
    def called(self) -> str:
        """The last name of that function."""
        return self.passed_to.rpartition(".")[2]


def _is_reset(use: Use) -> bool:
    """Whether an empty value is assigned again, in a function that doesn't build the object."""
    node = use.statement.node
    if not use.is_stored or not isinstance(node, ast.Assign) or use.statement.scope.kind == "class":
        return False
    again = use.statement.scope.name not in {"__init__", "__post_init__"}
    is_attribute = isinstance(use.node, ast.Attribute)
    empty = isinstance(node.value, (ast.List, ast.Dict, ast.Constant, ast.Call))
    return empty and ((is_attribute and again) or bool(use.statement.loops))


def attributes_of_name(name: str, scope: CodeScope) -> set[str]:
    """Return the attributes read from a variable in its function."""
    return {a.attr for a in parts_of(scope.node, ast.Attribute) if name in names_in(a.value)}


def _attributes_of_result(program: UserProgram, function: CodeScope) -> set[str]:
    """Return the attributes read from what callers get from a function."""
    found: set[str] = set()
    for statement in program.mentioning(function.name):
        for node, parents in own_nodes_in_place(statement.node):
            if isinstance(node, ast.Call) and last_name(node.func) == function.name:
                found.update(p.attr for p in parents if isinstance(p, ast.Attribute))
                for name in _target_names(statement.node):
                    found |= attributes_of_name(name, statement.scope)
    return found


def _in_backward(parents: tuple[ast.AST, ...]) -> bool:
    """``total.backward()``, ``scaler.scale(total / n).backward()``, ``grad(total, …)``."""
    return any(
        (isinstance(parent, ast.Attribute) and parent.attr == "backward")
        or (isinstance(parent, ast.Call) and last_name(parent.func) in {"grad", "backward"})
        for parent in parents
    )


def backward_called(name: str, scope: CodeScope) -> bool:
    """Whether gradients are computed from a variable, in the function where it lives."""
    calls = parts_of(scope.node, ast.Call)
    return any(last_name(c.func) in {"backward", "grad"} and name in names_in(c) for c in calls)


def _target_names(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return set().union(*(names_in(target, ast.Store) for target in targets))


def calls_of(sources: SourceIndex, function: CodeScope) -> Iterator[tuple[Statement, ast.Call]]:
    """Yield the calls that may run a function of the program, in its order."""
    for statement, call in sources.program.calls_mentioning(function.name):
        if function in sources.types.called_functions(call.func, statement.scope):
            yield statement, call


def argument_of(call: ast.Call, function: CodeScope, parameter: str) -> ast.expr | None:
    """Return what a call passes for a parameter, None where it leaves it to the default."""
    passed = keyword_of(call, parameter)
    if passed is not None or parameter not in function.params:
        return passed
    is_bound = isinstance(call.func, ast.Attribute) or function.name == "__init__"
    place = function.params.index(parameter) - (is_bound and bool(function.receiver))
    return call.args[place] if 0 <= place < len(call.args) else None
