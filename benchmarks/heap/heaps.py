"""Heaps to measure on: each a function of a size and a seed, the same objects every time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

OBJECTS_PER_STEP = 88
"""How many objects one step of the mix adds, about; the engine counts them exactly."""

OBJECTS_PER_RECORD = 5
"""A dict, a list, a float and two ints."""

LABELS = [f"class {number}" for number in range(80)]


class Record:
    """What a training loop notes of a step: an instance with a ``__dict__``."""

    def __init__(self, step: int, loss: float, tags: list[str], metrics: dict[str, float]) -> None:
        self.step = step
        self.loss = loss
        self.tags = tags
        self.metrics = metrics
        self.previous: Record | None = None


class Box:
    """A detection: an instance with slots."""

    __slots__ = ("height", "label", "left", "score", "top", "width")

    def __init__(self, random_: random.Random, label: str) -> None:
        self.left, self.top = random_.random(), random_.random()
        self.width, self.height = random_.random(), random_.random()
        self.score = random_.random()
        self.label = label


class Run:
    """The owner of everything: its attributes are the containers that grow."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.boxes: dict[str, list[Box]] = {}
        self.rows: list[tuple[int, float, str]] = []
        self.history: dict[str, list[list[float]]] = {"train": [], "validation": []}
        self.outputs: list[torch.Tensor] = []
        self.images: list[np.ndarray] = []
        self.callbacks: list[Callable[[], float]] = []
        self.seen: set[str] = set()


def mix(objects: int, seed: int = 0) -> Run:
    """Return a run that has kept what real ones keep: about as many objects as asked for."""
    run, random_ = Run(), random.Random(seed)
    for step in range(max(1, objects // OBJECTS_PER_STEP)):
        _take_step(run, step, random_)
    return run


def _take_step(run: Run, step: int, random_: random.Random) -> None:
    labels = random_.choices(LABELS, k=3)
    metrics = {name: random_.random() for name in ("accuracy", "precision", "recall")}
    record = Record(step, random_.random(), labels, metrics)
    if run.records and step % 2:  # in pairs: a chain through all is a heap of its own
        record.previous = run.records[-1]
    run.records.append(record)
    run.boxes[f"image {step}"] = [Box(random_, label) for label in labels]
    run.rows += [(step * 1000 + i, random_.random(), f"row {step}.{i}") for i in range(8)]
    split = "validation" if step % 5 == 0 else "train"
    run.history[split].append([random_.random() for _ in range(12)])
    run.seen.update(f"sample {step}.{i}" for i in range(10))
    run.outputs.append(torch.full((8,), random_.random()))
    run.images.append(np.full(16, step, dtype=np.float32))
    run.callbacks.append(_make_callback(record, run.rows[-1]))


def _make_callback(record: Record, row: tuple[int, float, str]) -> Callable[[], float]:
    def improvement() -> float:
        return record.loss - row[1]

    return improvement


def plain(objects: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return dicts with lists and numbers in them, about as many objects as asked for."""
    random_ = random.Random(seed)
    return [
        {"values": [random_.random(), 1_000 + i], "id": 1_000_000 + i}
        for i in range(objects // OBJECTS_PER_RECORD)
    ]


def chain(objects: int, seed: int = 0) -> Record:
    """Return the last record of a linked list: each refers to the one before."""
    random_ = random.Random(seed)
    last = Record(0, 0.0, [], {})
    for step in range(1, objects):
        record = Record(step, random_.random(), last.tags, last.metrics)
        record.previous = last
        last = record
    return last


def table(objects: int, seed: int = 0) -> dict[int, float]:
    """Return one dict with as many entries."""
    random_ = random.Random(seed)
    return {1_000_000 + i: random_.random() for i in range(objects)}


def nest(objects: int, seed: int = 0) -> list[Any]:
    """Return a list in a list in a list, as deep as asked for."""
    inner: list[Any] = [random.Random(seed).random()]
    for _ in range(objects - 1):
        inner = [inner]
    return inner


HEAPS: dict[str, Callable[..., Any]] = {
    "mix": mix,
    "plain": plain,
    "chain": chain,
    "table": table,
    "nest": nest,
}
FIXED_SIZES = {"chain": 200_000, "table": 1_000_000, "nest": 100_000}
"""Sizes of the heaps that come in one size only."""
