"""Time of one training loop: plain, under leakscope, under tracemalloc and under memray.

The speed of a machine drifts by more than leakscope costs. So each variant runs *beside* a plain
run, both at the same time, each on a core of its own, and once more with the cores exchanged: a
drift touches both alike. A figure is the geometric mean of the two ratios. Where there is one core
only, the two runs follow each other instead.

    python benchmarks/overhead.py [--rounds 3] [--only leakscope] [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
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


@dataclass(frozen=True)
class Pair:
    """A variant and the plain run beside it."""

    variant: Timing
    plain: Timing

    def ratio(self, figure: str) -> float:
        return float(getattr(self.variant, figure) / getattr(self.plain, figure))


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


class Run:
    """A command that has been started on a core."""

    def __init__(self, command: list[str], core: int | None) -> None:
        self._command = command
        self._begin = time.perf_counter()
        pinned = [] if core is None else ["taskset", "--cpu-list", str(core)]
        self._process = subprocess.Popen(
            [*pinned, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def timing(self) -> Timing:
        """Wait for the end."""
        output, _ = self._process.communicate()
        elapsed = time.perf_counter() - self._begin
        found = re.search(r"loop_seconds=(\S+) loop_cpu_seconds=(\S+) last_loss=(\S+)", output)
        if self._process.returncode or found is None:
            sys.exit(f"{self._command[:4]} printed no timing: {output[-500:]}")
        return Timing(float(found[1]), float(found[2]), elapsed, found[3])


def cores() -> list[int | None]:
    available = sorted(os.sched_getaffinity(0))
    return [*available[:2]] if len(available) > 1 and shutil.which("taskset") else [None]


def measure(variant: list[str], plain: list[str]) -> list[Pair]:
    """Return a pair for each way to share out the cores."""
    places = cores()
    if len(places) == 1:
        return [Pair(Run(variant, None).timing(), Run(plain, None).timing())]
    pairs = []
    for mine, other in (places, places[::-1]):
        with ThreadPoolExecutor(2) as pool:
            beside = pool.submit(lambda core=other: Run(plain, core).timing())
            pairs.append(Pair(Run(variant, mine).timing(), beside.result()))
    return pairs


def spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f}–{max(ratios):.3f})"


def table(results: dict[str, list[list[Pair]]]) -> str:
    """Return a Markdown table of ratios to the plain run: median over the rounds (least–most)."""
    lines = [
        "| variant | loop, wall | loop, processor | whole process, wall |",
        "| --- | --- | --- | --- |",
    ]
    for variant, rounds in results.items():
        figures = [
            spread([statistics.geometric_mean(p.ratio(figure) for p in pairs) for pairs in rounds])
            for figure in ("loop_s", "loop_cpu_s", "process_s")
        ]
        lines.append(f"| {variant} | {' | '.join(figures)} |")
    return "\n".join(lines)


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="variants whose name has this in it")
    parser.add_argument("--quick", action="store_true", help="a short loop: to try the script")
    parser.add_argument("--json", type=Path, help="write every timing to this file")
    arguments = parser.parse_args()
    options = ["--epochs", "3", "--steps", "40"] if arguments.quick else []
    with tempfile.TemporaryDirectory(prefix="leakscope-bench-") as scratch:
        variants = commands(Path(scratch))
        plain = variants["plain"]
        results: dict[str, list[list[Pair]]] = {n: [] for n in variants if arguments.only in n}
        for number in range(arguments.rounds):
            for name, rounds in results.items():
                print(f"round {number + 1} of {arguments.rounds}: {name}", file=sys.stderr)
                rounds.append(measure([*variants[name], *options], [*plain, *options]))
    pairs = [p for rounds in results.values() for pairs in rounds for p in pairs]
    losses = {timing.last_loss for p in pairs for timing in (p.variant, p.plain)}
    typical = statistics.median(p.plain.loop_s for p in pairs)
    print(f"{machine()}; plain loop {typical:.1f} s, {arguments.rounds} rounds\n")
    print(table(results))
    print(f"\nFinal loss the same in every run: {'yes' if len(losses) == 1 else f'no: {losses}'}")
    if arguments.json:
        rows = {n: [[asdict(p) for p in pairs] for pairs in r] for n, r in results.items()}
        arguments.json.write_text(json.dumps({"machine": machine(), "results": rows}, indent=1))


if __name__ == "__main__":
    main()
