"""Snapshot files of any release, form and honesty become typed snapshots or one clear refusal."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import pickletools
import struct
from pathlib import Path
from typing import Any

import pytest
from fake_allocator import FORWARD, MIB, FakeAllocator, trained
from hypothesis import given, settings
from hypothesis import strategies as st

from leakscope.analysis.allocator import explain, read_snapshot
from leakscope.analysis.allocator import reading as plain_pickles
from leakscope.analysis.allocator.reading import (
    UntrustedPickleError,
    check_plain,
    decode_snapshot,
    load_plain,
    read_plain,
)
from leakscope.model.device import BlockState
from leakscope.model.errors import NoSnapshotError


def written(path: Path, reported: Any, form: str) -> Path:
    data = json.dumps(reported).encode() if form.startswith("json") else pickle.dumps(reported)
    path.write_bytes(gzip.compress(data) if form.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("form", ["pickle", "pickle.gz", "json", "json.gz"])
@pytest.mark.parametrize("name", ["snapshot", "snapshot.pickle", "snapshot.json"])
def test_form_is_reported_by_content_and_not_by_name(tmp_path: Path, form: str, name: str) -> None:
    reported = trained(2).snapshot()
    snapshot = read_snapshot(written(tmp_path / name, reported, form))
    assert len(snapshot.traces[0]) == len(reported["device_traces"][0])
    assert sum(s.size for s in snapshot.segments) == sum(
        s["total_size"] for s in reported["segments"]
    )
    assert snapshot.segments[0].pool == (0, 0)
    assert snapshot.oddities == []


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_of_pickle_is_read(protocol: int) -> None:
    reported = trained().snapshot()
    assert load_plain(pickle.dumps(reported, protocol)) == reported


def test_instructions_are_as_long_as_pickletools_says() -> None:
    kinds = {
        pickletools.UP_TO_NEWLINE: -1,
        pickletools.TAKEN_FROM_ARGUMENT1: -2,
        pickletools.TAKEN_FROM_ARGUMENT4: -3,
        pickletools.TAKEN_FROM_ARGUMENT4U: -3,
        pickletools.TAKEN_FROM_ARGUMENT8U: -4,
    }
    for opcode in pickletools.opcodes:
        code, argument = ord(opcode.code), opcode.arg
        length = 0 if argument is None else kinds.get(argument.n, argument.n)
        if code not in plain_pickles._FORBIDDEN:
            assert plain_pickles._TABLE[code] == length, opcode.name


class _Runs:
    def __init__(self, made: Any) -> None:
        self.made = made

    def __reduce__(self) -> Any:
        return self.made


def forbidden_pickles(trace: Path) -> dict[str, bytes]:
    command = f"touch {trace}"
    deep = b"\x80\x04" + b"]" * 3_000_000 + b"a" * 2_999_999 + b"."
    return {
        "os.system": pickle.dumps(_Runs((os.system, (command,)))),
        "os.system in a segment": pickle.dumps({"segments": [_Runs((os.system, (command,)))]}),
        "eval by name, protocol 0": f'c__builtin__\neval\n(S\'open("{trace}", "w")\'\ntR.'.encode(),
        "instance": b"(ios\nsystem\np0\n.",
        "build": b"\x80\x04}}b.",
        "persistent": b"Pfile\n.",
        "extension": b"\x80\x04\x82\x01.",
        "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        "place beyond all memory": b"\x80\x02]r" + struct.pack("<I", 0xFFFFFFF0) + b".",
        "place by text beyond all memory": b"]p4000000000\n.",
        "negative place": b"]p-1\n.",
        "text longer than the file": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b"abc.",
        "bytes longer than the file": b"\x80\x05\x96" + struct.pack("<Q", 1 << 62) + b".",
        "number longer than the file": b"\x80\x02\x8b\xff\xff\xff\x7f.",
        "number of many digits": b"I" + b"9" * 100_000 + b"\n.",
        "nothing on the stack": b"\x80\x04.",
        "list as a key": b"\x80\x04}]]s.",
        "unknown place": b"\x80\x04h\x07.",
        "unknown instruction": b"\x80\x04\xff.",
        "cut short": pickle.dumps(trained().snapshot())[:-200],
        "nothing": b"",
        "very deep": deep,
    }


@pytest.mark.parametrize("case", sorted(forbidden_pickles(Path("x"))))
def test_pickle_that_is_no_plain_snapshot_is_refused_and_runs_nothing(
    tmp_path: Path, case: str
) -> None:
    trace = tmp_path / "it-ran"
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(forbidden_pickles(trace)[case])
    with pytest.raises(NoSnapshotError, match=r"snapshot\.pickle is no snapshot of torch's: "):
        read_snapshot(path)
    assert not trace.exists()


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        load_plain(data)
    except UntrustedPickleError:
        return


@settings(deadline=None)
@given(st.data())
def test_damage_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(pickle.dumps(trained().snapshot()))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255))
    try:
        snapshot = decode_snapshot(load_plain(bytes(whole)), "damaged")
    except (UntrustedPickleError, NoSnapshotError):
        return
    explain(snapshot)


def test_walk_refuses_what_the_unpickler_would_have_to_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plain_pickles, "check_plain", lambda _: None)
    with pytest.raises(UntrustedPickleError, match=r"os|posix|nt"):
        load_plain(pickle.dumps(os.system))
    check_plain(pickle.dumps([]))


def test_list_repeated_by_reference_a_billion_times_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leakscope.analysis.allocator.reading.MOST_ITEMS", 200_000)
    block = {"address": 1, "size": 512, "state": "inactive", "frames": []}
    segment = {"device": 0, "address": 1, "total_size": 512, "blocks": [block] * 50_000}
    path = tmp_path / "laughs.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment] * 50_000}))
    with pytest.raises(NoSnapshotError, match="more than 200,000 blocks"):
        read_snapshot(path)


def test_nested_lists_that_double_by_reference_are_read_without_walking_them(
    tmp_path: Path,
) -> None:
    bomb: list[Any] = []
    for _ in range(60):
        bomb = [bomb, bomb]
    path = tmp_path / "laughs.pickle"
    trace = [{"action": "alloc", "frames": bomb}]
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace], "x": bomb}))
    assert len(read_snapshot(path).traces[0]) == 1


def test_bomb_in_gzip_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leakscope.analysis.allocator.reading.MOST_BYTES", 1 << 20)
    path = tmp_path / "bomb.pickle.gz"
    path.write_bytes(gzip.compress(b"\0" * (2 << 20)))
    with pytest.raises(NoSnapshotError, match="unpacks to more"):
        read_plain(path)
    path.write_bytes(b"\0" * (2 << 20))
    with pytest.raises(NoSnapshotError, match="larger than"):
        read_plain(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x1f\x8b\x08\x00damaged", "gzip is damaged"),
        (b'{"segments": [', "JSON is damaged"),
        (b"[" * 100_000, "JSON is damaged"),
        (b"PK\x03\x04 an archive", "archive"),
        (b"plain words\n", "it is text, not a pickle"),
        (b"[1, 2, 3]", "its list holds no segments"),
        (b'{"loss": 1}', "neither segments nor a history"),
        (pickle.dumps("text"), "it holds a str"),
        (pickle.dumps({"segments": 3}), "neither segments nor a history"),
    ],
)
def test_what_is_no_snapshot_is_refused_in_one_sentence(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(NoSnapshotError, match=reason) as refused:
        read_snapshot(path)
    assert "\n" not in str(refused.value)


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NoSnapshotError, match="can't be read"):
        read_snapshot(tmp_path / "absent.pickle")
    with pytest.raises(NoSnapshotError, match="can't be read"):
        read_snapshot(tmp_path)


def test_list_of_segments_alone_is_a_snapshot() -> None:
    reported = trained().snapshot()["segments"]
    snapshot = decode_snapshot(reported, "list")
    assert len(snapshot.segments) == len(reported)
    assert explain(snapshot).devices[0].trace is None


def test_torch_2_0_keeps_stacks_in_a_history_and_no_addresses() -> None:
    frames = [{"filename": "old.py", "line": 3, "name": "make"}]
    stale = [{"filename": "gone.py", "line": 1, "name": "stale"}]
    blocks = [
        {"size": 512, "requested_size": 100, "state": "active_allocated",
         "history": [{"addr": 4096, "real_size": 100, "frames": frames}, {"frames": stale}]},
        {"size": 1536, "requested_size": 9, "state": "inactive", "history": [{"frames": stale}]},
    ]  # fmt: skip
    segment = {"device": 0, "address": 4096, "total_size": 2048, "stream": 0, "blocks": blocks}
    snapshot = decode_snapshot({"segments": [segment], "device_traces": []}, "old")
    assert snapshot.version == "2.0"
    live, free = snapshot.segments[0].blocks
    assert live.stack is not None
    assert live.stack.frames[0].file == "old.py"
    assert (free.address, free.requested, free.stack) == (4608, 0, None)


def test_interned_stacks_and_marked_tuples_are_understood() -> None:
    block = {"address": 0, "size": 512, "state": "active_allocated", "frames": {"$stack": 0}}
    blocks = [block, {**block, "frames": {"$stack": 7}}]
    segment = {"address": 0, "total_size": 512, "blocks": blocks}
    segment["segment_pool_id"] = {"$tuple": [0, 2]}
    reported = {
        "frame_table": [{"filename": "a.py", "line": 1, "name": "f"}],
        "stacks": [[0]],
        "snapshot": {"segments": [segment]},
    }
    snapshot = decode_snapshot(reported, "interned")
    assert snapshot.segments[0].pool == (0, 2)
    first, second = snapshot.segments[0].blocks
    assert first.stack is not None
    assert second.stack is None
    assert any("a stack is named" in note.lower() for note in snapshot.oddities)


def test_pool_of_a_list_is_a_pool() -> None:
    reported = trained().snapshot()
    for segment in reported["segments"]:
        segment["segment_pool_id"] = [3, 0]
    assert {s.pool for s in decode_snapshot(reported, "x").segments} == {(3, 0)}


def test_unknown_actions_keys_and_states_are_reported_and_survived() -> None:
    made = trained()
    reported = made.snapshot()
    reported["device_traces"][0].append(
        {"action": "annotate", "addr": 1, "size": 2, "internal_metadata": {}}
    )
    reported["segments"][0]["registration_counter"] = -1
    reported["segments"][0]["blocks"][0]["state"] = "active_in_a_new_way"
    reported["novelty"] = {"x": 1}
    explanation = explain(decode_snapshot(reported, "new"))
    notes = " ".join(explanation.notes)
    assert "unknown action 'annotate'" in notes
    assert "unknown state 'active_in_a_new_way'" in notes


def test_awaiting_free_of_the_documentation_is_pending() -> None:
    reported = trained().snapshot()
    reported["segments"][0]["blocks"][0]["state"] = "active_awaiting_free"
    assert decode_snapshot(reported, "x").segments[0].blocks[0].state is BlockState.PENDING


def test_sums_that_disagree_are_reported() -> None:
    reported = trained().snapshot()
    reported["segments"][0]["total_size"] += 512
    reported["segments"][0]["active_size"] += 1
    notes = " ".join(explain(decode_snapshot(reported, "x")).notes)
    assert "don't add up to its size" in notes
    assert "don't add up to its own total" in notes


JUNK: list[Any] = [
    None,
    -1,
    1 << 200,
    1.5,
    float("nan"),
    "text",
    [],
    {},
    True,
    [[]],
    [None],
    {"$stack": []},
]


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_junk_in_any_place_is_survived(junk: Any) -> None:
    reported = trained(2).snapshot()
    blocks, trace = reported["segments"][1]["blocks"], reported["device_traces"][0]
    places = [reported, reported["segments"][0], blocks[0], trace[0], trace[-1]]
    places += [reported["external_annotations"][0], reported["allocator_settings"]]
    for place in places:
        for key in list(place):
            kept = place[key]
            place[key] = junk
            try:
                explain(decode_snapshot(reported, "junk"))
            except NoSnapshotError:
                pass
            place[key] = kept
    reported["segments"] += [junk]
    reported["device_traces"] += [junk]
    reported["device_traces"][0] += [junk]
    reported["external_annotations"] += [junk]
    explain(decode_snapshot(reported, "junk"))


KEYS = st.sampled_from(
    ["segments", "device_traces", "blocks", "frames", "action", "size", "state", "device", "addr"]
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=30,
)


@settings(deadline=None)
@given(segments=plain, traces=plain)
def test_any_plain_value_is_explained_or_refused(segments: Any, traces: Any) -> None:
    try:
        explain(decode_snapshot({"segments": segments, "device_traces": traces}, "any"))
    except NoSnapshotError:
        return


def test_snapshot_of_a_process_that_never_used_the_gpu_is_empty() -> None:
    explanation = explain(decode_snapshot({"segments": [], "device_traces": [[]]}, "empty"))
    assert explanation.devices == []
    assert explanation.headline.startswith("No device memory")


@pytest.mark.parametrize(
    ("key", "version"),
    [("pool_id", "2.12"), ("user_metadata", "2.10"), ("compile_context", "2.8")],
)
def test_release_is_reported_by_the_keys_it_added(key: str, version: str) -> None:
    reported = trained().snapshot()
    reported["device_traces"][0][0][key] = (0, 0)
    assert decode_snapshot(reported, "x").version == f"{version} or newer"


def test_equal_stacks_are_one_however_they_are_repeated() -> None:
    made = FakeAllocator()
    for _ in range(3):
        made.alloc(MIB, [dict(frame) for frame in FORWARD])
    snapshot = decode_snapshot(made.snapshot(), "x")
    stacks = [b.stack for s in snapshot.segments for b in s.blocks if b.stack is not None]
    assert len(stacks) == 3
    assert len({id(stack) for stack in stacks}) == 1
