"""Time of one training loop: plain, under leakscope, under tracemalloc and under memray.

All variants run in turn, round by round, on the same machine in the same session, every second
round in reverse order, so that a drift of the machine touches all of them alike. Each figure is a
ratio to the plain run of the same round. The processor time of the loop's process stands beside its
wall time: a neighbour's load moves it far less.

    python benchmarks/overhead.py [--rounds 3] [--only leakscope] [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

LOOP = str(Path(__file__).with_name("training_loop.py"))


@dataclass(frozen=True)
class Timing:
    loop_s: float
    """What the loop itself took, printed by the program."""
    loop_cpu_s: float
    """Processor time of all threads of the loop's process meanwhile, printed by the program."""
    process_s: float
    """From start to exit, imports and reports included."""
    last_loss: str


Round = dict[str, Timing]


def commands(scratch: Path) -> dict[str, list[str]]:
    """Return the command of each variant; what is not installed is left out."""
    python = [sys.executable]
    leakscope = [*python, "-m", "leakscope", "run", "--quiet", "--force"]
    variants = {
        "plain": [*python, LOOP],
        "leakscope (default)": [*leakscope, "--out", str(scratch / "default"), LOOP],
        "leakscope --budget 0.5%": [
            *leakscope,
            *("--out", str(scratch / "small"), "--budget", "0.5%", LOOP),
        ],
        "tracemalloc, 1 frame": [*python, "-X", "tracemalloc=1", LOOP],
        "tracemalloc, 10 frames": [*python, "-X", "tracemalloc=10", LOOP],
    }
    if importlib.util.find_spec("memray"):
        capture = ["-m", "memray", "run", "-q", "-f", "-o", str(scratch / "memray.bin")]
        variants["memray"] = [*python, *capture, LOOP]
    return variants


def measure(command: list[str], options: list[str]) -> Timing:
    begin = time.perf_counter()
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    elapsed = time.perf_counter() - begin
    found = re.search(r"loop_seconds=(\S+) loop_cpu_seconds=(\S+) last_loss=(\S+)", done.stdout)
    if found is None:
        sys.exit(f"{command[:4]} printed no timing: {done.stdout[-500:]}")
    return Timing(float(found[1]), float(found[2]), elapsed, found[3])


def measure_round(number: int, variants: dict[str, list[str]], options: list[str]) -> Round:
    """Return one timing per variant; odd rounds run the variants in reverse order."""
    order = list(variants) if number % 2 == 0 else list(reversed(variants))
    timings = {name: measure(variants[name], options) for name in order}
    return {name: timings[name] for name in variants}


def spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f}–{max(ratios):.3f})"


def table(rounds: list[Round]) -> str:
    """Return a Markdown table of ratios to the plain run: median (least–most)."""
    lines = [
        "| variant | loop, wall | loop, processor | whole process, wall |",
        "| --- | --- | --- | --- |",
    ]
    for variant in rounds[0]:
        figures = [
            spread([getattr(r[variant], figure) / getattr(r["plain"], figure) for r in rounds])
            for figure in ("loop_s", "loop_cpu_s", "process_s")
        ]
        lines.append(f"| {variant} | {' | '.join(figures)} |")
    return "\n".join(lines)


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="variants whose name has this in it, and plain")
    parser.add_argument("--quick", action="store_true", help="a short loop: to try the script")
    parser.add_argument("--json", type=Path, help="write every timing to this file")
    arguments = parser.parse_args()
    options = ["--epochs", "3", "--steps", "40"] if arguments.quick else []
    rounds: list[Round] = []
    with tempfile.TemporaryDirectory(prefix="leakscope-bench-") as scratch:
        variants = {
            name: command
            for name, command in commands(Path(scratch)).items()
            if name == "plain" or arguments.only in name
        }
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
            rounds.append(measure_round(number, variants, options))
    losses = {timing.last_loss for r in rounds for timing in r.values()}
    plain = statistics.median(r["plain"].loop_s for r in rounds)
    print(f"{machine()}; plain loop {plain:.1f} s, {arguments.rounds} rounds\n")
    print(table(rounds))
    print(f"\nFinal loss the same in every run: {'yes' if len(losses) == 1 else f'no: {losses}'}")
    if arguments.json:
        rows = [{name: asdict(timing) for name, timing in r.items()} for r in rounds]
        arguments.json.write_text(json.dumps({"machine": machine(), "rounds": rows}, indent=1))


if __name__ == "__main__":
    main()
