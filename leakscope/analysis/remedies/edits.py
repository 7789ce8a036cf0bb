"""Edits to one recorded source file, shown as a unified diff.

An edit that can't be made safely (a statement that shares its line with another, a result that
doesn't parse) makes the whole diff None: no diff is better than a wrong one.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Sequence

from leakscope.analysis.source import SourceIndex

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
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
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
        _, end = self._range(node)
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
            self._changes.append((end, end, f".{method}"))
        else:
            text = self.source_of(node)
            wrapped = text if _is_wrapped(text) else f"({text})"
            self.replace(node, f"{wrapped}.{method}")
        return self

    def insert_before(self, statement: ast.stmt, *lines: str) -> Edits:
        """Insert lines above a statement, indented like it."""
        decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
        first = min([statement.lineno, *(d.lineno for d in decorators)]) - 1
        indent = self._indent(statement)
        if indent is None:
            return self._give_up()
        start = self._starts[first]
        self._changes.append((start, start, self._block(lines, indent)))
        return self

    def insert_after(self, statement: ast.stmt, *lines: str) -> Edits:
        """Insert lines below a statement, indented like it."""
        indent = self._indent(statement)
        last = (statement.end_lineno or statement.lineno) - 1
        _, end = self._range(statement)
        rest = self._text[end : self._starts[last + 1]].strip()
        if indent is None or (rest and not rest.startswith("#")):
            return self._give_up()
        start = self._starts[last + 1]
        lead = "" if self._text[:start].endswith("\n") else self._ending
        self._changes.append((start, start, lead + self._block(lines, indent)))
        return self

    def remove(self, statement: ast.stmt) -> Edits:
        """Remove a statement with its lines."""
        _, end = self._range(statement)
        last = (statement.end_lineno or statement.lineno) - 1
        rest = self._text[end : self._starts[last + 1]].strip()
        if self._indent(statement) is None or (rest and not rest.startswith("#")):
            return self._give_up()
        self._changes.append((self._starts[statement.lineno - 1], self._starts[last + 1], ""))
        return self

    def insert_import(self, line: str) -> Edits:
        """Insert an import below the module's last top import, unless it is there already."""
        tree = ast.parse(self._text)
        imports = [n for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]
        if any(ast.unparse(node) == line for node in imports):
            return self
        if imports:
            return self.insert_after(_last_of_first_run(tree.body, imports), line)
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
        lines: list[str] = []
        for line in difflib.unified_diff(
            self._lines, _LINE.findall(changed), f"a/{self._name}", f"b/{self._name}"
        ):
            ended = line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            lines.append(ended)
        return "".join(lines)

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
        """Return the character at a position whose column counts UTF-8 bytes."""
        text = self._lines[line - 1]
        return self._starts[line - 1] + len(text.encode()[:column].decode(errors="ignore"))

    def _indent(self, statement: ast.stmt) -> str | None:
        """Return the statement's indentation, None where it isn't alone on its line."""
        start, _ = self._range(statement)
        before = self._text[self._starts[statement.lineno - 1] : start]
        return before if not before.strip() else None

    def _block(self, lines: Sequence[str], indent: str) -> str:
        return "".join(f"{indent}{line}{self._ending}" for line in lines)

    def _give_up(self) -> Edits:
        self._impossible = True
        return self


def _last_of_first_run(
    body: list[ast.stmt], imports: Sequence[ast.stmt]
) -> ast.Import | ast.ImportFrom:
    """Return the last import before the first statement that is something else."""
    last = imports[0]
    for node in body[body.index(last) :]:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            break
        last = node
    assert isinstance(last, (ast.Import, ast.ImportFrom))
    return last


def _is_wrapped(text: str) -> bool:
    """Whether one pair of parentheses spans the whole text."""
    if not (text.startswith("(") and text.endswith(")")):
        return False
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and index < len(text) - 1:
            return False
    return True
