from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import msgspec
import pytest
from recording_samples import boundary, census, one_of_each, write_run

from leakscope.model.record import (
    EndRecord,
    HeaderRecord,
    NoteRecord,
    RunManifest,
    SourceRecord,
)
from leakscope.recording import RecordingWriter, RunDirectory, open_run
from leakscope.recording import writer as writer_module

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and /dev/full")


@pytest.fixture
def writer(tmp_path):
    directory = RunDirectory.create(tmp_path / "run", RunManifest())
    writer = RecordingWriter(directory.path, HeaderRecord(pid=42))
    yield writer
    writer.close()


def refuse(monkeypatch, code, *, after_bytes, times=1000):
    """Let the disk take so many bytes of the next write, then refuse so many writes."""
    real_write, left = os.write, after_bytes

    def write(fd, data):
        nonlocal left, times
        if left:
            taken, left = real_write(fd, bytes(data)[:left]), 0
            return taken
        if times:
            times -= 1
            raise OSError(code, os.strerror(code))
        return real_write(fd, data)

    monkeypatch.setattr(writer_module.os, "write", write)


def test_every_acknowledged_record_is_on_disk_before_close(writer):
    assert all(writer.write(record) for record in one_of_each())
    run = open_run(writer.path.parent)
    assert len(run.main.measurements) == 2
    assert writer.bytes_written == writer.path.stat().st_size


def test_each_record_is_one_system_call(writer, monkeypatch):
    calls = []
    real_write = os.write
    monkeypatch.setattr(
        writer_module.os, "write", lambda fd, data: calls.append(fd) or real_write(fd, data)
    )
    writer.write(boundary(0))
    writer.write(census(1, rows=300))
    assert len(calls) == 2


def test_journals_are_named_by_process_and_never_shared(tmp_path):
    names = [
        RecordingWriter(tmp_path, header).path.name
        for header in (
            HeaderRecord(pid=7),
            HeaderRecord(pid=7),
            HeaderRecord(pid=7, role="rank", rank=3),
            HeaderRecord(pid=7, role="worker", worker=1),
        )
    ]
    assert names == ["main-7.journal", "main-7-2.journal", "rank3-7.journal", "worker1-7.journal"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_a_disk_that_refuses_stops_the_recording_and_keeps_what_was_written(
    writer, monkeypatch, code
):
    assert writer.write(boundary(0))
    refuse(monkeypatch, code, after_bytes=20)
    assert not writer.write(boundary(1))
    assert os.strerror(code) in (writer.failed or "")
    monkeypatch.undo()
    assert not writer.write(boundary(2))
    recording = open_run(writer.path.parent).main
    assert [m.boundary.index for m in recording.measurements] == [0]
    assert recording.damage == [], "the torn record was cut off"


def test_a_recording_that_stopped_never_looks_whole(writer, monkeypatch):
    assert writer.write(boundary(0))
    refuse(monkeypatch, errno.ENOSPC, after_bytes=20, times=2)
    assert not writer.write(census(0, rows=30))
    assert writer.write(EndRecord(status="completed")), "smaller than the note on what is missing"
    recording = open_run(writer.path.parent).main
    assert recording.end is not None
    assert recording.end.status == "completed"
    assert [note.slug for note in recording.notes] == ["recording-stopped"]
    assert "no room left" in recording.notes[0].message


def test_a_full_disk_costs_optional_payloads_first(writer, monkeypatch):
    refuse(monkeypatch, errno.ENOSPC, after_bytes=10, times=1)
    assert not writer.write(SourceRecord(path="a.py", text="x" * 1000))
    assert writer.failed is None
    assert not writer.write(SourceRecord(path="b.py", text="y"))
    assert writer.write(boundary(0))
    recording = open_run(writer.path.parent).main
    assert len(recording.measurements) == 1
    assert [note.slug for note in recording.notes] == ["recording-thinned"]
    assert recording.damage == []


def test_a_recording_whose_records_must_all_be_kept_ends_beyond_its_cap(tmp_path):
    directory = RunDirectory.create(tmp_path, RunManifest())
    writer = RecordingWriter(directory.path, HeaderRecord(), max_bytes=20_000)
    source = SourceRecord(path="a.py", text="x" * 300)
    while writer.write(source):
        pass
    assert "cap of 20000 bytes" in (writer.failed or "")
    assert writer.write(EndRecord(status="completed")), "else it would look killed"
    writer.close()
    recording = open_run(tmp_path).main
    assert [note.slug for note in recording.notes] == ["recording-full"]
    assert recording.end is not None
    assert writer.bytes_written < 27_000


def test_a_recording_that_is_full_is_thinned_evenly_over_time(tmp_path):
    directory = RunDirectory.create(tmp_path, RunManifest())
    writer = RecordingWriter(directory.path, HeaderRecord(), max_bytes=400_000)
    assert writer.write(SourceRecord(path="a.py", text="x = 1"))
    largest = 0
    for number in range(8000):
        if number % 10 == 0:
            writer.write(census(number, rows=3))
        events = {"save": number // 7} if number % 7 == 0 else {}
        assert writer.write(msgspec.structs.replace(boundary(number), events=events))
        largest = max(largest, writer.path.stat().st_size)
    writer.write(EndRecord(status="completed"))
    writer.close()
    assert largest < 480_000
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".tmp"]
    recording = open_run(tmp_path).main
    assert recording.damage == []
    assert recording.sources == {"a.py": "x = 1"}
    assert [note.slug for note in recording.notes] == ["recording-thinned"]
    seen = [m.boundary.index for m in recording.measurements]
    assert seen == sorted(set(seen))
    assert (seen[0], seen[-1]) == (0, 7999)
    for m in recording.measurements:
        assert m.events.get("save", 0) == m.boundary.index // 7, "counts come through"
    with_census = [m.boundary.index for m in recording.measurements if m.census is not None]
    assert len(with_census) >= 40
    assert max(b - a for a, b in itertools.pairwise(with_census)) < 0.1 * 8000


@linux
def test_a_device_that_is_always_full_ends_in_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "main-1.journal").symlink_to("/dev/full")
    real_open = os.open
    monkeypatch.setattr(
        writer_module.os, "open", lambda path, flags, mode: real_open(path, os.O_WRONLY)
    )
    monkeypatch.setattr(Path, "exists", lambda self: False)
    writer = RecordingWriter(tmp_path, HeaderRecord(pid=1))
    assert "No space left" in (writer.failed or "")
    assert not writer.write(boundary(0))


def test_a_file_size_limit_hit_in_mid_record_leaves_a_clean_journal(tmp_path):
    done = _python(
        """
        import resource, sys
        from pathlib import Path
        from recording_samples import *
        from leakscope.model.record import *
        from leakscope.recording import *
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        directory = RunDirectory.create(Path(sys.argv[1]), RunManifest())
        writer = RecordingWriter(directory.path, HeaderRecord())
        written = 0
        while writer.write(boundary(written)):
            written += 1
        print(written, writer.failed)
        """,
        tmp_path / "run",
    )
    written, _, failed = done.stdout.partition(" ")
    recording = open_run(tmp_path / "run").main
    assert len(recording.measurements) == int(written) > 5
    assert recording.damage == []
    assert "File too large" in failed


def test_a_folder_that_does_not_exist_makes_a_writer_that_has_given_up(tmp_path):
    writer = RecordingWriter(tmp_path / "nowhere", HeaderRecord())
    assert "can't be written" in (writer.failed or "")
    assert not writer.write(boundary(0))
    writer.close()


def test_a_descriptor_that_the_program_closed_and_reused_is_left_alone(writer, tmp_path):
    os.close(writer._fd)
    users = os.open(tmp_path / "checkpoint", os.O_RDWR | os.O_CREAT)
    assert users == writer._fd, "the lowest free number is taken"
    assert not writer.write(boundary(0))
    writer.close()
    assert "somebody else" in (writer.failed or "")
    assert os.pread(users, 10, 0) == b""
    os.close(users)


def test_a_journal_removed_during_the_run_is_noticed(writer):
    writer.path.unlink()
    assert not writer.write(boundary(0))
    assert "removed" in (writer.failed or "")


def test_what_cannot_be_encoded_costs_that_record_alone(writer, monkeypatch):
    def fails(record):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(writer_module, "encode_record", fails)
        assert not writer.write(boundary(0))
    assert writer.failed is None
    assert writer.write(boundary(1))


def test_names_that_are_no_valid_unicode_are_escaped(writer):
    assert writer.write(SourceRecord(path="caf\udce9.py", text="x = '\ud800'"))
    assert open_run(writer.path.parent).main.sources == {r"caf\udce9.py": r"x = '\ud800'"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_writes_nothing(writer):
    writer.write(boundary(0))
    pid = os.fork()
    if not pid:
        wrote = writer.write(boundary(1))
        writer.close()
        os._exit(int(wrote))
    assert os.waitpid(pid, 0)[1] == 0
    assert writer.write(boundary(2))
    recording = open_run(writer.path.parent).main
    assert [m.boundary.index for m in recording.measurements] == [0, 2]


def test_closing_twice_and_writing_after_it_are_harmless(writer):
    writer.close()
    writer.close()
    assert not writer.write(NoteRecord(slug="late", message="too late"))
    assert writer.failed is None


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("after_s", [0.02, 0.05, 0.11])
def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path, after_s):
    program = subprocess.Popen(
        [sys.executable, "-c", _WRITE_FOREVER, str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((".", str(Path(__file__).parent)))},
    )
    assert program.stdout is not None
    program.stdout.readline()
    time.sleep(after_s)
    program.kill()
    acknowledged = program.stdout.read().split()
    program.wait()
    program.stdout.close()
    recording = open_run(tmp_path / "run").main
    indices = [m.boundary.index for m in recording.measurements]
    last = int(acknowledged[-1]) if acknowledged else 0
    assert indices == list(range(len(indices)))
    assert indices[-1] >= last
    assert all(
        (m.census is not None) == (m.boundary.index % 10 == 0) for m in recording.measurements
    )
    assert recording.end is None
    assert len(recording.damage) <= 2, "at most the record being written, and its census"


_WRITE_FOREVER = textwrap.dedent(
    """
    import itertools, os, sys
    from pathlib import Path
    from recording_samples import *
    from leakscope.model.record import *
    from leakscope.recording import *
    directory = RunDirectory.create(Path(sys.argv[1]), RunManifest())
    writer = RecordingWriter(directory.path, HeaderRecord())
    for index in itertools.count():
        if index % 10 == 0:
            assert writer.write(census(index, rows=100))
        assert writer.write(boundary(index))
        if index < 8000:  # what a pipe holds
            os.write(1, b"%d\\n" % index)
    """
)


def test_a_name_that_another_machine_has_just_taken_is_passed_over(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path / "run", RunManifest()).path
    other = RecordingWriter(run, HeaderRecord(pid=7, host="other"))
    with monkeypatch.context() as stale:  # what another machine makes is seen there late
        stale.setattr(writer_module, "unused_path", lambda path: path)
        mine = RecordingWriter(run, HeaderRecord(pid=7, host="mine"))
    assert mine.failed is None
    mine.write(boundary(0))
    other.write(boundary(0))
    mine.close()
    other.close()
    assert sorted(r.header.host for r in open_run(run).recordings) == ["mine", "other"]


def _python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((".", str(Path(__file__).parent)))},
    )


@pytest.mark.parametrize("sync", [False, True])
def test_sync_waits_for_the_disk_only_on_request(writer, monkeypatch, sync):
    synced = []
    monkeypatch.setattr(writer_module.os, "fsync", synced.append)
    assert writer.write(boundary(0), sync=sync)
    assert bool(synced) is sync


def test_a_boundary_costs_microseconds_and_bytes_as_promised(tmp_path):
    records = []
    for index in range(1000):
        if index in (0, 400, 999):
            records.append(census(index, rows=300))
        records.append(boundary(index, rss=10**9 + index, pss=9 * 10**8, a=1, b=2, c=3, d=4))
    began = time.process_time()
    journal = write_run(tmp_path / "run", records)
    per_record = (time.process_time() - began) / len(records)
    assert journal.stat().st_size < 1_000_000
    assert per_record < 300e-6, "twenty times what it takes on an idle machine"
