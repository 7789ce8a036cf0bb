"""Builds one heap and looks at it with one tool, a round for every line that it is sent.

    python benchmarks/heap/worker.py mix 100000 leakscope

Its answers are lines of JSON: one when the heap stands, one for every round, one to `count`.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from heaps import HEAPS
from peers import TOOLS, Look

from leakscope.heap import graph
from leakscope.heap.graph import WalkRequest

PROCESS = Path("/proc/self")


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system doesn't say."""
    return _status("VmRSS")


def reset_peak() -> bool:
    """Begin a new peak of resident memory; say whether the system allows it."""
    try:
        PROCESS.joinpath("clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_bytes() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    try:
        lines = PROCESS.joinpath("status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 0)


def measure(look: Any) -> dict[str, Any]:
    """Return seconds and resident bytes of one call, and what it found."""
    gc.collect()
    before, knows_peak = resident_bytes(), reset_peak()
    began = time.perf_counter()
    found: Look = look()
    elapsed = time.perf_counter() - began
    peak = peak_bytes()
    gc.collect()
    return {
        "seconds": elapsed,
        "peak_bytes": max(0, peak - before) if knows_peak else None,
        "before_bytes": before,
        "after_bytes": resident_bytes(),
        **asdict(found),
    }


def count(root: Any) -> dict[str, int]:
    """Return how many objects the engine finds, and what all that the root reaches weighs."""
    whole = graph.walk(WalkRequest(roots=[root], full=True))
    below = graph.walk(WalkRequest(roots=[root]))
    weight = below.heap_bytes + sum(below.payload_bytes.values())
    return {"process": whole.objects, "root": below.objects, "root_bytes": weight}


def serve(answers: TextIO) -> None:
    """Build, say so, and do what standard input asks for, line by line."""
    name, size, tool = sys.argv[1:]
    began = time.perf_counter()
    run.heap = HEAPS[name](int(size))
    look = TOOLS[tool].prepare(run.heap)
    gc.collect()
    print(json.dumps({"built_s": time.perf_counter() - began}), file=answers, flush=True)
    for line in sys.stdin:
        answer = count(run.heap) if line.strip() == "count" else measure(look)
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # taking a million objects apart would only take time


class Holder:
    """What a program would call its state: the name under which the census finds the heap."""

    heap: Any = None


run = Holder()

if __name__ == "__main__":
    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a tool prints must not stand among the answers
    serve(own)
