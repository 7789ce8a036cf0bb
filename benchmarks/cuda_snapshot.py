"""Time to explain a CUDA snapshot of 20,000 entries: in one process, and as a command.

    python benchmarks/cuda_snapshot.py [FILE] [--rounds 5] [--entries 20000]

Without a FILE it makes one: a training loop whose entries carry stacks of 45 frames, written as
torch writes it, frames shared. The goal is 1.5 s for a file of 4 MB.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "analysis" / "cuda")]

from fake_allocator import FORWARD, MIB, FakeAllocator, python  # noqa: E402

from leakscope.analysis.allocator import explain, read_snapshot  # noqa: E402
from leakscope.report import render_snapshot_html, render_snapshot_text  # noqa: E402

DEPTH = 45
DISTINCT = 190
HELD = 300


def make(path: Path, entries: int) -> None:
    """Write a snapshot whose history has so many entries."""
    stacks = [
        [
            python(f"/home/u/layer{number % 40}.py", number, "forward"),
            *FORWARD[1:],
            *(
                python(f"/home/u/caller{depth}.py", depth + number, "call")
                for depth in range(DEPTH)
            ),
        ]
        for number in range(DISTINCT)
    ]
    made = FakeAllocator(capacity=1 << 40)
    held: list[int] = []
    number = 0
    while len(made.trace) < entries:
        # torch gives every entry a list of its own with shared frames.
        stack = list(stacks[number % DISTINCT])
        held.append(made.alloc((number % 7 + 1) * MIB // 2 + 512 * (number % 9), stack))
        if len(held) > HELD:
            made.free(held.pop(number * 31 % len(held)))
            made.trace[-1]["frames"] = made.trace[-2]["frames"] = list(stack)
        number += 1
    reported = {"segments": made.segments, "device_traces": [made.trace]}
    path.write_bytes(pickle.dumps(reported))


def timed(path: Path) -> dict[str, float]:
    """Return the seconds of each part, once."""
    started = time.perf_counter()
    snapshot = read_snapshot(path)
    read = time.perf_counter()
    explanation = explain(snapshot)
    explained = time.perf_counter()
    render_snapshot_text(explanation)
    reported = time.perf_counter()
    render_snapshot_html(explanation)
    shown = time.perf_counter()
    command = [sys.executable, "-m", "leakscope", "cuda", str(path)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    return {
        "read": read - started,
        "explain": explained - read,
        "terminal": reported - explained,
        "page": shown - reported,
        "whole command": time.perf_counter() - shown,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--entries", type=int, default=20_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = chosen.file or Path(folder) / "snapshot.pickle"
        if chosen.file is None:
            make(path, chosen.entries)
        rounds = [timed(path) for _ in range(chosen.rounds)]
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB, {chosen.rounds} rounds")
    for part in rounds[0]:
        seconds = [item[part] for item in rounds]
        low, high = min(seconds), max(seconds)
        print(f"{part:<14} {statistics.median(seconds):.2f} s ({low:.2f}–{high:.2f})")


if __name__ == "__main__":
    main()
