"""What a census adds to its rows: what it remembers of earlier ones, shares, allocation sites,
ages, copied pages.

A tensor's memory is no Python allocation, but its wrapper is one: the traceback of the wrapper is
the line that made the tensor.

torch numbers the nodes of a thread in the order in which it makes them (``Node::sequence_nr``,
torch/csrc/autograd/function.h). A graph whose first node is younger than the last one of an earlier
census holds nothing of what that one had seen: it was recreated and is as large as its inputs.

A page stays shared with the parent until somebody writes to it, and Python writes to every object
that it merely looks at: its reference count lies within. Linux says of each page whether this
process alone maps it (``/proc/self/pagemap``, bit 56; Documentation/admin-guide/mm/pagemap.rst), to
anybody, for his own process. Reading it touches none of the objects.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import mmap
import os
import sys
import tracemalloc
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from types import CodeType, FrameType, FunctionType, GetSetDescriptorType, ModuleType
from typing import Any, NamedTuple

import msgspec

from leakscope.heap import anatomy
from leakscope.heap.adapters.buffers import array_memory, known_types
from leakscope.heap.adapters.tensor import TensorAccess, no_overrides, tensor_access
from leakscope.heap.anatomy import _native
from leakscope.heap.contents import newest_items
from leakscope.heap.graph import MOST_GROUPS, Group, WalkResult, leak_shares
from leakscope.heap.ownership import Ownership
from leakscope.heap.pausing import autograd_changes
from leakscope.heap.rows import LIBRARY_SIZE, Draft
from leakscope.model.census import CensusRow, SampledBlock, Site
from leakscope.model.errors import ours

_LIBRARY_CHANGE = 64 * 1024
"""A library's row is worth saying once it has changed by more than this."""
_LIBRARY_PART = 4
_PATHS_PER_ROW = 4
"""Paths remembered, as a multiple of the rows of a census."""
_LEAST_PATHS = 200
_FORGOTTEN_AFTER = 50
"""Censuses after which a path that did not come back is forgotten."""


class _Last(NamedTuple):
    nbytes: int
    census: int
    is_detailed: bool
    first_length: int
    """How many items it had when it was first seen."""


class RowMemory:
    """Chooses the rows of a census: what grew, what was reported before, what is large."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._last: dict[str, _Last] = {}
        self._grew: dict[str, int] = {}
        self._census = 0
        self._knows_libraries = False

    def copy(self) -> RowMemory:
        """Return one that remembers the same."""
        other = copy.copy(self)
        other._last = dict(self._last)
        return other

    def choose(self, rows: list[CensusRow], *, full: bool) -> list[CensusRow]:
        """Return the rows to record, the heaviest first, and remember the sizes of all."""
        self._census += 1
        self._grew = {row.path: self._growth_of(row) for row in rows}
        wanted = [row for row in rows if row.user or self._is_detailed(row)]
        wanted.sort(key=self._precedence)
        users = sum(row.user for row in wanted)
        most = min(users, self._max_rows)
        left = max(self._max_rows - most, self._max_rows // _LIBRARY_PART)
        chosen = wanted[:most] + wanted[users : users + left]
        self._remember(rows, {row.path for row in chosen})
        self._knows_libraries = self._knows_libraries or full
        return sorted(chosen, key=lambda row: (not row.user, -total_bytes(row), row.path))

    def growth(self, path: str) -> int:
        """Return by how much a row of the latest census has grown; 0 for a new one."""
        return self._grew.get(path, 0)

    def gained_items(self, row: CensusRow) -> int:
        """Return how many items a row of the latest census has more than when it was first seen."""
        if row.length is None:
            return _ITEMS_OF_OBJECT
        return row.length - self._last[row.path].first_length

    def own_bytes(self) -> int:
        """Return what is kept between censuses."""
        kept = (self._last, self._grew)
        return sum(sys.getsizeof(d) + sum(map(sys.getsizeof, d)) + 120 * len(d) for d in kept)

    def _growth_of(self, row: CensusRow) -> int:
        """A new name of the user's may be old data; a library's is news once all were seen."""
        last = self._last.get(row.path)
        if last is not None:
            return reached_bytes(row) - last.nbytes
        return reached_bytes(row) if self._knows_libraries and not row.user else 0

    def _is_detailed(self, row: CensusRow) -> bool:
        """Of a library only what is large is kept, at its top or if it gathers, and what changes.

        A row that was reported once is always reported.
        """
        last = self._last.get(row.path)
        if abs(self._grew[row.path]) > _LIBRARY_CHANGE or (last and last.is_detailed):
            return True
        gathers = row.length is not None
        return (gathers or not row.parent) and reached_bytes(row) >= LIBRARY_SIZE

    def _precedence(self, row: CensusRow) -> tuple[bool, bool, bool, int]:
        last = self._last.get(row.path)
        grows = row.length is not None and self._grew[row.path] > 0
        return (not row.user, not grows, last is None or not last.is_detailed, -total_bytes(row))

    def _remember(self, rows: list[CensusRow], chosen: set[str]) -> None:
        for row in rows:
            last = self._last.get(row.path)
            self._last[row.path] = _Last(
                nbytes=reached_bytes(row),
                census=self._census,
                is_detailed=row.path in chosen,
                first_length=(row.length or 0) if last is None else last.first_length,
            )
        recent = [p for p in self._last.items() if p[1].census > self._census - _FORGOTTEN_AFTER]
        recent.sort(key=lambda item: (-item[1].census, -item[1].nbytes))
        self._last = dict(recent[: max(_LEAST_PATHS, _PATHS_PER_ROW * self._max_rows)])


def total_bytes(row: CensusRow) -> int:
    """Return what a row retains on all devices."""
    return row.host_bytes + sum(row.device_bytes.values())


def reached_bytes(row: CensusRow) -> int:
    """Return what is named through a row on all devices, what others keep alive too included."""
    return total_bytes(row) + sum(row.shared_bytes.values())


def with_shares(
    result: WalkResult, drafts: dict[str, Draft], rows: list[CensusRow], growing: set[str]
) -> list[CensusRow]:
    """Return the rows; those that grow together say with which others they share, and their own.

    ``result`` is of a walk that kept its graph, ``drafts`` has the nodes of every row by path, and
    ``growing`` the paths of the user's containers that have grown.

    """
    suspects = sorted((r for r in rows if r.path in growing), key=reached_bytes, reverse=True)
    is_shared = len(suspects) > 1 and any(row.shared_bytes for row in suspects)
    if result.graph is None or not is_shared:
        return rows
    suspects = suspects[:MOST_GROUPS]
    tops = [[*drafts[r.path].nodes, *drafts[r.path].inner] for r in suspects]
    numbers = [[result.nodes.number[node] for node in nodes] for nodes in tops]
    found = {}
    for row, share in zip(suspects, leak_shares(result, numbers), strict=True):
        if share.others:
            found[row.path] = msgspec.structs.replace(
                row,
                exclusive_bytes=sum(share.exclusive.values()),
                leak_share_bytes=sum(share.bytes.values()),
                shared_with=[suspects[other].path for other in share.others],
            )
    return [found.get(row.path, row) for row in rows]


_Line = tuple[str, int]
"""File and number."""
_MANAGED_DICT = 1 << 4
_PRE_HEADERS = (16, 32, 0)
"""Bytes between the allocated block and the object: the collector's header, and on 3.11 two more
pointers for instances with a dict of their own."""


def origins(groups: list[Group], ownership: Ownership) -> list[Site]:
    """Return the user's lines that allocated samples of what a row holds, the heaviest first."""
    sizes: Counter[_Line] = Counter()
    counts: Counter[_Line] = Counter()
    for group in groups:
        lines = [line for sample in group.samples if (line := _user_line(sample, ownership))]
        for line in lines:
            sizes[line] += group.bytes // len(lines)
            counts[line] += group.count // len(lines)
    return _sites(sizes, counts)


def _sites(sizes: Mapping[_Line, float], counts: Mapping[_Line, float]) -> list[Site]:
    """Return the lines, those of most bytes first."""
    sites = [
        Site(file=file, line=line, bytes=round(size), count=round(counts[file, line]))
        for (file, line), size in sizes.items()
    ]
    return sorted(sites, key=lambda site: -site.bytes)


def _user_line(obj: object, ownership: Ownership) -> _Line | None:
    return _owned_line(traceback_of(obj), ownership)


_HEADER = object.__basicsize__
_CONTENTS_AT: dict[type, int] = {list: _HEADER + 8, dict: _HEADER + 16}
"""Where these refer to the block that has their items (``ob_item``, ``ma_keys``). The objects
themselves often come from the interpreter's free lists, of which tracing tells nothing."""
_TABLE_AT: dict[type, int] = {**_CONTENTS_AT, set: _HEADER + 24, deque: _HEADER + 16}
"""Where a container refers to the block that it made last to have room for more items: also a
set's ``table`` and a deque's ``rightblock``."""
_MOST_CONTAINERS = 4
_MOST_TABLES = 16
_NEW_ITEMS = 8
_MOST_LINES = 8


def insertions(objects: list[object], ownership: Ownership) -> tuple[list[Site], list[Site]]:
    """Return the user's lines that put something into containers, and those that made the latest
    items, by how often each was seen.

    A list, dict, set or deque that makes room allocates its table below the line that inserts: the
    traceback of that block is the one trace that an insertion leaves. Of another object it is read
    of the only container that it holds and that has made room.
    """
    inserted: Counter[_Line] = Counter()
    made_at: Counter[_Line] = Counter()
    for obj in objects[-_MOST_CONTAINERS:]:
        container, line = _with_new_table(obj, ownership)
        if line is not None:
            inserted[line] += 1
        lines = (_user_line(item, ownership) for item in newest_items(container, _NEW_ITEMS))
        made_at.update(line for line in lines if line is not None)
    return _counted(inserted), _counted(made_at)


def _counted(lines: Counter[_Line]) -> list[Site]:
    return [Site(file=file, line=line, count=n) for (file, line), n in lines.most_common()]


def _with_new_table(obj: object, ownership: Ownership) -> tuple[object, _Line | None]:
    offset = _table_offset(obj)
    if offset is not None:
        return obj, _table_line(obj, offset, ownership)
    if type(obj) is tuple:
        return (), None
    found = []
    for each in _held_by(obj):
        offset = _table_offset(each)
        line = None if offset is None else _table_line(each, offset, ownership)
        if line is not None:
            found.append((each, line))
    return found[0] if len(found) == 1 else (obj, None)


BlockLookup = Callable[[list[object], list[int]], Sequence[SampledBlock]]
"""Returns which blocks of objects, and at addresses, were sampled, and by which lines they were
allocated."""

_ITEMS_OF_OBJECT = 64
"""Items that are looked up of the container that an object has."""
_MOST_ITEMS = 4096
"""Items of a container that are looked up, and objects below them: some hundredths of a
microsecond each."""
_SHARED_TYPES = (ModuleType, FunctionType, CodeType, FrameType)
_DEEPEST = 3
"""Levels of objects that are looked up, the items first."""
_MOST_PAYLOADS = 256
"""Tensors and arrays among them whose data are looked up: some microseconds each."""


class SampledLines(NamedTuple):
    """The user's lines of what was sampled in a row's containers, each the likeliest first."""

    allocated_at: list[Site]
    inserted_at: list[Site]
    items_made_at: list[Site]


def sampled_lines(
    objects: list[object], gained: int, lookup: BlockLookup, ownership: Ownership
) -> SampledLines:
    """Return which of the user's lines made what containers got, and put it there.

    Blocks are sampled when they are allocated: of a container with many items some were, of one
    with few perhaps none. Those items are looked at that came since it was first seen, at least a
    few, and what each alone refers to.
    """
    inserted: Counter[_Line] = Counter()
    made_at: Counter[_Line] = Counter()
    sizes: Counter[_Line] = Counter()
    counts: Counter[_Line] = Counter()
    for obj in objects[-_MOST_CONTAINERS:]:
        container = _only_container(obj)
        blocks = _of_users(lookup([container], []), ownership)
        inserted.update(line for block, line in blocks if block.is_table)
        level = newest_items(container, min(max(gained, _NEW_ITEMS), _MOST_ITEMS))
        blocks = _of_users(lookup(level, []), ownership)
        made_at.update(line for block, line in blocks if not block.is_table)
        closures: list[object] = [f.__closure__ for f in level if type(f) is FunctionType]
        level += _referents_of_one(_referents_of_one(closures))  # what one function closes over
        for _ in range(_DEEPEST):
            for block, line in _of_users(lookup(level, _payload_addresses(level)), ownership):
                sizes[line] += round(block.bytes)
                counts[line] += round(block.blocks)
            level = _referents_of_one(level)
    allocated = _sites(sizes, counts)[:_MOST_LINES]
    return SampledLines(allocated, _counted(inserted), _counted(made_at)[:_MOST_LINES])


def _of_users(
    blocks: Sequence[SampledBlock], ownership: Ownership
) -> Iterator[tuple[SampledBlock, _Line]]:
    """Yield the blocks that lines of the user's allocated, with these lines."""
    for block in blocks:
        line = _owned_line(block.lines, ownership)
        if line is not None:
            yield block, line


def sampled_origins(groups: list[Group], lookup: BlockLookup, ownership: Ownership) -> list[Site]:
    """Return the user's lines that allocated what was sampled of groups, the heaviest first."""
    sizes: dict[_Line, float] = defaultdict(float)
    counts: dict[_Line, float] = defaultdict(float)
    for group in groups:
        parts: Counter[_Line] = Counter()
        blocks = lookup(group.samples, _payload_addresses(group.samples))
        for block, line in _of_users(blocks, ownership):
            parts[line] += round(block.bytes)
        for line, size in parts.items():
            sizes[line] += group.bytes * size / parts.total()
            counts[line] += group.count * size / parts.total()
    return _sites(sizes, counts)


def _referents_of_one(items: list[object]) -> list[object]:
    """Return what exactly one of these objects refers to and is made for it."""
    referents = gc.get_referents(*items)[:_MOST_ITEMS]
    times = Counter(map(id, [*items, *referents]))
    return [
        referent
        for referent in referents
        if times[id(referent)] == 1
        and type(referent) not in _SHARED_TYPES
        and not anatomy.is_instance(referent, type)
    ]


def _payload_addresses(objects: list[object]) -> list[int]:
    """Return where the data of tensors and arrays lie; nothing of the program's runs."""
    access, ndarray = tensor_access(), known_types().array
    with nullcontext() if access is None else no_overrides(access):
        found = [_payload_address(obj, access, ndarray) for obj in objects[-_MOST_PAYLOADS:]]
    return [address for address in found if address]


def _payload_address(obj: object, access: TensorAccess | None, ndarray: type | None) -> int:
    try:
        if ndarray is not None and anatomy.is_instance(obj, ndarray):
            return array_memory(obj, ndarray)[0]
        if access is not None and anatomy.is_instance(obj, access.tensor):
            return access.tensor_address(obj) if access.tensor_address else 0
    except ours(Exception):
        pass
    return 0


def _only_container(obj: object) -> object:
    """Return the container itself, or the only one that an object of another type holds."""
    if _table_offset(obj) is not None or type(obj) is tuple:
        return obj
    containers = [each for each in _held_by(obj) if _table_offset(each) is not None]
    return containers[0] if len(containers) == 1 else obj


def _held_by(obj: object) -> list[object]:
    referents = gc.get_referents(obj)[:_MOST_TABLES]
    return referents + [
        v for d in referents if type(d) is dict for v in islice(d.values(), _MOST_TABLES)
    ]


def _owned_line(lines: Sequence[_Line], ownership: Ownership) -> _Line | None:
    return next((line for line in lines if ownership.owns_file(line[0])), None)


def _table_offset(obj: object) -> int | None:
    bases = {id(base) for base in anatomy.mro(type(obj))}
    return next((at for base, at in _TABLE_AT.items() if id(base) in bases), None)


def _table_line(obj: object, offset: int, ownership: Ownership) -> _Line | None:
    table = ctypes.c_void_p.from_address(id(obj) + offset).value
    return _owned_line(_block_traceback(table) if table else [], ownership)


def traceback_of(obj: object) -> list[_Line]:
    """Return file and line of the frames that allocated an object, the innermost first."""
    known = tracemalloc.get_object_traceback(obj)
    if known is not None:
        return [(frame.filename, frame.lineno) for frame in reversed(known)]
    if type(obj) in _CONTENTS_AT:
        contents = ctypes.c_void_p.from_address(id(obj) + _CONTENTS_AT[type(obj)]).value
        return _block_traceback(contents) if contents else []
    # 3.11 looks for instances with a managed dict at a wrong address.
    if sys.version_info[:2] != (3, 11) or not anatomy.flags_of(type(obj)) & _MANAGED_DICT:
        return []
    for offset in _PRE_HEADERS:
        frames = _block_traceback(id(obj) - offset)
        if frames:
            return frames
    return []


def _block_traceback(address: int) -> list[_Line]:
    read: Any = ctypes.pythonapi._PyTraceMalloc_GetTraceback
    read.restype = ctypes.py_object
    read.argtypes = (ctypes.c_uint, ctypes.c_size_t)
    frames = read(0, address)
    if type(frames) is not tuple:
        return []
    return [(str(file), int(line)) for file, line, *_ in frames]


MOST_NODES = 5000
"""A graph of more nodes isn't read: a microsecond each."""
_LEAF = 1 << 63
"""What accumulates into a leaf has the greatest number there is, whenever it was made."""


def made(tensor: Any) -> list[int]:
    """Return the numbers of a graph's oldest and youngest node; nothing where they aren't known."""
    try:
        access = tensor_access()
        if access is None or autograd_changes():
            return []
        with access.without_overrides():
            numbers = [n for n in _numbers(access.grad_fn.__get__(tensor)) if n < _LEAF]
    except ours(Exception):
        return []
    return [min(numbers), max(numbers)] if numbers else []


def _numbers(root: Any) -> Iterator[int]:
    seen, waiting = {id(root)}, [root]
    known: dict[type, tuple[Callable[[Any], int], Callable[[Any], Any]]] = {}
    while waiting:
        node = waiting.pop()
        kind = type(node)
        if kind not in known:
            known[kind] = _accessors(kind)
        number, followers = known[kind]
        yield number(node)
        for follower, _ in followers(node):
            if follower is not None and id(follower) not in seen:
                seen.add(id(follower))
                waiting.append(follower)
        if len(seen) > MOST_NODES:
            raise OverflowError


def _accessors(kind: type) -> tuple[Callable[[Any], int], Callable[[Any], Any]]:
    """Return torch's own accessors of a node type, whatever a subclass of the user's defines."""
    for base in anatomy.mro(kind):
        names = anatomy.class_dict(base)
        if type(names.get("next_functions")) is GetSetDescriptorType:
            return names["_sequence_nr"], names["next_functions"].__get__
    raise KeyError("next_functions")


_ENTRY_BYTES = 8
_PRESENT = 1 << 63
_EXCLUSIVE = 1 << 56
_SAMPLES = 512
_FEWEST = 64
"""Fewer pages say little about a structure."""


def sampled(container: object) -> Sequence[int]:
    """Return where some of the objects in a container lie; nothing where it holds too few."""
    found = () if _native is None else _native.referent_addresses(container, _SAMPLES)
    addresses = array("Q", found)
    return addresses if len(addresses) >= _FEWEST else ()


def exclusive_share(addresses: Sequence[int]) -> float | None:
    """Return which part of these places, 0 to 1, lies in pages that no other process maps."""
    if not addresses:
        return None
    try:
        pages = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        try:
            entries = [_entry(pages, address // mmap.PAGESIZE) for address in addresses]
        finally:
            os.close(pages)
    except ours(OSError):
        return None
    present = [entry for entry in entries if entry & _PRESENT]
    if not present:
        return None
    return sum(bool(entry & _EXCLUSIVE) for entry in present) / len(present)


def _entry(pages: int, page: int) -> int:
    read = os.pread(pages, _ENTRY_BYTES, page * _ENTRY_BYTES)
    return array("Q", read)[0] if len(read) == _ENTRY_BYTES else 0
