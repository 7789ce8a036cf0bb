"""Counts trucks at a gate over many camera frames: supervision 0.20.0 keeps every lost track.

ByteTrack adds the tracks that it gives up to a list which it never empties. Repaired in 0.21.0
("Fix ever increasing memory consumption in ByteTrack",
https://github.com/roboflow/supervision/pull/1166).
"""

import numpy as np
from supervision import Detections
from supervision.tracker.byte_tracker.core import ByteTrack

FRAMES, LANES, WIDTH, HEIGHT = 900, 16, 1920, 1080
STAY, REPORT_EVERY = 4, 150


class Camera:
    """Yields the boxes that a detector would find: vehicles which cross the picture quickly."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.vehicles = []

    def frame(self):
        self.vehicles = [(x + 25, y, w, left - 1) for x, y, w, left in self.vehicles if left > 1]
        while len(self.vehicles) < LANES:
            lane = self.random.integers(0, 40)
            x = self.random.uniform(0, WIDTH - 400)
            self.vehicles.append((x, 25.0 * lane, self.random.uniform(60, 120), STAY))
        boxes = np.array([(x, y, x + w, y + 24) for x, y, w, _ in self.vehicles], dtype=float)
        return Detections(
            xyxy=boxes,
            confidence=self.random.uniform(0.8, 0.99, len(boxes)),
            class_id=np.zeros(len(boxes), dtype=int),
        )


class Gate:
    def __init__(self):
        self.tracker = ByteTrack()
        self.seen = 0
        self.highest = 0

    def watch(self, detections):
        tracked = self.tracker.update_with_detections(detections)  # feeds
        self.seen += len(tracked)
        if len(tracked.tracker_id):
            self.highest = max(self.highest, int(tracked.tracker_id.max()))


def main():
    camera, gate = Camera(seed=5), Gate()
    for number in range(1, FRAMES + 1):
        gate.watch(camera.frame())
        if number % REPORT_EVERY == 0:
            print(f"frame {number}: {gate.seen} boxes, {gate.highest} vehicles", flush=True)


if __name__ == "__main__":
    main()
