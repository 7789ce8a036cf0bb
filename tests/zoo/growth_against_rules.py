"""Hold the growth model against the present rules, on what recorded programs kept.

    python tests/zoo/growth_against_rules.py [--only PATTERN] [--jobs N] [--from FOLDER ...] [--all]

Each row of a census that moved, and resident memory, is judged by both from the same readings. A
row is a leak if the program's truth names it, and none in a healthy program; of other rows of
leaking programs nothing is known. Prints the counts, and where one is wrong and the other isn't.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from archive import unpack
from corpus import Case
from judge import SAMPLE, archives, known_cases
from leakscope.analysis.trends import is_growth, judge
from record import CACHE

from leakscope.analysis.case import GAUGE_NOISE_BYTES
from leakscope.analysis.case import Case as RunCase
from leakscope.analysis.growers import ROW_NOISE_BYTES
from leakscope.analysis.growth import judge_growth
from leakscope.analysis.severity import STEADY_BYTES
from leakscope.model.trend import TrendVerdict
from leakscope.recording import open_run

LEAST_GAINED = 0.05 * STEADY_BYTES
"""A row that gained less than this is neither a leak nor an accusation worth the name."""
_INCONCLUSIVE = {TrendVerdict.INCONCLUSIVE}


@dataclass(frozen=True)
class Opinion:
    """What both say of one series."""

    program: str
    series: str
    """A row's name, or the gauge's."""
    kind: str
    """``alike``: comparable censuses; ``all``: every census; ``memory``: the gauge."""
    truth: str
    rules: str
    model: str
    why: str
    points: str

    def is_wrong(self, verdict: str) -> bool:
        if self.truth == "leak":
            return verdict == "bounded"
        return self.truth == "bounded" and verdict == "growing"

    def is_missing(self, verdict: str) -> bool:
        return self.truth != "unknown" and verdict == "inconclusive"


def opinions(archive: Path) -> list[Opinion]:
    """Return what both say of each series of a recording."""
    with TemporaryDirectory(prefix="zoo-") as scratch:
        about = unpack(archive, Path(scratch))
        run = open_run(scratch)
    case = known_cases()[about.name]
    with np.errstate(all="ignore"):
        read = RunCase(run, run.main)
        return [*rows(case, read), *memory(case, read)]


def rows(case: Case, read: RunCase) -> Iterator[Opinion]:
    table = read.table
    for device, values in table.retained.items():
        if values.size == 0:
            continue
        gained = np.ptp(np.nan_to_num(values), axis=1)
        for path in np.flatnonzero(gained >= LEAST_GAINED).tolist():
            row = table.latest[path]
            truth = truth_of(case, row.name)
            if row.root.value in {"garbage", "native"} or not row.user:
                continue
            columns, _ = read.comparables.series(path, device)
            every = np.flatnonzero(table.covered(path) & (table.at <= read.track.last_work))
            every = every[np.cumsum(np.isfinite(values[path, every])) > 0]
            for kind, chosen in (("alike", columns), ("all", every)):
                if len(chosen) > 1:
                    x = read.track.index[table.at[chosen]].astype(np.float64)
                    y = np.nan_to_num(values[path, chosen])
                    yield opinion(case, row.name, kind, truth, x, y, ROW_NOISE_BYTES)


def memory(case: Case, read: RunCase) -> Iterator[Opinion]:
    x, y = read.gauge_series(read.host_metric)
    truth = (
        "leak" if case.leaks and all(one.growth == "across" for one in case.leaks) else "unknown"
    )
    truth = truth if case.leaks else "bounded"
    if len(x) > 1:
        yield opinion(case, read.host_metric, "memory", truth, x, y, GAUGE_NOISE_BYTES)
    known = read.track.known(read.host_metric)
    known = known[known <= read.track.last_work]
    if len(known) > 1:
        x, y = read.work_done[known], read.track.gauge(read.host_metric)[known]
        yield opinion(case, read.host_metric, "memory, all", truth, x, y, GAUGE_NOISE_BYTES)


def truth_of(case: Case, name: str) -> str:
    if not case.leaks:
        return "bounded"
    names = {name for leak in case.leaks if leak.growth == "across" for name in leak.names}
    return "leak" if name in names else "unknown"


def opinion(
    case: Case, name: str, kind: str, truth: str, x: np.ndarray, y: np.ndarray, noise: float
) -> Opinion:
    growth = judge_growth(x, y, noise=noise)
    trend = judge(x, y, unit="", noise_bytes=noise)
    rules = "growing" if is_growth(trend.verdict) else "bounded"
    rules = "inconclusive" if trend.verdict in _INCONCLUSIVE else rules
    shown = " ".join(f"{a:g}:{b / (1 << 20):.2f}" for a, b in zip(x[:40], y[:40], strict=True))
    why = f"model: {growth.reason.value} from {growth.tail_from:g}; rules: {trend.reason}"
    return Opinion(case.name, name, kind, truth, rules, growth.verdict.value, why, shown)


def print_counts(every: list[Opinion]) -> None:
    print(f"{'series':12} {'truth':8} {'':7} growing bounded inconclusive  wrong")
    for kind in dict.fromkeys(one.kind for one in every):
        for truth in ("leak", "bounded", "unknown"):
            mine = [one for one in every if (one.kind, one.truth) == (kind, truth)]
            for judge_name in ("rules", "model"):
                said = [getattr(one, judge_name) for one in mine]
                counts = Counter(said)
                wrong = sum(one.is_wrong(v) for one, v in zip(mine, said, strict=True))
                figures = f"{counts['growing']:7} {counts['bounded']:7} {counts['inconclusive']:12}"
                print(f"{kind:12} {truth:8} {judge_name:7} {figures} {wrong:6}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="*", metavar="PATTERN")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--from", dest="folders", type=Path, action="append")
    parser.add_argument("--all", action="store_true", help="also where only certainty differs")
    arguments = parser.parse_args()
    files = archives(arguments.folders or [CACHE, SAMPLE], arguments.only)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        every = [one for found in pool.map(opinions, files) for one in found]
    for one in every:
        is_error = one.is_wrong(one.model) or one.is_wrong(one.rules)
        if (one.model != one.rules or arguments.all) and (
            is_error or (arguments.all and one.truth != "unknown")
        ):
            print(f"{one.program} {one.series} ({one.kind}): {one.truth}")
            print(f"    rules {one.rules}, model {one.model}: {one.why}\n    {one.points}")
    print_counts(every)


if __name__ == "__main__":
    main()
