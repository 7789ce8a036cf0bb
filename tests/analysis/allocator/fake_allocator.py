"""A small caching allocator that writes snapshots as torch does: the oracle of these tests.

It follows torch's rules for rounding, splitting and merging, and keeps a history of all it does.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SMALL = 1 * MIB
ALLOCATED, PENDING, FREE = "active_allocated", "active_pending_free", "inactive"
BASE = 0x7F0000000000


def python(file: str, line: int, name: str) -> dict[str, Any]:
    return {"filename": file, "line": line, "name": name}


def native(name: str) -> dict[str, Any]:
    return {"filename": "??", "line": 0, "name": name}


_MODULE = "/opt/lib/python3.11/site-packages/torch/nn/modules/module.py"
LOAD = [
    python(_MODULE, 1150, "convert"),
    python(_MODULE, 900, "_apply"),
    python("/home/u/train.py", 5, "main"),
]
FORWARD = [
    python("/home/u/model.py", 20, "forward"),
    python(_MODULE, 1739, "_wrapped_call_impl"),
    python("/home/u/train.py", 12, "main"),
]
BACKWARD = [native("at::empty"), native("torch::autograd::Engine::thread_main(Task)")]
OPTIMIZER = [
    python("/opt/lib/python3.11/site-packages/torch/optim/adamw.py", 190, "_init_group"),
    python("/opt/lib/python3.11/site-packages/torch/optim/optimizer.py", 500, "wrapper"),
    python("/home/u/train.py", 14, "main"),
]
KEPT = [python("/home/u/train.py", 33, "remember"), python("/home/u/train.py", 15, "main")]
EMPTY_CACHE = [
    python("/opt/lib/python3.11/site-packages/torch/cuda/memory.py", 222, "empty_cache"),
    python("/home/u/prune.py", 7, "loop"),
]


@dataclass
class FakeAllocator:
    """One device; ``capacity`` is all the memory it has."""

    capacity: int = 8 * GIB
    device: int = 0
    is_expandable: bool = False
    segments: list[dict[str, Any]] = field(default_factory=list)
    trace: list[dict[str, Any]] = field(default_factory=list)
    annotations: list[dict[str, Any]] = field(default_factory=list)
    now: int = 1_700_000_000_000_000
    next_address: int = BASE

    @property
    def reserved(self) -> int:
        return sum(segment["total_size"] for segment in self.segments)

    @property
    def live(self) -> int:
        """Requested bytes of all that is allocated."""
        return sum(b["requested_size"] for b in self._blocks() if b["state"] == ALLOCATED)

    def alloc(self, size: int, frames: list[Any] | None = None, stream: int = 0) -> int:
        """Return the address of a new block; MemoryError where the device has no room."""
        rounded = max(512, -(-size // 512) * 512)
        is_small = rounded <= SMALL
        found = self._best(rounded, stream, is_small)
        if found is None:
            found = self._grow(rounded, size, stream, is_small, frames)
        segment, block = found
        rest = block["size"] - rounded
        if rest >= 512 if is_small else rest > SMALL:
            place = segment["blocks"].index(block)
            spare = self._free_block(block["address"] + rounded, rest)
            segment["blocks"].insert(place + 1, spare)
            block["size"] = rounded
        block.update(state=ALLOCATED, requested_size=size, frames=frames or [])
        self._write("alloc", block["address"], size, stream, frames)
        return int(block["address"])

    def free(self, address: int, *, is_waited_for: bool = False) -> None:
        """Give a block back; a waited-for one stays pending until :meth:`complete`."""
        segment, block = self._find(address)
        self._write("free_requested", address, block["requested_size"], segment["stream"])
        block["state"] = PENDING
        block["frames"] = []
        if not is_waited_for:
            self.complete(address)

    def complete(self, address: int) -> None:
        segment, block = self._find(address)
        self._write("free_completed", address, block["requested_size"], segment["stream"])
        block["state"] = FREE
        merged: list[dict[str, Any]] = []
        for each in segment["blocks"]:
            if merged and merged[-1]["state"] == each["state"] == FREE:
                merged[-1]["size"] += each["size"]
            else:
                merged.append(each)
        segment["blocks"] = merged

    def empty_cache(self, frames: list[Any] | None = None) -> None:
        for segment in [s for s in self.segments if all(b["state"] == FREE for b in s["blocks"])]:
            self.segments.remove(segment)
            size, stream = segment["total_size"], segment["stream"]
            self._write("segment_free", segment["address"], size, stream, frames)

    def mark(self, name: str, stage: str) -> None:
        self.annotations.append(
            {"name": name, "stage": stage, "device": self.device, "time_us": self._tick()}
        )

    def snapshot(self) -> dict[str, Any]:
        """Return what ``torch.cuda.memory._snapshot()`` would."""
        for segment in self.segments:
            blocks = segment["blocks"]
            live = [block for block in blocks if block["state"] != FREE]
            segment["allocated_size"] = sum(b["size"] for b in live if b["state"] == ALLOCATED)
            segment["active_size"] = sum(b["size"] for b in live)
            segment["requested_size"] = sum(b["requested_size"] for b in live)
        reported = {
            "segments": self.segments,
            "device_traces": [[] for _ in range(self.device)] + [self.trace],
            "allocator_settings": {"expandable_segments": False, "max_split_size": -1},
            "external_annotations": self.annotations,
        }
        return copy.deepcopy(reported)

    def _grow(
        self, rounded: int, size: int, stream: int, is_small: bool, frames: list[Any] | None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        needed = 2 * MIB if is_small else 20 * MIB
        if rounded >= 10 * MIB:
            needed = -(-rounded // (2 * MIB)) * 2 * MIB
        if self.reserved + needed > self.capacity:
            self.empty_cache(frames)
        if self.reserved + needed > self.capacity:
            self._write("oom", 0, size, stream, frames)
            del self.trace[-1]["addr"]
            self.trace[-1]["device_free"] = self.capacity - self.reserved
            raise MemoryError(size)
        address = self.next_address
        self.next_address += needed + 512 * MIB
        block = self._free_block(address, needed)
        segment = {
            "device": self.device, "address": address, "total_size": needed, "stream": stream,
            "segment_type": "small" if is_small else "large", "segment_pool_id": (0, 0),
            "is_expandable": False, "frames": [], "blocks": [block],
        }  # fmt: skip
        self.segments.append(segment)
        self._write("segment_alloc", address, needed, stream, frames)
        return segment, block

    def _best(
        self, rounded: int, stream: int, is_small: bool
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        kind = "small" if is_small else "large"
        fitting = [
            (segment, block)
            for segment in self.segments
            if (segment["stream"], segment["segment_type"]) == (stream, kind)
            for block in segment["blocks"]
            if block["state"] == FREE and block["size"] >= rounded
        ]
        return min(fitting, key=lambda f: (f[1]["size"], f[1]["address"]), default=None)

    def _find(self, address: int) -> tuple[dict[str, Any], dict[str, Any]]:
        return next((s, b) for s in self.segments for b in s["blocks"] if b["address"] == address)

    def _blocks(self) -> list[dict[str, Any]]:
        return [block for segment in self.segments for block in segment["blocks"]]

    def _free_block(self, address: int, size: int) -> dict[str, Any]:
        # A free block remembers what its last owner requested.
        return {"address": address, "size": size, "requested_size": 7, "state": FREE, "frames": []}

    def _write(
        self, action: str, address: int, size: int, stream: int, frames: list[Any] | None = None
    ) -> None:
        entry = {"action": action, "addr": address, "size": size, "stream": stream}
        self.trace.append(
            {**entry, "time_us": self._tick()} | ({"frames": frames} if frames else {})
        )

    def _tick(self) -> int:
        self.now += 1000
        return self.now


def trained(
    steps: int = 1, *, kept_per_step: int = 0, parameters: tuple[int, ...] = (16 * MIB, 4 * MIB, 64)
) -> FakeAllocator:
    """Return an allocator after some AdamW steps; the weights are older than its history."""
    made = FakeAllocator()
    for size in parameters:
        made.alloc(size)
    made.trace.clear()
    gradients: list[int] = []
    for step in range(steps):
        activations = [made.alloc(24 * MIB, FORWARD) for _ in range(4)]
        for address in gradients:
            made.free(address)
        gradients = []
        for size, activation in zip(parameters, activations, strict=False):
            gradients.append(made.alloc(size, BACKWARD))
            made.free(activation)
        for activation in activations[len(parameters) :]:
            made.free(activation)
        made.mark("Optimizer.step#AdamW.step", "START")
        if step == 0:
            for size in parameters:
                made.alloc(size, OPTIMIZER)
                made.alloc(size, OPTIMIZER)
        else:
            made.free(made.alloc(2 * MIB, OPTIMIZER))
        made.mark("Optimizer.step#AdamW.step", "END")
        if kept_per_step:
            made.alloc(kept_per_step, KEPT)
    return made
