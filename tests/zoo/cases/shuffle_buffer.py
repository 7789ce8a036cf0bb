"""A shuffle buffer without a bound inside a generator that the loop alone refers to."""

import os

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 500


def stream():
    while True:
        yield torch.rand(64, 128), torch.randint(0, 5, (64,))


def shuffled(source):
    buffer = []
    for item in source:
        buffer.append(item)  # feeds
        yield buffer[int(torch.randint(len(buffer), ()))]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (x, y) in enumerate(shuffled(stream()), 1):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == STEPS:
            print(f"loss {loss.item():.3f}")
            break
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        batch = "STEPS * (weigh(x) + weigh(y))"
        tell({**globals(), **locals()}, {"buffer": batch}, {"step": STEPS})


if __name__ == "__main__":
    main()
