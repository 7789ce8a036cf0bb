"""What is concluded about snapshots of torch's CUDA allocator. Encoded as is, it is the JSON.

All sizes are bytes. ``requested`` is what the program asked for, ``allocated`` what the allocator
gave for it (rounded up), ``reserved`` what it took from the driver.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from leakscope.model.device import Advice, Figures, MapSegment, PoolFigures, Slack
from leakscope.model.report import PhaseSpan, Severity

EXPLANATION_SCHEMA_VERSION = 1


class BlockClass(str, Enum):
    """What live memory is for, as far as stacks, sizes and the time of birth show."""

    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    ACTIVATIONS = "activations"
    BACKWARD = "backward"
    WORKSPACE = "workspace"
    COMMUNICATION = "communication"
    PENDING = "pending"
    OTHER = "other"
    UNKNOWN = "unknown"


class ClassRow(msgspec.Struct, frozen=True, kw_only=True):
    """Live memory of one class. ``evidence`` says how it was recognised."""

    kind: BlockClass
    bytes: int
    count: int
    share: float
    evidence: str = ""


class SiteRow(msgspec.Struct, frozen=True, kw_only=True):
    """Live memory by the line of the user's that allocated it; empty where no stack shows it."""

    place: str
    function: str
    operation: str
    """The innermost Python function, where it is not the user's own."""
    kind: BlockClass
    bytes: int
    count: int
    largest: int
    share: float


class DevicePeak(msgspec.Struct, frozen=True, kw_only=True):
    """The moment at which most was live, and what stood there."""

    entry: int
    time_s: float | None
    live_bytes: int
    reserved_bytes: int
    phase: str
    classes: list[ClassRow]
    sites: list[SiteRow]


class DevicePhaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """Memory in one phase of the trace, over all its stretches."""

    phase: str
    stretches: int
    allocated_bytes: int
    """Requested in it, whether kept or not."""
    peak_bytes: int
    kept_bytes: int
    """What its stretches left behind, all together; negative where they gave back."""
    seconds: float | None = None


class TraceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the history covers."""

    entries: int
    actions: dict[str, int]
    seconds: float | None
    from_the_beginning: bool
    """Nothing was live before it: the whole life of the process is known."""
    start_bytes: int
    end_bytes: int
    conflicts: int
    segment_allocs: int
    segment_frees: int
    retries: int
    """Flushes of the cache that no ``empty_cache()`` on a stack explains."""
    step_ends: list[int] = []
    """The last entry of each optimizer step."""
    step_bytes: list[int] = []
    """Live after each step."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Memory ran out: the request, what there was at that moment, and which kind of shortage."""

    entry: int | None
    """None where the file holds no mark of it and the whole state was judged."""
    request: int | None
    device_free: int | None
    is_fragmentation: bool
    missing: int | None
    """Bytes that would have had to be free besides, at this moment."""
    place: str
    operation: str
    figures: Figures
    classes: list[ClassRow]
    sites: list[SiteRow]
    sentence: str
    fits_if: list[Advice]


class DeviceCourse(msgspec.Struct, frozen=True, kw_only=True):
    """Live and reserved bytes over the trace, thinned; peaks are kept."""

    unit: str
    """``s``, or ``entry`` where the trace has no times."""
    live: list[tuple[float, int]]
    reserved: list[tuple[float, int]]
    spans: list[PhaseSpan] = []
    peak: tuple[float, int] | None = None
    fault: tuple[float, int] | None = None
    """When memory ran out, and what would have been live with the request."""
    thinned_from: int | None = None


class DeviceFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something worth knowing, with its evidence and what to do about it."""

    slug: str
    severity: Severity
    title: str
    text: str
    remedy: str = ""


class DeviceExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """One device of a snapshot."""

    device: int
    headline: str
    subject: str
    """Which state classes, sites and the picture show: ``end`` or ``fault``."""
    figures: Figures
    """At the end, as the file says."""
    pools: list[PoolFigures]
    classes: list[ClassRow]
    sites: list[SiteRow]
    slack: Slack
    slack_sentence: str
    settings: list[Advice]
    fault: Fault | None = None
    trace: TraceFacts | None = None
    peak: DevicePeak | None = None
    phases: list[DevicePhaseRow] = []
    findings: list[DeviceFinding] = []
    course: DeviceCourse | None = None
    memory_map: list[MapSegment] = []


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot explained."""

    name: str
    headline: str
    version: str
    settings: dict[str, str]
    total: Figures
    devices: list[DeviceExplanation]
    findings: list[DeviceFinding] = []
    """Of the devices taken together."""
    notes: list[str] = []
    schema_version: int = EXPLANATION_SCHEMA_VERSION


class DeviceGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """Live memory of one class, site or size of block in each snapshot."""

    name: str
    kind: BlockClass
    bytes: list[int]
    counts: list[int]
    size: int | None = None
    """Bytes requested for one block, where the row is of one size."""

    @property
    def change(self) -> int:
        """Bytes more in the last than in the first."""
        return self.bytes[-1] - self.bytes[0]


class DeviceComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One device in each snapshot. ``kind`` is what grew: live, cache, fragmentation, nothing."""

    device: int
    kind: str
    is_leak: bool | None = None
    """Of live memory that grew: true where it rose from each snapshot to the next, false where it
    is state that appears once, None where that is unknown."""
    headline: str
    sentence: str
    figures: list[Figures]
    peaks: list[int | None]
    """Most requested bytes live, where there is a history."""
    classes: list[DeviceGrowth]
    sites: list[DeviceGrowth]
    sizes: list[DeviceGrowth]


class SnapshotComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Several snapshots, in the order in which they were named."""

    names: list[str]
    headline: str
    devices: list[DeviceComparison]
    by_stuck: list[int]
    """The snapshots by bytes stuck in holes, worst first."""
    slack: list[Slack]
    headlines: list[str]
    notes: list[str] = []
    schema_version: int = EXPLANATION_SCHEMA_VERSION
