"""The words of the report: what a verdict, a kind of growth, a confidence, a part of device memory
is called.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence

from leakscope.analysis.accounting.phases import COMPONENT_NAMES
from leakscope.analysis.verdict.wording import per_event
from leakscope.model.comparison import (
    ANOTHER_SCRIPT,
    NOTABLE_DIFFERENCE,
    ChangeKind,
    Comparison,
    CulpritChange,
    Topic,
    ValueChange,
    WorkFact,
)
from leakscope.model.device import (
    DEFAULT_POOL,
    UNKNOWN_POOL,
    DeviceMemory,
    DeviceOwner,
    Figures,
    Slack,
)
from leakscope.model.explanation import (
    BlockClass,
    DeviceExplanation,
    Explanation,
    SnapshotComparison,
)
from leakscope.model.known import Nature, Recognised
from leakscope.model.report import (
    Answer,
    Culprit,
    Effect,
    Falsifier,
    Finding,
    Forecast,
    KindAnswer,
    KindOfGrowth,
    MetricGrowth,
    PeakSite,
    Problem,
    ProblemKind,
    RecompileCause,
    Remedy,
    Report,
    RunVerdict,
    Severity,
    Work,
)
from leakscope.model.text import one_line, plural
from leakscope.report.text import (
    humane_bytes,
    humane_interval,
    humane_rate,
    humane_share,
    humane_wait,
)

CAUSES = {
    RecompileCause.SHAPE: "another shape",
    RecompileCause.VALUE: "another value of Python's",
    RecompileCause.TYPE: "another type, device or form",
    RecompileCause.OBJECT: "another object",
    RecompileCause.LENGTH: "another length or other keys",
    RecompileCause.MODE: "another mode",
    RecompileCause.OTHER: "another guard",
}
"""What was new about a call that had a function compiled again."""
GAPS = "parts of the recording are lost; amounts and shares are of what could be read"
VERDICTS = {
    RunVerdict.LEAK: "Leak",
    RunVerdict.CLEAN: "No leak",
    RunVerdict.INCONCLUSIVE: "Not enough evidence",
    RunVerdict.OUT_OF_MEMORY: "Out of memory",
}
GROWTH_KINDS = {
    KindOfGrowth.LEAK: "Leak",
    KindOfGrowth.CACHE: "Cache that fills",
    KindOfGrowth.PEAK: "Peak of a phase",
    KindOfGrowth.FRAGMENTATION: "Fragmentation",
    KindOfGrowth.COPY_ON_WRITE: "Copy-on-write",
    KindOfGrowth.FILES: "Page cache and mapped files",
    KindOfGrowth.ALLOCATOR: "The C allocator's free memory",
    KindOfGrowth.GARBAGE: "Garbage",
    KindOfGrowth.CHILDREN: "Child processes",
    KindOfGrowth.DEVICE_CACHE: "A device's cache",
}
KIND_MEANINGS = {
    KindOfGrowth.LEAK: "Grows to the end of the run, and nothing bounds it.",
    KindOfGrowth.CACHE: "Has reached a bound, or will.",
    KindOfGrowth.PEAK: "Climbs through a phase and is freed at its end: it limits the batch size.",
    KindOfGrowth.FRAGMENTATION: "Free memory between live blocks.",
    KindOfGrowth.COPY_ON_WRITE: "Workers copy what they look at, once.",
    KindOfGrowth.FILES: "The kernel takes it back when it needs room.",
    KindOfGrowth.ALLOCATOR: "Freed by the program, not returned to the system.",
    KindOfGrowth.GARBAGE: "Unreachable, and waiting for the collector.",
    KindOfGrowth.CHILDREN: "In other processes than the main one.",
    KindOfGrowth.DEVICE_CACHE: "Free, and kept by torch to be used again.",
}
SECTIONS = {"ledger": "Ledger", "workers": "DataLoader workers"}
"""What shows a kind of growth that no single name does."""
ANSWERS = {
    Answer.YES: "Yes",
    Answer.NO: "No",
    Answer.UNDECIDED: "Not decided yet",
    Answer.NOT_MEASURED: "Not measured",
}
EFFECTS = {
    Effect.HELPS: "helps",
    Effect.LITTLE: "helps little",
    Effect.USELESS: "cannot help",
    Effect.UNDECIDED: "too few trials",
}
"""Whether a cleaning call helps."""
MARKS = {"leak": "✗", "out_of_memory": "✗", "clean": "✓", "inconclusive": "?"}
"""The sign before each verdict in plain text."""
LEAK_RAN_OUT = "Out of memory, leak"
SEVERITIES = {severity: severity.value.capitalize() for severity in Severity}
SEVERITY_MEANINGS = {
    Severity.CRITICAL: "If this goes on, the run reaches its memory limit.",
    Severity.WARNING: "Steady growth that is worth stopping.",
    Severity.NOTE: "Worth knowing; it doesn't make the run a leak.",
}
NOTED = "Noted, but too little in this run to be called a leak:"
"""Heading of culprits that are all notes."""
UNTRIED = "not tried in this run"
UNSTEADY = "no steady rate"
GROWTHS = {"across": "Across phases", "within": "Within a phase", "constant": "None"}
SHARES = {
    "across": "Share of the growth",
    "within": "Share of the phase's height",
    "constant": "Share of all tensors",
}
CHANGES = {kind: kind.value.capitalize() for kind in ChangeKind}
NOT_SEEN = "Not seen"
FIRST_SEEN = "First seen"
ONLY_THERE = "Only there"
UNSEEN = (ONLY_THERE, FIRST_SEEN, NOT_SEEN)
"""Word for a culprit that one run lacks where that is no change."""
MISSING = "missing"
"""Style of a change that isn't proven."""
REAL = (
    "A difference is real where the intervals of both rates don't overlap and the rates differ by "
    f"more than {humane_share(NOTABLE_DIFFERENCE)}."
)
WORST_FIRST = [*ChangeKind][::-1]
TERMS = {
    "retained": "What would be freed if this object went: itself and everything only it keeps.",
    "across": "Growth across phases: the same moment of the same phase is higher each time, "
    "so memory is never released.",
    "within": "Growth within a phase: it climbs while the phase lasts and falls back when it "
    "ends, so it drives the peak.",
    "falsifier": "The observation that would prove this verdict wrong.",
    "interval": "95 % confidence interval of the rate.",
    "ledger": "An account of where the growth went; its terms add up to the total.",
    "census": "A walk over the heap that lists what retains much memory, by name.",
    "segment": "A stretch of memory from the driver, cut into blocks.",
    "stuck": "Holes in segments that are in use: nothing returns them while a neighbour lives.",
    "pool": "A group of segments: a free block serves only requests of its stream, pool and size.",
    "PSS": "Proportional set size: as RSS, but a page that several processes share is divided "
    "among them, so that processes add up.",
    "RSS": "Resident set size: the memory of the process that is in RAM, shared pages included.",
    "boundary": "A moment that comes again: the end of a step, batch, validation or epoch. Memory "
    "is compared between boundaries of the same kind.",
    "baseline": "What the process held before its work began: the interpreter and its libraries.",
    "accumulations": "Lists, dicts and other containers of your program that collect items.",
    "code and libraries": "Functions, modules and classes, and what libraries keep for themselves.",
    "allocator slack": "Memory that the program freed and the C library keeps for its next "
    "objects. malloc_trim(0) would return some of it.",
    "severity": "Critical: memory runs out in this run, or in one ten times as long. Warning: "
    "it grows steadily. Note: too little to matter.",
    "pass": "One iteration of a DataLoader's workers over its data, usually one per epoch.",
    "signature": "The culprit's identity, which survives moved lines and later runs.",
}
_OF_DEVICES = ("stuck", "segment", "pool")
_OF_WORKERS = {"pass"}
METRICS = {
    "rss": "Process memory (RSS)",
    "pss": "Process memory (PSS)",
    "children_pss": "Child processes (PSS)",
    "private": "Process's own memory",
    "tree": "Process and children",
    "rss+children_pss": "Process (RSS) and children (PSS)",
    "pss+children_pss": "Process and children (PSS)",
    "allocated": "in live tensors",
    "reserved": "held by torch's allocator",
    "peak_allocated": "peak in tensors",
    "used": "in use by all processes",
    "outside": "beyond torch's allocator",
    "pinned_host": "Page-locked host memory",
}


def words_for(report: Report) -> dict[str, str]:
    """Return the terms to explain at the end of a report: not those of what it doesn't have."""
    absent = {*(() if report.devices else _OF_DEVICES), *(() if report.workers else _OF_WORKERS)}
    return {word: meaning for word, meaning in TERMS.items() if word not in absent}


def verdict_words(verdict: RunVerdict, *, ran_out: bool) -> str:
    """Return the name of a verdict; of a leak, whether the run ended out of memory."""
    return LEAK_RAN_OUT if ran_out and verdict is RunVerdict.LEAK else VERDICTS[verdict]


def problem_words(problem: Problem) -> str:
    """Return what went wrong as a sentence, without a traceback."""
    if problem.kind is not ProblemKind.OWN_SHORTAGE:
        return problem.message
    return f"no memory was left for it; what was measured before still counts. {problem.message}"


def count_words(culprits: Sequence[Culprit]) -> str:
    """Return how many culprits there are, and of what grows too little to matter: ``5, 1 note``."""
    notes = sum(culprit.severity is Severity.NOTE for culprit in culprits)
    serious = len(culprits) - notes
    return ", ".join([str(serious)] * bool(serious) + [plural(notes, "note")] * bool(notes))


_OWNERS = {
    "tensor": "data of tensors",
    "array": "data of arrays",
    "interpreter": "Python's objects",
    "leakscope": "leakscope itself",
}


def bookkeeper_words(site: PeakSite) -> str:
    """Return the source of a native memory figure: the library itself, or which objects."""
    return _OWNERS.get(site.owner, site.library)


def metric_words(metric: str) -> str:
    """Return the name of a gauge: ``cuda:0 in live tensors``."""
    device, _, gauge = metric.rpartition(".")
    return f"{device} {METRICS.get(gauge, gauge)}".strip()


_UNITS_OF_TIME = frozenset({"second", "minute", "hour"})


def growth_words(growth: str, phase: str, unit: str, *, falls_back: bool = True) -> str:
    """Return what growth across or within means for this phase, as a sentence."""
    stretch = phase or unit or "phase"
    if growth == "within" and not falls_back:
        return f"Climbs through the {stretch} phase; nothing shows it falling back."
    if growth == "within":
        return f"Climbs through each {stretch} phase and falls back when it ends."
    if growth == "constant":
        return "The same amount each time."
    if unit in _UNITS_OF_TIME:
        return "Kept: grows with time, and nothing releases it."
    return f"Kept: grows from {unit or stretch} to {unit or stretch}, and nothing releases it."


def share_words(share: float, growth: str) -> str:
    """Return ``72 % of the growth``, or of the phase's height where growth falls back."""
    whole = "the phase's height" if growth == "within" else "the growth"
    return f"{humane_share(share)} of {whole}"


def evidence(suspect: Culprit | Finding) -> str:
    """Return the evidence for a verdict: ``it grew through 14 readings``."""
    if not suspect.readings:
        return "it was seen, not measured over time"
    return f"it grew through {plural(suspect.readings, 'reading')}"


def wait_words(forecast: Forecast, work: Work) -> str:
    """Return the time until the limit: ``some 11 hours away at this pace``; empty if unknown."""
    left = seconds_until_full(forecast, work)
    return "" if left is None else f"some {humane_wait(left)} away at this pace"


def live_words(since: float | None, full_at: float | None, now: float) -> str:
    """Return ``since 14:05, full in 9 hours``, by the clock of this machine, as far as known."""
    form = "%H:%M" if since is None or now - since < DAY_SECONDS else "%b %d, %H:%M"
    began = "" if since is None else f"since {time.strftime(form, time.localtime(since))}"
    is_ahead = full_at is not None and now < full_at < now + FAR_SECONDS
    ends = f"full in {humane_wait(full_at - now)}" if full_at is not None and is_ahead else ""
    return ", ".join(filter(None, [began, ends]))


DAY_SECONDS = 86400.0
FAR_SECONDS = 366 * DAY_SECONDS
"""What is full in years isn't worth a word."""


def seconds_until_full(forecast: Forecast, work: Work) -> float | None:
    """Return how long memory lasts at the pace so far; None where that is unknown."""
    left = forecast.seconds_left
    if left is None:
        counts = {"step": work.steps, "epoch": work.epochs, "validation": work.validations}
        done = counts.get(forecast.unit, 0)
        left = forecast.units_left * work.duration_s / done if done else 0.0
    return left if 0 < left < math.inf else None


def tried_words(falsifier: Falsifier | None) -> str:
    """Return the result of testing a verdict; empty where no test is known."""
    return (falsifier.result or UNTRIED) if falsifier else ""


def source_place(suspect: Culprit | Finding) -> str:
    """Return the line to look at first: what feeds it, else where it is defined."""
    places = [*suspect.fed_at, suspect.defined_at or "", *suspect.allocated_at]
    return next((place for place in places if place), "")


def known_words(known: Recognised) -> str:
    """Return the origin of a known culprit: ``Known fault of transformers 5.8.0``."""
    nature = "fault" if known.nature is Nature.FAULT else "behaviour"
    return f"Known {nature} of {known.library} {known.version}".rstrip()


def known_line(known: Recognised) -> str:
    """Return what is known of a culprit, with the source, in a line."""
    return f"{known_words(known)}: {known.title}. {known.link}"


def is_address(link: str) -> bool:
    """Return whether a link may be followed: an address of the web that closes no markup."""
    return re.fullmatch(r"https?://[^\s<>\"'()]+", link) is not None


def leading_suspect(report: Report) -> Culprit | Finding | None:
    """Return what makes the run a leak: the first grave culprit, else the first grave finding."""
    suspects: list[Culprit | Finding] = [*report.culprits, *report.findings]
    return next((s for s in suspects if s.severity is not Severity.NOTE), None)


def ending_words(report: Report) -> str:
    """Return how the program ended, if not by itself and the headline doesn't say so."""
    how = report.run.ending
    if not how or report.out_of_memory is not None or how in report.headline:
        return ""
    return f"{how[0].upper()}{how[1:]}{'' if how.endswith('.') else '.'}"


def advice_of(remedy: Remedy) -> str:
    """Return what a remedy says to do, without its account of what grows where."""
    return remedy.advice or remedy.text


def further_evidence(report: Report) -> list[str]:
    """Return what would settle the run, without what its headline already says."""
    return [text for text in report.missing if text not in report.headline]


SLOWER_WALKER = "the slower one in Python, which says less: leakscope doctor tells why"


def walker_words(walker: str) -> str:
    """Return the walker of a run and, for the fallback, what the native one lacks."""
    if walker != "reference":
        return walker
    return (
        "reference, because no native one is installed: it is slower, and reports no other "
        "holders of what grows, no cycles that keep garbage and no parts of tensors that are "
        "never read; the memory of Arrow, ctypes and io.StringIO has no name."
    )


def platform_words(environment: Mapping[str, str]) -> str:
    """Return what isn't measured on the platform of a run; empty on Linux."""
    name = environment.get("platform", "")
    if not name or name.startswith("Linux"):
        return ""
    system = name.partition(" ")[0]
    return (
        f"{system}: memory that processes share, what malloc keeps free, native allocations, "
        "control groups and kills for memory aren't reported, so the ledger is shorter."
    )


def has_gaps(report: Report) -> bool:
    """Return whether parts of a recording are lost: more than the end that a kill cuts off."""
    return any(problem.kind is ProblemKind.GAP for problem in report.errors)


def outcome_of(comparison: Comparison) -> tuple[str, str]:
    """Return the outcome of a change: the verdict for its colours, and a word."""
    leak, clean, unclear = RunVerdict.LEAK, RunVerdict.CLEAN, RunVerdict.INCONCLUSIVE
    verdicts = (comparison.before_verdict, comparison.after_verdict)
    grave = [c for c in comparison.culprits if c.severity is not Severity.NOTE]
    changes = {c.change for c in grave if not is_missing(c)}
    is_open = comparison.after_verdict is unclear or any(map(is_missing, grave))
    outcomes = (
        (comparison.is_another_program, unclear, ANOTHER_SCRIPT),
        (verdicts == (leak, clean) and not is_open, clean, "Fixed"),
        (verdicts == (clean, clean) and not grave, clean, "No leak"),
        (changes & {ChangeKind.NEW, ChangeKind.WORSE}, leak, "Worse"),
        (changes == {ChangeKind.UNCHANGED}, leak, "Unchanged"),
        (ChangeKind.UNCHANGED in changes, unclear, "Partly fixed"),
        (ChangeKind.REDUCED in changes, unclear, "Reduced"),
        (is_open, unclear, "Not settled"),
        (ChangeKind.FIXED in changes, clean, "Fixed"),
        (True, unclear, "No difference"),
    )
    return next((verdict.value, word) for applies, verdict, word in outcomes if applies)


def is_missing(change: CulpritChange) -> bool:
    """Return whether a culprit is missing from one run where that is no change."""
    return change.is_elsewhere or change.is_unproven


def change_word(change: CulpritChange) -> str:
    """Return a word for the change of a culprit."""
    if not is_missing(change):
        return CHANGES[change.change]
    if change.change is not ChangeKind.NEW:
        return NOT_SEEN
    return ONLY_THERE if change.is_elsewhere else FIRST_SEEN


def change_style(change: CulpritChange) -> str:
    """Return the style of a culprit's change: never the one for fixed where it isn't."""
    return MISSING if is_missing(change) else change.change.value


def missing_rate(change: CulpritChange) -> str:
    """Return the text in place of a rate for a run that lacks the culprit."""
    return "not seen" if is_missing(change) else "no growth"


def worst_first(changes: Sequence[CulpritChange]) -> list[CulpritChange]:
    """Return changes as they are shown: notes last, what is new or worse before what is fixed."""
    return sorted(changes, key=lambda c: (c.severity is Severity.NOTE, WORST_FIRST.index(c.change)))


def rate_words(suspect: Culprit | Finding) -> str:
    """Return ``7.4 MiB per pass``, and in how many workers at once.

    A finding may be about memory that goes up and down: where its interval reaches to both sides of
    zero, no number is its rate.
    """
    low, high = suspect.interval
    if isinstance(suspect, Finding) and low < 0 < high:
        return UNSTEADY
    workers = suspect.workers if isinstance(suspect, Culprit) else 0
    return rate_in_workers(suspect.bytes_per_unit, one_line(suspect.unit), workers)


def on_device(device: str) -> str:
    """Return `` on cuda:0``; nothing of the host."""
    return "" if device == "host" else f" on {one_line(device)}"


def event_words(suspect: Culprit | Finding | MetricGrowth) -> str:
    """Return ``18 MiB per save (31 saves)`` where it grows with an event rather than with work."""
    by_event = suspect.per_event
    if by_event is None or not by_event.is_by_event:
        return ""
    return one_line(" and ".join(per_event(rate) for rate in by_event.rates if not rate.is_work))


def whole_rate_words(suspect: Culprit | Finding) -> str:
    """Return the rate, that of the event that it grows with before it."""
    by_event = suspect.per_event
    if by_event is not None and by_event.says_it_all:
        return event_words(suspect)
    return ", ".join(filter(None, [event_words(suspect), rate_words(suspect)]))


def rate_in_workers(bytes_per_unit: float, unit: str, workers: int) -> str:
    """Return ``7.4 MiB per pass in each of 2 workers``; without workers the rate alone."""
    rate = humane_rate(bytes_per_unit, unit)
    if workers < 2:
        return rate + " in a worker" * workers
    return f"{rate} in each of {workers} workers"


def significance_words(change: CulpritChange | ValueChange) -> str:
    """Return whether a difference is real; empty for what has no interval."""
    culprit = change if isinstance(change, CulpritChange) else None
    if change.significant is None or (culprit and culprit.is_elsewhere):
        return ""
    if change.significant:
        return "not certain" if culprit and culprit.doubt else "real"
    before, after = change.before_interval, change.after_interval
    if before and after and (before[1] < after[0] or after[1] < before[0]):
        return f"at most {humane_share(NOTABLE_DIFFERENCE)}"
    return "within the noise"


def headline_after(word: str, headline: str) -> str:
    """Return a comparison's headline as it stands next to its word: not ``Fixed · Fixed: …``."""
    return headline.removeprefix(f"{word}: ")


def undecided(comparison: Comparison) -> list[str]:
    """Return a sentence for each thing that can't be distinguished from noise, and why."""
    parts = [f"{change.name}: {change.doubt}." for change in comparison.culprits if change.doubt]
    return parts + [_within_noise(value) for value in comparison.growth if is_noise(value)]


def same_work_words(facts: Sequence[WorkFact]) -> str:
    """Return what was compared and found alike: ``250 steps, 5 epochs, 650 batches, …``."""
    work = [f for f in facts if f.topic is Topic.WORK and f.matters and not f.differs]
    counts = [_counted(fact) for fact in work if fact.after not in {"0", ""}]
    others = [f for f in facts if f.topic is Topic.ENVIRONMENT and not f.differs and f.before]
    versions = [f"{plural(len(others), 'fact')} of the environment"] if others else []
    return ", ".join([*counts, *versions])


def _counted(fact: WorkFact) -> str:
    """Return ``5 epochs``, and ``1 process`` where the name is that of several."""
    singular = {"steps": "step", "epochs": "epoch", "validations": "validation",
                "processes": "process", "ranks": "rank"}  # fmt: skip
    return f"{fact.after} {singular.get(fact.name, fact.name) if fact.after == '1' else fact.name}"


def is_noise(value: ValueChange) -> bool:
    """Return whether a rate seems to have changed, but not by more than its intervals."""
    return value.significant is False and is_notable(value.before_bytes, value.after_bytes)


def is_notable(before: float | None, after: float | None) -> bool:
    """Return whether two amounts are known and count as different."""
    if before is None or after is None:
        return False
    return abs(after - before) > NOTABLE_DIFFERENCE * max(abs(before), abs(after))


def _within_noise(value: ValueChange) -> str:
    before = rate_with_interval(value.before_bytes, value.unit, value.before_interval)
    after = rate_with_interval(value.after_bytes, value.unit, value.after_interval)
    return (
        f"{metric_words(value.name)}: {before} before and {after} after lie within each other's "
        "noise."
    )


def rate_with_interval(rate: float | None, unit: str, interval: tuple[float, float] | None) -> str:
    """Return ``2 MiB per step (1.9 to 2.1 MiB)``."""
    return humane_rate(rate, unit) + (f" ({humane_interval(interval)})" if interval else "")


def together_words(report: Report) -> str:
    """Return ``5 % of the growth; all 25 culprits grow by 341 KiB per step`` for the first."""
    suspect = leading_suspect(report)
    if not isinstance(suspect, Culprit) or suspect.growth != "across":
        return ""
    part = share_words(suspect.share, suspect.growth) if suspect.share else ""
    rate = rate_together(report)
    whole = f"all {len(_growing(report))} culprits grow by {rate}" if rate else ""
    return "; ".join(filter(None, [part, whole]))


def rate_together(report: Report) -> str:
    """Return ``341 KiB per step``, by which several culprits grow; empty where that is unknown.

    Rates are added up where all count the same unit on the same device, in a single process, and
    no two culprits share what they hold.
    """
    grown = _growing(report)
    alike = len({(c.unit, c.device) for c in grown}) == 1
    apart = not any(
        c.growth != "across" or c.workers or c.also_held_by or c.leak_share_bytes or c.rates_by_rank
        for c in grown
    )
    if len(grown) < 2 or not alike or not apart:
        return ""
    return humane_rate(sum(c.bytes_per_unit for c in grown), one_line(grown[0].unit))


def _growing(report: Report) -> list[Culprit]:
    return [c for c in report.culprits if c.severity is not Severity.NOTE]


ROLES = COMPONENT_NAMES | {
    "workspace": "workspaces of libraries",
    "private_pool": "private pools",
    "pending": "freed, still waited for",
    "unexplained": "unexplained",
}
SHOWN_PARTS = 3


def role_words(role: str) -> str:
    """Return the name of a component, or of what only the allocator knows."""
    return ROLES.get(role, role.replace("_", " "))


def owner_words(owner: DeviceOwner) -> str:
    """Return the name of an owner, or the kind of memory where it has none."""
    return owner.name or f"({role_words(owner.role)})"


def device_line(device: DeviceMemory) -> str:
    """Return ``cuda:0: 12 GiB live of 15 GiB reserved after step 40 of train: …``."""
    reserved, live, cached, stuck, _ = map(humane_bytes, sums_of(device.figures))
    named = [row for row in device.roles if row.role != "unexplained"][:SHOWN_PARTS]
    parts = [f"{role_words(row.role)} {humane_share(row.share)}" for row in named]
    parts.append(f"{humane_share(1.0 - device.explained_share)} unexplained")
    return (
        f"{device.device}: {live} live of {reserved} reserved {device.moment}: "
        f"{', '.join(parts)}; {cached} cached, {stuck} stuck in holes"
    )


BLOCK_CLASSES = {
    BlockClass.WEIGHTS: "Weights",
    BlockClass.GRADIENTS: "Gradients",
    BlockClass.OPTIMIZER: "Optimizer state",
    BlockClass.ACTIVATIONS: "Made in a forward pass",
    BlockClass.BACKWARD: "Made in a backward pass",
    BlockClass.WORKSPACE: "Workspaces",
    BlockClass.COMMUNICATION: "Communication buffers",
    BlockClass.PENDING: "Freed, still waited for",
    BlockClass.OTHER: "Other tensors",
    BlockClass.UNKNOWN: "Unknown",
}
SLACKS = {
    Slack.TIDY: "Tidy",
    Slack.CACHE: "Cache",
    Slack.FRAGMENTATION: "Holes",
    Slack.BOTH: "Holes and cache",
}
CHANGED = {
    "live": "More live",
    "fragmentation": "More holes",
    "cache": "More cache",
    "less": "Less",
    "nothing": "The same",
}
SUMS = ("Reserved", "Live", "Cache", "Stuck in holes", "Largest free block")
"""Sums of a device or pool, as its tables show them."""


def sums_of(figures: Figures) -> list[int]:
    """Return the sums of a device or pool, by the names in :data:`SUMS`."""
    return [
        figures.reserved,
        figures.active,
        figures.cached + figures.releasable,
        figures.stuck - figures.releasable,
        figures.largest_hole,
    ]


ALLOCATOR_TERMS = {
    "reserved": "What the allocator took from the driver: nearly what nvidia-smi shows.",
    "live": "Reserved and in use: tensors, workspaces, and frees that a stream waits for.",
    "cache": "Wholly free segments: empty_cache() returns them to the driver.",
    **{word: TERMS[word] for word in _OF_DEVICES},
    "peak": "The moment of the history at which most was live, played back entry by entry.",
}


def verdict_of(explanation: Explanation) -> tuple[str, str]:
    """Return the verdict for a snapshot's colours, and a word for it."""
    if not explanation.devices:
        return "clean", "Empty"
    faults = [device.fault for device in explanation.devices if device.fault is not None]
    if faults:
        fragmented = any(fault.is_fragmentation for fault in faults)
        return "leak", "Fragmentation" if fragmented else "Capacity"
    severities = {f.severity for device in explanation.devices for f in device.findings}
    if Severity.CRITICAL in severities:
        return "leak", "Leak"
    slack = main_device(explanation).slack
    if slack in (Slack.FRAGMENTATION, Slack.BOTH):
        return "inconclusive", SLACKS[slack]
    if Severity.WARNING in severities:
        return "inconclusive", "Warning"
    return "clean", SLACKS[slack]


def main_device(explanation: Explanation) -> DeviceExplanation:
    """Return the device that matters most: one that ran out of memory, else the fullest."""
    failed = [d for d in explanation.devices if d.fault is not None]
    return max(failed or explanation.devices, key=lambda device: device.figures.reserved)


def devices_in_order(explanation: Explanation) -> list[DeviceExplanation]:
    """Return the devices, the one that matters most first."""
    if not explanation.devices:
        return []
    main = main_device(explanation)
    return [main, *(device for device in explanation.devices if device is not main)]


def comparison_verdict(comparison: SnapshotComparison) -> tuple[str, str]:
    """Return the verdict for the colours of several snapshots, and a word for what happened."""
    if not comparison.devices:
        return "clean", "Empty"
    order = list(CHANGED)
    change = min(comparison.devices, key=lambda d: (order.index(d.kind), -d.figures[-1].reserved))
    alarming = change.kind == "fragmentation" or change.is_leak is True
    calm = change.kind in ("cache", "less", "nothing") or change.is_leak is False
    kind = "leak" if alarming else "clean" if calm else "inconclusive"
    return kind, CHANGED.get(change.kind, change.kind)


def group_words(stream: int, pool: tuple[int, int], *, is_small: bool) -> str:
    """Return ``stream 0, default pool, large blocks``."""
    private = f"{'CUDA graphs' if pool[0] else 'private pool'} ({pool[0]}, {pool[1]})"
    known = {DEFAULT_POOL: "default pool", UNKNOWN_POOL: "outside any segment"}
    blocks = "small blocks" if is_small else "large blocks"
    number = stream if stream < 1 << 16 else hex(stream)
    return f"stream {number}, {known.get(pool, private)}, {blocks}"


def subject_words(device: DeviceExplanation) -> str:
    """Return the moment that is shown."""
    return "just before the failure" if device.subject == "fault" else "at the end of the file"


def other_kinds(kinds: Sequence[KindAnswer]) -> dict[str, list[str]]:
    """Return the kinds of growth that a run doesn't show, by the answer in words."""
    found: dict[str, list[str]] = {}
    for kind_answer in kinds:
        if kind_answer.answer in (Answer.NO, Answer.NOT_MEASURED):
            name = _inner(GROWTH_KINDS[kind_answer.kind])
            found.setdefault(ANSWERS[kind_answer.answer], []).append(name)
    return found


def kind_lines(kinds: Sequence[KindAnswer]) -> list[str]:
    """Return ``leak: yes, 12 MiB (history)`` of each kind that applies; then the others."""
    lines = []
    for kind_answer in kinds:
        if kind_answer.answer in (Answer.YES, Answer.UNDECIDED):
            size = f", {humane_bytes(kind_answer.bytes)}" if kind_answer.bytes is not None else ""
            subject = f" ({one_line(kind_answer.subject)})" if kind_answer.subject else ""
            name = _inner(GROWTH_KINDS[kind_answer.kind])
            lines.append(f"{name}: {_inner(ANSWERS[kind_answer.answer])}{size}{subject}")
    others = other_kinds(kinds).items()
    return [*lines, *(f"{_inner(answer)}: {', '.join(names)}" for answer, names in others)]


def _inner(name: str) -> str:
    """Return a name in lower case, as inside a sentence."""
    return name[0].lower() + name[1:]
