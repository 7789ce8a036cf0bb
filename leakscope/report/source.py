"""Source code for the page: excerpts with their marked lines, and unified diffs, in colours."""

from __future__ import annotations

import builtins
import keyword
import re
from dataclasses import dataclass

from leakscope.model.report import Excerpt

_TOKEN = re.compile(
    r"""(?P<comment>\#.*)
      | (?P<string>[rbfuRBFU]{0,2}(?:
            \"\"\".*?(?:\"\"\"|$) | '''.*?(?:'''|$)
          | "(?:\\.|[^"\\])*"? | '(?:\\.|[^'\\])*'?))
      | (?P<number>\b\d[\w.]*)
      | (?P<decorator>^\s*@[\w.]+)
      | (?P<name>[^\W\d]\w*)""",
    re.VERBOSE,
)
_BUILTINS = frozenset(name for name in dir(builtins) if not name.startswith("_"))


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
    numbered = enumerate(_outdented(excerpt.lines), excerpt.first_line)
    lines = [SourceLine(number, tokens_of(text), number in marked) for number, text in numbered]
    first = min(marked, default=excerpt.first_line)
    return SourceView(file=excerpt.file, place=f"{excerpt.file}:{first}", lines=lines)


def diff_lines(diff: str | None) -> list[DiffLine]:
    """Return the lines of a unified diff, told apart by what they do."""
    return [_diff_line(line) for line in (diff or "").splitlines()]


def tokens_of(line: str) -> list[Token]:
    """Return a line of Python cut into coloured pieces; joined they are the line again."""
    tokens: list[Token] = []
    end = 0
    for match in _TOKEN.finditer(line):
        style = _style(match)
        if not style:
            continue
        if match.start() > end:
            tokens.append(Token(line[end : match.start()]))
        tokens.append(Token(match.group(), style))
        end = match.end()
    if end < len(line):
        tokens.append(Token(line[end:]))
    return tokens


def _outdented(lines: list[str]) -> list[str]:
    indents = [len(line) - len(line.lstrip(" ")) for line in lines if line.strip()]
    return [line[min(indents, default=0) :] for line in lines]


def _style(match: re.Match[str]) -> str:
    kind = match.lastgroup or ""
    if kind != "name":
        return kind
    if keyword.iskeyword(match.group()):
        return "keyword"
    return "builtin" if match.group() in _BUILTINS else ""


def _diff_line(line: str) -> DiffLine:
    if line.startswith(("+++", "---")):
        return DiffLine("file", "", [Token(line)])
    if line.startswith("@@"):
        return DiffLine("hunk", "", [Token(line)])
    kind = {"+": "added", "-": "removed"}.get(line[:1], "same")
    sign = {"added": "+", "removed": "\N{MINUS SIGN}"}.get(kind, " ")
    return DiffLine(kind, sign, tokens_of(line[1:]))
