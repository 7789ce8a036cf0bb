"""A check for the terminal, and for logs of CI that look for commands in it."""

from __future__ import annotations

from leakscope.model.check import Check, Checked, Outcome, Standing
from leakscope.model.printable import clipped, one_line
from leakscope.report.checks.telling import log_line, rate_of, why_of
from leakscope.report.paper import Paper
from leakscope.report.wording import known_words

_MARKS = {
    Outcome.PASSED: ("✓", "clean"),
    Outcome.FAILED: ("✗", "leak"),
    Outcome.INCONCLUSIVE: ("?", "inconclusive"),
}


def render_check_text(check: Check, *, width: int = 100, color: bool = False) -> str:
    """Return the outcome, what fails, what is excused and why, and what is to be mended."""
    paper = Paper(width, color)
    mark, style = _MARKS[check.outcome]
    first, *rest = paper.wrap(f"{mark} {check.headline}")
    lines = [paper.paint(first, style), *rest]
    for one in check.growths:
        if one.standing is Standing.FAILED:
            lines += ["", *_failed(one, paper)]
    excused = [one for one in check.growths if one.standing not in _UNTOLD]
    lines += _spaced([line for one in excused for line in _excused(one, paper)])
    gone = [f"in the baseline, but no longer needed: {known.name}" for known in check.gone]
    lines += _spaced([paper.clip(text) for text in gone])
    lines += _spaced([line for remark in check.remarks for line in paper.wrap(f"! {remark}")])
    settle = [line for text in check.missing for line in paper.wrap(f"to settle it: {text}")]
    lines += _spaced(settle)
    return "\n".join(map(_no_command, lines)) + "\n"


_UNTOLD = (Standing.FAILED, Standing.NOTE)


def _failed(one: Checked, paper: Paper) -> list[str]:
    severity = one.severity.value
    name = clipped(one.name, paper.width - 16)
    lines = [f"✗ {paper.paint(name, 'name')}  {paper.paint(severity, severity)}"]
    rate = rate_of(one)
    told = " at ".join(text for text in (rate, one.place) if text)
    lines += [paper.clip(told, "  ")] if told else []
    lines += paper.wrap(one.why, "  ")
    lines += _known(one, paper)
    lines += [paper.clip(f"→ {one.remedy}", "  ")] if one.remedy else []
    return [*lines, paper.clip(f"signature {one.signature}", "  ")]


def _known(one: Checked, paper: Paper) -> list[str]:
    known = one.recognised
    if known is None:
        return []
    return [paper.clip(f"{known_words(known)}: {known.title}", "  "), f"  {one_line(known.link)}"]


def _excused(one: Checked, paper: Paper) -> list[str]:
    rate = rate_of(one)
    head = f"{one.standing.value:<10} {one.name}" + (f"  {rate}" if rate else "")
    return [paper.clip(head), *paper.wrap(why_of(one), " " * 11)]


def _no_command(line: str) -> str:
    """Return a line as a log may have it; colours of our own stay."""
    return "\x1b".join(map(log_line, line.split("\x1b")))


def _spaced(lines: list[str]) -> list[str]:
    return ["", *lines] if lines else []
