"""What watching a training loop costs: leakscope and its peers compared with plain runs.

The speed of a machine drifts by more than leakscope costs. So each variant runs *next to* a plain
run, both at the same time, each on half of the cores, and once more with the halves exchanged: a
drift touches both alike. A figure is the geometric mean of the two ratios. Where there is one core
only, the two runs follow each other instead.

    python benchmarks/overhead.py [--loops tiny,convolution,loading,objects] [--rounds 2]
                                  [--only NAME] [--scale 1.0] [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from machine import machine
from processes import FailedError, Run, Timing, end_with_us, halves
from variants import LOOP, Variant, variants

EPOCHS = 12
"""Of every loop, each of some five seconds."""
STEPS = {"tiny": 4000, "convolution": 200, "loading": 800, "objects": 2000}
PEERS_SHARE = 1 / 4
PATIENCE_SECONDS = 400.0
TIMES = {"loop, wall": "loop_s", "loop, processor": "loop_cpu_s", "whole process": "process_s"}
SIZES = {"largest process": "resident_bytes", "all processes": "tree_bytes"}
MIB = 1 << 20


@dataclass(frozen=True)
class Pair:
    """A variant and the plain run next to it."""

    variant: Timing
    plain: Timing

    def ratio(self, figure: str) -> float:
        return float(getattr(self.variant, figure) / getattr(self.plain, figure))

    def more(self, figure: str) -> float:
        """Return by how many MiB the variant had more."""
        return float(getattr(self.variant, figure) - getattr(self.plain, figure)) / MIB


@dataclass
class Row:
    """What a variant came to on one loop."""

    rounds: list[list[Pair]] = field(default_factory=list)
    """The pairs of each round, one for each way to share out the cores."""
    failure: str = ""

    def cells(self) -> list[str]:
        if not self.rounds:
            return [self.failure or "not measured", *[""] * (len(TIMES) + len(SIZES) - 1)]
        ratios = [
            [statistics.geometric_mean(p.ratio(figure) for p in pairs) for pairs in self.rounds]
            for figure in TIMES.values()
        ]
        sizes = [
            [statistics.mean(p.more(figure) for p in pairs) for pairs in self.rounds]
            for figure in SIZES.values()
        ]
        return [spread(r, ".3f") for r in ratios] + [spread(s, "+.0f") for s in sizes]


def spread(values: list[float], form: str) -> str:
    """Return the median and, of several, the least and the most."""
    middle = format(statistics.median(values), form)
    if len(values) == 1:
        return middle
    return f"{middle} ({format(min(values), form)} to {format(max(values), form)})"


def measure(variant: Variant, arguments: list[str]) -> list[Pair]:
    """Return a pair for each way to share out the cores."""
    watched = variant.command(arguments)
    plain = [sys.executable, LOOP, *arguments]
    places = halves()
    if len(places) == 1:
        return [Pair(timed(watched, []), timed(plain, []))]
    pairs = []
    for mine, other in (places, places[::-1]):
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.submit(timed, watched, mine), pool.submit(timed, plain, other)
        pairs.append(Pair(first.result(), second.result()))
    return pairs


def timed(command: list[str], cores: list[int]) -> Timing:
    return Run(command, cores, PATIENCE_SECONDS).timing()


def table(rows: dict[str, Row]) -> str:
    """Return a Markdown table: ratios to the plain run, and MiB more than it held."""
    columns = [*TIMES, *(f"MiB more, {name}" for name in SIZES)]
    lines = [f"| variant | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    lines += [f"| {name} | {' | '.join(row.cells())} |" for name, row in rows.items()]
    return "\n".join(lines)


def arguments_of(loop: str, variant: Variant, scale: float) -> list[str]:
    """Return the arguments of the program: whole epochs, for a peer fewer."""
    epochs = EPOCHS * (PEERS_SHARE if variant.peer else 1.0)
    steps = max(20, round(STEPS[loop] * scale))
    return [loop, "--epochs", str(max(2, round(epochs))), "--steps", str(steps)]


def run_round(loop: str, scale: float, chosen: list[Variant], rows: dict[str, Row]) -> None:
    for variant in chosen:
        row = rows.setdefault(variant.name, Row())
        if not variant.is_installed:
            row.failure = f"not installed: {variant.needs}"
        if row.failure:
            continue
        print(f"  {loop}: {variant.name}", file=sys.stderr, flush=True)
        try:
            row.rounds.append(measure(variant, arguments_of(loop, variant, scale)))
        except FailedError as fault:
            row.failure = f"failed: {fault}"
            print(f"    {row.failure}", file=sys.stderr, flush=True)


def tell(loop: str, rows: dict[str, Row]) -> None:
    pairs = [p for row in rows.values() for pairs in row.rounds for p in pairs]
    if not pairs:
        return
    step = statistics.median(p.plain.loop_cpu_s for p in pairs)
    held = statistics.median(p.plain.tree_bytes for p in pairs) / MIB
    longest = max(p.plain.loop_s for p in pairs)
    print(f"\n### {loop}\n")
    print(
        f"plain: up to {longest:.1f} s of wall time, {step:.1f} s of the processor in the median,"
    )
    print(f"{held:.0f} MiB in all processes\n")
    print(table(rows))
    for name, row in rows.items():
        losses = {t.last_loss for pairs in row.rounds for p in pairs for t in (p.variant, p.plain)}
        if len(losses) > 1:
            print(f"\nThe last loss under {name} differs: {sorted(losses)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--loops", default=",".join(STEPS), help="which, with commas between")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="", help="variants whose name has this in it")
    parser.add_argument("--scale", type=float, default=1.0, help="how long epochs are")
    parser.add_argument("--quick", action="store_true", help="short epochs, one round: to try it")
    parser.add_argument("--json", type=Path, help="write every timing to this file")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.scale = 1, 0.02
    end_with_us()
    results: dict[str, dict[str, Row]] = {loop: {} for loop in arguments.loops.split(",")}
    print(f"{machine()}; {arguments.rounds} rounds", flush=True)
    with tempfile.TemporaryDirectory(prefix="leakscope-bench-") as scratch:
        chosen = [v for v in variants(Path(scratch)) if arguments.only in v.name]
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
            for loop, rows in results.items():
                run_round(loop, arguments.scale, chosen, rows)
    for loop, rows in results.items():
        tell(loop, rows)
    if arguments.json:
        reported = {loop: {n: asdict(r) for n, r in rows.items()} for loop, rows in results.items()}
        arguments.json.write_text(json.dumps({"machine": machine(), "loops": reported}, indent=1))


if __name__ == "__main__":
    main()
