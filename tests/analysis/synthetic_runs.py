"""Runs made of planted objects: a small language for what grows, when, and how much."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import (
    Census,
    CensusRow,
    CensusScope,
    Content,
    LoopStep,
    Owner,
    RootKind,
)
from leakscope.model.record import DeviceSnapshotRecord, HeaderRecord, RunManifest
from leakscope.model.run import Measurement, Recording, Run

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CUTOFF = 16 * KIB


@dataclass(frozen=True)
class State:
    """Where the synthetic program stands."""

    kind: BoundaryKind = BoundaryKind.RUN_BEGIN
    phase: str = ""
    occurrence: int = 0
    epoch: int = 0
    step: int = 0
    batch: int = 0
    label: str = ""
    validations: int = 0
    """Validation passes that have ended."""
    validation_batches: int = 0
    epochs_done: int = 0
    expected: int | None = None

    @property
    def inner(self) -> bool:
        return self.kind in {BoundaryKind.STEP, BoundaryKind.BATCH}


Size = Callable[[State], float | None]
PER: dict[str, Callable[[State], float]] = {
    "step": lambda s: s.step,
    "validation batch": lambda s: s.validation_batches,
    "validation": lambda s: s.validations,
    "epoch": lambda s: s.epochs_done,
}


@dataclass(frozen=True)
class Thing:
    """An object (or the elements of one) with a size at each moment; None: not there."""

    path: str
    size: Size
    kind: str = "list"
    type: str = "list"
    parent: str = ""
    root: RootKind = RootKind.GLOBAL
    user: bool = True
    of_a_call: bool = False
    """Whether a running function of a library holds it: each census looks there."""
    length: Size | None = None
    count: Size | None = None
    capacity: int | None = None
    device: str = "host"
    graph_nodes: int = 0
    role: str = "other"
    cycle: tuple[str, ...] = ()
    loop: tuple[LoopStep, ...] = ()
    name: str = ""
    """By default the path's."""
    owner: Owner | None = None
    holds: tuple[Content, ...] = ()

    def row(self, state: State) -> CensusRow | None:
        size = self.size(state)
        if size is None or size < CUTOFF:
            return None
        length = self.length(state) if self.length else None
        count = self.count(state) if self.count else 1
        return CensusRow(
            path=self.path,
            name=self.name or self.path.replace("()·", ".").replace("·", "."),
            root=self.root,
            owner=self.owner
            or Owner(kind="function", name=self.path.partition("(")[0], variable="x"),
            type=self.type,
            kind=self.kind,
            role=self.role,
            user=self.user,
            host_bytes=int(size) if self.device == "host" else 64,
            device_bytes={} if self.device == "host" else {self.device: int(size)},
            count=int(count or 1),
            length=None if length is None else int(length),
            capacity=self.capacity,
            cycle=[*self.cycle],
            holds=[*self.holds],
            loop=[*self.loop],
            graph_nodes=self.graph_nodes,
            parent=self.parent,
        )


@dataclass
class Program:
    """A training program; builder methods return it."""

    epochs: int = 8
    steps: int = 40
    validation: int = 10
    """Batches of a validation pass; 0: none."""
    endless: bool = False
    """One training phase with all steps, validation nested every ``validate_every`` steps."""
    validate_every: int = 0
    inner: int = 5
    """Censuses inside each of the first four occurrences of a phase; in an endless one: in all."""
    full_every: int = 2
    full_at: tuple[int, ...] = ()
    """Steps at whose end the whole heap is walked; where there are any, nowhere else."""
    weighs: bool = True
    """Whether each census weighs what is new outside the user's names: the native walker does."""
    weighs_garbage: bool = False
    """Whether each census weighs what no name reaches any more, as it does with a native walker."""
    rss: bool = True
    rss_noise: float = 0.2 * MIB
    baseline: float = 400 * MIB
    limit: int = 64 * GIB
    seed: int = 0
    things: list[Thing] = field(default_factory=list)
    gauges: dict[str, Size] = field(default_factory=dict)
    events: dict[str, Size] = field(default_factory=dict)
    """How often each has happened by then."""
    block_lists: dict[str, dict[str, Size]] = field(default_factory=dict)
    """By device: sums of its blocks, recorded with each census."""
    extra: list[Size] = field(default_factory=list)
    garbage: Size | None = None
    truncated_from: float = inf
    """The step from which on censuses meet more autograd nodes than they count."""
    killed_at: int | None = None
    skipped: float = 0.0
    """Part of the censuses after the second occurrence of a phase that are left out, as a busy
    machine's are."""

    def plant(self, *things: Thing) -> Program:
        self.things += things
        return self

    def leak(
        self, path: str, size: float, per: str = "step", *, start: int = 0, **more: object
    ) -> Program:
        """A list that gains ``size`` bytes in one element per unit of work, and keeps them."""
        counter = PER[per]

        def items(state: State) -> float:
            return max(counter(state) - start, 0)

        holder = Thing(path, lambda s: 56 + items(s) * (size + 8), length=items)
        element = Thing(
            f"{path}[*]", lambda s: items(s) * size, "tensor", "torch.Tensor", path, count=items
        )
        return self.plant(replace(holder, **more), replace(element, **_inherited(more)))

    def local(self, path: str, size: float, phase: str = "validation", **more: object) -> Program:
        """A list local to a phase's function: one element per batch, gone after the phase."""

        def items(state: State) -> float | None:
            return state.batch if state.phase == phase else None

        def bytes_(state: State) -> float | None:
            n = items(state)
            return None if n is None else 56 + n * (size + 8)

        holder = Thing(path, bytes_, root=RootKind.LOCAL, length=items)
        element = Thing(
            f"{path}[*]", lambda s: (items(s) or 0) * size, "tensor", "torch.Tensor", path,
            RootKind.LOCAL, count=items,
        )  # fmt: skip
        return self.plant(replace(holder, **more), replace(element, **_inherited(more)))

    def constant(self, path: str, size: float, **more: object) -> Program:
        return self.plant(replace(Thing(path, lambda s: size, "tensor", "torch.Tensor"), **more))

    def swell(self, size: Size) -> Program:
        """Resident memory that no census sees."""
        self.extra.append(size)
        return self

    def gauge(self, name: str, value: Size) -> Program:
        self.gauges[name] = value
        return self

    def event(self, name: str, count: Size) -> Program:
        self.events[name] = count
        return self

    def blocks(self, device: str = "cuda:0", **sums: Size) -> Program:
        """Sums of a device's block list, by the fields of its record."""
        self.block_lists.setdefault(device, {}).update(sums)
        return self

    def build(self) -> Run:
        chance = random.Random(self.seed)
        states = list(self._endless() if self.endless else self._loaders())
        measurements = [self._measure(i, s, chance) for i, s in enumerate(states)]
        measurements = measurements[: self.killed_at]
        recording = Recording(header=HeaderRecord(pid=1), measurements=measurements)
        manifest = RunManifest(
            run_id="r", script="train.py", project_root="/project", memory_limit=self.limit
        )
        return Run(path=Path("run"), manifest=manifest, recordings=[recording])

    def census_at(self, state: State) -> Census:
        """Return what a census shows in this state."""
        return self._census(state)

    def _loaders(self) -> Iterator[State]:
        now = State()
        yield now
        for epoch in range(self.epochs):
            now = replace(now, phase="train", occurrence=epoch, epoch=epoch, batch=0)
            now = replace(now, expected=self.steps)
            yield replace(now, kind=BoundaryKind.PHASE_BEGIN)
            for batch in range(1, self.steps + 1):
                now = replace(now, batch=batch, step=now.step + 1)
                yield replace(now, kind=BoundaryKind.STEP)
            yield replace(now, kind=BoundaryKind.PHASE_END)
            if self.validation:
                yield from (passes := list(self._validate(now, epoch)))
                now = passes[-1]
            now = replace(now, epochs_done=now.epochs_done + 1, validations=epoch + 1)
        yield replace(now, kind=BoundaryKind.RUN_END, phase="", expected=None)

    def _validate(self, now: State, occurrence: int) -> Iterator[State]:
        now = replace(now, phase="validation", occurrence=occurrence, batch=0)
        now = replace(now, expected=self.validation)
        yield replace(now, kind=BoundaryKind.PHASE_BEGIN)
        for batch in range(1, self.validation + 1):
            now = replace(now, batch=batch, validation_batches=now.validation_batches + 1)
            yield replace(now, kind=BoundaryKind.BATCH)
        yield replace(now, kind=BoundaryKind.PHASE_END)

    def _endless(self) -> Iterator[State]:
        now = State(phase="train")
        yield replace(now, kind=BoundaryKind.RUN_BEGIN, phase="")
        yield replace(now, kind=BoundaryKind.PHASE_BEGIN)
        for step in range(1, self.steps + 1):
            now = replace(now, step=step, batch=step)
            yield replace(now, kind=BoundaryKind.STEP)
            if self.validate_every and step % self.validate_every == 0:
                passes = list(self._validate(now, now.validations))
                yield from passes
                now = replace(
                    now,
                    validations=now.validations + 1,
                    validation_batches=passes[-1].validation_batches,
                )
        yield replace(now, kind=BoundaryKind.RUN_END, phase="")

    def _measure(self, index: int, state: State, chance: random.Random) -> Measurement:
        due = self._is_due(state) and not self._is_skipped(index, state)
        census = self._census(state) if due else None
        boundary = Boundary(
            index=index,
            kind=state.kind,
            time_s=index * 0.01,
            phase=state.phase,
            occurrence=state.occurrence,
            epoch=state.epoch,
            step=state.step,
            batch=state.batch,
            label=state.label,
            expected_batches=state.expected,
        )
        devices = self._snapshots(index, state) if census is not None else ()
        counts = {name: int(count(state) or 0) for name, count in self.events.items()}
        return Measurement(boundary, self._gauges(state, chance), census, devices, counts)

    def _snapshots(self, index: int, state: State) -> tuple[DeviceSnapshotRecord, ...]:
        return tuple(
            DeviceSnapshotRecord(
                boundary=index, device=device, **{k: int(v(state) or 0) for k, v in sums.items()}
            )
            for device, sums in self.block_lists.items()
        )

    def _gauges(self, state: State, chance: random.Random) -> dict[str, int]:
        tops = sum((t.size(state) or 0) for t in self.things if not t.parent and t.device == "host")
        extra = sum((size(state) or 0) for size in self.extra)
        sizes = {name: value(state) for name, value in self.gauges.items()}
        read = {name: int(size) for name, size in sizes.items() if size is not None}
        if self.rss:
            noise = chance.gauss(0, self.rss_noise)
            read[gauge.RSS] = int(self.baseline + tops + extra + noise)
        return read

    def _is_due(self, state: State) -> bool:
        if state.kind in {BoundaryKind.PHASE_BEGIN, BoundaryKind.PHASE_END}:
            return True
        if not state.inner:
            return False
        if state.kind is BoundaryKind.STEP and state.step in self.full_at:
            return True
        if self.endless and state.phase == "train":
            return state.batch % max(self.steps // 30, 1) == 0
        total = self.steps if state.phase == "train" else self.validation
        every = max(total // self.inner, 1)
        return state.occurrence < 4 and state.batch % every == 0

    def _is_skipped(self, index: int, state: State) -> bool:
        chance = random.Random(f"{self.seed} {index}").random()
        return state.occurrence > 1 and chance < self.skipped

    def _is_full(self, state: State) -> bool:
        if self.full_at:
            return state.kind is BoundaryKind.STEP and state.step in self.full_at
        begins = state.kind is BoundaryKind.PHASE_BEGIN and state.phase == "train"
        return begins and state.occurrence % self.full_every == 0

    def _census(self, state: State) -> Census:
        full = self._is_full(state)
        seen = [t for t in self.things if full or t.user or t.of_a_call]
        rows = [row for t in seen if (row := t.row(state))]
        garbage = None
        if full or self.weighs_garbage:
            garbage = int(self.garbage(state) or 0) if self.garbage else 0
        return Census(
            scope=CensusScope.FULL if full else CensusScope.FOCUSED,
            rows=rows,
            cutoff_bytes=CUTOFF,
            objects=100_000,
            heap_bytes=10 * MIB,
            garbage_bytes=garbage,
            elsewhere_bytes=int(self._elsewhere(state)) if self.weighs else None,
            graph_truncated=state.step >= self.truncated_from,
            pause_s=0.003,
        )

    def _elsewhere(self, state: State) -> float:
        """Return bytes of what is new on the host and has no name of the user's."""
        known = [t for t in self.things if t.user or t.of_a_call or t.parent]
        outside = [t for t in self.things if t not in known and t.device == "host"]
        return sum(max((t.size(state) or 0) - (t.size(State()) or 0), 0) for t in outside)


_INHERITED = {"root", "device", "user", "of_a_call", "graph_nodes"}


def _inherited(more: dict[str, object]) -> dict[str, object]:
    return {k: v for k, v in more.items() if k in _INHERITED}
