"""Gauges that a session reads by itself: slow ones within their part of the budget, what measuring
made resident, shapes of tensors, pages that a worker copied.

Only these show what child processes hold. While there are any, they are therefore read
by time, also in the middle of a pass that lasts: ever further apart at first, so that a run of
seconds shows whether they grow and for how long; then as often as their part of the budget allows.
So is a DataLoader's worker, which is a child itself and whose censuses may lie far apart.

Pages that a census touched stay resident when it is over, and would otherwise be growth that
nothing explains. What a census needs meanwhile would otherwise be a peak of the program's.

Libraries keep something for each shape that they meet: oneDNN compiles a kernel and caches it. What
grows with new shapes alone is no leak, so their number is recorded with the memory at boundaries.
Looked at are the variables of the boundary's own thread; numbers are kept, and no tensor.

One census suffices to know where objects lie; whether their pages are still shared is then read
without walking the heap again, which is expensive for large datasets.
"""

from __future__ import annotations

import sys
from collections import UserDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from leakscope.capture import policy
from leakscope.capture.dispatch import Guard
from leakscope.heap.anatomy import locals_of
from leakscope.heap.compiled_code import compiled_code
from leakscope.model import gauge
from leakscope.model.errors import OUR_FILES, ours

if TYPE_CHECKING:
    from leakscope.heap import CensusTaker
    from leakscope.probes import GuardedProbe
    from leakscope.probes.interpreter import BatchProbe

SLOW_SHARE = 0.05
"""Part of the budget for each source of gauges that is slow to read."""
RECENT = 3
"""A reading is taken to cost what the cheapest of so many did: one may have waited by chance for a
processor, and would put off the next one for long."""
TREE_SHARE = 0.15
"""The same for those of child processes together, while there are any."""
TREE_FIRST_SECONDS = 0.25
TREE_FIRST_COST = 1 / 20
"""Those first readings take no more than this part of the time, …"""
TREE_SPACING = 1 / 3
"""… and lie so far apart, as a part of the time since there were children. The last of them then
lies in the last quarter of a run, however long that is."""
TREE_LATE_SPACING = 1 / 100
"""Later ones lie no nearer than this: a recording grows with the logarithm of time."""
FIRST_BOUNDARIES = 2
"""The recording begins with one; the program has imported its libraries before it comes to the
next."""
_TREE = frozenset({gauge.CHILDREN, gauge.CHILDREN_PSS, gauge.PSS})


class Reader(Protocol):
    """A source of gauges, such as a probe."""

    name: str
    slow: bool

    def gauges(self) -> dict[str, int]:
        """Return gauges; may raise."""


def default_probes() -> list[GuardedProbe]:
    """Return one probe of every kind, those for every boundary first."""
    from leakscope.probes import cgroup, cuda, interpreter, malloc, mappings, nvidia, process

    return [
        process.ProcessProbe(),
        interpreter.GarbageProbe(),
        interpreter.FiguresProbe(),
        cuda.CudaProbe(),
        cuda.AcceleratorProbe(),
        process.SystemProbe(),
        malloc.MallocProbe(),
        cgroup.CgroupProbe(),
        interpreter.RegistriesProbe(),
        process.MappingProbe(),
        mappings.MappingKindsProbe(),
        process.ChildCountProbe(),
        process.ChildrenProbe(),
        cuda.DeviceProbe(),
        nvidia.DeviceOwnersProbe(),
        cuda.AcceleratorDeviceProbe(),
    ]


def worker_probes(batches: BatchProbe) -> list[GuardedProbe]:
    """Return the probes for a worker of a DataLoader: none that asks for a device."""
    from leakscope.probes import interpreter, malloc, process

    return [
        process.ProcessProbe(),
        interpreter.GarbageProbe(),
        batches,
        process.SystemProbe(),
        malloc.MallocProbe(),
        process.MappingProbe(),
    ]


class SlowGauges:
    """Reads each source when its last reading is paid for, those of children by time too."""

    def __init__(
        self,
        probes: Iterable[Reader],
        clock: Callable[[], float],
        guard: Guard,
        budget: float,
        *,
        in_child: bool = False,
    ) -> None:
        self._readers = [_SlowReader(probe, clock, guard) for probe in probes]
        self._budget = budget
        self.part = 1.0
        """Part of what they may take beside the budget: less where somebody waits for answers."""
        self.reads_ahead = False
        """Whether what divides memory is read by :meth:`read_ahead`, and at boundaries only at the
        end."""
        self._in_child = in_child
        self._children_since = inf
        self._tree_from = inf
        self._boundaries = 0
        self._work_from = 0.0
        self._ahead: dict[str, int] = {}
        self.last_seconds = 0.0

    @property
    def probes(self) -> list[Reader]:
        """The sources themselves."""
        return [reader.probe for reader in self._readers]

    def read(self, now: float, *, everything: bool, between: bool = False) -> dict[str, int]:
        """Return the gauges whose turn it is ``now``, or all of them.

        ``between`` phases, where boundaries are compared, also those that a short run can bear.
        """
        gauges, self._ahead = self._ahead, {}
        self.last_seconds = tree_seconds = 0.0
        self._boundaries += 1
        if self._boundaries <= FIRST_BOUNDARIES:
            self._work_from = now
        age = now - self._work_from
        for reader in self._readers:
            if not everything and self._is_put_off(reader):
                continue
            is_timed = reader.is_of_tree and self._tree_from < inf
            is_due = everything or now >= (self._tree_from if is_timed else reader.not_before)
            is_bearable = between and reader.is_bearable(now, age, self.part)
            if is_due or is_bearable or reader.is_due_in_short_run(now, age, self.part):
                gauges.update(reader.read(now, self._budget * SLOW_SHARE))
                self.last_seconds += reader.seconds
                tree_seconds += reader.seconds * reader.is_of_tree
        if self._in_child and tree_seconds:
            self._plan_tree(now, 1, tree_seconds)
        elif gauge.CHILDREN in gauges and gauge.CHILDREN_PSS in gauges:
            self._plan_tree(now, gauges[gauge.CHILDREN], tree_seconds)
        return gauges

    def read_again(self, now: float) -> dict[str, int]:
        """Return the gauges that were read ``now`` as they are by this time."""
        gauges: dict[str, int] = {}
        for reader in self._readers:
            if reader.was_read(now):
                gauges.update(reader.read(now, self._budget * SLOW_SHARE))
                self.last_seconds += reader.seconds
        return gauges

    def read_ahead(self, now: float) -> float:
        """Read what the kernel is slow to add up, in a thread of ours, for the next boundary.

        The kernel works without the interpreter's lock. Return the seconds that it took.
        """
        taken = 0.0
        for reader in self._readers if self.reads_ahead else ():
            if reader.divides_memory and (
                now >= reader.not_before
                or reader.is_due_in_short_run(now, now - self._work_from, 1.0)
            ):
                self._ahead = reader.read(now, self._budget * SLOW_SHARE, is_guarded=False)
                taken += reader.seconds
        return taken

    def _is_put_off(self, reader: _SlowReader) -> bool:
        """Return whether a source is read elsewhere, or divides pages that nobody shares."""
        is_shared = self._in_child or self._tree_from < inf
        is_read_ahead = self.reads_ahead and reader.divides_memory
        return is_read_ahead or (reader.divides_shared and not is_shared)

    def _plan_tree(self, now: float, children: int, seconds: float) -> None:
        if not children:
            self._tree_from = inf
            return
        self._children_since = min(self._children_since, now)
        age = now - self._children_since
        first = max(TREE_FIRST_SECONDS, seconds / TREE_FIRST_COST, age * TREE_SPACING)
        paid = max(seconds / (self._budget * TREE_SHARE), age * TREE_LATE_SPACING)
        self._tree_from = now + min(first, paid)


class _SlowReader:
    """A source that is read again only when its last reading has been paid for."""

    def __init__(self, probe: Reader, clock: Callable[[], float], guard: Guard) -> None:
        self.not_before = 0.0
        self.probe = probe
        self.is_of_tree = False
        """Whether it is about child processes, or of memory that is shared with them."""
        self.divides_memory = False
        """Whether it is about memory by kind of mapping."""
        self.divides_shared = False
        """Whether it divides pages among the processes that share them: of use where some do."""
        self.seconds = 0.0
        self._read_at = 0.0
        self._readings = 0
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._clock = clock
        self._guard = guard

    def is_bearable(self, now: float, age: float, part: float) -> bool:
        """Say whether a run as short as this one so far can bear one more reading between phases.

        ``age`` is how long the program has been at work, ``part`` that of what it may take else.
        """
        if self.divides_memory:
            return False
        in_proportion = part * policy.SLOW_FLOOR_SHARE * min(now, policy.SLOW_FLOOR_UNTIL)
        cheapest = min(self._recent, default=0.0)
        if (self._readings + 1) * cheapest <= policy.SLOW_FLOOR_SECONDS + in_proportion:
            return True
        return self._is_rested(now, policy.SLOW_FLOOR_SPACING * age, policy.SLOW_FLOOR_COST)

    def is_due_in_short_run(self, now: float, age: float, part: float) -> bool:
        """Say whether what divides memory is read once more before the budget has paid for it."""
        spacing, cost = policy.MAPPINGS_FLOOR_SPACING, part * policy.MAPPINGS_FLOOR_COST
        return self.divides_memory and self._is_rested(now, spacing * age, cost)

    def _is_rested(self, now: float, spacing: float, cost: float) -> bool:
        apart = max(spacing, min(self._recent, default=0.0) / cost)
        return now - self._read_at >= apart

    def was_read(self, now: float) -> bool:
        """Return whether it was read at this moment, with what it reads at all."""
        return self._readings > 0 and self._read_at == now

    def read(self, now: float, share: float, *, is_guarded: bool = True) -> dict[str, int]:
        """Return its gauges; a fault is written down if guarded, which only boundaries may do."""
        began = self._clock()
        if is_guarded:
            gauges = self._guard.call(f"probe {self.probe.name}", {}, self.probe.gauges)
        else:
            try:
                gauges = self.probe.gauges()
            except ours(Exception):
                gauges = {}
        self.seconds = self._clock() - began
        self._readings += 1
        self._read_at = now
        self.is_of_tree = self.is_of_tree or any(n in _TREE or gauge.is_copied(n) for n in gauges)
        self.divides_memory = self.divides_memory or gauge.MAPPED_ANONYMOUS in gauges
        self.divides_shared = self.divides_shared or gauge.PSS in gauges
        self._recent.append(self.seconds)
        self.not_before = now + min(self._recent) / share
        return gauges


WORTH_READING_BYTES = 256 << 10
"""The C heap is read again, which takes its locks, only after a rise beyond this."""


class OwnMemory:
    """Adds up by how much resident memory rose from the beginning of measurements to their end.

    The C heap is left out where it was read before; what other threads allocate is charged too.
    """

    def __init__(self, probes: Iterable[Reader]) -> None:
        by_name = {probe.name: probe for probe in probes}
        self._process = by_name.get("process")
        self._heap = by_name.get("malloc")
        self.resident = 0
        self._mark = self._peak = 0

    def peak(self, gauges: Mapping[str, int]) -> dict[str, int]:
        """Return the highest resident memory so far that is the program's, as a gauge."""
        mark = gauges.get(gauge.RSS_PEAK)
        if mark is None:
            return {}
        risen = mark if mark > self._mark else 0
        self._mark = mark
        self._peak = max(self._peak, risen, gauges.get(gauge.RSS, 0))
        return {gauge.RSS_PEAK: self._peak}

    def charge(self, before: Mapping[str, int]) -> None:
        """Charge what has risen since the gauges of this boundary were read."""
        if self._process is None or gauge.RSS not in before:
            return
        now = self._process.gauges()
        self._mark = now.get(gauge.RSS_PEAK, self._mark)
        risen = now.get(gauge.RSS, 0) - before[gauge.RSS]
        if risen >= WORTH_READING_BYTES and self._heap is not None and _heap_bytes(before):
            risen -= _heap_bytes(self._heap.gauges()) - _heap_bytes(before)
        self.resident = max(self.resident + risen, 0)


def _heap_bytes(gauges: Mapping[str, int]) -> int:
    return gauges.get(gauge.MALLOC_IN_USE, 0) + gauges.get(gauge.MALLOC_FREE, 0)


MOST_SHAPES = 2048
"""More aren't distinguished: no known cache of a library has room for so many."""
MOST_FRAMES = 24
MOST_NAMES = 256
MOST_ITEMS = 16
"""A container of more is no batch."""
DEEPEST = 2
LEAST_DIMENSIONS = 2
"""Vectors are labels, lengths and histories."""

_CONTAINERS = frozenset({dict, list, tuple})
"""Looking into these runs no code of the program's."""


class ShapesReader:
    """Counts shapes at boundaries that are measured; a source of gauges."""

    name = "shapes"
    slow = True

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def gauges(self) -> dict[str, int]:
        """Return how many shapes were seen so far; nothing before torch is there."""
        torch = sys.modules.get("torch")
        kind = getattr(torch, "Tensor", None)
        if kind is None:
            return {}
        core: Any = sys.modules["torch._C"]
        # No mode of the program's sees it.
        with core.DisableTorchFunction(), core._DisableTorchDispatch():
            for frame in _frames(sys._getframe()):
                self._look(_variables(frame), kind, DEEPEST)
        return {gauge.SHAPES: len(self._seen)}

    def _look(self, values: Iterable[Any], kind: type, depth: int) -> None:
        for value in values:
            its = type(value)
            if its is kind:
                try:
                    shape = value.shape
                except RuntimeError:  # a nested tensor has none
                    continue
                if len(shape) >= LEAST_DIMENSIONS and len(self._seen) < MOST_SHAPES:
                    self._seen.add(hash(shape))
            elif depth and (its in _CONTAINERS or UserDict in its.__mro__):
                self._look(_items(value), kind, depth - 1)


def _frames(inner: FrameType | None) -> Iterator[FrameType]:
    for _ in range(MOST_FRAMES):
        if inner is None:
            return
        if not inner.f_code.co_filename.startswith(OUR_FILES):
            yield inner
        inner = inner.f_back


def _variables(frame: FrameType) -> list[object]:
    if frame.f_code.co_name == "<module>":
        return list(frame.f_globals.values())[-MOST_NAMES:]
    return [value for _, value in locals_of(frame)]


def _items(value: Any) -> Iterable[Any]:
    if type(value) not in _CONTAINERS:
        value = vars(value).get("data")
    if type(value) not in _CONTAINERS or len(value) > MOST_ITEMS:
        return ()
    return list(value.values()) if type(value) is dict else list(value)


LOOP = "loop"
"""The source that is read at boundaries by time alone."""


@dataclass
class FunctionReader:
    """A source of gauges that a function reads."""

    name: str
    gauges: Callable[[], dict[str, int]]
    slow: bool = True


def readers_of(taker: CensusTaker) -> list[Reader]:
    """Return the sources besides the probes: shapes, what is compiled, tasks and threads by what
    they run, and how far the outermost loop has come.
    """

    def compiled() -> dict[str, int]:
        entries = sum(len(code.entries) for code in compiled_code())
        return {gauge.COMPILED: entries} if entries else {}

    def waiting() -> dict[str, int]:
        return {gauge.waiting(group.key): group.count for group in taker.waiting()}

    def passes() -> dict[str, int]:
        loop = taker.loop()
        return {} if loop is None else {gauge.loop(loop.file, loop.line): loop.done}

    return [
        ShapesReader(),
        FunctionReader("compiled", compiled),
        FunctionReader("waiting", waiting),
        FunctionReader(LOOP, passes, slow=False),
    ]


def copies_of(taker: CensusTaker) -> Reader:
    """Return what reads again of what a worker's latest census has read: copied thousandths."""

    def copied() -> dict[str, int]:
        shares = taker.copied_shares()
        return {gauge.copied(path): round(1000 * share) for path, share in shares.items()}

    return FunctionReader("copies", copied)
