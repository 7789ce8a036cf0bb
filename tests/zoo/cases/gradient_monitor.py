"""A tabular classifier whose gradients are watched by hooks of tensors."""

import time
from collections import defaultdict

import torch
import torch.nn as nn


class GradientMonitor:
    def __init__(self, model):
        self.norms = defaultdict(list)
        self.handles = [
            p.register_hook(self.make_hook(name)) for name, p in model.named_parameters()
        ]

    def make_hook(self, name):
        def hook(grad):
            self.norms[name].append(grad.detach().norm())  # feeds

        return hook

    def worst(self):
        return max(self.norms, key=lambda name: self.norms[name][-1].item())


def build(width=48, depth=12):
    layers = [nn.Linear(20, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 4))


def batches(count, size=64):
    generator = torch.Generator().manual_seed(11)
    for _ in range(count):
        x = torch.randn(size, 20, generator=generator)
        time.sleep(0.002)
        yield x, (x[:, :4].argmax(1))


def main():
    torch.manual_seed(0)
    model = build()
    monitor = GradientMonitor(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(11):
        for x, y in batches(350):
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item(), "largest gradient:", monitor.worst())


if __name__ == "__main__":
    main()
