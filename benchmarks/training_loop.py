"""The loops that `overhead.py` times, each as people write it, validation after every epoch.

    python benchmarks/training_loop.py [tiny|convolution|loading|objects] [--epochs N] [--steps N]

`tiny` is a step of one or two milliseconds, where whatever is done at a step tells most;
`convolution` one of some twenty; `loading` a cheap step that waits for several DataLoader workers;
`objects` a cheap step that makes thousands of small Python objects and keeps some for a while.
"""

from __future__ import annotations

import argparse
import resource
import time
import tracemalloc
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch._dynamo  # optimizers import it at their first step: seconds that belong to no loop
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

WORKERS = 3
VALIDATION = 20
"""Batches of a validation."""
NOTES_PER_SAMPLE = 40
KEPT_NOTES = 200
"""Steps whose notes are kept: some 700,000 objects."""


class Augmented(Dataset):
    """Images that are made when they are asked for, some tenths of a millisecond each."""

    def __init__(self, images: int) -> None:
        self.images = images

    def __len__(self) -> int:
        return self.images

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        image = torch.rand(3, 40, 40, generator=generator)
        crop = image[:, index % 8 : index % 8 + 32, index % 5 : index % 5 + 32].flip(2)
        return (crop - crop.mean()) / crop.std(), index % 10


def perceptron(side: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(3 * side * side, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def convolutions(width: int = 48) -> nn.Module:
    def block(inner: int, outer: int, stride: int) -> nn.Module:
        convolution = nn.Conv2d(inner, outer, 3, stride=stride, padding=1)
        return nn.Sequential(convolution, nn.BatchNorm2d(outer), nn.ReLU())

    return nn.Sequential(
        block(3, width, 1),
        block(width, width, 2),
        block(width, 2 * width, 2),
        block(2 * width, 2 * width, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 10),
    )


def in_memory(side: int, batches: int, seed: int) -> DataLoader:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(batches * 16, 3, side, side, generator=generator)
    labels = torch.randint(0, 10, (batches * 16,), generator=generator)
    return DataLoader(TensorDataset(images, labels), batch_size=16)


def by_workers(batches: int, seed: int) -> DataLoader:
    return DataLoader(Augmented(batches * 16), batch_size=16, num_workers=WORKERS)


class Notes:
    """What a step that is heavy on Python notes of each of its samples; the latest are kept."""

    def __init__(self) -> None:
        self._latest: deque[list[dict[str, object]]] = deque(maxlen=KEPT_NOTES)

    def add(self, step: int, labels: torch.Tensor) -> None:
        """Make a few thousand small objects."""
        self._latest.append(
            [
                {"step": step, "id": f"{step}.{i}", "label": label, "scores": [i * 0.5, label / 3]}
                for label in labels.tolist()
                for i in range(NOTES_PER_SAMPLE)
            ]
        )


@dataclass(frozen=True)
class Loop:
    model: Callable[[], nn.Module]
    loader: Callable[[int, int], DataLoader]
    epochs: int
    steps: int
    takes_notes: bool = False


LOOPS = {
    "tiny": Loop(partial(perceptron, 16), partial(in_memory, 16), 12, 4000),
    "convolution": Loop(convolutions, partial(in_memory, 32), 12, 200),
    "loading": Loop(partial(perceptron, 32), by_workers, 12, 800),
    "objects": Loop(partial(perceptron, 16), partial(in_memory, 16), 12, 2000, takes_notes=True),
}


def train(loop: Loop, epochs: int, steps: int, at_epoch_end: Callable[[], object]) -> float:
    """Return the last loss."""
    torch.manual_seed(0)
    model = loop.model()
    optimizer = torch.optim.AdamW(model.parameters())
    training, validation = loop.loader(steps, 1), loop.loader(VALIDATION, 2)
    notes = Notes() if loop.takes_notes else None
    last = 0.0
    for _ in range(epochs):
        model.train()
        for step, (images, labels) in enumerate(training):
            if notes is not None:
                notes.add(step, labels)
            loss = functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            last = loss.item()
        model.eval()
        correct = 0
        with torch.no_grad():
            for images, labels in validation:
                correct += int((model(images).argmax(dim=1) == labels).sum())
        at_epoch_end()
    return last


def watcher(name: str) -> Callable[[], object]:
    """Return what a peer that is called by hand is called with, at the end of every epoch."""
    if name == "pympler":
        from pympler.tracker import SummaryTracker

        return SummaryTracker().diff
    if name == "objgraph":
        import objgraph

        return objgraph.growth
    return lambda: None


def processor_s() -> float:
    """Return processor time so far: all threads, and the workers that have ended."""
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + workers.ru_utime + workers.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("loop", nargs="?", choices=LOOPS, default="convolution")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--each-epoch", choices=("pympler", "objgraph"), default="")
    parser.add_argument("--tracemalloc", type=int, default=0, metavar="FRAMES")
    options = parser.parse_args()
    if options.tracemalloc:
        tracemalloc.start(options.tracemalloc)
    loop = LOOPS[options.loop]
    epochs, steps = options.epochs or loop.epochs, options.steps or loop.steps
    torch.set_num_threads(1)
    begin, cpu_begin = time.perf_counter(), processor_s()
    last = train(loop, epochs, steps, watcher(options.each_epoch))
    seconds, cpu_seconds = time.perf_counter() - begin, processor_s() - cpu_begin
    print(f"loop_seconds={seconds:.4f} loop_cpu_seconds={cpu_seconds:.4f} last_loss={last:.6f}")


if __name__ == "__main__":
    main()
