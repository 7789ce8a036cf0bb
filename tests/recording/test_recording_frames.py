from __future__ import annotations

import io
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakscope.recording import format as frames
from leakscope.recording.format import (
    HEADER,
    MAGIC,
    ZIPPED,
    Gap,
    JournalFrame,
    read_frames,
    to_frame,
)

PAYLOADS = st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=6)


class Trickle(io.RawIOBase):
    """A stream that gives a few bytes at a time, as a network disk may."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size = io.BytesIO(data), size

    def read(self, size: int = -1) -> bytes:
        return self._data.read(min(self._size, size))


def intact(data: bytes) -> list[bytes]:
    return [
        piece.payload for piece in read_frames(io.BytesIO(data)) if isinstance(piece, JournalFrame)
    ]


def gaps(data: bytes) -> list[Gap]:
    return [piece for piece in read_frames(io.BytesIO(data)) if isinstance(piece, Gap)]


@given(PAYLOADS, st.integers(1, 50))
def test_frames_round_trip_however_the_stream_is_cut_into_reads(payloads, size):
    data = b"".join(map(to_frame, payloads))
    pieces = list(read_frames(Trickle(data, size)))
    assert [piece.payload for piece in pieces] == payloads


@given(PAYLOADS)
@settings(max_examples=25)
def test_a_journal_cut_anywhere_yields_exactly_the_complete_frames(payloads):
    data = b"".join(map(to_frame, payloads))
    ends = []
    for payload in payloads:
        # the newline is for people: the record is whole without it
        ends.append((ends[-1] + 1 if ends else 0) + len(to_frame(payload)) - 1)
    for cut in range(len(data) + 1):
        complete = sum(end <= cut for end in ends)
        assert intact(data[:cut]) == payloads[:complete]
        whole = {0, *ends, *(end + 1 for end in ends)}
        assert bool(gaps(data[:cut])) == (cut not in whole)


@given(PAYLOADS, st.data())
def test_flipped_bytes_cost_only_the_frames_they_lie_in(payloads, data):
    stream = bytearray(b"".join(map(to_frame, payloads)))
    begins, at = [], 0
    for payload in payloads:
        begins.append(at)
        at += len(to_frame(payload))
    touched = set()
    for place in data.draw(st.lists(st.integers(0, len(stream) - 1), max_size=4)):
        stream[place] ^= data.draw(st.integers(1, 255))
        touched.add(sum(begin <= place for begin in begins) - 1)
    untouched = [p for i, p in enumerate(payloads) if i not in touched]
    found = intact(bytes(stream))
    remaining = iter(found)
    assert all(payload in remaining for payload in untouched)
    assert all(payload in payloads for payload in found)


@given(st.binary(max_size=400), PAYLOADS)
def test_noise_never_raises_and_hides_nothing_after_it(noise, payloads):
    list(read_frames(io.BytesIO(noise)))
    good = b"".join(map(to_frame, payloads))
    assert intact(noise + b"\n" + good)[-len(payloads) :] == payloads
    assert intact(MAGIC + noise + good)[-len(payloads) :] == payloads


def test_a_torn_end_is_distinguished_from_damage_in_the_middle():
    data = to_frame(b"one") + to_frame(b"two")
    (torn,) = gaps(data[:-3])
    assert "cut off" in torn.reason
    assert torn.is_cut_off
    assert torn.offset == len(to_frame(b"one"))
    (damaged,) = gaps(data.replace(b"one", b"0ne"))
    assert "checksum" in damaged.reason
    assert (damaged.offset, damaged.length) == (0, len(to_frame(b"one")))


def test_a_tail_of_zeros_as_disks_leave_after_a_power_cut_is_one_gap():
    data = to_frame(b"one") + bytes(10_000)
    assert intact(data) == [b"one"]
    assert [gap.length for gap in gaps(data)] == [10_000]


def test_large_payloads_are_compressed_and_small_ones_are_not():
    assert b"small" in to_frame(b"small")
    assert len(to_frame(b"large" * 10_000)) < 1000
    assert intact(to_frame(b"large" * 10_000)) == [b"large" * 10_000]


def test_a_bomb_is_refused_without_being_unpacked(monkeypatch):
    monkeypatch.setattr(frames, "MAX_PAYLOAD", 1 << 16)
    bomb = zlib.compress(bytes(1 << 24), 9)
    data = _sealed(ZIPPED, bomb) + to_frame(b"after")
    assert intact(data) == [b"after"]
    assert "larger than any real one" in gaps(data)[0].reason


def test_a_length_beyond_all_reason_does_not_swallow_what_follows():
    data = HEADER.pack(MAGIC, b"j", 0xFFFF_FFFF, 0) + b"x\n" + to_frame(b"after")
    assert intact(data) == [b"after"]


def test_an_unknown_encoding_is_skipped_by_name():
    data = _sealed(b"q", b"???") + to_frame(b"after")
    assert intact(data) == [b"after"]
    assert "unknown encoding b'q'" in gaps(data)[0].reason


def test_a_file_made_of_false_starts_is_given_up_in_time(monkeypatch):
    monkeypatch.setattr(frames, "_MAX_WASTED", 1 << 20)
    start = HEADER.pack(MAGIC, b"j", 50_000, 0)
    data = start * 10_000 + to_frame(b"after")
    assert intact(data) == []
    assert gaps(data)[-1].reason.startswith("reading stopped here")


@pytest.mark.parametrize("place", range(4, 13))
def test_the_checksum_covers_the_header(place):
    frame = bytearray(to_frame(b"payload"))
    frame[place] ^= 1
    assert intact(bytes(frame)) == []


def _sealed(encoding: bytes, payload: bytes) -> bytes:
    checksum = frames._checksum(encoding, payload)
    return HEADER.pack(MAGIC, encoding, len(payload), checksum) + payload + b"\n"
