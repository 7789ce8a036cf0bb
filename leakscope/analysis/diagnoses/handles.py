"""Things that are small in Python and big outside: open figures, files, threads, processes.

May be confused with: a pool that fills once, which levels off. The bytes are imputed: growth of
resident memory that nothing else explains, as an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.diagnoses.shared_descriptors import descriptors_pile_up
from leakscope.analysis.ledger import host_ledger
from leakscope.analysis.search import Growth
from leakscope.analysis.severity import MIB
from leakscope.analysis.source import SourceIndex
from leakscope.analysis.source.calls import places_that_call
from leakscope.analysis.trends import is_growth, judge
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes, human_count
from leakscope.model.trend import Trend


@dataclass(frozen=True)
class Handle:
    """A kind of thing that is counted by a gauge."""

    gauge: str
    kind: str
    noun: str
    fewest: float
    """Fewer new ones than this are no finding."""
    holds_memory: bool
    remedy: Remedy
    made_by: frozenset[str] = frozenset()
    """Functions of pyplot that make them."""
    library: str = ""
    """The library that keeps them."""


CLOSE_FIGURES = Remedy(
    title="Close figures after saving them",
    text=(
        "pyplot keeps every figure until it is closed: call plt.close(fig) after fig.savefig(…), "
        "or use matplotlib.figure.Figure directly."
    ),
)
CLOSE_FILES = Remedy(
    title="Close files",
    text=(
        "Open them with `with`, or close images after reading; a process may hold some thousand "
        "descriptors at most."
    ),
)
REUSE_THREADS = Remedy(
    title="Reuse one executor",
    text=(
        "Every thread keeps a stack and often an arena of its own: make one pool outside the loop, "
        "or use it as a context manager."
    ),
)
END_WORKERS = Remedy(
    title="Let workers end",
    text=(
        "Keep one DataLoader (persistent_workers=True) instead of an iterator left unfinished in "
        "each epoch, and join processes that were started."
    ),
)
PYPLOT = frozenset({"figure", "subplots", "subplot_mosaic"})
MATPLOTLIB = "matplotlib"
HANDLES = (
    Handle(
        gauge.FIGURES, "open_figures", "open figures", 5, True, CLOSE_FIGURES, PYPLOT, MATPLOTLIB
    ),
    Handle(gauge.OPEN_FILES, "open_files", "open files", 20, False, CLOSE_FILES),
    Handle(gauge.THREADS, "threads", "threads", 8, False, REUSE_THREADS),
    Handle(gauge.CHILDREN, "processes", "child processes", 8, False, END_WORKERS),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding for each kind of handle whose number grows steadily."""
    found = []
    for handle in HANDLES:
        if handle.gauge == gauge.OPEN_FILES and descriptors_pile_up(case):
            continue
        x, y = case.gauge_series(handle.gauge)
        trend = judge(x, y, unit=case.unit.name, noise_bytes=0.5)
        if is_growth(trend.verdict) and trend.net_bytes >= handle.fewest and trend.points >= 5:
            found.append(_finding(case, handle, trend, ledgers))
    return found


def _finding(case: Case, handle: Handle, trend: Trend, ledgers: list[Ledger]) -> Finding:
    imputed = _unexplained(ledgers) if handle.holds_memory else 0.0
    # What nothing explains is of the ledger's window; of the handles, all were counted.
    scale = imputed / max(trend.bytes_per_unit * _done_in_window(case), 1.0)
    matters = handle.holds_memory and imputed >= 8 * MIB
    text = (
        f"{human_count(trend.net_bytes)} more {handle.noun} than at the beginning, "
        f"{human_count(trend.bytes_per_unit)} per {trend.unit}."
    )
    if matters:
        text += f" They may hold the {human_bytes(imputed)} that nothing else explains (estimate)."
    return finding(
        handle.kind,
        f"More and more {handle.noun}",
        text,
        handle.remedy,
        severity=Severity.WARNING if matters else Severity.NOTE,
        trend=Trend(
            verdict=trend.verdict,
            bytes_per_unit=trend.bytes_per_unit * scale,
            interval=(trend.interval[0] * scale, trend.interval[1] * scale),
            unit=trend.unit,
            points=trend.points,
            net_bytes=imputed,
            reason=trend.reason,
        ),
        total_bytes=imputed,
        fed_at=_lines(case, handle),
        confidence=0.6,
        known=case.known_by(handle.library) if handle.library else None,
        falsifier=(f"If the {handle.noun} are closed and memory grows on, it was not them.", None),
    )


def _done_in_window(case: Case) -> float:
    if case.window is None:
        return 0.0
    return float(case.unit.done[case.window.last] - case.unit.done[case.window.first])


def _lines(case: Case, handle: Handle) -> list[str]:
    """Return the places that make them, where their makers are known."""
    if not handle.made_by:
        return []
    sources = SourceIndex(case.recording.sources, case.run.manifest.project_root)
    return places_that_call(sources, {"plt", "pyplot"}, set(handle.made_by))


def _unexplained(ledgers: list[Ledger]) -> float:
    host = host_ledger(ledgers)
    entries = host.entries if host else []
    return float(max(sum(e.bytes for e in entries if e.kind == "unexplained"), 0))
