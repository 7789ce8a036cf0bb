"""`known-culprits` of `[tool.leakscope]`: what is wrong with an entry costs that entry alone."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from leakscope.configuration.project import (
    own_libraries,
    read_configuration,
    read_known_culprits,
    read_section,
)
from leakscope.model.known import Own

pytestmark = pytest.mark.skipif(
    not any(find_spec(reader) for reader in ("tomllib", "tomli")),
    reason="there is no reader for TOML",
)

ENTRY = """\
id = "{id}"
title = "It keeps every sample"
library = "mylib"
nature = "fault"
cause = "Recorder.samples is never emptied."
link = "https://example.org/7"
remedy = {{ title = "Flush it", text = "Call flush()." }}
match = {{ holder = ["mylib.Recorder"], path = ["samples"] }}
"""


def entry(name: str, header: str = "[[culprit]]") -> str:
    return f"{header}\n{ENTRY.format(id=name)}\n"


def read(folder: Path, text: str) -> Own:
    (folder / "pyproject.toml").write_text(text)
    return read_known_culprits(read_section(folder))


def ids(own: Own) -> list[str]:
    return [known.id for _, known in own.entries]


def test_entries_come_from_files_relative_to_the_project(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "one.toml").write_text(entry("first") + entry("second"))
    (tmp_path / "more" / "two.toml").write_text(entry("third"))
    own = read(tmp_path, '[tool.leakscope]\nknown-culprits = ["one.toml", "more/two.toml"]\n')
    assert ids(own) == ["first", "second", "third"]
    assert own.entries[2][0] == str(tmp_path / "more" / "two.toml")
    assert own.faults == ()


@pytest.mark.parametrize("key", ["known-culprits", "known_culprits"])
def test_entries_may_stand_in_the_project_itself(key: str, tmp_path: Path) -> None:
    own = read(tmp_path, entry("first", f"[[tool.leakscope.{key}]]"))
    assert ids(own) == ["first"]
    assert own.entries[0][0] == str(tmp_path / "pyproject.toml")
    assert read_configuration(tmp_path, {}).remarks == []


def test_a_bad_entry_is_named_with_its_file_and_the_others_count(tmp_path: Path) -> None:
    bad = entry("bad").replace('nature = "fault"', 'nature = "bug"')
    nameless = entry("x").replace('id = "x"\n', "")
    (tmp_path / "one.toml").write_text(entry("good") + bad + nameless + entry("good"))
    own = read(tmp_path, '[tool.leakscope]\nknown-culprits = ["one.toml"]\n')
    file = tmp_path / "one.toml"
    assert ids(own) == ["good"]
    assert own.faults == (
        f'Known culprit bad of {file} is left out: nature must be "fault" or "usage", not \'bug\'.',
        f"Known culprit number 3 of {file} is left out: it has no id.",
        f"Known culprit good of {file} is left out: another has its id.",
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "it can't be read (No such file or directory)"),
        (b"[[culprit", "it is no TOML"),
        (b"\xff\xfe", "it is no TOML"),
        (b"x = 1\n", "it has no [[culprit]]"),
        (b"culprit = 1\n", "it has no [[culprit]]"),
        (b"#" * (1 << 20) + b"\n", "it is too large"),
    ],
)
def test_a_file_that_can_not_be_read_costs_itself_alone(
    content: bytes | None, sentence: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "bad.toml").write_bytes(content)
    (tmp_path / "good.toml").write_text(entry("good"))
    own = read(tmp_path, '[tool.leakscope]\nknown-culprits = ["bad.toml", "good.toml"]\n')
    assert ids(own) == ["good"]
    (fault,) = own.faults
    assert str(tmp_path / "bad.toml") in fault
    assert sentence in fault


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    own = read(tmp_path, '[tool.leakscope]\nknown-culprits = ["pipe.toml"]\n')
    assert own.faults == (
        f"Known culprits of {tmp_path / 'pipe.toml'} are left out: it is no file.",
    )


@pytest.mark.parametrize("value", ["7", '"one.toml"', "{ a = 1 }"])
def test_what_is_no_list_is_reported(value: str, tmp_path: Path) -> None:
    own = read(tmp_path, f"[tool.leakscope]\nknown-culprits = {value}\n")
    assert own.entries == ()
    assert "must be a list of files" in own.faults[0]


def test_what_is_neither_a_file_nor_an_entry_is_reported(tmp_path: Path) -> None:
    own = read(tmp_path, "[tool.leakscope]\nknown-culprits = [7]\n")
    assert own.faults == (
        f"Known culprit number 1 of {tmp_path / 'pyproject.toml'} is left out: it must be a table.",
    )


def test_libraries_of_own_entries_are_reported_for_the_recording(tmp_path: Path) -> None:
    text = entry("first", "[[tool.leakscope.known-culprits]]")
    text += entry("second", "[[tool.leakscope.known-culprits]]").replace("mylib", "another")
    (tmp_path / "pyproject.toml").write_text(text)
    assert own_libraries(read_section(tmp_path)) == ["another", "mylib"]


def test_a_project_without_any_has_none(tmp_path: Path) -> None:
    assert read(tmp_path, "[tool.leakscope]\nbudget = 0.1\n") == Own()
