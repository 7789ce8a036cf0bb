"""The report: what was concluded about a run. Encoded as is, it is ``report.json``."""

from __future__ import annotations

from enum import Enum

import msgspec

from leakscope.model.boundary import SERVED
from leakscope.model.device import DeviceMemory, OutOfMemory
from leakscope.model.known import Recognised
from leakscope.model.run import Retained
from leakscope.model.trend import TrendVerdict


class Effect(str, Enum):
    """Whether a call is worth anything here."""

    HELPS = "helps"
    LITTLE = "little"
    USELESS = "useless"
    UNDECIDED = "undecided"
    """Too few trials."""


class Cure(msgspec.Struct, frozen=True, kw_only=True):
    """One cleaning call over all its trials. Sizes are medians over the trials, in bytes."""

    call: str
    effect: Effect
    sentence: str
    times: int
    seconds: float
    """Median time that the call itself took."""
    objects: int | None = None
    """Unreachable objects found; only of a collection."""
    host_bytes: int = 0
    """Freed for this process, or returned to the system."""
    device_bytes: dict[str, int] = {}
    """Freed or returned, per device."""
    taken_again_bytes: int = 0
    """The part of what was returned that the program had taken again by the next trial."""


class Cures(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the usual cleaning calls help in this run and which don't, as measured."""

    sentence: str
    cures: list[Cure] = []
    remarks: list[str] = []
    """What could not be tried, and why."""


class RankMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One rank, by its own recording."""

    rank: int
    host: str = ""
    pid: int = 0
    steps: int
    first_bytes: int | None = None
    """Memory of the process at its first reading, at its highest and at its last."""
    peak_bytes: int | None = None
    last_bytes: int | None = None
    bytes_per_unit: float = 0.0
    """How fast its memory grows."""
    unit: str = ""
    grows: list[str] = []
    """Names of what grows in it."""
    ended: str = ""
    began: float = 0.0
    """When it was first measured at work, in seconds since the epoch."""
    late_s: float = 0.0
    """How much later than the first rank that was; 0 where they began together."""


class RankAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One of several times that a launcher started all ranks."""

    number: int
    """From 1, in the order in which they began."""
    ranks: int
    steps: int
    began_s: float
    """Seconds after the first attempt."""
    duration_s: float
    ended: str
    is_judged: bool
    """Whether the report is about it."""


class RankCourse(msgspec.Struct, frozen=True, kw_only=True):
    """Memory by step of one rank, or of the middle of many."""

    label: str
    points: list[tuple[float, float]]
    """Steps and bytes."""


class OddRank(msgspec.Struct, frozen=True, kw_only=True):
    """The rank whose memory was the first to diverge from that of the others."""

    rank: int
    step: int
    """From which on its memory diverges."""
    bytes: int
    """How much more than the median of the others at the end, or where a rank ended early; negative
    if less."""
    sentence: str


class WorkerMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a DataLoader, by its own recording."""

    loader: int
    """Number of the DataLoader in its process, from 1."""
    worker: int
    rank: int = 0
    pid: int
    generation: int = 0
    """How often its loader had started workers before."""
    start_method: str = ""
    batches: int
    """Fetched while it was recorded."""
    prefetch: int = 0
    """How many batches it may have loaded ahead."""
    batch_bytes: int | None = None
    """The largest of those that were looked at."""
    pss_bytes: int | None = None
    """Highest; shared pages are divided among those who map them."""
    private_first_bytes: int | None = None
    """Memory of its own at the first reading, and at the last."""
    private_last_bytes: int | None = None
    written_last_bytes: int | None = None
    """Of the last, pages that it wrote to: the kernel can't drop them and read them again."""
    grows: list[str] = []
    """Names of what grows in it."""
    copies: list[str] = []
    """Names of what it inherited and copies by looking at it."""


class ProcessMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the run by its own recording, where it has child processes that record."""

    label: str
    """``main process``, ``child 2 of 2``, ``not recorded``."""
    name: str = ""
    """What the program calls it, such as ``SpawnPoolWorker-1``."""
    runs: str = ""
    """The function that it runs, or its command."""
    pid: int
    parent: int = 0
    start_method: str = ""
    is_recorded: bool = True
    began_s: float = 0.0
    """Seconds into the run at which its recording began."""
    lasted_s: float = 0.0
    steps: int = 0
    first_bytes: int | None = None
    """Memory of its own at its first reading, at its highest and at its last."""
    peak_bytes: int | None = None
    last_bytes: int | None = None
    bytes_per_unit: float = 0.0
    """How fast its memory grows in the end; 0 where it doesn't."""
    unit: str = ""
    verdict: str = ""
    """As if it had been alone; empty where it was not judged."""
    decides: bool = True
    """Whether that counts for the run: an open verdict of a process whose memory rests doesn't."""
    supervises: bool = False
    """Whether it did no work of its own, its children did."""
    grows: list[str] = []
    """Names of what grows in it."""
    places: list[str] = []
    """Lines that feed them."""
    ended: str = ""
    course: list[tuple[float, float]] = []
    """Seconds into the run, and bytes."""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A census as it was taken: when, how much of the heap it walked, and what that cost."""

    time_s: float
    boundary: int
    phase: str
    step: int
    scope: str
    """``full``, or ``focused``: what the user's own names reach."""
    objects: int
    rows: int
    pause_s: float
    """How long the whole process stood still."""
    whole: bool = False
    """Of a full one: whether it walked every object, rather than going on from what was sealed."""
    requested: bool = msgspec.field(name="asked", default=False)
    """Whether the user requested it, so that it belongs to no series."""


class Gauged(msgspec.Struct, frozen=True, kw_only=True):
    """A gauge and how often it was read."""

    metric: str
    unit: str
    """``bytes``, ``count`` or ``microseconds``."""
    meaning: str
    readings: int
    lowest: float
    highest: float
    last: float


class CensusCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the heap the censuses of a run have seen."""

    taken: int = 0
    """Censuses that are listed in the recording, those that the user requested left out."""
    full: int = 0
    """Of them, how many saw the whole heap."""
    whole: int = 0
    """Of the full ones, how many walked every object; others went on from what was sealed."""
    weighed: int = 0
    """Of the others, how many weighed all that is new since the first."""
    postponed_by_budget: int = 0
    """How often a kind of boundary had to wait for its census because of the budget."""
    left_out_by_pause: int = 0
    """Censuses that were not taken because each would have paused the program for too long."""
    made_cheaper_by_pause: int = 0
    """Censuses that looked at less for the same reason."""
    checked: int = 0
    """How often a whole walk was held against a census that goes on from the seal."""
    largest_drift_bytes: int | None = None
    """By how many bytes the two differed at most, in a sum or in a row; None where none was
    checked. Where they differ, what the whole walk found is used."""


class Overhead(msgspec.Struct, frozen=True, kw_only=True):
    """What leakscope cost, measured by itself."""

    wall_share: float
    peak_bytes: int
    seconds: dict[str, float] = {}
    censuses: int = 0
    boundaries: int = 0
    recorded_boundaries: int = 0
    longest_pause_s: float = 0.0
    longest_pause: str = ""
    """The census that took it: ``focused``, ``full``, or ``whole`` where it walked every object."""
    max_pause_s: float | None = None
    """The pause that a census may make, the first and the last apart."""
    census_coverage: CensusCoverage = CensusCoverage()
    budget: float | None = None
    walker: str = ""
    """``native``, or ``reference``: the slower one of an installation without a compiler."""
    put_off: dict[str, int] = {}
    """How often what was due waited for a later boundary, by what the program was inside of:
    ``torch.jit.trace``, say, which records what Python does meanwhile."""
    taken: list[Taken] = []
    """Censuses in the order in which they were taken; of very many those that paused longest."""
    gauged: list[Gauged] = []
    """What was read at boundaries, the most often first."""


REPORT_SCHEMA_VERSION = 1
"""Raised where a field goes, or gets another name or type: readers of the old one can't go on."""
REPORT_SCHEMA_MINOR = 1
"""Raised in a release that adds a field or a value of an enum; begins at 0 with each version."""


class Severity(str, Enum):
    """What a culprit does to the user."""

    CRITICAL = "critical"
    """The forecast reaches the memory limit."""
    WARNING = "warning"
    NOTE = "note"
    """Worth knowing; never makes a run's verdict a leak."""


class RunVerdict(str, Enum):
    """What concerns a run as a whole."""

    LEAK = "leak"
    CLEAN = "clean"
    INCONCLUSIVE = "inconclusive"
    OUT_OF_MEMORY = "out_of_memory"
    """Memory ran out, and nothing was seen to leak."""


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """What to change."""

    title: str
    text: str
    advice: str = ""
    """The part of the text that says what to do, where an account of what grows precedes it."""
    diff: str | None = None
    """Unified diff against the user's own source, where the pattern is recognised."""
    bound: str = ""
    """The bound in the source up to which it grows: `self.size at pool.py:12`."""


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of the user's source around a line that matters."""

    file: str
    first_line: int
    lines: list[str]
    marked: list[int] = []


class HeldLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of what a culprit holds."""

    type: str
    count: int
    bytes: int
    detail: str = ""


class Point(msgspec.Struct, frozen=True, array_like=True):
    """A point of a chart: ``x`` in ``x_unit`` of its chart, ``y`` in bytes, and the boundary."""

    x: float
    y: float
    boundary: int


class Falsifier(msgspec.Struct, frozen=True, kw_only=True):
    """What would prove the verdict wrong, and what came of it where it was tried."""

    text: str
    result: str | None = None


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """When memory runs out if growth goes on."""

    limit_bytes: int
    unit: str
    units_left: float
    """Units from the end of the recording until the limit."""
    at: float | None = None
    """The unit's own number, e.g. epoch 38."""
    text: str
    """``reaches 64 GB in epoch 38``."""
    seconds_left: float | None = None
    """How long that takes at its pace, where the counts of the whole run don't say."""


class NativeContents(msgspec.Struct, frozen=True, kw_only=True):
    """Native memory that a library allocated for the items of a container: a sampled estimate."""

    library: str
    function: str = ""
    allocated_at: str
    """The innermost line of the user's below which it was allocated."""
    gained_bytes: int


class EventRate(msgspec.Struct, frozen=True, kw_only=True):
    """What is gained with each of something that was counted: ``18 GB per save, 31 saves``."""

    event: str
    """As recorded, a unit of work, or the name of a phase: ``save``, ``step``, ``validation``."""
    noun: str
    """What a person calls it."""
    is_work: bool
    """Whether it is the work that growth is measured by; else it is an event, or other work."""
    bytes_each: float
    count: int
    """How often it happened in the stretch that the rate is of."""
    share: float
    """Part of the growth in that stretch."""
    place: str = ""
    """Of passes through a loop: where it begins."""


class EventGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """With what something grows, among the work and all events that were counted."""

    rates: list[EventRate]
    """One or two, what brings most first; none is below zero."""
    work: EventRate
    """Alongside them the unit of work in which the rate is given: 0 where it brings nothing."""
    is_by_event: bool
    """Whether events explain the growth better than any work does."""
    indistinct: list[str] = []
    """What explains it as well, so that this run can't separate the two."""
    text: str = ""
    """All that in a sentence or two, and which run would decide; empty where work explains it."""

    @property
    def says_it_all(self) -> bool:
        """Whether the rate per event is enough: a server's request needs no batches with it."""
        is_served = all(rate.event in SERVED for rate in self.rates)
        return self.is_by_event and is_served and self.work.event != "minute"


class PiledUp(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks or threads of one function of which there are ever more."""

    kind: str
    """``task`` (of asyncio) or ``thread``."""
    name: str
    """The function that they run."""
    count: int
    """The most that were alive at once."""
    count_per_unit: float
    unit: str
    started_at: list[str] = []
    """The lines that start them, as far as the sources tell."""
    waits_at: list[str] = []
    """Where they wait, the most frequent first: ``await asyncio.sleep (service.py:12)``."""
    is_lost: bool = False
    """Whether nothing else can wake them: nobody else refers to what they wait for."""


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """A ranked explanation of growth: a container, graph or other object with a name."""

    rank: int
    name: str
    path: str
    kind: str
    type: str
    growth: str
    """``across`` or ``within``."""
    falls_back: bool = True
    """Within: whether it was seen to be released; the only pass may have lasted to the end."""
    unit: str
    """``step``, ``batch``, ``validation``, ``epoch`` or the user's own phase or mark."""
    phase: str
    bytes_per_unit: float
    interval: tuple[float, float]
    readings: int = 0
    """Number of readings through which it grew."""
    items_per_unit: float | None = None
    share: float
    """Part of the growth explained, 0 to 1."""
    total_bytes: int
    """What it retained at its highest recorded census."""
    gained_bytes: int = 0
    """Across: what it gained over the run once warm; within: what it comes to in the phase."""
    device: str = "host"
    severity: Severity
    defined_at: str | None = None
    fed_at: list[str] = []
    allocated_at: list[str] = []
    holds: list[HeldLine] = []
    signature: str
    remedy: Remedy
    owner: str = ""
    held_by: list[str] = []
    """The names on the way from the root, outermost first."""
    also_named: list[str] = []
    """Other names of the same container."""
    also_held_by: list[str] = []
    """Names of other places that hold the same contents."""
    exclusive_bytes: int | None = None
    """Where others hold them too: what it holds alone, so what emptying it alone would free."""
    leak_share_bytes: int | None = None
    """Where it grows together with others that hold the same: its even part of all they hold."""
    graph_nodes: int = 0
    """Autograd nodes among what it retains."""
    graph_bytes: dict[str, int] = {}
    """Bytes per device (``host`` included) that those nodes pin, an estimate of their own size
    among them; empty where none are kept or other things than tensors are."""
    sentence: str = ""
    """The culprit in one sentence."""
    trend: str = ""
    """Verdict of its series: ``growing`` or ``stepwise``."""
    workers: int = 0
    """In how many DataLoader workers at once it grows; rate and bytes are those of one. 0 where it
    grows in the process itself."""
    rates_by_rank: dict[str, float] = {}
    """Where several ranks train together: by rank, its bytes per unit where it grows."""
    in_ranks: str = ""
    """Where several ranks train together: those in which it grows so (``rank 1``, ``3 of 8
    ranks``); empty where it grows alike in all."""
    process: str = ""
    """Where child processes recorded themselves: the process of which it is reported."""
    processes: list[str] = []
    """The same: all of those in which it grows."""
    forecast: Forecast | None = None
    falsifier: Falsifier | None = None
    excerpts: list[Excerpt] = []
    chart: list[Point] = []
    per_event: EventGrowth | None = None
    """Across: with what it grows; None where no event was counted, or too little was read."""
    chart_unit: str = ""
    chart_s: list[float] = []
    """Of a worker's: seconds into the run of each point, for its boundaries are not the run's."""
    known: Recognised | None = None
    native: NativeContents | None = None
    """What its items keep in native code; a part of its rate and gain, and of no retained size."""
    since: float | None = None
    """Across: when the stretch began in which it grows, in seconds since the epoch."""
    piled_up: PiledUp | None = None
    """The tasks or threads that it keeps, where it is these that grow."""


class Circle(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that refer to each other in a circle, so that only the collector frees them."""

    steps: list[str]
    """Each as a person would say it; the last one refers to the first."""
    type: str
    """Of the object that retains the most."""
    bytes: int
    """What they retained at most, on all devices."""
    count: int = 1


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A diagnosis that is no container: garbage, allocator slack, unexplained growth, …"""

    rank: int
    kind: str
    title: str
    text: str
    growth: str = "across"
    """``across``, ``within``, or ``constant``: as much is there each time."""
    unit: str = ""
    phase: str = ""
    bytes_per_unit: float = 0.0
    interval: tuple[float, float] = (0.0, 0.0)
    readings: int = 0
    """Through how many readings it grew, where it did."""
    share: float = 0.0
    total_bytes: int = 0
    device: str = "host"
    severity: Severity
    defined_at: str | None = None
    fed_at: list[str] = []
    allocated_at: list[str] = []
    signature: str
    remedy: Remedy
    falsifier: Falsifier | None = None
    per_event: EventGrowth | None = None
    """Of growth without a name: with what memory of the process grows."""
    circles: list[Circle] = []
    """Of garbage: what keeps it from being freed at once, the heaviest first."""
    known: Recognised | None = None
    process: str = ""
    """Where child processes recorded themselves: the process of which it is reported."""


class KindOfGrowth(str, Enum):
    """The rows of the table *Which kind of growth is it?*"""

    LEAK = "leak"
    CACHE = "cache"
    """A cache that fills, or another container that came to a bound."""
    PEAK = "peak"
    """Gathered in a phase, released at its end."""
    FRAGMENTATION = "fragmentation"
    COPY_ON_WRITE = "copy_on_write"
    FILES = "files"
    """Page cache and mapped files."""
    ALLOCATOR = "allocator"
    """Freed memory that the C allocator keeps."""
    GARBAGE = "garbage"
    CHILDREN = "children"
    DEVICE_CACHE = "device_cache"


class Answer(str, Enum):
    """Whether a kind of growth applies to a run."""

    YES = "yes"
    NO = "no"
    UNDECIDED = "undecided"
    """Of a leak: the verdict is open, and ``missing`` says what would settle it."""
    NOT_MEASURED = "not_measured"
    """The gauges or censuses that would show it were not read."""


class ShownIn(str, Enum):
    """Which part of a report shows something."""

    CULPRITS = "culprits"
    FINDINGS = "findings"
    CLEARED = "cleared"
    LEDGER = "ledger"
    WORKERS = "workers"


class KindAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one kind of growth applies to a run, with how many bytes, and what shows it."""

    kind: KindOfGrowth
    answer: Answer
    bytes: int | None = None
    """Where it applies and is known: of a leak what its culprits gained, of other kinds their
    size. Kinds overlap, so these numbers don't add up."""
    section: ShownIn | None = None
    subject: str = ""
    """The culprit, finding or cleared name that shows it, the first or largest of several."""
    signature: str = ""
    """Its signature, where it has one."""


class MetricGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """How fast one gauge grows and how much of that is explained."""

    metric: str
    unit: str
    bytes_per_unit: float
    interval: tuple[float, float]
    explained_share: float | None
    """Part of the growth for which the ledger has a measured term; None where little grew."""
    named_share: float | None = None
    """Part of it that culprits hold by name."""
    per_event: EventGrowth | None = None
    """With what it grows; of the memory of the process, and live memory of devices."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a verdict: what a rule decided on one series."""

    subject: str
    """The name, gauge or term of the ledger that was judged."""
    rule: str
    """``growth`` is the growth model, ``floor`` what does no harm; others are named in
    docs/how-verdicts-are-made.md."""
    outcome: str
    figure: float | None = None
    """The number that the rule compared."""
    threshold: float | None = None
    """The number that it was compared with."""
    path: str = ""
    """The path pattern, where the subject has one."""


class Cleared(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was looked at and is fine."""

    name: str
    path: str
    reason: str
    """``bounded: 500 entries since epoch 2``."""
    kind: str
    """``bounded`` (it fills up to a bound, or has), ``constant``, ``level`` (it rises and falls
    back, or by little), ``open`` (too little to matter), ``mapped`` and others of processes."""
    total_bytes: int = 0
    signature: str = ""
    is_filling: bool = False
    """Whether it still grows, to a bound that wasn't reached."""


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One term of the ledger; the terms add up to ``Ledger.total_bytes``."""

    label: str
    bytes: int
    kind: str
    """``named``, ``graph``, ``garbage``, ``slack``, ``pinned``, ``shm``, ``mapped``, ``swapped``,
    ``children``, ``own``, ``elsewhere``, ``native`` (sampled), ``imputed``, ``unexplained``; of a
    device also ``unnamed``, ``cached``, ``fragmentation``, ``pending``, ``outside``."""
    note: str = ""


class MappingTerm(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of mapping: another division of the same memory, never added to a ledger's terms."""

    kind: str
    """Its gauge: ``mapped_heap``, ``mapped_arenas``, ``mapped_stacks``, ``mapped_libraries``,
    ``mapped_anonymous``, ``mapped_files``, ``mapped_file`` (one of these), ``mapped_shared``,
    ``mapped_devices``."""
    label: str
    bytes: int
    """What it gained over the stretch that the ledger of the host accounts for."""
    held_bytes: int
    """What was resident there at the end of the work."""
    verdict: TrendVerdict
    """What the growth model says of all its readings."""
    bytes_per_unit: float = 0.0
    unit: str = ""
    """Its rate where it grows."""
    file: str = ""


class PeakSite(msgspec.Struct, frozen=True, kw_only=True):
    """What one function had live for one line of the user's: a sampled estimate."""

    location: str
    """The innermost line of the user's below which it was allocated; empty where none is known."""
    library: str
    function: str = ""
    owner: str = ""
    """``library``, ``tensor``, ``array``, ``interpreter`` or ``leakscope``."""
    bytes: int
    interval: tuple[int, int]
    """Between which bytes the truth lies, with 95 % confidence."""


class PeakMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What was live when the process was largest, as far as the profile of native allocations
    shows: of what was allocated since the recording began.
    """

    boundary: int
    step: int
    time_s: float
    private_bytes: int
    """Private memory at that reading, the highest at which allocations were recorded."""
    highest_bytes: int
    """The highest reading. A peak is recorded once it is a twentieth higher than the last one."""
    sampled_bytes: int
    by_owner: dict[str, int]
    sites: list[PeakSite]
    """The largest first."""


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """Where the growth of one kind of memory went, between two boundaries."""

    metric: str
    from_boundary: int
    to_boundary: int
    total_bytes: int
    entries: list[LedgerEntry]
    before_bytes: int | None = None
    """What the gauge read at the first of them; the total more at the last."""
    advice: str = ""
    """Whether ``gc.collect()``, ``malloc_trim`` or ``empty_cache()`` could help."""
    from_s: float | None = None
    to_s: float | None = None
    """When these boundaries were, in seconds since the recording began."""
    recorded_s: float | None = None
    """Seconds from its first boundary to its last."""


class PhaseMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory before, at the peak of and after a phase: medians over its occurrences."""

    phase: str
    occurrences: int
    metric: str
    before_bytes: int
    peak_bytes: int
    after_bytes: int
    kept_bytes: int
    """After less before, median over occurrences: what the phase keeps."""
    highest_bytes: int | None = None
    """The highest between boundaries, by the kernel's mark of resident memory and torch's of a
    device's, which are never reset. None where the phase stayed below what another had reached
    before it, and where resident memory reached no more than at boundaries."""
    raised_bytes: int | None = None
    """By how much all occurrences together raised that mark; None where there is none."""
    most_bytes: int | None = None
    """The highest at a boundary of any occurrence; None in older reports."""


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one component: baseline, parameters, gradients, …, workers, unexplained."""

    name: str
    device: str
    start_bytes: int
    peak_bytes: int
    end_bytes: int
    by_phase: dict[str, int] = {}
    """Highest at a census in each phase."""


class PhaseSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the timeline."""

    phase: str
    occurrence: int
    epoch: int
    start_s: float
    end_s: float
    steps: tuple[int, int] | None = None
    """How many steps had ended when it began, and when it ended; None where that is unknown."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A series of the timeline: seconds and bytes."""

    label: str
    metric: str
    points: list[tuple[float, float]]


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """A boundary on the timeline: seconds into the run, and where training stood."""

    time_s: float
    boundary: int
    step: int
    epoch: int
    phase: str


class RecompileCause(str, Enum):
    """What about a call was new to the guards, so that a function was compiled again."""

    SHAPE = "shape"
    VALUE = "value"
    """A number, text or flag of Python's."""
    TYPE = "type"
    """Data type, device, dimensions, ``requires_grad``, or the class of an argument."""
    OBJECT = "object"
    """Which object it is."""
    LENGTH = "length"
    """How many items a container has, or which keys."""
    MODE = "mode"
    """Gradient mode, autocast and other global state."""
    OTHER = "other"


class RecompileReason(msgspec.Struct, frozen=True, kw_only=True):
    """A guard that failed, without the values that it compares."""

    cause: RecompileCause
    guard: str
    count: int


class CompiledEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A function that ``torch.compile`` has compiled, and what it keeps of it."""

    function: str
    place: str
    """``file:line`` of its first line."""
    entries: int
    """Compiled versions that are kept."""
    most: int
    """Of one code object, which the limit is about."""
    codes: int = 1
    """Code objects that were compiled: more than one where the program recreates them."""
    compilations: int = 0
    recompilations: int = 0
    hit_limit: bool = False
    """Whether it is compiled no more."""
    guards: int = 0
    """Of the latest version."""
    reasons: list[RecompileReason] = []
    """Why it was compiled again, the most frequent first."""
    called_at: list[str] = []
    bytes: int | None = None
    """What its versions keep alive by the last census; None where none weighed them."""
    tensor_bytes: int = 0
    """Of that, tensors."""
    native_bytes: int = 0
    """What libraries allocate and keep below the lines that call it, a sampled estimate."""


class CapturedGraph(msgspec.Struct, frozen=True, kw_only=True):
    """CUDA graphs of one form."""

    device: str
    shapes: str
    """Shapes of what they return."""
    graphs: int


class CompiledCode(msgspec.Struct, frozen=True, kw_only=True):
    """What ``torch.compile`` kept at the end of the run."""

    functions: list[CompiledEntry]
    """Those with most entries first."""
    limit: int
    """Entries that a code object may have: ``recompile_limit``."""
    cap: int
    """The same, however many modules its guards name: ``accumulated_recompile_limit``."""
    is_raised: bool = False
    """Whether the program has raised the limit beyond what torch allows by itself."""
    is_error: bool = False
    """Whether the program fails at the limit; else functions run uncompiled there."""
    workers: int = 0
    """Processes of Inductor's."""
    worker_bytes: int = 0
    """Their resident memory, what they share included."""
    ends_idle_workers: bool = False
    graphs: list[CapturedGraph] = []


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Memory over the run, thinned where it is long (and then ``thinned_from`` says from what)."""

    lines: list[Line]
    further: list[Line] = []
    """What memory is made of and what lies alongside it: drawn on request."""
    spans: list[PhaseSpan]
    moments: list[Moment] = []
    """The boundaries at which the lines have points, and those with a census, in their order."""
    censuses_s: list[float] = []
    limit_bytes: int | None = None
    thinned_from: int | None = None
    phases_begun: int | None = None
    """How many phases there were, where the spans are only some of them, evenly over the run."""
    epochs: list[tuple[float, int]] = []
    """When each epoch began, and its number from 0 on; of very many some, evenly over the run."""
    epochs_begun: int | None = None
    """How many epochs there were, where not all of them are listed."""
    steps: list[tuple[float, float]] = []
    """Seconds and the step that had ended then, both ascending, with a share of the next one where
    a validation lies between: the clock by which lines of several runs are laid over each other.
    Empty where nothing counted steps."""


class ProblemKind(str, Enum):
    """What a problem says about the figures of a report."""

    OTHER = "other"
    OWN_SHORTAGE = "own_shortage"
    """A part of leakscope found no memory for itself; what it had measured before counts."""
    GAP = "gap"
    """A piece of a recording is lost, so amounts and shares are of what could be read."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that went wrong with measuring, recording or reading, and what it means."""

    where: str
    message: str
    kind: ProblemKind = ProblemKind.OTHER


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What the run did, for judging whether two runs are comparable."""

    duration_s: float = 0.0
    steps: int = 0
    epochs: int = 0
    """0 also where nothing shows where one ends: a training without a loader."""
    validations: int = 0
    batches: dict[str, int] = {}
    """Batches by phase."""
    processes: int = 1


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Which run this report is about."""

    run_id: str
    path: str
    script: str
    command: list[str]
    created: float
    environment: dict[str, str]
    ended: str
    """How the program ended, in words: ``completed``, ``killed (no closing record)``, …"""
    ending: str = ""
    """The same as a main clause, ``the run was killed by SIGKILL``; empty where it just ended."""
    ended_regularly: bool = True
    """Whether it ended by itself and not in failure, as far as is known."""
    goes_on: bool = False
    """Whether it was still running."""
    limit_bytes: int | None = None
    leakscope_version: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was concluded about a run."""

    schema_version: int = REPORT_SCHEMA_VERSION
    schema_minor: int = REPORT_SCHEMA_MINOR
    verdict: RunVerdict
    headline: str
    growth: list[MetricGrowth]
    culprits: list[Culprit]
    findings: list[Finding]
    cleared: list[Cleared]
    overhead: Overhead
    errors: list[Problem]
    run: RunFacts
    work: Work
    ledgers: list[Ledger] = []
    mappings: list[MappingTerm] = []
    """The growth of host memory by kind of mapping, what gained most first."""
    peak: PeakMemory | None = None
    phases: list[PhaseMemory] = []
    components: list[Component] = []
    devices: list[DeviceMemory] = []
    rank: int | None = None
    """Of several ranks the one whose timeline, ledgers, phases and components are shown."""
    ranks: list[RankMemory] = []
    odd_rank: OddRank | None = None
    rank_courses: list[RankCourse] = []
    """Memory of ranks by step: of each where they are few, else of the middle and the extremes."""
    attempts: list[RankAttempt] = []
    """Where a launcher started all ranks more than once."""
    workers: list[WorkerMemory] = []
    """Workers of DataLoaders, the heaviest first."""
    processes: list[ProcessMemory] = []
    """The program's processes, where children recorded themselves: the main one first."""
    process: str = ""
    """The one of them whose timeline, ledgers, phases and components are reported."""
    odd_process: str = ""
    """Which of them diverges from the others of its kind, in a sentence."""
    compiled_code: CompiledCode | None = None
    """Where ``torch.compile`` has compiled something."""
    timeline: Timeline | None = None
    notes: list[str] = []
    missing: list[str] = []
    """What would settle an inconclusive verdict."""
    kinds: list[KindAnswer] = []
    """Which kinds of growth there are, of all that are known one answer each."""
    out_of_memory: OutOfMemory | None = None
    """Where the run ended because memory ran out."""
    cures: Cures | None = None
    """What ``--probe-cleanup`` has found out."""
    decisions: list[Decision] = []
    """How the verdict came about, step by step, also for what was cleared."""
    retained: Retained | None = None
    """What memory held, by name, at some of the censuses."""
    retained_elsewhere: list[Retained] = []
    """The same of other processes: of ranks and workers in which culprits grow, and of some to
    compare them with. Times are those of the process that ``retained`` is of."""
