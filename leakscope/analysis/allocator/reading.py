"""A snapshot file as typed values, whichever release of torch wrote it.

The file is a pickle or JSON, gzipped or not. Pickles are opened without trust: plain values only,
nothing called, nothing imported. Stacks are kept once each; what is strange about a file is counted
by kind.
"""

from __future__ import annotations

import gzip
import io
import pickle
import zlib
from collections import Counter
from itertools import chain, islice
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from leakscope.analysis.allocator.segments import sums_of
from leakscope.model.device import (
    DEFAULT_POOL,
    TORCH_BLOCK_STATES,
    AllocatorSnapshot,
    Annotation,
    Block,
    BlockState,
    HistoryEntry,
    Segment,
    Stack,
    StackFrame,
)
from leakscope.model.errors import NoSnapshotError
from leakscope.model.text import human_count

MOST_ITEMS = 5_000_000
"""More blocks and entries than any ring of torch's holds: a file that repeats itself by reference
could otherwise stand for billions."""
_LARGEST = 1 << 62
_PARTS = ("segments", "device_traces")


def read_snapshot(path: Path) -> AllocatorSnapshot:
    """Return the snapshot in a file: pickle or JSON, gzipped or not.

    Raises:
        NoSnapshotError: it can't be read or holds no snapshot, or would run code.

    """
    return decode_snapshot(read_plain(path), str(path))


def decode_snapshot(plain: Any, name: str) -> AllocatorSnapshot:
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

    def decode(self, plain: Any) -> AllocatorSnapshot:
        raw = self._top_level(plain)
        segments = [self._segment(item) for item in self._dicts(raw, "segments")]
        traces = {
            device: [self._entry(item) for item in self._listed(trace, "a device's trace")]
            for device, trace in enumerate(self._list_of(raw, "device_traces"))
        }
        snapshot = AllocatorSnapshot(
            name=self.name,
            segments=sorted(segments, key=lambda s: (s.device, s.address)),
            traces=traces,
            annotations=self._annotations(raw),
            settings=self._settings(raw.get("allocator_settings")),
            version=version_of(raw),
        )
        for segment in snapshot.segments:
            if segment.blocks and sum(block.size for block in segment.blocks) != segment.size:
                self.oddities.note("the blocks of a segment don't add up to its size")
            if sums_of(segment.blocks)[1] != segment.active:
                self.oddities.note("the live blocks of a segment don't add up to its own total")
        snapshot.oddities = self.oddities.sentences()
        return snapshot

    def _top_level(self, plain: Any) -> dict[str, Any]:
        if isinstance(plain, dict) and isinstance(plain.get("snapshot"), (dict, list)):
            # Stacks written down once, alongside the snapshot that names them by number.
            self.stacks.add_table(plain.get("frame_table"), plain.get("stacks"))
            plain = plain["snapshot"]
        if isinstance(plain, list):
            if plain and not any(isinstance(item, dict) and "blocks" in item for item in plain):
                raise _refusal(self.name, "its list holds no segments")
            return {"segments": plain}
        if not isinstance(plain, dict):
            raise _refusal(self.name, f"it holds a {type(plain).__name__}, not segments")
        if not any(isinstance(plain.get(part), list) for part in _PARTS):
            raise _refusal(self.name, "it holds neither segments nor a history")
        return plain

    def _segment(self, raw: dict[str, Any]) -> Segment:
        address = self._whole(raw, "address")
        blocks = self._blocks(self._dicts(raw, "blocks"), address)
        allocated, active, requested = sums_of(blocks)
        return Segment(
            device=self._whole(raw, "device"),
            address=address,
            size=self._whole(raw, "total_size", sum(block.size for block in blocks)),
            stream=self._whole(raw, "stream"),
            pool=self._pool(raw.get("segment_pool_id")) or DEFAULT_POOL,
            is_small=raw.get("segment_type") == "small",
            is_expandable=bool(raw.get("is_expandable", False)),
            blocks=blocks,
            allocated=self._whole(raw, "allocated_size", allocated),
            active=self._whole(raw, "active_size", active),
            requested=self._whole(raw, "requested_size", requested),
            stack=self.stacks.stack(raw.get("frames")),
        )

    def _blocks(self, raw: list[dict[str, Any]], address: int) -> list[Block]:
        blocks = []
        for item in raw:
            size = self._whole(item, "size")
            state = self._state(item.get("state"))
            blocks.append(
                Block(
                    address=self._whole(item, "address", address),
                    size=size,
                    # A free block remembers what its last owner requested.
                    requested=0
                    if state is BlockState.FREE
                    else self._whole(item, "requested_size", size),
                    state=state,
                    stack=None if state is BlockState.FREE else self._stack_of(item),
                )
            )
            address = blocks[-1].address + size
        return blocks

    def _stack_of(self, raw: dict[str, Any]) -> Any:
        if "frames" in raw:
            return self.stacks.stack(raw["frames"], raw.get("forward_frames"))
        history = raw.get("history")
        if not isinstance(history, list) or not history or not isinstance(history[0], dict):
            return None
        return self.stacks.stack(history[0].get("frames"))

    def _state(self, raw: Any) -> BlockState:
        state = TORCH_BLOCK_STATES.get(raw) if isinstance(raw, str) else None
        if state is None:
            self.oddities.note(f"blocks in the unknown state {text(raw)!r:.60} are taken as live")
            return BlockState.ALLOCATED
        return state

    def _entry(self, raw: Any) -> HistoryEntry:
        if not isinstance(raw, dict):
            self.oddities.note("entries of the history that are no entries are left out")
            return HistoryEntry("", 0, 0, 0)
        time_us = raw.get("time_us")
        return HistoryEntry(
            action=text(raw.get("action")),
            address=self._whole(raw, "addr", 0),
            size=self._whole(raw, "size", 0),
            stream=self._whole(raw, "stream", 0),
            time_us=time_us if _is_time(time_us) else None,
            stack=self.stacks.stack(raw.get("frames"), raw.get("forward_frames")),
            device_free=self._whole(raw, "device_free") if "device_free" in raw else None,
            pool=self._pool(raw["pool_id"]) if "pool_id" in raw else None,
        )

    def _annotations(self, raw: dict[str, Any]) -> list[Annotation]:
        marks = [
            Annotation(text(item.get("name")), item.get("stage") == "START", item["time_us"])
            for item in self._dicts(raw, "external_annotations")
            if _is_time(item.get("time_us")) and item.get("stage") in ("START", "END")
        ]
        return sorted(marks, key=lambda mark: mark.time_us)

    def _settings(self, raw: Any) -> dict[str, str]:
        if not isinstance(raw, dict):
            return {}
        plain = (str, int, float, bool)
        return {
            text(name): text(str(value))
            for name, value in list(raw.items())[:100]
            if isinstance(name, str) and isinstance(value, plain)
        }

    def _pool(self, raw: Any) -> tuple[int, int] | None:
        if isinstance(raw, dict):
            raw = raw.get("$tuple")
        if (
            isinstance(raw, (tuple, list))
            and len(raw) == 2
            and all(isinstance(part, int) and abs(part) < _LARGEST for part in raw)
        ):
            return (raw[0], raw[1])
        if raw is not None:
            self.oddities.note("a pool's id is no pair of numbers")
        return None

    def _whole(self, raw: dict[str, Any], key: str, otherwise: int = 0) -> int:
        value = raw.get(key, otherwise)
        if type(value) is int and 0 <= value < _LARGEST:
            return value
        self.oddities.note(f"{key} is no number of bytes or the like: {value!r:.40}")
        return otherwise

    def _dicts(self, raw: dict[str, Any], key: str) -> list[dict[str, Any]]:
        items = self._list_of(raw, key)
        kept = [item for item in items if isinstance(item, dict)]
        if len(kept) < len(items):
            self.oddities.note(f"{key} holds what is none; it is left out")
        return kept

    def _list_of(self, raw: dict[str, Any], key: str) -> list[Any]:
        return self._listed(raw.get(key, []), key)

    def _listed(self, items: Any, key: str) -> list[Any]:
        if not isinstance(items, (list, tuple)):
            self.oddities.note(f"{key} is no list and is left out")
            return []
        self.items += len(items)
        if self.items > MOST_ITEMS:
            raise _refusal(self.name, f"it would hold more than {MOST_ITEMS:,} blocks and entries")
        return list(items)


def _is_time(value: Any) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


MOST_BYTES = 2 << 30
"""A file that is larger, or unpacks to more, is refused: the largest seen had 100 MB."""
_GZIP = b"\x1f\x8b"
_ARCHIVE = b"PK\x03\x04"
_LOOKED_AT = 4096
_JSON_BEGINS = (b"{", b"[")


def read_plain(path: Path) -> Any:
    """Return what a file holds as dicts, lists, texts and numbers; nothing in it is executed.

    Raises:
        NoSnapshotError: it can't be read, is too large, or is neither pickle nor JSON.

    """
    data = _unpacked(path, _bytes_of(path))
    if data.startswith(_ARCHIVE):
        raise _refusal(path, "it is an archive, as torch.save writes; snapshots are pickles")
    if data.lstrip()[:1] in _JSON_BEGINS and _reads_as_text(data):
        try:
            return msgspec.json.decode(data)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as fault:
            raise _refusal(path, f"its JSON is damaged ({fault})") from fault
    try:
        return load_plain(data)
    except UntrustedPickleError as fault:
        if _is_text(data):
            raise _refusal(path, "it is text, not a pickle") from fault
        raise _refusal(path, str(fault)) from fault


def _bytes_of(path: Path) -> bytes:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise _refusal(path, f"it is larger than {MOST_BYTES >> 30} GiB")
        return path.read_bytes()
    except OSError as fault:
        raise NoSnapshotError(
            f"{path} can't be read ({fault.strerror or fault}).", slug="no-snapshot"
        ) from fault


def _unpacked(path: Path, data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            unpacked = stream.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as fault:
        raise _refusal(path, f"its gzip is damaged ({fault})") from fault
    if len(unpacked) > MOST_BYTES:
        raise _refusal(path, f"it unpacks to more than {MOST_BYTES >> 30} GiB")
    return unpacked


def _reads_as_text(data: bytes) -> bool:
    # A pickle of protocol 0 or 1 may begin with a brace or a bracket too.
    return not data.endswith(b".")


def _is_text(data: bytes) -> bool:
    try:
        text = data[:_LOOKED_AT].decode(errors="strict" if len(data) <= _LOOKED_AT else "ignore")
    except UnicodeDecodeError:
        return False
    return bool(text) and _reads_as_text(data) and "".join(text.split()).isprintable()


def _refusal(path: Path | str, reason: str) -> NoSnapshotError:
    return NoSnapshotError(f"{path} is no snapshot of torch's: {reason}.", slug="no-snapshot")


_FORBIDDEN = {
    ord("c"): "GLOBAL", ord("R"): "REDUCE", ord("b"): "BUILD", ord("i"): "INST", ord("o"): "OBJ",
    ord("P"): "PERSID", ord("Q"): "BINPERSID", 0x81: "NEWOBJ", 0x82: "EXT1", 0x83: "EXT2",
    0x84: "EXT4", 0x92: "NEWOBJ_EX", 0x93: "STACK_GLOBAL", 0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
}  # fmt: skip
_STOP = ord(".")
_LONG_PUT = ord("r")
_TEXT_PUT = ord("p")
_LINE, _UNKNOWN = -1, -100
_PLAIN = b"()]}0123Nadehsult.\x85\x86\x87\x88\x89\x8f\x90\x91\x94"
_FIXED = {
    1: b"hKq\x80", 2: b"M", 4: b"jJr", 8: b"G\x95",
}  # fmt: skip
_LINES = b"FILSVgp"
_COUNTED = {-2: (b"UC\x8a\x8c", 1), -3: (b"TBX\x8b", 4), -4: (b"\x8d\x8e\x96", 8)}


class UntrustedPickleError(Exception):
    """The pickle is damaged, or asks for more than plain values."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise UntrustedPickleError(f"it asks for {module}.{name}")

    def persistent_load(self, _: Any) -> NoReturn:
        raise UntrustedPickleError("it asks for objects outside the file")


def load_plain(data: bytes) -> Any:
    """Return the plain value in a pickle.

    Raises:
        UntrustedPickleError: it is damaged or asks for anything but plain values.

    """
    check_plain(data)
    try:
        return _PlainUnpickler(io.BytesIO(data), encoding="utf-8", errors="replace").load()
    except UntrustedPickleError:
        raise
    except Exception as fault:
        raise UntrustedPickleError(f"it is damaged ({type(fault).__name__})") from fault


def check_plain(data: bytes) -> None:
    """Walk the instructions of a pickle without obeying them.

    Raises:
        UntrustedPickleError: one of them is not of plain values, or reaches past the end.

    """
    table, end, position = _TABLE, len(data), 0
    try:
        while True:
            code = data[position]
            argument = table[code]
            if argument >= 0:
                if code == _LONG_PUT:
                    _check_place(int.from_bytes(data[position + 1 : position + 5], "little"), end)
                elif argument == 0 and code == _STOP:
                    return
                position += argument + 1
            else:
                position = _past(data, position, code, argument)
    except IndexError:
        raise UntrustedPickleError("it is cut short") from None


def _past(data: bytes, position: int, code: int, argument: int) -> int:
    """Return where the instruction after one with a long argument begins."""
    if code in _FORBIDDEN:
        raise UntrustedPickleError(f"it asks for code to be run ({_FORBIDDEN[code]})")
    if argument == _UNKNOWN:
        raise UntrustedPickleError(f"byte {position:,} is no instruction of a pickle")
    if argument == _LINE:
        stop = data.find(b"\n", position)
        if stop < 0:
            raise UntrustedPickleError("it is cut short")
        if code == _TEXT_PUT:
            _check_place(_number(data[position + 1 : stop]), len(data))
        return stop + 1
    width = _COUNTED[argument][1]
    begin = position + 1 + width
    stop = begin + int.from_bytes(data[position + 1 : begin], "little")
    if stop > len(data):
        raise UntrustedPickleError("it is cut short")
    return stop


def _check_place(place: int, most: int) -> None:
    # The C unpickler makes room for every place up to the one that is named.
    if place > most:
        raise UntrustedPickleError("it would have more memory reserved than it can fill")


def _number(digits: bytes) -> int:
    if not digits.isdigit():
        raise UntrustedPickleError("it is damaged")
    return int(digits[:20])


def _table() -> list[int]:
    lengths = [_UNKNOWN] * 256
    counted = {kind: codes for kind, (codes, _) in _COUNTED.items()}
    for length, codes in {0: _PLAIN, _LINE: _LINES, **_FIXED, **counted}.items():
        for code in codes:
            lengths[code] = length
    return lengths


_TABLE = _table()


DEEPEST = 1000
LONGEST_TEXT = 1000
_SHARED = "$stack"


class StackTable:
    """The stacks of one file.

    A pickle shares its frames, and often their lists, among all who have the same stack, so that
    a stack is mostly known by the identity of what it consists of; JSON repeats everything, so
    that it is then known by what it says. The file's values must outlive the table.
    """

    def __init__(self, oddities: Oddities) -> None:
        self._oddities = oddities
        self._of_list: dict[int, Stack | None] = {}
        self._of_identities: dict[tuple[int, ...], Stack | None] = {}
        self._of_frames: dict[tuple[tuple[StackFrame, ...], tuple[str, ...]], Stack] = {}
        self._frames: dict[tuple[str, int, str], StackFrame] = {}
        self._tabled: list[Stack | None] = []

    def add_table(self, frame_table: Any, stacks: Any) -> None:
        """Learn stacks that a file writes down apart, as indices into a list of frames."""
        frames = frame_table if isinstance(frame_table, list) else []
        for indices in stacks if isinstance(stacks, list) else []:
            raw = indices if isinstance(indices, list) else []
            known = [frames[i] for i in raw if isinstance(i, int) and 0 <= i < len(frames)]
            self._tabled.append(self._interned(known, ()))

    def stack(self, raw: Any, forward: Any = None) -> Stack | None:
        """Return the stack that a list of frames means; None where there is none."""
        if not raw and not forward:
            return None
        if isinstance(raw, dict):
            index = raw.get(_SHARED)
            if isinstance(index, int) and 0 <= index < len(self._tabled):
                return self._tabled[index]
            self._oddities.note("a stack is named that the file doesn't hold")
            return None
        if not isinstance(raw, list):
            self._oddities.note("frames that are no list are left out")
            return None
        lines = tuple(text(line) for line in forward) if isinstance(forward, list) else ()
        if lines:
            return self._interned(raw, lines)
        if id(raw) not in self._of_list:
            identities = tuple(map(id, raw))
            if identities not in self._of_identities:
                self._of_identities[identities] = self._interned(raw, ())
            self._of_list[id(raw)] = self._of_identities[identities]
        return self._of_list[id(raw)]

    def _interned(self, raw: list[Any], forward: tuple[str, ...]) -> Stack | None:
        frames = tuple(self._frame(item) for item in raw[:DEEPEST] if isinstance(item, dict))
        if len(frames) < len(raw):
            self._oddities.note("frames that are no frames, or deeper than a thousand, left out")
        if not frames and not forward:
            return None
        return self._of_frames.setdefault((frames, forward), Stack(frames, forward))

    def _frame(self, raw: dict[str, Any]) -> StackFrame:
        line = raw.get("line")
        key = (
            text(raw.get("filename")),
            line if isinstance(line, int) and 0 <= line < 1 << 31 else 0,
            text(raw.get("name")),
        )
        return self._frames.setdefault(key, StackFrame(*key))


def text(raw: Any) -> str:
    """Return a text of bearable length, empty where there is none."""
    return raw[:LONGEST_TEXT] if isinstance(raw, str) else ""


LOOKED_AT = 50
_ENTRY_KEYS = (("pool_id", "2.12"), ("user_metadata", "2.10"), ("compile_context", "2.8"))


def version_of(raw: dict[str, Any]) -> str:
    """Return ``2.5 or newer``, or the one release, as far as the keys tell; else empty."""
    entries = _some_dicts(raw.get("device_traces"))
    for key, release in _ENTRY_KEYS:
        if any(key in entry for entry in entries):
            return f"{release} or newer"
    if "external_annotations" in raw:
        return "2.5 or newer"
    if "allocator_settings" in raw:
        return "2.3 or 2.4"
    segments = raw.get("segments") if isinstance(raw.get("segments"), list) else []
    blocks = _some_dicts([s.get("blocks") for s in segments or [] if isinstance(s, dict)])
    if any("history" in block for block in blocks):
        return "2.0"
    return "2.1 or newer" if blocks else ""


def _some_dicts(lists: Any) -> list[dict[str, Any]]:
    inner = [each for each in lists if isinstance(each, list)] if isinstance(lists, list) else []
    # A few of each: the ring of one device may be empty.
    items = chain.from_iterable(islice(each, LOOKED_AT) for each in inner)
    return list(islice((item for item in items if isinstance(item, dict)), LOOKED_AT))


MOST_KINDS = 40


class Oddities:
    """Sentences about a file, each with how often it held."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def note(self, sentence: str) -> None:
        """Count one more occurrence of an oddity."""
        if sentence in self._counts or len(self._counts) < MOST_KINDS:
            self._counts[sentence] += 1

    def sentences(self) -> list[str]:
        """Return each oddity once, with its count where it is more than one."""
        return [
            f"{sentence[:1].upper()}{sentence[1:]}"
            + (f" ({human_count(count)} times)." if count > 1 else ".")
            for sentence, count in self._counts.items()
        ]
