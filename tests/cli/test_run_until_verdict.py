"""`leakscope run --until-verdict`: once more, twice as long, where the first run shows nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from leakscope.capture.run_directory import Program
from leakscope.cli.program import Lengthening, to_lengthening
from leakscope.recording import open_run

ROOT = Path(__file__).parents[2]
TRAIN = """
import os, sys
import leakscope

epochs = int(os.environ["EPOCHS"] if sys.argv[1:] == [] else sys.argv[-1].rpartition("=")[2])
with open("ran.txt", "a") as stream:
    print(epochs, file=stream)
history = []
if epochs > 2:
    with leakscope.profile(quiet=True) as scope:
        for epoch in scope.epochs(range(epochs)):
            for step in scope.steps(range(20)):
                history.append(bytearray(200_000))
sys.exit({code})
"""


def leakscope(*words: str, folder: Path, code: str = "0", **added: str):
    (folder / "train.py").write_text(TRAIN.replace("{code}", code))
    return subprocess.run(
        [sys.executable, "-m", "leakscope", "run", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **added},
    )


def lengths(folder: Path) -> list[str]:
    ran = folder / "ran.txt"
    return ran.read_text().split() if ran.exists() else []


@pytest.mark.slow
@pytest.mark.sample
def test_an_inconclusive_run_is_run_once_more_with_twice_the_number(tmp_path: Path) -> None:
    words = ("--out", "run", "--until-verdict", "epochs=2", "train.py", "--epochs={epochs}")
    done = leakscope(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert lengths(tmp_path) == ["2", "4"]
    assert "inconclusive with epochs=2; runs once more with epochs=4." in done.stderr
    first, second = (open_run(tmp_path / name).manifest for name in ("run", "run-longer"))
    assert first.command == ["python", "train.py", "--epochs=2"]
    assert second.command == ["python", "train.py", "--epochs=4"]
    for name in ("run", "run-longer"):
        assert (tmp_path / name / "report.html").exists()


@pytest.mark.slow
def test_a_run_that_has_a_verdict_is_not_run_again(tmp_path: Path) -> None:
    words = ("--until-verdict", "epochs=8", "--out=run", "train.py", "--epochs", "{epochs}")
    done = leakscope(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert lengths(tmp_path) == ["8"]
    assert "Leak" in done.stderr
    assert not (tmp_path / "run-longer").exists()


@pytest.mark.slow
def test_a_second_run_that_shows_nothing_is_the_last(tmp_path: Path) -> None:
    done = leakscope("--until-verdict=env:EPOCHS=1", "train.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert lengths(tmp_path) == ["1", "2"]
    assert len([*(tmp_path / "leakscope-runs").iterdir()]) == 2


@pytest.mark.slow
def test_the_second_runs_exit_code_counts_and_a_failed_first_has_no_second(tmp_path: Path) -> None:
    words = ("--until-verdict", "epochs=1", "train.py", "{epochs}")
    failed = leakscope(*words, folder=tmp_path, code="3")
    assert (failed.returncode, lengths(tmp_path)) == (3, ["1"])
    assert "not run again: the program didn't end well" in failed.stderr
    (tmp_path / "ran.txt").unlink()
    later = leakscope(*words, folder=tmp_path, code="5 if epochs == 2 else 0")
    assert (later.returncode, lengths(tmp_path)) == (5, ["1", "2"])


@pytest.mark.slow
def test_switched_off_it_runs_the_program_once(tmp_path: Path) -> None:
    words = ("--until-verdict", "epochs=1", "train.py", "{epochs}")
    assert leakscope(*words, folder=tmp_path, LEAKSCOPE="off").returncode == 0
    assert lengths(tmp_path) == ["1"]


@pytest.mark.parametrize(
    ("words", "environment", "says"),
    [
        (("epochs=2", "train.py"), {}, "A program that takes no such number can't be lengthened."),
        (("epochs=2", "train.py", "--epochs", "4"), {}, "write {epochs} where its arguments"),
        (("epochs", "train.py"), {}, "'epochs' is no number to double"),
        (("epochs=0", "train.py", "{epochs}"), {}, "is no number to double"),
        (("epochs=2", "-"), {}, "can't run twice what comes on stdin"),
        (
            ("epochs=2", "train.py", "{epochs}"),
            {"RANK": "0", "WORLD_SIZE": "2"},
            "can't start all ranks again",
        ),
        (("epochs=2", "--no-report", "train.py", "{epochs}"), {}, "leave --no-report out"),
    ],
)
def test_what_can_not_be_run_for_longer_is_refused_before_anything_starts(
    words: tuple[str, ...], environment: dict[str, str], says: str, tmp_path: Path
) -> None:
    done = leakscope("--until-verdict", *words, folder=tmp_path, **environment)
    assert done.returncode == 2
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert lengths(tmp_path) == []
    assert not (tmp_path / "leakscope-runs").exists()


def test_a_placeholder_is_replaced_wherever_it_stands_in_an_argument() -> None:
    program = Program("script", "{epochs}.py", ("--epochs={epochs}", "{epochs}", "{other}"))
    applied = Lengthening("epochs", 4).doubled.applied(program)
    assert applied == Program("script", "{epochs}.py", ("--epochs=8", "8", "{other}"))


@pytest.mark.parametrize("text", ["epochs=-1", "a b=2", "=2", "env:=2", "env:X", "epochs=4.5"])
def test_what_names_no_number_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        to_lengthening(text)
