"""How large a recording gets: bytes per 1,000 boundaries, by kind of record, on the timed loops.

    python benchmarks/recording_size.py [RUN ...] [--loops tiny,convolution,loading] [--quick]

A boundary counts when the training reaches it; not all of them are recorded, and the figure for
those that are is printed next to it. The goal is less than 1 MB per 1,000 boundaries reached.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from variants import LOOP  # noqa: E402

from leakscope.model.record import BoundaryRecord  # noqa: E402
from leakscope.recording.format import (  # noqa: E402
    JournalFrame,
    decode_record,
    read_frames,
)


def record(loop: str, arguments: list[str], run: Path) -> Path:
    """Run a loop under leakscope and return the run directory."""
    command = [sys.executable, "-m", "leakscope", "run", "--quiet", "--no-report"]
    command += ["--out", str(run), LOOP, loop, *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return run


def bytes_by_kind(journal: Path) -> tuple[Counter[str], Counter[str], int]:
    """Return bytes and number of records by kind, and the boundaries that were reached."""
    sizes: Counter[str] = Counter()
    numbers: Counter[str] = Counter()
    reached, kind, begin = 0, "", 0
    with journal.open("rb", buffering=0) as stream:
        for piece in read_frames(stream):
            sizes[kind] += piece.offset - begin
            begin = piece.offset
            kind = ""
            if isinstance(piece, JournalFrame):
                record = decode_record(piece.payload)
                kind = type(record).__name__.removesuffix("Record").lower()
                if isinstance(record, BoundaryRecord):
                    reached = record.boundary.index + 1
            numbers[kind] += 1
    sizes[kind] += journal.stat().st_size - begin
    return sizes, numbers, reached


def tell(name: str, run: Path) -> None:
    """Print the sizes of a run's journals."""
    for journal in sorted(run.glob("*.journal")):
        sizes, numbers, reached = bytes_by_kind(journal)
        recorded, whole = numbers["boundary"], sizes.total()
        print(f"{name}: {whole / 1e6:.2f} MB; {reached:,} boundaries, {recorded:,} recorded")
        if not recorded:
            continue
        print(f"  MB per 1,000 boundaries: {whole / reached / 1e3:.3f}", end="; ")
        print(f"per 1,000 recorded: {whole / recorded / 1e3:.3f}")
        for kind, size in sizes.most_common():
            if numbers[kind] and kind:
                print(f"  {kind:<12} {numbers[kind]:>7,} of {size / numbers[kind]:>8,.0f} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--loops", default="tiny,convolution,loading")
    parser.add_argument("--quick", action="store_true", help="two short epochs, to try it")
    chosen = parser.parse_args()
    for run in chosen.runs:
        tell(run.name, run)
    arguments = ["--epochs", "2", "--steps", "50"] if chosen.quick else ["--epochs", "4"]
    with tempfile.TemporaryDirectory(prefix="leakscope-bench-") as scratch:
        for loop in chosen.loops.split(",") if not chosen.runs else ():
            tell(loop, record(loop, arguments, Path(scratch) / loop))


if __name__ == "__main__":
    main()
