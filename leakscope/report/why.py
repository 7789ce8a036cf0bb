"""How a verdict came about: the decisions of a report, as a chain for one name or as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leakscope.model.printable import clipped
from leakscope.model.report import Decision, Report
from leakscope.model.sizes import human_bytes, human_count

_SUBJECTS = {
    "elsewhere": "new objects held by libraries and native code",
    "named": "all that has a name and does not grow by itself",
    "unexplained": "private memory that nothing explains",
    "slack": "free memory in the C heap",
    "garbage": "garbage awaiting the collector",
    "pinned": "page-locked memory",
}
_IN_BYTES = frozenset({"growth", "floor", "declares_a_bound", "follows_the_model", "new_shapes"})
LONGEST = 70


@dataclass(frozen=True)
class DecisionRow:
    """One decision, in words."""

    subject: str
    path: str
    rule: str
    figure: str
    outcome: str


def decision_rows(decisions: Sequence[Decision]) -> list[DecisionRow]:
    """Return decisions in words, in the order in which they were made."""
    return [
        DecisionRow(_subject(d), d.path, d.rule.replace("_", " "), _figure(d), d.outcome)
        for d in decisions
    ]


def render_why(report: Report, name: str) -> str:
    """Return the chain of decisions about all whose name or path has ``name`` in it."""
    wanted = name.casefold()
    found = [
        d
        for d in report.decisions
        if wanted in d.subject.casefold() or wanted in d.path.casefold() or wanted in _subject(d)
    ]
    if not found:
        known = dict.fromkeys(_subject(d) for d in report.decisions)
        some = ", ".join(clipped(one, LONGEST) for one in [*known][:8])
        return f"Nothing was decided about {name!r}." + (f" Known are {some}, …" if some else "")
    lines: list[str] = []
    before = ""
    for decision, row in zip(found, decision_rows(found), strict=True):
        about = decision.path or row.subject
        if about != before:
            path = f"  ({decision.path})" if decision.path not in {"", row.subject} else ""
            lines += ["", f"{clipped(row.subject, LONGEST)}{path}"]
            before = about
        figure = f" [{row.figure}]" if row.figure else ""
        lines.append(f"  {row.rule}: {row.outcome}{figure}")
    return "\n".join([*lines[1:], "", f"Verdict: {report.headline}"])


def _subject(decision: Decision) -> str:
    return _SUBJECTS.get(decision.subject, decision.subject)


def _figure(decision: Decision) -> str:
    """Return ``3.1 MiB, threshold 4 KiB``."""
    if decision.figure is None:
        return ""
    say = human_bytes if decision.rule in _IN_BYTES else human_count
    if decision.threshold is None:
        return say(decision.figure)
    return f"{say(decision.figure)}, threshold {say(decision.threshold)}"
