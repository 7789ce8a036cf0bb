"""A run's report for the terminal: the answer in thirty lines; and what ``leakscope doctor``
found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from leakscope.model.device import Advice, OutOfMemory
from leakscope.model.documents import Health, Item, State
from leakscope.model.known import Recognised
from leakscope.model.layout import Paper, paper_of, spaced
from leakscope.model.report import (
    Culprit,
    Cures,
    Effect,
    Finding,
    PeakMemory,
    Point,
    ProcessMemory,
    Report,
    Severity,
)
from leakscope.model.text import clipped, one_line, plural, printable
from leakscope.report import words as wording
from leakscope.report.explaining import next_steps
from leakscope.report.measuring import budget_words, is_mostly_postponed, postponed_words
from leakscope.report.processes import process_course, process_verdict
from leakscope.report.tables import ledger_words, peak_moment
from leakscope.report.text import (
    curve_with_ends,
    humane_bytes,
    humane_duration,
    humane_interval,
    humane_share,
    sparkline,
)
from leakscope.report.words import rate_together

LINES = 30
"""A report has so many, where there is nothing out of the ordinary."""
MOST_OTHERS = 4
MOST_PROCESSES = 5
SHOWN_IN_SUMMARY = 3
SHOWN_FINDINGS = 3
SHOWN_DIFF_LINES = 6
FEWEST_DIFF_LINES = 3
SHOWN_TEXT_LINES = 3
SHOWN_TERMS = 5
SHOWN_LEDGER_TERMS = 3
SHOWN_MAPPING_BYTES = 1 << 20
SHOWN_PEAK_SITES = 3
SHOWN_CLEARED = 3
SHOWN_PROBLEMS = 2
_EFFECTS = {
    Effect.HELPS: ("✓", "clean"),
    Effect.LITTLE: ("✗", "muted"),
    Effect.USELESS: ("✗", "muted"),
    Effect.UNDECIDED: ("?", "inconclusive"),
}
_SHORTEST_NAME = 16
_AMOUNTS = 34
"""Columns of what stands behind a curve of memory."""
_SHORT_CURVE = 8
"""Columns of the curve of a culprit that takes two lines."""


def render_text(report: Report, *, width: int = 100, color: bool = False) -> str:
    """Return the report for a terminal; without ``color`` it is plain text.

    As many further culprits are shown as fit into :data:`LINES` lines; the room that they leave is
    for how sure the first one is. Where there is none, less is shown of what to change.
    """
    paper = paper_of(width, color)
    suspect = wording.leading_suspect(report)
    head = [*_verdict(report, paper), *_curve(report, paper)]
    head += [*_processes(report, paper), *_shortage(report.out_of_memory, paper)]
    leading, remedy = _leading(report, suspect, paper), _remedy(suspect, paper)
    foot = _foot(report, suspect, paper)
    room = LINES - len([*head, *spaced([*leading, *remedy]), *foot])
    others = _others(report, [c for c in report.culprits if c is not suspect], paper, room)
    room -= len(others)
    if room < 0:
        remedy = _remedy(suspect, paper, max(FEWEST_DIFF_LINES, SHOWN_DIFF_LINES + room - 1))
    answer = [*leading, *_doubt(suspect, paper, room), *remedy]
    return "\n".join([*head, *spaced(answer), *others, *foot]) + "\n"


def _others(report: Report, culprits: Sequence[Culprit], paper: Paper, room: int) -> list[str]:
    """Return the further culprits that there is room for, at least one, and how many are left."""
    noted = _noted(report, paper)
    room -= len(noted) + 2
    parts, shown = [*noted], 0
    for culprit in culprits[:MOST_OTHERS]:
        lines = _short(culprit, paper)
        if len(lines) > room:
            lines = _short(culprit, paper, has_room=False)
        room -= len(lines)
        if shown and room < 0:
            break
        parts, shown = [*parts, *lines], shown + 1
    return spaced([*parts, *_more(report, culprits[shown:])])


def _foot(report: Report, suspect: Culprit | Finding | None, paper: Paper) -> list[str]:
    """Return what stands below the culprits."""
    foot = spaced([*_findings(report, suspect, paper), *_whereto(report, paper)])
    foot += spaced(_cures(report.cures, paper))
    settling = [f"to settle it: {text}" for text in wording.further_evidence(report)]
    settle = [line for text in settling for line in paper.wrap(text)]
    foot += spaced([*_cleared(report, suspect, paper), *settle])
    return [*foot, *_cost(report, paper), *_problems(report, paper)]


def render_summary(
    report: Report, *, report_path: str, run_path: str = "", width: int = 80, color: bool = False
) -> str:
    """Return the few lines after a run: verdict, top culprits, where the report is, what next.

    Without a ``report_path`` there is none.
    """
    paper = paper_of(width, color)
    suspect = wording.leading_suspect(report)
    lines = _verdict(report, paper)
    if report.out_of_memory is not None and report.out_of_memory.fits_if:
        way = report.out_of_memory.fits_if[0]
        enough = "" if way.helps else " (not enough by itself)"
        lines.append(paper.clip(f"to make it fit: {way.title}{enough}", "  "))
    lines += _processes(report, paper, "  ")
    lines += _noted(report, paper, "  ")
    for culprit in report.culprits[:SHOWN_IN_SUMMARY]:
        lines += _short(culprit, paper, "  ")
        lines += _what_next(culprit, paper, "     ") if culprit is suspect else []
    lines += _more(report, report.culprits[SHOWN_IN_SUMMARY:], "  ")
    serious = [f for f in report.findings if f.severity is not Severity.NOTE]
    for finding in (serious if report.culprits else report.findings)[:SHOWN_FINDINGS]:
        lines.append(_finding(finding, paper))
        lines += _what_next(finding, paper, "  ") if finding is suspect else []
    for text in wording.further_evidence(report)[:2]:
        lines += paper.wrap(f"to settle it: {text}", "  ")
    lines += _problems(report, paper)
    if report.overhead.walker == "reference":
        lines += paper.wrap(f"walker   {wording.SLOWER_WALKER}", "  ")
    if report_path:
        lines.append(f"  report   {one_line(report_path)}")
    step = next_steps(report, run_path)[0]
    lines.append(f"  next     {one_line(step.aim)}: {one_line(step.command)}")
    return "\n".join(lines) + "\n"


def advice_lines(advice: Sequence[Advice], paper: Paper) -> list[str]:
    """Return what to change, each with whether it would have helped and how that is known."""
    lines = []
    for item in advice:
        mark = paper.paint("✓" if item.helps else "✗", "clean" if item.helps else "muted")
        text = "" if item.helps else " (would not help)"
        lines += [f"  {mark} {clipped(item.title + text, paper.width - 4)}"]
        lines += paper.wrap(item.evidence, "      ")
    return lines


def _verdict(report: Report, paper: Paper) -> list[str]:
    """Return the verdict, and how the program ended if not by itself."""
    verdict = report.verdict.value
    name = wording.verdict_words(report.verdict, ran_out=report.out_of_memory is not None)
    lines = paper.titled(f"{wording.MARKS[verdict]} {name}", verdict, report.headline)
    ended = wording.ending_words(report)
    return [*lines, *(paper.wrap(ended, "  ") if ended else [])]


def _curve(report: Report, paper: Paper) -> list[str]:
    lines = report.timeline.lines if report.timeline else []
    if not lines or not lines[0].points:
        return []
    values = [y for _, y in lines[0].points]
    process = report.process if report.rank is None else f"rank {report.rank}"
    label = clipped(lines[0].label, 16) + (f", {process}" if process else "")
    room = max(10, min(60, paper.width - _AMOUNTS - max(22, len(label) + 6)))
    return [paper.clip(f"{label} {curve_with_ends(values, room)}")]


def _processes(report: Report, paper: Paper, indent: str = "") -> list[str]:
    """Return a line for each process, those that decide first where they are many."""
    shown = report.processes
    if len(shown) > MOST_PROCESSES:
        order = sorted(shown, key=lambda p: (p.verdict != "leak", -(p.peak_bytes or 0)))
        chosen = {id(process) for process in order[: MOST_PROCESSES - 1]}
        shown = [process for process in shown if id(process) in chosen]
    room = paper.width - len(indent)
    lines = [paper.clip(_process(process, room), indent) for process in shown]
    left = len(report.processes) - len(shown)
    return [*lines, *([f"{indent}and {plural(left, 'more process')}"] if left else [])]


def _process(process: ProcessMemory, room: int) -> str:
    """Return a process in a line of so much room: what runs in it is cut short first."""
    course = f" {process_course(process, _SHORT_CURVE)}".rstrip()
    verdict = f" {process_verdict(process)}" if process.is_recorded else ""
    grows = f": {one_line(', '.join(process.grows))}" if process.grows else ""
    peak = f", peak {humane_bytes(process.peak_bytes)}" if process.peak_bytes is not None else ""
    left = room - len(f"{process.label} (){course}{verdict}{grows}{peak}")
    if left < _SHORTEST_NAME:
        peak, left = "", left + len(peak)
    what = one_line(process.runs or process.name)
    number = f", {process.pid}"
    if not process.pid or left - len(what) <= len(number):
        number = ""
    fits = what and left >= _SHORTEST_NAME and process.is_recorded
    which = f" ({clipped(what, left - len(number) - 1)}{number})" if fits else ""
    return f"{process.label}{which}{course}{verdict}{grows}{peak}"


def _shortage(ended: OutOfMemory | None, paper: Paper) -> list[str]:
    if ended is None:
        return []
    lines = ["", *paper.wrap(ended.evidence)]
    for title, rows in (("held by", ended.names), ("live as", ended.components)):
        parts = [f"{row.name} {humane_bytes(row.bytes)}" for row in rows[:SHOWN_TERMS]]
        lines += paper.wrap(f"{title}: {', '.join(parts)}") if parts else []
    if ended.fits_if:
        lines += ["what would have made it fit:", *advice_lines(ended.fits_if, paper)]
    return lines


def _leading(report: Report, suspect: Culprit | Finding | None, paper: Paper) -> list[str]:
    """Return what makes the run a leak: how fast, where, until when, and how sure that is."""
    if suspect is None:
        return []
    place = wording.source_place(suspect)
    if isinstance(suspect, Finding):
        return [
            _finding(suspect, paper),
            *paper.wrap(suspect.text, "   ", SHOWN_TEXT_LINES),
            *([paper.clip(f"at {place}", "   ")] if place else []),
            *known_lines(suspect.known, paper, "   "),
        ]
    severity = suspect.severity.value
    name = paper.paint(clipped(suspect.name, paper.width - 16), "name")
    rate = wording.whole_rate_words(suspect) + wording.on_device(suspect.device)
    share = wording.share_words(suspect.share, suspect.growth)
    grows = wording.GROWTHS.get(suspect.growth, suspect.growth).lower()
    course = _course(suspect, min(30, paper.width // 3))
    most = humane_bytes(suspect.total_bytes)
    texts = [
        f"{rate}, 95 % interval {humane_interval(suspect.interval)}; {share}",
        f"{course}{most} at most when looked at, grows {grows}",
    ]
    if native := suspect.native:
        size = humane_bytes(native.gained_bytes)
        at = f"{native.library} at {native.allocated_at}"
        texts.append(f"items keep {size} of native memory: {at}")
    if place:
        texts.append(f"{_fed(suspect)}{place}")
    lines = [f"{suspect.rank}. {name}  {paper.paint(severity, severity)}"]
    lines += [paper.clip(text, "   ") for text in texts]
    lines += known_lines(suspect.known, paper, "   ")
    if forecast := suspect.forecast:
        wait = wording.wait_words(forecast, report.work)
        whole = f"{forecast.text}, {wait}" if wait else forecast.text
        lines.append(paper.clip(whole if len(whole) <= paper.width - 3 else forecast.text, "   "))
    return lines


def _doubt(suspect: Culprit | Finding | None, paper: Paper, room: int) -> list[str]:
    """Return how sure it is, what would prove it wrong and what came of that, as far as it fits."""
    if suspect is None:
        return []
    parts = [wording.evidence(suspect)]
    if suspect.falsifier is not None:
        parts[0] += f"; falsifier: {suspect.falsifier.text}"
        parts.append(f"tried: {wording.tried_words(suspect.falsifier)}")
    whole = [line for text in parts for line in paper.wrap(text, "   ")]
    short = [line for text in parts for line in paper.wrap(text, "   ", 1)]
    return whole if len(whole) <= room else short[: max(0, room)]


def _even(points: Sequence[Point], width: int) -> list[float]:
    """Return the highest value in each of at most ``width`` equal stretches of the work; all values
    where no work lies between them.

    Looks lie close at first and ever further apart: by looks, even growth would seem to speed up.
    """
    if len(points) < 2 or points[-1].x <= points[0].x:
        return [point.y for point in points]
    columns = min(width, len(points))
    begin, span = points[0].x, points[-1].x - points[0].x
    edges = [begin + span * column / columns for column in range(columns)] + [points[-1].x]
    highest = [-math.inf] * columns
    for before, after in pairwise(points):
        steepness = (after.y - before.y) / (after.x - before.x) if after.x > before.x else 0.0
        for column, (left, right) in enumerate(pairwise(edges)):
            since, until = max(before.x, left), min(after.x, right)
            if since <= until:
                ends = (before.y + steepness * (x - before.x) for x in (since, until))
                highest[column] = max(highest[column], *ends)
    return highest


def _course(culprit: Culprit, width: int) -> str:
    """Return a culprit's curve and a blank; nothing where it has no two points."""
    points = _even(culprit.chart, width)
    return f"{sparkline(points, width)} " if len(points) > 1 else ""


def _remedy(
    suspect: Culprit | Finding | None, paper: Paper, most: int = SHOWN_DIFF_LINES
) -> list[str]:
    """Return what to change: the first lines of the diff that change, else the remedy in words."""
    if suspect is None or not suspect.remedy.title:
        return []
    remedy = suspect.remedy
    diff = (line for line in printable(remedy.diff or "").splitlines() if line[1:].strip())
    changed = [line for line in diff if line[0] in "+-" and line[:3] not in ("---", "+++")]
    lines = [paper.clip(f"→ {remedy.title}")]
    if not changed:
        return [*lines, *paper.wrap(wording.advice_of(remedy), "  ", SHOWN_TEXT_LINES)]
    for line in changed[:most]:
        kind = {"+": "added", "-": "removed"}[line[:1]]
        lines.append("    " + paper.paint(clipped(line.expandtabs(4), paper.width - 4), kind))
    return [*lines, *(["    …"] if len(changed) > most else [])]


def _what_next(suspect: Culprit | Finding, paper: Paper, indent: str) -> list[str]:
    """Return when memory runs out, where that is near, and what to change, in a line each."""
    forecast = suspect.forecast if isinstance(suspect, Culprit) else None
    is_near = forecast is not None and suspect.severity is Severity.CRITICAL
    texts = [forecast.text] if forecast and is_near else []
    texts += [f"→ {suspect.remedy.title}"] if suspect.remedy.title else []
    return [paper.clip(text, indent) for text in texts if text]


def _noted(report: Report, paper: Paper, indent: str = "") -> list[str]:
    """Return what stands above culprits where none is accused: that they are mere notes."""
    is_accused = any(culprit.severity is not Severity.NOTE for culprit in report.culprits)
    return paper.wrap(wording.NOTED, indent) if report.culprits and not is_accused else []


def _short(culprit: Culprit, paper: Paper, indent: str = "", *, has_room: bool = True) -> list[str]:
    """Return a culprit in two lines: name and rate, then its course, its share and its line."""
    rate = wording.whole_rate_words(culprit) + wording.on_device(culprit.device)
    rate += " (note)" if culprit.severity is Severity.NOTE else ""
    head = f"{indent}{culprit.rank}. "
    inner = " " * len(head)
    share = wording.share_words(culprit.share, culprit.growth)
    share = f"{_course(culprit, _SHORT_CURVE)}{share}"
    place = wording.source_place(culprit)
    whole = f"{share}, {_fed(culprit)}{one_line(place)}" if place else share
    fits = len(inner) + len(whole) <= paper.width
    parts = [paper.clip(whole if fits else share, inner)]
    parts += [] if fits or not place else [paper.clip(f"{_fed(culprit)}{place}", inner)]
    room = paper.width - len(head) - len(rate) - 2
    if room < _SHORTEST_NAME:
        parts, rate, room = [paper.clip(rate, inner), *parts], "", paper.width - len(head)
    name = paper.paint(clipped(culprit.name, room), culprit.severity.value)
    first = f"{head}{name}  {rate}".rstrip()
    return [first, *parts, *known_lines(culprit.known, paper, inner, has_room=has_room)]


def _fed(culprit: Culprit) -> str:
    return "fed at " if culprit.fed_at else "at "


def _findings(report: Report, suspect: Culprit | Finding | None, paper: Paper) -> list[str]:
    others = [finding for finding in report.findings if finding is not suspect]
    lines: list[str] = []
    for finding in others[:SHOWN_FINDINGS]:
        lines += [_finding(finding, paper), *known_lines(finding.known, paper, "  ")]
        if suspect is None and finding is others[0]:  # nothing else needs details
            lines += paper.wrap(finding.text, "  ", SHOWN_TEXT_LINES)
            lines += _what_next(finding, paper, "  ")
    left = len(others) - SHOWN_FINDINGS
    return [*lines, *([f"and {plural(left, 'more finding')}: see report.html"] if left > 0 else [])]


def _finding(finding: Finding, paper: Paper) -> str:
    severity = finding.severity.value
    title = clipped(finding.title, paper.width - len(severity) - 2)
    return f"{paper.paint(f'{severity}:', severity)} {title}"


def _whereto(report: Report, paper: Paper) -> list[str]:
    """Return where memory went: the ledgers, the rank that differs, the devices."""
    grown = [m for m in report.mappings if not m.file and m.bytes >= SHOWN_MAPPING_BYTES]
    mappings = ", ".join(
        f"{term.label} {humane_bytes(term.bytes, signed=True)}"
        for term in grown[:SHOWN_LEDGER_TERMS]
    )
    texts = [
        *(ledger_words(ledger, SHOWN_LEDGER_TERMS) for ledger in report.ledgers[:2]),
        f"by kind of mapping: {mappings}" if mappings else "",
        _peak(report.peak) if report.peak is not None else "",
        report.odd_rank.sentence if report.odd_rank else "",
        *map(wording.device_line, report.devices),
    ]
    return [line for text in texts for line in paper.wrap(text)]


def _peak(peak: PeakMemory) -> str:
    """Return what was live when the process was largest, by the line that had it allocated."""
    shown = [site for site in peak.sites if site.owner != "leakscope"][:SHOWN_PEAK_SITES]
    listed = [
        f"{s.location or s.library} {humane_bytes(s.bytes)} ({wording.bookkeeper_words(s)})"
        for s in shown
    ]
    if own := peak.by_owner.get("leakscope", 0):
        listed.append(f"leakscope itself {humane_bytes(own)}")
    size, moment = humane_bytes(peak.private_bytes), peak_moment(peak)
    whole = f"at its largest ({size} of its own, {moment}), sampled: {', '.join(listed)}"
    return whole if listed else ""


def _cures(cures: Cures | None, paper: Paper) -> list[str]:
    if cures is None:
        return []
    lines = paper.wrap(cures.sentence)
    for cure in cures.cures:
        mark, style = _EFFECTS[cure.effect]
        first, *rest = paper.wrap(cure.sentence, "    ")
        lines += [f"  {paper.paint(mark, style)} {first.lstrip()}", *rest]
    return [*lines, *(line for text in cures.remarks for line in paper.wrap(text, "    "))]


def _cleared(report: Report, suspect: Culprit | Finding | None, paper: Paper) -> list[str]:
    """Return what was looked at and is fine, with the reason where nothing else is shown."""
    shown = report.cleared[:SHOWN_CLEARED]
    left = len(report.cleared) - len(shown)
    if suspect is None:
        lines = [
            paper.clip(f"{'?' if each.kind == 'open' else '✓'} {each.name}: {each.reason}")
            for each in shown
        ]
        return [*lines, *([f"✓ and {left:,} more"] if left > 0 else [])]
    names = ", ".join(clipped(cleared.name, 40) for cleared in shown)
    more = f" and {left:,} more" if left > 0 else ""
    return [paper.clip(f"✓ looked at and fine: {names}{more}")] if shown else []


def _cost(report: Report, paper: Paper) -> list[str]:
    overhead = report.overhead
    share = humane_share(overhead.wall_share) if overhead.wall_share else "no measurable part"
    kept_from = budget_words(overhead)
    spent = f"and {humane_bytes(overhead.peak_bytes)}"
    if kept_from:
        spent = f"({humane_duration(sum(overhead.seconds.values()))})"
    lines = paper.wrap(
        f"leakscope took {share} of the time {spent}; {plural(overhead.censuses, 'census')}, "
        f"longest pause {humane_duration(overhead.longest_pause_s)}"
    )
    lines += paper.wrap(kept_from)
    if is_mostly_postponed(overhead):
        lines.append(
            paper.clip(f"measuring waited for a later boundary: {postponed_words(overhead)}")
        )
    if overhead.walker == "reference":
        lines += paper.wrap(f"walker: {wording.walker_words(overhead.walker)}")
    if elsewhere := wording.platform_words(report.run.environment):
        lines += paper.wrap(f"platform: {elsewhere}")
    return lines


def _problems(report: Report, paper: Paper) -> list[str]:
    parts = [f"! {error.where}: {wording.problem_words(error)}" for error in report.errors]
    parts = [*dict.fromkeys(parts)]
    more = len(parts) - SHOWN_PROBLEMS
    shown = parts[:SHOWN_PROBLEMS] + ([f"! and {more:,} more: see report.html"] if more > 0 else [])
    if wording.has_gaps(report):
        shown.append(f"! {wording.GAPS}.")
    return [line for text in shown for line in paper.wrap(text)]


def _more(report: Report, left: Sequence[Culprit], indent: str = "") -> list[str]:
    """Return how many culprits and notes are left to the report, and what all come to."""
    notes = sum(culprit.severity is Severity.NOTE for culprit in left)
    serious = len(left) - notes
    parts = [plural(serious, "more culprit")] if serious else []
    parts += [plural(notes, "note" if serious else "more note")] if notes else []
    rate = rate_together(report) if serious else ""
    together = f"; all together grow by {rate}" if rate else ""
    return [f"{indent}   and {', '.join(parts)}: see report.html{together}"] if parts else []


SHOWN_LINES = 3
"""Of a title: those that are shipped need two of them at most in 80 columns."""


def known_lines(
    known: Recognised | None, paper: Paper, indent: str, *, has_room: bool = True
) -> list[str]:
    """Return what is known; the address stands alone, to be clicked or copied whole.

    Where there is no room for all of it, the report is referred to.
    """
    if known is None:
        return []
    if not has_room:
        return [paper.clip(f"{wording.known_words(known)}: see report.html", indent)]
    return [
        *paper.wrap(f"{wording.known_words(known)}: {known.title}", indent, SHOWN_LINES),
        f"{indent}{one_line(known.link)}",
    ]


_MARKS = {
    State.OK: ("✓", "clean"),
    State.NOTE: ("·", "muted"),
    State.MISSING: ("–", "inconclusive"),
    State.BROKEN: ("✗", "leak"),
}
_COLUMN = 25
_SETTING, _VALUE = 18, 20


def render_health_text(health: Health, *, width: int = 100, color: bool = False) -> str:
    """Return what is in force and from where, then what is there and what to do."""
    paper = Paper(width, color)
    lines = [f"leakscope {health.leakscope_version}", ""]
    where = health.project or "no pyproject.toml with [tool.leakscope]"
    lines.append(paper.clip(f"In force ({where}):"))
    for setting in health.settings:
        value = clipped(_shown(setting.value), _VALUE)
        lines.append(paper.clip(f"  {setting.name:<{_SETTING}} {value:<{_VALUE}} {setting.source}"))
    if health.suppressions:
        lines.append(f"  {'suppressions':<{_SETTING}} {health.suppressions}")
    lines += ["", "What is there:"]
    lines += [line for item in health.items for line in _item(item, paper)]
    return "\n".join(lines) + "\n"


def _shown(value: str | float | bool | list[str] | None) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, list) else str("–" if value is None else value)


def _item(item: Item, paper: Paper) -> list[str]:
    mark, style = _MARKS[item.state]
    first, *rest = paper.wrap(item.text or "–", " " * _COLUMN)
    name = clipped(item.name, _COLUMN - 5)
    head = f"  {paper.paint(mark, style)} {name:<{_COLUMN - 5}} "
    advice = paper.wrap(f"→ {item.advice}", " " * _COLUMN) if item.advice else []
    return [head + first[_COLUMN:], *rest, *advice]
