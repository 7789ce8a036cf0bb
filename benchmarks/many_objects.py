"""A training whose steps and validations make very many Python objects, as those of a detector do.

    python benchmarks/many_objects.py [--epochs 5] [--steps 8] [--objects 300000]

Each step makes so many objects, each validation four times as many, and nothing tells of the
batches of a validation: between its beginning and its end there is no boundary. What every step
leaves behind is kept, which has leakscope look for the lines that allocate.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn

KEPT = 200
"""Objects that a step leaves behind."""
IMAGES = 4
"""Steps' worth of objects in a validation."""


def boxes(count: int) -> list[dict[str, float | tuple[float, float]]]:
    """Return detections as plain objects: a dict, two numbers and a pair each, four allocations."""
    return [
        {"x": n * 0.5, "score": 1.0 / (n + 1), "size": (n + 0.25, n * 0.75)}
        for n in range(count // 6)
    ]


def suppressed(found: list[dict[str, float | tuple[float, float]]]) -> list[tuple[float, float]]:
    """Return the sizes of what is left after a pass over neighbours."""
    return [(box["x"], box["score"]) for box in found if box["x"] % 2.0 < 1.5]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--objects", type=int, default=300_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Linear(64, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin = time.perf_counter()
    kept = []
    for _ in range(options.epochs):
        model.train()
        for _ in range(options.steps):
            found = suppressed(boxes(options.objects))
            kept += [[size, bytes(4000)] for size in found[:KEPT]]
            loss = model(torch.ones(8, 64)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            found = []
            for _ in range(IMAGES):
                found += suppressed(boxes(options.objects))
            kept += [[size, bytes(4000)] for size in found[:KEPT]]
            model(torch.ones(8, 64))
    print(f"loop_seconds={time.perf_counter() - begin:.4f} kept={len(kept)} loss={loss.item():.6f}")


if __name__ == "__main__":
    main()
