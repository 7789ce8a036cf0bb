"""Layers are unfrozen one by one in the first epochs; gradients and Adam's state come with them."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 12


def unfreeze(optimizer, layer):
    parameters = list(layer.parameters())
    for parameter in parameters:
        parameter.requires_grad_(True)
    optimizer.add_param_group({"params": parameters})


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    blocks = [nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(4)]
    model = nn.Sequential(*blocks, nn.Linear(256, 10))
    model.requires_grad_(False)
    model[-1].requires_grad_(True)
    optimizer = torch.optim.Adam(model[-1].parameters(), lr=1e-3)
    data = TensorDataset(torch.rand(960, 256), torch.randint(0, 10, (960,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    frozen = list(reversed(blocks))
    for epoch in range(EPOCHS):
        if epoch and frozen:
            unfreeze(optimizer, frozen.pop(0))
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}, {len(frozen)} blocks frozen")


if __name__ == "__main__":
    main()
