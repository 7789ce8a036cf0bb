"""From a recording of 100,000 boundaries and 300 censuses to its report: seconds, memory, sizes.

    python benchmarks/report_time.py [RUN ...] [--rounds 3] [--boundaries 100000] [--censuses 300]

Without a RUN two programs of `examples/` are recorded and their epochs repeated until they are
long (`long_recording.py`); a RUN is taken as it is. The goal is 5 s for the whole command, and 2 s
until headless Chromium shows the page (`page_opening.py`), which has 2 MB at most.
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

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from long_recording import stretch  # noqa: E402
from page_opening import opening  # noqa: E402

from leakscope.analysis import analyse  # noqa: E402
from leakscope.recording import open_run  # noqa: E402
from leakscope.report import render_html, render_json  # noqa: E402

PROGRAMS = ("detector", "segmentation")


def record(program: str, folder: Path) -> Path:
    """Return a run of one of the examples."""
    run = folder / f"{program}-short"
    script = str(ROOT / "examples" / program / "train.py")
    leakscope("run", "--quiet", "--no-report", "--out", str(run), script)
    return run


def leakscope(*arguments: str) -> dict[str, float]:
    """Run a command; return its seconds, those of the processor, and the most MiB that it held."""
    command = [sys.executable, "-m", "leakscope", *arguments]
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as reported:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=reported, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        elapsed = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            reported.seek(0)
            sys.exit(f"leakscope {arguments[0]} failed: {reported.read()[-500:]}")
    return {
        "whole command, s": elapsed,
        "… of the processor, s": usage.ru_utime + usage.ru_stime,
        "… most memory, MiB": usage.ru_maxrss / 1024,
    }


def timed(run_path: Path) -> dict[str, float]:
    """Return the figures of one round by name."""
    command = leakscope("report", str(run_path))
    begun = time.perf_counter()
    run = open_run(run_path)
    read = time.perf_counter()
    report = analyse(run)
    analysed = time.perf_counter()
    render_html(report)
    shown = time.perf_counter()
    render_json(report)
    return {
        **command,
        "reading, s": read - begun,
        "analysis, s": analysed - read,
        "page, s": shown - analysed,
        "JSON, s": time.perf_counter() - shown,
        **opening(run_path / "report.html"),
    }


def tell(run_path: Path, rounds: int) -> None:
    """Time a run's report and print the figures."""
    reported = [timed(run_path) for _ in range(rounds)]
    measurements = open_run(run_path).main.measurements
    censuses = [m.census for m in measurements if m.census is not None]
    rows = statistics.mean(len(census.rows) for census in censuses) if censuses else 0
    print(f"{run_path.name}: {len(measurements):,} boundaries, {len(censuses)} censuses", end=" ")
    print(f"of {rows:.0f} rows; {rounds} rounds")
    for name in reported[0]:
        values = [item[name] for item in reported]
        low, high = min(values), max(values)
        print(f"  {name:<26} {statistics.median(values):8.2f} ({low:.2f}–{high:.2f})")
    journal = sum(path.stat().st_size for path in run_path.glob("*.journal"))
    for name, size in (("journal", journal), ("page", (run_path / "report.html").stat().st_size)):
        print(f"  {name + ', MB':<26} {size / 1e6:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--boundaries", type=int, default=100_000)
    parser.add_argument("--censuses", type=int, default=300)
    parser.add_argument("--quick", action="store_true", help="a recording of a tenth, one round")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds, chosen.boundaries = 1, chosen.boundaries // 10
    for run in chosen.runs:
        tell(run, chosen.rounds)
    with tempfile.TemporaryDirectory(prefix="leakscope-bench-") as scratch:
        for program in PROGRAMS if not chosen.runs else ():
            short = record(program, Path(scratch))
            sizes = {"boundaries": chosen.boundaries, "censuses": chosen.censuses}
            tell(stretch(short, Path(scratch) / program, **sizes), chosen.rounds)


if __name__ == "__main__":
    main()
