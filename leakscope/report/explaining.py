"""A run explained in as few words as somebody has room for: a colleague's chat, an agent.

Everything comes from the report alone. Each part says one thing in plain text; parts are ordered
by what they are worth, and of those that don't all fit, the first that do are included.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from leakscope.model.documents import ExplainedPart, NextStep, PartKind, RunExplanation
from leakscope.model.record import VERIFY_FOLDER
from leakscope.model.report import Culprit, Finding, Report, RunVerdict, Severity
from leakscope.model.text import clipped, one_line, plural, printable
from leakscope.report import words
from leakscope.report.measuring import assurance_view, decision_rows, noise_words, precise_share
from leakscope.report.tables import ledger_words
from leakscope.report.text import (
    humane_bytes,
    humane_duration,
    humane_interval,
    humane_rate,
    humane_share,
)

BYTES_PER_TOKEN = 3.5
"""Of UTF-8. English is some 4, code and figures some 3; whose tokens they are nobody knows here."""
LONGEST_NAME = 160
SHOWN_TERMS = 6
SHOWN_NAMES = 5
SHOWN_DECISIONS = 12
"""Of each series that matters."""
SHOWN_RANKS = 8
_ALWAYS = frozenset({PartKind.VERDICT, PartKind.NEXT})
_LABELS = {
    PartKind.FORECAST: "runs out",
    PartKind.REMEDY: "change",
    PartKind.DIFF: "diff",
    PartKind.ADVICE: "how",
    PartKind.MISSING: "to settle it",
    PartKind.GROWTH: "growth",
    PartKind.LEDGER: "where it went",
    PartKind.KINDS: "kinds of growth",
    PartKind.DECISIONS: "decided",
    PartKind.FALSIFIER: "falsifier",
    PartKind.RANKS: "ranks",
    PartKind.DEVICE: "device",
    PartKind.CURES: "cleaning calls",
    PartKind.CLEARED: "looked at and fine",
    PartKind.PROBLEM: "went wrong",
    PartKind.COST: "cost",
    PartKind.NEXT: "next",
}
"""What stands before a part; culprits, findings and the verdict speak for themselves."""


def explain_run(
    report: Report, run_path: str, budget: int, *, is_recorded: bool = True
) -> RunExplanation:
    """Return what matters most about a run, in as many tokens as there may be.

    The verdict and the next command are always included. A part that doesn't fit is left
    out whole, and parts behind it that do are included. Commands that read a recording come only
    where it lies at ``run_path`` too: that may be a ``report.json``.
    """
    step = next_steps(report, run_path if is_recorded else "")[0]
    last = _part(PartKind.NEXT, f"{step.aim}: {step.command}", command=step.command)
    parts = [*_parts(report)]
    whole = sum(part.tokens for part in (*parts, last))
    command = _command("explain", run_path, "--budget", str(whole))
    spent = sum(part.tokens for part in (*parts, last) if part.kind in _ALWAYS)
    left_out = Counter(part.kind.value for part in parts if part.kind not in _ALWAYS)
    chosen = list[ExplainedPart]()
    for part in parts:
        if part.kind not in _ALWAYS:
            others = left_out - Counter([part.kind.value])
            with_line = spent + part.tokens + _line_tokens(others, command)
            if with_line > budget < whole:
                continue
            spent, left_out = spent + part.tokens, others
        chosen.append(part)
    return RunExplanation(
        verdict=report.verdict,
        run=one_line(run_path),
        budget=budget,
        tokens=spent + _line_tokens(left_out, command),
        parts=[*chosen, last],
        left_out=dict(left_out),
        whole_tokens=whole,
        whole_command=command,
    )


def tokens_in(text: str) -> int:
    """Return an estimate of how many tokens a text is."""
    return math.ceil(len(text.encode("utf-8", "backslashreplace")) / BYTES_PER_TOKEN)


def render_run_explanation_text(explained: RunExplanation) -> str:
    """Return an explanation as plain text, a part below the other."""
    lines = [_labelled(part.kind, part.text) for part in explained.parts]
    if explained.left_out:
        lines.append(_left_out_line(explained.left_out, explained.whole_command))
    return "\n".join(lines) + "\n"


def next_steps(report: Report, run_path: str) -> list[NextStep]:
    """Return what to do with a run, the most useful first."""
    suspect = words.leading_suspect(report)
    steps: list[tuple[str, str]] = []
    compared = _command("compare", run_path, "NEW-RUN")
    if isinstance(suspect, Culprit) and suspect.remedy.diff:
        first = next(culprit for culprit in report.culprits if culprit.remedy.diff)
        number = str(report.culprits.index(suspect) + 1)
        choice = () if suspect is first else ("--remedy", number)
        steps.append(("try that change in a copy", _command("verify", run_path, *choice)))
    if suspect is not None or report.verdict is RunVerdict.OUT_OF_MEMORY:
        steps.append(("change it, run again, then", compared))
    if report.verdict is RunVerdict.INCONCLUSIVE and suspect is None:
        again = run_again(report)
        aim = "run it for longer" if again else "run it for longer, then"
        steps.append((aim, again or compared))
    if isinstance(suspect, Culprit):
        name = one_line(suspect.path or suspect.name)
        steps.append(("how that was decided", _command("report", run_path, "--why", name)))
    steps.append(("read the whole report", _command("report", run_path, "--format", "text")))
    if report.verdict is RunVerdict.CLEAN:
        steps.append(("keep it so in CI", _command("check", run_path)))
    return [NextStep(aim=aim, command=command) for aim, command in steps]


def run_again(report: Report) -> str:
    """Return the command that records such a run once more; empty where it is unknown.

    Ranks are started by a launcher, of which nothing is recorded. The copy in which a remedy was
    tried is gone.
    """
    python, *program = report.run.command or [""]
    if VERIFY_FOLDER in "".join(program[:1]):
        return ""
    is_plain = program and (not program[0].startswith("-") or program[0] in ("-m", "-c"))
    if python != "python" or not is_plain or report.ranks:
        return ""
    return _command("run", *program)


def _command(*arguments: str) -> str:
    return shlex.join(["leakscope", *(one_line(text) or "RUN" for text in arguments)])


def _labelled(kind: PartKind, text: str) -> str:
    label = _LABELS.get(kind, "")
    if kind is PartKind.DIFF:
        return f"{label}:\n{text}"
    return f"{label}: {text}" if label else text


def _left_out_line(left_out: Mapping[str, int], command: str) -> str:
    named = (f"{kind} ({count})" if count > 1 else kind for kind, count in left_out.items())
    return f"left out for the budget: {', '.join(named)}; all of it: {command}"


def _line_tokens(left_out: Mapping[str, int], command: str) -> int:
    return tokens_in(f"{_left_out_line(left_out, command)}\n") if left_out else 0


def _part(kind: PartKind, text: str, **figures: object) -> ExplainedPart:
    tokens = tokens_in(f"{_labelled(kind, text)}\n")
    return ExplainedPart(kind=kind, text=text, tokens=tokens, **figures)  # type: ignore[arg-type]


def _parts(report: Report) -> Iterator[ExplainedPart]:
    """Yield all parts but the next command, the most valuable first."""
    suspect = words.leading_suspect(report)
    name = words.verdict_words(report.verdict, ran_out=report.out_of_memory is not None)
    text = f"{words.MARKS[report.verdict.value]} {name} · {report.headline}"
    yield _part(PartKind.VERDICT, one_line(f"{text} {words.ending_words(report)}".strip()))
    yield from _shortage(report)
    yield from _leading(report, suspect)
    yield from _lines(PartKind.MISSING, words.further_evidence(report))
    yield from _lines(PartKind.LEDGER, (ledger_words(x, SHOWN_TERMS) for x in report.ledgers[:1]))
    yield from _lines(PartKind.KINDS, ["; ".join(words.kind_lines(report.kinds))])
    yield from _falsifier(report, suspect)
    others: list[Culprit | Finding] = [*report.culprits, *report.findings]
    others = [other for other in others if other is not suspect]
    yield from (_brief(other) for other in others if other.severity is not Severity.NOTE)
    yield from _growth(report)
    yield from _decisions(report, suspect)
    yield from _processes(report)
    yield from _lines(PartKind.LEDGER, (ledger_words(x, SHOWN_TERMS) for x in report.ledgers[1:]))
    yield from _lines(PartKind.DEVICE, map(words.device_line, report.devices))
    yield from _lines(PartKind.CURES, [report.cures.sentence] if report.cures else [])
    yield from (_brief(other) for other in others if other.severity is Severity.NOTE)
    yield from _lines(
        PartKind.CLEARED, (f"{c.name}: {c.reason}" for c in report.cleared if c.kind != "open")
    )
    yield from _measuring(report)


def _lines(kind: PartKind, texts: Iterable[str]) -> Iterator[ExplainedPart]:
    return (_part(kind, one_line(text)) for text in texts if text)


def _shortage(report: Report) -> Iterator[ExplainedPart]:
    ended = report.out_of_memory
    if ended is None:
        return
    yield from _lines(PartKind.SHORTAGE, [ended.evidence])
    for title, rows in (("memory was held by", ended.names), ("live as", ended.components)):
        listed = ", ".join(f"{r.name} {humane_bytes(r.bytes)}" for r in rows[:SHOWN_NAMES])
        yield from _lines(PartKind.SHORTAGE, [f"{title}: {listed}"] if listed else [])
    for way in ended.fits_if:
        answer = "would have made it fit" if way.helps else "would not have been enough"
        yield _part(PartKind.SHORTAGE, one_line(f"{way.title}: {answer}. {way.evidence}"))


def _leading(report: Report, suspect: Culprit | Finding | None) -> Iterator[ExplainedPart]:
    """Yield what makes the run a leak: what it is, where, how fast, until when, what to change."""
    if suspect is None:
        return
    name, place = _name(suspect), words.source_place(suspect)
    if isinstance(suspect, Culprit):
        yield _suspect(suspect, _culprit_text(suspect, place))
        if suspect.forecast is not None:
            wait = words.wait_words(suspect.forecast, report.work)
            text = ", ".join(filter(None, [suspect.forecast.text, wait]))
            yield _part(PartKind.FORECAST, one_line(text), name=name)
    else:
        text = f"{suspect.severity.value}: {suspect.title}. {suspect.text}"
        yield _suspect(suspect, f"{text} At {place}." if place else text)
    remedy = suspect.remedy
    if remedy.title:
        yield _part(PartKind.REMEDY, one_line(remedy.title), name=name)
    if remedy.diff:
        yield _part(PartKind.DIFF, printable(remedy.diff).rstrip("\n"), name=name)
    if advice := words.advice_of(remedy):
        yield _part(PartKind.ADVICE, one_line(advice), name=name)
    if suspect.known is not None:
        yield _part(PartKind.KNOWN, one_line(words.known_line(suspect.known)), name=name)


def _culprit_text(culprit: Culprit, place: str) -> str:
    """Return name, rate, share, evidence and line of a culprit, with who else holds it."""
    rate = words.rate_words(culprit) + words.on_device(culprit.device)
    share = words.share_words(culprit.share, culprit.growth)
    growth = words.growth_words(
        culprit.growth, culprit.phase, culprit.unit, falls_back=culprit.falls_back
    )
    grows = "climbs" if culprit.growth == "within" else "grows"
    head = f"{culprit.severity.value}: {culprit.name} ({culprit.type}) {grows} by {rate}"
    interval = f"95 % interval {humane_interval(culprit.interval)}"
    texts = [
        f"{head} ({interval}), {share}; {words.evidence(culprit)}.",
        f"{'Fed' if culprit.fed_at else 'Look'} at {place}." if place else "",
        growth,
        f"In {culprit.in_ranks}." if culprit.in_ranks else "",
        f"At most {humane_bytes(culprit.total_bytes)} when looked at.",
        f"Also held by {', '.join(culprit.also_held_by)}." if culprit.also_held_by else "",
    ]
    return " ".join(filter(None, texts))


def _suspect(suspect: Culprit | Finding, text: str) -> ExplainedPart:
    kind = PartKind.CULPRIT if isinstance(suspect, Culprit) else PartKind.FINDING
    return _part(
        kind,
        one_line(text),
        name=_name(suspect),
        place=one_line(words.source_place(suspect)),
        severity=suspect.severity,
        bytes_per_unit=suspect.bytes_per_unit if suspect.unit else None,
        interval=suspect.interval if suspect.unit else None,
        unit=one_line(suspect.unit),
        device=one_line(suspect.device),
        share=suspect.share or None,
        signature=one_line(suspect.signature),
    )


def _name(suspect: Culprit | Finding | None) -> str:
    if suspect is None:
        return ""
    return one_line(suspect.name if isinstance(suspect, Culprit) else suspect.title)


def _brief(suspect: Culprit | Finding) -> ExplainedPart:
    """Return a further culprit or finding in a line: rate, share, place and what to change."""
    place = words.source_place(suspect)
    rate = ""
    if isinstance(suspect, Culprit):
        rate = words.rate_words(suspect) + words.on_device(suspect.device)
    details = [
        rate,
        words.share_words(suspect.share, suspect.growth) if rate and suspect.share else "",
        f"at {place}" if place else "",
        f"change: {suspect.remedy.title}" if suspect.remedy.title else "",
    ]
    name = clipped(_name(suspect), LONGEST_NAME)
    text = f"{suspect.severity.value}: {name}: {'; '.join(filter(None, details))}"
    return _suspect(suspect, text.removesuffix(": "))


def _falsifier(report: Report, suspect: Culprit | Finding | None) -> Iterator[ExplainedPart]:
    doubt = assurance_view(report, "")
    if doubt.falsifier:
        tried = f" Tried: {doubt.tried}" if doubt.tried else ""
        yield _part(PartKind.FALSIFIER, one_line(doubt.falsifier + tried), name=_name(suspect))


def _growth(report: Report) -> Iterator[ExplainedPart]:
    texts = [
        f"{words.metric_words(g.metric)}: {humane_rate(g.bytes_per_unit, g.unit)} "
        f"(95 % interval {humane_interval(g.interval)})"
        + ("" if g.explained_share is None else f", {humane_share(g.explained_share)} explained")
        for g in report.growth
    ]
    return _lines(PartKind.GROWTH, [*texts, noise_words(report)])


def _decisions(report: Report, suspect: Culprit | Finding | None) -> Iterator[ExplainedPart]:
    """Yield how who leads was judged; where nobody leads, how the terms without a name were."""
    chains: dict[str, list[str]] = {}
    own = suspect if isinstance(suspect, Culprit) else None
    for decision, row in zip(report.decisions, decision_rows(report.decisions), strict=True):
        is_own = own is not None and (
            decision.path == own.path if decision.path else decision.subject == own.name
        )
        if is_own if own is not None else not decision.path:
            figure = f" [{row.figure}]" if row.figure else ""
            chains.setdefault(row.subject, []).append(f"{row.rule}: {row.outcome}{figure}")
    for subject, steps in chains.items():
        left = len(steps) - SHOWN_DECISIONS
        more = [f"{left} more"] if left > 0 else []
        text = f"{clipped(subject, LONGEST_NAME)}: {'; '.join([*steps[:SHOWN_DECISIONS], *more])}"
        yield _part(PartKind.DECISIONS, one_line(text), name=one_line(subject))


def _processes(report: Report) -> Iterator[ExplainedPart]:
    """Yield how many ranks there are, which differs, and what grows in which."""
    ranks = report.ranks
    if len(ranks) > 1:
        growing = [f"rank {r.rank}: {', '.join(r.grows[:SHOWN_NAMES])}" for r in ranks if r.grows]
        left = len(growing) - SHOWN_RANKS
        grows = [*growing[:SHOWN_RANKS], *([plural(left, "more rank")] if left > 0 else [])]
        text = f"{len(ranks)} in all; {'; '.join(grows) or 'nothing grows in any'}"
        yield _part(PartKind.RANKS, one_line(text))
    if report.odd_rank is not None:
        yield _part(PartKind.RANKS, one_line(report.odd_rank.sentence))


def _measuring(report: Report) -> Iterator[ExplainedPart]:
    problems = (f"{e.where}: {words.problem_words(e)}" for e in report.errors)
    yield from _lines(PartKind.PROBLEM, dict.fromkeys(problems))
    if words.has_gaps(report):
        yield _part(PartKind.PROBLEM, words.GAPS)
    overhead = report.overhead
    yield _part(
        PartKind.COST,
        f"{precise_share(overhead.wall_share)} of the time, "
        f"{plural(overhead.censuses, 'census')}, longest pause "
        f"{humane_duration(overhead.longest_pause_s)}",
    )
