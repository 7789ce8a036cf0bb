"""The verdict of a run and its first line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from leakscope.analysis.accounting.ledger import host_ledger, unexplained_bytes
from leakscope.analysis.accounting.native import growing_allocations
from leakscope.analysis.accounting.terms import (
    NextCollection,
    has_stopped_by_the_end,
    next_collection,
    unexplained_series,
)
from leakscope.analysis.columns.series import HOST
from leakscope.analysis.findings.unnamed import LEAK_OR_SHAPES_TITLE, tree_trend
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.exclusions import first_touch
from leakscope.analysis.growth.search import SearchResult
from leakscope.analysis.processes.children import MAIN, explain_children
from leakscope.analysis.processes.endings import (
    ENDINGS,
    EXCEPTION,
    Ending,
    how_all_ended,
)
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.cleared import Undecided, most_of_named
from leakscope.analysis.verdict.wording import listed, per_event
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind
from leakscope.model.device import OutOfMemory
from leakscope.model.record import UNRECORDED_CHILDREN
from leakscope.model.report import (
    Cleared,
    Culprit,
    Finding,
    Ledger,
    PiledUp,
    RunVerdict,
    Severity,
    Work,
)
from leakscope.model.text import clipped, human_bytes, human_count, plural
from leakscope.model.trend import Reason

LONGEST_NAME = 160
"""Characters of a name in the first line; in a key of a dict a whole text may stand."""
LONGEST_BEGINNING = 300
"""Characters of a finding's text in the first line, its first sentence apart."""
LOOP_SECONDS = 20
"""Seconds of a program without a loop that was found, within which enough censuses are taken."""
LOOP_STEPS = 50
"""Steps of a plain loop within which enough censuses are taken."""
_PHRASES_OF_TERMS = {
    "elsewhere": "libraries or native code hold",
    "named": "many names of the program hold, none of which grew by much",
    "slack": "is free in the C heap",
    "garbage": "awaits the collector",
    "pinned": "is page-locked",
    "unexplained": "has no name",
}
_GROWS = "emory grows"
_OF_MEMORY = frozenset(
    {
        *("unexplained", "leaked_references", "native_held", "gradient_cycle", "autograd_loop"),
        *("garbage", "collector_off", "collector_frozen"),
    }
)
"""Kinds of findings whose rate is one of bytes of the process."""
_COSTLY_KINDS = frozenset({"copy_on_write", "allocator_slack", "fragmentation", "garbage"})


def verdict_of(
    case: RunContext,
    growth: SearchResult,
    culprits: list[Culprit],
    findings: list[Finding],
    undecided: list[Undecided],
    filling: Sequence[Culprit] = (),
    ledgers: list[Ledger] | None = None,
) -> tuple[RunVerdict, list[str]]:
    """Return the verdict and, when it is inconclusive, what would settle it.

    ``filling`` are containers that the source bounds, which weren't full yet.
    """
    grades = [c.severity for c in culprits] + [f.severity for f in findings if _is_growth(f)]
    if any(grade is not Severity.NOTE for grade in grades):
        return RunVerdict.LEAK, []
    missing = [n.message for n in case.recording.notes if n.slug == UNRECORDED_CHILDREN]
    missing = missing or _too_little(case)
    if not missing:
        left = (
            _not_full(filling)
            or "".join(_open_row(case, row) for row in undecided[:1])
            or _unsettled(case, growth)
            or _missing_evidence(findings)
            or _children(case)
            or _unaccounted(case, growth, ledgers or [])
            or _into_what_was_free(case, growth)
        )
        missing = [left] if left else []
    return (RunVerdict.INCONCLUSIVE if missing else RunVerdict.CLEAN), missing


def _too_little(case: RunContext) -> list[str]:
    track = case.track
    if case.is_watched:
        return _too_few_readings(case) or _open_tree(case)
    if not len(track):
        return ["Nothing was recorded: did the program train at all?"]
    kinds = {boundary.kind for boundary in track.boundaries}
    is_whole = not (case.recording.damage or case.recording.errors)
    if is_whole and kinds <= {BoundaryKind.RUN_BEGIN, BoundaryKind.RUN_END}:
        return _no_training(how_all_ended(case.run, case.recording))
    if not case.table.censuses:
        if case.recording.errors:
            return ["No census of the heap could be taken; the report's errors say why."]
        return ["No census of the heap was taken: profile longer, or raise --budget."]
    if not case.track.has_gauge(case.host_metric):
        return ["The memory of the process could not be read, so that nobody can say it rests."]
    if unread := _unread_steps(case):
        return [unread]
    looks = int((case.table.at <= track.last_work).sum())
    is_seen = looks >= policy.FEWEST_READINGS or case.pool.is_bounded
    if is_seen and case.pool.reason is not Reason.TOO_FEW:
        return []
    if track.is_timed and track.time_s[-1] < LOOP_SECONDS:
        grown = _grown_most(case)
        so_far = f"; {grown} so far" if grown else ""
        enough = max(LOOP_SECONDS, math.ceil(2 * track.time_s[-1]))
        longer = f"let it run for {enough} s or more"
        return [f"The run was too short for a verdict{so_far}: {longer}."]
    if not track.is_timed and track.step[-1] < LOOP_STEPS:
        return [f"The run was too short to tell anything: profile at least {LOOP_STEPS} steps."]
    pause = max(census.pause_s for census in case.table.censuses)
    few = f"The heap was read only {plural(looks, 'time')}, because each reading takes"
    largest = _grown_most(case) or _largest(case)
    so_far = f"; {largest}" if largest else ""
    longer = f"allow longer pauses (--max-pause {max(1000, math.ceil(2 * pause) * 1000)})"
    return [f"{few} {pause:.1f} s{so_far}: profile longer, or {longer}."]


def _grown_most(case: RunContext) -> str:
    """Return which of the user's containers grew most between two looks, if by much, in words."""
    table, (_, private) = case.table, case.pool_series()
    # Of nodes that lie in each other, each counts all below it: more than there is, added up.
    limit = policy.REPLACED_FACTOR * float(np.ptp(private)) if len(private) else np.inf
    rises = {
        path: rise
        for path, values in enumerate(table.retained[HOST])
        if table.latest[path].user
        and len(known := values[np.isfinite(values)]) > 1
        and (rise := float(known[-1] - known[0])) <= limit
    }
    most = max(rises.values(), default=0.0)
    if most < policy.HARMLESS_BYTES:
        return ""
    # The innermost that has nearly all of it: what holds it grows with it.
    largest = [path for path, rise in rises.items() if rise >= policy.MAIN_SHARE * most]
    path = max(largest, key=lambda path: (len(table.ancestors(path)), rises[path]))
    return f"{clipped(table.latest[path].name, LONGEST_NAME)} grew by {human_bytes(rises[path])}"


def _largest(case: RunContext) -> str:
    rows = [row for row in case.table.latest if row.user and row.length is not None]
    row = max(rows, key=lambda row: (row.host_bytes, len(row.path)), default=None)
    if row is None or row.host_bytes < policy.HARMLESS_BYTES:
        return ""
    return f"{clipped(row.name, LONGEST_NAME)} was the largest, {human_bytes(row.host_bytes)}"


def _unread_steps(case: RunContext) -> str:
    """Return what is missing where memory was read in a small part of the work alone."""
    steps = case.track.step
    seen, done = int(steps[case.track.last_work]), int(steps[-1])
    if seen >= policy.MAIN_SHARE * done:
        return ""
    return (
        f"Memory was read up to step {seen} of {done}: profile longer, or mark the rest of the "
        "work (leakscope.profile())."
    )


def _not_full(filling: Sequence[Culprit]) -> str:
    """Return what is missing where something grew towards a bound in the source."""
    return "".join(
        f"{clipped(c.name, LONGEST_NAME)} grew by {human_bytes(c.gained_bytes)} towards its bound, "
        f"{c.remedy.bound}, and may not have reached it: profile until it stays as it is."
        for c in filling[:1]
    )


def _open_row(case: RunContext, row: Undecided) -> str:
    why = (
        "too unevenly to tell a leak from what rises and falls"
        if row.is_uneven
        else "too short a time to tell a leak from what fills once"
    )
    return (
        f"{clipped(row.name, LONGEST_NAME)} grew by {human_bytes(row.bytes)}, {why}: "
        f"{_further(case, _in_units(case, row))}."
    )


def _in_units(case: RunContext, row: Undecided) -> float | None:
    index = case.track.work
    if row.more_boundaries is None or index[-1] <= index[0]:
        return None
    return row.more_boundaries * case.unit.total / float(index[-1] - index[0])


def _further(case: RunContext, units: float | None) -> str:
    """Return what to do, in the run's own unit."""
    if units is None:
        return "profile ten times as long"
    return f"profile {plural(max(math.ceil(units), 1), f'more {case.unit.name}')}"


def _no_training(ended: Ending) -> list[str]:
    if ended.goes_on:
        return ["Nothing of its work was seen yet."]
    if how := ended.clause:
        seen = f"Nothing of its work was seen before {how}{'' if how.endswith('.') else '.'}"
        return [seen, "A run that gets to its work."]
    seen = (
        "The program ended too early for a verdict: no optimizer made a step, no DataLoader "
        f"was gone through, and by time alone it takes {LOOP_SECONDS} s."
    )
    return [
        seen,
        "Let it run longer, or say where its loop is: leakscope.profile() and scope.step().",
    ]


def _too_few_readings(case: RunContext) -> list[str]:
    known = len(case.gauge_series(case.host_metric)[1])
    if known >= policy.FEW_READINGS:
        return []
    taken = len(case.track.known(case.host_metric))
    if not taken:
        return ["The process ended before its memory could be read."]
    few = f"Only {plural(taken, 'reading')}"
    if 0 < known < taken:
        few += f", of which {known} count: it was beginning or ending at the others"
    return [f"{few}; watch longer, or read more often (--interval)."]


def _open_tree(case: RunContext) -> list[str]:
    trend = tree_trend(case)
    if trend.is_bounded or trend.net_bytes < policy.HARMLESS_BYTES:
        return []
    grew = f"Memory grew by {human_bytes(trend.net_bytes)}, too short a time"
    longer = "watch it for longer, or record it (leakscope run, leakscope attach)"
    return [f"{grew} to tell a leak from a warm-up: {longer}."]


def _unsettled(case: RunContext, growth: SearchResult) -> str:
    """Return what is missing when a short run grew much and nothing says why."""
    for term in growth.terms.values():
        # What many names hold has no finding: it is no leak without a name.
        if not term.may_grow and not (term.kind == "named" and term.grows):
            continue
        left = term.trend.net_bytes
        if term.kind == "garbage" and (following := next_collection(case)) is not None:
            return _until_collected(case, left, following)
        if term.kind == "named" and (largest := most_of_named(case, growth, left)) is not None:
            return _open_row(case, largest)
        return (
            f"Memory grew by {human_bytes(left)} that {_PHRASES_OF_TERMS[term.kind]}, too short a "
            f"time to tell a leak from a warm-up: {_further(case, term.trend.more_work)}."
        )
    return _little_without_name(case, growth)


def _little_without_name(case: RunContext, growth: SearchResult) -> str:
    """Return what is missing where little grows without a name, object by object.

    What is steady goes on. A leak of small objects costs many times their size, for each keeps the
    free block below it.
    """
    unnamed, slack = growth.terms.get("elsewhere"), growth.terms.get("slack")
    if unnamed is None or not unnamed.trend.is_growing or unnamed.excluded_by:
        return ""
    if has_stopped_by_the_end(case, unnamed):
        return ""
    kept = (
        f"libraries or native code keep {human_bytes(unnamed.trend.bytes_per_unit)} of new objects "
        f"per {case.unit.name}"
    )
    is_between = slack is not None and not (slack.trend.is_bounded or slack.excluded_by)
    if slack is not None and is_between and slack.trend.net_bytes > 0 and not case.pool.is_bounded:
        cost = unnamed.trend.net_bytes + slack.trend.net_bytes
        between = f"{kept}, and free memory lies between them"
        further = _further(case, case.pool.more_work)
        return f"Memory grew by {human_bytes(cost)}: {between}: {further}."
    return (
        f"{kept[0].upper()}{kept[1:]}, {human_bytes(unnamed.trend.net_bytes)} in all, too little "
        "to tell a leak from a cache: profile ten times as long."
    )


def _unaccounted(case: RunContext, growth: SearchResult, ledgers: list[Ledger]) -> str:
    """Return what is missing where most of what memory grew by is in nothing that has a name.

    It may rise and fall too unevenly for the growth model: nobody has seen it end.
    """
    host, term = host_ledger(ledgers), growth.terms.get("unexplained")
    if host is None or term is None or case.is_watched or case.pool.is_bounded:
        return ""
    grown = float(host.total_bytes)
    left = min(unexplained_bytes(ledgers), grown)
    if left < max(policy.NOTED_BYTES, policy.MOST_SHARE * grown):
        # Over the whole work, of which the ledger accounts for the last stretch.
        grown, left = (
            float(sizes[-1] - sizes[0]) if len(sizes) else 0.0
            for _, sizes in (case.pool_series(), unexplained_series(case, growth.growers))
        )
        is_little = left < max(policy.NOTEWORTHY_BYTES, policy.MOST_SHARE * grown)
        if term.trend.is_bounded or is_little:
            return ""
        left = min(left, grown)
    _, private = case.pool_series()
    scatter = float(np.median(np.abs(np.diff(private)))) if len(private) > 1 else 0.0
    if left < policy.SAMPLED_DEVIATIONS * scatter:
        return ""
    trend = msgspec.structs.replace(term.trend, net_bytes=left)
    if first_touch(case, replace(term, trend=trend), growth.growers):
        return ""
    handed_out = (gauge.MALLOC_IN_USE, gauge.MAPPED_ANONYMOUS, gauge.MAPPED_ARENAS)
    gains = [case.gauge_gain(name) for name in handed_out]
    gained = sum(max(gain or 0.0, 0.0) for gain in gains)
    if None not in gains and gained < policy.MOST_SHARE * left:
        return ""  # it is free in the C heap, whatever the moment at which that was read
    return (
        f"Memory grew by {human_bytes(grown)}, too unevenly to tell a leak from what "
        f"rises and falls, and {human_bytes(left)} of it has no name: "
        f"{_further(case, case.pool.more_work)}."
    )


def _into_what_was_free(case: RunContext, growth: SearchResult) -> str:
    """Return what is missing where a name grows by little, and sampled native allocations go on
    growing, while memory rests: the C heap holds so much free that they take none.
    """
    joined = {(native.file, native.line) for native in growth.native.values()}
    found = [n for n in growing_allocations(case) if (n.file, n.line) not in joined]
    if not found or not growth.growers or not case.pool.is_bounded:
        return ""
    _, free = case.gauge_series(gauge.MALLOC_FREE)
    most = found[0]
    if not policy.HARMLESS_BYTES <= most.gained_bytes <= free.max(initial=0.0):
        return ""
    place = f", called at {most.location}," if most.location else ""
    return (
        f"Native memory of {most.library}{place} grew by {human_bytes(most.gained_bytes)} (a "
        "sampled estimate), into what the C heap held free: profile ten times as long."
    )


def _until_collected(case: RunContext, left: float, following: NextCollection) -> str:
    """Return what is missing where nobody has seen whether the collector frees what waits."""
    after = plural(max(math.ceil(following.further_work), 1), f"more {case.unit.name}")
    return (
        f"Memory grew by {human_bytes(left)} of objects in circles, which the collector visits "
        f"only after about {after}, at {human_bytes(following.garbage_bytes)}: call gc.collect() "
        f"at the end of each {case.unit.name}, or profile with --probe-cleanup; what goes on "
        "growing then is a leak."
    )


def _children(case: RunContext) -> str:
    """Return what is missing where nobody can tell whether child processes grow, though they did.

    What workers and children gain that record themselves is left to their own recordings, unless
    there are ever more.
    """
    has_recorded = any(not recording.header.is_primary for recording in case.run.recordings)
    if has_recorded and (not _become_more(case) or explain_children(case)):
        return ""
    done, sizes = case.children_series()
    trend = case.trend_of(done, sizes, policy.HARMLESS_BYTES)
    if not len(sizes) or trend.reason is Reason.RELEASED:
        return ""
    work = case.work_done[case.working]
    is_read_to_the_end = done[-1] - done[0] >= policy.MAIN_SHARE * (work[-1] - work[0])
    gained = min(_gained_by_as_many(case), trend.net_bytes + trend.gained_before)
    # What grows steadily up to where it was read last is no import of a child's.
    least = policy.NOTEWORTHY_BYTES if trend.is_growing else policy.LARGE_BYTES
    if (trend.is_bounded and is_read_to_the_end) or gained < least:
        return ""
    return (
        f"Child processes held up to {human_bytes(float(sizes.max()))}, {human_bytes(gained)} more "
        f"than at first, too short a time to tell a leak from a warm-up: "
        f"{_further(case, trend.more_work)}."
    )


def _gained_by_as_many(case: RunContext) -> float:
    """Return how much more than at first as many child processes held later, or ever more did."""
    count, in_use = (case.track.gauge(name) for name in (gauge.CHILDREN, gauge.CHILDREN_PSS))
    known = case.working[np.isfinite(in_use[case.working]) & (count[case.working] > 0)]
    if not len(known):
        return 0.0
    number, sizes = count[known], in_use[known]
    alike = sizes if _become_more(case) else sizes[number <= number[0]]
    return float(alike.max() - sizes[0])


def _become_more(case: RunContext) -> bool:
    """Return whether the number of child processes rises, as far as is known."""
    counted = case.gauge_trend(gauge.CHILDREN, policy.COUNT_NOISE)
    rises = counted.points >= policy.FEWEST_READINGS and counted.interval[0] > 0
    return rises and not counted.is_bounded


def _missing_evidence(findings: list[Finding]) -> str:
    """Return what is missing when growth may as well be a library's cache by shape."""
    found = next((f for f in findings if f.title == LEAK_OR_SHAPES_TITLE), None)
    if found is None:
        return ""
    return (
        f"Memory grew by {human_bytes(found.total_bytes)} without a name while new shapes of "
        "tensors were met all along, for each of which libraries keep something: run it again with "
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY=1 and batches of one shape; what grows then is a leak."
    )


def headline(
    verdict: RunVerdict,
    culprits: list[Culprit],
    findings: list[Finding],
    missing: list[str],
    work: Work,
    ended: OutOfMemory | None = None,
    *,
    processes: int = 1,
    earlier: str = "",
) -> str:
    """Return the verdict in a sentence; how memory ended the run comes first.

    ``processes`` is of how many it is, where children recorded themselves; ``earlier`` is what
    memory gained before it came to rest.
    """
    if verdict is RunVerdict.LEAK:
        accusation = _accusation(culprits, findings)
        return accusation if ended is None else f"{_where_it_ended(ended)} {accusation}"
    if ended is not None:
        return f"{ended.sentence} {_blame(ended)}"
    did = _did(work)
    if processes > 1 and verdict is RunVerdict.CLEAN:
        costs = _costs(findings, is_clean=True)
        return f"No leak found in {plural(processes, 'process')}, {did} in the busiest.{costs}"
    if verdict is RunVerdict.INCONCLUSIVE:
        return f"Inconclusive after {did}. {missing[0]}{_costs(findings, is_clean=False)}"
    return f"No leak found in {did}.{earlier}{_costs(findings, is_clean=True)}"


def earlier_growth(case: RunContext, cleared: list[Cleared]) -> str:
    """Return what memory gained before it came to rest, as a further sentence; empty if little."""
    if case.pool.reason is not Reason.STOPPED:
        return ""
    done, sizes = case.pool_series()
    kept = np.minimum.accumulate(sizes[::-1])[::-1]
    # The last reading may be the top of a tooth: the level is what the last third keeps.
    level = float(kept[done >= done[0] + policy.LATE_SHARE * (done[-1] - done[0])][0])
    grown = level - float(kept[0])
    if grown < policy.NOTEWORTHY_BYTES:
        return ""
    step = max(policy.GAUGE_NOISE_BYTES, policy.STEP_SHARE * grown)
    rests_from = float(done[np.argmax(kept >= level - step)])
    bounded = [each for each in cleared if each.kind == "bounded"]
    most = max(bounded, key=lambda each: each.total_bytes, default=None)
    is_most = most is not None and most.total_bytes >= policy.MOST_SHARE * grown
    which = f", most of it {clipped(most.name, LONGEST_NAME)}" if most and is_most else ""
    until = f"{case.unit.name} {human_count(math.ceil(rests_from))}"
    if case.unit.name == "minute" and rests_from < 1:
        until = f"second {math.ceil(60 * rests_from)}"
    return f" Memory grew by {human_bytes(grown)} until {until}{which}, and is flat since."


def _costs(findings: list[Finding], *, is_clean: bool) -> str:
    costly = [f for f in findings if f.kind in _COSTLY_KINDS]
    most = max(costly, key=lambda f: f.total_bytes, default=None)
    if most is None or most.total_bytes < policy.COSTLY_BYTES:
        return ""
    introduction = "No leak, but large" if is_clean else "Large as well"
    return f" {introduction}: {_inner(most.title)} ({human_bytes(most.total_bytes)})."


def _where_it_ended(ended: OutOfMemory) -> str:
    """Return where memory ran out; with a leak its figures are no part of the first line."""
    if ended.cause != EXCEPTION:
        return ended.sentence
    return f"{ended.sentence.partition(': ')[0]}."


def _also(findings: list[Finding]) -> str:
    return f" Also: {', '.join(_inner(f.title) for f in findings)}." if findings else ""


def _accusation(culprits: list[Culprit], findings: list[Finding]) -> str:
    serious = [c for c in culprits if c.severity is not Severity.NOTE]
    diagnosed = [f for f in findings if f.severity is not Severity.NOTE and _is_growth(f)]
    heaviest = max(diagnosed, key=lambda f: f.share, default=None)
    leads = bool(serious) and heaviest is not None and _outweighs(heaviest, serious)
    if leads or not serious:
        first = heaviest if leads and heaviest is not None else diagnosed[0]
        where = f" in {first.process}" if first.process not in ("", MAIN) else ""
        text = f"{_as_first_words(first)}{where}. {_beginning(first.text)}"
        if leads:
            return f"{text} {plural(len(serious), 'smaller culprit')} below."
        if any(f.kind == "deep_graph" for f in diagnosed):  # it has nothing to do with the others
            text += _also(diagnosed[1:])
        by_event = first.per_event
        is_missing = by_event and by_event.is_by_event and by_event.text not in text
        return f"{text} {by_event.text}" if by_event and is_missing else text
    text = _describe(serious[0])
    text += _also(diagnosed)
    alike = [c for c in serious[1:] if _are_fed_alike(c, serious[0])]
    if alike:
        rate = sum(culprit.bytes_per_unit for culprit in serious[:1] + alike)
        text += (
            f" The same line feeds {len(alike)} more: "
            f"{human_bytes(rate)} per {serious[0].unit} in all."
        )
    if further := len(serious) - 1 - len(alike):
        text += f" {plural(further, 'more culprit')} below."
    return text


def _outweighs(finding: Finding, culprits: list[Culprit]) -> bool:
    """Return whether most of the growth is a finding's, several times that of all culprits."""
    named = sum(culprit.share for culprit in culprits)
    little = policy.LITTLE_SHARE * finding.share
    return finding.share >= policy.MOST_SHARE and named < little


def _are_fed_alike(left: Culprit, right: Culprit) -> bool:
    """Return whether one line feeds two culprits, by the same work and in the same processes."""

    def how(culprit: Culprit) -> tuple[object, ...]:
        processes = (*culprit.processes, culprit.process, culprit.workers)
        return culprit.fed_at[:1], culprit.growth, culprit.unit, *processes

    return bool(left.fed_at) and how(left) == how(right)


def _beginning(text: str) -> str:
    """Return the first sentence of a text, and those after it that a first line has room for."""
    sentences = text.removesuffix(".").split(". ")
    taken = sentences[:1]
    for sentence in sentences[1:]:
        if sum(map(len, taken)) + len(sentence) > LONGEST_BEGINNING:
            break
        taken.append(sentence)
    return ". ".join(taken) + "."


def _is_growth(finding: Finding) -> bool:
    """Whether a finding is about growth: that memory ran out is no leak by itself."""
    return finding.kind not in ENDINGS


def _blame(ended: OutOfMemory) -> str:
    if not ended.names and not ended.components:
        return "What was live, no census shows."
    most = next(iter(ended.names), None)
    if most is None or most.bytes < policy.LITTLE_SHARE * (ended.live_bytes or 0):
        return "No name holds much of it."
    return f"Most was held by {clipped(most.name, LONGEST_NAME)}: {human_bytes(most.bytes)}."


def _as_first_words(finding: Finding) -> str:
    """Return a title as the first words of the answer, with the rate of memory where it has one."""
    rate = f" by {human_bytes(finding.bytes_per_unit)} per {finding.unit}"
    by_event = finding.per_event is not None and finding.per_event.is_by_event
    is_known = finding.kind in _OF_MEMORY and finding.bytes_per_unit > 0 and not by_event
    if not is_known or rate in _beginning(finding.text):
        rate = ""
    title = finding.title
    before, grows, after = title.partition(_GROWS)
    if grows:
        return f"{before}{grows}{rate}{after}"
    return f"Memory grows{rate}: {_inner(title)}"


def _inner(title: str) -> str:
    return title[0].lower() + title[1:]


def _describe(culprit: Culprit) -> str:
    name = clipped(culprit.name, LONGEST_NAME)
    place = f" ({culprit.fed_at[0]})" if culprit.fed_at else ""
    if not place and culprit.allocated_at:
        place = f" (allocated at {culprit.allocated_at[0]})"
    rate = _rate_of(culprit) + _in_processes(culprit)
    if culprit.in_ranks and not culprit.workers:
        rate += f" in {culprit.in_ranks}"
    if culprit.growth == "within":
        climb = f"{name} climbs by {rate}{place} to {human_bytes(culprit.total_bytes)}"
        if not culprit.falls_back:
            return f"Memory grows through {culprit.phase}: {climb}, and nothing shows it freed."
        return f"Memory peaks in {culprit.phase}: {climb} and is freed only when it ends."
    is_near = culprit.severity is Severity.CRITICAL and culprit.forecast
    ends = f"; {culprit.forecast.text}" if is_near and culprit.forecast else ""
    if culprit.piled_up is not None:
        return _describe_piled_up(culprit.piled_up, f"{name} keeps them and grows by {rate}{ends}")
    return f"Memory leaks: {name} grows by {rate}{_in_workers(culprit)}{place}{ends}."


def _describe_piled_up(piled_up: PiledUp, who_keeps: str) -> str:
    started = f", started at {piled_up.started_at[0]}" if piled_up.started_at else ""
    ever = " for ever" if piled_up.is_lost else ""
    waits = f" at {piled_up.waits_at[0]}" if piled_up.waits_at else ""
    who = f"{plural(piled_up.count, piled_up.kind)} of {piled_up.name}"
    return f"Memory leaks: {who} wait{ever}{waits}{started}; {who_keeps}."


def _rate_of(culprit: Culprit) -> str:
    """Return the rate per unit of work; where it grows with an event that comes first."""
    rate, by_event = f"{human_bytes(culprit.bytes_per_unit)} per {culprit.unit}", culprit.per_event
    if by_event is None or not by_event.is_by_event:
        return rate
    events = " and ".join(per_event(each) for each in by_event.rates if not each.is_work)
    return events if by_event.says_it_all else f"{events}, on average {rate}"


def _in_workers(culprit: Culprit) -> str:
    if not culprit.workers:
        return ""
    several = f"each of {culprit.workers} DataLoader workers"
    where = several if culprit.workers > 1 else "a DataLoader worker"
    return f" in {where}" + (f" of {culprit.in_ranks}" if culprit.in_ranks else "")


def _in_processes(culprit: Culprit) -> str:
    if len(culprit.processes) > 1:
        kind = "process" if MAIN in culprit.processes else "child process"
        return f" in each of {plural(len(culprit.processes), kind)}"
    return f" in {culprit.process}" if culprit.process and culprit.process != MAIN else ""


def _did(work: Work) -> str:
    counts = {"epoch": work.epochs, "step": work.steps, "validation": work.validations}
    parts = [plural(count, noun) for noun, count in counts.items() if count]
    return listed(parts) if parts else f"{work.duration_s:.1f} s"
