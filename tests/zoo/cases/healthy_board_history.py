"""The game of life with a history of the last 120 boards for undo."""

import tempfile
import time
from collections import deque

import numpy as np


class Board:
    def __init__(self, rng, size=336):
        self.cells = (rng.random((size, size)) < 0.2).astype(np.uint8)
        self.history = deque(maxlen=120)

    def step(self):
        self.history.append(self.cells)
        c = self.cells
        around = sum(np.roll(c, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b)
        self.cells = ((around == 3) | ((c == 1) & (around == 2))).astype(np.uint8)

    def undo(self, count):
        for _ in range(min(count, len(self.history))):
            self.cells = self.history.pop()


def main():
    rng = np.random.default_rng(2)
    board = Board(rng)
    with tempfile.TemporaryFile() as snapshot:
        for generation in range(2000):
            board.step()
            if generation % 250 == 249:
                board.undo(20)
                board.cells ^= (rng.random(board.cells.shape) < 0.02).astype(np.uint8)
            if generation % 50 == 0:
                snapshot.seek(0)
                np.save(snapshot, board.cells)
                print("generation", generation, "alive", int(board.cells.sum()))
            time.sleep(0.008)


if __name__ == "__main__":
    main()
