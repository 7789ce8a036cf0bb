from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from recording_samples import boundary, write_run

from leakscope.model.errors import RunExistsError, UnwritableError
from leakscope.model.record import HeaderRecord, RunManifest
from leakscope.recording import RecordingWriter, RunDirectory, directory, open_run


def test_the_folder_and_its_parents_are_made(tmp_path):
    made = RunDirectory.create(tmp_path / "a" / "b", RunManifest(script="train.py"))
    assert made.path == tmp_path / "a" / "b"
    assert sorted(p.name for p in made.path.iterdir()) == ["run.json"]


def test_files_of_others_are_written_in_the_same_folder_and_never_touched(tmp_path):
    (tmp_path / "checkpoint.pt").write_text("precious")
    write_run(tmp_path, [boundary(0)])
    RunDirectory.create(tmp_path, RunManifest(script="second.py"), force=True)
    assert (tmp_path / "checkpoint.pt").read_text() == "precious"


def test_a_run_is_not_overwritten(tmp_path):
    write_run(tmp_path, [boundary(0)])
    with pytest.raises(
        RunExistsError, match=r"already holds a run.*--out.*--force.*out=, force=True"
    ):
        RunDirectory.create(tmp_path, RunManifest())
    assert len(open_run(tmp_path).main.measurements) == 1


def test_journals_alone_are_a_run_too(tmp_path):
    write_run(tmp_path, [boundary(0)])
    (tmp_path / "run.json").unlink()
    with pytest.raises(RunExistsError):
        RunDirectory.create(tmp_path, RunManifest())


def test_force_removes_a_former_run_and_nothing_else(tmp_path):
    write_run(tmp_path, [boundary(0)])
    for name in ("report.html", "report.json", "outcome.json", "outcome-rank3-0.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "system.journal").write_bytes(b"LPKSHHRH")
    (tmp_path / "report.html.bak").write_text("mine")
    RunDirectory.create(tmp_path, RunManifest(script="second.py"), force=True)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["report.html.bak", "run.json", "system.journal"]


def test_force_in_a_folder_without_a_run_removes_nothing(tmp_path):
    (tmp_path / "report.html").write_text("mine")
    RunDirectory.create(tmp_path, RunManifest(), force=True)
    assert (tmp_path / "report.html").read_text() == "mine"


@pytest.mark.parametrize("force", [False, True])
def test_a_manifest_of_another_program_is_never_replaced(tmp_path, force):
    (tmp_path / "run.json").write_text('{"command": "theirs"}')
    with pytest.raises(RunExistsError, match="not leakscope's"):
        RunDirectory.create(tmp_path, RunManifest(), force=force)
    assert "theirs" in (tmp_path / "run.json").read_text()


def test_a_garbled_manifest_of_ours_can_be_forced_away(tmp_path):
    write_run(tmp_path, [boundary(0)])
    (tmp_path / "run.json").write_bytes(b"\x00garbage")
    RunDirectory.create(tmp_path, RunManifest(script="second.py"), force=True)
    assert RecordingWriter(tmp_path, HeaderRecord()).failed is None
    assert open_run(tmp_path).manifest.script == "second.py"


@pytest.mark.parametrize("links", [True, False])
def test_of_two_runs_into_one_folder_at_once_one_wins(tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr(directory.os, "link", _refuse(errno.EPERM))
    monkeypatch.setattr(directory, "_journals", lambda folder: [])
    RunDirectory.create(tmp_path, RunManifest(script="first.py"))
    with pytest.raises(RunExistsError):
        RunDirectory.create(tmp_path, RunManifest(script="second.py"))
    assert "first.py" in (tmp_path / "run.json").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.json"]


def test_of_processes_with_one_number_on_two_machines_one_makes_the_run(tmp_path, monkeypatch):
    real, begun = os.link, []

    def link(source, target):
        if not begun:
            begun.append(True)
            RunDirectory.create(tmp_path, RunManifest(script="other_machine.py"))
        real(source, target)

    monkeypatch.setattr(directory.os, "link", link)
    with pytest.raises(RunExistsError):
        RunDirectory.create(tmp_path, RunManifest(script="this_machine.py"))
    assert "other_machine.py" in (tmp_path / "run.json").read_text()
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_a_file_in_place_of_the_folder_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UnwritableError, match=r"No run can be recorded in .* file.*--out"):
            RunDirectory.create(path, RunManifest())


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (errno.EROFS, "read-only"),
        (errno.ENOSPC, "disk is full"),
        (errno.EACCES, "permission denied"),
        (errno.ELOOP, "symbolic links"),
    ],
)
def test_a_disk_that_refuses_is_a_sentence_and_leaves_nothing(
    tmp_path, monkeypatch, code, sentence
):
    monkeypatch.setattr(directory.os, "link", _refuse(code))
    with pytest.raises(UnwritableError, match=sentence):
        RunDirectory.create(tmp_path, RunManifest())
    assert list(tmp_path.iterdir()) == []


def test_secrets_do_not_reach_the_manifest(tmp_path):
    manifest = RunManifest(
        command=["python", "train.py", "--api-key", "hunter2"],
        environment={"WANDB_API_KEY": "hunter2", "python": "3.11"},
    )
    RunDirectory.create(tmp_path, manifest)
    text = (tmp_path / "run.json").read_text()
    assert "hunter2" not in text
    assert "3.11" in text


def test_options_of_any_type_and_undecodable_arguments_can_be_written(tmp_path):
    RunDirectory.create(
        tmp_path, RunManifest(command=["caf\udce9"], options={"out": Path("x"), "n": None})
    )
    RecordingWriter(tmp_path, HeaderRecord())
    manifest = open_run(tmp_path).manifest
    assert manifest.command == [r"caf\udce9"]
    assert manifest.options == {"out": "x", "n": None}


def test_an_outcome_that_cannot_be_written_is_let_go(tmp_path, monkeypatch):
    RunDirectory(tmp_path / "gone").write_outcome({"exit_code": 1})
    monkeypatch.setattr(Path, "replace", _refuse(errno.ENOSPC))
    RunDirectory(tmp_path).write_outcome({"exit_code": 1})
    assert list(tmp_path.iterdir()) == []


def _refuse(code):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    return refuse
