"""The device storages of a census: where each lies, for what it is, and who holds it."""

from __future__ import annotations

from leakscope.heap.roles import Roles
from leakscope.heap.rows import RowMaker
from leakscope.model.blocks import DeviceStorages, Holder, StorageRow

MOST_STORAGES = 20_000
"""Of a device; beyond, the smallest are left out."""


def device_storages(roles: Roles, maker: RowMaker) -> list[DeviceStorages]:
    """Return one list per device; nothing where no tensor lies on one. Keeps no object alive."""
    drafts: dict[str, _Draft] = {}
    for storage in roles.on_devices():
        draft = drafts.setdefault(storage.device, _Draft(maker))
        draft.add(storage.address, storage.nbytes, storage.role, storage.holder)
    return [
        DeviceStorages(
            device=device,
            storages=draft.storages,
            holders=draft.holders,
            left_out=draft.left_out,
        )
        for device, draft in sorted(drafts.items())
    ]


class _Draft:
    def __init__(self, maker: RowMaker) -> None:
        self.storages: list[StorageRow] = []
        self.holders: list[Holder] = []
        self.left_out = 0
        self._maker = maker
        self._known: dict[str, int] = {}

    def add(self, address: int, nbytes: int, role: str, node: int) -> None:
        if len(self.storages) == MOST_STORAGES:
            self.left_out += 1
            return
        self.storages.append(StorageRow(address, nbytes, role, self._holder(node)))

    def _holder(self, node: int) -> int:
        """Return the number of a holder: objects that share a path are one."""
        if node < 0:
            return -1
        path = self._maker.paths[node]
        number = self._known.setdefault(path, len(self.holders))
        if number == len(self.holders):
            self.holders.append(Holder(path, self._maker.places[node].name))
        return number
