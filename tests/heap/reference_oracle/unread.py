"""What no tensor and no array can read any more: ``x[:10]`` keeps the whole storage of ``x``.

Whatever reads, what has a view of it and what else might hold it is counted by references. Where
somebody holds a storage whom the walk does not know, he is taken to read all of it. The same rules
as ``native/unread.c``.
"""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from leakscope.heap.adapters.buffers import Memory, array_bytes, array_memory
from leakscope.heap.adapters.tensor import TensorAccess
from leakscope.heap.reference.edges import Payload
from leakscope.heap.reference.selection import WalkPhase
from leakscope.model.errors import ours

_LONGEST_CHAIN_OF_BASES = 16


def find_unread(walker: Any) -> dict[int, int]:
    """Return by node how much of each storage and array can't be read.

    Nothing is reported of a torch that doesn't count as expected.
    """
    access, known = walker.reader.access, walker.reader.known
    if access is not None and access.storage_use_count is None:
        return {}
    search = _Search(
        walker.graph,
        access,
        known.array,
        lambda value: walker.index.get(id(value)),
        walker.everything,
        walker.reader.has_parts,
    )
    return search.find()


@dataclass
class _Search:
    graph: Any
    access: Any
    ndarray: type | None
    node_of: Callable[[object], int | None]
    everything: list[object]
    has_parts: Callable[[object], bool]
    known: Counter[int] = field(default_factory=Counter)
    """References that the walk knows of: a storage's tensors, a base's views."""
    ours: set[int] = field(default_factory=set)
    """Addresses of what :attr:`everything` refers to."""
    shown: set[int] = field(default_factory=set)
    """Regions of which there are arrays."""
    whole: set[int] = field(default_factory=set)

    def find(self) -> dict[int, int]:
        """Return the regions that are seen in part, and what is left of them."""
        graph, found = self.graph, {}
        tensors = [
            n for n in graph.order if self._is_tensor(n) and graph.phase[n] != WalkPhase.HIDDEN
        ]
        views = [n for n in graph.order if self._is_view(n)]
        partial = {*self._partial_by_tensors(tensors), *self._partial_by_views(views)}
        if not partial:
            return {}
        self.ours = {id(value) for value in self.everything}
        tensors = [n for n in tensors if self._region_of_tensor(n) in partial]
        views = [n for n in views if self._region_of_array(n)[0] in partial]
        self._count_known(tensors, views)
        self._check_holders(tensors, partial)
        reaches: dict[int, list[StorageReach]] = defaultdict(list)
        for node in tensors:
            self._add_tensor(node, reaches)
        for node in views:
            self._add_view(node, reaches)
        for region in partial - self.whole:
            unread = graph.data[region] - _bytes_read(sorted(reaches[region]))
            if unread > 0 and graph.phase[region] != WalkPhase.HIDDEN:
                found[region] = unread
        return found

    def _is_tensor(self, node: int) -> bool:
        facts = self.graph.facts[node]
        return facts is not None and facts.tensor

    def _is_array(self, node: int) -> bool:
        facts = self.graph.facts[node]
        return facts is not None and facts.payload is Payload.ARRAY

    def _is_view(self, node: int) -> bool:
        return self._is_array(node) and self._base(node) is not None

    def _base(self, array: int) -> object:
        return array_base(self.graph.objects[array], self.ndarray)

    def _storage_of(self, tensor: int) -> int:
        graph = self.graph
        found = (s for s in graph.successors[tensor] if type(graph.objects[s]) is Memory)
        return next(found, -1)

    def _region_of_tensor(self, tensor: int) -> int:
        return self._region_of_storage(self._storage_of(tensor))

    def _region_of_storage(self, storage: int) -> int:
        """Return what has the memory: an array, where the storage was made from that."""
        parts = self.graph.successors[storage] if storage >= 0 else []
        return parts[0] if parts else storage

    def _region_of_array(self, array: int) -> tuple[int, int]:
        """Return what has the memory that an array shows, and where that begins."""
        for _ in range(_LONGEST_CHAIN_OF_BASES):
            base = self._base(array)
            node = None if base is None else self.node_of(base)
            if node is None:
                break
            if self._is_tensor(node):
                return self._region_under(node)
            if not self._is_array(node):
                break
            if array_bytes(base, self.ndarray):
                return node, array_address(base, self.ndarray)
            array = node
        return -1, 0

    def _region_under(self, tensor: int) -> tuple[int, int]:
        storage = self._storage_of(tensor)
        region = self._region_of_storage(storage)
        if region == storage:
            address = self.access.tensor_address(self.graph.objects[tensor])
        elif self._is_array(region):
            address = array_address(self.graph.objects[region], self.ndarray)
        else:
            address = 0
        return (region, address) if address else (-1, 0)

    def _is_plain(self, tensor: int) -> bool:
        """Sizes of a subclass may be computed by its own code: those are not asked, nor parts."""
        value = self.graph.objects[tensor]
        return bool(self.graph.facts[tensor].plain and not self.has_parts(value))

    def _partial_by_tensors(self, tensors: list[int]) -> Iterator[int]:
        for tensor in tensors:
            region = self._region_of_tensor(tensor)
            size = self.graph.data[region] if region >= 0 and self._is_plain(tensor) else 0
            if size and not fills(self.graph.objects[tensor], size, self.access):
                yield region

    def _partial_by_views(self, views: list[int]) -> Iterator[int]:
        for view in views:
            region, _ = self._region_of_array(view)
            reach = array_reach(self.graph.objects[view], self.ndarray)
            if region >= 0 and (reach is None or reach[2] < self.graph.data[region]):
                yield region

    def _count_known(self, tensors: list[int], views: list[int]) -> None:
        lent: set[int] = set()
        for tensor in tensors:
            storage = self._storage_of(tensor)
            self.known[storage] += 1
            self._note(self.access.base.__get__(self.graph.objects[tensor]))
            if storage not in lent:
                lent.add(storage)
                self._note_lender(tensor, storage)
        for view in views:
            self._note(self._base(view))
            self.shown.add(self._region_of_array(view)[0])

    def _note(self, base: object) -> None:
        node = None if base is None else self.node_of(base)
        if node is not None:
            self.known[node] += 1

    def _note_lender(self, tensor: int, storage: int) -> None:
        """Of a storage made from an array, one of the array's references is known."""
        region = self._region_of_storage(storage)
        if region == storage or not self._is_array(region):
            return
        array, graph = self.graph.objects[region], self.graph
        address = self.access.tensor_address(graph.objects[tensor])
        is_all = graph.objects[storage].nbytes == array_bytes(array, self.ndarray)
        self.known[region] += is_all and address == array_address(array, self.ndarray)

    def _is_named(self, node: int) -> bool:
        """Say whether somebody refers to an object besides those that have a view of it.

        torch's own object has a reference to the Python object as long as others refer to it, and
        that one always to torch's.
        """
        value = self.graph.objects[node]
        references = sys.getrefcount(value) - self._our_own(value) - _OF_A_VARIABLE
        if self._is_tensor(node):
            count = self.access.use_count(value)
            references += max(0, count - 2)
        return references > self.known[node]

    def _check_holders(self, tensors: list[int], partial: set[int]) -> None:
        """Leave out what the walk does not know enough of."""
        for region in partial:
            if self._is_array(region) and self._is_named(region):
                self.whole.add(region)
        checked: set[int] = set()
        for tensor in tensors:
            storage = self._storage_of(tensor)
            if storage not in checked:
                checked.add(storage)
                if not self._is_held_by_known(tensor, storage):
                    self.whole.add(self._region_of_storage(storage))

    def _is_held_by_known(self, tensor: int, storage: int) -> bool:
        """Say whether all that refer to a tensor's storage are tensors that were found.

        While we hold its Python object, that one is referred to by the storage and by us, and
        refers to the storage. Memory of another's may be read by others, unless the array was
        met that lends it or to which torch did.
        """
        wrapper = self.access.untyped_storage(self.graph.objects[tensor])
        count = self.access.storage_use_count(self.access.storage_key.__get__(wrapper))
        named = sys.getrefcount(wrapper) - self._our_own(wrapper) > _OF_A_VARIABLE + 1
        own = self.access.is_resizable(wrapper) or storage in self.shown
        own = own or self._region_of_storage(storage) != storage
        return own and not named and count == self.known[storage] + 1

    def _our_own(self, value: object) -> int:
        """Return how many references to an object the walk itself has."""
        return (id(value) in self.ours) + (self.node_of(value) is not None)

    def _reads(self, node: int, region: int) -> bool:
        return region not in self.whole and (not self.known[node] or self._is_named(node))

    def _add_tensor(self, tensor: int, reaches: dict[int, list[StorageReach]]) -> None:
        storage = self._storage_of(tensor)
        region = self._region_of_storage(storage)
        if not self._reads(tensor, region):
            return
        value = self.graph.objects[tensor]
        reach = tensor_reach(value, self.access) if self._is_plain(tensor) else None
        if reach is None:
            self.whole.add(region)
            return
        shift = 0
        if region != storage:
            array = self.graph.objects[region]
            shift = self.access.tensor_address(value) - array_address(array, self.ndarray)
        self._add(region, reaches, (reach.begin + shift, reach.end + shift, reach.nbytes))

    def _add_view(self, view: int, reaches: dict[int, list[StorageReach]]) -> None:
        region, address = self._region_of_array(view)
        reach = array_reach(self.graph.objects[view], self.ndarray)
        if reach is not None and self._reads(view, region):
            begin, end, nbytes = reach
            self._add(region, reaches, (begin - address, end - address, nbytes))

    def _add(
        self, region: int, reaches: dict[int, list[StorageReach]], reach: tuple[int, int, int]
    ) -> None:
        begin, end, nbytes = reach
        end = min(end, self.graph.data[region])
        nbytes = min(nbytes, end - begin)
        if nbytes >= self.graph.data[region]:
            self.whole.add(region)
        elif nbytes > 0:
            reaches[region].append(StorageReach(begin, end, nbytes))


def _bytes_read(reaches: list[StorageReach]) -> int:
    """Return how many bytes views read at most.

    Where they overlap, no more than lies between their ends, and no more than all of them read.
    """
    total, begin, end, nbytes = 0, 0, 0, 0
    for reach in reaches:
        if reach.begin >= end:
            total += min(nbytes, end - begin)
            begin, end, nbytes = reach.begin, reach.end, 0
        end, nbytes = max(end, reach.end), nbytes + reach.nbytes
    return total + min(nbytes, end - begin)


def _of_a_variable() -> int:
    value = object()
    return sys.getrefcount(value)


_OF_A_VARIABLE = _of_a_variable()
"""What is counted of an object that a variable alone refers to."""


def array_base(array: Any, ndarray: Any) -> object:
    """Return whose memory an array is part of; None where it is its own."""
    found: object = _read(array, ndarray, "base")
    return found


def array_address(array: Any, ndarray: Any) -> int:
    """Return where the first item of an array lies."""
    return array_memory(array, ndarray)[0]


def array_reach(array: Any, ndarray: Any) -> tuple[int, int, int] | None:
    """Return from which address to which an array reads, and how many bytes of that at most."""
    if not _read(array, ndarray, "size"):
        return None
    item = int(_read(array, ndarray, "itemsize"))
    steps = list(zip(_read(array, ndarray, "shape"), _read(array, ndarray, "strides"), strict=True))
    spans = [(count - 1) * stride for count, stride in steps]
    first = array_address(array, ndarray)
    distinct = item * math.prod(count for count, stride in steps if stride)
    begin = first + sum(span for span in spans if span < 0)
    return begin, first + sum(span for span in spans if span > 0) + item, distinct


class StorageReach(NamedTuple):
    """What a view can read."""

    begin: int
    """From the beginning of its storage, or an address."""
    end: int
    nbytes: int
    """How many bytes of that at most."""


def tensor_reach(tensor: object, access: TensorAccess) -> StorageReach | None:
    """Return what a tensor can read, from the beginning of its storage; None if torch won't say."""
    try:
        sizes = access.shape.__get__(tensor)
        strides, offset = access.stride(tensor), access.offset(tensor)
        item = access.item_bytes(tensor)
    except ours(Exception):
        return None
    steps = list(zip(sizes, strides, strict=True))
    distinct = math.prod(size if stride or not size else 1 for size, stride in steps)
    span = 1 + sum((size - 1) * stride for size, stride in steps) if distinct else 0
    return StorageReach(offset * item, (offset + span) * item, distinct * item)


def fills(tensor: object, nbytes: int, access: TensorAccess) -> bool:
    """Say whether a tensor's items are as many bytes as its storage.

    That it repeats some just as often as it leaves others out is not looked for.
    """
    try:
        return bool(access.nbytes.__get__(tensor) == nbytes)
    except ours(Exception):
        return False


def _read(array: Any, ndarray: Any, name: str) -> Any:
    return vars(ndarray)[name].__get__(array)
