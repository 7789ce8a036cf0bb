"""The page of a run: everything computed, nothing left for the template but order and how numbers
are written.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from leakscope.model.gauge import CHILDREN_PSS
from leakscope.model.report import Culprit, Report, RunFacts, Severity, Work
from leakscope.model.text import plural
from leakscope.report import words
from leakscope.report.culprits import CulpritView, Piece, SuspectView, culprit_views, finding_views
from leakscope.report.icicle import icicle_view
from leakscope.report.json import render_json
from leakscope.report.markdown import suspect_markdown
from leakscope.report.measuring import assurance_view, decision_rows, measuring_view, noise_words
from leakscope.report.processes import named_in_workers, processes_view, ranks_view, worker_rows
from leakscope.report.sections import compiled_view, device_views, kinds_view, shortage_view
from leakscope.report.tables import (
    Fact,
    component_phases,
    ledger_view,
    size_facts,
    with_scale,
)
from leakscope.report.text import humane_duration, humane_moment
from leakscope.report.timeline import (
    beginning_note,
    chart_data,
    compact,
    exploring_data,
    from_first_phase,
    overlaid_culprits,
    timeline_view,
)

OTHERS = 5
"""So many more suspects are named on the first screen."""

MOST_PROBLEMS = 50
"""Shown on the page; a file of noise has more."""

LONG_WORD = 24


def report_page(report: Report) -> SimpleNamespace:
    """Return the whole page for a report."""
    whole, beginning = report.timeline, ""
    if whole is not None:
        shown = from_first_phase(whole)
        report, beginning = replace(report, timeline=shown), beginning_note(whole, shown)
    spans = report.timeline.spans if report.timeline else []
    culprits, findings = culprit_views(report.culprits, spans), finding_views(report.findings)
    laid = overlaid_culprits(report, culprits)
    timeline = timeline_view(report.timeline, beginning, next((o for o in laid if o.on), None))
    processes = report.work.processes
    icicle = icicle_view(report.retained, culprits, processes, report.retained_elsewhere)
    places = icicle.places if icicle else None
    suspects: list[SuspectView] = [*culprits, *findings]
    ranks = ranks_view(report, places)
    devices = device_views(report.devices)
    in_workers = named_in_workers(report.culprits)
    leading = next((s for s in suspects if s.severity != Severity.NOTE.value), None)
    # Of several with one signature the first counts.
    anchors = {suspect.subject.signature: suspect.anchor for suspect in reversed(suspects)}
    verdict = words.verdict_words(report.verdict, ran_out=report.out_of_memory is not None)
    headline = _headline(report.headline or verdict, leading)
    return SimpleNamespace(
        report=report,
        title=f"{verdict} · {_program(report.run)}",
        verdict_label=verdict,
        headline=headline,
        names_leading=any(piece.code for piece in headline),
        context=run_context(report.run, report.work),
        leading=leading,
        deadline=deadline_words(report),
        assurance=assurance_view(report, leading.anchor if leading else ""),
        kinds=kinds_view(report, anchors),
        others=[suspect for suspect in suspects if suspect is not leading][:OTHERS],
        timeline=timeline,
        icicle=icicle,
        shortage=shortage_view(report.out_of_memory),
        devices=devices,
        culprits=culprits,
        findings=findings,
        # Each with what is known of its growth by name all the same.
        growth=[
            (row, in_workers if row.metric == CHILDREN_PSS else words.event_words(row))
            for row in report.growth
        ],
        noise=noise_words(report),
        ledgers=[ledger_view(ledger, in_workers) for ledger in report.ledgers],
        phases=with_scale(report.phases, "metric", "before_bytes", "peak_bytes", "after_bytes"),
        has_long_words=_has_long_words(report),
        of_rank=f"rank {report.rank}" if report.rank is not None else report.process,
        ranks=ranks,
        workers=worker_rows(report.workers, places),
        processes=processes_view(report),
        compiled=compiled_view(report.compiled_code),
        components=with_scale(
            report.components, "device", "start_bytes", "peak_bytes", "end_bytes"
        ),
        component_phases=component_phases(report.components),
        decisions=decision_rows(report.decisions),
        problems=_problems(report),
        measuring=measuring_view(report.overhead, report.work.duration_s, len(report.errors)),
        environment=environment_facts(report.run),
        command=" ".join(report.run.command),
        words=words.words_for(report),
        data=_data(culprits, findings, exploring_data(timeline, report, laid), ranks, report)
        | {"icicles": {icicle.key: icicle.data} if icicle else {}}
        | {"maps": {d.memory_map.key: d.memory_map.data for d in devices}},
    )


def _has_long_words(report: Report) -> bool:
    named = [phase for component in report.components for phase in component.by_phase]
    named += [phase.phase for phase in report.phases] + [growth.unit for growth in report.growth]
    return any(len(word) > LONG_WORD for name in named for word in name.split())


def run_context(run: RunFacts, work: Work | None = None) -> list[Fact]:
    """Return the line under the title: which run, when, how long, how it ended."""
    facts = [
        Fact("Run", _program(run), run.path),
        Fact("Started", humane_moment(run.created) if run.created > 0 else ""),
        Fact("Work", work_words(work) if work is not None else ""),
        Fact("Ended", run.ended),
    ]
    return [fact for fact in facts if fact.value]


def _program(run: RunFacts) -> str:
    """Return what a run is called: its script, or its directory where a notebook recorded it."""
    return run.script or PurePath(run.path).name or run.run_id


def work_words(work: Work) -> str:
    """Return ``12 epochs, 4,800 steps, 12 validations in 3 min 20 s``."""
    counts = [(work.epochs, "epoch"), (work.steps, "step"), (work.validations, "validation")]
    parts = [plural(count, noun) for count, noun in counts if count]
    if work.processes > 1:
        parts.append(plural(work.processes, "process"))
    return f"{', '.join(parts) or 'no steps'} in {humane_duration(work.duration_s)}"


def deadline_words(report: Report) -> str:
    """Return what the forecast of who leads reaches and how long that takes at the run's pace."""
    suspect = words.leading_suspect(report)
    if not isinstance(suspect, Culprit) or suspect.forecast is None:
        return ""
    wait = words.wait_words(suspect.forecast, report.work)
    return f"That is the memory limit{', ' if wait else ''}{wait}."


def environment_facts(run: RunFacts) -> list[Fact]:
    """Return what the run ran on."""
    facts = [Fact(name.replace("_", " "), value) for name, value in sorted(run.environment.items())]
    if run.limit_bytes is not None:
        facts[:0] = size_facts([("memory limit", run.limit_bytes)])
    if elsewhere := words.platform_words(run.environment):
        facts.append(Fact("not measured here", elsewhere))
    return facts


def _headline(text: str, leading: SuspectView | None) -> list[Piece]:
    name = leading.name if leading is not None and leading.is_code else ""
    found = _word(name, text) if name else None
    if found is None:
        return [Piece(text)]
    pieces = [Piece(text[: found.start()]), Piece(name, code=True), Piece(text[found.end() :])]
    return [piece for piece in pieces if piece.text]


def _word(name: str, text: str) -> re.Match[str] | None:
    """Return where a name stands as a word of its own: where a clause begins, or else anywhere.

    A culprit may be called as any word of the sentence is, and what accuses it begins a clause:
    ``Memory leaks: leaks grows by …``.
    """
    whole = rf"(?<![\w.]){re.escape(name)}(?!\w|\.\w)"
    return re.search(rf"(?:^|(?<=: )){whole}", text) or re.search(whole, text)


def _problems(report: Report) -> list[Fact]:
    counted = Counter((problem.where, words.problem_words(problem)) for problem in report.errors)
    facts = [
        Fact(where, message if count == 1 else f"{message} ({count:,} times)")
        for (where, message), count in counted.items()
    ]
    if (left := len(facts) - MOST_PROBLEMS) > 0:
        facts[MOST_PROBLEMS:] = [Fact("and more", f"{left:,} others, all in report.json")]
    return [*facts, *([Fact("so", f"{words.GAPS}.")] if words.has_gaps(report) else [])]


def _data(
    culprits: list[CulpritView],
    findings: list[SuspectView],
    charts: dict[str, Any],
    ranks: SimpleNamespace | None,
    report: Report,
) -> dict[str, Any]:
    charts |= {ranks.chart.key: ranks.chart.data} if ranks and ranks.chart else {}
    for chart in (c.chart for c in culprits if c.chart):
        lines = [{"label": "retained", "points": compact(chart.points)}]
        charts[chart.key] = chart_data(chart.unit or "x", lines, only=chart.drawing)
    suspects: list[SuspectView] = [*culprits, *findings]
    run = report.run
    copies = {f"{c.anchor}-markdown": suspect_markdown(c.subject, run) for c in culprits}
    copies |= {f"{s.anchor}-diff": s.remedy.raw_diff for s in suspects if s.remedy.raw_diff}
    copies |= {f"{s.anchor}-json": render_json(s.subject) for s in suspects}
    copies |= {f"{f.anchor}-markdown": suspect_markdown(f.subject, run) for f in findings}
    return {"charts": charts, "copies": copies}
