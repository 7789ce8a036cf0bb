"""Runs a program of the zoo: under leakscope for its report, and plainly for what it keeps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corpus import HERE, PAIRS, Case

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Threads of torch's that wait for each other on the cores of another program burn minutes."""
TIMEOUT_S = 300
RUN = "run"
"""The run directory inside the folder that a program is recorded in."""


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    report: dict[str, Any]
    seconds: float
    kept: list[dict[str, float]] = field(default_factory=list)
    """For each leak of the case its true bytes per unit of each kind."""
    fault: str = ""
    """Why there is no report."""


def run(case: Case, budget: str = "2%") -> Outcome:
    """Run a case under leakscope, and once more without it if it leaks."""
    outcome = reported(case.program, budget)
    return outcome if outcome.fault else replace(outcome, kept=kept_bytes(case))


def reported(program: Path, budget: str = "2%", more: dict[str, str] | None = None) -> Outcome:
    """Run a program under leakscope, with more in its environment."""
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        seconds, fault = record(program, Path(scratch), budget, more)
        written = Path(scratch) / RUN / "report.json"
        if fault or not written.exists():
            return Outcome({}, seconds, fault=fault or "no report was written")
        return Outcome(json.loads(written.read_text()), seconds)


def record(
    program: Path,
    folder: Path,
    budget: str = "2%",
    more: dict[str, str] | None = None,
    *options: str,
    timeout_s: float = TIMEOUT_S,
) -> tuple[float, str]:
    """Record a program into ``folder / RUN``; return the seconds it took, and why it failed."""
    begun = time.monotonic()
    command = ["-m", "leakscope", "run", "--quiet", "--budget", budget, "--out", RUN, *options]
    _, fault = start([*command, str(program)], folder, more or {}, timeout_s)
    return time.monotonic() - begun, fault


def start(
    arguments: list[str], folder: Path, more: dict[str, str], timeout_s: float = TIMEOUT_S
) -> tuple[str, str]:
    """Return a program's output, and why it failed if it did."""
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env={**ONE_THREAD, **os.environ, **more},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"took more than {timeout_s:.0f} s"
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return done.stdout, f"exit code {done.returncode}: {last}" if done.returncode else ""


def kept_bytes(case: Case) -> list[dict[str, float]]:
    """Return what a program says that it keeps, for each of its leaks."""
    if not case.leaks or all(leak.kept for leak in case.leaks):
        return [leak.kept for leak in case.leaks]
    path = os.pathsep.join([str(HERE), str(PAIRS), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        # Small objects lie in the C heap too, so that what is freed there is all that was kept.
        more = {"COUNT_KEPT": "1", "PYTHONMALLOC": "malloc", "PYTHONPATH": path}
        output, _ = start([str(case.program)], Path(scratch), more)
    lines = [line for line in output.splitlines() if line.startswith("kept bytes ")]
    if not lines:
        return [{} for _ in case.leaks]
    kept = json.loads(lines[0].removeprefix("kept bytes "))
    if all(isinstance(value, (int, float)) for value in kept.values()):
        return [kept]
    if len(case.leaks) == 1:
        return list(kept.values())[:1]
    return [kept.get(leak.key, {}) for leak in case.leaks]
