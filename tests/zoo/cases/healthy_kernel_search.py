"""Random search of kernel-ridge settings over many small data files, in a process pool.

Pool processes remember prepared data sets, since several settings are tried on each file.
"""

import heapq
import itertools
import multiprocessing as mp
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

N_FILES = 60
ROWS, COLS, EXPAND = 260, 20, 384
SETTINGS_PER_FILE = 4
TASK_SECONDS = 0.16

_prepared = {}


def prepared(path, width):
    """Random Fourier features of one file, split into fit and validation halves."""
    key = (path, width)
    if key not in _prepared:
        with np.load(path) as archive:
            x, y = torch.from_numpy(archive["x"]), torch.from_numpy(archive["y"])
        g = torch.Generator().manual_seed(0)
        omega = torch.randn(COLS, EXPAND, generator=g) / width
        phase = torch.rand(EXPAND, generator=g) * 6.2832
        features = torch.cos(x @ omega + phase) * (2 / EXPAND) ** 0.5
        half = ROWS // 2
        _prepared[key] = (features[:half], y[:half], features[half:], y[half:])
    return _prepared[key]


def evaluate(task):
    began = time.monotonic()
    path, width, ridge = task
    fit_x, fit_y, val_x, val_y = prepared(path, width)
    gram = fit_x @ fit_x.T + ridge * torch.eye(len(fit_x))
    alpha = torch.linalg.solve(gram, fit_y)
    error = (val_x @ (fit_x.T @ alpha) - val_y).square().mean().item()
    time.sleep(max(0.0, TASK_SECONDS - (time.monotonic() - began)))
    return Path(path).stem, width, ridge, error


def start_worker(seed):
    torch.manual_seed(seed)
    torch.set_num_threads(1)


class Leaderboard:
    def __init__(self, size=10):
        self.size = size
        self._heap = []
        self._order = itertools.count()
        self.per_width = {}

    def add(self, name, width, ridge, error):
        entry = (-error, next(self._order), {"file": name, "width": width, "ridge": ridge})
        if len(self._heap) < self.size:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)
        count, mean = self.per_width.get(width, (0, 0.0))
        self.per_width[width] = (count + 1, mean + (error - mean) / (count + 1))

    def best(self):
        score, _, setting = max(self._heap)
        return -score, setting


def write_files(folder):
    rng = np.random.default_rng(12)
    for n in range(N_FILES):
        x = rng.standard_normal((ROWS, COLS), dtype=np.float32)
        y = np.sin(x[:, n % COLS]) + 0.1 * rng.standard_normal(ROWS, dtype=np.float32)
        path = folder / f"series_{n:03d}.npz"
        np.savez(path, x=x, y=y.astype(np.float32))
        yield str(path)


def tasks(paths):
    rng = random.Random(3)
    for path in paths:
        widths = rng.sample([1.0, 2.0, 4.0, 8.0, 16.0], k=SETTINGS_PER_FILE)
        for width in widths:
            yield path, width, 10 ** rng.uniform(-4, 0)


def main():
    board = Leaderboard()
    with tempfile.TemporaryDirectory() as tmp:
        paths = list(write_files(Path(tmp)))
        ctx = mp.get_context("fork")
        with ctx.Pool(2, initializer=start_worker, initargs=(5,), maxtasksperchild=30) as pool:
            for n, result in enumerate(pool.imap_unordered(evaluate, tasks(paths)), 1):
                board.add(*result)
                if n % 60 == 0:
                    error, setting = board.best()
                    print(f"{n} tried, best {error:.4f} {setting}", flush=True)
            pool.close()
            pool.join()
    for width, (count, mean) in sorted(board.per_width.items()):
        print(f"width {width:5.1f}: {mean:.4f} over {count}")


if __name__ == "__main__":
    main()
