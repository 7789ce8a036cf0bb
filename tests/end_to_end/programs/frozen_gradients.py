"""Warms up a whole network, then freezes its backbone and goes on with the head alone."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 256))
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.backbone(x))


def freeze(module):
    for parameter in module.parameters():
        parameter.requires_grad = False


def fit(network, loader, optimizer, epochs):
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(network(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(epoch, round(total / len(loader), 3))


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(256, 1024), torch.randint(0, 10, (256,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    network = Network()
    fit(network, loader, torch.optim.SGD(network.parameters(), 1e-2), epochs=2)
    freeze(network.backbone)
    fit(network, loader, torch.optim.SGD(network.head.parameters(), 1e-2), epochs=5)


if __name__ == "__main__":
    main()
