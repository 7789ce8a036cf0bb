"""Scores batches by traced closures: langsmith 0.7.9 keeps the functions that it inspected.

A cache of a thousand entries holds each closure, and with it the batch. Repaired in 0.7.10 ("memory
leak in _cached_attachment_args when tracing closures",
https://github.com/langchain-ai/langsmith-sdk/issues/2514).
"""

import time
from collections import Counter

import torch
from langsmith import traceable, tracing_context
from torch import nn

BATCHES, PER_SECOND, BATCH, WIDTH, CLASSES = 480, 40, 96, 160, 6
REPORT_EVERY = 80


class Board:
    """Counts the traced calls and what they found, as the tracker's page shows them."""

    def __init__(self):
        self.calls = Counter()
        self.means = {}

    def add(self, name, value):
        self.calls[name] += 1
        self.means[name] = self.means.get(name, value) * 0.98 + value * 0.02


def score(model, inputs, labels, board):
    """Score one batch by each metric; each is traced as a run of its own."""
    with torch.no_grad():
        logits = model(inputs)

    @traceable(name="accuracy")
    def accuracy():
        return float((logits.argmax(1) == labels).float().mean())

    @traceable(name="margin")
    def margin(floor):
        """How far the right class lies above the others, among inputs that aren't faint."""
        clear = inputs.norm(dim=1) > floor
        best = logits[clear].topk(2, dim=1).values
        return float((best[:, 0] - best[:, 1]).mean())

    board.add("accuracy", accuracy())  # feeds
    board.add("margin", margin(1.0))  # feeds


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    truth, board, begun = torch.randn(WIDTH, CLASSES), Board(), time.monotonic()
    with tracing_context(enabled="local"):
        for number in range(1, BATCHES + 1):
            time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
            inputs = torch.randn(BATCH, WIDTH)
            labels = (inputs @ truth).argmax(1)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            score(model, inputs, labels, board)
            if number % REPORT_EVERY == 0:
                means = {name: round(mean, 3) for name, mean in board.means.items()}
                print(f"batch {number}: {means}", flush=True)
    print(dict(board.calls))


if __name__ == "__main__":
    main()
