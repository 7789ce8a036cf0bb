"""A session on a clock and a heap of the test's own; nothing is written to disk."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import msgspec

from leakscope.capture import policy
from leakscope.capture.budget import Costs, Due, Floor
from leakscope.capture.options import SessionOptions
from leakscope.capture.session import Session
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, CensusRow, CensusScope, RootKind, Site
from leakscope.model.device import DeviceStorages
from leakscope.model.record import (
    BlockListRecord,
    BoundaryRecord,
    CensusRecord,
    DeviceSnapshotRecord,
)


class FakeClock:
    """Stands still until it is advanced; what takes a second of work may take several."""

    def __init__(self, slowed: float = 1.0) -> None:
        self.now = self.worked = 1000.0
        self.slowed = slowed

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds * self.slowed
        self.worked += seconds


class FakeWriter:
    """Keeps records in a list."""

    def __init__(self, keep: bool = True) -> None:
        self.records: list[object] = []
        self.bytes_written = 0
        self.failed = None
        self.closed = False
        self.count = 0
        self._keep = keep

    def write(self, record, *, sync: bool = False) -> bool:
        self.count += 1
        if self._keep:
            self.records.append(record)
        return True

    def close(self) -> None:
        self.closed = True

    def of(self, kind: type) -> list:
        return [record for record in self.records if isinstance(record, kind)]

    @property
    def boundaries(self) -> list[Boundary]:
        return [record.boundary for record in self.of(BoundaryRecord)]


class FakeTaker:
    """Takes censuses that cost what the test says."""

    own_bytes = 1000

    def __init__(
        self,
        clock: FakeClock,
        focused: float = 0.01,
        whole: float = 0.4,
        resumed: float | None = 0.08,
    ) -> None:
        self.clock = clock
        self.focused, self.whole, self.resumed = focused, whole, resumed
        """Seconds; ``resumed`` is None where nothing can be sealed."""
        self.is_sealed = False
        self.counts_objects = False
        """Whether a census meets as many objects as take its seconds."""
        self.taken: list[Due] = []
        self.pauses: list[float] = []
        self.drift = {"heap": 0, "native": 0, "row": 0}
        self.sizes = dict
        self.files: set[str] = set()
        self.elsewhere_bytes: int | None = None
        self.garbage_bytes: int | None = None
        self.error: Exception | None = None
        self.unwound: list[str] = []
        self.storages: list[DeviceStorages] = []

    def take(self, scope: CensusScope, unwound=()) -> Census:
        self.unwound = [frame.f_code.co_name for frame in unwound]
        if self.error is not None:
            raise self.error
        if scope is CensusScope.FOCUSED:
            return self._census(Due.FOCUSED, self.focused)
        if self.is_sealed:
            return self._census(Due.FULL, self.resumed)
        self.is_sealed = self.resumed is not None
        return self._census(Due.WHOLE, self.whole)

    def take_checked(self) -> Census:
        assert self.is_sealed
        census = self._census(Due.CHECK, self.whole + self.resumed)
        return msgspec.structs.replace(census, drift_bytes=dict(self.drift))

    def _census(self, kind: Due, seconds: float) -> Census:
        self.clock.sleep(seconds)
        self.taken.append(kind)
        self.pauses.append(seconds)
        return Census(
            scope=CensusScope.FOCUSED if kind is Due.FOCUSED else CensusScope.FULL,
            rows=[row(path, size) for path, size in self.sizes().items()],
            cutoff_bytes=1,
            objects=round(seconds / policy.SECONDS_PER_BLOCK) if self.counts_objects else 1000,
            heap_bytes=1,
            elsewhere_bytes=self.elsewhere_bytes,
            garbage_bytes=self.garbage_bytes,
            pause_s=seconds,
            whole=kind > Due.FULL,
            sealed=900 if self.is_sealed else 0,
        )

    def take_aside(self, scope: CensusScope) -> Census:
        return self.take(scope)

    def source_files(self) -> set[str]:
        return self.files

    def device_storages(self) -> list[DeviceStorages]:
        return self.storages


def row(path: str, size: int) -> CensusRow:
    return CensusRow(
        path=path, name=path, root=RootKind.GLOBAL, type="list", kind="list", host_bytes=size
    )


class FakeProbe:
    """Reads one gauge, in 40 microseconds if the test says nothing else, and counts how often."""

    seconds = 40e-6

    def __init__(
        self, clock: FakeClock, name: str = gauge.RSS, value: int = 1 << 30, slow: bool = False
    ) -> None:
        self.clock = clock
        self.name = name
        self.value = value
        self.slow = slow
        self.reads = 0

    def read(self) -> dict[str, int]:
        self.reads += 1
        self.clock.sleep(self.seconds)
        return {self.name: self.value}

    def gauges(self) -> dict[str, int]:
        return self.read()


class FakeWindow:
    """A window of tracemalloc that notes when it was open."""

    opened: ClassVar[list[FakeWindow]] = []

    def __init__(self) -> None:
        self.is_open = False
        self.is_cut = False

    def cut(self) -> None:
        self.is_cut = True

    def open(self) -> bool:
        self.is_open = True
        FakeWindow.opened.append(self)
        return True

    def close(self, top: int = 60, project_root: str = "") -> tuple[list[Site], int]:
        self.is_open = False
        return [Site(file="train.py", line=3, bytes=10)], 10


class FakeDevices:
    """One device in use, or none; notes at which moments its blocks were listed one by one."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.in_use = False
        self.listed_at: list[float] = []

    def __call__(self, *, with_blocks: bool) -> list[DeviceSnapshotRecord | BlockListRecord]:
        if not self.in_use:
            return []
        sums = DeviceSnapshotRecord(boundary=0, device="cuda:0", reserved=7)
        if not with_blocks:
            return [sums]
        self.listed_at.append(self.clock.now)
        return [sums, BlockListRecord(boundary=0, device="cuda:0")]


class FakeHistory:
    """Notes when allocations were recorded."""

    def __init__(self, is_free: bool = True) -> None:
        self.is_free = is_free
        self.log: list[str] = []

    def open(self) -> bool:
        self.log.append("open" if self.is_free else "refused")
        return self.is_free

    def close(self) -> None:
        self.log.append("close")


BLOCKS = 500_000
"""What Python has allocated in the fake program; the tests' own process may hold any number."""


class FakeSession:
    """A session of fakes, driven as the hooks would drive it."""

    begun: ClassVar[list[FakeSession]] = []

    def __init__(
        self,
        *,
        keep: bool = True,
        focused: float = 0.01,
        whole: float = 0.4,
        resumed: float | None = 0.08,
        slowed: float = 1.0,
        floor: Floor | None = None,
        costs: Costs | None = None,
        **options,
    ):
        self.clock = FakeClock(slowed)
        self.writer = FakeWriter(keep)
        self.taker = FakeTaker(self.clock, focused, whole, resumed)
        self.fast = FakeProbe(self.clock)
        self.slow = FakeProbe(self.clock, gauge.SYSTEM_AVAILABLE, 64 << 30, slow=True)
        self.devices = FakeDevices(self.clock)
        self.history = FakeHistory()
        FakeWindow.opened = []
        options = {"boundaries": "manual", "tracemalloc": "off", **options}
        self.session = Session(
            SessionOptions(**options),
            Path("nowhere"),
            writer=self.writer,
            taker=self.taker,
            probes=[self.fast, self.slow],
            window=FakeWindow,
            devices=self.devices,
            history=self.history,
            clock=self.clock,
            work_clock=lambda: self.clock.worked,
            floor=floor,
            costs=costs,
        )
        self.session._costs._blocks = lambda: BLOCKS
        self.session.begin()
        FakeSession.begun.append(self)
        self._token = 0

    def train_pass(self, batches: int, seconds: float = 0.01, *, known: bool = True) -> None:
        """One pass over a training loader."""
        dispatch, tracker = self.session.gate.dispatch, self.session.tracker
        self._token += 1
        token = self._token
        expected = batches if known else None
        dispatch(
            lambda: tracker.loader_begin(token, site=("train.py", 1), loader=1, expected=expected)
        )
        for _ in range(batches):
            dispatch(tracker.loader_next, token)
            self.clock.sleep(seconds)
            dispatch(tracker.optimizer_step, 9)
        dispatch(tracker.loader_next, token)
        dispatch(tracker.loader_end, token)

    def validation_pass(self, batches: int, seconds: float = 0.01) -> None:
        """One pass over a validation loader."""
        dispatch, tracker = self.session.gate.dispatch, self.session.tracker
        self._token += 1
        token = self._token
        tracker.surroundings = lambda: (False, True)
        dispatch(
            lambda: tracker.loader_begin(token, site=("train.py", 9), loader=2, expected=batches)
        )
        for _ in range(batches):
            dispatch(tracker.loader_next, token)
            self.clock.sleep(seconds)
        dispatch(tracker.loader_next, token)
        dispatch(tracker.loader_end, token)
        tracker.surroundings = lambda: (True, True)

    def steps(self, count: int, seconds: float) -> None:
        """Training without a loader."""
        for _ in range(count):
            self.clock.sleep(seconds)
            self.session.gate.dispatch(self.session.tracker.optimizer_step, 9)

    def close(self) -> None:
        self.session.close(status="completed")

    @property
    def spent(self) -> float:
        """Seconds of censuses so far."""
        return sum(self.taker.pauses)

    @property
    def elapsed(self) -> float:
        return self.clock.now - 1000.0

    def censuses(self, kind: BoundaryKind, phase: str, scope: CensusScope | None = None) -> list:
        """The boundaries of a kind at which a census was taken."""
        scopes = {record.boundary: record.census.scope for record in self.writer.of(CensusRecord)}
        return [
            boundary
            for boundary in self.writer.boundaries
            if boundary.kind is kind
            and boundary.phase == phase
            and boundary.index in scopes
            and scope in (None, scopes[boundary.index])
        ]
