"""Land-cover labelling of raster tiles. Each tile is one job with a stall watchdog."""

import logging
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn

log = logging.getLogger("tiles")

BANDS, SIDE, CLASSES = 4, 176, 5
N_TILES = 170
CADENCE = 0.1
STALL_AFTER = 120.0


class Outcome(Enum):
    LABELLED = "labelled"
    CLOUDY = "cloudy"
    EMPTY = "empty"


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(BANDS, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, CLASSES, 1),
            nn.Upsample(scale_factor=2),
        )

    def forward(self, x):
        return self.net(x).argmax(1)


class TileJob:
    def __init__(self, path, model, out_dir):
        self.path = Path(path)
        self.model = model
        self.out_dir = Path(out_dir)
        self.pixels = None
        self._done = threading.Event()
        self._progress = time.monotonic()

    def _watch(self):
        while not self._done.wait(10.0):
            idle = time.monotonic() - self._progress
            if idle > STALL_AFTER:
                log.warning("%s has made no progress for %.0f s", self.path.name, idle)

    def _load(self):
        raw = np.load(self.path)
        self.pixels = torch.from_numpy(raw.astype(np.float32)) / 10000.0
        self._progress = time.monotonic()

    def _cloud_fraction(self):
        blue, red = self.pixels[0], self.pixels[2]
        return ((blue > 0.35) & (red > 0.3)).float().mean().item()

    def run(self):
        watchdog = threading.Thread(target=self._watch, name=f"watch-{self.path.stem}", daemon=True)
        watchdog.start()
        self._load()
        if self.pixels.abs().sum() == 0:
            self._done.set()
            return Outcome.EMPTY
        if self._cloud_fraction() > 0.4:
            return Outcome.CLOUDY
        with torch.inference_mode():
            labels = self.model(self.pixels.unsqueeze(0))[0].to(torch.uint8)
        self._progress = time.monotonic()
        np.save(self.out_dir / f"{self.path.stem}_lc.npy", labels.numpy())
        self._done.set()
        return Outcome.LABELLED


def synth_tile(path, rng, index):
    if index % 17 == 16:
        tile = np.zeros((BANDS, SIDE, SIDE), np.uint16)
    else:
        high = 9000 if rng.random() < 0.45 else 3500
        tile = rng.integers(0 if high < 5000 else 2500, high, (BANDS, SIDE, SIDE), dtype=np.uint16)
    np.save(path, tile)


def tile_feed(folder, rng):
    due = time.monotonic()
    for index in range(N_TILES):
        path = folder / f"tile_{index:04d}.npy"
        synth_tile(path, rng, index)
        yield path
        due += CADENCE
        time.sleep(max(0.0, due - time.monotonic()))


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(4)
    torch.set_num_threads(1)
    rng = np.random.default_rng(4)
    model = Segmenter().eval()
    tally = dict.fromkeys(Outcome, 0)
    with tempfile.TemporaryDirectory() as tmp, ThreadPoolExecutor(1, "tiles") as pool:
        inbox, outbox = Path(tmp, "in"), Path(tmp, "out")
        inbox.mkdir()
        outbox.mkdir()
        for done, path in enumerate(tile_feed(inbox, rng), 1):
            outcome = pool.submit(TileJob(path, model, outbox).run).result()
            tally[outcome] += 1
            path.unlink()
            if done % 50 == 0:
                log.info("%d tiles: %s", done, {k.value: v for k, v in tally.items()})


if __name__ == "__main__":
    main()
