"""Logs a furnace to HDF5: h5py 3.15.1 loses a reference to the key of each handle that it drops.

Repaired in 3.16.0 ("Fixed a memory leak involving the object registry",
https://github.com/h5py/h5py/issues/2771, pull request 2783).
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

BATCHES = 180
SAMPLES_PER_BATCH = 300
REPORT_EVERY = 6
SENSORS = 8


class Furnace:
    """A heat-up, hold and cool-down curve with noise on eight sensors."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.offsets = self.rng.normal(0.0, 2.0, size=SENSORS)

    def setpoint(self, sample: int) -> float:
        share = sample / SAMPLES_PER_BATCH
        if share < 0.3:
            return 25.0 + 800.0 * share / 0.3
        if share < 0.7:
            return 825.0
        return 825.0 - 700.0 * (share - 0.7) / 0.3

    def read(self, sample: int) -> np.ndarray:
        return self.setpoint(sample) + self.offsets + self.rng.normal(0.0, 1.5, size=SENSORS)


@dataclass
class Limits:
    low: float = 15.0
    high: float = 835.0

    def broken_by(self, values: np.ndarray) -> bool:
        return bool(values.min() < self.low or values.max() > self.high)


class BatchLog:
    """The group of one batch: its curve and what is known about it by now."""

    def __init__(self, file: h5py.File, number: int):
        self.group = file.create_group(f"batch_{number:04d}")
        self.group.create_dataset(
            "curve",
            shape=(0, SENSORS),
            maxshape=(None, SENSORS),
            chunks=(SAMPLES_PER_BATCH, SENSORS),
            dtype="f4",
        )
        self.group.attrs["number"] = number
        self.group.attrs["alarms"] = 0

    def append(self, values: np.ndarray) -> None:
        curve = self.group["curve"]  # feeds
        row = curve.shape[0]  # feeds
        curve.resize(row + 1, axis=0)  # feeds
        curve[row] = values  # feeds
        self.group.attrs["samples"] = row + 1  # feeds
        self.group.attrs["newest"] = float(values.mean())  # feeds

    def count_alarm(self) -> None:
        self.group.attrs["alarms"] += 1

    def close(self) -> tuple:
        curve = self.group["curve"][:]
        self.group.attrs["peak"] = float(curve.max())
        self.group.attrs["hold"] = float(np.median(curve))
        return float(curve.max()), int(self.group.attrs["alarms"])


class Shift:
    def __init__(self, folder: Path, furnace: Furnace, limits: Limits):
        self.folder = folder
        self.furnace = furnace
        self.limits = limits
        self.peak = 0.0
        self.alarms = 0
        self.bytes = 0

    def record(self, path: Path, number: int) -> None:
        with h5py.File(path, "w", libver="latest") as file:
            batch = BatchLog(file, number)
            for sample in range(SAMPLES_PER_BATCH):
                values = self.furnace.read(sample)
                batch.append(values)
                if self.limits.broken_by(values):
                    batch.count_alarm()
            peak, alarms = batch.close()
        self.peak = max(self.peak, peak)
        self.alarms += alarms

    def hand_over(self, path: Path) -> None:
        self.bytes += path.stat().st_size
        path.unlink()

    def run(self) -> None:
        for number in range(1, BATCHES + 1):
            path = self.folder / f"batch_{number:04d}.h5"
            self.record(path, number)
            self.hand_over(path)
            if number % REPORT_EVERY == 0:
                print(
                    f"batch {number}/{BATCHES}: peak {self.peak:.1f}, "
                    f"{self.alarms} alarms, {self.bytes >> 10} KiB",
                    flush=True,
                )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="furnace-") as folder:
        shift = Shift(Path(folder), Furnace(seed=21), Limits())
        shift.run()
    print(f"done: {BATCHES} batches, {shift.alarms} alarms")


if __name__ == "__main__":
    main()
