"""A journal is followed while its process writes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leakscope.model.record import EndRecord, HeaderRecord, NoteRecord, SourceRecord
from leakscope.recording import RecordingWriter
from leakscope.recording.following import Following, open_journals


@pytest.fixture
def writer(tmp_path: Path) -> RecordingWriter:
    return RecordingWriter(tmp_path, HeaderRecord(pid=os.getpid()))


def test_each_record_is_reported_once(writer: RecordingWriter) -> None:
    followed = Following(writer.path, (NoteRecord, EndRecord))
    assert list(followed.new()) == []
    writer.write(NoteRecord(slug="a", message="one"))
    writer.write(SourceRecord(path="train.py", text="x" * 10_000))
    assert [note.message for note in followed.new() if isinstance(note, NoteRecord)] == ["one"]
    assert list(followed.new()) == []
    writer.write(EndRecord(status="completed"))
    assert [type(record) for record in followed.new()] == [EndRecord]


def test_a_record_that_is_half_written_comes_when_it_is_whole(
    writer: RecordingWriter, tmp_path: Path
) -> None:
    before = writer.path.stat().st_size
    writer.write(NoteRecord(slug="a", message="one"))
    whole = writer.path.read_bytes()
    growing = tmp_path / "growing.journal"
    growing.write_bytes(whole[:before])
    followed = Following(growing, (NoteRecord,))
    for size in range(before, len(whole) - 1):
        growing.write_bytes(whole[:size])
        assert list(followed.new()) == []
    growing.write_bytes(whole)
    assert len(list(followed.new())) == 1


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc")
def test_the_journals_that_a_process_has_open_are_found(
    writer: RecordingWriter, tmp_path: Path
) -> None:
    (tmp_path / "foreign.journal").write_text("of somebody else's")
    with (tmp_path / "foreign.journal").open():
        found = dict(open_journals(os.getpid()))
        assert writer.path in found
        assert tmp_path / "foreign.journal" not in found
        assert found[writer.path].pid == os.getpid()
    writer.close()
    assert writer.path not in dict(open_journals(os.getpid()))
