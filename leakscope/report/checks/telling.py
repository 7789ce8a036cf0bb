"""What every form of a check tells of one thing that grows."""

from __future__ import annotations

from pathlib import PurePosixPath

from leakscope.model.check import Check, Checked
from leakscope.model.printable import one_line
from leakscope.report.sizes import humane_rate
from leakscope.report.wording import known_line


def rate_of(one: Checked) -> str:
    """Return ``412 MiB per validation``; empty where nothing was measured per unit of work."""
    return humane_rate(one.bytes_per_unit, one.unit) if one.bytes_per_unit > 0 else ""


def why_of(one: Checked) -> str:
    """Return why it fails or doesn't, with the reason that people gave."""
    return f"{one.why} {one.excuse}".strip()


def account_of(one: Checked) -> list[str]:
    """Return what grows, why it fails or doesn't, and what to change: a line each."""
    title = [] if one.path else [f"{one.name}."]
    told = (*title, one.sentence, known_of(one), why_of(one), one.remedy)
    return [text for text in told if text]


def known_of(one: Checked) -> str:
    """Return what is known of it, with the address where that is said; empty if nothing is."""
    return known_line(one.recognised) if one.recognised else ""


def log_line(text: str) -> str:
    """Return text as one line that no runner of CI takes for a command, whatever is in it."""
    line = one_line(text).replace("##[", "## [").replace("##vso", "## vso")
    return f"· {line}" if line.lstrip().startswith("::") else line


def program_of(check: Check) -> str:
    """Return the name of the program that was checked."""
    return PurePosixPath(check.run.script).name or "run"
