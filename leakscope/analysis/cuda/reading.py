"""A snapshot file as typed values, whichever release of torch wrote it.

``_snapshot()`` gives a dict, ``memory_snapshot()`` the list of segments alone. Torch 2.0 wrote a
block's stack into its ``history`` and no address; pool ids are tuples, or lists after a trip
through JSON. What a file gets wrong is noted and left out, never fatal: only a file that holds no
segments and no history at all is no snapshot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from leakscope.analysis.cuda.files import read_plain
from leakscope.analysis.cuda.oddities import Oddities
from leakscope.analysis.cuda.stacks import StackTable, text
from leakscope.analysis.cuda.versions import version_of
from leakscope.model.allocator import (
    DEFAULT_POOL,
    Annotation,
    Block,
    BlockState,
    Entry,
    Segment,
    Snapshot,
)
from leakscope.model.errors import NoSnapshotError

MOST_ITEMS = 5_000_000
"""More blocks and entries than any ring of torch's holds: a file that repeats itself by reference
could otherwise stand for billions."""
_LARGEST = 1 << 62
_STATES = {
    "active_allocated": BlockState.ALLOCATED,
    "active_pending_free": BlockState.PENDING,
    "active_awaiting_free": BlockState.PENDING,
    "inactive": BlockState.FREE,
}
_PARTS = ("segments", "device_traces")


def read_snapshot(path: Path) -> Snapshot:
    """Return the snapshot in a file: pickle or JSON, gzipped or not.

    Raises:
        NoSnapshotError: it can't be read or holds no snapshot, or would run code.

    """
    return decode_snapshot(read_plain(path), str(path))


def decode_snapshot(plain: Any, name: str) -> Snapshot:
    """Return plain values, as torch gives them, as a snapshot.

    Raises:
        NoSnapshotError: they are none.

    """
    return _Decoder(name).decode(plain)


class _Decoder:
    def __init__(self, name: str) -> None:
        self.name = name
        self.oddities = Oddities()
        self.stacks = StackTable(self.oddities)
        self.items = 0

    def decode(self, plain: Any) -> Snapshot:
        told = self._top_level(plain)
        segments = [self._segment(item) for item in self._dicts(told, "segments")]
        traces = {
            device: [self._entry(item) for item in self._listed(trace, "a device's trace")]
            for device, trace in enumerate(self._list_of(told, "device_traces"))
        }
        snapshot = Snapshot(
            name=self.name,
            segments=sorted(segments, key=lambda s: (s.device, s.address)),
            traces=traces,
            annotations=self._annotations(told),
            settings=self._settings(told.get("allocator_settings")),
            version=version_of(told),
        )
        self._check_sums(snapshot)
        snapshot.oddities = self.oddities.sentences()
        return snapshot

    def _top_level(self, plain: Any) -> dict[str, Any]:
        if isinstance(plain, dict) and isinstance(plain.get("snapshot"), (dict, list)):
            # Stacks written down once, beside the snapshot that names them by number.
            self.stacks.add_table(plain.get("frame_table"), plain.get("stacks"))
            plain = plain["snapshot"]
        if isinstance(plain, list):
            if plain and not any(isinstance(item, dict) and "blocks" in item for item in plain):
                raise self._refusal("its list holds no segments")
            return {"segments": plain}
        if not isinstance(plain, dict):
            raise self._refusal(f"it holds a {type(plain).__name__}, not segments")
        if not any(isinstance(plain.get(part), list) for part in _PARTS):
            raise self._refusal("it holds neither segments nor a history")
        return plain

    def _segment(self, told: dict[str, Any]) -> Segment:
        address = self._whole(told, "address")
        blocks = self._blocks(self._dicts(told, "blocks"), address)
        live = [block for block in blocks if block.state is not BlockState.FREE]
        held = sum(b.size for b in live if b.state is BlockState.ALLOCATED)
        return Segment(
            device=self._whole(told, "device"),
            address=address,
            size=self._whole(told, "total_size", sum(block.size for block in blocks)),
            stream=self._whole(told, "stream"),
            pool=self._pool(told.get("segment_pool_id")) or DEFAULT_POOL,
            is_small=told.get("segment_type") == "small",
            is_expandable=bool(told.get("is_expandable", False)),
            blocks=blocks,
            allocated=self._whole(told, "allocated_size", held),
            active=self._whole(told, "active_size", sum(block.size for block in live)),
            requested=self._whole(told, "requested_size", sum(block.requested for block in live)),
            stack=self.stacks.stack(told.get("frames")),
        )

    def _blocks(self, told: list[dict[str, Any]], address: int) -> list[Block]:
        blocks = []
        for item in told:
            size = self._whole(item, "size")
            state = self._state(item.get("state"))
            blocks.append(
                Block(
                    address=self._whole(item, "address", address),
                    size=size,
                    # A free block remembers what its last owner asked for.
                    requested=0
                    if state is BlockState.FREE
                    else self._whole(item, "requested_size", size),
                    state=state,
                    stack=None if state is BlockState.FREE else self._stack_of(item),
                )
            )
            address = blocks[-1].address + size
        return blocks

    def _stack_of(self, told: dict[str, Any]) -> Any:
        if "frames" in told:
            return self.stacks.stack(told["frames"], told.get("forward_frames"))
        history = told.get("history")
        if not isinstance(history, list) or not history or not isinstance(history[0], dict):
            return None
        return self.stacks.stack(history[0].get("frames"))

    def _state(self, told: Any) -> BlockState:
        state = _STATES.get(told) if isinstance(told, str) else None
        if state is None:
            self.oddities.note(f"blocks in the unknown state {text(told)!r:.60} are taken as live")
            return BlockState.ALLOCATED
        return state

    def _entry(self, told: Any) -> Entry:
        if not isinstance(told, dict):
            self.oddities.note("entries of the history that are no entries are left out")
            return Entry("", 0, 0, 0)
        time_us = told.get("time_us")
        return Entry(
            action=text(told.get("action")),
            address=self._whole(told, "addr", 0),
            size=self._whole(told, "size", 0),
            stream=self._whole(told, "stream", 0),
            time_us=time_us if _is_time(time_us) else None,
            stack=self.stacks.stack(told.get("frames"), told.get("forward_frames")),
            device_free=self._whole(told, "device_free") if "device_free" in told else None,
            pool=self._pool(told["pool_id"]) if "pool_id" in told else None,
        )

    def _annotations(self, told: dict[str, Any]) -> list[Annotation]:
        marks = [
            Annotation(text(item.get("name")), item.get("stage") == "START", item["time_us"])
            for item in self._dicts(told, "external_annotations")
            if _is_time(item.get("time_us")) and item.get("stage") in ("START", "END")
        ]
        return sorted(marks, key=lambda mark: mark.time_us)

    def _settings(self, told: Any) -> dict[str, str]:
        if not isinstance(told, dict):
            return {}
        plain = (str, int, float, bool)
        return {
            text(name): text(str(value))
            for name, value in list(told.items())[:100]
            if isinstance(name, str) and isinstance(value, plain)
        }

    def _pool(self, told: Any) -> tuple[int, int] | None:
        if isinstance(told, dict):
            told = told.get("$tuple")
        if (
            isinstance(told, (tuple, list))
            and len(told) == 2
            and all(isinstance(part, int) and abs(part) < _LARGEST for part in told)
        ):
            return (told[0], told[1])
        if told is not None:
            self.oddities.note("a pool's id is no pair of numbers")
        return None

    def _whole(self, told: dict[str, Any], key: str, otherwise: int = 0) -> int:
        value = told.get(key, otherwise)
        if type(value) is int and 0 <= value < _LARGEST:
            return value
        self.oddities.note(f"{key} is no number of bytes or the like: {value!r:.40}")
        return otherwise

    def _dicts(self, told: dict[str, Any], key: str) -> list[dict[str, Any]]:
        items = self._list_of(told, key)
        kept = [item for item in items if isinstance(item, dict)]
        if len(kept) < len(items):
            self.oddities.note(f"{key} holds what is none; it is left out")
        return kept

    def _list_of(self, told: dict[str, Any], key: str) -> list[Any]:
        return self._listed(told.get(key, []), key)

    def _listed(self, items: Any, key: str) -> list[Any]:
        if not isinstance(items, (list, tuple)):
            self.oddities.note(f"{key} is no list and is left out")
            return []
        self.items += len(items)
        if self.items > MOST_ITEMS:
            raise self._refusal(f"it would hold more than {MOST_ITEMS:,} blocks and entries")
        return list(items)

    def _check_sums(self, snapshot: Snapshot) -> None:
        for segment in snapshot.segments:
            if segment.blocks and sum(block.size for block in segment.blocks) != segment.size:
                self.oddities.note("the blocks of a segment don't add up to its size")
            live = sum(b.size for b in segment.blocks if b.state is not BlockState.FREE)
            if live != segment.active:
                self.oddities.note("the live blocks of a segment don't add up to its own total")

    def _refusal(self, reason: str) -> NoSnapshotError:
        return NoSnapshotError(
            f"{self.name} is no snapshot of torch's: {reason}.", slug="no-snapshot"
        )


def _is_time(value: Any) -> bool:
    return type(value) is int and 0 <= value < _LARGEST
