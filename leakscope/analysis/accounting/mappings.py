"""Memory by kind of mapping: the same growth that the ledger accounts for, divided otherwise.

Which objects grew, and in which mappings, are two answers about the same bytes: they are never
added up. Where growth has no name the kind of mapping says where to look, and pages of files are
told as what they are. Each kind is judged by the growth model over the whole of the work.
"""

from __future__ import annotations

import numpy as np

from leakscope.analysis.columns.series import FloatArray, IntArray
from leakscope.analysis.growth import policy
from leakscope.analysis.run_context import RunContext
from leakscope.model import gauge
from leakscope.model.report import Cleared, MappingTerm
from leakscope.model.text import human_bytes

LABELS = {
    gauge.MAPPED_HEAP: "the main heap",
    gauge.MAPPED_ARENAS: "thread arenas of glibc",
    gauge.MAPPED_STACKS: "stacks of threads",
    gauge.MAPPED_LIBRARIES: "variables of libraries and changed pages of files",
    gauge.MAPPED_ANONYMOUS: "anonymous mappings",
    gauge.MAPPED_FILES: "mapped files: page cache, not a leak",
    gauge.MAPPED_SHARED: "shared memory",
    gauge.MAPPED_DEVICES: "mappings of device drivers",
}
MOST_KINDS = 3
SHOWN_BYTES = 1 << 20
"""Kinds that hold less and gained less aren't told."""


def find_mappings(case: RunContext) -> list[MappingTerm]:
    """Return each kind of mapping with its growth, what gained most first; none where not read."""
    terms = [term for kind in gauge.MAPPING_KINDS if (term := _term(case, kind)) is not None]
    files = [name for name in sorted(case.track.gauge_names) if gauge.file_of(name)]
    terms += [term for name in files if (term := _term(case, name)) is not None]
    return sorted(terms, key=lambda term: -term.bytes)


def _term(case: RunContext, kind: str) -> MappingTerm | None:
    done, sizes = kind_series(case, kind)
    if not len(sizes):
        return None
    trend = case.trend_of(done, sizes)
    held, gained = round(float(sizes[-1])), _gained(case, kind)
    if max(held, abs(gained)) < SHOWN_BYTES:
        return None
    file = gauge.file_of(kind)
    label = f"of these {file}" if file else LABELS[kind]
    case.decisions.add(
        label, "growth", f"{trend.verdict.value}: {trend.reason.value}", figure=trend.net_bytes
    )
    return MappingTerm(
        kind=gauge.MAPPED_FILE if file else kind,
        label=label,
        file=file or "",
        bytes=gained,
        held_bytes=held,
        verdict=trend.verdict,
        bytes_per_unit=trend.bytes_per_unit if trend.is_growing else 0.0,
        unit=trend.unit,
    )


def kind_series(case: RunContext, kind: str) -> tuple[FloatArray, FloatArray]:
    """Return units done and readings of a kind, without what leakscope itself holds there."""
    values = case.track.gauge(kind) - _own_in(case, kind)
    read = case.working[np.isfinite(values[case.working])]
    return case.work_done[read], values[read]


def _own_in(case: RunContext, kind: str) -> FloatArray:
    """Return what leakscope itself holds in a kind, by measurement: mappings of its own."""
    return case.own if kind == gauge.MAPPED_ANONYMOUS else np.zeros(len(case.track))


def _gained(case: RunContext, kind: str) -> int:
    """Return the change over the stretch that the ledger accounts for."""
    if case.window is None:
        return 0
    read, sizes = _readings(case, kind, case.window.last)
    if not len(read):
        return 0
    ends = np.array([case.window.first, case.window.last])
    first, last = case.read_between(ends, read, sizes)
    return round(float(last - first))


def _readings(case: RunContext, kind: str, until: int) -> tuple[IntArray, FloatArray]:
    """Return the measurements that read a kind and what they read, in part to the end of the run.

    Those after the work, when a program may have let go, count where none before reaches far: a run
    of a second has few.
    """
    sizes = case.track.gauge(kind) - _own_in(case, kind)
    read = case.track.known(kind)
    working = read[read <= case.track.last_work]
    reached = case.track.work[working[-1]] if len(working) else 0
    begin = case.track.work[case.working[0]] if len(case.working) else 0
    if reached - begin >= policy.REACHES * (case.track.work[until] - begin):
        read = working
    return read, sizes[read]


def where_mapped(case: RunContext, since: float) -> str:
    """Return in which mappings private memory came since some work was done, as a sentence."""
    gains = {kind: _gain_since(case, kind, since) for kind in gauge.OWN_KINDS}
    whole = sum(gain for gain in gains.values() if gain > 0)
    least = max(policy.GAUGE_NOISE_BYTES, policy.UNNAMED_SHARE * whole)
    largest = sorted((kind for kind in gains if gains[kind] >= least), key=lambda k: -gains[k])
    if not largest:
        return ""
    listed = [f"{human_bytes(gains[kind])} in {LABELS[kind]}" for kind in largest[:MOST_KINDS]]
    return f" Private memory grew by {' and '.join(listed)}."


def _gain_since(case: RunContext, kind: str, since: float) -> float:
    read, sizes = _readings(case, kind, case.track.last_work)
    done = case.work_done[read]
    if len(done) < 2 or done[-1] <= since:
        return 0.0
    return float(sizes[-1] - np.interp(since, done, sizes))


def cleared_files(case: RunContext) -> list[Cleared]:
    """Return files that came to be mapped and read: memory that the kernel takes back."""
    found = []
    for name in sorted(case.track.gauge_names):
        file = gauge.file_of(name)
        if file is None:
            continue
        values = case.track.gauge(name)
        every = np.intersect1d(case.track.known(gauge.MAPPED_FILES), case.working)
        sizes = np.nan_to_num(values[every])  # with few pages it isn't told by name
        if len(sizes) and sizes.max() - sizes[0] >= policy.MAPPED_FILE_BYTES:
            reason = "mapped file: page cache that the kernel takes back, not a leak"
            size = float(sizes.max())
            found.append(
                Cleared(
                    name=file,
                    path=name,
                    reason=f"{reason} ({human_bytes(size)})",
                    kind="mapped",
                    total_bytes=round(size),
                )
            )
    return found
