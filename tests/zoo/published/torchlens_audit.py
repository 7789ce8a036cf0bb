"""Trains a classifier and audits its layers now and then: torchlens 2.28.0 keeps each trace.

A cache by weak keys holds calls of modules, which hold the trace that is their key. Repaired in
2.29.0, which isn't on the package index, and so in 2.29.1 ("remove leaking module-call accessor
cache", https://github.com/johnmarktaylor91/torchlens/commit/3912389d).
"""

import gc

import torch
import torchlens
from torch import nn

STEPS, AUDIT_EVERY, BATCH = 228, 12, 48


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.body = nn.Sequential(nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(24 * 64, 10)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).flatten(1))


def audit(model, images):
    """Return how many calls of modules there were."""
    trace = torchlens.trace(model, images)  # feeds
    calls = trace.module_calls  # feeds
    return len(calls)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for step in range(1, STEPS + 1):
        images = torch.randn(BATCH, 3, 32, 32)
        labels = (images[:, 0].mean((1, 2)) > 0).long()
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % AUDIT_EVERY == 0:
            calls = audit(model, images[:32])
            gc.collect()  # a trace is a large circle
            print(f"step {step}/{STEPS}: loss {loss.item():.4f}, {calls} calls", flush=True)


if __name__ == "__main__":
    main()
