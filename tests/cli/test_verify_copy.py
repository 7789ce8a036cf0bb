"""A copy of the user's project: what is in it, and how a diff is applied."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakscope.cli import verify as module
from leakscope.cli.verify import NoCopyError, apply_diff, copy_project

LINES = st.lists(st.sampled_from(["a\n", "b\n", "\n", "-- x\n", "++ y\n", "c\r\n", "\x0c\n"]))
ENDS = st.sampled_from(["", "last", "a\n"])


def diff_of(before: str, after: str, name: str = "train.py") -> str:
    lines = module._LINE
    made = []
    for line in difflib.unified_diff(
        lines.findall(before), lines.findall(after), f"a/{name}", f"b/{name}"
    ):
        made.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(made)


@given(LINES, ENDS, LINES, ENDS)
def test_diff_makes_the_changed_file(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[str],
    end: str,
    after: list[str],
    new_end: str,
) -> None:
    folder = tmp_path_factory.mktemp("project")
    old, new = "".join(before) + end, "".join(after) + new_end
    (folder / "train.py").write_bytes(old.encode())
    assert apply_diff(folder, diff_of(old, new)) == (["train.py"] if old != new else [])
    assert (folder / "train.py").read_bytes().decode() == new


def test_diff_without_its_last_newline_is_applied(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("a\nb\nc\n")
    apply_diff(tmp_path, diff_of("a\nb\nc\n", "a\nB\nc\n").rstrip("\n"))
    assert (tmp_path / "train.py").read_text() == "a\nB\nc\n"


def test_file_that_changed_since_is_refused_and_nothing_written(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a\n")
    (tmp_path / "b.py").write_text("changed\n")
    diff = diff_of("a\n", "A\n", "a.py") + diff_of("b\n", "B\n", "b.py")
    with pytest.raises(NoCopyError, match=r"b\.py has changed since"):
        apply_diff(tmp_path, diff)
    assert (tmp_path / "a.py").read_text() == "a\n"


def test_project_without_folders_is_copied(tmp_path: Path) -> None:
    (tmp_path / "project" / "leakscope-runs").mkdir(parents=True)
    (tmp_path / "project" / "train.py").write_text("a\n")
    copied = copy_project(tmp_path / "project", tmp_path / "copy")
    assert [path.name for path in copied.copy.iterdir()] == ["train.py"]


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoCopyError, match=r"gone\.py can't be read"):
        apply_diff(tmp_path, diff_of("a\n", "b\n", "gone.py"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "package" / "__pycache__").mkdir(parents=True)
    (folder / "package" / "__init__.py").touch()
    (folder / "package" / "model.py").write_text("x = 1\n")
    (folder / ".git").mkdir()
    (folder / "env").mkdir()
    (folder / "env" / "pyvenv.cfg").touch()
    (folder / "data.bin").write_bytes(b"x" * 100)
    return folder


def test_copy_has_the_program_and_no_caches(project: Path, tmp_path: Path) -> None:
    copy = copy_project(project, tmp_path / "copy").copy
    found = {str(path.relative_to(copy)) for path in copy.rglob("*")}
    assert found == {"package", "package/__init__.py", "package/model.py", "data.bin"}


def test_large_files_are_links(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINKED_FROM", 100)
    copied = copy_project(project, tmp_path / "copy")
    assert copied.linked == [Path("data.bin")]
    assert (copied.copy / "data.bin").resolve() == project / "data.bin"
    assert not (copied.copy / "package" / "model.py").is_symlink()


def test_links_in_a_circle_are_copied_once(project: Path, tmp_path: Path) -> None:
    (project / "package" / "again").symlink_to(project)
    copy = copy_project(project, tmp_path / "copy").copy
    assert not (copy / "package" / "again").exists()


def test_folder_that_is_no_project_is_refused(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_COPIED", 50)
    with pytest.raises(NoCopyError, match="--project"):
        copy_project(project, tmp_path / "copy")


def test_paths_of_the_project_lie_in_the_copy(project: Path, tmp_path: Path) -> None:
    copied = copy_project(project, tmp_path / "copy")
    assert copied.path(project / "package" / "model.py") == copied.copy / "package" / "model.py"
    assert copied.path(Path("/elsewhere/x.py")) == Path("/elsewhere/x.py")


def test_changed_module_is_found_by_its_package(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{project / 'package'}:/elsewhere")
    copied = copy_project(project, tmp_path / "copy")
    folders = copied.search_path(["package/model.py"]).split(":")
    assert folders == [str(copied.copy), str(copied.copy / "package"), "/elsewhere"]
