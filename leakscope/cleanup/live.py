"""The tensors that are live now, by type and shape: figures only, nothing is kept alive.

Seen are tensors with a Python object; a storage shared by several counts once, under the tensor
that covers most of it. What autograd or native code alone holds has no Python object: on a device
that is the rest up to what torch's allocator counts.
"""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from typing import Any

from leakscope.cleanup.accelerator import device_levels
from leakscope.model.sizes import human_bytes

_MOST_LINES = 5
_HOST = ("host", "cpu")


@dataclass(frozen=True)
class TensorGroup:
    """Live tensors of one type and shape on one device."""

    device: str
    label: str
    """Type and shape: ``float32[64, 256]``."""
    count: int
    bytes: int


@dataclass(frozen=True)
class LiveTensors:
    """All groups, biggest first, and per device the bytes that no Python object stands for."""

    groups: tuple[TensorGroup, ...] = ()
    unseen: tuple[tuple[str, int], ...] = ()

    def lines(self, place: str) -> list[str]:
        """Return the biggest groups of a device, or of all devices, as lines of text."""
        device = "cpu" if place in _HOST else place
        here = [group for group in self.groups if device in (group.device, "device")]
        lines = [
            f"{human_bytes(group.bytes)} in {group.count} × {group.label} on {group.device}"
            for group in here[:_MOST_LINES]
        ]
        if len(here) > _MOST_LINES:
            rest = here[_MOST_LINES:]
            lines.append(
                f"{human_bytes(sum(group.bytes for group in rest))} in "
                f"{sum(group.count for group in rest)} more tensors"
            )
        lines += [
            f"{human_bytes(size)} on {name} held by autograd or native code alone"
            for name, size in self.unseen
            if device in (name, "device")
        ]
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines("device")) or "No live tensors."


def live_tensors() -> LiveTensors:
    """Return what is live; empty without torch. Looks at all objects, and never raises."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return LiveTensors()
    try:
        return _grouped(_storages(torch))
    except Exception:
        return LiveTensors()


def _storages(torch: Any) -> dict[tuple[str, int], tuple[int, int, str]]:
    """Per device and address of a storage: its bytes, the most that a tensor covers, which one."""
    storages: dict[tuple[str, int], tuple[int, int, str]] = {}
    with torch._C.DisableTorchFunctionSubclass():
        for thing in gc.get_objects():
            # isinstance() would ask the object itself, which may run code of the program.
            kind = type(thing)
            if not issubclass(kind, torch.Tensor) or hasattr(kind, "__tensor_flatten__"):
                continue  # a wrapper only claims the memory of the tensors within
            try:
                storage = thing.untyped_storage()
                # The address of the data would make a lazy copy a real one.
                key = (str(storage.device), storage._cdata)
                size, covered = storage.nbytes(), thing.numel() * thing.element_size()
                label = f"{str(thing.dtype).removeprefix('torch.')}{list(thing.shape)}"
            except Exception:
                continue  # without a storage: sparse, lazy
            if size and key[0] != "meta" and covered > storages.get(key, (0, -1, ""))[1]:
                storages[key] = (size, covered, label)
    return storages


def _grouped(storages: dict[tuple[str, int], tuple[int, int, str]]) -> LiveTensors:
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    seen: dict[str, int] = {}
    for (device, _), (size, _, label) in storages.items():
        count, total = sums.get((device, label), (0, 0))
        sums[device, label] = (count + 1, total + size)
        seen[device] = seen.get(device, 0) + size
    groups = [TensorGroup(*key, *value) for key, value in sums.items()]
    groups.sort(key=lambda group: -group.bytes)
    unseen = [
        (device, level.allocated - seen.get(device, 0))
        for device, level in device_levels().items()
        if level.allocated - seen.get(device, 0) > level.allocated // 100
    ]
    return LiveTensors(tuple(groups), tuple(unseen))
