"""A culprit as Markdown, for pasting into an issue."""

from __future__ import annotations

import re

from leakscope.model.printable import one_line, printable
from leakscope.model.report import Culprit
from leakscope.report.sizes import humane_bytes, humane_interval
from leakscope.report.wording import is_address, known_words, rate_words, share_words


def culprit_markdown(culprit: Culprit) -> str:
    """Return title, facts and remedy; names can't break out of their code spans."""
    rate = rate_words(culprit)
    rate += f" (95 % interval {humane_interval(culprit.interval)})"
    facts = [
        ("rate", rate),
        ("share", share_words(culprit.share, culprit.growth)),
        ("retains at most", humane_bytes(culprit.total_bytes)),
        ("known", _known(culprit)),
        ("forecast", one_line(culprit.forecast.text) if culprit.forecast else ""),
        ("fed at", ", ".join(map(code_span, culprit.fed_at))),
        ("defined at", code_span(culprit.defined_at) if culprit.defined_at else ""),
        ("signature", code_span(culprit.signature)),
    ]  # fmt: skip
    lines = [f"### Memory leak: {code_span(culprit.name)}", "", one_line(culprit.sentence), ""]
    lines += [f"- **{label}:** {value}" for label, value in facts if value]
    lines += ["", f"**{one_line(culprit.remedy.title)}** {one_line(culprit.remedy.text)}"]
    if culprit.remedy.diff:
        lines += ["", _fenced(printable(culprit.remedy.diff).rstrip("\n"))]
    return "\n".join(lines) + "\n"


def _known(culprit: Culprit) -> str:
    known = culprit.known
    if known is None:
        return ""
    link = f", <{known.link}>" if is_address(known.link) else ""
    return one_line(f"{known_words(known)}: {known.title}{link}")


def code_span(text: str) -> str:
    """Return a text as code, in a fence that nothing in it can close."""
    text = one_line(text)
    fence = "`" * (_longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _fenced(text: str) -> str:
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}diff\n{text}\n{fence}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
