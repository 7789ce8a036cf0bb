"""Directories of ranks are merged in little memory, however long their recordings are."""

from __future__ import annotations

import tracemalloc
from itertools import islice
from pathlib import Path

import pytest
from recording_samples import boundary, census

from leakscope.model.errors import LeakscopeError, NoRunError
from leakscope.model.record import HeaderRecord, RunManifest
from leakscope.recording import RecordingWriter, RunDirectory, open_run
from leakscope.recording.format import read_frames
from leakscope.recording.reader import merge_runs

CHUNKS = 4 << 20
"""Journals are read a MiB at a time; a frame that ends in the next needs both for a moment."""


def recorded(folder: Path, rank: int, boundaries: int = 3) -> Path:
    RunDirectory.create(folder, RunManifest(run_id=folder.name, script="train.py"))
    writer = RecordingWriter(folder, HeaderRecord(rank=rank, pid=rank + 1, started=float(rank + 1)))
    for index in range(boundaries):
        writer.write(boundary(index))
        if index % 20 == 0:
            writer.write(census(index, rows=2000))
    writer.close()
    return folder


def peak_of_merging(folders: list[Path], out: Path) -> int:
    tracemalloc.start()
    try:
        merge_runs(folders, out)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def longer(folder: Path, times: int) -> Path:
    """Repeat what a recording holds after its header."""
    (journal,) = folder.glob("*.journal")
    with journal.open("rb", buffering=0) as stream:
        second = list(islice(read_frames(stream), 2))[1]
    data = journal.read_bytes()
    journal.write_bytes(data + data[second.offset :] * times)
    return folder


def test_merging_takes_a_few_chunks_of_memory_however_long_the_recordings_are(
    tmp_path: Path,
) -> None:
    folders = [longer(recorded(tmp_path / f"node{n}", n), 180) for n in range(2)]
    size = sum(j.stat().st_size for folder in folders for j in folder.glob("*.journal"))
    assert size > 3 * CHUNKS
    assert peak_of_merging(folders, tmp_path / "all") < CHUNKS


def test_headers_tell_who_recorded_what_and_nothing_else(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "run", 3)
    run = open_run(folder, headers_only=True)
    assert [r.header.rank for r in run.recordings] == [3]
    assert run.recordings[0].header == open_run(folder).recordings[0].header
    assert run.recordings[0].measurements == []
    assert run.manifest.run_id == "run"


def test_a_recording_without_its_header_is_merged_too(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "torn", 0)
    (journal,) = folder.glob("*.journal")
    data = bytearray(journal.read_bytes())
    data[data.index(b'"header"') + 2] ^= 0xFF
    journal.write_bytes(data)
    merge_runs([recorded(tmp_path / "whole", 1), folder], tmp_path / "all")
    assert len(open_run(tmp_path / "all").recordings) == 2


def test_directories_without_anything_readable_and_two_of_a_rank_are_refused(
    tmp_path: Path,
) -> None:
    first = recorded(tmp_path / "first", 0)
    empty = recorded(tmp_path / "empty", 1)
    for journal in empty.glob("*.journal"):
        journal.write_bytes(b"")
    with pytest.raises(NoRunError):
        merge_runs([first, empty], tmp_path / "all")
    with pytest.raises(LeakscopeError, match="both recorded rank 0"):
        merge_runs([first, recorded(tmp_path / "again", 0)], tmp_path / "all")
    assert not (tmp_path / "all").exists()
