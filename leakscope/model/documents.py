"""Documents besides the report: a check and its baseline, a list of runs, a run explained in few
words, growth of a round trip, and what ``leakscope doctor`` found.

Encoded as is, a :class:`Check` is what ``leakscope check --format json`` writes, a
:class:`Baseline` is the file that ``--write-baseline`` writes, and a :class:`RunExplanation` is
what ``leakscope explain --json`` writes.
"""

from __future__ import annotations

from datetime import date
from enum import Enum

import msgspec

from leakscope.model.known import Recognised
from leakscope.model.report import Excerpt, RunFacts, RunVerdict, Severity
from leakscope.model.text import human_bytes, human_count

CHECK_SCHEMA_VERSION = 1
BASELINE_SCHEMA_VERSION = 1
Key = tuple[str, str, str, bool]
"""Signature, growth, device, and whether in workers: the same in any run."""


class Outcome(str, Enum):
    """What a check says as a whole."""

    PASSED = "passed"
    FAILED = "failed"
    """Something grows that is not allowed."""
    INCONCLUSIVE = "inconclusive"
    """Nothing was seen to grow, but the run is too thin to say so."""


class CheckReason(str, Enum):
    """Why something that grows fails the check, or why it doesn't."""

    FAILED = "failed"
    KNOWN = "known"
    """The baseline has it, and it grows no faster."""
    SUPPRESSED = "suppressed"
    """The project's configuration excuses it, with a reason."""
    IGNORED = "ignored"
    """The command line excuses it."""
    ALLOWED = "allowed"
    """It grows no faster than the limit."""
    NOTE = "note"
    """Worth knowing; never fails unless it is faster than a limit."""


class Suppression(msgspec.Struct, frozen=True, kw_only=True):
    """An excuse for what grows. It covers what all of its patterns match."""

    reason: str
    signature: str = ""
    pattern: str = ""
    """Of the name, the path in the heap, or the kind."""
    path: str = ""
    """Of the source file."""
    expires: date | None = None
    """The last day on which it counts."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What a baseline remembers of something that grows."""

    name: str
    signature: str
    growth: str
    device: str = "host"
    phase: str = ""
    path: str = ""
    kind: str = ""
    """The container's, or the finding's. With name and type it is how an entry is recognised under
    another signature; one without a kind is recognised by its signature alone."""
    type: str = ""
    bytes_per_unit: float
    unit: str
    in_workers: bool = False
    reason: str = ""
    """Why it is accepted; written by people, kept when the baseline is replaced."""

    @property
    def key(self) -> Key:
        """What identifies it in any run."""
        return (self.signature, self.growth, self.device, self.in_workers)


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """What is known to grow, ordered by name."""

    schema_version: int = BASELINE_SCHEMA_VERSION
    culprits: list[Known]


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Something that grows, as the gate sees it."""

    standing: CheckReason
    why: str
    """Why it stands so, as a sentence."""
    rule: str
    """The kind of diagnosis: ``growing-container``, ``growing-within-phase``, ``kept-graph``, or
    the kind of a finding, such as ``allocator_slack``."""
    name: str
    """A culprit's name, or a finding's title."""
    sentence: str
    severity: Severity
    signature: str
    known_as: str = ""
    """The signature by which the baseline has it, where that is another."""
    growth: str
    device: str = "host"
    phase: str = ""
    path: str = ""
    """The name's path in the heap; empty for a finding."""
    kind: str = ""
    """The container's, such as ``list``, or the finding's."""
    type: str = ""
    """Of what a culprit's name means; empty for a finding."""
    bytes_per_unit: float
    interval: tuple[float, float]
    unit: str
    place: str = ""
    """The line to look at first: ``src/train.py:12``, relative to the repository."""
    places: list[str] = []
    remedy: str = ""
    in_workers: bool = False
    """Whether it grows in workers of a DataLoader, not in the process itself."""
    excuse: str = ""
    """The reason of the suppression or of the baseline's entry, where there is one."""
    recognised: Recognised | None = None
    """What the catalogue of known culprits says of it."""

    @property
    def key(self) -> Key:
        """What identifies it in any run."""
        return (self.signature, self.growth, self.device, self.in_workers)

    @property
    def known_key(self) -> Key:
        """What identifies it in the baseline."""
        return (self.known_as or self.signature, self.growth, self.device, self.in_workers)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A run held against what is allowed."""

    schema_version: int = CHECK_SCHEMA_VERSION
    outcome: Outcome
    passes: bool
    """Whether the exit code is 0; an inconclusive run passes with ``--no-strict`` alone."""
    headline: str
    verdict: RunVerdict
    run: RunFacts
    growths: list[Checked]
    """What fails first, then the rest as in the report."""
    gone: list[Known] = []
    """Entries of the baseline that excuse nothing any more."""
    remarks: list[str] = []
    """Suppressions that expired or match nothing, and what else has to be fixed."""
    missing: list[str] = []
    """What would settle an inconclusive run."""
    max_growth: str = ""


RUNS_SCHEMA_VERSION = 1
COURSE_POINTS = 60
"""At most so many points of a run's memory are kept for its sparkline."""


class RunStatus(str, Enum):
    """How far a run has come."""

    REPORTED = "reported"
    RUNNING = "running"
    UNREPORTED = "unreported"
    """It has ended, and nobody has made its report."""
    UNREADABLE = "unreadable"
    """Its report is damaged, or of a newer leakscope."""


class ListedCulprit(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a run a leak: its first grave culprit, or its first grave finding."""

    name: str
    bytes_per_unit: float = 0.0
    unit: str = ""
    is_code: bool = True
    """Whether the name is one of the program's."""
    workers: int = 0
    """In how many DataLoader workers at once it grows, at that rate in each."""
    signature: str = ""
    """By which it is known again in another run."""


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a list."""

    name: str
    """Of its folder."""
    path: str
    standing: RunStatus
    remark: str = ""
    """A sentence where there is no report: why, and what to do."""
    page: str = ""
    """Path of its page; empty where it has none."""
    verdict: RunVerdict | None = None
    headline: str = ""
    ran_out_of_memory: bool = False
    ended: str = ""
    """How the program ended, where not by itself: ``the run was killed by SIGKILL``."""
    script: str = ""
    created: float = 0.0
    """Seconds since the epoch; 0 where unknown."""
    duration_s: float | None = None
    top_culprit: ListedCulprit | None = None
    others: list[ListedCulprit] = []
    """What else makes it one: the first grave ones after the first."""
    commit: str = ""
    """Of the program's repository, where it was recorded."""
    growth_bytes_per_unit: float | None = None
    """Of the first gauge that was judged, and of child processes where they were; 0 where its
    interval has both signs.
    """
    growth_unit: str = ""
    peak_bytes: float | None = None
    """Of the process and its child processes together."""
    has_children: bool = False
    """Whether child processes held memory."""
    course: list[float] = []
    """Memory over the run in bytes, the highest reading of each stretch."""


class LiveLeak(msgspec.Struct, frozen=True, kw_only=True):
    """A leak of a program that still runs, as ``live.json`` in the run directory has it."""

    headline: str
    when: str = ""
    """Since when it grows, and when memory is full: ``since 14:05, full in 9 hours``."""
    name: str
    place: str = ""
    """The line that feeds it."""
    signature: str
    bytes_per_unit: float
    unit: str
    since: float | None = None
    """Seconds since the epoch, as the next two."""
    full_at: float | None = None
    judged_at: float


class RunLink(msgspec.Struct, frozen=True, kw_only=True):
    """Another page that belongs to a list of runs."""

    label: str
    page: str
    sentence: str = ""


class HistoryStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one run says of a culprit."""

    name: str
    """Of the run."""
    commit: str = ""
    created: float = 0.0
    bytes_per_unit: float | None = None
    """How fast it grew; 0 where it didn't grow, None where the run can't tell."""


class RunHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The first culprit of a script from run to run, the oldest first."""

    script: str
    culprit: str
    is_code: bool
    unit: str
    steps: list[HistoryStep]
    sentence: str
    """What became of it."""


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    """The runs in a folder."""

    schema_version: int = RUNS_SCHEMA_VERSION
    directory: str
    title: str = ""
    runs: list[ListedRun]
    others: list[str] = []
    """Names of folders alongside them that hold no run."""
    are_alike: bool = False
    """Whether all of them are forms of one program."""
    links: list[RunLink] = []
    histories: list[RunHistory] = []
    """Of each script with three runs or more in which something grows."""


RUN_EXPLANATION_SCHEMA_VERSION = 1


class PartKind(str, Enum):
    """What a part of an explanation is about."""

    VERDICT = "verdict"
    SHORTAGE = "shortage"
    """Where memory ran out: what held it, and what would have made it fit."""
    CULPRIT = "culprit"
    FINDING = "finding"
    FORECAST = "forecast"
    """When memory runs out."""
    REMEDY = "remedy"
    """What to change, as a phrase."""
    DIFF = "diff"
    ADVICE = "advice"
    """How to change it, and what would not help."""
    KNOWN = "known"
    """What the catalogue of known culprits says."""
    MISSING = "missing"
    """What would settle an inconclusive run."""
    GROWTH = "growth"
    """How fast the memory of the process and of devices grows."""
    LEDGER = "ledger"
    """Where the growth went."""
    KINDS = "kinds"
    """Which kinds of growth there are: leak, cache, peak of a phase and so on."""
    DECISIONS = "decisions"
    """The rules by which what leads was judged."""
    FALSIFIER = "falsifier"
    """What would prove the verdict wrong, and what came of it where it was tried."""
    RANKS = "ranks"
    DEVICE = "device"
    CURES = "cures"
    """What the usual cleaning calls did, where they were tried."""
    CLEARED = "cleared"
    """What looks like a leak and is none."""
    PROBLEM = "problem"
    """What went wrong with measuring or reading."""
    COST = "cost"
    """What measuring cost."""
    NEXT = "next"
    """What to do, as a command."""


class NextStep(msgspec.Struct, frozen=True, kw_only=True):
    """Something to do with a run."""

    aim: str
    """What it is good for, as a phrase."""
    command: str
    """A command line; words in capitals are to be replaced."""


class ExplainedPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One part of an explanation: its text, and the figures that the text is made of."""

    kind: PartKind
    text: str
    """Plain text; a diff has several lines."""
    tokens: int
    """An estimate of how many tokens the text is."""
    name: str = ""
    """Of a culprit, or a finding's title; of the parts that belong to it too."""
    place: str = ""
    """The line to look at first, ``train.py:12``."""
    severity: Severity | None = None
    bytes_per_unit: float | None = None
    interval: tuple[float, float] | None = None
    """95 % interval of the rate."""
    unit: str = ""
    device: str = ""
    share: float | None = None
    """Part of the growth explained, 0 to 1."""
    signature: str = ""
    command: str = ""
    """A command line, ready to be run."""


class RunExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """A run in few words: as much as fits a number of tokens, the most valuable first."""

    schema_version: int = RUN_EXPLANATION_SCHEMA_VERSION
    verdict: RunVerdict
    run: str
    """The run directory."""
    budget: int
    """How many tokens it may take."""
    tokens: int
    """How many it takes, as estimated. The verdict and the next command are always included."""
    parts: list[ExplainedPart]
    """In the order of their value; the next command stands last."""
    left_out: dict[str, int] = {}
    """By kind, how many further parts there were no tokens for."""
    whole_tokens: int
    """How many tokens all parts would take."""
    whole_command: str
    """The command that prints all of them."""


GROWTH_SCHEMA_VERSION = 1


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """One path that grows with every call; printed, it is a sentence."""

    path: str
    """The full pattern from the root, such as ``test_cache·STORE.seen``."""
    holder: str
    """Who holds it, as a person would say it, such as ``test_cache.STORE.seen``."""
    type: str
    """Qualified type of what grows, such as ``list`` or ``torch.Tensor``."""
    kind: str
    """The type in general terms, such as ``list``, ``dict``, ``lru_cache`` or ``object``."""
    bytes_per_call: float
    """Bytes kept on the device, with all that they keep alive."""
    objects_per_call: float
    """Items that a container gains, or objects where there come to be more of them; 0 where what is
    there gets larger."""
    device: str = "host"
    """Where the bytes lie, such as ``host`` or ``cuda:0``."""
    fed_by: str = ""
    """The line that adds to it, as ``test_cache.py:12``; two with "or" between them where several
    may; empty where none is known."""
    feeding: list[str] = []
    """That line and others that may, likeliest first."""
    defined_at: str = ""
    """Where it was made, as ``file:line``; empty where that isn't known."""
    holds: list[str] = []
    """What it holds, the heaviest types first, such as ``Tensor float32 (256, 4) on cpu``."""
    advice: str = ""
    """What to change, in one phrase."""
    diff: str = ""
    """A change to the user's source that mends it, where its pattern is recognised."""
    excerpts: list[Excerpt] = []
    """The user's source around the lines that feed it."""

    @property
    def sentence(self) -> str:
        """What grows, how fast, and by which line."""
        place = "" if self.device == "host" else f" on {self.device}"
        fed = f", fed by {self.fed_by}" if self.fed_by else ""
        return f"{self.holder} grows by {human_bytes(self.bytes_per_call)} per call{place}{fed}"

    def __str__(self) -> str:
        return self.sentence

    def __repr__(self) -> str:
        return f"<Growth: {self.sentence}; {human_count(self.objects_per_call)} objects per call>"


class GrowthReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about one scenario, as written to a file."""

    schema_version: int = GROWTH_SCHEMA_VERSION
    leakscope_version: str
    scenario: str
    """The test's id, or the name of the function that was repeated."""
    calls: int
    """How often it was called, warm-up included."""
    allow_bytes: float
    """What it may leave behind with each call."""
    growths: list[Growth]


HEALTH_SCHEMA_VERSION = 1


class State(str, Enum):
    """How something stands."""

    OK = "ok"
    NOTE = "note"
    """It works, and changes what is measured or what that costs."""
    MISSING = "missing"
    """It isn't there, and something is measured less well or not at all."""
    BROKEN = "broken"
    """It ought to work and doesn't."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was looked at."""

    name: str
    state: State
    text: str
    advice: str = ""
    """What to do about it; empty where nothing is to be done."""


class InForce(msgspec.Struct, frozen=True, kw_only=True):
    """A setting, its value and where that was chosen."""

    name: str
    variable: str
    value: str | float | bool | list[str] | None
    """None where nothing is chosen and there is no default."""
    source: str
    """``default``, an environment variable, or the path of a ``pyproject.toml``."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was looked at."""

    schema_version: int = HEALTH_SCHEMA_VERSION
    leakscope_version: str
    project: str
    """The ``pyproject.toml`` that has ``[tool.leakscope]``; empty without one."""
    settings: list[InForce]
    suppressions: int
    items: list[Item]

    @property
    def is_broken(self) -> bool:
        """Whether anything is broken."""
        return any(item.state is State.BROKEN for item in self.items)
