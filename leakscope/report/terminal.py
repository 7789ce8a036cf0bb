"""Reports for the terminal: the answer in some thirty lines, with or without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from leakscope.model.comparison import Comparison, CulpritChange
from leakscope.model.cure import Cures, Effect
from leakscope.model.printable import clipped, one_line, printable
from leakscope.model.report import Culprit, Finding, Ledger, Report, Severity
from leakscope.model.shortage import Advice, OutOfMemory
from leakscope.model.sizes import plural
from leakscope.report import wording
from leakscope.report.device_words import device_line
from leakscope.report.sizes import (
    humane_bytes,
    humane_duration,
    humane_interval,
    humane_share,
)
from leakscope.report.sparkline import sparkline

SHOWN_CULPRITS = 3
SHOWN_DIFF_LINES = 8
SHOWN_TERMS = 5
SHOWN_CLEARED = 3
_STYLES = {
    "leak": "1;31", "critical": "1;31", "worse": "1;31", "new": "1;31", "removed": "31",
    "out_of_memory": "1;31",
    "warning": "1;33", "inconclusive": "1;33", "unchanged": "1;33", "reduced": "33",
    "clean": "1;32", "fixed": "1;32", "added": "32", "note": "2", "muted": "2", "name": "1",
}  # fmt: skip
_EFFECTS = {
    Effect.HELPS: ("✓", "clean"),
    Effect.LITTLE: ("✗", "muted"),
    Effect.USELESS: ("✗", "muted"),
    Effect.UNDECIDED: ("?", "inconclusive"),
}
_MARKS = {"leak": "✗", "out_of_memory": "✗", "clean": "✓", "inconclusive": "?"}


@dataclass(frozen=True)
class Paper:
    """How wide the terminal is and whether it shows colours."""

    width: int
    color: bool

    def paint(self, text: str, style: str) -> str:
        """Return text in the style's colour where there are colours."""
        code = _STYLES.get(style, "") if self.color else ""
        return f"\x1b[{code}m{text}\x1b[0m" if code else text

    def wrap(self, text: str, indent: str = "") -> list[str]:
        """Return running text broken to the width; no line is wider."""
        return textwrap.wrap(
            one_line(text), max(20, self.width), initial_indent=indent, subsequent_indent=indent
        )

    def clip(self, text: str, indent: str = "") -> str:
        """Return one line that fits, its middle left out where it is too long."""
        return indent + clipped(text, self.width - len(indent))


def render_text(report: Report, *, width: int = 100, color: bool = False) -> str:
    """Return the report for a terminal; without ``color`` it is plain text."""
    paper = Paper(width, color)
    lines = [*_verdict(report, paper), *_ending(report, paper), *_curve(report, paper)]
    lines += _shortage(report.out_of_memory, paper)
    lines += [""] if report.culprits else []
    for culprit in report.culprits[:SHOWN_CULPRITS]:
        lines += _culprit(culprit, paper)
    lines += _more(len(report.culprits), "culprit")
    lead = wording.lead_of(report)
    if lead is not None:
        lines += ["", *_remedy(lead, paper)]
    lines += _spaced([_finding(finding, paper) for finding in report.findings[:SHOWN_CULPRITS]])
    lines += _spaced([line for ledger in report.ledgers[:2] for line in _ledger(ledger, paper)])
    lines += _spaced(_cures(report.cures, paper))
    lines += _spaced(paper.wrap(report.odd_rank.sentence) if report.odd_rank else [])
    devices = [line for device in report.devices for line in paper.wrap(device_line(device))]
    lines += _spaced(devices)
    lines += _spaced(_cleared(report, paper))
    settle = [line for text in report.missing for line in paper.wrap(f"to settle it: {text}")]
    lines += _spaced(settle)
    lines += _spaced([*_cost(report, paper), *_problems(report, paper)])
    return "\n".join(lines) + "\n"


def render_summary(
    report: Report, *, report_path: str, run_path: str = "", width: int = 80, color: bool = False
) -> str:
    """Return the few lines after a run: verdict, top culprits, where the report is, what next.

    Without a ``report_path`` there is none.
    """
    paper = Paper(width, color)
    lines = [*_verdict(report, paper), *_ending(report, paper)]
    lines += _first_way(report.out_of_memory, paper)
    for culprit in report.culprits[:SHOWN_CULPRITS]:
        lines += _short(culprit, paper)
    lines += _more(len(report.culprits), "culprit")
    serious = [f for f in report.findings if f.severity is not Severity.NOTE]
    told = serious if report.culprits else report.findings
    lines += [_finding(finding, paper) for finding in told[:SHOWN_CULPRITS]]
    for text in report.missing[:2]:
        lines += paper.wrap(f"to settle it: {text}", "  ")
    lines += _problems(report, paper)
    if report_path:
        lines.append(f"  report   {one_line(report_path)}")
    lines.append(f"  next     {_next_command(report, one_line(run_path))}")
    return "\n".join(lines) + "\n"


def render_comparison_text(comparison: Comparison, *, width: int = 100, color: bool = False) -> str:
    """Return two runs side by side for a terminal."""
    paper = Paper(width, color)
    verdict, word = wording.outcome_of(comparison)
    lines = paper.wrap(f"{_MARKS[verdict]} {word} · {comparison.headline}")
    lines[0] = paper.paint(lines[0], verdict)
    lines += _spaced(
        [paper.clip(f"! not the same work: {text}") for text in comparison.work_differences]
    )
    lines += _spaced([line for change in comparison.culprits for line in _change(change, paper)])
    rows = [
        ("growth", comparison.growth),
        ("peak", comparison.peaks),
        ("component", comparison.components),
    ]
    for title, values in rows:
        if values:
            lines += ["", _row(title, "before", "after")]
        for value in values:
            unit = f" per {value.unit}" if value.unit else ""
            lines.append(
                _row(
                    value.name + (f" on {value.device}" if value.device != "host" else "") + unit,
                    humane_bytes(value.before_bytes),
                    humane_bytes(value.after_bytes),
                )
            )
    return "\n".join(lines) + "\n"


def _verdict(report: Report, paper: Paper) -> list[str]:
    verdict = report.verdict.value
    label = f"{_MARKS[verdict]} {wording.VERDICTS[report.verdict]}"
    lines = paper.wrap(f"{label} · {report.headline}")
    return [lines[0].replace(label, paper.paint(label, verdict), 1), *lines[1:]]


def _curve(report: Report, paper: Paper) -> list[str]:
    lines = report.timeline.lines if report.timeline else []
    if not lines or not lines[0].points:
        return []
    values = [y for _, y in lines[0].points]
    ends = f"{humane_bytes(values[0])} → {humane_bytes(values[-1])}"
    peak = f"peak {humane_bytes(max(values))}"
    room = max(10, min(60, paper.width - len(ends) - len(peak) - 22))
    label = clipped(lines[0].label, 16)
    return [paper.clip(f"{label} {sparkline(values, room)} {ends}, {peak}")]


def _shortage(ended: OutOfMemory | None, paper: Paper) -> list[str]:
    if ended is None:
        return []
    lines = ["", *paper.wrap(ended.evidence)]
    for title, rows in (("held by", ended.names), ("live as", ended.components)):
        told = [f"{row.name} {humane_bytes(row.bytes)}" for row in rows[:SHOWN_TERMS]]
        lines += paper.wrap(f"{title}: {', '.join(told)}") if told else []
    if ended.fits_if:
        lines += ["what would have made it fit:", *advice_lines(ended.fits_if, paper)]
    return lines


def _ending(report: Report, paper: Paper) -> list[str]:
    """Return that the run was killed, unless that is told as a shortage of memory."""
    was_killed = report.run.ended.startswith("killed") and report.out_of_memory is None
    return paper.wrap(f"The run was {report.run.ended}.", "  ") if was_killed else []


def _first_way(ended: OutOfMemory | None, paper: Paper) -> list[str]:
    if ended is None or not ended.fits_if:
        return []
    way = ended.fits_if[0]
    enough = "" if way.helps else " (not enough by itself)"
    return [paper.clip(f"to make it fit: {way.title}{enough}", "  ")]


def advice_lines(advice: Sequence[Advice], paper: Paper) -> list[str]:
    """Return what to change, each with whether it would have helped and how that is known."""
    lines = []
    for item in advice:
        mark = paper.paint("✓" if item.helps else "✗", "clean" if item.helps else "muted")
        said = "" if item.helps else " (would not help)"
        lines += [f"  {mark} {clipped(item.title + said, paper.width - 4)}"]
        lines += paper.wrap(item.evidence, "      ")
    return lines


def _culprit(culprit: Culprit, paper: Paper) -> list[str]:
    severity = culprit.severity.value
    name = paper.paint(clipped(culprit.name, paper.width - 16), "name")
    device = f" on {culprit.device}" if culprit.device != "host" else ""
    rate = wording.rate_words(culprit)
    lines = [
        f"{culprit.rank}. {name}  {paper.paint(severity, severity)}",
        paper.clip(
            f"{rate}{device}, 95 % interval {humane_interval(culprit.interval)}; "
            f"{wording.share_words(culprit.share, culprit.growth)}",
            "   ",
        ),
        paper.clip(_course(culprit, paper), "   "),
    ]
    place = wording.place_of(culprit)
    lines += [paper.clip(f"fed at {place}", "   ")] if place else []
    lines += _known(culprit, paper, "   ")
    return lines + ([paper.clip(culprit.forecast.text, "   ")] if culprit.forecast else [])


def _course(culprit: Culprit, paper: Paper) -> str:
    points = [point.y for point in culprit.chart]
    curve = f"{sparkline(points, min(30, paper.width // 3))} " if len(points) > 1 else ""
    grows = wording.GROWTHS.get(culprit.growth, culprit.growth).lower()
    return f"{curve}{humane_bytes(culprit.total_bytes)} at most, grows {grows}"


def _remedy(suspect: Culprit | Finding, paper: Paper) -> list[str]:
    remedy = suspect.remedy
    lines = [paper.clip(f"→ {remedy.title}"), *paper.wrap(remedy.text, "  ")]
    diff = printable(remedy.diff or "").splitlines()
    body = [line for line in diff if not line.startswith(("---", "+++", "@@"))]
    for line in body[:SHOWN_DIFF_LINES]:
        kind = {"+": "added", "-": "removed"}.get(line[:1], "muted")
        lines.append("    " + paper.paint(clipped(line.expandtabs(4), paper.width - 4), kind))
    return [*lines, *(["    …"] if len(body) > SHOWN_DIFF_LINES else [])]


def _finding(finding: Finding, paper: Paper) -> str:
    severity = finding.severity.value
    return f"{paper.paint(f'{severity}:', severity)} " + clipped(
        finding.title, paper.width - len(severity) - 2
    )


def _ledger(ledger: Ledger, paper: Paper) -> list[str]:
    largest = sorted(ledger.entries, key=lambda entry: -abs(entry.bytes))[:SHOWN_TERMS]
    terms = [f"{entry.label} {humane_bytes(entry.bytes, signed=True)}" for entry in largest]
    name = wording.metric_words(ledger.metric)
    total = humane_bytes(ledger.total_bytes, signed=True)
    return paper.wrap(f"{name} {total}: {', '.join(terms) or 'nothing'}")


def _cures(cures: Cures | None, paper: Paper) -> list[str]:
    if cures is None:
        return []
    lines = paper.wrap(cures.sentence)
    for cure in cures.cures:
        mark, style = _EFFECTS[cure.effect]
        first, *rest = paper.wrap(cure.sentence, "    ")
        lines += [f"  {paper.paint(mark, style)} {first.lstrip()}", *rest]
    return [*lines, *(line for text in cures.remarks for line in paper.wrap(text, "    "))]


def _cleared(report: Report, paper: Paper) -> list[str]:
    shown = report.cleared[:SHOWN_CLEARED]
    lines = [paper.clip(f"✓ {cleared.name}: {cleared.reason}") for cleared in shown]
    return [*lines, *_more(len(report.cleared), "cleared item")]


def _cost(report: Report, paper: Paper) -> list[str]:
    overhead = report.overhead
    share = humane_share(overhead.wall_share) if overhead.wall_share else "no measurable part"
    if overhead.budget is not None and overhead.wall_share > overhead.budget:
        share += f" (budget {humane_share(overhead.budget)})"
    cost = paper.clip(
        f"leakscope took {share} of the time and {humane_bytes(overhead.peak_bytes)}; "
        f"{plural(overhead.censuses, 'census')}, longest pause "
        f"{humane_duration(overhead.longest_pause_s)}"
    )
    if overhead.walker != "reference":
        return [cost]
    return [cost, paper.clip("walker: reference, the slower one: nothing was compiled at install")]


def _problems(report: Report, paper: Paper) -> list[str]:
    told = dict.fromkeys(f"! {problem.where}: {problem.message}" for problem in report.errors)
    return [line for text in list(told)[:2] for line in paper.wrap(text)]


def _short(culprit: Culprit, paper: Paper) -> list[str]:
    rate = wording.rate_words(culprit)
    share = humane_share(culprit.share)
    place = wording.place_of(culprit)
    head = f"  {culprit.rank}. "
    name = clipped(culprit.name, max(16, paper.width - len(head) - len(rate) - len(share) - 6))
    lines = [f"{head}{paper.paint(name, culprit.severity.value)}  {rate}  {share}"]
    lines += [paper.clip(place, "     ")] if place else []
    return lines + _known(culprit, paper, "     ")


def _known(culprit: Culprit, paper: Paper, indent: str) -> list[str]:
    """Return what is known of it; the address stands alone, to be clicked or copied whole."""
    known = culprit.known
    if known is None:
        return []
    return [
        paper.clip(f"{wording.known_words(known)}: {known.title}", indent),
        f"{indent}{one_line(known.link)}",
    ]


def _next_command(report: Report, run_path: str) -> str:
    if not run_path:
        return "leakscope report RUN --format text"
    if wording.lead_of(report) is not None:
        return f"change it, run again, then: leakscope compare {run_path} NEW-RUN"
    return f"leakscope report {run_path} --format text"


def _change(change: CulpritChange, paper: Paper) -> list[str]:
    name = clipped(change.name, paper.width - 14)
    label = f"{wording.CHANGES[change.change].lower():<10}"
    before, after = _rate(change.before_bytes_per_unit), _rate(change.after_bytes_per_unit)
    certain = "" if change.significant else ", within the noise"
    return [
        f"{paper.paint(label, change.change.value)} {name}",
        paper.clip(f"{before} → {after} per {change.unit}{certain}", " " * 11),
    ]


def _rate(bytes_per_unit: float | None) -> str:
    return "none" if bytes_per_unit is None else humane_bytes(bytes_per_unit)


def _row(name: str, before: str, after: str) -> str:
    return f"{clipped(name, 44):<46}{before:>12}{after:>14}"


def _more(count: int, noun: str) -> list[str]:
    shown = SHOWN_CULPRITS
    return [f"   and {plural(count - shown, f'more {noun}')}"] if count > shown else []


def _spaced(lines: list[str]) -> list[str]:
    return ["", *lines] if lines else []
