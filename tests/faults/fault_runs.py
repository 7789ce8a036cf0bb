"""Runs programs with and without leakscope, and reads what is left of a run."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PATIENCE_S = 120.0
RUN = "run"

TRAINING = """
from real_training import train
train()
"""


def mostly_slow(values: Iterable[str], *quick: str) -> list[ParameterSet]:
    """Return parameters of which all but some are left to the slow tests."""
    return [pytest.param(v, marks=[pytest.mark.slow] * (v not in quick)) for v in values]


@dataclass(frozen=True)
class Ended:
    """How a program ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> str:
        """The line that tells what was learnt."""
        return next(line for line in self.out.splitlines() if line.startswith("result "))


def environment(**added: str) -> dict[str, str]:
    """Return the environment of users: without our strict mode, which hands on our own faults."""
    known = {k: v for k, v in os.environ.items() if not k.startswith("LEAKSCOPE")}
    return {**known, "PYTHONPATH": os.pathsep.join((str(ROOT), str(HERE))), **added}


def python(
    *words: str, folder: Path, prepare: Callable[[], object] | None = None, **added: str
) -> Ended:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=PATIENCE_S,
        check=False,
        env=environment(**added),
        preexec_fn=prepare,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def leakscope(*words: str, folder: Path, **added: str) -> Ended:
    return python("-m", "leakscope", *words, folder=folder, **added)


def run_words(program: str, folder: Path, *options: str) -> list[str]:
    """Write a program and return the words that record it."""
    (folder / "program.py").write_text(program)
    return ["-m", "leakscope", "run", "--out", RUN, *options, "program.py"]


def recorded(
    program: str,
    folder: Path,
    *options: str,
    prepare: Callable[[], object] | None = None,
    **added: str,
) -> Ended:
    """Record a program; nobody ever sees a traceback of leakscope's."""
    ended = python(*run_words(program, folder, *options), folder=folder, prepare=prepare, **added)
    assert_no_traceback_of_ours(ended)
    return ended


def plainly(program: str, folder: Path) -> Ended:
    """Run a program without leakscope."""
    (folder / "program.py").write_text(program)
    return python("program.py", folder=folder)


def assert_no_traceback_of_ours(ended: Ended) -> None:
    assert "Traceback" not in ended.err, ended.err
    assert "Exception ignored" not in ended.err, ended.err


def report_of(folder: Path, run: str = RUN) -> dict[str, Any]:
    """Return the report that the run has written."""
    output: dict[str, Any] = json.loads((folder / run / "report.json").read_text())
    return output


def report_again(folder: Path, run: str = RUN) -> dict[str, Any]:
    """Return the report that the command makes of what is left of a run."""
    ended = leakscope("report", run, "--format", "json", folder=folder)
    assert_no_traceback_of_ours(ended)
    assert ended.code == 0, ended.err
    output: dict[str, Any] = json.loads(ended.out)
    return output


def problems(report: dict[str, Any]) -> str:
    return "\n".join(f"{item['where']}: {item['message']}" for item in report["errors"])


def without_override() -> None:
    """Have permissions count for root too: drop the rights to override and to ignore them."""
    if os.geteuid() == 0:
        for capability in _OVERRIDING:
            ctypes.CDLL(None).prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0)


_DROP_FROM_BOUNDING_SET = 24
_OVERRIDING = (1, 2)
"""``CAP_DAC_OVERRIDE`` and ``CAP_DAC_READ_SEARCH``."""
