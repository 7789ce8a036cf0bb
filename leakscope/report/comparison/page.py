"""The page of a comparison as plain values: everything computed, nothing left for the template."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

import msgspec

from leakscope.model.comparison import Comparison
from leakscope.model.report import RunFacts, Severity
from leakscope.report import words as wording
from leakscope.report.comparison.axis import shared_axis
from leakscope.report.comparison.changes import (
    ChangeView,
    Overlay,
    cards,
    change_views,
    overlay_data,
    overlays,
    overlays_by_time,
    series_data,
)
from leakscope.report.comparison.tables import (
    cost_rows,
    fact_tables,
    rank_table,
    same_work_words,
    value_rows,
    worker_table,
)
from leakscope.report.icicle import comparison_icicle
from leakscope.report.json import render_json
from leakscope.report.markdown import render_comparison_markdown
from leakscope.report.page import environment_facts, run_context
from leakscope.report.runs import href_of
from leakscope.report.tables import Fact

_WORDS = [*(wording.CHANGES[change] for change in wording.WORST_FIRST), *wording.UNSEEN]
MOST_COPIED = 300_000
"""Characters of JSON behind a copy button, which leaves out the points of the timelines and the
tree of names; of more there is no button, but the command writes it."""


def comparison_page(comparison: Comparison, reports: Sequence[str] = ("", "")) -> SimpleNamespace:
    """Return the whole page for a comparison; ``reports`` are paths to those of the two runs."""
    axis = shared_axis(comparison)
    drawn, by_time = overlays(comparison, axis), overlays_by_time(comparison, axis)
    outcome, label = wording.outcome_of(comparison)
    changes = change_views(comparison.culprits, axis)
    icicle = comparison_icicle(comparison.retained, changes)
    shown = cards(changes)
    return SimpleNamespace(
        comparison=comparison,
        title=f"{label} · before and after",
        names=_names(comparison.before, comparison.after),
        headline=wording.headline_after(label, comparison.headline),
        outcome=outcome,
        outcome_label=label,
        runs=_runs(comparison, reports),
        counts=_counts(comparison),
        same_work=same_work_words(comparison.work),
        facts=fact_tables(comparison.work),
        costs=cost_rows(comparison),
        culprits=changes,
        cards=shown,
        rest=[view for view in changes if view not in shown],
        overlay=drawn[0] if drawn else None,
        overlays=drawn[1:],
        by_time=by_time,
        real=wording.REAL,
        undecided=wording.undecided(comparison),
        icicle=icicle,
        growth=value_rows(comparison.growth),
        components=value_rows(comparison.components),
        peaks=value_rows(comparison.peaks),
        ranks=rank_table(comparison),
        workers=worker_table(comparison.workers),
        terms=wording.TERMS,
        data=_data(comparison, changes, [*drawn, *by_time])
        | {"icicles": {icicle.key: icicle.data} if icicle else {}},
    )


def _names(before: RunFacts, after: RunFacts) -> str:
    """Return what both runs are called: their folders, with those above where these are alike."""
    paths = [PurePath(run.path or run.run_id or run.script) for run in (before, after)]
    parts = 2 if paths[0].name == paths[1].name else 1
    return " → ".join("/".join(path.parts[-parts:]) for path in paths)


def _counts(comparison: Comparison) -> list[Fact]:
    """Return how many culprits changed how; ``exact`` is the style, calm where all are notes."""
    changes = wording.worst_first(comparison.culprits)
    words = [wording.change_word(change) for change in changes]
    styles: dict[str, str] = {}
    for word, change in zip(words, changes, strict=True):
        note = " note" if change.severity is Severity.NOTE else ""
        styles.setdefault(word, f"{wording.change_style(change)}{note}")
    ordered = sorted(styles, key=_WORDS.index)
    return [Fact(word, str(words.count(word)), styles[word]) for word in ordered]


def _data(
    comparison: Comparison, changes: list[ChangeView], drawn: list[Overlay]
) -> dict[str, Any]:
    charts = {overlay.view.key: overlay_data(overlay) for overlay in drawn}
    charts |= {view.series.key: series_data(view.series) for view in changes if view.series}
    copies = {f"{view.anchor}-markdown": view.markdown for view in cards(changes)}
    copies["comparison-markdown"] = render_comparison_markdown(comparison)
    encoded = render_json(
        msgspec.structs.replace(
            comparison,
            before_timeline=None,
            after_timeline=None,
            before_rank_courses=[],
            after_rank_courses=[],
            retained=None,
        )
    )
    if len(encoded) <= MOST_COPIED:
        copies["comparison-json"] = encoded
    return {"charts": charts, "copies": copies}


def _runs(comparison: Comparison, reports: Sequence[str]) -> list[SimpleNamespace]:
    sides = [
        ("Before", comparison.before, comparison.before_verdict, comparison.before_cost),
        ("After", comparison.after, comparison.after_verdict, comparison.after_cost),
    ]
    return [
        SimpleNamespace(
            role=role,
            verdict=verdict.value,
            verdict_label=wording.VERDICTS[verdict],
            context=run_context(run, cost.work if cost.work.duration_s else None),
            environment=environment_facts(run),
            href=href_of(report, PurePath()) if report else "",
        )
        for (role, run, verdict, cost), report in zip(sides, reports, strict=True)
    ]
