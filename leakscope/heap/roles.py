"""What part each tensor and container plays in training, and the device storages of a census."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from leakscope.heap import contents
from leakscope.heap.graph import BY_GRAPH, FROZEN, GRADIENT, PARAMETER, WalkResult, lineage
from leakscope.heap.labels import Facet
from leakscope.heap.naming import NamedObject
from leakscope.heap.rows import Draft, RowMaker
from leakscope.model.census import ROLES, SHARED, RootKind
from leakscope.model.device import DeviceStorages, Holder, StorageRow

MODULE, OPTIMIZER = 0, 1

_RANK = {role: rank for rank, role in enumerate(ROLES)}
"""A storage that several tensors share plays the first of its tensors' roles."""
_BATCH_ITEMS = 8
"""Local containers with at most this many items are a batch in the hand and no collection."""
_ROLE_OF_KIND = {
    "module": "parameters",
    "optimizer": "optimizer_state",
    "lru_cache": "cache",
    "function": "code",
    "graph": "graph",
}


class StorageRole(NamedTuple):
    """The part that one tensor storage plays."""

    role: str
    device: str
    nbytes: int
    holder: int
    address: int
    """Where it lies on its device; 0 where that isn't known."""


class Roles:
    """The roles of one census; a storage counts once, however many tensors share it."""

    def __init__(self, result: WalkResult, maker: RowMaker) -> None:
        self._result = result
        self._maker = maker
        self._gathered: dict[int, str] = {}
        self._storages = self._by_storage()
        self._counts: dict[int, Counter[str]] = defaultdict(Counter)
        for storage in self._storages.values():
            self._counts[storage.holder][storage.role] += storage.nbytes

    def components(self) -> dict[str, dict[str, int]]:
        """Return bytes by role and device; they add up to the payload and the Python heap."""
        found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for storage in self._storages.values():
            found[storage.role][storage.device] += storage.nbytes
        self._add_heap(found)
        return {role: dict(devices) for role, devices in found.items() if any(devices.values())}

    def frozen_gradients(self) -> dict[str, int]:
        """Return the bytes per device of gradients whose tensors don't require any."""
        tensors = self._result.tensors
        found: dict[int, tuple[str, int]] = {}
        wanted: set[int] = set()
        columns = zip(tensors.storage, tensors.nbytes, tensors.device, tensors.flags, strict=True)
        for storage, nbytes, device, flags in columns:
            if storage >= 0 and flags & GRADIENT:
                found[storage] = (self._result.devices[device], nbytes)
                wanted.update([storage] * (not flags & FROZEN))
        total: dict[str, int] = defaultdict(int)
        for storage in found.keys() - wanted:
            place, size = found[storage]
            total[place] += size
        return dict(total)

    def on_devices(self) -> list[StorageRole]:
        """Return the storages that lie on devices other than the host, the largest first."""
        found = [s for s in self._storages.values() if s.device != "host" and s.address]
        return sorted(found, key=lambda storage: -storage.nbytes)

    def of_draft(self, draft: Draft) -> str:
        """Return the role of a row."""
        node, kind = draft.first, self._maker.kind(draft.first)
        if kind in contents.CONTAINERS:
            return self._gathering(node) or "other"
        if kind in _ROLE_OF_KIND:
            return _ROLE_OF_KIND[kind]
        counts = self._counts.get(node)
        if counts:
            return counts.most_common(1)[0][0]
        return self._gathering(node) or "other"

    def _by_storage(self) -> dict[int, StorageRole]:
        tensors, devices = self._result.tensors, self._result.devices
        found: dict[int, StorageRole] = {}
        columns = zip(
            tensors.storage,
            tensors.nbytes,
            tensors.device,
            tensors.holder,
            tensors.root,
            tensors.mark,
            tensors.flags,
            tensors.address,
            strict=True,
        )
        for storage, nbytes, device, holder, root, mark, flags, address in columns:
            if storage < 0:
                continue
            role = self._of_tensor(holder, root, mark, flags)
            known = found.get(storage)
            if known is None or _RANK[role] < _RANK[known.role]:
                found[storage] = StorageRole(role, devices[device], nbytes, holder, address)
        return found

    def _of_tensor(self, holder: int, root: int, mark: int, flags: int) -> str:
        if flags & PARAMETER:
            return "parameters"
        if flags & GRADIENT:
            return "gradients"
        if flags & BY_GRAPH:
            return "graph"
        gathering = self._gathering(holder) if holder >= 0 else ""
        if gathering or mark == OPTIMIZER:
            return gathering or "optimizer_state"
        if mark == MODULE:
            return "buffers"
        kind = self._maker.root_kind(root)
        return "batch" if kind in (RootKind.LOCAL, RootKind.GENERATOR) else "other"

    def _gathering(self, node: int) -> str:
        role = self._gathered.get(node)
        if role is None:
            role = self._gathered[node] = gathering_role(self._maker.places[node])
        return role

    def _add_heap(self, found: dict[str, dict[str, int]]) -> None:
        """Split what is no tensor: containers' own bytes and arrays, code, and the rest."""
        heap = self._result.heap_bytes
        payload = self._result.payload_bytes
        rest = heap + payload.get("host", 0) + payload.get(SHARED, 0)
        rest -= sum(devices.get("host", 0) for devices in found.values())
        for role, nbytes in self._gathered_heap().items():
            part = max(0, min(nbytes, rest))
            found[role]["host"] += part
            rest -= part
        found["code"]["host"] += max(0, min(rest, heap))
        found["other"]["host"] += max(0, rest - heap)

    def _gathered_heap(self) -> dict[str, int]:
        nodes = self._result.nodes
        tensors: dict[int, int] = defaultdict(int)
        for storage in self._storages.values():
            outermost = self._outermost(storage.holder) if storage.device == "host" else -1
            tensors[outermost] += storage.nbytes
        found: dict[str, int] = defaultdict(int)
        for node, selected in enumerate(nodes.selected):
            role = self._gathering(node) if selected and self._maker.is_user(node) else ""
            if role and self._outermost(node) == node:
                found[role] += max(0, nodes.host_bytes[node] - tensors[node])
        return found

    def _outermost(self, node: int) -> int:
        above = lineage(self._result.nodes.dominator, node)
        return [-1, *filter(self._gathering, above)][-1]


def gathering_role(place: NamedObject) -> str:
    """Return the role of what is gathered in containers at or above ``place``, else ``""``.

    The containers up to the next object count: those of an optimizer are its state, bounded ones
    are caches, and a few tensors in a running function's hand are a batch. Garbage is gathered by
    nobody.
    """
    if place.root_kind is RootKind.GARBAGE:
        return ""
    gathered, capacity, most = "", False, 0
    nested = False
    at: NamedObject | None = place
    while at is not None:
        obj, kind = at.part.obj, at.kind
        if kind == "optimizer":
            return "optimizer_state" if gathered else ""
        if kind == "module" and not gathered:
            return ""
        if kind in contents.CONTAINERS and at.part.facet in (Facet.ITSELF, Facet.CACHE):
            nested = bool(gathered)
            gathered = kind
            is_bounded = kind == "lru_cache" or contents.capacity_of(obj, kind) is not None
            capacity = capacity or is_bounded
            most = max(most, contents.length_of(obj) or 0)
        elif gathered and at.part.facet is Facet.ITSELF:
            break
        at = at.before
    if not gathered or capacity:
        return "cache" if capacity else ""
    in_hand = place.root_kind is RootKind.LOCAL and at is None and most <= _BATCH_ITEMS
    return "batch" if in_hand and not (gathered == "list" and nested) else "accumulation"


MOST_STORAGES = 20_000
"""Of a device; beyond, the smallest are left out."""


def device_storages(roles: Roles, maker: RowMaker) -> list[DeviceStorages]:
    """Return one list per device; nothing where no tensor lies on one. Keeps no object alive."""
    by_device: dict[str, list[StorageRole]] = defaultdict(list)
    for storage in roles.on_devices():
        by_device[storage.device].append(storage)
    return [_stored(device, found, maker) for device, found in sorted(by_device.items())]


def _stored(device: str, found: list[StorageRole], maker: RowMaker) -> DeviceStorages:
    """Return the storages of a device; holders that share a path are one."""
    holders: list[Holder] = []
    numbers: dict[str | None, int] = {None: -1}
    rows = []
    for storage in found[:MOST_STORAGES]:
        path = maker.paths[storage.holder] if storage.holder >= 0 else None
        if path is not None and path not in numbers:
            numbers[path] = len(holders)
            holders.append(Holder(path, maker.places[storage.holder].name))
        rows.append(StorageRow(storage.address, storage.nbytes, storage.role, numbers[path]))
    left_out = len(found) - len(rows)
    return DeviceStorages(device=device, storages=rows, holders=holders, left_out=left_out)
