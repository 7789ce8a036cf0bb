"""Builds scene graphs with parent links (reference cycles) and collects them now and then."""

import gc
import time

import numpy as np

FRAMES = 900


class Node:
    def __init__(self, parent, mesh):
        self.parent = parent
        self.children = []
        self.mesh = mesh
        if parent is not None:
            parent.children.append(self)

    def area(self):
        own = 0.0
        if self.mesh is not None:
            a = self.mesh[1::3] - self.mesh[0::3]
            b = self.mesh[2::3] - self.mesh[0::3]
            own = float(np.linalg.norm(np.cross(a, b), axis=1).sum() / 2)
        return own + sum(c.area() for c in self.children)


class Scene:
    def __init__(self, rng, depth=2, width=4):
        self.root = Node(None, None)
        self.count = 1
        self._grow(self.root, rng, depth, width)

    def _grow(self, node, rng, depth, width):
        if depth == 0:
            return
        for _ in range(width):
            child = Node(node, rng.normal(0, 1, (900, 3)).astype(np.float32))
            self.count += 1
            self._grow(child, rng, depth - 1, width)


class Sweeper:
    """Cycles are collected every `every` frames, not by the automatic collector."""

    def __init__(self, every):
        self.every = every
        self.pending = 0
        self.swept = 0

    def frame_done(self):
        self.pending += 1
        if self.pending >= self.every:
            self.swept += gc.collect()
            self.pending = 0


def main():
    gc.disable()  # avoid collector pauses in the middle of a frame
    rng = np.random.default_rng(41)
    sweeper = Sweeper(every=90)
    smoothed = None
    start = time.time()
    for frame in range(FRAMES):
        scene = Scene(rng)
        area = scene.root.area()
        smoothed = area if smoothed is None else 0.98 * smoothed + 0.02 * area
        sweeper.frame_done()
        time.sleep(0.008)
        if frame % 100 == 99:
            print(
                f"frame {frame + 1} nodes {scene.count} area {smoothed:.0f} swept {sweeper.swept}",
                flush=True,
            )
    print(f"done in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
