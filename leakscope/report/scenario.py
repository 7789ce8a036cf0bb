"""The page and the text of what grows with every call of a scenario (``find_growth``, the pytest
plugin).
"""

from __future__ import annotations

from types import SimpleNamespace

from leakscope.model.documents import Growth, GrowthReport
from leakscope.model.text import human_bytes, human_count, one_line, plural
from leakscope.report.culprits import diff_lines, excerpt_view


def growth_page(report: GrowthReport) -> SimpleNamespace:
    """Return the page as plain values."""
    found = report.growths
    return SimpleNamespace(
        title=report.scenario,
        verdict="leak" if found else "clean",
        verdict_label="Leak" if found else "No leak",
        headline=headline(report),
        introduction=(
            f"Called {report.calls:,} times. Allowed: {human_bytes(report.allow_bytes)} per call."
        ),
        growths=[
            SimpleNamespace(
                growth=growth,
                rows=[*_facts(growth), *_further(growth)],
                excerpts=[excerpt_view(excerpt) for excerpt in growth.excerpts],
                diff=diff_lines(growth.diff),
            )
            for growth in found
        ],
        data={"charts": {}, "copies": {}},
        version=report.leakscope_version,
    )


def render_growth_text(report: GrowthReport) -> str:
    """Return what grows as lines for a terminal, the headline first."""
    lines = [headline(report), f"Seen over {report.calls:,} calls of {one_line(report.scenario)}."]
    for growth in report.growths:
        texts = [*_marked_lines(growth), *(f"{label}: {value}" for label, value in _facts(growth))]
        texts += [f"change: {growth.advice}"] if growth.advice else []
        lines += ["", f"  {one_line(growth.sentence)}", *(f"    {one_line(t)}" for t in texts)]
    return "\n".join(lines)


def headline(report: GrowthReport) -> str:
    """Return what grows fastest, and how much else does, in one line."""
    if not report.growths:
        return f"Nothing grows with the calls of {one_line(report.scenario)}"
    first, *others = report.growths
    more = f", and {plural(len(others), 'other')} too" if others else ""
    return f"{one_line(first.sentence)}{more}"


def _facts(growth: Growth) -> list[tuple[str, str]]:
    objects = human_count(growth.objects_per_call) if growth.objects_per_call else ""
    more = [("objects per call", objects), ("holds", ", ".join(growth.holds[:3]))]
    return [("path", growth.path), ("type", growth.type), *(fact for fact in more if fact[1])]


def _further(growth: Growth) -> list[tuple[str, str]]:
    facts = [("bytes per call", human_count(growth.bytes_per_call)), ("device", growth.device)]
    more = [("fed by", ", ".join(growth.feeding)), ("made at", growth.defined_at)]
    return [*facts, *(fact for fact in more if fact[1])]


def _marked_lines(growth: Growth) -> list[str]:
    """Return the source of the likeliest feeding line."""
    file, _, line = growth.fed_by.partition(" or ")[0].rpartition(":")
    number = int(line) if line.isdigit() else 0
    for excerpt in growth.excerpts:
        at = number - excerpt.first_line
        if file.endswith(excerpt.file) and 0 <= at < len(excerpt.lines):
            return [f"{number} | {excerpt.lines[at].strip()}"]
    return []
