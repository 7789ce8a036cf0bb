"""`[tool.leakscope]` and its suppressions: found, read, and refused in one clear sentence."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path

import pytest

from leakscope.configuration.project import read_section, read_suppressions
from leakscope.model.documents import Suppression
from leakscope.model.errors import LeakscopeError

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 reads no TOML")
HEAD = "[[tool.leakscope.suppress]]\n"


def project(folder: Path, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    (folder / "pyproject.toml").write_bytes(data)
    return folder


def suppressions(folder: Path, text: str) -> list[Suppression]:
    found, remarks = read_suppressions(read_section(project(folder, text)))
    assert remarks == []
    return found


def test_suppressions_are_read(tmp_path: Path) -> None:
    text = (
        f'{HEAD}pattern = "Trainer.*"\nreason = "wanted"\nexpires = 2027-01-31\n'
        f'{HEAD}signature = "abc"\nreason = "known"\nexpires = "2027-02-28"\n'
        f'{HEAD}path = "src/*"\nreason = "old"\nexpires = 2027-03-31T12:00:00\n'
    )
    assert suppressions(tmp_path, text) == [
        Suppression(pattern="Trainer.*", reason="wanted", expires=date(2027, 1, 31)),
        Suppression(signature="abc", reason="known", expires=date(2027, 2, 28)),
        Suppression(path="src/*", reason="old", expires=date(2027, 3, 31)),
    ]


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ('pattern = "a"', "has no reason"),
        ('pattern = "a"\nreason = " "', "has no reason"),
        ('reason = "a"', "names nothing"),
        ('pattern = ""\nreason = "a"', "names nothing"),
        ('pattern = 3\nreason = "a"', "pattern must be a text, not 3"),
        ('pattern = "a"\nreason = ["a"]', "reason must be a text"),
        ('pattern = "a"\nreason = "a"\nexpires = 2027', "expires must be a date"),
        ('pattern = "a"\nreason = "a"\nexpires = "soon"', "not 'soon'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(
    text: str, printed: str, tmp_path: Path
) -> None:
    with pytest.raises(LeakscopeError, match="1st") as caught:
        suppressions(tmp_path, f"{HEAD}{text}\n")
    assert printed in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["suppress = 3", 'suppress = ["a"]', "suppress = {a = 1}"])
def test_suppressions_must_be_tables(text: str, tmp_path: Path) -> None:
    with pytest.raises(LeakscopeError, match=r"\[\[tool.leakscope.suppress\]\]"):
        suppressions(tmp_path, f"[tool.leakscope]\n{text}\n")


def test_an_unknown_key_is_reported_with_the_nearest_known_one(tmp_path: Path) -> None:
    text = f'{HEAD}patern = "a"\npath = "b"\nreason = "c"\n'
    _, remarks = read_suppressions(read_section(project(tmp_path, text)))
    assert len(remarks) == 1
    assert "has no patern; did you mean pattern?" in remarks[0]


@pytest.mark.parametrize(
    "text",
    [
        "[tool.leakscope",
        "[tool.leakscope]\nx = 1\nx = 2\n",
        b"[tool.leakscope]\nx = '\xff'\n",
        "[[tool.leakscope]]\nx = 1\n",
        "[tool.leakscope]\nx = " + "[" * 20_000,
    ],
)
def test_a_broken_file_is_reported_and_costs_nothing_else(
    text: str | bytes, tmp_path: Path
) -> None:
    section = read_section(project(tmp_path, text))
    assert section.table == {}
    assert len(section.remarks) == 1
    assert "pyproject.toml" in section.remarks[0]


def test_the_nearest_file_with_a_section_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    project(tmp_path, "[tool.leakscope]\nlabel = 'outer'\n")
    project(inner, "[project]\nname = 'leakscope'\n# tool.leakscope is elsewhere\n")
    assert read_section(inner).table == {"label": "outer"}
    project(tmp_path / "a", "[tool.leakscope]\nlabel = 'inner'\n")
    assert read_section(inner).table == {"label": "inner"}
    assert read_section(inner).folder == tmp_path / "a"


def test_a_folder_of_that_name_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").mkdir()
    assert read_section(tmp_path).remarks == []
