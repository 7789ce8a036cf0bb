"""The verdict of a run and its first line."""

from __future__ import annotations

from leakscope.analysis.case import GAUGE_NOISE_BYTES, Case
from leakscope.analysis.diagnoses.unexplained import UNTOLD, in_use
from leakscope.analysis.ending import ENDINGS, EXCEPTION, STILL_RUNNING, in_a_sentence
from leakscope.analysis.killed import how_all_ended
from leakscope.analysis.ledger import host_ledger
from leakscope.analysis.severity import MIB
from leakscope.analysis.shapes import Company, company_of
from leakscope.analysis.touching import may_be_touched_only
from leakscope.analysis.trends import FEWEST_POINTS, goes_on, is_growth
from leakscope.analysis.undecided import Undecided
from leakscope.analysis.unread_children import unread_children
from leakscope.model.boundary import BoundaryKind
from leakscope.model.printable import clipped
from leakscope.model.report import Culprit, Finding, Ledger, RunVerdict, Severity, Work
from leakscope.model.shortage import OutOfMemory
from leakscope.model.sizes import human_bytes, plural

UNSETTLED_BYTES = 64 * MIB
"""Growth without a name that leaves a short run undecided; half of it where it goes on and on."""
UNSETTLED_SHARE = 0.5
EVEN = 0.7
"""Holes in the C heap slow down as it settles: the last third brings less than this part."""
SHORT_POINTS = 8
LONGEST_NAME = 160
"""Characters of a name in the first line; in a key of a dict a whole text may stand."""
LOOP_STEPS = 50
"""Steps of a plain loop within which enough censuses are taken."""


def verdict_of(
    case: Case,
    culprits: list[Culprit],
    findings: list[Finding],
    ledgers: list[Ledger],
    undecided: list[Undecided],
) -> tuple[RunVerdict, list[str]]:
    """Return the verdict and, when it is inconclusive, what would settle it."""
    grades = [c.severity for c in culprits] + [f.severity for f in findings if _is_growth(f)]
    if any(grade is not Severity.NOTE for grade in grades):
        return RunVerdict.LEAK, []
    missing = _too_little(case) or _seen_too_seldom(undecided)
    missing = missing or _unsettled(case, ledgers) or _untold(findings)
    missing = missing or unread_children(case)
    return (RunVerdict.INCONCLUSIVE if missing else RunVerdict.CLEAN), missing


def _too_little(case: Case) -> list[str]:
    track = case.track
    if case.is_watched:
        return _too_few_readings(case)
    if not len(track):
        return ["Nothing was recorded: did the program train at all?"]
    if _never_trained(case):
        return _no_training(how_all_ended(case.run, case.recording))
    if not case.table.censuses:
        if case.recording.errors:
            return ["No census of the heap could be taken; the report's errors say why."]
        return ["No census of the heap was taken: profile longer, or raise --budget."]
    most = case.comparables.most
    if most >= FEWEST_POINTS:
        return []
    begun = max((track.begun(phase) for phase in track.phases), default=0)
    if begun > FEWEST_POINTS:
        wanted = "the budget paid for no more: profile longer, or raise --budget"
    elif begun > 1:
        wanted = f"profile at least {plural(FEWEST_POINTS + 1, 'epoch')}"
    else:
        wanted = f"profile at least {LOOP_STEPS} steps"
    text = (
        f"Only {plural(most, 'comparable boundary')} with a census; a leak can't be told from a "
        f"warm-up before there are four: {wanted}."
    )
    return [text]


def _seen_too_seldom(undecided: list[Undecided]) -> list[str]:
    return [
        f"{clipped(one.name, LONGEST_NAME)} grew by {human_bytes(one.bytes)} and was larger at "
        "each look, but no boundary was looked at often enough to tell a leak from a warm-up: "
        "profile longer, or raise --budget."
        for one in undecided[:1]
    ]


def _never_trained(case: Case) -> bool:
    """Whether the program began and ended with nothing between, as far as can be read."""
    kinds = {boundary.kind for boundary in case.track.boundaries}
    is_whole = not (case.recording.damage or case.recording.errors)
    return is_whole and kinds <= {BoundaryKind.RUN_BEGIN, BoundaryKind.RUN_END}


def _no_training(ended: str) -> list[str]:
    if ended == STILL_RUNNING:
        return ["No training loop was seen yet."]
    if how := in_a_sentence(ended):
        seen = f"No training loop was seen before {how}{'' if how.endswith('.') else '.'}"
        return [seen, "A run that gets to its training loop."]
    return [
        "No training loop was seen: no optimizer made a step and no DataLoader was gone through.",
        "leakscope.profile() tells of a loop of your own.",
    ]


def _too_few_readings(case: Case) -> list[str]:
    known = len(case.gauge_series(case.host_metric)[1])
    if known >= SHORT_POINTS:
        return []
    taken = len(case.track.known(case.host_metric))
    if not taken:
        return ["The process ended before its memory could be read."]
    few = f"Only {plural(taken, 'reading')}"
    if 0 < known < taken:
        few += f", of which {known} count: it was beginning or ending at the others"
    return [f"{few}; watch longer, or read more often (--interval)."]


def _unsettled(case: Case, ledgers: list[Ledger]) -> list[str]:
    """Return what is missing when a short run grew much and nothing says why."""
    host = host_ledger(ledgers)
    trend = case.gauge_trend(case.host_metric, GAUGE_NOISE_BYTES)
    if host is None or not is_growth(trend.verdict) or trend.points >= SHORT_POINTS:
        return []
    _, y = case.gauge_series(case.host_metric)
    on = goes_on(y)
    # What is free in the C heap and yet of no use to the next epoch is no warm-up either.
    even = on and 3 * (y[-1] - y[2 * len(y) // 3]) >= EVEN * (y[-1] - y[0])
    kinds = {"unexplained", "slack"} if even else {"unexplained"}
    left = sum(e.bytes for e in host.entries if e.kind in kinds)
    least = UNSETTLED_BYTES // (2 if on else 1)
    if left < least or left < UNSETTLED_SHARE * host.total_bytes:
        return []
    if may_be_touched_only(case, left):
        return []
    if company_of(case, left, in_use(host)) is Company.SHAPES:
        return []
    has = "has no name or is free in the C heap" if even else "has no name"
    text = (
        f"Memory grew by {human_bytes(host.total_bytes)}, of which {human_bytes(left)} {has}, "
        f"and the run is too short to tell a warm-up: profile twice as many {trend.unit}s."
    )
    return [text]


def _untold(findings: list[Finding]) -> list[str]:
    """Return what is missing when growth may as well be a library's cache by shape."""
    found = next((f for f in findings if f.title == UNTOLD), None)
    if found is None:
        return []
    text = (
        f"Memory grew by {human_bytes(found.total_bytes)} without a name while new shapes of "
        "tensors were met all along, for each of which libraries keep something: run it again with "
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY=1 and batches of one shape; what grows then is a leak."
    )
    return [text]


def headline(
    verdict: RunVerdict,
    culprits: list[Culprit],
    findings: list[Finding],
    missing: list[str],
    work: Work,
    ended: OutOfMemory | None = None,
) -> str:
    """Return the verdict in a sentence; how memory ended the run comes first."""
    if ended is not None:
        leaks = verdict is RunVerdict.LEAK
        if leaks:
            return f"{_where_it_ended(ended)} {_accusation(culprits, findings)}"
        return f"{ended.sentence} {_blame(ended)}"
    if verdict is RunVerdict.LEAK:
        return _accusation(culprits, findings)
    did = _did(work)
    if verdict is RunVerdict.INCONCLUSIVE:
        return f"Inconclusive after {did}. {missing[0]}"
    return f"No leak found in {did}."


def _where_it_ended(ended: OutOfMemory) -> str:
    """Return where memory ran out; beside a leak its figures are no part of the first line."""
    if ended.cause != EXCEPTION:
        return ended.sentence
    return f"{ended.sentence.partition(': ')[0]}."


def _accusation(culprits: list[Culprit], findings: list[Finding]) -> str:
    serious = [c for c in culprits if c.severity is not Severity.NOTE]
    diagnosed = [f for f in findings if f.severity is not Severity.NOTE and _is_growth(f)]
    if not serious:
        return f"{_leading(diagnosed[0].title)}. {diagnosed[0].text}"
    text = _says(serious[0])
    if diagnosed:
        text += f" Also: {', '.join(_inner(f.title) for f in diagnosed)}."
    if len(serious) > 1:
        text += f" {plural(len(serious) - 1, 'more culprit')} below."
    return text


def _is_growth(finding: Finding) -> bool:
    """Whether a finding speaks of growth: that memory ran out is no leak by itself."""
    return finding.kind not in ENDINGS


def _blame(ended: OutOfMemory) -> str:
    if not ended.names:
        return "What was live, no census shows."
    most = ended.names[0]
    return f"Most was held by {clipped(most.name, LONGEST_NAME)}: {human_bytes(most.bytes)}."


def _leading(title: str) -> str:
    """Return a title as the first words of the answer."""
    return title if "memory grows" in title.lower() else f"Memory grows: {_inner(title)}"


def _inner(title: str) -> str:
    """Return a title as it stands inside a sentence."""
    return title[0].lower() + title[1:]


def _says(culprit: Culprit) -> str:
    name = clipped(culprit.name, LONGEST_NAME)
    place = f" ({culprit.fed_at[0]})" if culprit.fed_at else ""
    rate = f"{human_bytes(culprit.bytes_per_unit)} per {culprit.unit}"
    rate += "" if culprit.workers else _in_ranks(culprit)
    if culprit.growth == "within":
        climb = f"{name} climbs by {rate}{place} to {human_bytes(culprit.total_bytes)}"
        if not culprit.falls_back:
            return f"Memory grows through {culprit.phase}: {climb}, and nothing shows it freed."
        return f"Memory peaks in {culprit.phase}: {climb} and is freed only when it ends."
    ends = f"; {culprit.forecast.text}" if _is_near(culprit) and culprit.forecast else ""
    return f"Memory leaks: {name} grows by {rate}{_in_workers(culprit)}{place}{ends}."


def _in_ranks(culprit: Culprit) -> str:
    return f" in {culprit.in_ranks}" if culprit.in_ranks else ""


def _in_workers(culprit: Culprit) -> str:
    if not culprit.workers:
        return ""
    several = f"each of {culprit.workers} DataLoader workers"
    where = several if culprit.workers > 1 else "a DataLoader worker"
    return f" in {where}" + (f" of {culprit.in_ranks}" if culprit.in_ranks else "")


def _is_near(culprit: Culprit) -> bool:
    return culprit.severity is Severity.CRITICAL


def _did(work: Work) -> str:
    parts = [
        plural(count, noun)
        for count, noun in (
            (work.epochs, "epoch"),
            (work.steps, "step"),
            (work.validations, "validation"),
        )
        if count
    ]
    if not parts:
        return f"{work.duration_s:.1f} s"
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
