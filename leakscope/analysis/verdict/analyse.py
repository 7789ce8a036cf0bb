"""From a run to its report: joins all that is concluded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np

from leakscope.analysis.accounting.compiled_code import find_compiled_code
from leakscope.analysis.accounting.ledger import find_growth, find_ledgers, with_imputed
from leakscope.analysis.accounting.native import (
    cleared_files,
    contents_of_growers,
    find_mappings,
    find_peak,
)
from leakscope.analysis.accounting.phases import find_components, find_phases, find_timeline
from leakscope.analysis.accounting.run_facts import (
    LONGEST_MESSAGE,
    find_facts,
    find_overhead,
    find_problems,
    find_work,
)
from leakscope.analysis.allocator.devices import find_devices
from leakscope.analysis.columns.series import HOST
from leakscope.analysis.findings import find_findings
from leakscope.analysis.findings.gauge_rules import find_pileups
from leakscope.analysis.findings.out_of_memory import find_out_of_memory, snapshot_notes
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.search import search_growth, with_siblings_joined
from leakscope.analysis.growth.shape import thinned
from leakscope.analysis.holdings import find_retained, find_retained_of_others, secondary_recordings
from leakscope.analysis.processes.children import (
    MAIN,
    JudgedProcess,
    children_to_judge,
    conclude_processes,
    label_of,
    without_recorded_children,
    without_what_is_replaced,
)
from leakscope.analysis.processes.endings import find_attempts
from leakscope.analysis.processes.ranks import (
    Ranks,
    RankSummary,
    conclude_ranks,
    is_many,
    recording_of_rank,
)
from leakscope.analysis.processes.recordings import with_sources_of_main
from leakscope.analysis.processes.workers import (
    conclude_workers,
    rank_with_worst_workers,
    with_growth_in_workers,
)
from leakscope.analysis.remedies.catalogue import Catalogue
from leakscope.analysis.remedies.cleanup_calls import (
    find_cleanup_trials,
    with_measured_advice,
    with_result,
    with_results,
)
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.cleared import find_cleared, find_undecided, with_cleared
from leakscope.analysis.verdict.culprits import (
    find_culprits,
    growth_per_event,
    until_their_bounds,
    with_pileups,
)
from leakscope.analysis.verdict.headline import earlier_growth, headline, verdict_of
from leakscope.analysis.verdict.kinds import find_kinds
from leakscope.model import gauge
from leakscope.model.record import HeaderRecord
from leakscope.model.report import (
    Culprit,
    EventGrowth,
    Finding,
    Problem,
    Report,
    RunVerdict,
    Severity,
)
from leakscope.model.run import Recording, Run

LOW = "memory-low"
MOST_READINGS = 200
"""Readings of a pool that are held against what was counted; of more, so many evenly."""
_WITHOUT_NAME = frozenset({"unexplained", "native_held"})


ReadRank = Callable[[int], Recording | None]
"""Returns the recording of a rank that was judged elsewhere; None where it can't be read."""


def analyse(
    run: Run,
    others: Iterable[RankSummary] = (),
    catalogue: Catalogue | None = None,
    read_rank: ReadRank | None = None,
) -> Report:
    """Return everything that can be concluded about a run, from its recordings alone.

    Args:
        run: what was read.
        others: ranks of it that were judged elsewhere, because there are many.
        catalogue: the known culprits to ask, by default those that leakscope ships.
        read_rank: reads one of those ranks, in case the report is about it.

    """
    attempts = find_attempts(run)
    case = RunContext(attempts.run, _main(attempts.run), catalogue)
    with np.errstate(all="ignore"):
        report = _with_children(case, _report(case, others, read_rank))
    note = attempts.note()
    notes = [note, *report.notes] if note else report.notes
    faults = catalogue.faults if catalogue is not None else ()
    errors = [*report.errors, *(Problem(where="known culprits", message=f) for f in faults)]
    kinds = find_kinds(report)
    return msgspec.structs.replace(
        report, attempts=attempts.listed(), notes=notes, errors=errors, kinds=kinds
    )


def _with_children(case: RunContext, report: Report) -> Report:
    """Return the report of all processes; of one without children that recorded the same."""
    run = case.run
    contexts = [RunContext(run, recording, case.catalogue) for recording in children_to_judge(run)]
    if not contexts:
        return report
    children = [JudgedProcess(c, _report(c, ()), label_of(run, c.recording)) for c in contexts]
    label = MAIN if report.rank is None else f"rank {report.rank}"
    children = without_what_is_replaced(children)
    merged = conclude_processes(JudgedProcess(case, report, label), children)
    first = headline(
        merged.verdict,
        merged.culprits,
        merged.findings,
        merged.missing,
        merged.work,
        merged.out_of_memory,
        processes=len(children) + 1,
    )
    return msgspec.structs.replace(merged, headline=first)


def _report(
    case: RunContext,
    others: Iterable[RankSummary],
    read_rank: ReadRank | None = None,
    known: Ranks | None = None,
) -> Report:
    """Return the report; of several ranks it is about the worst one.

    ``known`` is what was concluded of all ranks where the case is the one chosen of many.
    """
    run = case.run
    growth = with_siblings_joined(case, search_growth(case))
    growth = replace(growth, native=contents_of_growers(case, growth.growers))
    cures = find_cleanup_trials(case.recording)
    ledgers = find_ledgers(case, growth.growers)
    culprits = find_culprits(case, growth.growers, growth.native, growth.terms.get("slack"))
    culprits = with_pileups(case, culprits, find_pileups(case))
    culprits, filling = until_their_bounds(case, culprits)
    shortage = find_out_of_memory(case, culprits)
    findings = find_findings(case, growth, ledgers, shortage, culprits)
    if case.recording.header.child is not None:
        ranks = Ranks(culprits, [])
    else:
        ranks = known.as_of(case, culprits) if known else conclude_ranks(case, culprits, others)
    if ranks.worst is not None and case.recording is _main(run):
        return _report(RunContext(run, ranks.worst, case.catalogue), others)
    if ranks.chosen is not None and (chosen := _read(run, ranks.chosen.rank, read_rank)):
        return _report(RunContext(run, chosen, case.catalogue), (), read_rank, ranks)
    workers = conclude_workers(case, ranks.culprits, findings, ledgers)
    if worst := _context_of_worst_rank(case, ranks, workers.culprits, read_rank):
        return _report(worst[0], others, read_rank, worst[1])
    culprits, elsewhere_filling = until_their_bounds(case, workers.culprits)
    filling = [*filling, *elsewhere_filling]
    findings = without_recorded_children(case, workers.findings)
    ledgers = with_imputed(case, workers.ledgers, findings)
    undecided = find_undecided(case, growth)
    elsewhere = secondary_recordings(
        case, culprits, ranks, workers, partial(_read, run, read=read_rank)
    )
    by_event = {metric: _per_event(case, metric) for metric in _pools(case)}
    findings = [_with_event(finding, by_event, case.host_metric) for finding in findings]
    verdict, missing = verdict_of(case, growth, culprits, findings, undecided, filling, ledgers)
    work = find_work(run, case)
    if shortage is not None and verdict is not RunVerdict.LEAK:
        verdict = RunVerdict.OUT_OF_MEMORY
    cleared = find_cleared(case, growth, undecided)
    earlier = earlier_growth(case, cleared)
    # Of warnings that room grew less the last.
    last = next((n for n in reversed(case.recording.notes) if n.slug == LOW), None)
    shown = [n for n in case.recording.notes if n.slug != LOW or n is last]
    notes = [n.message[:LONGEST_MESSAGE] for n in shown]
    return Report(
        verdict=verdict,
        headline=headline(verdict, culprits, findings, missing, work, shortage, earlier=earlier),
        growth=[
            msgspec.structs.replace(each, per_event=by_event.get(each.metric))
            for each in find_growth(case, growth.growers, ledgers)
        ],
        culprits=[with_results(culprit, cures) for culprit in culprits],
        findings=[with_result(finding, cures) for finding in findings],
        cleared=with_cleared(cleared, [*workers.cleared, *cleared_files(case)]),
        overhead=find_overhead(case),
        errors=[*find_problems(run), *ranks.problems],
        run=find_facts(run, _main(run)),
        work=work,
        ledgers=[with_measured_advice(ledger, cures) for ledger in ledgers],
        mappings=find_mappings(case),
        peak=find_peak(case),
        phases=find_phases(case),
        components=find_components(case),
        devices=find_devices(case),
        rank=case.recording.header.rank if ranks.rows else None,
        ranks=with_growth_in_workers(ranks.rows, culprits),
        odd_rank=ranks.odd,
        rank_courses=ranks.courses,
        workers=workers.rows,
        compiled_code=find_compiled_code(case),
        timeline=find_timeline(case),
        notes=[*ranks.notes, *notes, *snapshot_notes(case.recording)],
        missing=missing,
        out_of_memory=shortage,
        cures=cures,
        decisions=case.decisions.listed(),
        retained=find_retained(case, culprits),
        retained_elsewhere=find_retained_of_others(case, elsewhere, culprits),
    )


def _pools(case: RunContext) -> list[str]:
    """Return the gauges of memory that are held against what was counted."""
    devices = case.track.devices
    outside = [f"{device}.{gauge.DEVICE_OWN_OUTSIDE}" for device in devices]
    own = [metric for metric in outside if case.track.has_gauge(metric)]
    return [case.host_metric, *(case.metric_of(device) for device in devices), *own]


def _per_event(case: RunContext, metric: str) -> EventGrowth | None:
    is_host = metric == case.host_metric
    values = case.private if is_host else case.track.gauge(metric)
    read = case.at_work(values)
    if not len(read):
        return None
    trend = case.pool if is_host else case.gauge_trend(metric)
    at = read[case.work_done[read] >= trend.tail_from]
    if trend.is_bounded or len(at) < policy.FEWEST_GROWING:
        return None
    at = thinned(at, MOST_READINGS)
    kept = np.minimum.accumulate(values[at][::-1])[::-1]
    unit, noise = case.unit.name, policy.GAUGE_NOISE_BYTES
    return growth_per_event(case, at, case.work_done[at], kept, unit=unit, noise=noise)


def _with_event(finding: Finding, by_pool: Mapping[str, EventGrowth | None], host: str) -> Finding:
    """Return a finding of growth without a name; where memory grows with an event it says so."""
    is_of_host = finding.kind in _WITHOUT_NAME and finding.device == HOST
    metric = host if is_of_host else f"{finding.device}.{gauge.DEVICE_OWN_OUTSIDE}"
    is_of_memory = (is_of_host or finding.kind == "outside_allocator") and finding.unit
    by_event = by_pool.get(metric)
    if by_event is None or not is_of_memory or finding.severity is Severity.NOTE:
        return finding
    text = f"{finding.text} {by_event.text}" if by_event.is_by_event else finding.text
    return msgspec.structs.replace(finding, per_event=by_event, text=text)


def _context_of_worst_rank(
    case: RunContext, ranks: Ranks, culprits: list[Culprit], read_rank: ReadRank | None
) -> tuple[RunContext, Ranks | None] | None:
    """Return the case of the rank in whose workers the worst culprit grows, with what is known of
    all ranks where they are many; None where the case is that of this rank.
    """
    rank = rank_with_worst_workers(case, culprits) if case.recording is _main(case.run) else None
    chosen = None if rank is None else _read(case.run, rank, read_rank)
    if rank is None or chosen is None:
        return None
    known = ranks.chosen_for(rank, culprits[0]) if is_many(ranks) else None
    return RunContext(case.run, chosen, case.catalogue), known


def _read(run: Run, rank: int, read: ReadRank | None) -> Recording | None:
    """Return the recording of a rank with what the first process knows of the program's source."""
    here = recording_of_rank(run, rank)
    recording = here or (read(rank) if read is not None else None)
    return None if recording is None else with_sources_of_main(run, recording)


def _main(run: Run) -> Recording:
    """Return the recording to judge: the main process's, else any that measured something."""
    if not run.recordings:
        return Recording(header=HeaderRecord())
    main = run.main
    measured = [r for r in run.recordings if r.measurements]
    return main if main.measurements or not measured else measured[0]
