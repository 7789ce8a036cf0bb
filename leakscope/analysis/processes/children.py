"""Child processes that recorded themselves: each judged like a run of its own, then one verdict.

A leak in any of them is a leak of the run; it is clean where nothing grows in any. A process that
only waits for others, or whose memory hardly changed, decides nothing: where the others are clear,
it needn't run longer.
"""

from __future__ import annotations

import copy
import signal
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from leakscope.analysis.columns.series import FloatArray
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.shape import thinned
from leakscope.analysis.processes.endings import ENDINGS, how_it_ended
from leakscope.analysis.processes.recordings import grouped, with_sources_of_main
from leakscope.analysis.run_context import RunContext, proportional
from leakscope.analysis.source.index import Managed, managed_names
from leakscope.analysis.verdict.severity import SEVERITY_ORDER
from leakscope.analysis.verdict.wording import listed
from leakscope.model import gauge
from leakscope.model.boundary import SERVED
from leakscope.model.record import HeaderRecord
from leakscope.model.report import (
    Cleared,
    Culprit,
    Finding,
    ProcessMemory,
    Remedy,
    Report,
    RunVerdict,
    Severity,
)
from leakscope.model.run import REQUESTS_TO_END, Recording, Run
from leakscope.model.text import human_bytes, plural

MOST_LISTED = 64
POINTS = 60
"""Of the course of a process."""
MOST_ELSEWHERE = 4
"""Processes whose memory is listed next to that of the reported one."""
KILLED_WITH = "ended by its parent, or with it"
MAIN = "main process"
MANAGER = "multiprocessing.managers.BaseManager._run_server"
"""What the server of a Manager runs."""
_KNOWN_TARGETS = {
    "multiprocessing.pool.worker": "worker of a Pool",
    MANAGER: "server of a Manager",
    "concurrent.futures.process._process_worker": "worker of a ProcessPoolExecutor",
    "joblib.externals.loky.process_executor._process_worker": "worker of joblib",
}
"""Names for what children of libraries run."""
_POOLED = _KNOWN_TARGETS.keys() - {MANAGER}
"""What workers of pools run: a pool replaces those that have done their number of tasks."""


@dataclass(frozen=True, eq=False)
class JudgedProcess:
    """A process of the run, with what was concluded of it as if it had been alone."""

    case: RunContext
    report: Report
    label: str
    """``main process``, ``child 2 of 2``."""

    def __post_init__(self) -> None:
        """Leave open what rose in a child that lived too short to be cleared."""
        is_clean_child = self.report.verdict is RunVerdict.CLEAN and self.header.child is not None
        unsettled = self.gained - self._bounded_bytes() >= policy.HARMLESS_BYTES
        if is_clean_child and unsettled and not self.case.pool.is_bounded:
            left = (
                f"Memory grew by {human_bytes(self.gained)}{self._main_name()}, too short a time "
                "to tell a leak from a warm-up: let it run longer."
            )
            opened = msgspec.structs.replace(
                self.report, verdict=RunVerdict.INCONCLUSIVE, missing=[left]
            )
            object.__setattr__(self, "report", opened)

    def _bounded_bytes(self) -> float:
        """Return what is held by containers that have reached a bound, each once."""
        bounded = [c for c in self.report.cleared if c.kind == "bounded"]
        return sum(
            c.total_bytes
            for c in bounded
            if not any(c.path != o.path and c.path.startswith(o.path) for o in bounded)
        )

    def _main_name(self) -> str:
        """Return the name that holds most of what rose, if one holds half of it."""
        most = max(self.report.cleared, key=lambda c: c.total_bytes, default=None)
        if most is None or most.kind == "constant" or most.total_bytes < self.gained / 2:
            return ""
        return f", {most.name} holds most of it"

    @property
    def header(self) -> HeaderRecord:
        """Which process it is."""
        return self.case.recording.header

    @property
    def gained(self) -> float:
        """What its own memory gained while it worked."""
        return _rise(self.case.private[self.case.working])

    @property
    def gained_in_all(self) -> float:
        """What its memory gained since its first reading, its setting up included.

        Tensors that a child gets from others lie in shared memory; what the main process maps while
        it is set up are libraries.
        """
        case, is_child = self.case, self.header.child is not None
        return _rise(case.track.gauge(case.host_metric) if is_child else case.private)

    @property
    def is_serious(self) -> bool:
        """Whether something in it is more than a note."""
        return self.report.verdict is RunVerdict.LEAK

    @property
    def decides(self) -> bool:
        """Whether its verdict counts for the run: an open one of a process that rests doesn't."""
        if self.report.verdict is not RunVerdict.INCONCLUSIVE:
            return True
        was_watched = len(self.case.working) >= policy.FEWEST_READINGS
        rests = self.supervises and was_watched
        return not rests and self.gained_in_all >= policy.HARMLESS_BYTES

    @property
    def worked(self) -> int:
        """How much it was seen to do."""
        work = self.report.work
        return work.steps + sum(work.batches.values())

    @property
    def supervises(self) -> bool:
        """Whether it did no work of its own that was seen, and its memory rests."""
        rests = self.gained < policy.HARMLESS_BYTES and not self.is_serious
        serves = any(self.case.track.has_event(event) for event in SERVED)
        return self.header.child is None and not self.worked and not serves and rests


def _rise(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(known.max() - known[0]) if len(known) else 0.0


def recorded_children(run: Run) -> list[Recording]:
    """Return the children that recorded themselves, in the order in which they were started,
    those of one parent together.
    """
    found = [r for r in run.recordings if r.header.child is not None]
    begun: dict[int, float] = {}
    for header in (r.header for r in found):
        began = header.started - header.lived_s
        begun[header.parent] = min(began, begun.get(header.parent, began))
    return sorted(
        found, key=lambda r: (begun[r.header.parent], r.header.parent, r.header.child, r.header.pid)
    )


def children_to_judge(run: Run) -> list[Recording]:
    """Return those that are judged: the ones that measured most."""
    measured = [r for r in recorded_children(run) if r.measurements]
    most = sorted(measured, key=lambda r: -len(r.measurements))[: policy.CHILDREN_JUDGED]
    chosen = {id(recording) for recording in most}
    return [with_sources_of_main(run, r) for r in measured if id(r) in chosen]


def label_of(run: Run, recording: Recording) -> str:
    """Return ``child 2 of 2``; where they train together which rank it is."""
    header = recording.header
    if header.child is None:
        return MAIN
    every = recorded_children(run)
    number = next((n for n, r in enumerate(every, 1) if r.header is header), 0)
    named = f"child {number} of {len(every)}" if len(every) > 1 else "the child process"
    return f"{named}, rank {header.group_rank}" if header.group_rank is not None else named


def explain_children(case: RunContext) -> bool:
    """Return whether recordings of their own tell of what child processes gained, for the most."""
    if not any(not r.header.is_primary and r.measurements for r in case.run.recordings):
        return False
    read = case.track.known(gauge.CHILDREN_PSS)
    if not len(read):
        return False
    gained = _rise(case.track.gauge(gauge.CHILDREN_PSS)[read])
    left = _rise(case.unrecorded_children[read])
    return left < policy.MOST_SHARE * gained or left < policy.GROWTH_BYTES


def without_recorded_children(case: RunContext, findings: list[Finding]) -> list[Finding]:
    """Return findings without the sum over children, where each of them is judged by itself."""
    has_children = any(r.measurements for r in recorded_children(case.run))
    if case.recording.header.child is not None or not has_children:
        return findings
    trend = case.trend_of(*case.children_series(), policy.HARMLESS_BYTES)
    unrecorded_grow = trend.is_growing and trend.net_bytes >= policy.GROWTH_BYTES
    if not explain_children(case) or unrecorded_grow:
        return findings
    return [finding for finding in findings if finding.kind != "children"]


def without_what_is_replaced(children: Sequence[JudgedProcess]) -> list[JudgedProcess]:
    """Return children, cleared of what grows in workers that their pool replaces now and then.

    All that one gathered goes with it. As long as none gains more than those that went before, it
    is bounded. May be confused with processes that the program starts one after the other, a fold
    or a trial each: what grows in them is theirs, and kills the longest of them.
    """
    pooled = (each for each in children if each.header.target in _POOLED)
    alike = grouped(((each.header.parent, each.header.target), each) for each in pooled)
    cleared: dict[int, JudgedProcess] = {}
    for group in alike.values():
        replaced = [process for process in group if _has_successor(process, group)]
        if len(replaced) < policy.FEWEST_REPLACED:
            continue
        most = max(process.gained_in_all for process in replaced)
        for process in group:
            if process in replaced or process.gained_in_all <= policy.REPLACED_FACTOR * most:
                cleared[id(process)] = _cleared_of_growth(process, len(replaced))
    return [cleared.get(id(process), process) for process in children]


def _has_successor(process: JudgedProcess, group: Sequence[JudgedProcess]) -> bool:
    """Return whether a worker ended, and one that does the same began then."""
    end = process.case.recording.end
    if end is None or not end.time_s or not process.header.started:
        return False
    ended = process.header.started + end.time_s
    begun = [other.header.started - other.header.lived_s for other in group if other is not process]
    return any(-policy.CLOCKS_S <= began - ended <= policy.SUCCESSOR_SECONDS for began in begun)


def _cleared_of_growth(process: JudgedProcess, replaced: int) -> JudgedProcess:
    report = process.report
    if report.verdict not in (RunVerdict.LEAK, RunVerdict.INCONCLUSIVE):
        return process
    grown = [c for c in report.culprits if c.growth == "across" and c.severity is not Severity.NOTE]
    reason = f"goes with its process: {replaced} such processes were replaced meanwhile"
    cleared = [
        Cleared(
            name=c.name,
            path=c.path,
            reason=reason,
            kind=c.kind,
            total_bytes=c.total_bytes,
            signature=c.signature,
        )
        for c in grown
    ]
    left = msgspec.structs.replace(
        report,
        verdict=RunVerdict.CLEAN,
        culprits=[c for c in report.culprits if c not in grown],
        findings=[f for f in report.findings if f.severity is Severity.NOTE or f.kind in ENDINGS],
        missing=[],
        cleared=[*cleared, *report.cleared],
    )
    return _with_report(process, left)


def _with_report(process: JudgedProcess, report: Report) -> JudgedProcess:
    changed = copy.copy(process)
    object.__setattr__(changed, "report", report)
    return changed


def conclude_processes(main: JudgedProcess, children: Sequence[JudgedProcess]) -> Report:
    """Return one report of all processes: of the one that decides, with what grows in any."""
    every = [main, *(_in_words_of(main, child) for child in children)]
    deciding, verdict = _leading(every)
    others = [process for process in _worst_first(every) if process is not deciding]
    retained = [other.report.retained for other in others if other.report.retained is not None]
    notes = [*_notes(every, deciding), *main.report.notes]
    notes += [n for n in deciding.report.notes if n not in main.report.notes]
    return msgspec.structs.replace(
        deciding.report,
        verdict=verdict,
        culprits=_merged_culprits(every, deciding),
        findings=_merged_findings(every, deciding),
        missing=_missing(deciding) if verdict is RunVerdict.INCONCLUSIVE else [],
        processes=process_rows(every),
        process=deciding.label,
        odd_process=_odd(every),
        errors=main.report.errors,
        run=main.report.run,
        ranks=main.report.ranks,
        rank=main.report.rank if deciding is main else None,
        odd_rank=main.report.odd_rank,
        rank_courses=main.report.rank_courses,
        workers=[row for process in every for row in process.report.workers],
        cleared=_merged_cleared(every, deciding),
        out_of_memory=main.report.out_of_memory or deciding.report.out_of_memory,
        notes=notes,
        retained_elsewhere=[*deciding.report.retained_elsewhere, *retained][:MOST_ELSEWHERE],
    )


def _leading(every: list[JudgedProcess]) -> tuple[JudgedProcess, RunVerdict]:
    """Return the process that decides, and the verdict of the run."""
    main = every[0]
    leaking = [process for process in _worst_first(every) if process.is_serious]
    if leaking:
        return leaking[0], RunVerdict.LEAK
    if main.report.verdict is RunVerdict.OUT_OF_MEMORY:
        return main, RunVerdict.OUT_OF_MEMORY
    is_open = [p for p in every if p.report.verdict is RunVerdict.INCONCLUSIVE and p.decides]
    if is_open:
        return max(is_open, key=lambda p: p.gained), RunVerdict.INCONCLUSIVE
    clear = [p for p in every if p.report.verdict is RunVerdict.CLEAN]
    if clear:
        return max(clear, key=lambda p: p.worked), RunVerdict.CLEAN
    return max(every, key=lambda p: (p.worked, len(p.case.track))), RunVerdict.INCONCLUSIVE


def _worst_first(every: list[JudgedProcess]) -> list[JudgedProcess]:
    return sorted(every, key=lambda process: (-_grade(process), -_impact(process)))


def _grade(process: JudgedProcess) -> int:
    grades = [c.severity for c in process.report.culprits]
    grades += [f.severity for f in process.report.findings if f.kind not in ENDINGS]
    return max((-SEVERITY_ORDER[grade] for grade in grades), default=-len(SEVERITY_ORDER))


def _impact(process: JudgedProcess) -> float:
    named = [c.gained_bytes for c in process.report.culprits if c.severity is not Severity.NOTE]
    return max([*map(float, named), process.gained if process.is_serious else 0.0], default=0.0)


def _in_words_of(main: JudgedProcess, child: JudgedProcess) -> JudgedProcess:
    """Return a child; of a Manager's server what grows in it in the words of who uses it.

    There requests are served, so that no line of the program's runs; the objects are its own.
    """
    if child.header.target != MANAGER:
        return child
    known = managed_names(main.case.sources)
    culprits = [_of_manager(culprit, known) for culprit in child.report.culprits]
    return _with_report(child, msgspec.structs.replace(child.report, culprits=culprits))


def _of_manager(culprit: Culprit, known: list[Managed]) -> Culprit:
    if not culprit.path.startswith("multiprocessing."):
        return culprit
    alike = [each for each in known if each.kind == culprit.type] or known
    alike = [each for each in alike if each.filled_at] or alike
    is_single = len({each.name for each in alike}) == 1
    name = alike[0].name if is_single else "what the Manager keeps"
    made = [each.made_at for each in alike]
    filled = [place for each in alike for place in each.filled_at]
    remedy = Remedy(
        title="Bound or empty what the Manager keeps",
        text="What is put into a list, dict or queue of a Manager stays in its server until it is "
        "taken out, deleted or cleared.",
        advice="Take out or delete what is no longer needed.",
    )
    return msgspec.structs.replace(
        culprit,
        name=name,
        sentence=culprit.sentence.replace(culprit.name, name),
        fed_at=filled or made,
        defined_at=made[0] if made else culprit.defined_at,
        remedy=remedy,
    )


def _merged_culprits(every: list[JudgedProcess], deciding: JudgedProcess) -> list[Culprit]:
    """Return each culprit once, as the process has it in which it comes to most."""
    found = grouped(
        (c.signature, (process, c)) for process in every for c in process.report.culprits
    )
    merged = [_of_processes(same, every) for same in found.values()]
    merged.sort(
        key=lambda c: (SEVERITY_ORDER[c.severity], -c.gained_bytes, c.process != deciding.label)
    )
    return [msgspec.structs.replace(c, rank=n) for n, c in enumerate(merged, 1)]


def _of_processes(
    found: list[tuple[JudgedProcess, Culprit]], every: list[JudgedProcess]
) -> Culprit:
    found = sorted(found, key=lambda f: (SEVERITY_ORDER[f[1].severity], -f[1].gained_bytes))
    process, culprit = found[0]
    if len(found) == 1:
        where = f"It grows in {in_words(process)}."
    else:
        rates = [human_bytes(c.bytes_per_unit) for _, c in found]
        names = listed([each.label for each, _ in found[:4]])
        where = (
            f"It grows in {len(found)} of {plural(len(every), 'process')} ({names}"
            f"{' and others' if len(found) > 4 else ''}), by {', '.join(rates[:4])} per "
            f"{culprit.unit}."
        )
    return msgspec.structs.replace(
        culprit,
        sentence=f"{culprit.sentence} {where}".strip(),
        process=process.label,
        processes=[each.label for each, _ in found],
    )


def in_words(process: JudgedProcess) -> str:
    """Return ``child 2 of 2 (RolloutWorker.run, process 4711)``."""
    header = process.header
    if header.child is None:
        return f"the {MAIN}" if process.label == MAIN else process.label
    return f"{process.label} ({short_target(header)}, process {header.pid})"


def short_target(header: HeaderRecord) -> str:
    """Return the function that a child runs without its module where that is the program's own."""
    for home in ("__main__.", "__mp_main__."):
        if header.target.startswith(home):
            return header.target.removeprefix(home)
    return _KNOWN_TARGETS.get(header.target, header.target or header.name)


def _merged_findings(every: list[JudgedProcess], deciding: JudgedProcess) -> list[Finding]:
    """Return the findings of the process that leads, and of the others what counts for the run."""
    kept: list[Finding] = []
    for process in [deciding, *(other for other in every if other is not deciding)]:
        for finding in process.report.findings:
            is_grave = finding.kind in ENDINGS or finding.severity is not Severity.NOTE
            is_same = any(f.signature == finding.signature and f.kind == finding.kind for f in kept)
            if (process is deciding or is_grave) and not is_same:
                where = f"This is in {in_words(process)}."
                if finding.kind == "children":  # of those that the parent alone sees
                    where = "They are processes that don't record themselves."
                text = f"{finding.text} {where}"
                kept.append(msgspec.structs.replace(finding, text=text, process=process.label))
    return ranked(kept)


def ranked(findings: list[Finding]) -> list[Finding]:
    """Return findings with their ranks, the gravest first."""
    worst_first = sorted(findings, key=lambda f: SEVERITY_ORDER[f.severity])
    return [msgspec.structs.replace(f, rank=rank) for rank, f in enumerate(worst_first, 1)]


def _merged_cleared(every: list[JudgedProcess], deciding: JudgedProcess) -> list[Cleared]:
    known = {cleared_there.signature for cleared_there in deciding.report.cleared}
    grows = {culprit.signature for process in every for culprit in process.report.culprits}
    more = [
        msgspec.structs.replace(cleared, reason=f"{cleared.reason}, in {process.label}")
        for process in every
        if process is not deciding
        for cleared in process.report.cleared
        if cleared.signature not in known
    ]
    merged = [*deciding.report.cleared, *more[: policy.FEWEST_READINGS]]
    return [cleared for cleared in merged if cleared.signature not in grows]


def _missing(deciding: JudgedProcess) -> list[str]:
    where = f"the {MAIN}" if deciding.label == MAIN else deciding.label
    first, *others = deciding.report.missing or ["Nothing could be decided."]
    return [f"In {where}: {first}", *others]


def _notes(every: list[JudgedProcess], deciding: JudgedProcess) -> list[str]:
    main = every[0]
    notes = []
    if main.supervises:
        notes.append(
            f"The main process only supervises: its own memory rests, and "
            f"{plural(len(every) - 1, 'child process')} did the work."
        )
    if deciding is not main:
        notes.append(f"Ledger, timeline and phases are those of {in_words(deciding)}.")
    if odd := _odd(every):
        notes.append(odd)
    return notes


def _odd(every: list[JudgedProcess]) -> str:
    """Return a sentence on the child that differs from others of its kind, if one does."""
    alike = grouped((each.header.target, each) for each in every if each.header.child is not None)
    for same in alike.values():
        read = [process for process in same if len(process.case.working) >= policy.FEWEST_READINGS]
        most, *others = sorted(read, key=lambda process: -process.gained) or same
        if len(read) < len(same) or not others or most.gained < policy.HARMLESS_BYTES:
            continue
        if most.gained >= policy.OUTLIER_FACTOR * others[0].gained:
            return (
                f"{most.label[:1].upper()}{most.label[1:]} leaves the others' course: its memory "
                f"gained {human_bytes(most.gained)}, that of the others "
                f"{human_bytes(others[0].gained)} at most."
            )
    return ""


def process_rows(every: Sequence[JudgedProcess]) -> list[ProcessMemory]:
    """Return a row for each process, the main one first, and one for what isn't recorded."""
    main, run = every[0], every[0].case.run
    by_pid = {(process.header.host, process.header.pid): process for process in every}
    rows = [_row(main, main)]
    for recording in recorded_children(run)[:MOST_LISTED]:
        header = recording.header
        process = by_pid.get((header.host, header.pid))
        if process is not None:
            rows.append(_row(process, main))
        else:
            _, sizes = proportional(recording)
            rows.append(_row_of(label_of(run, recording), run, recording, sizes))
    return [*rows, *_unrecorded_row(main)]


def _row(process: JudgedProcess, main: JudgedProcess) -> ProcessMemory:
    case, report = process.case, process.report
    known = np.flatnonzero(np.isfinite(case.private))
    sizes, times = case.private[known], case.track.time_s[known]
    later = case.recording.began_after(main.case.recording) or 0.0
    trend = case.pool
    serious = [c.name for c in report.culprits if c.severity is not Severity.NOTE]
    row = _row_of(process.label, case.run, case.recording, sizes)
    if process.header.child is None:
        command = report.run.script or " ".join(report.run.command)
        row = msgspec.structs.replace(row, runs=command)
    return msgspec.structs.replace(
        row,
        began_s=round(max(later, 0.0), 3),
        lasted_s=round(report.work.duration_s, 3),
        steps=report.work.steps,
        bytes_per_unit=trend.bytes_per_unit if trend.is_growing else 0.0,
        unit=trend.unit,
        verdict=report.verdict.value,
        decides=process.decides,
        supervises=process.supervises,
        grows=serious,
        places=[c.fed_at[0] for c in report.culprits if c.fed_at and c.name in serious],
        course=_course(times + later, sizes),
    )


def _row_of(label: str, run: Run, recording: Recording, sizes: FloatArray) -> ProcessMemory:
    header = recording.header
    return ProcessMemory(
        label=label,
        name=header.name,
        runs=short_target(header),
        pid=header.pid,
        parent=header.parent,
        start_method=header.start_method,
        first_bytes=int(sizes[0]) if len(sizes) else None,
        peak_bytes=int(sizes.max()) if len(sizes) else None,
        last_bytes=int(sizes[-1]) if len(sizes) else None,
        ended=_ended(run, recording),
    )


def _course(times: FloatArray, sizes: FloatArray) -> list[tuple[float, float]]:
    at = thinned(np.arange(len(times)), POINTS)
    return [(round(float(t), 3), float(s)) for t, s in zip(times[at], sizes[at], strict=True)]


def _unrecorded_row(main: JudgedProcess) -> list[ProcessMemory]:
    """Return a row for children that recorded nothing, if they held what is worth a word."""
    case = main.case
    read = case.track.known(gauge.CHILDREN_PSS)
    rest = case.unrecorded_children[read]
    if len(read) < policy.FEWEST_READINGS or float(rest.max(initial=0.0)) < policy.GROWTH_BYTES:
        return []
    return [
        ProcessMemory(
            label="not recorded",
            name="",
            runs="other child processes, all together",
            pid=0,
            is_recorded=False,
            first_bytes=int(rest[0]),
            peak_bytes=int(rest.max()),
            last_bytes=int(rest[-1]),
            course=_course(case.track.time_s[read], rest),
        )
    ]


def _ended(run: Run, recording: Recording) -> str:
    """Return how a process ended; a child without a closing record was terminated or killed."""
    header = recording.header
    if header.child is None:
        return how_it_ended(run, recording).text
    died = [e for r in run.recordings for e in r.process_ends if e.pid == header.pid]
    if died:
        code = died[-1].exit_code
        if -code in REQUESTS_TO_END:
            return f"terminated ({signal.Signals(-code).name})"
        return f"died by signal {-code}" if code < 0 else f"exit code {code}"
    if recording.end is None and not recording.goes_on:
        return KILLED_WITH
    return how_it_ended(run, recording).text
