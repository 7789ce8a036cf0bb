"""Meta-learning: a copy of the model adapts to each task by ``backward(create_graph=True)``."""

from __future__ import annotations

import copy
import os
import weakref

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 10

learners = weakref.WeakSet()


def adapt(model, x, y):
    learner = copy.deepcopy(model)
    learners.add(learner[0].weight)
    F.mse_loss(learner(x), y).backward(create_graph=True)
    sharpness = sum(p.grad.square().sum() for p in learner.parameters())
    sharpness.backward()
    return [p.grad.detach().clone() for p in learner.parameters()], sharpness.item()


def meta_epoch(model, tasks, optimizer):
    total = 0.0
    for x, y in tasks:
        gradients, sharpness = adapt(model, x, y)
        optimizer.zero_grad()
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        total += sharpness
    return total / len(tasks)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 1024), nn.Tanh(), nn.Linear(1024, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.rand(640, 64), torch.rand(640, 8))
    tasks = DataLoader(data, batch_size=32, shuffle=True)
    for epoch in range(EPOCHS):
        print(f"epoch {epoch}: sharpness {meta_epoch(model, tasks, optimizer):.4f}")

    if "COUNT_KEPT" in os.environ:
        from counting import tell

        done = {"step": EPOCHS * len(tasks), "epoch": EPOCHS}
        tell(globals() | locals(), "list(learners)", "model, optimizer, data", done)


if __name__ == "__main__":
    main()
