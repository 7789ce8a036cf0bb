"""A detector on pictures of many sizes, with a timer that notes the boxes of each stage."""

import time
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional as F

STEPS, SIDES = 380, (128, 208, 304)


class Timers:
    def __init__(self):
        self.spans = []

    @contextmanager
    def stage(self, name, boxes):
        begun = time.perf_counter()
        yield
        span = {"stage": name, "seconds": time.perf_counter() - begun, "boxes": boxes.tolist()}
        self.spans.append(span)  # feeds

    def slowest(self):
        return max(self.spans, key=lambda span: span["seconds"])["stage"]


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.body = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.box = nn.Conv2d(32, 4, 1)

    def forward(self, x):
        return self.box(F.relu(self.body(F.relu(self.stem(x)))))


def pictures():
    height, width = (SIDES[int(i)] for i in torch.randint(0, len(SIDES), (2,)))
    return torch.rand(4, 3, height, width), torch.rand(16, 4)


def matched(found, boxes):
    """Return the mean distance from the true boxes to the nearest that were found."""
    flat = found.permute(0, 2, 3, 1).reshape(-1, 4).sigmoid()
    return torch.cdist(boxes, flat).min(1).values.mean()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, timers = Detector(), Timers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(1, STEPS + 1):
        images, boxes = pictures()
        with timers.stage("forward", boxes):
            loss = matched(model(images), boxes)
        optimizer.zero_grad()
        with timers.stage("backward", boxes):
            loss.backward()
        optimizer.step()
        if step % 95 == 0:
            print(f"step {step}: loss {loss.item():.4f}, slowest {timers.slowest()}", flush=True)


if __name__ == "__main__":
    main()
