"""Judging the recordings of many ranks: seconds, and the memory of all processes meanwhile.

Two ranks are recorded by torchrun and gloo, one of which leaks. Their recordings are replicated
under other ranks' numbers, with noise on all sizes, into a temporary directory. What is measured is
``leakscope report`` on it, on the cores that this process may use.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import psutil
from machine import machine

from leakscope.analysis import summarise_rank
from leakscope.model.record import BoundaryRecord, CensusRecord, HeaderRecord, Record
from leakscope.recording import open_run
from leakscope.recording.format import (
    JournalFrame,
    decode_record,
    encode_record,
    read_frames,
    to_frame,
)
from leakscope.recording.reader import open_recording

PROGRAM = Path(__file__).parents[1] / "tests/end_to_end/rank_programs/gloo.py"
NOISE = 0.01
LEAKY_EVERY = 8
SAMPLE_S = 0.2
MIB = 1 << 20


def main() -> None:
    """Print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=600)
    requested = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        recorded = record(Path(folder, "recorded"), requested.epochs)
        many = Path(folder, "many")
        sizes = replicate(recorded, many, requested.ranks)
        print(f"machine: {machine()}")
        print(f"recordings: {requested.ranks}, {sum(sizes) / len(sizes) / 1024:.0f} KiB each")
        judge(many, requested.ranks)
        summary = pickle.dumps(summarise_rank(open_run(recorded), open_recording(one_of(many))))
        print(f"summary: {len(summary) / 1024:.0f} KiB of a rank that leaks")


def one_of(run: Path) -> Path:
    """Return the journal of a rank that leaks."""
    return next(run.glob("rank1-*"))


def record(run: Path, epochs: int) -> Path:
    """Record two ranks, the second of which leaks, and return their run directory."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    recorded = ["-m", "leakscope", "run", "--quiet", "--no-report", "--out", str(run)]
    program = [str(PROGRAM), "1", "-1", str(epochs)]
    command = [sys.executable, *launcher, *recorded, *program]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return run


def replicate(recorded: Path, run: Path, ranks: int) -> list[int]:
    """Write a journal for each rank, every eighth after the one that leaks; return their sizes."""
    run.mkdir()
    (run / "run.json").write_bytes((recorded / "run.json").read_bytes())
    healthy, leaking = (_records(next(recorded.glob(f"rank{rank}-*"))) for rank in (0, 1))
    sizes = []
    for rank in range(ranks):
        noise = random.Random(rank)
        path = run / f"rank{rank}-{1000 + rank}.journal"
        source = leaking if rank % LEAKY_EVERY == 1 else healthy
        with path.open("wb") as stream:
            for item in source:
                stream.write(to_frame(encode_record(_as_of(item, rank, ranks, noise))))
        sizes.append(path.stat().st_size)
    return sizes


def _records(journal: Path) -> list[Record]:
    with journal.open("rb") as stream:
        pieces = list(read_frames(stream))
    return [decode_record(piece.payload) for piece in pieces if isinstance(piece, JournalFrame)]


def _as_of(one: Record, rank: int, ranks: int, noise: random.Random) -> Record:
    """Return a record as another rank would have written it."""

    def varied(size: int) -> int:
        return int(size * (1 + noise.uniform(-NOISE, NOISE) / 10))

    if isinstance(one, HeaderRecord):
        host = f"node{rank // 8}"
        return msgspec.structs.replace(one, rank=rank, world_size=ranks, pid=1000 + rank, host=host)
    if isinstance(one, BoundaryRecord):
        gauges = {name: varied(size) for name, size in one.gauges.items()}
        return msgspec.structs.replace(one, gauges=gauges)
    if isinstance(one, CensusRecord):
        rows = [
            msgspec.structs.replace(row, host_bytes=varied(row.host_bytes))
            for row in one.census.rows
        ]
        return msgspec.structs.replace(one, census=msgspec.structs.replace(one.census, rows=rows))
    return one


def judge(run: Path, ranks: int) -> None:
    """Time the report and watch the memory of its processes, shared pages divided (PSS)."""
    command = [sys.executable, "-m", "leakscope", "report", str(run)]
    begin = time.perf_counter()
    process = psutil.Popen(command, stdout=subprocess.DEVNULL)
    parent = pool = judge_peak = 0
    while process.poll() is None:
        parent = max(parent, _pss(process))
        judges = [_pss(child) for child in _children(process)]
        pool, judge_peak = max(pool, sum(judges)), max([judge_peak, *judges])
        time.sleep(SAMPLE_S)
    seconds = time.perf_counter() - begin
    if process.returncode:
        raise SystemExit(f"leakscope report ended with {process.returncode}")
    report = json.loads((run / "report.json").read_text())
    reported = report["culprits"][0] if report["culprits"] else {"name": "-", "rates_by_rank": {}}
    cores = len(os.sched_getaffinity(0))
    print(f"seconds: {seconds:.1f} ({seconds * cores / ranks:.3f} core seconds a recording)")
    print(f"parent: {parent / MIB:.0f} MiB at most")
    print(f"judges: {pool / MIB:.0f} MiB at most together, {judge_peak / MIB:.0f} MiB one of them")
    print(f"ranks reported: {len(report['ranks'])}; first culprit: {reported['name']}", end="")
    print(f" in {len(reported['rates_by_rank'])} ranks; {report['verdict']}")
    for name in ("report.html", "report.json"):
        print(f"{name}: {(run / name).stat().st_size / MIB:.1f} MiB")


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.Error, OSError):
        return 0


if __name__ == "__main__":
    main()
