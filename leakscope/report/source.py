"""Source code for the page: excerpts with their marked lines, and unified diffs, in colours."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass
from keyword import kwlist

from leakscope.model.report import Excerpt

_PYTHON = re.compile(
    r"""
      (?P<comment>\#[^\n]*)
    | (?P<string>(?:\b[rbfuRBFU]{1,2})?(?:
          \"{3}(?:[^\\]|\\.)*?(?:\"{3}|\Z) | '{3}(?:[^\\]|\\.)*?(?:'{3}|\Z)
        | "(?:[^"\\\n]|\\.)*"? | '(?:[^'\\\n]|\\.)*'?))
    | (?P<decorator>^[ \t]*@[\w.]+)
    | (?P<number>\b(?:0[xXoObB][\da-fA-F_]+|\d[\d_]*(?:\.[\d_]*)?(?:[eE][+-]?[\d_]+)?[jJ]?))
    | \b(?:def|class)[ \t]+(?P<definition>\w+)
    | (?P<name>(?<!\.)\b[^\W\d]\w*)
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
"""A piece of Python that has a colour; as much of it as can be told without parsing."""
_BRACES = re.compile(r"\{\{|\}\}|\{(?:[^{}]|\{[^{}]*\})*\}")
"""In an f-string: braces that are meant, and what it puts in."""
_WORDS = (
    {name: "builtin" for name in dir(builtins) if not name.startswith("_")}
    | dict.fromkeys(("Ellipsis", "NotImplemented"), "")
    | dict.fromkeys(kwlist, "keyword")
)


@dataclass(frozen=True)
class Token:
    """A piece of a source line; ``style`` is empty for plain text."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class SourceLine:
    """A numbered line of an excerpt."""

    number: int
    tokens: list[Token]
    marked: bool


@dataclass(frozen=True)
class SourceView:
    """An excerpt as shown: its file, where it starts and its lines."""

    file: str
    place: str
    lines: list[SourceLine]


@dataclass(frozen=True)
class DiffLine:
    """A line of a diff: ``kind`` is ``added``, ``removed``, ``same``, ``hunk`` or ``file``."""

    kind: str
    sign: str
    tokens: list[Token]


def excerpt_view(excerpt: Excerpt) -> SourceView:
    """Return an excerpt with numbered, coloured lines."""
    marked = set(excerpt.marked)
    numbered = enumerate(coloured(_outdented(excerpt.lines)), excerpt.first_line)
    lines = [SourceLine(number, tokens, number in marked) for number, tokens in numbered]
    first = min(marked, default=excerpt.first_line)
    return SourceView(file=excerpt.file, place=f"{excerpt.file}:{first}", lines=lines)


def diff_lines(diff: str | None) -> list[DiffLine]:
    """Return the lines of a unified diff, told apart by what they do."""
    return [_diff_line(line) for line in (diff or "").splitlines()]


def tokens_of(line: str) -> list[Token]:
    """Return a line of Python cut into coloured pieces; joined they are the line again."""
    return coloured([line])[0]


def coloured(lines: list[str]) -> list[list[Token]]:
    """Return the coloured pieces of each line; a string over several lines is taken as a whole."""
    cut: list[list[Token]] = [[]]
    for text, style in _pieces("\n".join(lines)):
        first, *others = text.split("\n")
        _append(cut[-1], first, style)
        for other in others:
            cut.append([])
            _append(cut[-1], other, style)
    return cut if len(cut) == len(lines) else [[Token(line)] for line in lines]


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Return the pieces of a source text and their styles; joined they are the text again."""
    at = 0
    for found in _PYTHON.finditer(text):
        kind = found.lastgroup or ""
        start, end = found.span(kind)
        yield text[at : found.start()], ""
        if kind == "definition":
            yield from _pieces(text[found.start() : start])
        if kind == "string" and "f" in text[start : start + 2].lower():
            yield from _with_insertions(found.group())
        else:
            yield text[start:end], _WORDS.get(found.group(), "") if kind == "name" else kind
        at = found.end()
    yield text[at:], ""


def _with_insertions(string: str) -> Iterator[tuple[str, str]]:
    at = 0
    for found in _BRACES.finditer(string):
        if found.group() not in ("{{", "}}"):
            yield string[at : found.start()], "string"
            yield found.group(), ""
            at = found.end()
    yield string[at:], "string"


def _append(tokens: list[Token], text: str, style: str) -> None:
    if not text:
        return
    if tokens and tokens[-1].style == style:
        tokens[-1] = Token(tokens[-1].text + text, style)
    else:
        tokens.append(Token(text, style))


def _outdented(lines: list[str]) -> list[str]:
    indents = [len(line) - len(line.lstrip(" ")) for line in lines if line.strip()]
    return [line[min(indents, default=0) :] for line in lines]


def _diff_line(line: str) -> DiffLine:
    if line.startswith(("+++", "---")):
        return DiffLine("file", "", [Token(line)])
    if line.startswith("@@"):
        return DiffLine("hunk", "", [Token(line)])
    kind = {"+": "added", "-": "removed"}.get(line[:1], "same")
    sign = {"added": "+", "removed": "\N{MINUS SIGN}"}.get(kind, " ")
    return DiffLine(kind, sign, tokens_of(line[1:]))
