"""What leakscope adds to short runs: its start, its end with and without a report, and tracing.

    python benchmarks/short_runs.py [--pairs 7] [--tracing-pairs 3] [--objects 300000]

Plain and watched runs take turns, so that a machine whose speed drifts slows both; printed are
medians, least and most of the differences of a pair, or of its ratios. Start and end are those of a
script that imports torch and nothing more. Tracing is that of `many_objects.py`, whose steps make
so many objects that tracing them all would be dear. Compiled modules are kept as for any installed
package, whatever PYTHONDONTWRITEBYTECODE says here; the first runs, which compile, don't count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import machine

IMPORTING = """\
import time; begun = time.time()
import torch
print(begun, time.time())
"""
HEAVY = Path(__file__).with_name("many_objects.py")


def timed(command: list[str], folder: str) -> tuple[float, float, float]:
    """Return the seconds until the script begins, until it has imported torch, and from there."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPYCACHEPREFIX": f"{folder}/cache"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.time()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    ended = time.time()
    begun, imported = map(float, done.stdout.split())
    return begun - started, imported - begun, ended - imported


def loop_seconds(command: list[str], folder: str) -> float:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout.split("loop_seconds=")[1].split()[0])


def print_times(name: str, values: list[float], unit: str) -> None:
    middle, low, high = statistics.median(values), min(values), max(values)
    print(f"  {name:<46} {middle:6.2f} {unit} ({low:.2f} to {high:.2f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--tracing-pairs", type=int, default=3)
    parser.add_argument("--objects", type=int, default=300_000)
    chosen = parser.parse_args()
    python = sys.executable
    print(machine())
    with tempfile.TemporaryDirectory(prefix="leakscope-bench-") as folder:
        script = Path(folder) / "importing.py"
        script.write_text(IMPORTING)
        plain = [python, str(script)]
        run = [python, "-m", "leakscope", "run", "--force", "--out", "run"]
        without = [*run, "--no-report", "--quiet", str(script)]
        whole = [*run, str(script)]
        for command in (plain, without, whole):
            timed(command, folder)
        rounds = [[timed(c, folder) for c in (plain, without, whole)] for _ in range(chosen.pairs)]
        print(f"a script that imports torch, {chosen.pairs} pairs: seconds more than plainly")
        print_times("before its first line", [b[0] - a[0] for a, b, _ in rounds], "s")
        print_times("while it imports torch", [b[1] - a[1] for a, b, _ in rounds], "s")
        print_times(
            "after its last line, without a report", [b[2] - a[2] for a, b, _ in rounds], "s"
        )
        print_times("all of it, without a report", [sum(b) - sum(a) for a, b, _ in rounds], "s")
        print_times("its report and summary", [c[2] - b[2] for _, b, c in rounds], "s")
        heavy = [str(HEAVY), "--objects", str(chosen.objects)]
        watched = [*run, "--no-report", "--quiet"]
        print(f"steps of many objects, {chosen.tracing_pairs} rounds: times the plain run")
        ratios: dict[str, list[float]] = {"as it is": [], "--tracemalloc off": []}
        for _ in range(chosen.tracing_pairs):
            base = loop_seconds([python, *heavy], folder)
            off = loop_seconds([*watched, "--tracemalloc", "off", *heavy], folder)
            ratios["as it is"].append(loop_seconds([*watched, *heavy], folder) / base)
            ratios["--tracemalloc off"].append(off / base)
        for name, values in ratios.items() if chosen.tracing_pairs else ():
            print_times(name, values, "×")


if __name__ == "__main__":
    main()
