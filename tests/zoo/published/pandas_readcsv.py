"""Collects the exports of electricity meters: pandas 2.2.0 loses blocks of each file that it reads.

Repaired in 2.2.1 ("Fixed memory leak in read_csv()",
https://github.com/pandas-dev/pandas/issues/57039). The blocks are small, but the freed memory
between them can't be used again.
"""

import logging
import random
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

POLLS = 60
METERS = 12
ROWS_PER_FILE = 96
CHANNELS = ["u1", "u2", "u3", "i1", "i2", "i3", "p_kw", "temp_c"]

log = logging.getLogger("collector")


class MeterSimulator:
    """Writes files that look like the exports of the real meters."""

    def __init__(self, spool: Path, seed: int):
        self.spool = spool
        self.rng = np.random.default_rng(seed)

    def drop_export(self, meter: int, poll: int) -> Path:
        start = pd.Timestamp("2024-01-01") + pd.Timedelta(days=poll)
        stamps = pd.date_range(start, periods=ROWS_PER_FILE, freq="15min")
        values = self.rng.normal(loc=50.0, scale=8.0, size=(ROWS_PER_FILE, len(CHANNELS)))
        path = self.spool / f"meter{meter:03d}-{poll:05d}.csv"
        lines = ["stamp,meter," + ",".join(CHANNELS)]
        for stamp, row in zip(stamps, values, strict=False):
            cells = ["" if self.rng.random() < 0.01 else f"{v:.3f}" for v in row]
            lines.append(f"{stamp:%Y-%m-%d %H:%M},M{meter:03d}," + ",".join(cells))
        path.write_text("\n".join(lines) + "\n")
        return path


@dataclass
class Profile:
    """Sum and count per quarter of an hour, for every channel."""

    sums: np.ndarray = field(default_factory=lambda: np.zeros((ROWS_PER_FILE, len(CHANNELS))))
    counts: np.ndarray = field(default_factory=lambda: np.zeros((ROWS_PER_FILE, len(CHANNELS))))

    def add(self, frame: pd.DataFrame) -> None:
        block = frame[CHANNELS].to_numpy(dtype=float)
        known = ~np.isnan(block)
        self.sums[: len(block)] += np.where(known, block, 0.0)
        self.counts[: len(block)] += known

    def mean(self) -> np.ndarray:
        return self.sums / np.maximum(self.counts, 1)


def read_export(path: Path) -> pd.DataFrame:
    frame = pd.read_csv(path)  # feeds
    frame["stamp"] = pd.to_datetime(frame["stamp"])
    return frame


def check_export(frame: pd.DataFrame, path: Path) -> int:
    """Returns the number of missing readings; complains about broken files."""
    if len(frame) != ROWS_PER_FILE:
        raise ValueError(f"{path.name}: {len(frame)} rows")
    if not frame["stamp"].is_monotonic_increasing:
        raise ValueError(f"{path.name}: stamps out of order")
    return int(frame[CHANNELS].isna().to_numpy().sum())


class Collector:
    def __init__(self, spool: Path):
        self.spool = spool
        self.profiles = {meter: Profile() for meter in range(METERS)}
        self.files = 0
        self.missing = 0

    def run_poll(self, poll: int, simulator: MeterSimulator) -> None:
        for meter in range(METERS):
            path = simulator.drop_export(meter, poll)
            frame = read_export(path)
            self.missing += check_export(frame, path)
            self.profiles[meter].add(frame)
            self.files += 1
            path.unlink()
            time.sleep(0.02)  # the meters answer one after the other

    def fleet_mean_kw(self) -> float:
        column = CHANNELS.index("p_kw")
        return float(np.mean([p.mean()[:, column].mean() for p in self.profiles.values()]))


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    random.seed(7)
    spool = Path(tempfile.mkdtemp(prefix="meters-"))
    try:
        simulator = MeterSimulator(spool, seed=7)
        collector = Collector(spool)
        for poll in range(1, POLLS + 1):
            collector.run_poll(poll, simulator)
            if poll % 3 == 0:
                print(
                    f"poll {poll}/{POLLS}: {collector.files} files, "
                    f"{collector.missing} gaps, fleet mean {collector.fleet_mean_kw():.2f} kW",
                    flush=True,
                )
    finally:
        shutil.rmtree(spool, ignore_errors=True)
    print("done:", collector.files, "files")


if __name__ == "__main__":
    main()
