"""Recorded programs are judged as was accepted; recordings are packed without loss."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from archive import SUFFIX, pack, unpack
from corpus import cases
from forms import FORMS, Form, length_constants
from judge import ACCEPTED, SAMPLE, changes, judge
from record import Task

from leakscope.model.report import KindOfGrowth
from leakscope.recording import open_run

RECORDINGS = sorted(SAMPLE.glob(f"*{SUFFIX}"))
FIRST = SAMPLE / f"average_meter.short{SUFFIX}"
LONG = FORMS["long"]
LEAK_APPLIES = {"leak": "yes", "clean": "no", "inconclusive": "undecided"}
"""By verdict, what the table of kinds of growth says of a leak."""
WITHOUT_A_LONG_FORM = 25
"""Programs whose length no number gives, known by its name."""


@pytest.mark.parametrize("archive", RECORDINGS, ids=lambda file: file.name.removesuffix(SUFFIX))
def test_a_recorded_program_is_judged_as_accepted(archive: Path) -> None:
    single = judge(archive)
    accepted = json.loads(ACCEPTED.read_text())
    assert list(changes(accepted[single.key], single.verdict)) == []
    assert single.kinds["leak"] == LEAK_APPLIES[single.verdict["verdict"]]
    assert set(single.kinds) == {kind.value for kind in KindOfGrowth}


def test_the_sample_has_leaks_and_healthy_programs() -> None:
    assert len(RECORDINGS) >= 25
    healthy = [file for file in RECORDINGS if "healthy" in file.name]
    assert len(healthy) >= 8


def test_recordings_name_no_folder_of_the_machine_they_were_made_on(tmp_path: Path) -> None:
    for archive in RECORDINGS[:5]:
        unpack(archive, tmp_path)
        for file in tmp_path.iterdir():
            assert b"/work/" not in file.read_bytes()
            assert b"/root/" not in file.read_bytes()
            file.unlink()


def test_packing_keeps_all_that_was_recorded(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    about = unpack(FIRST, first)
    pack(first, tmp_path / "again.tar.xz", about, {})
    assert unpack(tmp_path / "again.tar.xz", second) == about
    assert open_run(first).main.measurements == open_run(second).main.measurements


def test_packing_replaces_paths_in_every_record(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    about = unpack(FIRST, first)
    pack(first, tmp_path / "again.tar.xz", about, {"/leakscope": "/elsewhere/of/it"})
    unpack(tmp_path / "again.tar.xz", second)
    run = open_run(second)
    assert run.manifest.script.startswith("/elsewhere/of/it/tests/zoo")
    assert not run.damage
    assert len(run.main.measurements) == len(open_run(first).main.measurements)


def test_a_recording_of_another_text_is_made_again(tmp_path: Path) -> None:
    case = next(case for case in cases() if case.name == "average_meter")
    task = Task(case, FORMS["short"], tmp_path)
    assert not task.is_done(keep=True)
    (tmp_path / "average_meter.short.tar.xz").write_bytes(
        (SAMPLE / "average_meter.short.tar.xz").read_bytes()
    )
    assert task.is_done(keep=True)
    assert not Task(case, Form("short", seed=3), tmp_path).is_done(keep=False)


def test_most_programs_have_a_long_form_line_for_line_the_same() -> None:
    without = 0
    for case in cases():
        if not LONG.suits(case):
            without += 1
            continue
        text, longer = case.program.read_text(), LONG.of(case)
        assert longer != text
        assert len(longer.splitlines()) == len(text.splitlines())
        ast.parse(longer)
    assert without <= WITHOUT_A_LONG_FORM


def test_a_length_is_reported_by_the_name_of_a_number() -> None:
    text = (
        "STEPS, WIDTH = 3, 4\ndef main(epochs=5):\n    for step in range(7):\n        steps = 0\n"
    )
    assert [node.value for node in length_constants(text)] == [5]
    assert [node.value for node in length_constants("STEPS, WIDTH = 3, 4\nsteps = 0\n")] == [3]
    assert [node.value for node in length_constants("for step in range(7): pass")] == [7]
    assert length_constants("for row in range(7): pass") == []


def test_changes_are_reported_part_by_part() -> None:
    culprit = {
        "name": "kept", "growth": "across", "severity": "warning", "rate": "3 bytes per step",
        "line": "a.py:3",
    }  # fmt: skip
    before = {"verdict": "leak", "culprits": [culprit], "explained": "99%"}
    after = {"verdict": "clean", "culprits": [], "explained": "99%"}
    assert list(changes(before, before)) == []
    assert list(changes(before, after)) == [
        "verdict: leak → clean",
        "culprit 1 gone: kept (3 bytes per step)",
    ]
    moved = {**before, "culprits": [{**culprit, "line": "a.py:4"}]}
    assert list(changes(before, moved)) == ["culprit 1 kept: line a.py:3 → a.py:4"]
    other = {**before, "culprits": [{**culprit, "name": "other"}, culprit]}
    assert list(changes(before, other)) == [
        "culprit 1 new: other (3 bytes per step, a.py:3)",
        "culprit kept: place 1 → 2",
    ]
