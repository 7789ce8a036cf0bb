"""A check of a run in the forms of ``leakscope check --format``: text, Markdown, annotations of
GitHub, JUnit XML, JSON and SARIF.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import PurePosixPath
from xml.etree import ElementTree as ET

from leakscope.model.documents import Check, Checked, CheckReason, Outcome
from leakscope.model.layout import Paper, spaced
from leakscope.model.report import Severity
from leakscope.model.text import clipped, one_line
from leakscope.report.gates.sarif import (
    SourceLocation,
    account_of,
    location_of,
    rate_of,
    render_check_sarif,
    why_of,
)
from leakscope.report.json import render_json
from leakscope.report.markdown import code_span
from leakscope.report.words import is_address, known_words


def log_line(text: str) -> str:
    """Return text as one line that no runner of CI takes for a command, whatever is in it."""
    line = one_line(text).replace("##[", "## [").replace("##vso", "## vso")
    return f"· {line}" if line.lstrip().startswith("::") else line


def program_of(check: Check) -> str:
    """Return the name of the program that was checked."""
    return PurePosixPath(check.run.script).name or "run"


_TERMINAL_MARKS = {
    Outcome.PASSED: ("✓", "clean"),
    Outcome.FAILED: ("✗", "leak"),
    Outcome.INCONCLUSIVE: ("?", "inconclusive"),
}


def render_check_text(check: Check, *, width: int = 100, color: bool = False) -> str:
    """Return the outcome, what fails, what is excused and why, and what remains to be fixed."""
    paper = Paper(width, color)
    mark, style = _TERMINAL_MARKS[check.outcome]
    first, *rest = paper.wrap(f"{mark} {check.headline}")
    lines = [paper.paint(first, style), *rest]
    for growth in check.growths:
        if growth.standing is CheckReason.FAILED:
            lines += ["", *_failed_lines(growth, paper)]
    excused = [growth for growth in check.growths if growth.standing not in _NOT_EXCUSED]
    lines += spaced([line for growth in excused for line in _excused_lines(growth, paper)])
    gone = [f"in the baseline, but no longer needed: {known.name}" for known in check.gone]
    lines += spaced([paper.clip(text) for text in gone])
    lines += spaced([line for remark in check.remarks for line in paper.wrap(f"! {remark}")])
    # Of several the first says what is missing, the others what to do.
    reasons = len(check.missing) > 1
    lines += spaced([line for text in check.missing[:reasons] for line in paper.wrap(f"! {text}")])
    advice = [f"to settle it: {text}" for text in check.missing[reasons:]]
    lines += spaced([line for text in advice for line in paper.wrap(text)])
    # Colours of our own stay.
    return "\n".join("\x1b".join(map(log_line, line.split("\x1b"))) for line in lines) + "\n"


_NOT_EXCUSED = (CheckReason.FAILED, CheckReason.NOTE)


def _failed_lines(growth: Checked, paper: Paper) -> list[str]:
    severity = growth.severity.value
    name = clipped(growth.name, paper.width - 16)
    lines = [f"✗ {paper.paint(name, 'name')}  {paper.paint(severity, severity)}"]
    summary = " at ".join(filter(None, (rate_of(growth), growth.place)))
    lines += [paper.clip(summary, "  ")] if summary else []
    lines += paper.wrap(growth.why, "  ")
    if (known := growth.recognised) is not None:
        text = f"{known_words(known)}: {known.title}"
        lines += [paper.clip(text, "  "), f"  {one_line(known.link)}"]
    lines += [paper.clip(f"→ {growth.remedy}", "  ")] if growth.remedy else []
    return [*lines, paper.clip(f"signature {growth.signature}", "  ")]


def _excused_lines(growth: Checked, paper: Paper) -> list[str]:
    rate = rate_of(growth)
    head = f"{growth.standing.value:<10} {growth.name}" + (f"  {rate}" if rate else "")
    return [paper.clip(head), *paper.wrap(why_of(growth), " " * 11)]


_LONGEST_CODE = 160
_MARKDOWN_MARKS = {Outcome.PASSED: "✅", Outcome.FAILED: "❌", Outcome.INCONCLUSIVE: "❔"}
_MEANINGFUL = str.maketrans(
    {character: f"\\{character}" for character in "\\`*_[]()#.|~$@:"}
    | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
)


def render_check_markdown(check: Check) -> str:
    """Return the outcome, what fails, what is excused and why, and what remains to be fixed."""
    mark = _MARKDOWN_MARKS[check.outcome] if check.passes else _MARKDOWN_MARKS[Outcome.FAILED]
    lines = [f"## {mark} Memory of {_markdown_code(program_of(check))}", ""]
    lines += [_markdown_text(check.headline), ""]
    failed = [growth for growth in check.growths if growth.standing is CheckReason.FAILED]
    excused = [growth for growth in check.growths if growth.standing not in _NOT_EXCUSED]
    lines += _markdown_section("Not allowed", map(_markdown_growth, failed))
    lines += _markdown_section("Excused", map(_markdown_growth, excused))
    gone = (f"{_markdown_code(k.name)} ({_markdown_code(k.signature)})" for k in check.gone)
    lines += _markdown_section("No longer needed in the baseline", gone)
    lines += _markdown_section("To be mended", map(_markdown_text, check.remarks))
    lines += _markdown_section("What would settle it", map(_markdown_text, check.missing))
    return "\n".join(lines).rstrip() + "\n"


def _markdown_section(title: str, items: Iterable[str]) -> list[str]:
    shown = [f"- {item}" for item in items]
    return [f"### {title}", "", *shown, ""] if shown else []


def _markdown_growth(growth: Checked) -> str:
    rate = rate_of(growth)
    head = f"**{growth.severity.value}** {_markdown_code(growth.name)}"
    head += f": {_markdown_text(rate)}" if rate else ""
    head += f", {_markdown_code(growth.place)}" if growth.place else ""
    known = ""
    if culprit := growth.recognised:
        known = f"{_markdown_text(known_words(culprit))}: {_markdown_text(culprit.title)}"
        known += f", <{one_line(culprit.link)}>" if is_address(culprit.link) else ""
    details = [
        known,
        _markdown_text(why_of(growth)),
        f"→ {_markdown_text(growth.remedy)}",
    ]
    kept = details if growth.standing is CheckReason.FAILED and growth.remedy else details[:2]
    return "\n".join([head, *(f"  <br>{text}" for text in kept if text)])


def _markdown_code(text: str) -> str:
    return code_span(clipped(text, _LONGEST_CODE))


def _markdown_text(text: str) -> str:
    """Return text in which nothing means anything to Markdown or HTML."""
    return one_line(text).translate(_MEANINGFUL)


_EXCUSED = frozenset({CheckReason.KNOWN, CheckReason.SUPPRESSED})
_LONGEST_TITLE = 120


def render_check_github(check: Check) -> str:
    """Return a command for each thing that fails or is excused, and for each remark."""
    growths = check.growths
    lines = [_annotation(g, "error") for g in growths if g.standing is CheckReason.FAILED]
    lines += [_annotation(g, "notice") for g in growths if g.standing in _EXCUSED]
    for known in check.gone:
        text = f"{clipped(known.name, _LONGEST_TITLE)} no longer needs its entry in the baseline."
        lines.append(_workflow_command("notice", "leakscope: baseline", text))
    lines += [
        _workflow_command("warning", "leakscope: configuration", remark) for remark in check.remarks
    ]
    if check.outcome is Outcome.INCONCLUSIVE:
        level = "warning" if check.passes else "error"
        lines.append(
            _workflow_command(level, "leakscope: inconclusive", check.headline, *check.missing)
        )
    return "".join(f"{line}\n" for line in lines)


def _annotation(growth: Checked, level: str) -> str:
    if level == "error" and growth.severity is Severity.NOTE:
        level = "warning"
    title = f"leakscope: {clipped(growth.name, _LONGEST_TITLE)}"
    return _workflow_command(level, title, *account_of(growth), place=location_of(growth))


def _workflow_command(
    level: str, title: str, *lines: str, place: SourceLocation | None = None
) -> str:
    properties = {"file": place.file, "line": str(place.line)} if place and place.file else {}
    properties["title"] = title
    parts = ",".join(
        f"{name}={_escaped_property(value)}" for name, value in properties.items() if value
    )
    text = "\n".join(one_line(line) for line in lines if line)
    return f"::{level} {parts}::{_escaped_data(text)}"


def _escaped_data(text: str) -> str:
    """What follows the second ``::``: a line break would begin another command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    """A value before it, which a colon or a comma would end."""
    return _escaped_data(one_line(text)).replace(":", "%3A").replace(",", "%2C")


_LONGEST_CASE_NAME = 200


def render_check_junit(check: Check) -> str:
    """Return the check as a test report; notes are left out."""
    shown = [growth for growth in check.growths if growth.standing is not CheckReason.NOTE]
    cases = [_run_case(check), *(_growth_case(growth) for growth in shown)]
    failures = sum(case.find("failure") is not None for case in cases)
    skipped = sum(case.find("skipped") is not None for case in cases)
    suite = ET.Element(
        "testsuite",
        name="leakscope",
        tests=str(len(cases)),
        failures=str(failures),
        errors="0",
        skipped=str(skipped),
        time="0",
    )
    suite.extend(cases)
    if check.remarks:
        ET.SubElement(suite, "system-out").text = "\n".join(map(one_line, check.remarks))
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, "unicode") + "\n"


def _run_case(check: Check) -> ET.Element:
    case = _test_case("leakscope", program_of(check))
    if check.outcome is Outcome.INCONCLUSIVE:
        verdict = "skipped" if check.passes else "failure"
        element = ET.SubElement(case, verdict, message=one_line(check.headline))
        element.text = "\n".join(map(one_line, check.missing))
    return case


def _growth_case(growth: Checked) -> ET.Element:
    case = _test_case(f"leakscope.{growth.rule}", growth.name)
    place = location_of(growth)
    if place is not None and place.is_in_repository:
        case.set("file", one_line(place.file))
        case.set("line", str(place.line))
    if growth.standing is not CheckReason.FAILED:
        ET.SubElement(case, "skipped", message=one_line(why_of(growth)))
        return case
    failure = ET.SubElement(
        case,
        "failure",
        type=one_line(growth.rule),
        message=one_line(f"{rate_of(growth) or 'grows'}. {growth.why}"),
    )
    failure.text = "\n".join(map(one_line, [*account_of(growth), *growth.places]))
    return case


def _test_case(group: str, name: str) -> ET.Element:
    return ET.Element(
        "testcase", classname=one_line(group), name=clipped(name, _LONGEST_CASE_NAME), time="0"
    )


FORMS = ("text", "json", "sarif", "github", "markdown", "junit")


def render_check(
    check: Check,
    form: str,
    *,
    width: int = 100,
    color: bool = False,
    version: str = "",
    otherwise: str = "",
) -> str:
    """Return a check in one of :data:`FORMS`.

    For SARIF ``version`` is leakscope's own, and ``otherwise`` the file for what has no place.
    """
    renderers: dict[str, Callable[[Check], str]] = {
        "text": partial(render_check_text, width=width, color=color),
        "json": render_json,
        "sarif": partial(render_check_sarif, version=version, otherwise=otherwise),
        "github": render_check_github,
        "markdown": render_check_markdown,
        "junit": render_check_junit,
    }
    return renderers[form](check)
