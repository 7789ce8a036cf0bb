from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recording_samples import block_list, boundary, census, one_of_each, write_run

from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.errors import NewerSchemaError, NoRunError
from leakscope.model.record import (
    SCHEMA_VERSION,
    BoundaryRecord,
    EndRecord,
    HeaderRecord,
    NoteRecord,
    RunManifest,
    SourceRecord,
)
from leakscope.recording import RecordingWriter, RunDirectory, open_run
from leakscope.recording.format import decode_record, encode_record, to_frame

TEXT = st.text(max_size=8)
BOUNDARIES = st.builds(
    BoundaryRecord,
    boundary=st.builds(
        Boundary,
        index=st.integers(0, 2**40),
        kind=st.sampled_from(BoundaryKind),
        time_s=st.floats(0, 1e9),
        phase=TEXT,
        label=TEXT,
        expected_batches=st.none() | st.integers(0, 10**9),
    ),
    gauges=st.dictionaries(TEXT, st.integers(1 - 2**63, 2**63 - 1), max_size=4),
    events=st.dictionaries(TEXT, st.integers(0, 2**63 - 1), max_size=4),
)
RECORDS = st.one_of(
    BOUNDARIES,
    st.builds(NoteRecord, slug=TEXT, message=TEXT),
    st.builds(SourceRecord, path=TEXT, text=st.text(max_size=5000)),
    st.builds(EndRecord, status=TEXT, exit_code=st.integers(-255, 255)),
    st.builds(HeaderRecord, pid=st.integers(0, 2**22), host=TEXT, worker=st.none() | st.just(3)),
)


@given(RECORDS)
def test_any_record_round_trips(record):
    assert decode_record(encode_record(record)) == record


def test_every_kind_of_record_is_read_back(tmp_path):
    write_run(tmp_path, one_of_each(), script="train.py", options={"budget": 0.02})
    run = open_run(tmp_path)
    recording = run.main
    assert run.manifest.script == "train.py"
    assert run.manifest.options == {"budget": 0.02}
    assert recording.header == HeaderRecord(pid=42, host="h")
    assert [m.boundary.index for m in recording.measurements] == [0, 1]
    assert recording.measurements[0].census == census(0).census
    assert recording.measurements[0].devices[0].stuck == 17
    assert [step.call for step in recording.cleanups[0].steps] == ["gc.collect()"]
    assert [shortage.census for shortage in recording.shortages] == [census(0).census]
    assert recording.measurements[1].census is None
    assert recording.measurements[1].devices == ()
    assert recording.sources == {"/p/train.py": "history.append(loss)\n"}
    assert recording.allocations[0].traced_bytes == 5
    assert recording.overhead and recording.overhead.seconds == {"census": 0.5}
    assert recording.errors[0].disabled
    assert recording.notes[0].slug == "census-skipped"
    assert [compiled.function for compiled in recording.compilations] == ["forward"]
    assert recording.compiled_code
    assert recording.compiled_code.functions[0].entries == 2
    assert recording.end and recording.end.status == "completed"
    assert run.damage == recording.damage == []


def test_counts_of_events_hold_until_they_change(tmp_path):
    changes = [{}, {"save": 1, "log": 5}, {}, {"log": 9}, {"save": 2}]
    records = [
        BoundaryRecord(boundary=boundary(index).boundary, events=events)
        for index, events in enumerate(changes)
    ]
    write_run(tmp_path, records)
    counts = [measurement.events for measurement in open_run(tmp_path).main.measurements]
    assert counts == [
        {},
        {"save": 1, "log": 5},
        {"save": 1, "log": 5},
        {"save": 1, "log": 9},
        {"save": 2, "log": 9},
    ]


def test_a_recording_that_counts_no_events_is_read(tmp_path):
    old = (
        b'{"type":"boundary","boundary":{"index":3,"kind":"step","time_s":0.1},"gauges":{"rss":7}}'
    )
    record = decode_record(old)
    assert isinstance(record, BoundaryRecord)
    assert record.events == {}


def test_a_copy_of_a_recording_is_no_further_process(tmp_path):
    journal = write_run(tmp_path, [boundary(i) for i in range(4)])
    (tmp_path / "main-42 (copy).journal").write_bytes(journal.read_bytes()[:-10])
    (tmp_path / "a.journal").write_bytes(journal.read_bytes())
    run = open_run(tmp_path)
    (recording,) = run.recordings
    assert len(recording.measurements) == 4
    assert all("a copy of a.journal" in damage.reason for damage in run.damage)
    assert len(run.damage) == 2


def test_two_recordings_of_one_process_are_both_read(tmp_path):
    write_run(tmp_path, [boundary(0)])
    for started in (1.0, 2.0):
        writer = RecordingWriter(tmp_path, HeaderRecord(pid=42, host="h", started=started))
        writer.write(boundary(0))
        writer.close()
    assert len(open_run(tmp_path).recordings) == 3


def test_a_killed_run_is_readable_at_every_byte_it_may_have_stopped_at(tmp_path):
    journal = write_run(tmp_path, [boundary(i) for i in range(4)])
    whole = journal.read_bytes()
    counts = []
    for cut in range(len(whole.split(b"\n")[0]) + 1, len(whole)):
        journal.write_bytes(whole[:cut])
        counts.append(len(open_run(tmp_path).main.measurements))
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2, 3, 4}


@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=12))
@settings(max_examples=60, deadline=None)
def test_flipped_bytes_anywhere_never_raise(tmp_path_factory, flips):
    folder = tmp_path_factory.mktemp("run")
    journal = write_run(folder, one_of_each())
    for path in (journal, folder / "run.json"):
        data = bytearray(path.read_bytes())
        for place, mask in flips:
            data[int(place * len(data))] ^= mask
        path.write_bytes(data)
    try:
        run = open_run(folder)
    except (NoRunError, NewerSchemaError):
        return
    assert flips or not (run.damage or run.main.damage)


def test_a_damaged_record_is_named_and_costs_itself_alone(tmp_path):
    journal = write_run(tmp_path, [boundary(i) for i in range(5)])
    data = journal.read_bytes()
    place = data.index(b'"index":2')
    journal.write_bytes(data[:place] + b"X" + data[place + 1 :])
    recording = open_run(tmp_path).main
    assert [m.boundary.index for m in recording.measurements] == [0, 1, 3, 4]
    (damage,) = recording.damage
    assert damage.file == journal.name
    assert damage.offset == data.rindex(b"\xff", 0, place)
    assert "checksum" in damage.reason


def test_a_census_whose_boundary_is_lost_is_noted(tmp_path):
    write_run(tmp_path, [boundary(0), census(1)])
    recording = open_run(tmp_path).main
    assert len(recording.measurements) == 1
    assert "census at boundary 1" in recording.damage[0].reason


def test_measurements_come_in_order_however_a_journal_was_put_together(tmp_path):
    write_run(tmp_path, [HeaderRecord(), census(1), boundary(2), boundary(0), boundary(1)])
    measurements = open_run(tmp_path).main.measurements
    assert [m.boundary.index for m in measurements] == [0, 1, 2]
    assert [m.census is not None for m in measurements] == [False, True, False]


def test_records_of_unknown_kinds_are_skipped_and_named(tmp_path):
    journal = write_run(tmp_path, [boundary(0)])
    with journal.open("ab") as stream:
        stream.write(to_frame(b'{"type":"hologram","x":1}'))
        stream.write(to_frame(b'{"type":"boundary","boundary":3}'))
        stream.write(to_frame(b"not json"))
        stream.write(to_frame(b"[" * 100_000))
        stream.write(to_frame(encode_record(boundary(1))))
    recording = open_run(tmp_path).main
    assert [m.boundary.index for m in recording.measurements] == [0, 1]
    assert len(recording.damage) == 4
    assert "unknown here was skipped: hologram" in recording.damage[0].reason


def test_a_file_of_noise_does_not_fill_the_report(tmp_path):
    journal = write_run(tmp_path, [boundary(0)])
    with journal.open("ab") as stream:
        stream.write(to_frame(b"not json") * 5000)
    damage = open_run(tmp_path).main.damage
    assert len(damage) == 101
    assert damage[-1].reason == "and 4900 more"


def test_fields_that_a_later_version_added_are_ignored(tmp_path):
    journal = write_run(tmp_path, [])
    record = msgspec.to_builtins(boundary(0))
    record["boundary"]["mood"] = "good"
    with journal.open("ab") as stream:
        stream.write(to_frame(msgspec.json.encode(record)))
    assert open_run(tmp_path).main.measurements[0].boundary == boundary(0).boundary


def test_a_newer_manifest_is_refused_with_advice(tmp_path):
    write_run(tmp_path, [boundary(0)])
    manifest = tmp_path / "run.json"
    text = manifest.read_text().replace(
        f'"schema_version": {SCHEMA_VERSION}', f'"schema_version": {SCHEMA_VERSION + 1}'
    )
    manifest.write_text(text.replace('"script"', '"script_v2"'))
    with pytest.raises(NewerSchemaError, match=r"newer leakscope .* Upgrade"):
        open_run(tmp_path)


def test_a_newer_journal_is_refused_with_advice(tmp_path):
    RunDirectory.create(tmp_path, RunManifest())
    RecordingWriter(tmp_path, HeaderRecord(schema_version=SCHEMA_VERSION + 1)).close()
    with pytest.raises(NewerSchemaError, match="newer leakscope"):
        open_run(tmp_path)


def test_a_newer_header_that_changed_beyond_recognition_is_refused_too(tmp_path):
    RunDirectory.create(tmp_path, RunManifest())
    header = b'{"type":"header","schema_version":99,"pid":"now a string"}'
    (tmp_path / "main-1.journal").write_bytes(to_frame(header))
    with pytest.raises(NewerSchemaError, match="format 99"):
        open_run(tmp_path)


@pytest.mark.parametrize("garbage", [None, b"", b"{", b"\x00" * 50, b"[" * 50_000, b'{"pid":1}'])
def test_a_missing_or_garbled_manifest_does_not_hide_the_journals(tmp_path, garbage):
    write_run(tmp_path, [boundary(0)])
    if garbage is None:
        (tmp_path / "run.json").unlink()
    else:
        (tmp_path / "run.json").write_bytes(garbage)
    run = open_run(tmp_path)
    assert len(run.main.measurements) == 1
    assert run.manifest == RunManifest()
    assert [d.file for d in run.damage] == ([] if garbage == b'{"pid":1}' else ["run.json"])


def test_a_recording_without_its_header_is_still_readable(tmp_path):
    journal = write_run(tmp_path, [boundary(0)])
    data = journal.read_bytes()
    journal.write_bytes(data[data.index(b"\n") + 1 :])
    recording = open_run(tmp_path).main
    assert len(recording.measurements) == 1
    assert "first record" in recording.damage[0].reason


def test_a_journal_that_lost_its_beginning_and_its_manifest_is_still_readable(tmp_path):
    journal = write_run(tmp_path, [boundary(0)])
    journal.write_bytes(journal.read_bytes()[3:])
    (tmp_path / "run.json").unlink()
    assert len(open_run(tmp_path).main.measurements) == 1


def test_an_unreadable_journal_does_not_hide_the_others(tmp_path):
    write_run(tmp_path, [boundary(0)])
    (tmp_path / "worker0-9.journal").write_bytes(b"")
    (tmp_path / "worker1-9.journal").write_bytes(b"\x00" * 9)
    run = open_run(tmp_path)
    assert len(run.recordings) == 1
    assert [d.file for d in run.damage] == ["worker0-9.journal", "worker1-9.journal"]
    assert run.damage[0].reason == "the file is empty"


def test_ranks_come_before_workers_and_the_main_recording_is_found(tmp_path):
    RunDirectory.create(tmp_path, RunManifest())
    for header in (
        HeaderRecord(pid=1, role="worker", worker=0),
        HeaderRecord(pid=2, role="rank", rank=1),
        HeaderRecord(pid=3, role="rank", rank=0),
    ):
        RecordingWriter(tmp_path, header).write(boundary(0))
    run = open_run(tmp_path)
    assert [r.header.pid for r in run.recordings] == [3, 2, 1]
    assert run.main.header.pid == 3


def test_outcomes_of_other_ranks_are_read_by_attempt_and_rank(tmp_path):
    write_run(tmp_path, [boundary(0)])
    directory = RunDirectory(tmp_path)
    killed = {"exit_code": 137, "signal": 9, "oom_killed": 1}
    directory.write_outcome(killed, rank=3)
    directory.write_outcome({**killed, "attempt": 2}, rank=3)
    run = open_run(tmp_path)
    assert run.outcome == {}
    assert run.outcomes == {
        (0, 3): {**killed, "rank": 3},
        (2, 3): {**killed, "attempt": 2, "rank": 3},
    }
    (tmp_path / "outcome-rank5-0.json").write_text('{"rank": "five"}')
    (tmp_path / "outcome-rank6-0.json").write_text("[]")
    (tmp_path / "outcome-rank7-0.json").mkdir()
    run = open_run(tmp_path)
    assert set(run.outcomes) == {(0, 3), (2, 3)}
    assert [damage.file for damage in run.damage] == ["outcome-rank6-0.json"]


def test_a_directory_of_one_other_rank_takes_its_own_outcome(tmp_path):
    write_run(tmp_path, [boundary(0)])
    rank = open_run(tmp_path).main.header.rank
    RunDirectory(tmp_path).write_outcome({"exit_code": 137, "oom_killed": 1}, rank=rank)
    assert open_run(tmp_path).outcome["oom_killed"] == 1


def test_the_outcome_is_read_and_a_garbled_one_noted(tmp_path):
    write_run(tmp_path, [boundary(0)])
    RunDirectory(tmp_path).write_outcome({"exit_code": 137, "signal": "SIGKILL"})
    assert open_run(tmp_path).outcome == {"exit_code": 137, "signal": "SIGKILL"}
    (tmp_path / "outcome.json").write_text("[]")
    run = open_run(tmp_path)
    assert run.outcome == {}
    assert run.damage[0].file == "outcome.json"


@pytest.mark.parametrize("name", ["run.json", "main-42.journal", "report.html"])
def test_a_file_in_a_run_stands_for_the_run(tmp_path, name):
    write_run(tmp_path, [boundary(0)])
    (tmp_path / name).touch()
    assert len(open_run(str(tmp_path / name)).main.measurements) == 1


def test_each_path_that_is_no_run_gets_its_reason(tmp_path):
    def fault(path):
        with pytest.raises(NoRunError) as caught:
            open_run(path)
        assert caught.value.slug == "no-run"
        return str(caught.value)

    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("hello")
    assert "does not exist" in fault(tmp_path / "nowhere")
    assert "is empty" in fault(tmp_path / "empty")
    assert "holds no run" in fault(tmp_path / "other")
    assert "is a file that belongs to no run" in fault(tmp_path / "other" / "notes.txt")
    assert "does not exist" in fault("\0")
    RunDirectory.create(tmp_path / "early", RunManifest())
    assert "ended before anything was measured" in fault(tmp_path / "early")
    (tmp_path / "early" / "main-1.journal").write_bytes(b"\x00" * 10)
    assert "can be read (main-1.journal: these bytes are no record" in fault(tmp_path / "early")


def test_a_folder_of_runs_names_the_newest(tmp_path):
    for name in ("monday", "tuesday"):
        write_run(tmp_path / name, [boundary(0)])
    with pytest.raises(NoRunError, match="is no run but holds 2") as caught:
        open_run(tmp_path)
    assert "tuesday" in str(caught.value)


def test_links_and_devices_named_like_journals_are_not_followed_into_hanging(tmp_path):
    write_run(tmp_path, [boundary(0)])
    (tmp_path / "zero.journal").symlink_to("/dev/zero")
    (tmp_path / "dangling.journal").symlink_to("/nowhere")
    assert len(open_run(tmp_path).recordings) == 1


def test_names_that_recur_in_every_census_are_kept_once(tmp_path):
    write_run(tmp_path, [census(0), boundary(0), census(1), boundary(1)])
    first, second = (m.census for m in open_run(tmp_path).main.measurements)
    assert first == second == census(0).census
    assert all(a.path is b.path for a, b in zip(first.rows, second.rows, strict=True))


@pytest.mark.slow
def test_a_long_run_is_read_in_seconds(tmp_path):
    records = []
    for index in range(100_000):
        if index % 334 == 0:
            records.append(census(index, rows=300))
        records.append(boundary(index))
    write_run(tmp_path, records)
    began = time.process_time()
    run = open_run(tmp_path)
    assert time.process_time() - began < 8, "a second on an idle machine"
    assert len(run.main.measurements) == 100_000
    assert sum(m.census is not None for m in run.main.measurements) == 300


def test_of_the_lists_of_blocks_the_fullest_and_the_last_of_each_device_are_kept(tmp_path):
    lists = [(0, 100), (1, 900), (2, 300), (3, 200)]
    records = [block_list(n, size) for n, size in lists] + [block_list(4, 5, device="cuda:1")]
    write_run(tmp_path / "run", records)
    (recording,) = open_run(tmp_path / "run").recordings
    kept = [(record.device, record.boundary) for record in recording.block_lists]
    assert kept == [("cuda:0", 1), ("cuda:0", 3), ("cuda:1", 4)]
