"""Classifies crops of a picture: OpenCV 4.12.0 loses the numbers of each small array it gets.

Repaired in 4.13.0 ("Fix memory leaks in pybindings", https://github.com/opencv/opencv/pull/27738).
"""

import time
from dataclasses import dataclass, field

import cv2
import numpy as np

FRAMES = 6400
REPORT_EVERY = 320
CROP = 40
OBJECTS = 14
WIDTH, HEIGHT = 320, 240

# The constants of the training set, in RGB as the paper gives them.
MEAN_RGB = np.array([123.675, 116.28, 103.53])
STD_RGB = np.array([58.395, 57.12, 57.375])

CLASSES = {"ball": (40, 80, 220), "box": (60, 190, 70), "cone": (200, 120, 40)}


class Scene:
    """Shapes that bounce off the borders of the picture."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.noise = self.rng.integers(90, 130, size=(HEIGHT, WIDTH, 3), dtype=np.uint8)
        self.place = self.rng.uniform((30, 30), (WIDTH - 30, HEIGHT - 30), size=(OBJECTS, 2))
        self.speed = self.rng.normal(0.0, 3.0, size=(OBJECTS, 2))
        self.kind = self.rng.choice(list(CLASSES), size=OBJECTS)

    def step(self) -> None:
        self.place += self.speed
        for axis, size in ((0, WIDTH), (1, HEIGHT)):
            outside = (self.place[:, axis] < 24) | (self.place[:, axis] > size - 24)
            self.speed[outside, axis] *= -1.0
            self.place[:, axis] = np.clip(self.place[:, axis], 24, size - 24)

    def draw(self) -> np.ndarray:
        frame = self.noise.copy()
        for (x, y), kind in zip(self.place.astype(int).tolist(), self.kind, strict=False):
            colour = CLASSES[kind]
            if kind == "ball":
                cv2.circle(frame, (x, y), 14, colour, -1)
            elif kind == "box":
                cv2.rectangle(frame, (x - 13, y - 13), (x + 13, y + 13), colour, -1)
            else:
                points = np.array([[x, y - 15], [x - 13, y + 13], [x + 13, y + 13]], dtype=np.int32)
                cv2.fillPoly(frame, [points], colour)
        return frame

    def boxes(self) -> list:
        """What the motion detector would report: x, y, width, height."""
        return [(x - 20, y - 20, 40, 40) for x, y in self.place.astype(int).tolist()]


def normalise(crop: np.ndarray) -> np.ndarray:
    """From BGR bytes to what the network was trained on (channels are BGR here)."""
    values = crop.astype(np.float32)
    values = cv2.subtract(values, MEAN_RGB[::-1])  # feeds
    return cv2.divide(values, STD_RGB[::-1])  # feeds


def describe(values: np.ndarray) -> np.ndarray:
    """A small descriptor: pooled colours and the energy of the edges."""
    pooled = cv2.resize(values, (4, 4), interpolation=cv2.INTER_AREA).ravel()
    grey = values.sum(axis=2)
    edges = [float(np.abs(cv2.Sobel(grey, cv2.CV_32F, dx, 1 - dx)).mean()) for dx in (0, 1)]
    return np.concatenate([pooled, edges])


@dataclass
class Classifier:
    prototypes: dict = field(default_factory=dict)

    def learn(self, samples: dict) -> None:
        for name, crops in samples.items():
            self.prototypes[name] = np.mean([describe(normalise(crop)) for crop in crops], axis=0)

    def classify(self, crop: np.ndarray) -> str:
        feature = describe(normalise(crop))
        return min(
            self.prototypes, key=lambda name: float(np.linalg.norm(feature - self.prototypes[name]))
        )


def cut(frame: np.ndarray, box: tuple) -> np.ndarray:
    x, y, width, height = box
    patch = frame[max(y, 0) : y + height, max(x, 0) : x + width]
    return cv2.resize(patch, (CROP, CROP), interpolation=cv2.INTER_LINEAR)


def main() -> None:
    scene = Scene(seed=9)
    samples = {name: [] for name in CLASSES}
    for _ in range(10):
        scene.step()
        frame = scene.draw()
        for box, kind in zip(scene.boxes(), scene.kind, strict=False):
            samples[kind].append(cut(frame, box))
    classifier = Classifier()
    classifier.learn({name: crops for name, crops in samples.items() if crops})

    right = crops = 0
    for number in range(1, FRAMES + 1):
        scene.step()
        frame = scene.draw()
        for box, kind in zip(scene.boxes(), scene.kind, strict=False):
            right += classifier.classify(cut(frame, box)) == kind
            crops += 1
        time.sleep(0.001)  # until the camera has the next picture
        if number % REPORT_EVERY == 0:
            print(f"frame {number}/{FRAMES}: {crops} crops, {right / crops:.1%} right", flush=True)
    print("done:", crops, "crops")


if __name__ == "__main__":
    main()
