"""A list of runs, as a page and with a line each for the terminal.

What it says of each run is taken from its ``report.json`` without reading all of that.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from html import unescape
from pathlib import Path, PurePath
from statistics import median_low
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import msgspec

from leakscope.model.documents import (
    COURSE_POINTS,
    HistoryStep,
    ListedCulprit,
    ListedRun,
    LiveLeak,
    RunHistory,
    RunLink,
    RunList,
    RunStatus,
)
from leakscope.model.gauge import CHILDREN_PSS, PSS
from leakscope.model.layout import AnswerCell, Column, Paper, Table, table_lines
from leakscope.model.report import REPORT_SCHEMA_VERSION, Culprit, Report, RunVerdict, Severity
from leakscope.model.text import one_line, plural
from leakscope.report import words
from leakscope.report.culprits import pieces_of
from leakscope.report.text import (
    MOMENT,
    course_words,
    humane_bytes,
    humane_duration,
    humane_moment,
    humane_rate,
    peaks_of,
    settled,
    sparkline,
)

_PLAUSIBLE = 1e18
"""No machine has so many bytes; what says so is no reading."""


_Points = list[tuple[float, float]]
"""Seconds and bytes."""


class UnreadableReportError(Exception):
    """A ``report.json`` can't be read; says why, as the end of a sentence."""


class _Suspect(msgspec.Struct):
    severity: Severity
    name: str = ""
    title: str = ""
    bytes_per_unit: float | None = None
    unit: str = ""
    workers: int = 0
    signature: str = ""


class _GrowthFields(msgspec.Struct):
    metric: str = ""
    bytes_per_unit: float | None = None
    unit: str = ""
    interval: tuple[float | None, float | None] | None = None

    @property
    def is_steady(self) -> bool:
        """Whether it surely rises, or surely falls."""
        low, high = self.interval or (None, None)
        return low is None or high is None or not low < 0 < high


class _Line(msgspec.Struct):
    metric: str = ""
    points: list[tuple[float | None, float | None]] = []

    @property
    def plausible(self) -> _Points:
        """What can be readings, in order."""
        known = [(x, y) for x, y in self.points if x is not None and y is not None]
        return sorted((x, y) for x, y in known if 0 <= y < _PLAUSIBLE)


class _Rank(msgspec.Struct):
    peak_bytes: float | None = None
    bytes_per_unit: float = 0.0
    unit: str = ""
    grows: list[str] = []


class _Timeline(msgspec.Struct):
    lines: list[_Line] = []


class _Facts(msgspec.Struct):
    script: str = ""
    created: float | None = None
    ending: str = ""
    environment: dict[str, Any] = {}


class _Work(msgspec.Struct):
    duration_s: float | None = None


class _ReportHead(msgspec.Struct):
    """The part of a report that a list needs; the decoder passes over the rest."""

    schema_version: int
    verdict: RunVerdict
    headline: str
    run: _Facts
    work: _Work
    growth: list[_GrowthFields] = []
    culprits: list[_Suspect] = []
    findings: list[_Suspect] = []
    timeline: _Timeline | None = None
    ranks: list[_Rank] = []
    out_of_memory: dict[str, Any] | None = None


class _Version(msgspec.Struct):
    schema_version: int


def read_listed(report: Path, *, name: str, path: str, page: str) -> ListedRun:
    """Return what a list says of the run that a ``report.json`` is about.

    Raises:
        UnreadableReportError: it is damaged, or a newer leakscope wrote it.

    """
    seen = _read_head(report)
    lines = seen.timeline.lines if seen.timeline else []
    points = _memory(lines)
    growth, unit = _growth(seen.growth)
    if growth is not None:
        growing = [r.bytes_per_unit for r in seen.ranks if r.grows and r.unit == unit]
        growth = max([growth, *growing])
    peaks = [r.peak_bytes for r in seen.ranks if r.peak_bytes is not None]
    grave = _grave(seen)
    return ListedRun(
        name=name,
        path=path,
        standing=RunStatus.REPORTED,
        page=page,
        verdict=seen.verdict,
        headline=seen.headline,
        ran_out_of_memory=seen.out_of_memory is not None,
        ended=seen.run.ending,
        script=seen.run.script,
        created=seen.run.created or 0.0,
        duration_s=seen.work.duration_s,
        top_culprit=grave[0] if grave else None,
        others=grave[1:],
        commit=str(seen.run.environment.get("commit", ""))[:12],
        growth_bytes_per_unit=growth,
        growth_unit=unit,
        peak_bytes=max([*points, *peaks], default=None),
        has_children=any(
            y > 0 for line in lines if line.metric == CHILDREN_PSS for _, y in line.plausible
        ),
        course=peaks_of(points, COURSE_POINTS),
    )


def _read_head(report: Path) -> _ReportHead:
    try:
        data = report.read_bytes()
        if msgspec.json.decode(data, type=_Version).schema_version > REPORT_SCHEMA_VERSION:
            raise UnreadableReportError("was written by a newer leakscope; update this one")
        return msgspec.json.decode(data, type=_ReportHead)
    except OSError as fault:
        raise UnreadableReportError(f"can't be read: {fault.strerror or fault}") from fault
    except (ValueError, RecursionError) as fault:
        raise UnreadableReportError(f"is damaged: {fault}") from fault


_MOST_SUSPECTS = 20


def _grave(seen: _ReportHead) -> list[ListedCulprit]:
    """Return what makes a run a leak, the gravest first."""
    return [
        ListedCulprit(
            name=suspect.name or suspect.title,
            bytes_per_unit=suspect.bytes_per_unit or 0.0,
            unit=suspect.unit,
            is_code=is_code,
            workers=suspect.workers,
            signature=suspect.signature,
        )
        for suspects, is_code in ((seen.culprits, True), (seen.findings, False))
        for suspect in suspects
        if suspect.severity is not Severity.NOTE
    ][:_MOST_SUSPECTS]


def _growth(growth: list[_GrowthFields]) -> tuple[float | None, str]:
    """Return the rate of the first gauge that was judged, with children's added, and its unit: 0
    where it may as well have fallen as risen.
    """
    if not growth:
        return None, ""
    first = growth[0]
    children = next((g for g in growth if g.metric == CHILDREN_PSS and g.unit == first.unit), None)
    added = children.bytes_per_unit if children is not None and children.is_steady else None
    if not first.is_steady and not added:
        return 0.0, first.unit
    if first.bytes_per_unit is None:
        return None, first.unit
    return first.bytes_per_unit + (added or 0.0), first.unit


def _memory(lines: list[_Line]) -> list[float]:
    """Return memory over the run by the first line that has any, with that of child processes."""
    known = [(line.metric, line.plausible) for line in lines]
    first = next((points for _, points in known if any(y > 0 for _, y in points)), [])
    by_metric = dict(known)
    beyond = _children_beyond(by_metric.get(CHILDREN_PSS, []), by_metric.get(PSS, []), first)
    times = [at for at, _ in beyond]
    added = [0.0, *(size for _, size in beyond)]
    return [size + added[bisect_right(times, at)] for at, size in first]


def _children_beyond(children: _Points, shares: _Points, own: _Points) -> _Points:
    """Return what child processes add from each moment on at which they were read.

    Pages that they share with this process lie in its own memory already: where its proportional
    memory was read together with theirs, only what both come to beyond that is added.
    """
    shared, times = dict(shares), [at for at, _ in own]
    found = []
    for at, size in children:
        place = bisect_right(times, at) - 1
        is_known = at in shared and place >= 0
        together = shared[at] + size - own[place][1] if is_known else size
        found.append((at, min(max(together, 0.0), size)))
    return found


MOST_PAGES = 20
"""More aren't linked: the newest of them are."""
_HEAD = 8192
"""Bytes of a page, in which it says what it is."""
_MOST_LOOKED_AT = 500


def comparisons_in(folders: Sequence[Path]) -> list[RunLink]:
    """Return the comparison pages that lie in some folders, the newest first."""
    pages: list[tuple[float, Path]] = []
    for folder in folders:
        with suppress(OSError):
            files = [page for page in sorted(folder.glob("*.html")) if page.is_file()]
            pages += [(page.stat().st_mtime, page) for page in files][:_MOST_LOOKED_AT]
    links = (_link_of(page) for _, page in sorted(pages, reverse=True))
    return [link for link in links if link is not None][:MOST_PAGES]


def _link_of(page: Path) -> RunLink | None:
    """Return the link to a page, None where it is no comparison of ours."""
    try:
        with page.open("rb") as stream:
            head = stream.read(_HEAD).decode("utf-8", "replace")
    except OSError:
        return None
    found = re.findall(r'<meta name="([^"]*)" content="([^"]*)">', head)
    metas = {name: unescape(content) for name, content in reversed(found)}
    runs = metas.get("leakscope-comparison")
    if metas.get("generator") != "leakscope" or not runs:
        return None
    return RunLink(label=f"{runs}, compared", page=str(page), sentence=metas.get("description", ""))


def live_leak_of(report: Report, now: float) -> LiveLeak | None:
    """Return what leaks by a verdict on a program that still runs; None of any other verdict."""
    culprit = words.leading_suspect(report)
    if report.verdict is not RunVerdict.LEAK or culprit is None:
        return None
    ahead = culprit.forecast if isinstance(culprit, Culprit) else None
    left = None if ahead is None else words.seconds_until_full(ahead, report.work)
    since = culprit.since if isinstance(culprit, Culprit) else None
    full_at = None if left is None else now + left
    return LiveLeak(
        headline=report.headline,
        when=words.live_words(since, full_at, now),
        name=culprit.name if isinstance(culprit, Culprit) else culprit.title,
        place=words.source_place(culprit),
        signature=culprit.signature,
        bytes_per_unit=culprit.bytes_per_unit,
        unit=culprit.unit,
        since=since,
        full_at=full_at,
        judged_at=now,
    )


def listed_live(run: ListedRun, leak: LiveLeak | None) -> ListedRun:
    """Return the entry of a run that goes on, with what leaks in it by now."""
    if leak is None:
        return run
    ended = ", ".join(filter(None, ["still running", leak.when]))
    culprit = ListedCulprit(
        name=leak.name,
        bytes_per_unit=leak.bytes_per_unit,
        unit=leak.unit,
        is_code=bool(leak.place),
        signature=leak.signature,
    )
    return msgspec.structs.replace(
        run,
        verdict=RunVerdict.LEAK,
        headline=leak.headline,
        top_culprit=culprit,
        ended=ended,
        remark="",
    )


STANDINGS = {
    RunStatus.RUNNING: "Still running",
    RunStatus.UNREPORTED: "No report yet",
    RunStatus.UNREADABLE: "Report unreadable",
}
WORST_FIRST = (RunVerdict.OUT_OF_MEMORY, RunVerdict.LEAK, RunVerdict.INCONCLUSIVE, RunVerdict.CLEAN)
GROWTH_MEANING = (
    "How fast all memory of the process and of its child processes grew. Up and down: it may as "
    "well have fallen in all, whatever grows in it; the lead culprit's own rate stands with it."
)
PEAK_MEANING = "The highest of the process and its child processes together."
SCALE_MEANING = (
    "Lines of memory of one script share a scale, from where its runs here usually begin, once "
    "started up, to their highest reading; where those are nearly alike they lie flat."
)
_LEAST_SPAN = 0.1
"""A sparkline is at least this part of its peak high: the noise of a steady run stays flat."""
_COUNTED: dict[RunVerdict | RunStatus, tuple[str, str]] = {
    RunVerdict.OUT_OF_MEMORY: ("ran out of memory", "ran out of memory"),
    RunVerdict.LEAK: ("leaks", "leak"),
    RunVerdict.INCONCLUSIVE: ("has too little evidence", "have too little evidence"),
    RunVerdict.CLEAN: ("is clean", "are clean"),
    RunStatus.RUNNING: ("is still running", "are still running"),
    RunStatus.UNREPORTED: ("has no report", "have no report"),
    RunStatus.UNREADABLE: ("has a report that can't be read", "have reports that can't be read"),
}


def summary_of(runs: Sequence[ListedRun]) -> str:
    """Return ``12 runs: 3 leak, 9 are clean.``, of a single one ``1 run: it leaks.``."""
    if len(runs) == 1:
        return f"1 run: it {_COUNTED[runs[0].verdict or runs[0].standing][0]}."
    counted = Counter((run.verdict or run.standing).value for run in runs)
    kinds = [(words, counted[kind.value]) for kind, words in _COUNTED.items()]
    parts = [f"{count} {words[count > 1]}" for words, count in kinds if count]
    return f"{plural(len(runs), 'run')}: {', '.join(parts)}." if parts else "There is no run yet."


def others_words(listed: RunList) -> str:
    """Return the sentence about folders that hold no run; empty where all do."""
    if not listed.others:
        return ""
    some = ", ".join(listed.others[:3]) + (", …" if len(listed.others) > 3 else "")
    if len(listed.others) == 1:
        return f"{some} holds no run."
    return f"{len(listed.others)} other folders hold no run: {some}."


Bounds = tuple[float, float]


def bounds_by_run(listed: RunList) -> list[Bounds]:
    """Return the values at the foot and at the top of each run's sparkline.

    Runs of one script share them, so that their lines compare; so do all forms of one program.
    """
    keys = ["" if listed.are_alike else PurePath(run.script).name for run in listed.runs]
    courses: dict[str, list[Sequence[float]]] = {key: [] for key in keys}
    for key, run in zip(keys, listed.runs, strict=True):
        if course := settled(run.course):
            courses[key].append(course)
    bounds = {key: _bounds_of(some) for key, some in courses.items()}
    return [bounds[key] for key in keys]


def _bounds_of(courses: Sequence[Sequence[float]]) -> Bounds:
    """Return the usual lowest value and the highest; a run broken off early has but low ones."""
    if not courses:
        return 0.0, 0.0
    low, high = median_low(map(min, courses)), max(map(max, courses))
    return low, max(high, low + _LEAST_SPAN * high)


def verdict_order(run: ListedRun) -> int:
    """Return the place of a run's verdict, the worst first."""
    return WORST_FIRST.index(run.verdict) if run.verdict else len(WORST_FIRST)


def label_of(run: ListedRun) -> str:
    """Return a run's verdict, or how far it has come where there is none."""
    if run.verdict is None:
        return STANDINGS[run.standing]
    return words.verdict_words(run.verdict, ran_out=run.ran_out_of_memory)


def ending_of(run: ListedRun) -> str:
    """Return how a run ended, if not by itself and its verdict doesn't say so."""
    return "" if run.ran_out_of_memory else run.ended


def rate_of_leading_culprit(culprit: ListedCulprit | None) -> str:
    """Return how fast what makes a run a leak grows; empty where that has no rate."""
    if culprit is None or not culprit.bytes_per_unit:
        return ""
    return words.rate_in_workers(culprit.bytes_per_unit, culprit.unit, culprit.workers)


def growth_words(run: ListedRun) -> str:
    """Return how fast memory grew in all: ``412 MiB per epoch``, or that it rose and fell."""
    if run.growth_bytes_per_unit is None:
        return "–"
    if not run.growth_bytes_per_unit:
        return "up and down"
    return humane_rate(run.growth_bytes_per_unit, run.growth_unit)


FEWEST_IN_A_HISTORY = 3
MOST_IN_A_HISTORY = 12
"""So many of the newest runs are shown."""
_MOVED = 1.05
"""Rates that differ by less are the same one."""
_TELLS = frozenset({RunVerdict.LEAK, RunVerdict.CLEAN})
"""A run with another verdict doesn't tell that something has stopped to grow."""


def histories_of(runs: Sequence[ListedRun]) -> list[RunHistory]:
    """Return what became of the first culprit of each script that has been run often enough.

    It is the lead of the newest run that has one.
    """
    by_script: dict[str, list[ListedRun]] = {}
    for run in sorted(runs, key=lambda run: run.created):
        if run.verdict is not None and run.script:
            by_script.setdefault(run.script, []).append(run)
    found = [_history(s, some) for s, some in by_script.items() if len(some) >= FEWEST_IN_A_HISTORY]
    return [history for history in found if history is not None]


def _history(script: str, runs: Sequence[ListedRun]) -> RunHistory | None:
    leading = (run.top_culprit for run in reversed(runs))
    culprit = next((c for c in leading if c and c.bytes_per_unit), None)
    if culprit is None:
        return None
    steps = [
        HistoryStep(
            name=run.name,
            commit=run.commit,
            created=run.created,
            bytes_per_unit=_rate_in(run, culprit),
        )
        for run in runs[-MOST_IN_A_HISTORY:]
    ]
    return RunHistory(
        script=script,
        culprit=culprit.name,
        is_code=culprit.is_code,
        unit=culprit.unit,
        steps=steps,
        sentence=_what_became(steps, culprit.unit),
    )


def _rate_in(run: ListedRun, culprit: ListedCulprit) -> float | None:
    """Return how fast a culprit grew in a run; 0 where it didn't, None where unknown."""
    trait = "signature" if culprit.signature else "name"
    for suspect in [run.top_culprit, *run.others] if run.top_culprit else []:
        if getattr(suspect, trait) == getattr(culprit, trait):
            return suspect.bytes_per_unit if suspect.unit == culprit.unit else None
    return 0.0 if run.verdict in _TELLS else None


def _what_became(steps: Sequence[HistoryStep], unit: str) -> str:
    known = [step for step in steps if step.bytes_per_unit is not None]
    if not known:
        return "No run tells its rate."
    grows = [bool(step.bytes_per_unit) for step in known]
    last, rate = known[-1], humane_rate(known[-1].bytes_per_unit or 0.0, unit)
    if not grows[-1]:
        began = next(n for n in range(len(grows), 0, -1) if grows[n - 1]) if any(grows) else 0
        return f"It no longer grows since {_called(known[began])}."
    if not all(grows):
        began = max(n for n, growing in enumerate(grows) if not growing) + 1
        where = "" if known[began] is last else f" in {last.name}"
        return f"It grows since {_called(known[began])}, by {rate}{where}."
    first = known[0].bytes_per_unit or 0.0
    now = last.bytes_per_unit or 0.0
    if max(first, now) <= _MOVED * min(first, now):
        return f"It grows in all of them, by {rate}."
    return (
        f"It grows in all of them: by {humane_rate(first, unit)} in {_called(known[0])}, by {rate} "
        f"in {_called(last)}."
    )


def _called(step: HistoryStep) -> str:
    return f"{step.name} (commit {step.commit})" if step.commit else step.name


_WIDTH, _HEIGHT = 120, 26


def runs_page(
    lists: Sequence[RunList], title: str, introduction: str, folder: PurePath
) -> SimpleNamespace:
    """Return the page of some lists; its links are relative to the folder that it lies in."""
    return SimpleNamespace(
        title=title,
        headline=summary_of([run for listed in lists for run in listed.runs]),
        introduction=pieces_of(introduction),
        lists=[
            SimpleNamespace(
                anchor=f"list-{number}",
                title=listed.title or listed.directory,
                rows=[
                    _run_row(run, folder, bounds)
                    for run, bounds in zip(listed.runs, bounds_by_run(listed), strict=True)
                ],
                links=[(link, href_of(link.page, folder)) for link in listed.links],
                others=others_words(listed),
                histories=[
                    _history_view(history, listed.runs, folder, f"history-{number}-{place}")
                    for place, history in enumerate(listed.histories, 1)
                ],
            )
            for number, listed in enumerate(lists, 1)
        ],
        data={"charts": {}, "copies": {}},
    )


def _history_view(
    history: RunHistory, runs: Sequence[ListedRun], folder: PurePath, anchor: str
) -> SimpleNamespace:
    pages = {run.name: run.page for run in runs if run.page}
    return SimpleNamespace(
        anchor=anchor,
        history=history,
        steps=[
            (step, href_of(pages[step.name], folder) if step.name in pages else "")
            for step in history.steps
        ],
        most=max((step.bytes_per_unit or 0.0 for step in history.steps), default=0.0),
        has_commits=any(step.commit for step in history.steps),
    )


def step_words(step: HistoryStep, unit: str) -> str:
    """Return how fast a culprit grew in a run."""
    if step.bytes_per_unit is None:
        return "unknown"
    return humane_rate(step.bytes_per_unit, unit) if step.bytes_per_unit else "doesn't grow"


def started_words(created: float, form: str = MOMENT) -> str:
    """Return when a run began, a dash where that is unknown."""
    return humane_moment(created, form) if created > 0 else "–"


def _run_row(run: ListedRun, folder: PurePath, bounds: Bounds) -> SimpleNamespace:
    return SimpleNamespace(
        run=run,
        href=href_of(run.page, folder) if run.page else "",
        sub=PurePath(run.script).name,
        verdict_order=verdict_order(run),
        remark=pieces_of(run.remark or ("" if run.top_culprit else run.headline)),
        spark=spark_of(run.course, bounds),
    )


def spark_of(course: Sequence[float], bounds: Bounds) -> SimpleNamespace | None:
    """Return the sparkline of a course between two amounts, or None where it has no two points."""
    if len(course) < 2:
        return None
    low, top = bounds
    span = top - low or 1.0
    places = [
        (_WIDTH * i / (len(course) - 1), 1 + (_HEIGHT - 2) * (1 - max(0.0, y - low) / span))
        for i, y in enumerate(course)
    ]
    line = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    area = f"{line}L{_WIDTH} {_HEIGHT}L0 {_HEIGHT}Z"
    return SimpleNamespace(line=line, area=area, label=course_words("Memory", course))


def href_of(page: str, folder: PurePath) -> str:
    """Return the address of a page for a link from a page in a folder."""
    # A colon in the first part would be taken for a scheme; quoted, it is a name like any other.
    relative = os.path.relpath(page, folder)
    try:
        return quote(os.fsencode(relative), safe="/")
    except UnicodeEncodeError:  # no name of a file
        return ""


SPARK = 12
MOST_LINKS = 5
"""So many comparisons are shown, the newest."""
_COLUMNS = (
    Column("verdict", number=False),
    Column("run", number=False, flexible=True, least=20),
    Column("when (UTC)", number=False, optional=3),
    Column("took", optional=1),
    Column("peak"),
    Column("memory", number=False, optional=2),
)
_WIDE = 100
_LONG, _SHORT = "%Y-%m-%d %H:%M", "%m-%d %H:%M"


def render_runs_text(listed: RunList, *, width: int = 100, color: bool = False) -> str:
    """Return the list for a terminal; without ``color`` it is plain text."""
    paper = Paper(width, color)
    lines = [summary_of(listed.runs), ""]
    scales = bounds_by_run(listed)
    rows = [_cells(run, paper, scale) for run, scale in zip(listed.runs, scales, strict=True)]
    headings, *shown = table_lines(Table(_COLUMNS, rows), width)
    lines += [paper.paint(headings, "muted")] if listed.runs else []
    for run, line in zip(listed.runs, shown, strict=True):
        verdict = run.verdict.value if run.verdict else "muted"
        label = len(label_of(run))
        lines.append(paper.paint(line[:label], verdict) + line[label:])
        about = _about(run, width - 2)
        lines += [paper.paint(paper.clip(about, "  "), "muted")] if about else []
    for history in listed.histories:
        rates = [step.bytes_per_unit or 0.0 for step in history.steps]
        drawn = sparkline(rates, len(rates), (0.0, max(rates)))
        head = f"{PurePath(history.script).name}, its last {len(rates)} runs: {history.culprit}"
        lines += ["", paper.clip(f"{one_line(head)}  {drawn}")]
        lines += paper.wrap(one_line(history.sentence), most=3)
    if any(run.has_children for run in listed.runs):
        lines += ["", *paper.wrap(f"peak: {PEAK_MEANING[0].lower()}{PEAK_MEANING[1:]}")]
    for link in listed.links[:MOST_LINKS]:
        lines += ["", *paper.wrap(one_line(f"{link.label}: {link.sentence}"), most=2)]
        place = os.path.relpath(link.page, listed.directory)
        lines += [paper.paint(paper.clip(one_line(place), "  "), "muted")]
    left = len(listed.links) - MOST_LINKS
    lines += ["", f"and {plural(left, 'more comparison')}"] if left > 0 else []
    others = others_words(listed)
    lines += ["", *paper.wrap(others)] if others else []
    return "\n".join(lines) + "\n"


def _cells(run: ListedRun, paper: Paper, bounds: Bounds) -> list[AnswerCell]:
    form = _LONG if paper.width >= _WIDE else _SHORT
    texts = (
        label_of(run),
        run.name,
        started_words(run.created, form),
        humane_duration(run.duration_s),
        humane_bytes(run.peak_bytes),
        sparkline(run.course, SPARK, bounds),
    )
    return [AnswerCell(text) for text in texts]


def _about(run: ListedRun, room: int) -> str:
    """Return what to look at first; how fast all memory grows where there is room for it."""
    if run.remark:
        return one_line(run.remark)
    if run.top_culprit is None:
        return ending_of(run)
    grown = f"all memory {growth_words(run)}" if run.growth_bytes_per_unit else ""
    parts = [run.top_culprit.name, rate_of_leading_culprit(run.top_culprit), ending_of(run)]
    text = one_line(" · ".join(filter(None, parts)))
    return f"{text} · {grown}" if grown and len(f"{text} · {grown}") <= room else text
