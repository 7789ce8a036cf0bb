"""Searches satellite scenes for bright spots and collects small patches around them."""

import time

import numpy as np


class PatchCollector:
    def __init__(self, threshold, size=16):
        self.threshold = threshold
        self.size = size
        self.patches = []

    def scan(self, scene):
        row, column = np.unravel_index(scene.argmax(), scene.shape)
        if scene[row, column] < self.threshold:
            return
        half = self.size // 2
        r, c = max(row - half, 0), max(column - half, 0)
        self.patches.append(scene[r : r + self.size, c : c + self.size])  # feeds

    def mean_patch(self):
        full = [p for p in self.patches if p.shape == (self.size, self.size)]
        return np.mean(full, axis=0) if full else None


def acquire(rng, number):
    scene = rng.standard_normal((1024, 512), dtype=np.float32)
    if number % 4 == 1:
        scene[rng.integers(1024), rng.integers(512)] = 30
    return scene


def main():
    rng = np.random.default_rng(0)
    collector = PatchCollector(threshold=20)
    for number in range(480):
        scene = acquire(rng, number)
        scene = np.clip(scene, -5, 50)
        collector.scan(scene)
        time.sleep(0.008)
        if number % 60 == 0:
            print("scene", number, "patches", len(collector.patches))
    print(collector.mean_patch().max())


if __name__ == "__main__":
    main()
