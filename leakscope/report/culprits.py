"""Culprits and findings as the page shows them: numbers in words, the path from a root, source and
diffs.
"""

from __future__ import annotations

import builtins
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from keyword import kwlist
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

from leakscope.analysis.processes.endings import ENDINGS
from leakscope.model.path_pattern import parse_path
from leakscope.model.report import Culprit, Excerpt, Finding, HeldLine, PhaseSpan, Remedy
from leakscope.report import words
from leakscope.report.charts import SECONDS, draw_series, is_fitted
from leakscope.report.tables import Bar, percent_of
from leakscope.report.text import (
    exact_bytes,
    exact_interval,
    humane_bytes,
    humane_interval,
    humane_number,
    humane_share,
    size_of,
)

BRIEF = 240
"""Characters of what to change that stand alongside the diff on the first screen."""


@dataclass(frozen=True)
class Piece:
    """A piece of running text; ``code`` where it stands in the program."""

    text: str
    code: bool = False


@dataclass(frozen=True)
class SuspectView:
    """What culprits and findings have in common on the page."""

    anchor: str
    subject: Culprit | Finding
    name: str
    severity: str
    sentence: list[Piece]
    growth_label: str
    growth_text: str
    rate: SimpleNamespace | None
    share: str
    share_label: str
    device: str
    remedy: SimpleNamespace
    is_code: bool = False
    """Whether the name stands in the program."""
    forecast: str = ""


@dataclass(frozen=True)
class CulpritView(SuspectView):
    """A culprit's card."""

    subject: Culprit
    way: list[PathStep] = field(default_factory=list)
    items: str = ""
    holds: list[SimpleNamespace] = field(default_factory=list)
    excerpts: list[SimpleNamespace] = field(default_factory=list)
    chart: SimpleNamespace | None = None


def culprit_views(
    culprits: Iterable[Culprit], spans: Sequence[PhaseSpan] = ()
) -> list[CulpritView]:
    """Return the cards in rank order, each with an anchor of its own."""
    taken: set[str] = set()
    return [_culprit_view(c, anchor_of("culprit", c.signature, taken), spans) for c in culprits]


def finding_views(findings: Iterable[Finding]) -> list[SuspectView]:
    """Return the findings in rank order, each with an anchor of its own."""
    taken: set[str] = set()
    return [
        SuspectView(
            **_shared(f, anchor_of("finding", f.signature, taken)),
            name=f.title,
            sentence=pieces_of(f.text),
        )
        for f in findings
    ]


def _culprit_view(culprit: Culprit, anchor: str, spans: Sequence[PhaseSpan]) -> CulpritView:
    return CulpritView(
        **_shared(culprit, anchor),
        name=culprit.name,
        is_code=True,
        sentence=pieces_of(culprit.sentence),
        way=path_steps(culprit),
        items=_items(culprit),
        holds=_content_rows(culprit.holds),
        forecast=culprit.forecast.text if culprit.forecast else "",
        excerpts=[excerpt_view(excerpt) for excerpt in culprit.excerpts],
        chart=_chart(culprit, f"{anchor}-chart", spans),
    )


def _shared(suspect: Culprit | Finding, anchor: str) -> dict[str, Any]:
    is_ending = isinstance(suspect, Finding) and suspect.kind in ENDINGS
    # What lies outside the process, or grows by no part of it, is no share of its growth.
    has_share = isinstance(suspect, Culprit) or (suspect.share > 0 and not is_ending)
    in_worker = isinstance(suspect, Culprit) and suspect.workers
    seen_in = ", in one worker when last looked at"
    return {
        "anchor": anchor,
        "subject": suspect,
        "severity": suspect.severity.value,
        "growth_label": "" if is_ending else words.GROWTHS.get(suspect.growth, suspect.growth),
        "growth_text": words.growth_words(
            suspect.growth,
            suspect.phase,
            suspect.unit,
            falls_back=not isinstance(suspect, Culprit) or suspect.falls_back,
        ),
        "rate": _rate(suspect),
        "share": humane_share(suspect.share) if has_share else "",
        "share_label": words.SHARES.get(suspect.growth, "Share"),
        # Of a worker's memory only what its last census saw is known.
        "device": f"on {suspect.device}{seen_in if in_worker else ''}",
        "remedy": remedy_view(suspect.remedy),
    }


def remedy_view(remedy: Remedy) -> SimpleNamespace:
    """Return what to change, its code set apart and its diff in colours."""
    text = pieces_of(remedy.text)
    shown = remedy.text if remedy.diff else words.advice_of(remedy)
    brief = pieces_of(first_sentences(shown, BRIEF))
    return SimpleNamespace(
        title=remedy.title,
        text=text,
        diff=diff_lines(remedy.diff),
        raw_diff=remedy.diff or "",
        brief=brief,
        is_shortened=brief != text,
    )


def first_sentences(text: str, most: int) -> str:
    """Return the whole sentences that fit into so many characters, at least the first."""
    ends = [m.start() for m in re.finditer(r"(?<=[.!?]) (?=[A-Z`])", text)]
    outside_code = [end for end in ends if text.count("`", 0, end) % 2 == 0] + [len(text)]
    return text[: max((end for end in outside_code if end <= most), default=outside_code[0])]


def pieces_of(text: str) -> list[Piece]:
    """Return running text cut at its backticks: what they enclose is code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return [Piece(text)]
    return [Piece(part, code=i % 2 == 1) for i, part in enumerate(parts) if part]


def _rate(suspect: Culprit | Finding) -> SimpleNamespace | None:
    if not suspect.unit:
        return None
    in_workers = isinstance(suspect, Culprit) and suspect.workers
    return SimpleNamespace(
        text=words.rate_words(suspect),
        exact=f"{exact_bytes(suspect.bytes_per_unit)} per {suspect.unit}",
        interval=humane_interval(suspect.interval),
        exact_interval=f"{exact_interval(suspect.interval)} per {suspect.unit}",
        unit=suspect.unit,
        by_event=words.event_words(suspect),
        is_by_event_alone=suspect.per_event is not None and suspect.per_event.says_it_all,
        unit_meaning=words.TERMS["pass"] if in_workers and suspect.unit == "pass" else "",
    )


def _items(culprit: Culprit) -> str:
    if culprit.items_per_unit is None:
        return ""
    count = humane_number(culprit.items_per_unit)
    return f"{count} {'item' if count == '1' else 'items'} per {culprit.unit}"


def _content_rows(holds: Sequence[HeldLine]) -> list[SimpleNamespace]:
    most = max((content.bytes for content in holds), default=0) or 1
    return [
        SimpleNamespace(
            type=content.type,
            detail=content.detail,
            count=humane_number(content.count),
            size=size_of(content.bytes),
            bar=Bar("0", percent_of(content.bytes, most)),
        )
        for content in holds
    ]


def _chart(culprit: Culprit, key: str, spans: Sequence[PhaseSpan]) -> SimpleNamespace | None:
    if not culprit.chart:
        return None
    return SimpleNamespace(
        key=key,
        drawing=draw_series(culprit, key, spans),
        axis="time in the run" if culprit.chart_unit == SECONDS else culprit.chart_unit,
        unit="clock" if culprit.chart_unit == SECONDS else culprit.chart_unit or culprit.unit,
        points=[(point.x, point.y) for point in culprit.chart],
        fitted=is_fitted(culprit),
    )


def anchor_of(kind: str, signature: str, taken: set[str]) -> str:
    """Return an element's name on the page, the same each time; ``taken`` takes it in."""
    name = signature
    if not re.fullmatch(r"[\w.-]{1,80}", signature, re.ASCII):
        name = hashlib.sha256(signature.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    anchor, number = f"{kind}-{name}", 1
    while anchor in taken:
        number += 1
        anchor = f"{kind}-{name}-{number}"
    taken.add(anchor)
    return anchor


MOST_STEPS = 6
"""Between root and culprit; of a longer way the middle is left out."""
_STEPS = {
    "attr": ("attribute", ".{}"),
    "key": ("key", "[{}]"),
    "index": ("item", "[{}]"),
    "any": ("each item", "[*]"),
    "cell": ("closed over by it", "{}"),
    "default": ("default of", "{}="),
}
"""By kind of step, its caption and how it is written."""


@dataclass(frozen=True)
class PathStep:
    """A box on the way; ``kind`` is ``root``, ``step``, ``culprit`` or ``contents``."""

    kind: str
    caption: str
    text: str
    note: str = ""


def path_steps(culprit: Culprit) -> list[PathStep]:
    """Return the boxes from the outermost name to the contents."""
    pattern = parse_path(culprit.path)
    between = [PathStep("step", "variable", pattern.variable)] if pattern.variable else []
    for step in pattern.steps:
        caption, form = _STEPS[step.kind]
        between.append(PathStep("step", caption, form.format(step.value)))
    if not pattern.root or not between:
        between = [PathStep("step", "holder", name) for name in (*culprit.held_by, culprit.name)]
    between.pop()  # the culprit itself
    if len(between) > MOST_STEPS:
        half = MOST_STEPS // 2
        left_out = PathStep("step", f"{len(between) - 2 * half} more", "…")
        between[half:-half] = [left_out]
    most = f"at most {humane_bytes(culprit.total_bytes)}"
    boxes = [*between, PathStep("culprit", culprit.type, culprit.name, most)]
    if root := pattern.root:
        caption = "running function" if root.endswith(")") else "module or class"
        caption = "without a name" if root.startswith("<") else caption
        boxes.insert(0, PathStep("root", caption, root))
    if culprit.holds:
        content = max(culprit.holds, key=lambda content: content.bytes)
        text = f"{humane_number(content.count)} × {content.type}"
        caption = content.detail or "contents"
        boxes.append(PathStep("contents", caption, text, humane_bytes(content.bytes)))
    return boxes


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
"""A piece of Python that has a colour; as far as that is known without parsing."""
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
class DiffLine:
    """A line of a diff: ``kind`` is ``added``, ``removed``, ``same``, ``hunk`` or ``file``."""

    kind: str
    sign: str
    tokens: list[Token]


def excerpt_view(excerpt: Excerpt) -> SimpleNamespace:
    """Return an excerpt with numbered, coloured lines."""
    marked = set(excerpt.marked)
    indents = [len(line) - len(line.lstrip(" ")) for line in excerpt.lines if line.strip()]
    outdented = [line[min(indents, default=0) :] for line in excerpt.lines]
    numbered = enumerate(coloured(outdented), excerpt.first_line)
    lines = [
        SimpleNamespace(number=number, tokens=tokens, marked=number in marked)
        for number, tokens in numbered
    ]
    first = min(marked, default=excerpt.first_line)
    return SimpleNamespace(file=excerpt.file, place=f"{excerpt.file}:{first}", lines=lines)


def diff_lines(diff: str | None) -> list[DiffLine]:
    """Return the lines of a unified diff, each with what it does."""
    return [_diff_line(line) for line in (diff or "").splitlines()]


def coloured(lines: list[str]) -> list[list[Token]]:
    """Return the coloured pieces of each line; a string over several lines is taken as a whole."""
    cut: list[list[tuple[str, str]]] = [[]]
    for text, style in _pieces("\n".join(lines)):
        for place, part in enumerate(text.split("\n")):
            if place:
                cut.append([])
            if part:
                cut[-1].append((part, style))
    if len(cut) != len(lines):
        return [[Token(line)] for line in lines]
    return [
        [Token("".join(text for text, _ in alike), style) for style, alike in parted]
        for parted in (groupby(line, itemgetter(1)) for line in cut)
    ]


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


def _diff_line(line: str) -> DiffLine:
    if line.startswith(("+++", "---", "@@")):
        return DiffLine("hunk" if line[0] == "@" else "file", "", [Token(line)])
    signs = {"+": ("added", "+"), "-": ("removed", "\N{MINUS SIGN}")}
    kind, sign = signs.get(line[:1], ("same", " "))
    return DiffLine(kind, sign, coloured([line[1:]])[0])
