"""Source code for the page: excerpts with their marked lines, and unified diffs, in colours."""

from __future__ import annotations

from dataclasses import dataclass

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

from leakscope.model.report import Excerpt

_STYLES: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "comment"),
    (String.Interpol, ""),
    (String, "string"),
    (Number, "number"),
    (Keyword, "keyword"),
    (Operator.Word, "keyword"),
    (Name.Decorator, "decorator"),
    (Name.Builtin.Pseudo, ""),
    (Name.Builtin, "builtin"),
    (Name.Exception, "builtin"),
    (Name.Function, "definition"),
    (Name.Class, "definition"),
)
"""The first that fits decides; what none fits is plain."""


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
    """Return the coloured pieces of each line, a text over several lines told as one."""
    cut: list[list[Token]] = [[]]
    for _, kind, text in PythonLexer().get_tokens_unprocessed("\n".join(lines)):
        style = next((style for known, style in _STYLES if kind in known), "")
        first, *others = text.split("\n")
        _append(cut[-1], first, style)
        for other in others:
            cut.append([])
            _append(cut[-1], other, style)
    return cut if len(cut) == len(lines) else [[Token(line)] for line in lines]


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
