"""A check as Markdown: the summary of a job. Names can't break out of their code spans."""

from __future__ import annotations

from collections.abc import Sequence

from leakscope.model.check import Check, Checked, Outcome, Standing
from leakscope.model.printable import clipped, one_line
from leakscope.report.checks.telling import program_of, rate_of, why_of
from leakscope.report.markdown import code_span
from leakscope.report.wording import is_address, known_words

_LONGEST_NAME = 160
_MARKS = {Outcome.PASSED: "✅", Outcome.FAILED: "❌", Outcome.INCONCLUSIVE: "❔"}
_MEANINGFUL = str.maketrans(
    {
        **{character: f"\\{character}" for character in "\\`*_[]()#.|~$@:"},
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
    }
)


def render_check_markdown(check: Check) -> str:
    """Return the outcome, what fails, what is excused and why, and what is to be mended."""
    mark = _MARKS[check.outcome] if check.passes else _MARKS[Outcome.FAILED]
    lines = [f"## {mark} Memory of {_code(program_of(check))}", ""]
    lines += [_plain(check.headline), ""]
    failed = [one for one in check.growths if one.standing is Standing.FAILED]
    rest = [one for one in check.growths if one.standing not in (Standing.FAILED, Standing.NOTE)]
    lines += _section("Not allowed", [_growth(one) for one in failed])
    lines += _section("Excused", [_growth(one) for one in rest])
    gone = [f"- {_code(known.name)} ({_code(known.signature)})" for known in check.gone]
    lines += _section("No longer needed in the baseline", gone)
    lines += _section("To be mended", [f"- {_plain(remark)}" for remark in check.remarks])
    lines += _section("What would settle it", [f"- {_plain(text)}" for text in check.missing])
    return "\n".join(lines).rstrip() + "\n"


def _section(title: str, items: Sequence[str]) -> list[str]:
    return [f"### {title}", "", *items, ""] if items else []


def _growth(one: Checked) -> str:
    rate = rate_of(one)
    head = f"- **{one.severity.value}** {_code(one.name)}"
    head += f": {_plain(rate)}" if rate else ""
    head += f", {_code(one.place)}" if one.place else ""
    details = [_known(one), _plain(why_of(one)), f"→ {_plain(one.remedy)}"]
    kept = details if one.standing is Standing.FAILED and one.remedy else details[:2]
    return "\n".join([head, *(f"  <br>{text}" for text in kept if text)])


def _known(one: Checked) -> str:
    known = one.recognised
    if known is None:
        return ""
    told = f"{_plain(known_words(known))}: {_plain(known.title)}"
    return f"{told}, <{one_line(known.link)}>" if is_address(known.link) else told


def _code(text: str) -> str:
    return code_span(clipped(text, _LONGEST_NAME))


def _plain(text: str) -> str:
    """Return text in which nothing means anything to Markdown or HTML."""
    return one_line(text).translate(_MEANINGFUL)
