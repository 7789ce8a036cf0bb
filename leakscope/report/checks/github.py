"""A check as annotations of GitHub's: one workflow command per line on stdout."""

from __future__ import annotations

from leakscope.model.check import Check, Checked, Outcome, Standing
from leakscope.model.printable import clipped, one_line
from leakscope.model.report import Severity
from leakscope.report.checks.places import Place, place_of
from leakscope.report.checks.telling import account_of

_EXCUSED = frozenset({Standing.KNOWN, Standing.SUPPRESSED})
_LONGEST_TITLE = 120


def render_check_github(check: Check) -> str:
    """Return a command for each thing that fails or is excused, and for each remark."""
    lines = [_growth(one, "error") for one in check.growths if one.standing is Standing.FAILED]
    lines += [_growth(one, "notice") for one in check.growths if one.standing in _EXCUSED]
    for known in check.gone:
        text = f"{clipped(known.name, _LONGEST_TITLE)} no longer needs its entry in the baseline."
        lines.append(_command("notice", "leakscope: baseline", text))
    lines += [_command("warning", "leakscope: configuration", remark) for remark in check.remarks]
    if check.outcome is Outcome.INCONCLUSIVE:
        level = "warning" if check.passes else "error"
        lines.append(_command(level, "leakscope: inconclusive", check.headline, *check.missing))
    return "".join(f"{line}\n" for line in lines)


def _growth(one: Checked, level: str) -> str:
    if level == "error" and one.severity is Severity.NOTE:
        level = "warning"
    title = f"leakscope: {clipped(one.name, _LONGEST_TITLE)}"
    return _command(level, title, *account_of(one), place=place_of(one))


def _command(level: str, title: str, *lines: str, place: Place | None = None) -> str:
    properties = {"file": place.file, "line": str(place.line)} if place and place.file else {}
    properties["title"] = title
    told = ",".join(f"{name}={_property(value)}" for name, value in properties.items() if value)
    text = "\n".join(one_line(line) for line in lines if line)
    return f"::{level} {told}::{_data(text)}"


def _data(text: str) -> str:
    """What follows the second ``::``: a line break would begin another command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """A value before it, which a colon or a comma would end."""
    return _data(one_line(text)).replace(":", "%3A").replace(",", "%2C")
