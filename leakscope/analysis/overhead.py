"""What leakscope itself has cost, as it measured it."""

from __future__ import annotations

from leakscope.analysis.case import Case
from leakscope.model import gauge
from leakscope.model.report import Overhead


def find_overhead(case: Case) -> Overhead:
    """Return time and memory spent on measuring, zeros where nothing was recorded."""
    record = case.recording.overhead
    pauses = [c.pause_s for c in case.table.censuses]
    own = case.track.gauge(gauge.OWN)
    peak = max([record.own_peak_bytes if record else 0, *_finite(own.tolist())])
    seconds = dict(record.seconds) if record else {"census": sum(pauses)}
    wall = _duration(case)
    return Overhead(
        wall_share=sum(seconds.values()) / wall if wall > 0 else 0.0,
        peak_bytes=int(peak),
        seconds=seconds,
        censuses=record.censuses if record else len(pauses),
        boundaries=record.boundaries if record else len(case.track),
        recorded_boundaries=record.recorded_boundaries if record else len(case.track),
        longest_pause_s=max(pauses, default=0.0),
        budget=_budget(case),
        walker=case.table.censuses[-1].walker if case.table.censuses else "",
    )


def _duration(case: Case) -> float:
    times = case.track.time_s
    ended = case.recording.end.time_s if case.recording.end else 0.0
    return max(float(times[-1]) if len(times) else 0.0, ended)


def _budget(case: Case) -> float | None:
    budget = case.run.manifest.options.get("budget")
    return float(budget) if isinstance(budget, int | float) else None


def _finite(values: list[float]) -> list[float]:
    return [v for v in values if v == v]
