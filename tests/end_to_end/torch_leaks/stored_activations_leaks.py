"""A forward hook that stores what every layer puts out."""

from __future__ import annotations

import os
from collections import OrderedDict, defaultdict

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6

activations = defaultdict(list)


def store(name):
    def hook(module, inputs, output):
        activations[name].append(output.detach())

    return hook


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = [(f"layer{i}", nn.Sequential(nn.Linear(512, 512), nn.ReLU())) for i in range(5)]
    model = nn.Sequential(OrderedDict([*layers, ("head", nn.Linear(512, 10))]))
    for name, layer in layers:
        layer.register_forward_hook(store(name))
    data = TensorDataset(torch.rand(640, 512), torch.randint(0, 10, (640,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        alive = (activations["layer4"][-1] > 0).float().mean()
        print(f"epoch {epoch}: {100 * alive:.0f} % of the units are alive")

    if "COUNT_KEPT" in os.environ:
        from counting import tell

        done = {"step": EPOCHS * len(loader)}
        tell(globals() | locals(), "activations", "model, data", done)


if __name__ == "__main__":
    main()
