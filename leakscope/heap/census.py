"""Taking a census: walk, name, merge, and forget everything but numbers and strings."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from sys import getsizeof
from threading import main_thread
from time import perf_counter
from types import FrameType
from typing import NamedTuple

import msgspec

from leakscope.heap import anatomy, graph
from leakscope.heap.autograd_loops import LoopMemory
from leakscope.heap.bytecode import LoopPass, outermost_loop
from leakscope.heap.contents import newest_items
from leakscope.heap.graph import Group, HeadTotal, TypeTotal, WalkRequest, WalkResult, walk
from leakscope.heap.ownership import Definitions, ownership_under
from leakscope.heap.pausing import at_rest, standing_still, without_tracing
from leakscope.heap.roles import Roles, device_storages
from leakscope.heap.roots import Roots, SealedRoots, find_roots, walk_request
from leakscope.heap.row_details import (
    BlockLookup,
    RowMemory,
    exclusive_share,
    insertions,
    made,
    origins,
    sampled,
    sampled_lines,
    sampled_origins,
    total_bytes,
    with_shares,
)
from leakscope.heap.rows import Draft, RowMaker, SealedRows
from leakscope.heap.waiting import waiting_groups
from leakscope.model.census import (
    Census,
    CensusRow,
    CensusScope,
    HeadObjects,
    RootKind,
    Site,
    Waiting,
    WaitKind,
    package_paths,
)
from leakscope.model.device import DeviceStorages

_OBJECTS_PER_ROW = 2
"""Several objects make one row: this many times more objects than rows are requested."""
_LEAST_OBJECTS = 200
_MOST_TYPES = 6
_NEW_SAMPLES = 48
"""Objects of a type whose lines are looked up while allocations are traced, microseconds each."""
_NEW_LOOKED_UP = 4096
"""The same where blocks were sampled, of which most objects have none."""
_MOST_SAMPLED = 8
"""Rows whose lines are looked up among sampled blocks, those that have grown most."""
_MANY = 1000
_MOST_COPIED = 6
"""Containers of so many objects are looked at for copied pages, so many of them."""
_PATIENCE_SECONDS = 1.0


class CensusTaker:
    """Takes censuses of this process.

    Between censuses it keeps paths and sizes, never an object. A census runs no code of the
    user's, reads every object through C slots, and raises only for lack of memory.
    """

    def __init__(
        self,
        *,
        project_root: str,
        cutoff_bytes: int = 16384,
        max_rows: int = 400,
        work_items: Mapping[str, object] | None = None,
        blocks: BlockLookup | None = None,
    ) -> None:
        """Prepare to take censuses of at most ``max_rows``; what retains less than the cutoff has
        none.

        ``work_items`` is for a worker what it works on at the time of a census, by name: what is in
        it must live until it is taken out. ``blocks`` tells which blocks of objects were sampled.
        """
        self._ownership = ownership_under(project_root)
        self._blocks = blocks
        self._definitions = Definitions(self._ownership)
        self._memory = RowMemory(max_rows)
        self._loops = LoopMemory()
        self._cutoff_bytes = cutoff_bytes
        self._max_rows = max_rows
        self._device_storages: list[DeviceStorages] = []
        self._waiting: list[Waiting] = []
        self._waiting_at_first: dict[tuple[WaitKind, str, int], int] = {}
        self._work_items = work_items
        self._unseal()
        # A worker is a copy: to go through all that it inherited would cost a census.
        self._baseline = graph.GraphBaseline() if work_items is None else None
        self._modules = 0
        """How many modules were imported when the baseline was made, or last added to."""
        self._memory_before: RowMemory | None = None
        self._folds = True
        self._is_autograd_busy = False
        """Whether the latest census waited in vain for other threads' backward passes."""
        self._sampled: dict[str, Sequence[int]] = {}
        """Where objects of the heaviest containers lie: numbers, which keep nothing alive."""

    def prepare(self) -> None:
        """Learn of the user's modules and classes what the first census would have to.

        No heap is walked: the first census alone then shows what that costs.
        """
        standing_still(
            find_roots, self._ownership, self._definitions, full=False, work_items=self._work_items
        )

    def take(self, scope: CensusScope, unwound: Sequence[FrameType] = ()) -> Census:
        """Return the rows of this moment; the whole process stands still meanwhile.

        ``unwound`` are frames that a traceback keeps alive, outermost first: they count as running.
        """
        return self._at_rest(lambda: self._census(scope, unwound))

    def take_checked(self) -> Census:
        """Return a whole census, and in it how far one that goes on from the seal is from it.

        It seals again, and folds nothing but numbers and texts. Where nothing was sealed there is
        nothing to hold it against.
        """
        return self._at_rest(self._checked)

    def _at_rest(self, census: Callable[[], Census]) -> Census:
        """Let other threads end their backward passes before; those that go on for long, once."""
        package_paths()  # which lists folders: within a census each would have to wait for others
        patience = 0.0 if self._is_autograd_busy else _PATIENCE_SECONDS
        taken, rests = at_rest(lambda: _timed(census), patience)
        self._is_autograd_busy = not rests
        return taken if self._work_items is None else self._with_copied(taken)

    def _with_copied(self, census: Census) -> Census:
        """Add which part of its heaviest containers a worker has copied, which files tell."""
        copied = self.copied_shares()
        rows = [msgspec.structs.replace(r, copied_share=copied.get(r.path)) for r in census.rows]
        return msgspec.structs.replace(census, rows=rows)

    def _checked(self) -> Census:
        if self._seal.is_empty or not graph.can_seal():
            return self._census(CensusScope.FULL, ())
        self._memory_before, self._memory = self._memory, self._memory.copy()
        try:
            resumed = _sums(self._census(CensusScope.FULL, ()))
            self._unseal()
        finally:
            self._memory, self._memory_before = self._memory_before, None
        self._folds = False
        try:
            whole = self._census(CensusScope.FULL, ())
        finally:
            self._folds = True
        return msgspec.structs.replace(whole, drift_bytes=_drift(resumed, _sums(whole)))

    def waiting(self) -> list[Waiting]:
        """Return the tasks and threads that run the same function, the most numerous first."""
        return standing_still(waiting_groups, self._ownership, self._definitions)

    def loop(self) -> LoopPass | None:
        """Return how far the outermost loop in the main thread has come, if that can be read."""
        return standing_still(self._loop)

    def _loop(self) -> LoopPass | None:
        owns = self._ownership.owns_code
        thread = main_thread().ident or 0
        return outermost_loop(thread, lambda frame: owns(frame.f_code, frame.f_globals))

    def take_aside(self, scope: CensusScope) -> Census:
        """Return the rows as :meth:`take` does; the next census is not compared with this one."""
        memory, self._memory = self._memory, self._memory.copy()
        try:
            return self.take(scope)
        finally:
            self._memory = memory
            self._device_storages = []

    def device_storages(self) -> list[DeviceStorages]:
        """Return the storages that the latest census met on each device, once."""
        found, self._device_storages = self._device_storages, []
        return found

    def source_files(self) -> set[str]:
        """Return the user's source files that were seen to own something."""
        return set(self._definitions.files)

    @property
    def sealed_bytes(self) -> int:
        """What the seal takes of :attr:`own_bytes`; names and rows come to that."""
        return self._seal.own_bytes

    @property
    def own_bytes(self) -> int:
        """What the taker keeps between censuses, in bytes."""
        sampled_bytes = sum(map(getsizeof, self._sampled.values()))
        parts = (self._seal, self._sealed_roots, self._sealed_rows, self._baseline)
        sealed_bytes = sum(part.own_bytes for part in parts if part is not None)
        remembered_bytes = self._memory.own_bytes() + self._loops.own_bytes
        return remembered_bytes + self._definitions.own_bytes() + sampled_bytes + sealed_bytes

    def copied_shares(self) -> dict[str, float]:
        """Return which part of its heaviest containers a worker has copied by now, by path."""
        shares = {path: exclusive_share(places) for path, places in self._sampled.items()}
        return {path: share for path, share in shares.items() if share is not None}

    def _request(self, roots: Roots, *, full: bool) -> WalkRequest:
        sealed_before = len(self._sealed_roots.modules) - len(roots.library_objects)
        return replace(
            walk_request(roots, full=full, own=[self]),
            folds=self._folds,
            keep_graph=True,
            cutoff_bytes=self._cutoff_bytes,
            max_selected=max(_LEAST_OBJECTS, self._max_rows * _OBJECTS_PER_ROW),
            lasting_from=len(roots.named),
            root_base=max(sealed_before, 0),
            new_samples=self._new_samples(),
        )

    def _new_samples(self) -> int:
        if tracemalloc.is_tracing():
            return _NEW_SAMPLES
        return 0 if self._blocks is None else _NEW_LOOKED_UP

    def _walk(
        self, scope: CensusScope, unwound: Sequence[FrameType], *, divides: bool = False
    ) -> tuple[Roots, WalkResult]:
        """Walk the heap; a full walk goes on from a seal, and ``divides`` what came since."""
        full = scope is CensusScope.FULL and graph.can_seal()
        baseline = self._baseline if scope is CensusScope.FOCUSED or (full and divides) else None
        roots = find_roots(
            self._ownership,
            self._definitions,
            full=scope is CensusScope.FULL,
            sealed=self._sealed_roots if full else None,
            imported=[] if baseline is None or full else self._imported(),
            unwound=unwound,
            work_items=self._work_items,
        )
        try:
            request = self._request(roots, full=scope is CensusScope.FULL)
            return roots, walk(request, seal=self._seal if full else None, baseline=baseline)
        except BaseException:
            self._unseal()
            raise

    def _imported(self) -> list[str]:
        before, self._modules = self._modules, len(sys.modules)
        new = self._modules - before if before else 0
        return list(islice(reversed(sys.modules), new)) if new > 0 else []

    def _unseal(self) -> None:
        self._seal = graph.Seal()
        self._sealed_roots = SealedRoots()
        self._sealed_rows = SealedRows()

    @anatomy.classes_stay()
    def _census(self, scope: CensusScope, unwound: Sequence[FrameType]) -> Census:
        full = scope is CensusScope.FULL
        # Kept by this object, for no walk looks at what a function of ours holds.
        self._waiting = waiting_groups(
            self._ownership, self._definitions, judges=True, at_first=self._waiting_at_first
        )
        is_whole = full and (not graph.can_seal() or self._seal.is_empty)
        # A full walk has rows for what hangs elsewhere, but no sum to compare with others.
        weighed = self._weigh(unwound) if full else None
        divides = weighed is not None and weighed.bytes is not None
        roots, result = self._walk(scope, unwound, divides=divides)
        if weighed is None:
            weighed = self._elsewhere(result)
        maker = RowMaker(result, roots, self._ownership, self._definitions, self._sealed_rows)
        roles = Roles(result, maker)
        self._device_storages = device_storages(roles, maker)
        return Census(
            scope=scope,
            rows=self._rows(result, maker, roles, full=full),
            cutoff_bytes=self._cutoff_bytes,
            objects=result.objects,
            heap_bytes=result.heap_bytes,
            payload_bytes=result.payload_bytes,
            graph_bytes=result.graph_bytes,
            graph_truncated=result.graph_truncated,
            garbage_bytes=result.garbage_bytes,
            elsewhere_bytes=weighed.bytes,
            elsewhere_types=weighed.types,
            elsewhere_sites=weighed.sites,
            elsewhere_heads=weighed.heads,
            native_heads=self._heads(result.heads) if full else [],
            frozen_gradient_bytes=roles.frozen_gradients(),
            components=roles.components(),
            walker=result.engine,
            whole=is_whole,
            native_bytes=result.native_bytes,
            waiting=self._waiting,
            sealed=self._seal.count,
        )

    def _weigh(self, unwound: Sequence[FrameType]) -> _Elsewhere:
        if self._baseline is None:
            return _NOTHING_WEIGHED
        _, result = self._walk(CensusScope.FOCUSED, unwound)
        return self._elsewhere(result)

    def _elsewhere(self, result: WalkResult) -> _Elsewhere:
        """Return what is new and no name of the user's reaches, by type and line too."""
        if result.elsewhere_bytes is None:
            return _NOTHING_WEIGHED
        heaviest = sorted(result.types, key=lambda total: -_host(total))[:_MOST_TYPES]
        types = {anatomy.qualified_name(total.type): _host(total) for total in heaviest}
        groups = [Group(t.type, t.count, _host(t), t.samples) for t in heaviest if t.samples]
        return _Elsewhere(
            result.elsewhere_bytes, types, self._origins(groups), self._heads(result.heads)
        )

    def _origins(self, groups: list[Group]) -> list[Site]:
        if self._blocks is None or tracemalloc.is_tracing():
            return origins(groups, self._ownership)
        return sampled_origins(groups, self._blocks, self._ownership)

    def _heads(self, totals: list[HeadTotal]) -> list[HeadObjects]:
        return [
            HeadObjects(
                type=anatomy.qualified_name(total.type),
                count=total.count,
                bytes=total.bytes,
                least_references=total.least_references,
                most_references=total.most_references,
            )
            for total in totals[:_MOST_TYPES]
            if total.bytes >= self._cutoff_bytes
        ]

    def _rows(
        self, result: WalkResult, maker: RowMaker, roles: Roles, *, full: bool
    ) -> list[CensusRow]:
        among = None if full else _named(result, most=len(maker.roots.named))
        drafts = {draft.path: draft for draft in maker.drafts(among)}
        rows = self._memory.choose(
            [maker.row(d, roles.of_draft) for d in drafts.values()], full=full
        )
        if not result.graph_truncated:
            for row in rows:
                if row.user and row.kind == "graph" and row.count == 1:
                    row.made[:] = made(result.nodes.objects[drafts[row.path].first])
        if full:
            rows = self._loops.with_loops(
                rows,
                lambda path: _objects(result, drafts[path]),
                self._memory.growth,
                [sample for total in result.heads for sample in total.samples],
            )
        grown = [row for row in rows if row.user and self._memory.growth(row.path) > 0]
        if tracemalloc.is_tracing():
            for row in grown:
                row.allocated_at[:] = origins(maker.groups(drafts[row.path]), self._ownership)
                if row.kind != "lru_cache":  # the decorated function feeds it, whoever calls that
                    objects = _objects(result, drafts[row.path])
                    row.inserted_at[:], row.items_made_at[:] = insertions(objects, self._ownership)
            for row in rows:
                if not row.user and row.length and self._memory.growth(row.path) > 0:
                    row.allocated_at[:] = self._lines_of_newest(result, drafts[row.path], row)
        elif self._blocks is not None:
            self._look_up_lines(result, drafts, rows, self._blocks)
        gathering = {row.path for row in grown if row.length is not None}
        shared = with_shares(result, drafts, rows, gathering)
        if self._work_items is not None:
            self._sampled = _places(result, drafts, shared)
        return shared

    def _look_up_lines(
        self,
        result: WalkResult,
        drafts: dict[str, Draft],
        rows: list[CensusRow],
        blocks: BlockLookup,
    ) -> None:
        grown = {row.path: growth for row in rows if (growth := self._memory.growth(row.path)) > 0}
        wanted = [row for row in rows if row.path in grown and (row.user or row.length)]
        for row in sorted(wanted, key=lambda row: -grown[row.path])[:_MOST_SAMPLED]:
            objects, gained = _objects(result, drafts[row.path]), self._memory.gained_items(row)
            lines = sampled_lines(objects, gained, blocks, self._ownership)
            row.allocated_at[:] = lines.allocated_at
            if row.user and row.kind != "lru_cache":  # the decorated function feeds that
                # The timers of a loop make room in turn for those that stay and those that pass:
                # there the line that made an item put it in.
                is_of_library = row.root is RootKind.LIBRARY
                row.inserted_at[:] = lines.items_made_at if is_of_library else lines.inserted_at
                row.items_made_at[:] = lines.items_made_at

    def _lines_of_newest(self, result: WalkResult, draft: Draft, row: CensusRow) -> list[Site]:
        """Return the user's lines below which a library's container got its latest items."""
        groups = [
            Group(object, row.length or 0, total_bytes(row), newest_items(obj, _NEW_SAMPLES))
            for obj in _objects(result, draft)
        ]
        return origins(groups, self._ownership)


def _timed(census: Callable[[], Census]) -> Census:
    began = perf_counter()
    collections = sum(generation["collections"] for generation in gc.get_stats())
    taken = without_tracing(census)
    pause = perf_counter() - began
    return msgspec.structs.replace(taken, pause_s=pause, collections=collections)


def _objects(result: WalkResult, draft: Draft) -> list[object]:
    return [result.nodes.objects[node] for node in draft.nodes or draft.inner]


def _places(
    result: WalkResult, drafts: dict[str, Draft], rows: list[CensusRow]
) -> dict[str, Sequence[int]]:
    large = [row for row in rows if row.count == 1 and (row.length or 0) >= _MANY]
    heaviest = sorted(large, key=lambda row: -row.host_bytes)[:_MOST_COPIED]
    return {row.path: sampled(result.nodes.objects[drafts[row.path].first]) for row in heaviest}


def _named(result: WalkResult, most: int) -> list[bool]:
    columns = zip(result.nodes.selected, result.nodes.root, strict=True)
    return [selected and 0 <= root < most for selected, root in columns]


class _Elsewhere(NamedTuple):
    bytes: int | None
    types: dict[str, int]
    sites: list[Site]
    heads: list[HeadObjects]


_NOTHING_WEIGHED = _Elsewhere(None, {}, [], [])


def _host(total: TypeTotal) -> int:
    return total.bytes + total.payload_bytes.get("host", 0)


def _sums(census: Census) -> tuple[int, int, dict[str, int]]:
    """Return the sums of a census: numbers only, which weigh nothing in the next."""
    rows = {row.path: row.host_bytes + sum(row.device_bytes.values()) for row in census.rows}
    return census.heap_bytes, census.native_bytes or 0, rows


def _drift(
    resumed: tuple[int, int, dict[str, int]], whole: tuple[int, int, dict[str, int]]
) -> dict[str, int]:
    both = resumed[2].keys() & whole[2].keys()
    rows = max((resumed[2][path] - whole[2][path] for path in both), key=abs, default=0)
    return {"heap": resumed[0] - whole[0], "native": resumed[1] - whole[1], "row": rows}
