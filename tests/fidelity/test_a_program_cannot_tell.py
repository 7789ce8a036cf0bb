"""A program under `leakscope run` does what it does under `python`, whatever it is in the midst of.

Each program of `programs/` runs plainly, at the default budget and with all its time for measuring;
output, errors, exit code, what was learnt and the state of random numbers must be equal.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from leakscope.model.run import Recording
from leakscope.recording import open_run

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*_*.py"))
PATIENCE_S = 120.0
BUDGETS = ("2%", "100%")
LEAST_CENSUSES = 4
"""At a budget of 100 % a program of seconds has at least so many, and most have dozens."""

MEETS = {
    "python_signal_handlers": "a signal handler",
    "python_work_in_finalizers": "garbage collection",
    "torch_dispatch_mode": "a dispatch mode",
    "torch_function_mode": "a function mode",
    "torch_functorch": "functorch",
    "torch_jit_trace": "torch.jit.trace",
    "torch_lasting_modes": "a dispatch mode",
    "torch_make_fx": "torch.fx tracing",
    "torch_profiler": "torch.profiler",
    "torch_profiler_all_along": "torch.profiler",
    "torch_step_in_backward": "a backward pass",
    "torch_symbolic_trace": "torch.fx tracing",
}
"""What measuring was put off for in programs that are made for it."""

QUICK = {"process_fork", "python_endings", "torch_function_mode", "torch_jit_trace"}
"""Programs that are no slow tests where all time may be spent: `tests/sampling.py` names others."""


@dataclass(frozen=True)
class Ended:
    """How a program ended and what it said."""

    code: int
    out: str
    err: str


def python(words: Sequence[str], folder: Path, stdin: bytes = b"") -> Ended:
    known = {k: v for k, v in os.environ.items() if not k.startswith("LEAKSCOPE")}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        input=stdin,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
        env={**known, "PYTHONPATH": f"{ROOT}:{PROGRAMS}", "PYTHONHASHSEED": "0"},
    )
    return Ended(done.returncode, done.stdout.decode(), _without_clock(done.stderr.decode()))


def _without_clock(text: str) -> str:
    """Leave out what torch's profiler logs of itself, and the time and process of other logs."""
    lines = (line for line in text.splitlines() if not line.startswith("USDT:"))
    return re.sub(r"^(\[?[WI]\d{4}) [\d:.]+ \d*", r"\1", "\n".join(lines), flags=re.MULTILINE)


def recorded(budget: str, words: Sequence[str], folder: Path, options: Sequence[str] = ()) -> Ended:
    ours = ["-m", "leakscope", "run", "-q", "--no-report", "--out", "run", "--budget", budget]
    return python([*options, *ours, *words], folder)


def recording_in(folder: Path) -> Recording:
    run = open_run(folder / "run")
    return next(recording for recording in run.recordings if recording.header.role == "main")


@functools.cache
def plainly(name: str, folder: Path) -> Ended:
    return python([str(PROGRAMS / f"{name}.py")], folder)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what runs plainly."""
    return tmp_path_factory.mktemp("plain")


def _cases() -> list[object]:
    return [
        pytest.param(name, b, marks=[pytest.mark.slow] * (b == BUDGETS[0] or name not in QUICK))
        for name in NAMES
        for b in BUDGETS
    ]


@pytest.mark.parametrize(("name", "budget"), _cases())
def test_a_program_does_the_same(name: str, budget: str, place: Path, tmp_path: Path) -> None:
    plain = plainly(name, place)
    ended = recorded(budget, [str(PROGRAMS / f"{name}.py")], tmp_path)
    assert ended.out == plain.out
    assert ended.err == plain.err
    assert ended.code == plain.code
    recording = recording_in(tmp_path)
    assert [error.message for error in recording.errors] == []
    if budget == BUDGETS[1]:
        assert_measured(name, recording)


def assert_measured(name: str, recording: Recording) -> None:
    """Nothing is proved by a run in which nothing was looked at."""
    taken = sum(measurement.census is not None for measurement in recording.measurements)
    assert taken >= LEAST_CENSUSES
    if name in MEETS:
        assert recording.overhead is not None
        assert MEETS[name] in recording.overhead.put_off


def test_there_are_programs_enough() -> None:
    assert len(NAMES) >= 40
    assert set(MEETS) | QUICK <= set(NAMES)


@pytest.mark.parametrize(
    "options", [("-W", "error"), ("-X", "dev"), ("-X", "faulthandler"), ("-O",)], ids=" ".join
)
@pytest.mark.slow
def test_options_of_python_change_nothing(options: tuple[str, ...], tmp_path: Path) -> None:
    words = [str(PROGRAMS / "python_logging.py")]
    plain = python([*options, *words], tmp_path)
    assert recorded("100%", words, tmp_path, options) == plain


@pytest.mark.parametrize(
    "words",
    [
        ["-m", "pdb", "-c", "break 9", "-c", "continue", "-c", "p i", "-c", "where", "-c", "q"],
        ["-m", "cProfile", "-o", "profile"],
    ],
    ids=lambda words: words[1],
)
@pytest.mark.slow
def test_tools_that_run_programs_see_the_same(words: list[str], tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text((PROGRAMS / "python_endings.py").read_text())
    plain = python([*words, "program.py"], tmp_path)
    ended = recorded("100%", [*words, "program.py"], tmp_path)
    assert ended == plain


@pytest.mark.slow
def test_a_program_on_stdin_is_recorded(tmp_path: Path) -> None:
    source = (
        b"import sys\nfrom driving import train\ntrain()\nprint(sys.argv, sys.stdin.read())\n1/0"
    )
    plain = python(["-", "a"], tmp_path, source)
    ours = ["-m", "leakscope", "run", "-q", "--no-report", "--out", "run", "--budget", "100%"]
    assert python([*ours, "-", "a"], tmp_path, source) == plain
    assert plain.code == 1
    assert "ZeroDivisionError" in plain.err
    assert_measured("stdin", recording_in(tmp_path))


@pytest.mark.slow
def test_a_script_in_a_pipe_is_recorded(tmp_path: Path) -> None:
    source = (
        "import sys; from driving import train; train(); print(sys.argv, sys.path[0], __file__)"
    )
    plain, ended = (_from_pipe(words, source, tmp_path) for words in ([], OURS))
    assert ended == plain
    assert plain[0] == 0
    assert_measured("pipe", recording_in(tmp_path))


OURS = ["-m", "leakscope", "run", "-q", "--no-report", "--out", "run", "--budget", "100%"]


def _from_pipe(words: list[str], source: str, folder: Path) -> tuple[int, str, str]:
    """Run what comes through a pipe of a fixed number, as a shell's ``<(…)`` does."""
    script = f'exec 9< <(printf %s "$SOURCE"); exec "$0" {" ".join(words)} /dev/fd/9 a'
    path = f"{ROOT}:{PROGRAMS}"
    done = subprocess.run(
        ["bash", "-c", script, sys.executable],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "SOURCE": source},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_a_module_is_named_in_its_recording(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "fit.py").write_text(
        "from driving import train\ntrain()\nprint(__name__, __spec__.name)"
    )
    plain = python(["-m", "package.fit"], tmp_path)
    assert recorded("100%", ["-m", "package.fit"], tmp_path) == plain
    assert open_run(tmp_path / "run").manifest.script == "-m package.fit"
    assert_measured("module", recording_in(tmp_path))
