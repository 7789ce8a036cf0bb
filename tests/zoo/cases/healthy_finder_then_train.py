"""A range test of the learning rate, with a copy of the model per candidate, then the training."""

import copy
import math
import time

import torch
import torch.nn as nn


def batches(count):
    for _ in range(count):
        x = torch.randn(64, 50)
        time.sleep(0.004)
        yield x, (x[:, :3].sum(1, keepdim=True) > 0).float()


def train_for(model, lr, count):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    total = 0.0
    for x, y in batches(count):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / count


def range_test(model, count=40):
    candidates = []
    for i in range(count):
        lr = 10 ** (-4 + 4 * i / count)
        clone = copy.deepcopy(model)
        score = train_for(clone, lr, 20)
        candidates.append((score if math.isfinite(score) else 1e9, lr, clone))
        print(f"lr {lr:.5f}: {score:.4f}")
    score, lr, clone = min(candidates, key=lambda c: c[0])
    return lr, clone


def main():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(50, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 1)
    )
    lr, model = range_test(model)
    print("chosen", lr)
    for epoch in range(16):
        print("epoch", epoch, train_for(model, lr, 100))


if __name__ == "__main__":
    main()
