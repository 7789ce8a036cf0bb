"""A culprit or finding as Markdown for an issue, a comparison as Markdown for a pull request."""

from __future__ import annotations

import re

from leakscope.model.comparison import Comparison, CulpritChange, ValueChange
from leakscope.model.known import Recognised
from leakscope.model.report import Culprit, Finding, HeldLine, Remedy, RunFacts, Severity
from leakscope.model.text import one_line, plural, printable
from leakscope.report import words
from leakscope.report.text import humane_bytes, humane_interval
from leakscope.report.words import (
    is_address,
    known_words,
    rate_with_interval,
    share_words,
    whole_rate_words,
)

MOST_ROWS, MOST_CONTENTS = 12, 2
_MARKUP = re.compile(r"([\\`*\[\]<>|~])")


def suspect_markdown(suspect: Culprit | Finding, run: RunFacts | None = None) -> str:
    """Return title, text, facts, remedy and run; names can't break out of their code spans."""
    if isinstance(suspect, Culprit):
        title, text = f"{_title(suspect)}: {code_span(suspect.name)}", one_line(suspect.sentence)
        facts = [
            ("retained at most when looked at", humane_bytes(suspect.total_bytes)),
            ("known", _known(suspect.known)),
            ("forecast", one_line(suspect.forecast.text) if suspect.forecast else ""),
        ]
        processes = suspect.processes
        details = [
            ("path", code_span(suspect.path)),
            ("holds", ", ".join(map(_content_text, suspect.holds[:MOST_CONTENTS]))),
        ]
    else:
        title, text = _running(suspect.title), _running(suspect.text)
        most = humane_bytes(suspect.total_bytes) if suspect.total_bytes else ""
        facts, processes = [("bytes at most", most)], []
        details = [("allocated at", ", ".join(map(code_span, suspect.allocated_at)))]
    meaning = words.SEVERITY_MEANINGS[suspect.severity]
    severity = f"{suspect.severity.value}: {meaning[0].lower()}{meaning[1:].rstrip('.')}"
    falsifier, has_rate = suspect.falsifier, suspect.unit or isinstance(suspect, Culprit)
    rate = f"{whole_rate_words(suspect)} (95 % interval {humane_interval(suspect.interval)})"
    rows = [
        ("severity", severity),
        ("rate", rate if has_rate else ""),
        ("share", share_words(suspect.share, suspect.growth) if has_rate else ""),
        *facts,
        ("evidence", words.evidence(suspect)),
        ("falsifier", _running(falsifier.text) if falsifier else ""),
        ("tried", _running(words.tried_words(falsifier))),
        ("process", _running(", ".join(processes))),
        ("fed at", ", ".join(map(code_span, suspect.fed_at))),
        ("defined at", code_span(suspect.defined_at) if suspect.defined_at else ""),
        *details,
        ("signature", code_span(suspect.signature)),
        *_of_run(run),
    ]
    lines = [f"### {title}", "", text, ""]
    lines += [f"- **{label}:** {value}" for label, value in rows if value]
    return "\n".join([*lines, *_remedy(suspect.remedy)]) + "\n"


def _content_text(content: HeldLine) -> str:
    form = f" {_running(content.detail)}" if content.detail else ""
    return f"{content.count:,} × {code_span(content.type)}{form} ({humane_bytes(content.bytes)})"


def _of_run(run: RunFacts | None) -> list[tuple[str, str]]:
    """Return what was run, and with which versions: what maintainers ask for first."""
    if run is None:
        return []
    versions = run.environment | {"leakscope": run.leakscope_version}
    names = [n for n in ("leakscope", "python", "torch", "cuda") if versions.get(n)]
    parts = [_running(f"{name} {versions[name]}") for name in names]
    command = " ".join(run.command)
    return [("run", code_span(command) if command else ""), ("versions", ", ".join(parts))]


def _title(culprit: Culprit) -> str:
    """Return what kind of growth it is: no leak where it falls back or hardly matters."""
    through = _running(culprit.phase or "a phase")
    if culprit.severity is Severity.NOTE:
        return f"Note on growth {f'within {through}' if culprit.growth == 'within' else ''}".strip()
    if culprit.growth != "within":
        return "Memory leak"
    return f"Memory {'peak in' if culprit.falls_back else 'climbs through'} {through}"


def _remedy(remedy: Remedy) -> list[str]:
    lines = ["", f"**{one_line(remedy.title)}** {one_line(remedy.text)}"]
    if remedy.diff:
        diff = printable(remedy.diff).rstrip("\n")
        fence = "`" * max(3, _longest_run(diff) + 1)
        lines += ["", f"{fence}diff\n{diff}\n{fence}"]
    return lines


def render_comparison_markdown(comparison: Comparison) -> str:
    """Return verdict, culprits, peaks and the check of the work, for a pull request."""
    outcome, word = words.outcome_of(comparison)
    headline = words.headline_after(word, comparison.headline)
    lines = [f"### {words.MARKS[outcome]} {word}: {_running(headline)}", ""]
    also = _running(" ".join(comparison.details))
    lines += [f"- **Also:** {also}", ""] if also else []
    ordered = words.worst_first(comparison.culprits)
    shown = [c for c in ordered if c.severity is not Severity.NOTE][:MOST_ROWS]
    lines += [*_culprit_table(shown), *_left_out(ordered[len(shown) :])]
    peaks = [_peak(peak) for peak in comparison.peaks if peak.before_bytes and peak.after_bytes]
    lines += [f"- **Peaks:** {'; '.join(peaks)}"] if peaks else []
    lines += _same_work(comparison)
    lines += [f"- **Not certain:** {_running(text)}" for text in words.undecided(comparison)]
    return "\n".join(lines).rstrip() + "\n"


def change_markdown(change: CulpritChange) -> str:
    """Return what became of one culprit, as a section for a pull request."""
    before, after = _rates(change)
    facts = [
        ("before", before),
        ("after", after),
        ("line", code_span(change.place) if change.place else ""),
        ("known", _known(change.known)),
        ("not certain", _running(change.doubt)),
        ("signature", code_span(change.signature)),
    ]
    lines = [f"### {words.change_word(change)}: {code_span(change.name)}", ""]
    lines += [_running(change.text), ""] if change.text else []
    return "\n".join([*lines, *(f"- **{name}:** {value}" for name, value in facts if value)]) + "\n"


def _left_out(changes: list[CulpritChange]) -> list[str]:
    """Return how many changes the table leaves out, and how many of them are notes."""
    notes = sum(change.severity is Severity.NOTE for change in changes)
    which = f", {notes:,} of them notes" if notes else ""
    if notes == len(changes):
        which = ", a note" if notes == 1 else ", all of them notes"
    return [f"{plural(len(changes), 'further change')}{which}.", ""] if changes else []


def _culprit_table(changes: list[CulpritChange]) -> list[str]:
    if not changes:
        return []
    rows = ["| | culprit | before | after |", "| --- | --- | ---: | ---: |"]
    for change in changes:
        rates = _rates(change)
        name = code_span(change.name).replace("|", "\\|") + _known_mark(change.known)
        label = words.change_word(change).lower() + (" (not certain)" if change.doubt else "")
        rows.append(f"| {label} | {name} | {_running(rates[0])} | {_running(rates[1])} |")
    return [*rows, ""]


def _rates(change: CulpritChange) -> tuple[str, str]:
    unit, missing = one_line(change.unit), words.missing_rate(change)
    before, after = change.before_bytes_per_unit, change.after_bytes_per_unit
    return (
        missing if before is None else rate_with_interval(before, unit, change.before_interval),
        missing if after is None else rate_with_interval(after, unit, change.after_interval),
    )


def _peak(peak: ValueChange) -> str:
    sizes = f"{humane_bytes(peak.before_bytes)} → {humane_bytes(peak.after_bytes)}"
    return f"{_running(peak.name + words.on_device(peak.device))} {sizes}"


def _same_work(comparison: Comparison) -> list[str]:
    if comparison.work_differences:
        parts = [f"  - {_running(text)}" for text in comparison.work_differences]
        return ["- **Not the same work**, so read the numbers with care:", *parts]
    alike = _running(words.same_work_words(comparison.work))
    return [f"- **Same work:** {alike}" if alike else "- **Same work**"]


def _running(text: str) -> str:
    """Return running text in which nothing is markup."""
    return _MARKUP.sub(r"\\\1", one_line(text))


def _known_mark(known: Recognised | None) -> str:
    if known is None:
        return ""
    words = _running(known_words(known))
    return f" ([{words}]({known.link}))" if is_address(known.link) else f" ({words})"


def _known(known: Recognised | None) -> str:
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


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
